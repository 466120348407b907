"""Checking that an answer is legal for the request. Illegal answers are not sent."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence

from mcp_host.errors import QUOTED, InputRefused, ProtocolError, SamplingError, excerpt, quoted
from mcp_host.protocol.conversation import tool_use_ids
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR
from mcp_host.sampling.limits import SamplingLimits, check_history
from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import CreateMessageResult, TextContent, ToolResultContent, ToolUseContent
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, TOOL_USE

logger = logging.getLogger(__name__)

COMPLETED = frozenset({END_TURN, None})  # with any other stop reason, the model did not finish


def check_answer(
    answer: object, request: SamplingRequest, limits: SamplingLimits, size: float = math.inf
) -> CreateMessageResult:
    """The answer as it may be sent, see `_repair`. *size* is as for `check_counts`.

    Raises:
        SamplingError: The answer is illegal. The text is one sentence for the host's log.
        InputRefused: The server could not send it back within *limits*.
    """
    if isinstance(answer, str):
        answer = request.reply(answer)
    if not isinstance(answer, CreateMessageResult):
        raise SamplingError(f"a {type(answer).__name__} is no CreateMessageResult, nor a str")
    answer, uses = _repair(answer, request)
    problem = _problem(answer, uses, request, limits)
    if problem is not None:
        raise SamplingError(problem)
    try:
        check_history(request.params, answer, limits, size)
    except ProtocolError as exc:
        logger.error("sampling for %s: %s", excerpt(request.server), exc)
        raise InputRefused(INTERNAL_ERROR, str(exc)) from exc
    return answer


def _repair(
    answer: CreateMessageResult, request: SamplingRequest
) -> tuple[CreateMessageResult, Sequence[ToolUseContent]]:
    """The answer without mistakes that have only one correction, and its tool calls.

    Beside tool calls the stop reason is ``toolUse``. Tool calls that ``maxTokens`` cut off are dropped.
    An answer without content is an empty text.
    """
    content, stop_reason, uses = answer.content, answer.stop_reason, answer.tool_uses
    if uses:
        if stop_reason in COMPLETED:
            stop_reason = TOOL_USE
        elif stop_reason == MAX_TOKENS:
            dropped = "sampling for %s: maxTokens cut the answer off; its calls of %s are dropped"
            logger.warning(dropped, excerpt(request.server), _names(uses))
            content, uses = [block for block in content if not isinstance(block, ToolUseContent)], []
    if not content:
        content = [TextContent(text="")]
    if content is answer.content and stop_reason == answer.stop_reason:
        return answer, uses
    return answer.model_copy(update={"content": content, "stop_reason": stop_reason}), uses


def _problem(
    answer: CreateMessageResult, uses: Sequence[ToolUseContent], request: SamplingRequest, limits: SamplingLimits
) -> str | None:
    if answer.role != "assistant":
        return "its role is not assistant"
    if ToolResultContent in map(type, answer.content):
        return "it holds a tool_result; only the server has those"
    if not uses:
        if answer.stop_reason == TOOL_USE:
            return "its stop reason is toolUse, but it calls no tool"
        if request.must_use_tools and answer.stop_reason in COMPLETED:
            return "it calls no tool, but toolChoice requires one"
        return None
    if answer.stop_reason not in (TOOL_USE, None):
        return f"it calls tools, but its stop reason is {quoted(answer.stop_reason)}"
    return _problem_with_calls(uses, request, limits)


def _problem_with_calls(uses: Sequence[ToolUseContent], request: SamplingRequest, limits: SamplingLimits) -> str | None:
    if not request.may_use_tools:
        return f"it calls {_names(uses)}, but the request allows no tools"
    if len(uses) > limits.tool_calls:
        return f"it calls {len(uses)} tools; SamplingLimits.tool_calls is {limits.tool_calls}"
    offered = {tool.name for tool in request.tools}
    if unknown := [use for use in uses if use.name not in offered]:
        return f"it calls {_names(unknown)}, which the request does not offer"
    named = request.required_tool
    if named is not None and (others := [use for use in uses if use.name != named]):
        return f"it calls {_names(others)}, but toolChoice requires {quoted(named)} and nothing else"
    for use in uses:
        if (why := _not_json(use.input)) is not None:
            return f"the input of its call of {quoted(use.name)} is not JSON: {why}"
    # The server sends the answer back as part of the conversation, where ids must not repeat.
    used = {id for message in request.messages for id in tool_use_ids(message)}
    for use in uses:
        if use.id in used:
            return f"the tool_use id {quoted(use.id)} was used before; each call needs its own id"
        used.add(use.id)
    return None


def _not_json(arguments: dict[str, object]) -> str | None:
    """Why *arguments* are not JSON. Pydantic is no check: it writes bytes and dates as text, and sets as lists."""
    try:
        json.dumps(arguments)
    except (TypeError, ValueError, RecursionError) as exc:
        return excerpt(str(exc))
    return None


def _names(uses: Sequence[ToolUseContent]) -> str:
    return excerpt(", ".join([quoted(use.name) for use in uses]), QUOTED)
