"""Several servers under one roof: their names, their states, and the tools of all."""

from mcp_host.group.group import ClientGroup, OnServerChange, OnServerLog
from mcp_host.group.member import ServerOptions
from mcp_host.group.names import group_name
from mcp_host.group.status import OnStatus, ServerState, ServerStatus

__all__ = [
    "ClientGroup",
    "OnServerChange",
    "OnServerLog",
    "OnStatus",
    "ServerOptions",
    "ServerState",
    "ServerStatus",
    "group_name",
]
