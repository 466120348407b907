"""Checking a request before the model sees it, and the answer before it is sent."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from operator import attrgetter, sub
from typing import Any, assert_never

from pydantic_core import to_json

from mcp_host.errors import QUOTED, InputRefused, ProtocolError, SamplingError, UnusableCalls, excerpt, quoted
from mcp_host.protocol import conversation
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR
from mcp_host.protocol.values import SMALLEST_VALUE, count_values
from mcp_host.sampling.limits import LimitExceeded, SamplingLimits
from mcp_host.sampling.repeated import RepeatedTools
from mcp_host.sampling.request import SamplingMode, SamplingRequest, log_subject
from mcp_host.sampling.stop_reasons import CUT_OFF, TRUNCATED
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    CreateMessageRequestParams,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ContentBlock
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, TOOL_USE, SamplingMessageContentBlock

logger = logging.getLogger(__name__)

TOOL_FIELDS = ("tools", "toolChoice", "tool_choice")  # the last is the spelling of drafts of SEP-1577
NO_TOOLS = "this client did not declare sampling.tools"

MAX_SAFE_INTEGER = 2**53 - 1  # the largest integer that every JSON parser keeps (RFC 8259, section 6)
LONGER = 5  # written again, JSON can be at most this many times longer: 1e15 becomes 1000000000000000.0
SMALLEST_BLOCK = len('{"type":"text","text":""}')  # bytes
THIS = "the request has"
NEXT = "a request with this answer in it would have"

ONLY = "Call {name} and nothing else."

NO_CALL = "%s: the answer calls no tool, but %s; it is sent as it is"
COMPLETED = frozenset({END_TURN, None})  # with any other stop reason, the model did not finish


def read_params(
    wire: dict[str, Any],
    mode: SamplingMode,
    limits: SamplingLimits,
    size: float = math.inf,
    *,
    accepts_context: bool = True,
    repeated: RepeatedTools | None = None,
) -> CreateMessageRequestParams:
    """The request in *wire*, if a session of this *mode* accepts it, with no more tokens than *limits* allow.

    *size* is as for `check_counts`. *repeated* reads the request, if its handler may get `ReadOnlyTools`.

    Raises:
        ProtocolError: It is malformed, or breaks a rule of the conversation.
        LimitExceeded: It exceeds a limit.
    """
    if mode == "basic":
        # "The client MUST return an error if this field is provided but ClientCapabilities.sampling.tools is
        # not declared" (the schema, of tools and toolChoice): an empty list is provided, too.
        for name in TOOL_FIELDS:
            if wire.get(name) is not None:  # null stands for absent: some servers write every field
                raise ProtocolError(f"{name}: {NO_TOOLS}")
    check_counts(wire, limits, size)
    params = CreateMessageRequestParams.from_wire(wire) if repeated is None else repeated.read(wire)
    messages = conversation.check_and_merge(params.messages)
    if mode == "basic":  # the remains of a loop with tools would mean nothing to a handler of plain requests
        for index, message in enumerate(messages):
            for block in message.content:
                if isinstance(block, ToolUseContent | ToolResultContent):
                    raise ProtocolError(f"messages[{index}]: {block.type}: {NO_TOOLS}")
    conversation.check_tools(params.tools or [], params.tool_choice)
    check_sizes(params, limits, size)
    if not accepts_context and params.include_context not in (None, "none"):
        # "Servers SHOULD only use these values if the client declares ClientCapabilities.sampling.context" (the schema)
        raise ProtocolError("includeContext: this client did not declare sampling.context")
    max_tokens = params.max_tokens if limits.max_tokens is None else min(params.max_tokens, limits.max_tokens)
    if messages is params.messages and max_tokens == params.max_tokens:
        return params
    return params.model_copy(update={"messages": messages, "max_tokens": max_tokens})


def check_counts(wire: Mapping[str, object], limits: SamplingLimits, size: float = math.inf) -> None:
    """Check the lists of a request before it is parsed: a million blocks would block the event loop.

    *size* is an upper bound of the request in bytes; small requests skip what they cannot exceed. Wrong shapes are
    left to the parser.

    Raises:
        LimitExceeded: A limit is exceeded.
        ProtocolError: The tools cannot be written as JSON.
    """
    messages, tools = wire.get("messages"), wire.get("tools")
    if isinstance(messages, list):
        _check("messages", len(messages), limits.messages)
        if size > limits.blocks * SMALLEST_BLOCK:
            _check("blocks", _count_blocks(messages), limits.blocks)
    if size > limits.values * SMALLEST_VALUE and count_values(wire, limits.values) > limits.values:
        raise _exceeded("values", limits.values, f"{THIS} more")
    if isinstance(tools, list):
        _check("tools", len(tools), limits.tools)
        # To measure all tools together is fast, and nearly always enough.
        if size * LONGER > limits.tool_definition and _json_size(tools) > limits.tool_definition:
            for index, tool in enumerate(tools):
                _check("tool_definition", _json_size(tool), limits.tool_definition, where=f"tools[{index}]: ")


def check_sizes(params: CreateMessageRequestParams, limits: SamplingLimits, size: float = math.inf) -> None:
    """Check the size of what a model would read. *size* is as for `check_counts`.

    Raises:
        LimitExceeded: A limit is exceeded.
        ProtocolError: maxTokens is out of range, or something cannot be written as JSON.
    """
    if not 1 <= params.max_tokens <= MAX_SAFE_INTEGER:  # not quoted: Python refuses to write an int of 5,000 digits
        raise ProtocolError(f"maxTokens: must be from 1 to {MAX_SAFE_INTEGER}")
    for index, tool in enumerate(params.tools or ()):
        if len(tool.name) > limits.tool_name:
            _check("tool_name", len(tool.name), limits.tool_name, where=f"tools[{index}]: ")
    if size * LONGER > min(_each_size(limits)):
        sizes = Sizes()
        sizes.add_request(params)
        sizes.check(limits)


def check_grown(params: CreateMessageRequestParams, limits: SamplingLimits) -> None:
    """Check a request whose conversation has grown here, by answers of the model and results of tools.

    Raises:
        LimitExceeded: It exceeds a limit.
    """
    _check("messages", len(params.messages), limits.messages, found_in=NEXT)
    _check("blocks", _blocks(params), limits.blocks, found_in=NEXT)
    sizes = Sizes()
    sizes.add_request(params)
    sizes.check(limits, found_in=NEXT)


def check_and_correct(
    answer: object, request: SamplingRequest, limits: SamplingLimits, size: float = math.inf
) -> CreateMessageResult:
    """The answer as it may be sent. *size* is as for `check_counts`.

    Mistakes with only one correction are corrected: a string is a text, and no content is an empty text. Tool calls
    that were cut off are dropped, and otherwise their stop reason is ``toolUse``: see `mcp_host.sampling.stop_reasons`.
    Their arguments have integers where the tool takes them.
    An answer without a call is sent as it is, with a warning, where a call is required: models write a text instead, and
    only the server knows whether that will do, or what to ask next.

    Raises:
        UnusableCalls: It calls tools that it may not call.
        SamplingError: The answer is illegal. The text is one sentence for the host's log.
        InputRefused: The server could not send it back within *limits*.
    """
    if isinstance(answer, str):
        answer = request.reply(answer)
    if not isinstance(answer, CreateMessageResult):
        raise SamplingError(f"its type is {type(answer).__name__}, not CreateMessageResult or str")
    has_uses = any(map(isinstance, answer.content, repeat(ToolUseContent)))
    if has_uses or not answer.content:
        answer = _corrected(answer, request)
    if has_uses and (uses := answer.tool_uses):
        from mcp_host.sampling.arguments import with_integer_arguments  # many clients have no tools

        _check_calls(answer, uses, request, limits)
        answer = with_integer_arguments(answer, request.tools)
    elif answer.stop_reason == TOOL_USE:
        logger.warning(NO_CALL, log_subject(request.server), "its stop reason is toolUse")
        answer = answer.model_copy(update={"stop_reason": END_TURN})
    elif request.must_use_tools and answer.stop_reason in COMPLETED:
        logger.warning(NO_CALL, log_subject(request.server), "toolChoice requires one")
    try:
        check_history(request.params, answer, limits, size)
    except (LimitExceeded, ProtocolError) as exc:
        logger.error("%s: %s", log_subject(request.server), exc)
        raise InputRefused(INTERNAL_ERROR, str(exc)) from exc
    return answer


def _corrected(answer: CreateMessageResult, request: SamplingRequest) -> CreateMessageResult:
    """The answer without mistakes that have only one correction."""
    content, stop_reason, uses = answer.content, answer.stop_reason, answer.tool_uses
    if uses and stop_reason in CUT_OFF:
        dropped = "%s: %s cut the answer off; its calls of %s are dropped"
        logger.warning(dropped, log_subject(request.server), stop_reason, _names(uses))
        content = [block for block in content if not isinstance(block, ToolUseContent)]
        stop_reason = MAX_TOKENS if stop_reason in TRUNCATED else stop_reason
    elif uses:
        stop_reason = TOOL_USE
    if not content:
        content = [TextContent(text="")]
    if content is answer.content and stop_reason == answer.stop_reason:
        return answer
    return answer.model_copy(update={"content": content, "stop_reason": stop_reason})


def _check_calls(
    answer: CreateMessageResult, uses: Sequence[ToolUseContent], request: SamplingRequest, limits: SamplingLimits
) -> None:
    if not request.may_use_tools:
        raise SamplingError(f"it calls {_names(uses)}, but the request allows no tools")
    if len(uses) > limits.tool_calls:
        raise SamplingError(f"it calls {len(uses)} tools; SamplingLimits.tool_calls is {limits.tool_calls}")
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
    offered = {tool.name for tool in request.tools}
    if unknown := [use for use in uses if use.name not in offered]:
        from mcp_host.sampling.arguments import no_such_tool  # few answers need it

        problems = {use.id: no_such_tool(use.name, request.tools) for use in unknown}
        raise UnusableCalls(f"it calls {_names(unknown)}, which the request does not offer", answer, problems)
    named = request.required_tool
    if named is not None and (others := [use for use in uses if use.name != named]):
        problem = f"it calls {_names(others)}, but toolChoice requires {quoted(named)} and nothing else"
        raise UnusableCalls(problem, answer, dict.fromkeys([use.id for use in others], ONLY.format(name=quoted(named))))


def _names(uses: Sequence[ToolUseContent]) -> str:
    return excerpt(", ".join([quoted(use.name) for use in uses]), QUOTED)


def check_history(
    params: CreateMessageRequestParams, answer: CreateMessageResult, limits: SamplingLimits, size: float
) -> None:
    """Check that the server can send *answer* back in its next request. *size* is as for `check_counts`.

    An answer that calls tools comes back with the whole conversation and the results. Any other answer
    may be the last, so it only has to fit alone.

    Raises:
        LimitExceeded: The next request would exceed a limit.
        SamplingError: The answer cannot be written as JSON.
        ProtocolError: The request that it answers cannot be written as JSON.
    """
    blocks = len(answer.content)
    if blocks == 1 and isinstance(block := answer.content[0], TextContent) and len(block.text) * 4 <= limits.text:
        return  # most answers; a character takes at most four bytes of UTF-8
    sizes = Sizes()
    try:
        sizes.add(answer.content)
    except ProtocolError as exc:
        raise SamplingError("it holds something that cannot be written as JSON") from exc
    room = sizes.room(limits)
    if uses := len(answer.tool_uses):
        _check("messages", len(params.messages) + 2, limits.messages, found_in=NEXT)
        blocks += uses  # their results
        if blocks + size / SMALLEST_BLOCK > limits.blocks:
            blocks += _blocks(params)
        if size * LONGER > room:
            sizes.add_request(params)
            room = sizes.room(limits)
    _check("blocks", blocks, limits.blocks, found_in=NEXT)
    if room < 0:
        sizes.check(limits, found_in=NEXT)


def _check(name: str, found: int, limit: int, *, where: str = "", found_in: str = THIS) -> None:
    if found > limit:
        raise _exceeded(name, limit, f"{found_in} {found}", where)


def _exceeded(name: str, limit: int, found: str, where: str = "") -> LimitExceeded:
    """The error for a limit: its text is for the author of the server and, in the server's error, for the host."""
    said = f"{where}this client's limit {name} is {limit}, and {found}"
    return LimitExceeded(f"{said}: its host can raise it with SamplingLimits({name}=...)")


def _blocks(params: CreateMessageRequestParams) -> int:
    blocks = [block for message in params.messages for block in message.content]
    return len(blocks) + sum([len(block.content) for block in blocks if block.type == "tool_result"])


def _count_blocks(messages: list[object]) -> int:
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    blocks = [block for content in contents for block in (content if isinstance(content, list) else [content])]
    results = [block["content"] for block in blocks if isinstance(block, dict) and "content" in block]
    return len(blocks) + sum(len(result) for result in results if isinstance(result, list))


@dataclass(slots=True)
class Sizes:
    """The bytes of what a model reads. Each field is compared with the field of `SamplingLimits` that has its name."""

    text: int = 0
    binary: int = 0

    def add_request(self, params: CreateMessageRequestParams) -> None:
        self.add([block for message in params.messages for block in message.content])
        for words in (params.system_prompt or "", *(params.stop_sequences or ())):
            self.text += utf8_size(words)
        self.text += _json_size(params.metadata)

    def add(self, blocks: Iterable[SamplingMessageContentBlock | ContentBlock]) -> None:
        for block in blocks:
            match block:
                case TextContent():
                    self.text += utf8_size(block.text)
                case ImageContent() | AudioContent():
                    self.binary += decoded_size(block.data)
                case ToolUseContent():
                    self.text += _json_size(block.input)
                case ToolResultContent():
                    self.add(block.content)
                    self.text += _json_size(block.structured_content)
                case EmbeddedResource(resource=resource):
                    if isinstance(resource, BlobResourceContents):
                        self.binary += decoded_size(resource.blob)
                    else:
                        self.text += utf8_size(resource.text)
                case ResourceLink():
                    self.text += _json_size(block.to_wire())
                case _:
                    assert_never(block)

    def room(self, limits: SamplingLimits) -> int:
        """The number of bytes to the nearest limit; negative if a limit is exceeded."""
        room: int = min(map(sub, _each_size(limits), _each_size(self)))
        return room

    def check(self, limits: SamplingLimits, *, found_in: str = THIS) -> None:
        for name, found, limit in zip(SIZES, _each_size(self), _each_size(limits), strict=True):
            _check(name, found, limit, found_in=found_in)


SIZES = tuple(field.name for field in fields(Sizes))
_each_size: Callable[[Sizes | SamplingLimits], tuple[int, ...]] = attrgetter(*SIZES)


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def decoded_size(base64: str) -> int:
    """The size of base64 data, without decoding it."""
    return len(base64) * 3 // 4 - base64.count("=", -2)


def _json_size(value: object) -> int:
    if value is None:
        return 0
    try:
        return len(to_json(value))
    except ValueError as exc:  # too deep, or a lone surrogate: no provider could be sent it
        raise ProtocolError("the request holds something that cannot be written as JSON") from exc
