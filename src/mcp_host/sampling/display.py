"""A sampling request as text for a person: short, and without terminal escapes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from typing import assert_never

from pydantic_core import to_json

from mcp_host.errors import MARGIN, escaped, excerpt
from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ContentBlock, as_text
from mcp_host.types.sampling import SamplingMessageContentBlock

# Few enough to read all of it before saying yes.
MESSAGES_SHOWN = 6  # the last ones: earlier ones were shown when they were new
LINES_SHOWN = 12  # of a message or the system prompt
TOOLS_SHOWN = 16
NAME_SHOWN = 60  # characters of a name
TEXT_SHOWN = 4000  # characters of one block, before lines are counted

NARROWEST = 40  # columns; in a narrower terminal lines wrap past the margin


def describe(request: SamplingRequest, *, columns: int = 80) -> str:
    """The request in plain lines of at most *columns*: who asks, the prompt, the tools, the last messages.

    Control characters, terminal escapes and characters that turn the direction of
    text are written as escapes such as ``\\x1b``. What is left out is counted.
    """
    return "\n".join(_describe(request, max(columns, NARROWEST) - len(MARGIN)))


def _describe(request: SamplingRequest, width: int) -> Iterator[str]:
    yield "A server asks for your model, to answer"
    yield f"in up to {request.max_tokens} tokens"
    yield from _shown(_wrapped(_name(request.server), width))
    if (outer := request.outer) is not None:
        yield "probably while it works on" if outer.inferred else "while it works on"
        name = "" if outer.name is None else f" {outer.name}"
        yield from _shown(_wrapped(_name(outer.method + name), width))
    if request.system_prompt is not None:
        yield "system prompt"
        yield from _shown(_lines(request.system_prompt, width))
    if request.tools:
        choice = request.tool_choice.mode if request.tool_choice is not None else None
        yield f"tools, run by the server ({len(request.tools)}; {choice or 'auto'})"
        yield from _shown((_tool(tool, width) for tool in request.tools), most=TOOLS_SHOWN)
    if request.required_tool is not None:
        yield "the model has to call"
        yield from _shown(_wrapped(_name(request.required_tool), width))
    hidden = len(request.messages) - MESSAGES_SHOWN
    if hidden > 0:
        yield f"({hidden} earlier message{'s' * (hidden > 1)})"
    for message in request.messages[-MESSAGES_SHOWN:]:
        yield message.role
        yield from _shown(line for block in message.content for line in _lines(_block(block), width))


def _tool(tool: Tool, width: int) -> str:
    about = f": {excerpt(tool.description, width)}" if tool.description else ""
    return next(_wrapped(_name(tool.name) + about, width))


def _block(block: SamplingMessageContentBlock | ContentBlock) -> str:
    match block:
        case ToolUseContent(name=name, input=arguments):
            return f"calls {_name(name)} {to_json(arguments).decode()}"
        case ToolResultContent(content=blocks, is_error=is_error):
            return "\n".join(["error of a tool:" if is_error else "result of a tool:", *map(_block, blocks)])
        case TextContent() | ImageContent() | AudioContent() | EmbeddedResource() | ResourceLink():
            return as_text(block)
    assert_never(block)


def _shown(lines: Iterable[str], *, most: int = LINES_SHOWN) -> Iterator[str]:
    hidden = 0
    for index, line in enumerate(lines):
        if index < most:
            yield MARGIN + line
        else:
            hidden += 1
    if hidden:
        yield f"{MARGIN}... and {hidden} more"


def _lines(text: str, width: int) -> Iterator[str]:
    for line in text[:TEXT_SHOWN].split("\n"):
        yield from _wrapped(escaped(line), width)
    if len(text) > TEXT_SHOWN:
        yield f"... of {len(text)} characters"


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Break escaped text where the terminal would wrap it: the next row needs our margin, too."""
    start = used = 0
    for index, char in enumerate(text):
        cells = 2 if unicodedata.east_asian_width(char) in "WFA" else 1
        if used + cells > width:
            yield text[start:index]
            start, used = index, 0
        used += cells
    yield text[start:]


def _name(text: str) -> str:
    return excerpt(text, NAME_SHOWN)
