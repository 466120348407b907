"""Checking a request before the model sees it, and the answer before it is sent."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

from mcp_host.errors import QUOTED, InputRefused, ProtocolError, SamplingError, excerpt, quoted
from mcp_host.protocol import conversation
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR
from mcp_host.sampling.limits import SamplingLimits, check_counts, check_history, check_sizes
from mcp_host.sampling.request import SamplingMode, SamplingRequest
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, TOOL_USE

logger = logging.getLogger(__name__)

TOOL_FIELDS = ("tools", "toolChoice", "tool_choice")  # the last is the spelling of drafts of SEP-1577
NO_TOOLS = "this client did not declare sampling.tools"

COMPLETED = frozenset({END_TURN, None})  # with any other stop reason, the model did not finish


def read_params(
    wire: dict[str, Any],
    mode: SamplingMode,
    limits: SamplingLimits,
    size: float = math.inf,
    *,
    refuses_context: bool = False,
) -> CreateMessageRequestParams:
    """The request in *wire*, if a session of this *mode* accepts it, with no more tokens than *limits* allow.

    *size* is as for `check_counts`.

    Raises:
        ProtocolError: It is malformed, breaks a rule of the conversation or exceeds a limit.
    """
    if mode == "basic":
        # "The client MUST return an error if this field is provided but ClientCapabilities.sampling.tools is
        # not declared" (the schema, of tools and toolChoice): an empty list is provided, too.
        for name in TOOL_FIELDS:
            if wire.get(name) is not None:  # null stands for absent: some servers write every field
                raise ProtocolError(f"{name}: {NO_TOOLS}")
    check_counts(wire, limits, size)
    params = CreateMessageRequestParams.from_wire(wire)
    messages = conversation.normalize(params.messages)
    if mode == "basic":  # the remains of a loop with tools would mean nothing to a handler of plain requests
        for index, message in enumerate(messages):
            for block in message.content:
                if isinstance(block, ToolUseContent | ToolResultContent):
                    raise ProtocolError(f"messages[{index}]: {block.type}: {NO_TOOLS}")
    conversation.check_tools(params.tools or [], params.tool_choice)
    check_sizes(params, limits, size)
    if refuses_context and params.include_context not in (None, "none"):
        # "Servers SHOULD only use these values if the client declares ClientCapabilities.sampling.context" (the schema)
        raise ProtocolError("includeContext: this client did not declare sampling.context")
    max_tokens = params.max_tokens if limits.max_tokens is None else min(params.max_tokens, limits.max_tokens)
    if messages is params.messages and max_tokens == params.max_tokens:
        return params
    return params.model_copy(update={"messages": messages, "max_tokens": max_tokens})


def check_answer(
    answer: object, request: SamplingRequest, limits: SamplingLimits, size: float = math.inf
) -> CreateMessageResult:
    """The answer as it may be sent. *size* is as for `check_counts`.

    Mistakes with only one correction are corrected: a string is a text, no content is an empty text, and
    ``endTurn`` next to tool calls is ``toolUse``. Tool calls that ``maxTokens`` cut off are dropped.

    Raises:
        SamplingError: The answer is illegal. The text is one sentence for the host's log.
        InputRefused: The server could not send it back within *limits*.
    """
    if isinstance(answer, str):
        answer = request.reply(answer)
    if not isinstance(answer, CreateMessageResult):
        raise SamplingError(f"a {type(answer).__name__} is no CreateMessageResult, nor a str")
    answer, uses = _corrected(answer, request)
    if answer.role != "assistant":
        raise SamplingError("its role is not assistant")
    if ToolResultContent in map(type, answer.content):
        raise SamplingError("it holds a tool_result; only the server has those")
    if uses:
        _check_calls(uses, answer.stop_reason, request, limits)
    elif answer.stop_reason == TOOL_USE:
        raise SamplingError("its stop reason is toolUse, but it calls no tool")
    elif request.must_use_tools and answer.stop_reason in COMPLETED:
        raise SamplingError("it calls no tool, but toolChoice requires one")
    try:
        check_history(request.params, answer, limits, size)
    except ProtocolError as exc:
        logger.error("sampling for %s: %s", excerpt(request.server), exc)
        raise InputRefused(INTERNAL_ERROR, str(exc)) from exc
    return answer


def _corrected(
    answer: CreateMessageResult, request: SamplingRequest
) -> tuple[CreateMessageResult, Sequence[ToolUseContent]]:
    """The answer without mistakes that have only one correction, and its tool calls."""
    content, stop_reason = answer.content, answer.stop_reason
    uses = answer.tool_uses if ToolUseContent in map(type, content) else []
    if uses and stop_reason == MAX_TOKENS:
        dropped = "sampling for %s: maxTokens cut the answer off; its calls of %s are dropped"
        logger.warning(dropped, excerpt(request.server), _names(uses))
        content, uses = [block for block in content if not isinstance(block, ToolUseContent)], []
    elif uses and stop_reason in COMPLETED:
        stop_reason = TOOL_USE
    if not content:
        content = [TextContent(text="")]
    if content is answer.content and stop_reason == answer.stop_reason:
        return answer, uses
    return answer.model_copy(update={"content": content, "stop_reason": stop_reason}), uses


def _check_calls(
    uses: Sequence[ToolUseContent], stop_reason: str | None, request: SamplingRequest, limits: SamplingLimits
) -> None:
    if stop_reason != TOOL_USE:
        raise SamplingError(f"it calls tools, but its stop reason is {quoted(stop_reason)}")
    if not request.may_use_tools:
        raise SamplingError(f"it calls {_names(uses)}, but the request allows no tools")
    if len(uses) > limits.tool_calls:
        raise SamplingError(f"it calls {len(uses)} tools; SamplingLimits.tool_calls is {limits.tool_calls}")
    offered = {tool.name for tool in request.tools}
    if unknown := [use for use in uses if use.name not in offered]:
        raise SamplingError(f"it calls {_names(unknown)}, which the request does not offer")
    named = request.required_tool
    if named is not None and (others := [use for use in uses if use.name != named]):
        raise SamplingError(f"it calls {_names(others)}, but toolChoice requires {quoted(named)} and nothing else")
    # The server sends the answer back as part of the conversation, where ids must not repeat.
    used = {block.id for message in request.messages for block in message.content if isinstance(block, ToolUseContent)}
    for use in uses:
        try:
            json.dumps(use.input)  # pydantic is no check: it writes bytes and dates as text, and sets as lists
        except (TypeError, ValueError, RecursionError) as exc:
            problem = f"the input of its call of {quoted(use.name)} is not JSON: {excerpt(str(exc))}"
            raise SamplingError(problem) from None
        if use.id in used:
            raise SamplingError(f"the tool_use id {quoted(use.id)} was used before; each call needs its own id")
        used.add(use.id)


def _names(uses: Sequence[ToolUseContent]) -> str:
    return excerpt(", ".join([quoted(use.name) for use in uses]), QUOTED)
