"""Several servers under one roof: their names, their states, and the tools of all."""

from mcp_host.group.group import ClientGroup, OnStatus
from mcp_host.group.names import group_name
from mcp_host.group.status import ServerState, ServerStatus

__all__ = ["ClientGroup", "OnStatus", "ServerState", "ServerStatus", "group_name"]
