"""The part of `mcp_host.errors` that `mcp_host.types` needs; everything else imports it from there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Self

EXCERPT = 300  # characters of a peer's text in an error message
QUOTED = 80  # characters of a peer's key, name or id
MEASURED = 1000  # characters of a quoted value that are written to learn its length: it may have a million items
MARGIN = "  | "  # before each line of a peer's text, so that it cannot look like ours

INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Printable, but not seen: blanks, fillers, and selectors of variants, which can carry a text that only models read."""


def escaped(text: str) -> str:
    """Make a peer's text safe for a terminal or a log line.

    Control characters, marks that change the writing direction, line breaks and lone
    surrogates are escaped: "\\x1b[2J" stays visible instead of clearing the screen.
    """
    if text.isprintable():
        return text
    return text.translate(
        {ord(char): char.encode("unicode_escape").decode() for char in set(text) if not char.isprintable()}
    )


def excerpt(text: str, limit: int = EXCERPT) -> str:
    """The beginning of a peer's text, escaped, and its length if it was cut."""
    clean = escaped(text[:limit])
    return clean if len(text) <= limit else f"{clean}… ({len(text)} characters)"


def quoted(value: object, limit: int = QUOTED) -> str:
    """A peer's key, name or value inside an error message: text in quotes, other JSON as Python writes it."""
    if isinstance(value, str):
        return f"'{excerpt(value, limit)}'"
    text = ""
    for piece in _written(value):
        text += piece
        if len(text) > MEASURED:
            return f"{escaped(text[:limit])}… (more than {MEASURED} characters)"
    return excerpt(text, limit)


def _written(value: object) -> Iterator[str]:
    """The `repr` of JSON in pieces: that of a whole message would take seconds."""
    if type(value) is list:
        yield "["
        for index, item in enumerate(value):
            yield ", " if index else ""
            yield from _written(item)
        yield "]"
    elif type(value) is dict:
        yield "{"
        for index, (key, member) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _written(key)
            yield ": "
            yield from _written(member)
        yield "}"
    else:
        yield repr(value[: MEASURED + 1] if isinstance(value, str) else value)


class McpError(Exception):
    """Base class: catch this to catch everything the package raises. Errors can be copied and pickled."""

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[type[Self]], dict[str, object]]:
        # That of Exception calls the class with the text alone, also if a subclass takes other arguments.
        return type(self).__new__, (type(self),), {**vars(self), "args": self.args}


class ProtocolError(McpError):
    """The server broke the protocol: malformed JSON, a wrong shape, a reply to nothing."""


McpError.__module__ = ProtocolError.__module__ = "mcp_host.errors"  # where you import them from
