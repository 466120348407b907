"""The interface of a transport: how to open a connection, and what an open connection does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from textwrap import indent
from typing import Protocol, TypeAlias

from mcp_host.errors import MARGIN, McpError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Incoming, Notification, Request, Success

Headers: TypeAlias = Mapping[str, str]
Receive: TypeAlias = Callable[[Incoming], None]
"""Takes a message of the server. Returns at once: a reader never waits for a handler."""


def quoting(stderr_tail: str) -> str:
    """The end of an error message that quotes a channel's `stderr_tail`."""
    return f"; its stderr ends:\n{indent(stderr_tail, MARGIN)}" if stderr_tail else ""


class Transport(Protocol):
    """How to reach one server: an immutable value that can be opened any number of times."""

    @property
    def name(self) -> str:
        """The name of the server in messages until it has sent its own. Contains no secret."""
        ...

    @property
    def identity(self) -> str:
        """The key under which facts about the server are kept between connections. Contains no secret."""
        ...

    @property
    def restart(self) -> bool | None:
        """Whether a server that exits is restarted. None: the protocol revision decides."""
        ...

    def open(self, limits: Limits) -> AbstractAsyncContextManager[Channel]:
        """Connect to the server. The context is entered and left in one task, which outlives every call.

        Leaving closes the connection within `limits.close_timeout`, even when cancelled.

        Raises:
            ConnectFailed: The server cannot be reached.
        """
        ...


class RequestHandle(Protocol):
    """A pending request, as its channel sees it."""

    @property
    def stateless(self) -> bool:
        """Whether the request belongs to no session, because its revision has none."""
        ...

    def receive(self, message: Incoming, /) -> None:
        """Take a message that arrived on the request's own stream. Returns at once."""
        ...

    async def deliver_progress(self) -> None:
        """Await the caller's progress callback for what has arrived. Call it between messages; then look at `done`."""
        ...

    async def wait(self) -> None:
        """Wait until the request is done, awaiting the caller's progress callback meanwhile."""
        ...

    @property
    def done(self) -> bool:
        """Whether the request is answered, on any stream, or has timed out."""
        ...

    def queued(self) -> AbstractContextManager[object]:
        """A context for waiting in our own queue: nothing has been sent, and the idle timeout starts afterwards."""
        ...

    def bounded(self) -> AbstractContextManager[object]:
        """A context that is cancelled when the request is done, for all waiting outside of `wait`.

        With `Channel.stream_per_request`, all of `Channel.request` runs inside.
        """
        ...

    def fail(self, error: McpError) -> None:
        """Fail the request from another task: it could not be delivered."""
        ...

    unsent: bool
    """Set by the channel while none of the request has been sent, and left set if it never is."""


class Channel(Protocol):
    """One open connection. It frames messages, and applies no rules of the protocol.

    To write a transport, implement these methods and attributes. Each method raises
    `ConnectionClosed` when the connection is lost. `listen` runs once at a time,
    the others in any number of tasks.
    """

    stream_per_request: bool
    """Whether each request has its own stream and headers, as over HTTP. Then leaving `request` disconnects."""

    continuous: bool
    """Whether the next connection reaches the same server with the same identity, so that cached results hold."""

    @property
    def stderr_tail(self) -> str:
        """The end of the server's stderr, for error messages; "" if there is none."""
        ...

    async def wait_until_started(self) -> None:
        """Wait for the first sign that the server is running, so that a slow start does not count as silence."""
        ...

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        """Send *request*, and return when *handle* is done. Runs in the caller's task.

        Raises:
            CallerError: The request cannot be encoded.
        """
        ...

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send a message that has no response."""
        ...

    def send_now(self, message: Notification | Success | Failure) -> bool:
        """Send it if that is possible without waiting. Returns whether it was sent."""
        ...

    async def listen(self, receive: Receive) -> None:
        """Deliver everything that arrives outside of a request's own stream, until the connection is lost.

        Returns if nothing more can arrive this way while the connection goes on.
        """
        ...
