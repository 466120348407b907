"""Sampling: answering a server's request for a completion under policy, with or without tools.

Independent of clients and connections: it only knows the protocol's messages.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_host.sampling.approval import Allow, Approve, Deny, always
    from mcp_host.sampling.limits import OwnTools, SamplingLimits
    from mcp_host.sampling.loop.approvals import Approvals, ApproveProposal, ProposedCall
    from mcp_host.sampling.loop.engine import FinishedCall, LoopResult, Step
    from mcp_host.sampling.loop.host import run_tool_loop
    from mcp_host.sampling.loop.results import Cut, head_and_tail
    from mcp_host.sampling.loop.tools import LoopTool, ToolClient
    from mcp_host.sampling.other_clients import from_fastmcp, from_sdk
    from mcp_host.sampling.request import AroundModel, CallModel, Handler, SamplingMode, SamplingRequest, ToolCall
    from mcp_host.sampling.sampling import Sampling, SamplingCallback, SamplingSession
    from mcp_host.sampling.terminal import ask_in_terminal
    from mcp_host.server_requests import OuterCall

__all__ = [
    "Allow",
    "Approvals",
    "Approve",
    "ApproveProposal",
    "AroundModel",
    "CallModel",
    "Cut",
    "Deny",
    "FinishedCall",
    "Handler",
    "LoopResult",
    "LoopTool",
    "OuterCall",
    "OwnTools",
    "ProposedCall",
    "Sampling",
    "SamplingCallback",
    "SamplingLimits",
    "SamplingMode",
    "SamplingRequest",
    "SamplingSession",
    "Step",
    "ToolCall",
    "ToolClient",
    "always",
    "ask_in_terminal",
    "from_fastmcp",
    "from_sdk",
    "head_and_tail",
    "run_tool_loop",
]


# Imported on first use, by module: a client without sampling does not need it.
_ON_DEMAND = {
    "mcp_host.sampling.approval": ("Allow", "Approve", "Deny", "always"),
    "mcp_host.sampling.limits": ("OwnTools", "SamplingLimits"),
    "mcp_host.sampling.loop.approvals": ("Approvals", "ApproveProposal", "ProposedCall"),
    "mcp_host.sampling.loop.engine": ("FinishedCall", "LoopResult", "Step"),
    "mcp_host.sampling.loop.host": ("run_tool_loop",),
    "mcp_host.sampling.loop.results": ("Cut", "head_and_tail"),
    "mcp_host.sampling.loop.tools": ("LoopTool", "ToolClient"),
    "mcp_host.sampling.other_clients": ("from_fastmcp", "from_sdk"),
    "mcp_host.sampling.request": ("AroundModel", "CallModel", "Handler", "SamplingMode", "SamplingRequest", "ToolCall"),
    "mcp_host.sampling.sampling": ("Sampling", "SamplingCallback", "SamplingSession"),
    "mcp_host.sampling.terminal": ("ask_in_terminal",),
    "mcp_host.server_requests": ("OuterCall",),
}


def __getattr__(name: str) -> object:
    for module, names in _ON_DEMAND.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(module), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # as in `mcp_host`
