"""The client: what applications hold."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias
from weakref import WeakMethod

from anyio import CancelScope, Lock, current_time, move_on_after

from mcp_host._backends import Loop
from mcp_host.client.requests import Requests
from mcp_host.client.restart import Restarter
from mcp_host.concurrency import OwnedContext
from mcp_host.errors import CallerError, ConnectionClosed, McpError, quoted
from mcp_host.handlers import as_async
from mcp_host.limits import Limits, check_seconds
from mcp_host.protocol.attempts import Attempt, Attempts, EraCache
from mcp_host.protocol.cache import Cache
from mcp_host.protocol.negotiation import AllowedVersions
from mcp_host.sampling import Sampling, SamplingMode
from mcp_host.session.call import CallTimeouts
from mcp_host.session.config import ClientConfig, ClientState
from mcp_host.session.connection import Connection
from mcp_host.session.features import ClientFeatures
from mcp_host.session.notifications import NotificationQueue, OnChange, OnLog
from mcp_host.transports.infer import Connectable, infer_transport
from mcp_host.types import Implementation, ServerCapabilities
from mcp_host.version import __version__

if TYPE_CHECKING:
    from mcp_host.elicitation import Elicitation
    from mcp_host.roots import RootLike, Roots, RootsHandler

RootsArgument: TypeAlias = "Sequence[RootLike] | RootsHandler | None"

ON_LOG = "(message: LoggingMessageNotificationParams) -> None"
ON_CHANGE = "(change: Change) -> None"
NO_SAMPLING = (
    "sampling is Sampling(with_tools=handler, approve=...), or basic=handler for requests without tools:"
    " approve decides on each request, such as ask_in_terminal, always, or a function of yours"
)


class Client(Requests):
    """A connection to one MCP server.

    >>> async with Client(["uvx", "weather-server"], sampling=Sampling(with_tools=model, approve=always)) as client:
    ...     result = await client.call_tool("forecast", {"city": "Oslo"})

    *server* is a URL, a command line as a list, a transport (`StreamableHttp`, `Stdio`, `InProcess`),
    or a server object to run in this process: a `mcp_host.testing.Server`, a `Server`, `MCPServer` or
    `FastMCP` of the official SDK, or a `FastMCP` of fastmcp.

    Any task may connect, call and close, in any order. *sampling*, *elicitation* and *roots* are the
    capabilities that the client advertises; they and the callbacks serve every session of this client.

    *on_log* and *on_change* are awaited one at a time, in order, in a task of the client; they may
    call the client. Progress goes to each call's *on_progress*.

    The client probes with `server/discover` for the era of the server: stateless (2026-07-28), or with
    a handshake. *era* is "auto"; "modern" and "legacy" allow only one kind, and a version like
    "2025-06-18" only itself. *era_cache* remembers the era; you can share and save it. Results that
    the server calls fresh are cached, unless *cache* is false.

    What connecting settled, such as `protocol_version`, stays readable when the server has ended.
    Before the first `connect` and after `aclose` it raises `NotConnected`.

    Raises:
        TypeError: *server* or *sampling* is something else; the message shows what to write.
        ValueError: *server* is an invalid URL, or *era* is unknown.
    """

    def __init__(
        self,
        server: Connectable,
        *,
        sampling: Sampling | None = None,
        elicitation: Elicitation | None = None,
        roots: RootsArgument = None,
        on_log: OnLog | None = None,
        on_change: OnChange | None = None,
        client_info: Implementation | None = None,
        limits: Limits | None = None,
        era: str = "auto",
        era_cache: EraCache | None = None,
        cache: bool = True,
    ) -> None:
        super().__init__()
        if sampling is not None and not isinstance(sampling, Sampling):
            raise TypeError(NO_SAMPLING)
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits is Limits(timeout=..., ...), not {type(limits).__name__}")
        self._era = era
        self._transport = transport = infer_transport(server)
        self._roots = None if roots is None else _offered(roots)
        limits = limits or Limits()
        config = ClientConfig(
            client_info=client_info or Implementation(name="mcp-host", version=__version__),
            features=ClientFeatures(sampling, None if elicitation is None else _registered(elicitation), self._roots),
            limits=limits,
            allowed_versions=AllowedVersions.of(era),
            server=transport.identity,
            era_cache=EraCache() if era_cache is None else era_cache,
            wants_logs=on_log is not None,
            wants_changes=on_change is not None,
        )
        self._state = ClientState(config, Cache(limits.max_cache if cache else 0, time.monotonic))
        self._limits = limits
        on_complete = None if elicitation is None else elicitation.on_complete
        self._on_log = None if on_log is None else as_async(on_log, argument="on_log", shape=ON_LOG)
        self._on_change = None if on_change is None else as_async(on_change, argument="on_change", shape=ON_CHANGE)
        self._on_elicitation_complete = None if on_complete is None else as_async(on_complete, argument="on_complete")
        self._restarter = Restarter(transport.name, transport.restart, self._reopen, self._state.warn)
        self._closings = 0
        self._loop: Loop | None = None
        self._connecting: Lock
        self._owned: OwnedContext[Connection] | None = None

    def __del__(self) -> None:
        if self.connected and self._loop is not None and self._owned is not None:
            text = f"a client of {self._transport.name} was dropped without being closed"
            warnings.warn(text, ResourceWarning, stacklevel=1)  # the code that dropped it is not on the stack
            self._loop.call_soon(self._owned.cancel)

    def __repr__(self) -> str:
        connection = self._connection
        if connection is None or (session := connection.dispatcher.session) is None:
            return f"<Client of {quoted(self._transport.name)}, {self._era}, not connected>"
        state = "connected" if connection.dispatcher.closed is None else "disconnected"
        return f"<Client of {quoted(self._transport.name)}, {session.era.version}, {state}>"

    # Connecting and closing

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        with CancelScope(shield=True):  # bounded by `close_timeout`
            await self.aclose()

    async def connect(self) -> None:
        """Connect and negotiate the version. Does nothing if connected already.

        You can connect again after closing, or when the connection was lost.

        Raises:
            ConnectFailed: The server cannot be reached or started, or ended before it answered.
            ConnectTimeout: Connecting took longer than `Limits.connect_timeout`.
            ServerError: The server refused; `HttpStatusError` where it did so by HTTP status.
            ProtocolError: The server does not speak MCP, or no revision that the client speaks.
        """
        self._bind_to_loop()
        closings = self._closings
        async with self._connecting:
            if self.connected:
                return
            self._restarter.reset()
            await self._replace(closings)

    async def aclose(self) -> None:
        """Close the connection: calls in flight end with `ConnectionClosed`, the server is shut down.

        Any task may close, more than once, and while another task connects. A callback or handler
        of this client may close it too, which cancels the callback. Closing takes at most
        `Limits.close_timeout`, and raises no error of the server. If you cancel it, it goes on in the background.

        Raises:
            CallerError: The client is connected in another event loop.
        """
        self._bind_to_loop()
        self._closings += 1
        self._state.clear_subscriptions()
        self._connection = None
        self._restarter.end(ConnectionClosed("the client was closed", may_have_run=False))
        await self._close_owned()

    def _bind_to_loop(self) -> None:
        """Bind the client to the running event loop. Connections of an earlier one have ended with it.

        Raises:
            CallerError: The client is connected in another event loop, which still runs.
        """
        if self._loop is not None and self._loop.is_running():
            return
        if self.connected:
            raise CallerError("this client is connected in another event loop, and can be used and closed only there")
        self._loop, self._connecting, self._owned, self._connection = Loop.running(), Lock(), None, None
        self._restarter = Restarter(self._transport.name, self._transport.restart, self._reopen, self._state.warn)

    async def _replace(self, closings: int) -> None:
        """Open a connection in place of the last, by one attempt after another.

        *closings* is the number of calls of `aclose` when this was requested: another one ends it.

        Raises:
            McpError: Why the first attempt failed that did not assume the wrong era.
        """
        await self._close_owned()
        state, config = self._state, self._state.config
        attempts = Attempts(state.offers, config.era_cache.get(config.server), config.limits.connect_timeout)
        attempt: Attempt | None = attempts.current
        while attempt is not None:
            begun = current_time()
            self._check_wanted(closings)
            try:
                connection = await self._open(attempt)
            except McpError as failure:
                self._check_wanted(closings)  # closing may be why this attempt failed
                attempt = attempts.next(failure, current_time() - begun)
            else:
                self._check_wanted(closings)
                state.accepted(attempt.offers, self._transport.name)
                self._connection = connection
                if not self.connected:
                    self._lost()  # it was lost before `_connection` was set
                return
        assert attempts.failure is not None, "it is set when no attempt follows"
        raise attempts.failure

    async def _open(self, attempt: Attempt) -> Connection:
        self._tool_cache.replace((), mirrored=False)  # another process may be another version of the server
        notifications = NotificationQueue(
            self._limits.max_notifications,
            self._state.counters,
            on_log=self._on_log,
            on_change=self._on_change,
            on_elicitation_complete=self._on_elicitation_complete,
        )
        lost = WeakMethod(self._lost)  # a connection must not keep alive the client that is to close it

        def on_lost() -> None:
            if (call := lost()) is not None:
                call()

        self._owned = OwnedContext(Connection.open(self._transport, self._state, notifications, attempt, on_lost))
        return await self._owned.enter()

    def _check_wanted(self, closings: int) -> None:
        if self._closings != closings:
            raise ConnectionClosed("closed while it was being opened", may_have_run=False)

    async def _close_owned(self) -> None:
        """Close the connection and its transport."""
        if (owned := self._owned) is None:
            return
        with move_on_after(self._limits.close_timeout) as scope:
            await owned.leave()
        if scope.cancelled_caught:
            owned.cancel()
        if self._owned is owned:
            self._owned = None

    # Requests

    def _timeouts(self, timeout: float | None, idle_timeout: float | None) -> CallTimeouts:
        self._bind_to_loop()
        clock, limits = self._connected().dispatcher.now, self._limits
        if timeout is None:
            timeout = limits.timeout
        else:
            check_seconds("timeout", timeout)
        if idle_timeout is None:
            idle_timeout = limits.idle_timeout
        else:
            check_seconds("idle_timeout", idle_timeout)
        return CallTimeouts(timeout=timeout, idle_timeout=idle_timeout, input_timeout=limits.input_timeout, clock=clock)

    # Restarting

    async def _live(self, timeouts: CallTimeouts) -> Connection:
        connection = self._connected()
        while connection.dispatcher.closed is not None and self._restarter.due(connection):
            try:
                await self._restarter.wait(connection, timeouts)
            except ConnectionClosed as failed:
                raise _not_sent(failed) from failed
            if self._connection is None:
                raise ConnectionClosed("the client was closed", may_have_run=False)
            connection = self._connection
        return connection

    async def _reopen(self, dead: Connection) -> None:
        """Replace the connection *dead*, unless the application has closed or connected meanwhile."""
        closings = self._closings
        async with self._connecting:
            if self._connection is dead:
                await self._replace(closings)

    def _lost(self) -> None:
        """The connection has ended. If the application listens to changes, it is restarted without a call."""
        if self._state.subscriptions or self._state.config.wants_changes:
            self._restarter.restart_in_background(lambda: self._connection)

    async def set_roots(self, roots: Sequence[RootLike]) -> None:
        """Offer other roots from now on, and notify a connected server if its revision allows that.

        Raises:
            CallerError: The client was made without *roots*, or is connected in another event loop.
        """
        if self._roots is None:
            raise CallerError("this client was made without roots: pass roots=[] to offer some later")
        self._roots.replace(roots)
        if self.connected:
            self._bind_to_loop()
            await self._connected().notify("notifications/roots/list_changed", {})

    # What is known about the connection

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._connection is not None and self._connection.dispatcher.closed is None

    @property
    def protocol_version(self) -> str:
        """The negotiated revision, like "2025-11-25"."""
        return self._session.era.version

    @property
    def server_info(self) -> Implementation:
        """What the server calls itself; unverified. If it says nothing (2026-07-28), the transport's name."""
        return self._session.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server advertised."""
        return self._session.server_capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its users. Treat them as untrusted."""
        return self._session.instructions

    @property
    def sampling_mode(self) -> SamplingMode:
        """Which handler answers this session's sampling requests: "with_tools", "basic" or "none"."""
        return self._session.features.sampling_mode

    @property
    def warnings(self) -> list[str]:
        """What went wrong without failing anything, one sentence each, oldest first."""
        return list(self._state.warnings)

    @property
    def counters(self) -> Mapping[str, int]:
        """How many messages of the server were ignored, by reason."""
        return Counter(self._state.counters)


def _not_sent(failed: ConnectionClosed) -> ConnectionClosed:
    """*failed*, for a call that only waited for the restart."""
    error = failed.again()
    error.may_have_run = False
    return error


def _registered(elicitation: Elicitation) -> Elicitation:
    from mcp_host.elicitation import Elicitation  # which few clients offer

    if not isinstance(elicitation, Elicitation):
        raise TypeError("elicitation is Elicitation(form=handler), or url=handler, or both")
    return elicitation


def _offered(roots: Sequence[RootLike] | RootsHandler) -> Roots:
    from mcp_host.roots import Roots  # which few clients offer

    return Roots(roots)
