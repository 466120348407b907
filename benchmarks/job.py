"""What one run of one client is told to do, and what it says about it. Imports little: every client's process has it."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, TypedDict, final

Kind = Literal["echo", "sample", "progress", "tools", "text", "connect", "sessions", "import"]

LINE = "The quick brown fox jumps over the lazy dog, and says so in plain words.\n"
NAME = "lean"  # of the server
TOOLS = ("echo", "ask", "count", "text")
ENVELOPE = 0.97  # of a message's size is its text; the rest are the escapes in it, and what it is wrapped in


class Job(NamedTuple):
    """One run: *operations* after some of the same for warming up, which nobody counts."""

    kind: Kind
    server: str | list[str]  # the URL, or the command of a program that speaks stdio
    operations: int
    warm_up: int
    in_flight: int = 1
    tools: int = 0  # that a listing or a sampling request has
    size: int = 0  # of one operation: bytes of its text, or how many reports or questions it brings


@final
class Spent(TypedDict):
    """What the operations of one run took of the client's own process."""

    cpu: float  # seconds, user and system
    wall: float
    memory: int  # bytes: what the sessions that are held add to the process; after an import, the whole process


@final
class Failed(TypedDict):
    failed: str  # the reason in a few words


@cache
def names_of(tools: int) -> list[str]:
    """The tools in a list of so many: those that are called, and others. It is never shorter than those are."""
    return [*TOOLS, *(f"search_{number}" for number in range(tools - len(TOOLS)))]


@cache
def text_of(size: int) -> str:
    """The text that makes a message of *size* bytes, or a little less."""
    length = int(size * ENVELOPE)
    return (LINE * (length // len(LINE) + 1))[:length]
