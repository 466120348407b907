"""What the model gets of a tool's result: nothing twice, and not too much."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from pydantic_core import from_json, to_json

from mcp_host.errors import excerpt
from mcp_host.sampling.validation import decoded_size
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ReceivedContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.base import given
from mcp_host.types.content import as_text, link_fields

MAX_RESULT_BYTES = 65_536  # of text: about 16,000 tokens
MAX_BINARY = 4 * 1024 * 1024  # bytes of the images, audio and files of one result; providers take images of 5 MB
TEXT_COMPARED = 65_536  # characters: a longer text may take a while to read as JSON
NOTE = "[{left_out} of {total} bytes are left out here]"
SMALLEST_TEXT = 25  # bytes that a shorter block counts: a million empty ones would be a large request, too
SMALLEST_BINARY = 1024

Cut: TypeAlias = Callable[[CallToolResult, int], CallToolResult]
"""Makes of a tool's result what the model gets, with at most about so many bytes of text.

It is called with every result that a tool returned, in the event loop. The steps of the loop keep the whole result.
"""


_Measured: TypeAlias = tuple[ReceivedContent, bytes, int]
"""A block, its text in UTF-8, which may have many megabytes and is written once, and the bytes that it counts."""


def for_model(use: ToolUseContent, result: CallToolResult, *, max_bytes: int, cut: Cut) -> ToolResultContent:
    """The block that the model gets of *result*.

    Raises:
        TypeError: *cut* returned something else than a result.
    """
    short: object = cut(_paid_once(result), max_bytes)
    if not isinstance(short, CallToolResult):
        raise TypeError(f"cut has to return a CallToolResult, not {type(short).__name__}")
    return ToolResultContent.of(use, short)


def _paid_once(result: CallToolResult) -> CallToolResult:
    """The result without structured content that its text repeats. Without any content, it becomes the text."""
    structured = result.structured_content
    if structured is None:
        return result
    if not result.content:
        return _replaced(result, [TextContent(text=json_text(structured))])
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return _replaced(result, result.content) if texts_repeat(texts, structured) else result


def texts_repeat(texts: Sequence[str], structured: object) -> bool:
    """Whether *texts* are the JSON of *structured*.

    Servers on the official SDK and on fastmcp write what is no object as ``{"result": …}``, and may write a list as
    one text for each item. Long texts are not read: they have to be as `to_json` writes them, but for white space.
    """
    values = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        values.append(structured["result"])
    lists = [[value] for value in values] + [value for value in values if isinstance(value, list)]
    lists = [items for items in lists if len(items) == len(texts) > 0]
    if not lists:
        return False
    if sum(map(len, texts)) > TEXT_COMPARED:
        return any(all(map(_is_written_as, texts, items)) for items in lists)
    read = list(map(_read, texts))
    return any(all(item in both for item, *both in zip(items, texts, read, strict=True)) for items in lists)


def _read(text: str) -> object:
    """What a text says: itself if it is no JSON."""
    try:
        return from_json(text)
    except ValueError:
        return text


def _is_written_as(text: str, value: object) -> bool:
    """Whether *text* is *value*, or the JSON of it as this package writes it, but for white space."""
    return text == value or _without_spaces(text) == _without_spaces(json_text(value))


def _without_spaces(text: str) -> bytes:
    return text.encode(errors="surrogatepass").translate(None, b" \t\r\n")


def head_and_tail(result: CallToolResult, max_bytes: int) -> CallToolResult:
    """Cut a result to the head and the tail of its text, with a note between them that says how much is left out.

    Texts, the texts of resources and structured content are cut as one text, at whole characters. Images, audio and
    files count separately: those that would make it more than 4 MiB are replaced by a note.
    """
    structured = result.structured_content
    content = list(_without_large_files(result.content))
    whole = content if structured is None else [*content, TextContent(text=json_text(structured))]
    measured = list(map(_measured, whole))
    if sum([size for _, _, size in measured]) > max_bytes:
        return _replaced(result, list(_ends(measured, max_bytes)))
    return result if content == result.content else _replaced(result, content, structured)


def _without_large_files(content: Sequence[ReceivedContent]) -> Iterator[ReceivedContent]:
    left = MAX_BINARY
    for block in content:
        match block:
            case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
                pass
            case EmbeddedResource(resource=BlobResourceContents(blob=data, uri=kind)):
                pass
            case _:
                yield block
                continue
        size = decoded_size(data)
        if max(size, SMALLEST_BINARY) <= left:
            left -= max(size, SMALLEST_BINARY)
            yield block
        else:
            yield TextContent(text=f"[{excerpt(kind)}: {size} bytes are left out]")


def _ends(content: Sequence[_Measured], max_bytes: int) -> Iterator[ReceivedContent]:
    """The first and the last blocks of *content*, of *max_bytes* with the note between them."""
    total = sum([size for _, _, size in content])
    kept = max(max_bytes - len(NOTE.format(left_out=total, total=total)) - 2, 0)  # and two line breaks
    begin = _whole_characters(content, kept // 2, step=-1)
    end = _whole_characters(content, total - (kept - kept // 2), step=1)
    note = NOTE.format(left_out=end - begin, total=total)
    start = 0
    for block, data, size in content:
        head, tail = begin - start, end - start
        start += size
        if not size or size <= head or tail <= 0:
            yield block
            continue
        parts = [data[: max(head, 0)], note.encode(), data[tail:]]
        note = ""
        text = b"\n".join(part for part in parts if part).decode("utf-8", "replace")
        if text:
            yield _with_text(block, text)


def _whole_characters(content: Sequence[_Measured], position: int, *, step: int) -> int:
    """The *position* in all texts, or the nearest one in the direction of *step* that cuts no character, and no link."""
    start = 0
    for block, data, size in content:
        if start <= position < start + size:
            if not isinstance(block, TextContent | EmbeddedResource):
                return start if step < 0 else start + size
            while 0 < position - start < len(data) and data[position - start] & 0xC0 == 0x80:  # inside of a character
                position += step
            return position
        start += size
    return position


def block_text(block: ReceivedContent) -> str:
    """What the model reads of a block that is no file."""
    return json_text(link_fields(block)) if isinstance(block, ResourceLink) else as_text(block)


def _measured(block: ReceivedContent) -> _Measured:
    match block:
        case ImageContent() | AudioContent() | EmbeddedResource(resource=BlobResourceContents()):
            return block, b"", 0
    data = block_text(block).encode("utf-8", "surrogatepass")
    return block, data, max(len(data), SMALLEST_TEXT)


def _with_text(block: ReceivedContent, text: str) -> ReceivedContent:
    match block:
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return block.model_copy(update={"resource": resource.model_copy(update={"text": text})})
    return TextContent(text=text)


def _replaced(result: CallToolResult, content: Sequence[ReceivedContent], structured: object = None) -> CallToolResult:
    kept = given(structured_content=structured, is_error=result.is_error)
    return CallToolResult(content=list(content), **kept)


def json_text(value: object) -> str:
    try:
        return to_json(value).decode()
    except ValueError:  # half of a surrogate pair
        return json.dumps(value)
