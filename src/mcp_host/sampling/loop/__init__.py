"""Tool loops: asking a model, running the tools that it calls, and so on until it stops."""

from mcp_host.sampling.loop.engine import Ended, FinishedCall, LoopResult, Step
from mcp_host.sampling.loop.host import ApproveProposal, ProposedCall, run_tool_loop
from mcp_host.sampling.loop.results import Cut, head_and_tail
from mcp_host.sampling.loop.tools import LoopTool, ToolClient

__all__ = [
    "ApproveProposal",
    "Cut",
    "Ended",
    "FinishedCall",
    "LoopResult",
    "LoopTool",
    "ProposedCall",
    "Step",
    "ToolClient",
    "head_and_tail",
    "run_tool_loop",
]
