"""The interface of a transport: how to open a connection, and what an open connection does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from textwrap import indent
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from mcp_host.errors import MARGIN, ConnectionClosed, McpError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Incoming, Notification, Request, Success

TURN_TIME = 0.002  # seconds that a reader goes on before other tasks run: a flood must not delay another connection

Headers: TypeAlias = Mapping[str, str]
Receive: TypeAlias = Callable[[Incoming], None]
"""Takes a message of the server. Returns at once, and raises nothing: a reader never waits for a handler."""


NO_MESSAGES = "; it seems to be no MCP server"
"""How `Channel.other_output` begins if no message has come, but other lines, which it quotes."""


def quoting(stderr: str) -> str:
    """The end of an error message that quotes lines of a server's *stderr*."""
    return f"; its stderr:\n{indent(stderr, MARGIN)}" if stderr else ""


def advising(error: ConnectionClosed, advice: str) -> ConnectionClosed:
    """A copy of *error* that says what to do, before the stderr that it quotes."""
    stderr, advised = quoting(error.stderr), error.again()
    advised.args = (f"{str(error).removesuffix(stderr)}; {advice}{stderr}",)
    return advised


class Transport(Protocol):
    """How to reach one server: an immutable value that can be opened any number of times."""

    @property
    def name(self) -> str:
        """What the server is, in errors and log lines: a program or a URL. Contains no secret."""
        ...

    @property
    def identity(self) -> str:
        """The key under which facts about the server are kept between connections. Contains no secret."""
        ...

    @property
    def restart(self) -> bool | None:
        """Whether the client opens the transport again when the connection is lost. A lazy client always does.

        None: only for revisions without sessions (2026-07-28), where a restarted server has lost nothing.
        False for a server that this transport does not start, and for one that the application sees end.
        """
        ...

    def open(self, limits: Limits) -> AbstractAsyncContextManager[Channel]:
        """Connect to the server. The context is entered and left in one task, which outlives every call.

        Leaving closes the connection within `limits.close_timeout`, even when cancelled. Opening takes
        `limits.connect_timeout` at most: the session bounds only what it sends afterwards. `Channel` names the
        other limits that a transport applies.

        Raises:
            ConnectFailed: The server cannot be reached, or not in time.
            HttpStatusError: It refuses the connection, as a WebSocket handshake may (`Unauthorized` for 401 and 403).
        """
        ...


@runtime_checkable
class Nameable(Protocol):
    """A transport that can be told what the host calls the server."""

    def named(self, name: str) -> Transport:
        """The same transport, whose errors and log lines call the server *name*."""
        ...


class RequestHandle(Protocol):
    """A pending request, as its channel sees it."""

    @property
    def stateless(self) -> bool:
        """Whether the request belongs to no session, because its revision has none."""
        ...

    @property
    def personal(self) -> bool:
        """Whether the application makes the request for a caller: its headers must not go with anything else."""
        ...

    def receive(self, message: Incoming, /) -> None:
        """Take a message that arrived on the request's own stream. Returns at once."""
        ...

    def restart_idle(self) -> None:
        """Restart the idle timeout: something has arrived on the request's own stream, be it no message."""
        ...

    async def deliver_progress(self) -> None:
        """Await the caller's progress callback for what has arrived. Call it before you wait for more; then look at `done`."""
        ...

    async def wait(self) -> None:
        """Wait until the request is done, awaiting the caller's progress callback meanwhile."""
        ...

    @property
    def done(self) -> bool:
        """Whether the request is answered, on any stream, or has timed out."""
        ...

    def queued(self) -> AbstractContextManager[object]:
        """A context for waiting because of a limit of ours, such as `StreamableHttp.max_connections`.

        It sets `unsent`. The idle timeout does not run, because the server is not the one that is slow. Where
        it is, in a full pipe say, set `unsent` and wait inside `bounded`: then the idle timeout runs.
        """
        ...

    def authorizing(self, *, sent: bool = False) -> AbstractContextManager[object]:
        """A context for getting the authorization of the request. It sets `unsent`, unless the request was *sent* before.

        The idle timeout does not run, as in `queued`. While a person is asked (`concurrency.asking.asking_person`), no clock
        of the call runs, for `Limits.input_timeout` in total.
        """
        ...

    def bounded(self) -> AbstractContextManager[object]:
        """A context that is cancelled when the request is done, for all waiting outside of `wait`.

        With `Channel.stream_per_request`, all of `Channel.request` runs inside already.
        """
        ...

    def fail(self, error: McpError) -> None:
        """Fail the request from another task: it could not be delivered."""
        ...

    unsent: bool
    """Set by the channel while it waits and none of the request has been sent; left set if it never is.

    Then the error tells that the request did not run, and nothing is sent to cancel it.
    """


class AuthorizationContext(NamedTuple):
    """What a result that is private is for."""

    login: Hashable
    """Another value after each login, but for one that adds scopes to a token. None if there is no token."""
    scopes: Hashable
    """Another value for each set of scopes; without a token, after each logout."""


@runtime_checkable
class AuthorizedChannel(Protocol):
    """A channel whose requests may be authorized by another login in the course of time."""

    def authorization_context(self) -> AuthorizationContext | None:
        """Whose requests are sent now. None if the channel knows of no logins.

        Results that are private, and listings, are dropped when it changes.
        """
        ...


class Channel(Protocol):
    """One open connection. It frames messages, and applies no rules of the protocol.

    To write a transport, implement these methods and attributes; `stdio.py` is the example for a connection
    that all messages share. Each method raises `ConnectionClosed` when the connection is lost, with
    `may_have_run=False` if nothing of the message was sent. `listen` runs once at a time, the others in any
    number of tasks. Cancelling one of them leaves no part of a message behind.

    A channel applies these `Limits`, because nothing above it does:

    - `max_message`: it keeps no more of a message than that. Over a shared connection it passes
      `jsonrpc.too_large(...)` to `receive`, and the connection goes on. On the own stream of a
      request it raises `MessageTooLarge`.
    - `max_outbox`: `request` and `send` wait if that many bytes wait to be written; `send_now` returns False.
    - `stall_timeout`: the connection is lost if nothing can be written for so long.

    *headers* are for transports that have some. Others ignore them.
    """

    stream_per_request: bool
    """Whether each request has its own stream, as over HTTP, and leaving `request` closes it.

    True promises, and the session relies on:

    - `request` sends the headers, so parameters with `x-mcp-header` are repeated in them;
    - what arrives on a request's stream goes to `RequestHandle.receive`, so a server request on it belongs to that
      call, and one from `listen` to none. One that comes again on the same stream is a replay and ignored;
    - leaving `request` closes the stream, which cancels the request where the revision says so;
    - a stream that breaks fails its own request. Only `listen` ends the connection. So a request
      that may run twice, or a response to the server, is sent again.

    With False, all messages share one connection, as over a pipe or a WebSocket. If it is lost during
    `server/discover`, the session connects again and sends `initialize`: some legacy servers exit over
    an unknown method.
    """

    keeps_cache: bool
    """Whether what an earlier connection has cached holds in this one: the same server, and the same caller."""

    @property
    def other_output(self) -> str:
        """What the server has written besides messages, as the end of an error message; "" if there is nothing to tell.

        It explains most failures to connect: ``; its stderr:`` and the last lines, for example.
        """
        ...

    async def wait_until_started(self) -> None:
        """Wait for the first sign that the server is running, so that a slow start does not count as silence.

        Return at once if an open connection is that sign.
        """
        ...

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        """Send *request*, and return when *handle* is done. Runs in the caller's task.

        With a shared connection: write it, then await `handle.wait()`. If it cannot be written
        after this has begun to wait, call `handle.fail`.

        Raises:
            CallerError: The request cannot be encoded.
        """
        ...

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send a message that has no response."""
        ...

    def send_now(self, message: Notification | Success | Failure) -> bool:
        """Send it without headers if that is possible without waiting. Returns whether it was sent.

        The session tries this first, and then `send`. A transport with headers returns False.
        """
        ...

    async def listen(self, receive: Receive) -> None:
        """Deliver everything that arrives outside of a request's own stream, until the connection is lost.

        Returns if nothing more can arrive this way while the connection goes on. Otherwise it raises
        `ConnectionClosed`, by which the session learns of the loss. If other methods wait until `listen` has
        ended, await nothing between letting them go on and raising: their callers must find the session closed.
        """
        ...
