"""Servers, scripted peers and scripted models to test agent hosts with, without a network."""

from mcp_host.errors import NotDeclared
from mcp_host.functions import ToolError
from mcp_host.testing.context import Context
from mcp_host.testing.errors import ClientError, RequestError
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
