"""What a transport is: how to open a connection, and what an open one can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from textwrap import indent
from typing import Protocol, TypeAlias

from mcp_host.errors import MARGIN, McpError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Incoming, Notification, Request, Success

Headers: TypeAlias = Mapping[str, str]
Receive: TypeAlias = Callable[[Incoming], None]
"""Takes what a server said. Returns at once: no reader ever waits for a handler."""


def quoting(last_words: str) -> str:
    """How an error message goes on with a channel's `last_words`."""
    return f"; its stderr ends:\n{indent(last_words, MARGIN)}" if last_words else ""


def deliver(messages: Iterable[Incoming], receive: Receive) -> None:
    """Hand over what one line, body or event carried, in order."""
    for message in messages:
        receive(message)


class Transport(Protocol):
    """How to reach one server: a value that can be opened any number of times."""

    @property
    def name(self) -> str:
        """What to call the server in messages, before it has introduced itself. Holds no secret."""
        ...

    @property
    def identity(self) -> str:
        """What the server is remembered by from one connection to the next. Holds no secret."""
        ...

    @property
    def restart(self) -> bool | None:
        """Whether a server that ends by itself is started again; None leaves that to the revision it speaks."""
        ...

    def open(self, limits: Limits) -> AbstractAsyncContextManager[Channel]:
        """Reach the server. Entered and left in one task, which outlives every call.

        Leaving ends the connection for good, within `limits.close_timeout`, even when cancelled.

        Raises:
            ConnectFailed: The server cannot be reached.
        """
        ...


class RequestHandle(Protocol):
    """A request under way, as its channel sees it."""

    def receive(self, message: Incoming, /) -> None:
        """Take what arrived on a stream which belongs to this request. Returns at once."""
        ...

    @property
    def answered(self) -> bool:
        """Whether the response is there, from whichever stream: nothing more to wait for."""
        ...

    async def progress(self) -> None:
        """Await the caller's own callbacks for what has arrived. To be called between messages."""
        ...

    async def response(self) -> None:
        """Wait until the exchange is over, awaiting the caller's callbacks meanwhile."""
        ...

    @property
    def over(self) -> bool:
        """Whether it is answered, or its time is up."""
        ...

    def unsent(self) -> AbstractContextManager[object]:
        """What waits inside does so before any of the request is sent: the server's silence begins after it."""
        ...

    def bounded(self) -> AbstractContextManager[object]:
        """What waits inside ends when the exchange does: for whatever else a channel waits for on its behalf.

        Where each request has a stream of its own, all of `Channel.request` runs inside.
        """
        ...

    def fail(self, error: McpError) -> None:
        """End the exchange from another task: its request could not be delivered."""
        ...

    withdrawn: bool
    """To be set when the request was taken back before any of it was sent."""


class Channel(Protocol):
    """One open connection. Carries messages; knows framing, and no rule of the protocol's.

    Write these methods and state the facts, and you have a transport.
    Each reports a dead link by raising `ConnectionClosed`. Only `listen` may
    be running at most once; the others run in any number of tasks at a time.
    """

    stream_per_request: bool
    """Whether each request has a stream of its own, as over HTTP: so that leaving `request` can
    tell the server, and so that a request has headers."""

    continuous: bool
    """Whether a connection that comes after another one reaches the same server, as the same caller:
    so that what was said to the last one still holds."""

    @property
    def last_words(self) -> str:
        """The end of what the server says outside of the protocol (stderr), for error messages; "" if nothing."""
        ...

    async def awake(self) -> None:
        """Wait for a first sign that the server is there, and runs: what starts slowly is not silent yet."""
        ...

    async def request(self, request: Request, headers: Headers, exchange: RequestHandle) -> None:
        """Send *request* and stay until *exchange* is answered.

        Runs in the caller's task, and returns when its time is up. Raises
        `CallerError` for what cannot be written.
        """
        ...

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send a message that has no response."""
        ...

    def send_now(self, message: Notification | Success | Failure) -> bool:
        """The same where it takes no waiting; whether it did: otherwise nothing was sent."""
        ...

    async def listen(self, receive: Receive) -> None:
        """Deliver everything that arrives outside of a request's own stream, for as long as the link lives.

        Returns when nothing more can come this way though the link goes on.
        """
        ...
