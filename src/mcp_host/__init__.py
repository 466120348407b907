"""An async client and host SDK for the Model Context Protocol, made for sampling with tools.

>>> async with Client(["uvx", "some-server"], sampling=Sampling(with_tools=model, approve=ask_in_terminal)) as c:
...     result = await c.call_tool("research", {"topic": "tides"})

This is the front door: the names that applications use. The messages and
content blocks are in `mcp_host.types`, every exception is in `mcp_host.errors`,
servers and models to test against are in `mcp_host.testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mcp_host.client.client import Client, OnProgress
from mcp_host.errors import McpError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.protocol.negotiation import EraCache
from mcp_host.session.state import OnChange, OnLog, OnNotification
from mcp_host.transports.stdio import Stdio
from mcp_host.version import __version__

if TYPE_CHECKING:
    from mcp_host.auth import OAuth
    from mcp_host.client.pins import OnToolChange, ToolPins
    from mcp_host.client.tool_policy import CheckOutput, ToolPolicy, safe_tool_name
    from mcp_host.elicitation import (
        Elicitation,
        FormHandler,
        FormRequest,
        OnElicitationComplete,
        UrlHandler,
        UrlRequest,
    )
    from mcp_host.elicitation.terminal import fill_in_terminal, open_in_browser
    from mcp_host.functions import FunctionTool, ToolError
    from mcp_host.group import ClientGroup, ProposedServer, ServerConsents, ServerOptions, ServerStatus
    from mcp_host.roots import RootLike, RootsHandler, RootsRequest
    from mcp_host.sampling import (
        Allow,
        Approvals,
        Approve,
        Deny,
        Handler,
        LoopResult,
        OwnTools,
        ProposedCall,
        Sampling,
        SamplingLimits,
        SamplingRequest,
        ToolCall,
        always,
        ask_in_terminal,
        run_tool_loop,
    )
    from mcp_host.sampling.structured import ServerSampling
    from mcp_host.server_requests import OuterCall
    from mcp_host.session.changes import Change
    from mcp_host.session.list_changed import ListChanged
    from mcp_host.transports.http import StreamableHttp
    from mcp_host.transports.in_process import InProcess
    from mcp_host.types.tool_changes import ToolChange

__all__ = [
    "Allow",
    "Approvals",
    "Approve",
    "Change",
    "CheckOutput",
    "Client",
    "ClientGroup",
    "Deny",
    "Elicitation",
    "EraCache",
    "FormHandler",
    "FormRequest",
    "FunctionTool",
    "Handler",
    "InProcess",
    "Limits",
    "ListChanged",
    "LoopResult",
    "McpError",
    "Notification",
    "OAuth",
    "OnChange",
    "OnElicitationComplete",
    "OnLog",
    "OnNotification",
    "OnProgress",
    "OnToolChange",
    "OuterCall",
    "OwnTools",
    "ProposedCall",
    "ProposedServer",
    "RootLike",
    "RootsHandler",
    "RootsRequest",
    "Sampling",
    "SamplingLimits",
    "SamplingRequest",
    "ServerConsents",
    "ServerOptions",
    "ServerSampling",
    "ServerStatus",
    "Stdio",
    "StreamableHttp",
    "ToolCall",
    "ToolChange",
    "ToolError",
    "ToolPins",
    "ToolPolicy",
    "UrlHandler",
    "UrlRequest",
    "__version__",
    "always",
    "ask_in_terminal",
    "fill_in_terminal",
    "open_in_browser",
    "run_tool_loop",
    "safe_tool_name",
]

# Imported on first use, by module.
_ON_DEMAND = {
    "auth": ("OAuth",),
    "client.pins": ("OnToolChange", "ToolPins"),
    "client.tool_policy": ("CheckOutput", "ToolPolicy", "safe_tool_name"),
    "elicitation": ("Elicitation", "FormHandler", "FormRequest", "OnElicitationComplete", "UrlHandler", "UrlRequest"),
    "elicitation.terminal": ("fill_in_terminal", "open_in_browser"),
    "group": ("ClientGroup", "ProposedServer", "ServerConsents", "ServerOptions", "ServerStatus"),
    "functions": ("FunctionTool", "ToolError"),
    "roots": ("RootLike", "RootsHandler", "RootsRequest"),
    "sampling": (
        "Allow",
        "Approvals",
        "Approve",
        "Deny",
        "Handler",
        "OwnTools",
        "LoopResult",
        "ProposedCall",
        "Sampling",
        "SamplingLimits",
        "SamplingRequest",
        "ToolCall",
        "always",
        "ask_in_terminal",
        "run_tool_loop",
    ),
    "sampling.structured": ("ServerSampling",),
    "server_requests": ("OuterCall",),
    "session.changes": ("Change",),
    "session.list_changed": ("ListChanged",),
    "types.tool_changes": ("ToolChange",),
    "transports.http": ("StreamableHttp",),
    "transports.in_process": ("InProcess",),
}


def __getattr__(name: str) -> object:
    for module, names in _ON_DEMAND.items():
        if name in names:
            return getattr(import_module(f"mcp_host.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # with those not imported yet, for `help()` and completion
