"""Whether a call that a model proposes may be made: its arguments fit the tool's schema, and it is approved."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_host.functions import text_result
from mcp_host.protocol.jsonrpc import snapshot
from mcp_host.sampling.approval import Deny
from mcp_host.sampling.arguments import MISMATCH, ArgumentChecker
from mcp_host.sampling.loop.approvals import Approvals, ProposedCall
from mcp_host.sampling.loop.tools import OfferedTool
from mcp_host.types import CallToolResult


async def refusal(
    tool: OfferedTool,
    arguments: Mapping[str, object],
    *,
    caller: object,
    checker: ArgumentChecker | None,
    approvals: Approvals | None,
) -> CallToolResult | None:
    """What tells the model why this call of *tool* is not made; None if it may be made.

    *approvals* decide, or without them those of the tool, if it has some. What these raise is raised.
    """
    if checker is not None:
        problem = await checker.problem(tool.definition, arguments)
        if problem is not None:
            return text_result(MISMATCH.format(problem=problem), is_error=True)
    if (approvals := approvals or tool.approvals) is not None:
        call = ProposedCall(
            server=tool.server,
            tool=tool.definition,
            arguments=snapshot(arguments),
            caller=caller,
            server_info=tool.server_info,
            server_key=tool.server_key,
        )
        decision = await approvals.decide(call)
        if isinstance(decision, Deny):
            return text_result(f"This call was denied: {decision.reason}", is_error=True)
    return None
