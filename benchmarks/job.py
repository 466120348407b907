"""What a client's process is told to do, and what it reports. Imports little: every client's process loads it."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, NotRequired, TypedDict, final

Kind = Literal[
    "echo", "sample", "progress", "tools", "text", "connect", "sessions", "group", "burst", "start", "import"
]

Server = str | list[str]
"""A URL, or the command of a stdio server."""

LINE = "The quick brown fox jumps over the lazy dog, and says so in plain words.\n"
NAME = "lean"  # of the server
TOOLS = ("echo", "ask", "count", "text")
ADDRESSES = [f"127.0.0.{number}" for number in range(1, 11)]  # of the HTTP server: each is another server for a client
TEXT_SHARE = 0.97  # of the bytes of a message; the rest is the JSON around the text, and escapes


class Job(NamedTuple):
    """One run of one client: *warm_up* operations that are not measured, then *operations* that are."""

    kind: Kind
    server: Server
    operations: int
    warm_up: int
    in_flight: int = 1
    tools: int = 0  # in a list of tools, or in a sampling request
    messages: int = 1  # in a sampling request
    size: int = (
        0  # of one operation: bytes of text, or the number of progress notifications, sampling requests or calls
    )
    servers: dict[str, Server] | None = None  # of a group, by name


@final
class Measurement(TypedDict):
    """What the measured operations took of the client's own process."""

    cpu: float  # seconds, user and system
    wall: float
    memory: int  # bytes: what open sessions add to the process; for every other kind, the whole process
    latency: NotRequired[float]  # the 99th percentile of the operations, in seconds
    connections: NotRequired[int]  # that the whole job opened, as the HTTP server counts them


@final
class Failure(TypedDict):
    failed: str  # the reason in a few words


@cache
def tool_names(tools: int) -> list[str]:
    """The names in a list of so many tools: those that are called, then others. Never shorter than the former."""
    return [*TOOLS, *(f"search_{number}" for number in range(tools - len(TOOLS)))]


@cache
def text_of(size: int) -> str:
    """The text that makes a message of *size* bytes, or a little less."""
    length = int(size * TEXT_SHARE)
    return (LINE * (length // len(LINE) + 1))[:length]
