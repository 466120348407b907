"""Whether an answer is legal for what was asked. What is not never leaves the host."""

from __future__ import annotations

from mcp_host.errors import QUOTED, SamplingError, excerpt, quoted
from mcp_host.protocol.conversation import tool_use_ids
from mcp_host.sampling.limits import SamplingLimits
from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import CreateMessageResult, ToolResultContent, ToolUseContent
from mcp_host.types.sampling import END_TURN, TOOL_USE

COMPLETED = frozenset({END_TURN, None})  # any other stop reason says what kept the model from finishing


def check_answer(answer: object, request: SamplingRequest, limits: SamplingLimits) -> CreateMessageResult:
    """The answer, if a server may have it. A missing stop reason ``toolUse`` is filled in.

    Raises:
        SamplingError: One sentence for the host's log on what is wrong with it.
    """
    if not isinstance(answer, CreateMessageResult):
        raise SamplingError(f"a {type(answer).__name__} is no CreateMessageResult")
    problem = _problem(answer, request, limits)
    if problem is not None:
        raise SamplingError(problem)
    if answer.stop_reason is None and answer.tool_uses:
        return answer.model_copy(update={"stop_reason": TOOL_USE})
    return answer


def _problem(answer: CreateMessageResult, request: SamplingRequest, limits: SamplingLimits) -> str | None:
    uses = answer.tool_uses
    if answer.role != "assistant":
        return "its role is not assistant"
    if not answer.content:
        return "it has no content; a model with nothing to say is one empty TextContent"
    if ToolResultContent in map(type, answer.content):
        return "it holds a tool_result; only the server has those"
    if not uses:
        return _without_tools(answer, request)
    if answer.stop_reason not in (TOOL_USE, None):
        return f"it calls tools, but its stop reason is {quoted(answer.stop_reason)}"
    return _wrong_calls(uses, request, limits)


def _without_tools(answer: CreateMessageResult, request: SamplingRequest) -> str | None:
    if answer.stop_reason == TOOL_USE:
        return "its stop reason is toolUse, but it calls no tool"
    if request.must_use_tools and answer.stop_reason in COMPLETED:
        return "it calls no tool, but toolChoice requires one"
    return None


def _wrong_calls(uses: list[ToolUseContent], request: SamplingRequest, limits: SamplingLimits) -> str | None:
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
    # The server sends the answer back as part of the conversation, where ids must not repeat.
    taken = {taken for message in request.messages for taken in tool_use_ids(message)}
    for use in uses:
        if use.id in taken:
            return f"the tool_use id {quoted(use.id)} was used before; each call needs an id of its own"
        taken.add(use.id)
    return None


def _names(uses: list[ToolUseContent]) -> str:
    return excerpt(", ".join([quoted(use.name) for use in uses]), QUOTED)
