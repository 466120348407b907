"""How much of the host's model one server may take, and the checks that hold it to that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, assert_never

from pydantic_core import to_json

from mcp_host.errors import ProtocolError, SamplingError
from mcp_host.limits import check_count, check_seconds
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
from mcp_host.types.sampling import SamplingMessageContentBlock

KiB = 1024
MiB = 1024 * KiB

MOST_TOKENS = 2**53 - 1  # the largest integer that every JSON parser keeps (RFC 8259, section 6)
LONGER = 5  # times as long as it came may be what is written anew: 1e15 becomes 1000000000000000.0
NEXT = "a request with this answer in it would have"
# At 0 any other bound would refuse everything.
MAY_BE_ZERO = frozenset({"tools", "tool_calls", "binary", "waiting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """The bounds of sampling: counts, sizes in bytes, times in seconds.

    A request past a bound on its size or counts is refused with -32602 and a message
    that names the bound, before anybody is asked and any token is spent. An answer with
    which the server's next request would be past one is refused with -32603 and the same words.
    """

    tools: int = 64
    """Tools in one request; docker-agent, a host that samples with tools, allows as many."""

    tool_name: int = 128
    """Characters in a tool's name: "Tool names SHOULD be between 1 and 128 characters"."""

    tool_definition: int = 64 * KiB
    """One tool as JSON: its name, description and schemas. All tools of a request together
    can be *tools* times as much, 4 MiB."""

    tool_calls: int = 32
    """Tool calls in one answer (docker-agent's number). An answer past it never leaves the
    host: the server is told -32603, and the log says how many there were."""

    messages: int = 256
    """Messages in one request: a loop of 64 model turns sends 129."""

    blocks: int = 4096
    """Content blocks in one request, those inside of tool results included: 16 for each message."""

    text: int = 1 * MiB
    """Everything in one request that a model reads as text, in UTF-8: messages, system prompt,
    stop sequences, metadata, the input and the results of tools. About 250,000 tokens."""

    binary: int = 8 * MiB
    """Images, audio and embedded files in one request, after decoding their base64."""

    max_tokens: int | None = None
    """The most tokens a server gets for one answer, if there is such a bound: handler and
    approver see the smaller of this and what the server asked for. The server is not told:
    "The client MAY choose to sample fewer tokens than the requested maximum"."""

    at_once_per_server: int = 4
    """Requests of one connection in the hands of approver and handler at once; more wait in order.
    One whose handler awaits a call of a client does not count meanwhile."""

    at_once: int = 16
    """The same for all connections of one `Sampling` together."""

    waiting: int = 64
    """Requests of one connection that may wait for their turn, one full round of input
    requests; past it the server is told -32010."""

    seconds: float = 600.0
    """One answer, from the request's arrival: waiting for its turn, approval and the model
    together. Past it everything is cancelled and the server is told -32011. `math.inf` is no bound."""

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = f"SamplingLimits.{field.name}", getattr(self, field.name)
            if field.name == "seconds":
                check_seconds(name, value)
            elif not (field.name == "max_tokens" and value is None):
                check_count(name, value, least=0 if field.name in MAY_BE_ZERO else 1)


def fits(size: float, limit: int) -> bool:
    """Whether all of a request of *size* bytes is within *limit*, so that its parts need not be measured."""
    return size * LONGER <= limit


def check_counts(wire: Mapping[str, object], limits: SamplingLimits, size: float = math.inf) -> None:
    """Count and measure what the request lists before it is parsed: a million blocks would hold up the event loop.

    *size* is of how many bytes the request was read, at most. Says nothing about what has the wrong shape; parsing does.

    Raises:
        ProtocolError: There is more than *limits* allows.
    """
    messages, tools = _list(wire.get("messages")), _list(wire.get("tools"))
    _hold("messages", len(messages), limits.messages)
    _hold("blocks", sum([_count_blocks(message) for message in messages]), limits.blocks)
    _hold("tools", len(tools), limits.tools)
    # All in one go is fast, and nearly always enough.
    if tools and not fits(size, limits.tool_definition) and _json_size(tools) > limits.tool_definition:
        for index, tool in enumerate(tools):
            _hold("tool_definition", _json_size(tool), limits.tool_definition, where=f"tools[{index}]: ")


def check_sizes(params: CreateMessageRequestParams, limits: SamplingLimits, size: float = math.inf) -> None:
    """Weigh what a model would have to read. *size* is as for `check_counts`.

    Raises:
        ProtocolError: It is more than *limits* allows, or no tokens are asked for.
    """
    if not 1 <= params.max_tokens <= MOST_TOKENS:  # not quoted: Python refuses to write an int of 5,000 digits
        raise ProtocolError(f"maxTokens: must be from 1 to {MOST_TOKENS}")
    for index, tool in enumerate(params.tools or ()):
        if len(tool.name) > limits.tool_name:
            _hold("tool_name", len(tool.name), limits.tool_name, where=f"tools[{index}]: ")
    if fits(size, min(limits.text, limits.binary)):
        return
    weight = _measure_request(params)
    _hold("text", weight.text, limits.text)
    _hold("binary", weight.binary, limits.binary)


def check_history(
    params: CreateMessageRequestParams, answer: CreateMessageResult, limits: SamplingLimits, size: float
) -> None:
    """Make sure that the server can send *answer* back, as a part of its next request. *size* is as for `check_counts`.

    An answer that calls tools comes back with the whole conversation and the results. Any other
    may be the last word, so that it has to fit alone.

    Raises:
        ProtocolError: The next request would have more than *limits* allows.
        SamplingError: The answer cannot be sent at all.
    """
    match answer.content:
        case [TextContent(text=words)] if len(words) * 4 <= limits.text:
            return  # as most answers are; a character takes four bytes of UTF-8 at most
    try:
        text, binary = _total(map(_measure, answer.content))
    except ProtocolError as exc:
        raise SamplingError("it holds something that cannot be written as JSON") from exc
    blocks = len(answer.content)
    if uses := len(answer.tool_uses):
        blocks += uses + sum([1 + _inside(block) for message in params.messages for block in message.content])
        _hold("messages", len(params.messages) + 2, limits.messages, found_in=NEXT)
        before = size * LONGER
        if text + before > limits.text or binary + before > limits.binary:
            weight = _measure_request(params)
            text, binary = text + weight.text, binary + weight.binary
    _hold("blocks", blocks, limits.blocks, found_in=NEXT)
    _hold("text", text, limits.text, found_in=NEXT)
    _hold("binary", binary, limits.binary, found_in=NEXT)


def clamp(params: CreateMessageRequestParams, limits: SamplingLimits) -> CreateMessageRequestParams:
    """The request with no more tokens than `SamplingLimits.max_tokens`."""
    if limits.max_tokens is None or params.max_tokens <= limits.max_tokens:
        return params
    return params.model_copy(update={"max_tokens": limits.max_tokens})


def _hold(name: str, found: int, limit: int, *, where: str = "", found_in: str = "the request has") -> None:
    if found > limit:
        raise ProtocolError(f"{where}this client's limit {name} is {limit}, and {found_in} {found}")


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _count_blocks(message: object) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else [content]
    count = len(blocks)
    for block in blocks:
        if isinstance(block, dict) and "content" in block:
            count += len(_list(block["content"]))
    return count


def _inside(block: SamplingMessageContentBlock) -> int:
    return len(block.content) if isinstance(block, ToolResultContent) else 0


class _Size(NamedTuple):
    text: int = 0
    binary: int = 0


def _total(weights: Iterable[_Size]) -> _Size:
    text = binary = 0
    for weight in weights:
        text += weight.text
        binary += weight.binary
    return _Size(text, binary)


def _measure_request(params: CreateMessageRequestParams) -> _Size:
    texts = [params.system_prompt or "", *(params.stop_sequences or ())]
    beside = _Size(text=sum(map(_utf8, texts)) + _json_size(params.metadata))
    return _total([beside, *[_measure(block) for message in params.messages for block in message.content]])


def _measure(block: SamplingMessageContentBlock | ContentBlock) -> _Size:
    match block:
        case TextContent(text=text):
            return _Size(text=_utf8(text))
        case ImageContent(data=data) | AudioContent(data=data):
            return _Size(binary=_decoded(data))
        case ToolUseContent(input=arguments):
            return _Size(text=_json_size(arguments))
        case ToolResultContent(content=blocks, structured_content=structured):
            return _total([_Size(text=_json_size(structured)), *map(_measure, blocks)])
        case EmbeddedResource(resource=resource):
            if isinstance(resource, BlobResourceContents):
                return _Size(binary=_decoded(resource.blob))
            return _Size(text=_utf8(resource.text))
        case ResourceLink():
            return _Size(text=_json_size(block.to_wire()))
    assert_never(block)


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _decoded(base64: str) -> int:
    """The size of what base64 stands for, without decoding it."""
    return len(base64) * 3 // 4 - base64.count("=", -2)


def _json_size(value: object) -> int:
    if value is None:
        return 0
    try:
        return len(to_json(value))
    except ValueError as exc:  # too deep, or a lone surrogate: no provider could be sent it
        raise ProtocolError("the request holds something that cannot be written as JSON") from exc
