"""A sampling request as a person reads it: short, and with nothing in it that a terminal obeys."""

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
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ContentBlock, in_words
from mcp_host.types.sampling import SamplingMessageContentBlock

# Few enough that all of it can be read before saying yes.
MESSAGES_SHOWN = 6  # the last ones: the earlier were there to read when they were new
LINES_SHOWN = 12  # of a message or the system prompt
TOOLS_SHOWN = 16
NAME_SHOWN = 60  # characters of a name
TEXT_SHOWN = 4000  # characters of one block that are looked at, before lines are counted

NARROWEST = 40  # columns; in a narrower terminal lines wrap past the margin


def describe(request: SamplingRequest, *, columns: int = 80) -> str:
    """The request in plain lines of at most *columns*: who asks, the prompt, the tools, the last messages.

    Control characters, terminal escapes and characters that turn the direction of
    text are written as escapes such as ``\\x1b``. What is left out is counted.
    """
    width = max(columns, NARROWEST) - len(MARGIN)
    parts = (_asker, _prompt, _tools, _dialogue)
    return "\n".join([line for part in parts for line in part(request, width)])


def _asker(request: SamplingRequest, width: int) -> Iterator[str]:
    yield "A server asks for your model, to answer"
    yield f"in up to {request.max_tokens} tokens"
    yield from _shown(_wrapped(_name(request.server), width))
    if request.outer is not None:
        yield "probably while it works on" if request.outer.inferred else "while it works on"
        name = "" if request.outer.name is None else f" {request.outer.name}"
        yield from _shown(_wrapped(_name(request.outer.method + name), width))


def _prompt(request: SamplingRequest, width: int) -> Iterator[str]:
    if request.system_prompt is not None:
        yield "system prompt"
        yield from _shown(_lines(request.system_prompt, width))


def _tools(request: SamplingRequest, width: int) -> Iterator[str]:
    tools = request.tools
    if tools:
        choice = request.tool_choice.mode if request.tool_choice is not None else None
        yield f"tools, run by the server ({len(tools)}; {choice or 'auto'})"
        yield from _shown((_tool(tool, width) for tool in tools), most=TOOLS_SHOWN)
    if request.required_tool is not None:
        yield "the model has to call"
        yield from _shown(_wrapped(_name(request.required_tool), width))


def _tool(tool: Tool, width: int) -> str:
    about = f": {excerpt(tool.description, width)}" if tool.description else ""
    return next(_wrapped(_name(tool.name) + about, width))


def _dialogue(request: SamplingRequest, width: int) -> Iterator[str]:
    hidden = len(request.messages) - MESSAGES_SHOWN
    if hidden > 0:
        yield f"({hidden} earlier message{'s' * (hidden > 1)})"
    for message in request.messages[-MESSAGES_SHOWN:]:
        yield message.role
        yield from _shown(_message(message, width))


def _message(message: SamplingMessage, width: int) -> Iterator[str]:
    for block in message.content:
        yield from _lines(_block(block), width)


def _block(block: SamplingMessageContentBlock | ContentBlock) -> str:
    match block:
        case ToolUseContent(name=name, input=arguments):
            return f"calls {_name(name)} {to_json(arguments).decode()}"
        case ToolResultContent(content=blocks, is_error=is_error):
            return "\n".join(["error of a tool:" if is_error else "result of a tool:", *map(_block, blocks)])
        case TextContent() | ImageContent() | AudioContent() | EmbeddedResource() | ResourceLink():
            return in_words(block)
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
    """Cut clean text where the terminal would wrap it, for the next row would begin without our margin."""
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
