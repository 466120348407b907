"""The files of servers that users have, as data: reading them starts nothing and expands nothing.

>>> for server in read_servers("mcp.json").servers:
...     print(server.name, server.shown, server.problem)
"""

from mcp_host.config.dialects import DIALECTS
from mcp_host.config.entry import AnswerStore, AskInput, ExpandedServer, ServerEntry, ServerPreview, ask_inputs
from mcp_host.config.places import FoundFile, find_servers, user_file
from mcp_host.config.reader import ServersFile, merge_servers, read_servers
from mcp_host.config.values import (
    EnvironmentVariable,
    HttpServer,
    Input,
    OAuthSettings,
    Scope,
    Source,
    StdioServer,
    ToolFilter,
)
from mcp_host.config.writer import add_server, remove_server, set_enabled

__all__ = [
    "DIALECTS",
    "AnswerStore",
    "AskInput",
    "EnvironmentVariable",
    "ExpandedServer",
    "FoundFile",
    "HttpServer",
    "Input",
    "OAuthSettings",
    "Scope",
    "ServerEntry",
    "ServerPreview",
    "ServersFile",
    "Source",
    "StdioServer",
    "ToolFilter",
    "add_server",
    "ask_inputs",
    "find_servers",
    "merge_servers",
    "read_servers",
    "remove_server",
    "set_enabled",
    "user_file",
]
