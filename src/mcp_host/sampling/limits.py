"""The limits of sampling for one server, and the checks of requests and answers against them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import assert_never

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
LONGER = 5  # written anew, JSON can be at most this many times longer: 1e15 becomes 1000000000000000.0
SMALLEST_BLOCK = len('{"type":"text","text":""}')  # bytes
NEXT = "a request with this answer in it would have"
MAY_BE_ZERO = frozenset({"tools", "tool_calls", "binary", "waiting"})  # at 0, any other limit would refuse everything


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """The limits of sampling: counts, sizes in bytes, times in seconds.

    A request over a limit is refused with -32602 and a message that names the limit, before
    the approver or the model sees it. An answer that would make the server's next request
    too large is refused with -32603 and the same message.
    """

    tools: int = 64
    """Tools in one request. docker-agent, a host that samples with tools, allows as many."""

    tool_name: int = 128
    """Characters in a tool's name: "Tool names SHOULD be between 1 and 128 characters"."""

    tool_definition: int = 64 * KiB
    """One tool as JSON: its name, description and schemas. All tools of a request together
    may take *tools* times as much, 4 MiB by default."""

    tool_calls: int = 32
    """Tool calls in one answer (the number of docker-agent). An answer with more is not sent:
    the server gets -32603, and the log says how many there were."""

    messages: int = 256
    """Messages in one request. A loop of 64 model turns sends 129."""

    blocks: int = 4096
    """Content blocks in one request, including those in tool results: 16 for each message."""

    text: int = 1 * MiB
    """All text in one request that a model reads, in UTF-8: messages, system prompt,
    stop sequences, metadata, inputs and results of tools. About 250,000 tokens."""

    binary: int = 8 * MiB
    """Images, audio and embedded files in one request, decoded from base64."""

    max_tokens: int | None = None
    """Tokens for one answer; None is no limit. Handler and approver see the smaller of
    this and what the server asked for. The server is not told:
    "The client MAY choose to sample fewer tokens than the requested maximum"."""

    at_once_per_server: int = 4
    """Requests of one connection in approver and handler at the same time; further requests wait in order.
    A request whose handler awaits a call of a client does not count meanwhile."""

    at_once: int = 16
    """The same for all connections of one `Sampling` together."""

    waiting: int = 64
    """Requests of one connection that may wait for their turn, one full round of input
    requests. Further requests are refused with -32010."""

    seconds: float = 600.0
    """One answer, from the arrival of the request: waiting for its turn, approval and model
    together. Then everything is cancelled, and the server gets -32011. `math.inf` is no limit."""

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = f"SamplingLimits.{field.name}", getattr(self, field.name)
            if field.name == "seconds":
                check_seconds(name, value)
            elif not (field.name == "max_tokens" and value is None):
                check_count(name, value, least=0 if field.name in MAY_BE_ZERO else 1)


def check_counts(wire: Mapping[str, object], limits: SamplingLimits, size: float = math.inf) -> None:
    """Check the lists of a request before it is parsed: a million blocks would block the event loop.

    *size* is an upper bound of the request in bytes; small requests skip what they cannot exceed. Wrong shapes are
    left to the parser.

    Raises:
        ProtocolError: A limit is exceeded.
    """
    messages, tools = wire.get("messages"), wire.get("tools")
    if isinstance(messages, list):
        _check("messages", len(messages), limits)
        if size > limits.blocks * SMALLEST_BLOCK:
            _check("blocks", _count_blocks(messages), limits)
    if isinstance(tools, list):
        _check("tools", len(tools), limits)
        # To measure all tools together is fast, and nearly always enough.
        if size * LONGER > limits.tool_definition and _json_size(tools) > limits.tool_definition:
            for index, tool in enumerate(tools):
                _check("tool_definition", _json_size(tool), limits, where=f"tools[{index}]: ")


def check_sizes(params: CreateMessageRequestParams, limits: SamplingLimits, size: float = math.inf) -> None:
    """Check the size of what a model would read. *size* is as for `check_counts`.

    Raises:
        ProtocolError: A limit is exceeded, or maxTokens is out of range.
    """
    if not 1 <= params.max_tokens <= MOST_TOKENS:  # not quoted: Python refuses to write an int of 5,000 digits
        raise ProtocolError(f"maxTokens: must be from 1 to {MOST_TOKENS}")
    for index, tool in enumerate(params.tools or ()):
        if len(tool.name) > limits.tool_name:
            _check("tool_name", len(tool.name), limits, where=f"tools[{index}]: ")
    if size * LONGER > min(limits.text, limits.binary):
        _, text, binary = _measure_request(params)
        _check("text", text, limits)
        _check("binary", binary, limits)


def check_history(
    params: CreateMessageRequestParams, answer: CreateMessageResult, limits: SamplingLimits, size: float
) -> None:
    """Check that the server can send *answer* back in its next request. *size* is as for `check_counts`.

    An answer that calls tools comes back with the whole conversation and the results. Any other answer
    may be the last, so it only has to fit alone.

    Raises:
        ProtocolError: The next request would exceed a limit.
        SamplingError: The answer cannot be written as JSON.
    """
    match answer.content:
        case [TextContent(text=words)] if len(words) * 4 <= limits.text:
            return  # most answers; a character takes at most four bytes of UTF-8
    try:
        blocks, text, binary = _measure(answer.content)
    except ProtocolError as exc:
        raise SamplingError("it holds something that cannot be written as JSON") from exc
    if uses := len(answer.tool_uses):
        _check("messages", len(params.messages) + 2, limits, found_in=NEXT)
        blocks += uses
        if (
            blocks + size / SMALLEST_BLOCK > limits.blocks
            or text + size * LONGER > limits.text
            or binary + size * LONGER > limits.binary
        ):
            history = _measure_request(params)
            blocks, text, binary = blocks + history[0], text + history[1], binary + history[2]
    _check("blocks", blocks, limits, found_in=NEXT)
    _check("text", text, limits, found_in=NEXT)
    _check("binary", binary, limits, found_in=NEXT)


def _check(
    name: str, found: int, limits: SamplingLimits, *, where: str = "", found_in: str = "the request has"
) -> None:
    limit = getattr(limits, name)
    if found > limit:
        raise ProtocolError(f"{where}this client's limit {name} is {limit}, and {found_in} {found}")


def _count_blocks(messages: list[object]) -> int:
    blocks = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        contents = content if isinstance(content, list) else [content]
        blocks += len(contents)
        for block in contents:
            if isinstance(block, dict) and isinstance(inner := block.get("content"), list):
                blocks += len(inner)
    return blocks


def _measure_request(params: CreateMessageRequestParams) -> tuple[int, int, int]:
    blocks, text, binary = _measure(block for message in params.messages for block in message.content)
    for words in (params.system_prompt or "", *(params.stop_sequences or ())):
        text += _utf8(words)
    return blocks, text + _json_size(params.metadata), binary


def _measure(contents: Iterable[SamplingMessageContentBlock | ContentBlock]) -> tuple[int, int, int]:
    """The number of blocks, the bytes of text, and those of binary data."""
    blocks = text = binary = 0
    for block in contents:
        blocks += 1
        match block:
            case TextContent():
                text += _utf8(block.text)
            case ImageContent() | AudioContent():
                binary += _decoded(block.data)
            case ToolUseContent():
                text += _json_size(block.input)
            case ToolResultContent():
                inner = _measure(block.content)
                blocks += inner[0]
                text += inner[1] + _json_size(block.structured_content)
                binary += inner[2]
            case EmbeddedResource(resource=resource):
                if isinstance(resource, BlobResourceContents):
                    binary += _decoded(resource.blob)
                else:
                    text += _utf8(resource.text)
            case ResourceLink():
                text += _json_size(block.to_wire())
            case _:
                assert_never(block)
    return blocks, text, binary


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _decoded(base64: str) -> int:
    """The size of base64 data, without decoding it."""
    return len(base64) * 3 // 4 - base64.count("=", -2)


def _json_size(value: object) -> int:
    if value is None:
        return 0
    try:
        return len(to_json(value))
    except ValueError as exc:  # too deep, or a lone surrogate: no provider could be sent it
        raise ProtocolError("the request holds something that cannot be written as JSON") from exc
