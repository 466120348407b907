"""What an agent host needs to test itself without a network: servers, peers and models."""

from mcp_host.testing.context import Context
from mcp_host.testing.errors import ClientError, NotDeclared, RequestError, ToolError
from mcp_host.testing.model import ScriptedModel
from mcp_host.testing.scripted import ScriptedPeer
from mcp_host.testing.server import Server

__all__ = [
    "ClientError",
    "Context",
    "NotDeclared",
    "RequestError",
    "ScriptedModel",
    "ScriptedPeer",
    "Server",
    "ToolError",
]
