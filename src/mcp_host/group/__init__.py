"""Several servers under one roof: their names, their states, and the tools of all."""

from mcp_host.group.consents import ApproveServer, ServerConsents
from mcp_host.group.group import ClientGroup
from mcp_host.group.names import group_name
from mcp_host.group.options import OnServerChange, OnServerLog, OnServerStderr, ServerOptions
from mcp_host.group.status import OnStatus, ServerState, ServerStatus
from mcp_host.sampling.proposed_server import ProposedServer

__all__ = [
    "ApproveServer",
    "ClientGroup",
    "OnServerChange",
    "OnServerLog",
    "OnServerStderr",
    "OnStatus",
    "ProposedServer",
    "ServerConsents",
    "ServerOptions",
    "ServerState",
    "ServerStatus",
    "group_name",
]
