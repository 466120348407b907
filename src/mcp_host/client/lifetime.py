"""The lifetime of a client's connection: connecting, reconnecting, closing."""

from __future__ import annotations

import math
import warnings
from contextvars import copy_context
from typing import TYPE_CHECKING
from weakref import WeakMethod

from anyio import current_time, move_on_after, sleep

from mcp_host.client.tools import ToolCache
from mcp_host.concurrency.backends import Loop
from mcp_host.concurrency.single_flight import SingleFlight
from mcp_host.concurrency.synchronization import Lock
from mcp_host.concurrency.tasks import OwnedContext, spawn
from mcp_host.errors import (
    AuthError,
    CallerError,
    ConnectionClosed,
    McpError,
    NotConnected,
    RequestTimeout,
    Unauthorized,
)
from mcp_host.limits import check_seconds
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.negotiation import Attempt, Attempts
from mcp_host.protocol.server_names import ServerIdentity
from mcp_host.session.call import CallTimeouts
from mcp_host.session.connection import Connection
from mcp_host.session.session import Session
from mcp_host.session.state import ClientState
from mcp_host.transports.base import advising

if TYPE_CHECKING:
    from mcp_host.client.filtered_tools import FilteredTools
    from mcp_host.client.tool_policy import ToolPolicy

LAZY_PAUSE = 3.0  # seconds at most before a lazy client tries again: bearable for a user, seldom for a server
NOT_CONNECTED = "the client is not connected: use `async with`, or call connect() first"
NOT_YET_CONNECTED = (
    "the lazy client is not connected yet: it connects with its first request; call connect() to connect now"
)


class Lifetime:
    """Opens the connection of one client, opens another if its server has ended, and closes it.

    "If the server process exits unexpectedly, the client SHOULD restart it" (2026-07-28,
    basic/transports/stdio). Restarts stop after eight consecutive failures: connections that gave the
    application no result and did not last. A lazy client goes on with the next request.
    """

    def __init__(self, state: ClientState, policy: ToolPolicy | None) -> None:
        self.connection: Connection | None = None
        """The last connection, until it is closed. It may have ended."""
        self.tools: ToolCache
        """The tools that this connection has listed."""
        self.filtered: FilteredTools | None = None
        """The same, if there is a policy."""
        self._policy = policy
        self._state = state
        self._on_demand = state.lazy  # whether a request may open the first connection
        self._context = copy_context()
        self._closings = 0
        self._owned: OwnedContext[Connection] | None = None
        self._last_dead: Connection | None = None
        self._loop: Loop | None = None
        # `bind_to_loop` sets these, anew for each event loop.
        self._connecting: Lock
        self._reconnection: SingleFlight
        self._background: SingleFlight
        self._backoff: Backoff
        self._failed_at: float

    def __del__(self) -> None:
        if self.connected and self._loop is not None and self._owned is not None:
            text = f"a client of {self._state.name} was dropped without being closed"
            warnings.warn(text, ResourceWarning, stacklevel=1)  # the code that dropped it is not on the stack
            self._loop.call_soon(self._owned.cancel)

    @property
    def connected(self) -> bool:
        return self.connection is not None and self.connection.dispatcher.closed is None

    @property
    def session(self) -> Session:
        """What connecting settled. It stays readable when the server has ended, until the next connection or `close`."""
        return self.require().session

    def require(self) -> Connection:
        """The connection, which may have ended."""
        if self.connection is None:
            raise NotConnected(NOT_YET_CONNECTED if self._on_demand else NOT_CONNECTED)
        return self.connection

    def bind_to_loop(self) -> Loop:
        """Bind the client to the running event loop. Connections of an earlier one have ended with it.

        Raises:
            CallerError: The client is connected in another event loop, which still runs.
        """
        if self._loop is not None and self._loop.is_running():
            return self._loop
        if self.connected:
            raise CallerError("this client is connected in another event loop, and can be used and closed only there")
        self._loop, self._connecting, self._owned, self.connection = Loop.running(), Lock(), None, None
        self._reconnection, self._background = SingleFlight(spawn), SingleFlight(spawn)
        self._backoff, self._failed_at = self._state.restart_backoff(), -math.inf
        if self._state.lazy:
            self._backoff.max_delay = LAZY_PAUSE
        return self._loop

    async def live(self, timeout: float | None, idle_timeout: float | None) -> tuple[Connection, CallTimeouts]:
        """The connection for a call that begins now, and the timeouts of the call; None means those of the limits.

        If there is to be a new connection, because the server has ended or the client is lazy, this waits for that.

        Raises:
            TypeError, ValueError: A timeout is not a number of seconds.
        """
        if (loop := self._loop) is None or not loop.is_running():
            loop = self.bind_to_loop()
        connection, limits = self.connection, self._state.limits
        if connection is None and not self._on_demand:
            raise NotConnected(NOT_CONNECTED)
        timeouts = CallTimeouts(
            timeout=limits.timeout if timeout is None else check_seconds("timeout", timeout),
            idle_timeout=limits.idle_timeout if idle_timeout is None else check_seconds("idle_timeout", idle_timeout),
            input_timeout=limits.input_timeout,
            clock=loop.time,
        )
        if connection is None or connection.dispatcher.closed is not None:
            connection = await self.reconnected(connection, timeouts)
        return connection, timeouts

    # Connecting and closing

    async def begin(self) -> None:
        """Connect; or, if the client is lazy, let its first request do that."""
        if not self._state.lazy:
            await self.connect()
            return
        self.bind_to_loop()
        self._on_demand, self._context = True, copy_context()

    async def connect(self) -> None:
        """Open a connection, unless there is one. Earlier attempts that failed no longer count."""
        self.bind_to_loop()
        self._check_not_awaited()
        self._on_demand, self._context = self._state.lazy, copy_context()
        closings = self._closings
        async with self._connecting:
            if not self.connected:
                self._backoff.reset()
                self._reconnection.end(None)
                await self._replace(closings)

    async def close(self) -> None:
        """Close the connection, and end connecting and reconnecting."""
        self.bind_to_loop()
        self._closings += 1
        self._on_demand = False
        self._state.log_level = None
        self._state.subscriptions.clear()
        self.connection = None
        self._reconnection.end(ConnectionClosed("the client was closed", may_have_run=False))
        await self._close_owned()

    async def _replace(self, closings: int) -> None:
        """Open a connection in place of the last, by one attempt after another.

        *closings* is the number of calls of `close` when this was requested: another one ends it.

        Raises:
            McpError: Why the first attempt failed that did not assume the wrong era.
        """
        await self._close_owned()
        state = self._state
        attempts = Attempts(state.offers, state.known_era(), state.limits.connect_timeout)
        attempt: Attempt | None = attempts.current
        while True:
            self._check_wanted(closings)  # closing may be why an attempt failed
            if attempt is None:
                assert attempts.failure is not None, "an attempt has failed"
                raise attempts.failure
            begun = current_time()
            # The connection must not keep alive the client that is to close it.
            self._owned = OwnedContext(Connection.open(state, attempt, WeakMethod(self._lost)))
            try:
                connection = await self._owned.enter()
                break
            except McpError as failure:
                attempt = attempts.next(failure, current_time() - begun)
        self._check_wanted(closings)
        state.accepted(attempt.offers)
        self.connection = connection
        mirrored = connection.dispatcher.stream_per_request and connection.session.era.mirrors_parameters
        if self._policy is None:
            self.tools = ToolCache(state.warn_about_server, mirrored=mirrored)
        else:
            self.tools = self.filtered = self._filtered(self._policy, mirrored=mirrored)
        if not self.connected:
            self._lost()  # it was lost before `connection` was set

    def _filtered(self, policy: ToolPolicy, *, mirrored: bool) -> FilteredTools:
        from mcp_host.client.filtered_tools import FilteredTools  # few clients need it

        state = self._state
        state.cache.drop("tools/list")  # the server may be another version now
        server = ServerIdentity(state.key, state.transport.identity, state.transport.name)
        return FilteredTools(policy, server, self._state.warn_about_server, mirrored=mirrored)

    def _check_not_awaited(self) -> None:
        """Check that connecting does not wait for the caller, which is about to wait for it."""
        if self._connecting.locked():
            self._state.check_not_awaited()

    def _check_wanted(self, closings: int) -> None:
        if self._closings != closings:
            raise ConnectionClosed("closed while it was being opened", may_have_run=False)

    async def _close_owned(self) -> None:
        """Close the connection and its transport."""
        if (owned := self._owned) is None:
            return
        with move_on_after(self._state.limits.close_timeout) as scope:
            await owned.leave()
        if scope.cancelled_caught:
            owned.cancel()
        if self._owned is owned:
            self._owned = None

    # Reconnecting

    async def reconnected(self, connection: Connection | None, timeouts: CallTimeouts) -> Connection:
        """The connection in place of *connection*, if that has ended, or is None, and there is to be another.

        Raises:
            RequestTimeout: The call has timed out; the attempt goes on.
            ConnectionClosed: Restarts have stopped.
            CallerError: Connecting waits for the caller.
            McpError: The attempt has failed.
        """
        insist = self._state.lazy
        while connection is None or self._reconnection_due(connection, insist=insist):
            insist = False
            self._check_not_awaited()
            self._begin_reconnecting(connection)
            name = self._state.name
            what = f"connecting to {name}" if self._state.lazy else f"starting {name} again"
            try:
                with timeouts.bound(what, idle=True):
                    await self._reconnection.wait()
            except RequestTimeout as timed_out:
                timed_out.may_have_run = False  # the call has only waited
                raise
            except ConnectionClosed as failed:
                error = failed.again()
                error.may_have_run = False  # as above
                raise error from failed
            if self.connection is None and not self._on_demand:
                raise ConnectionClosed("the client was closed", may_have_run=False)
            connection = self.connection
        if (reason := connection.dispatcher.closed) is not None and connection.restarts and not self._state.lazy:
            error = advising(reason, f"it {self._given_up()}")
            error.may_have_run = False
            raise error
        return connection

    def _reconnection_due(self, connection: Connection, *, insist: bool = False) -> bool:
        """Whether *connection* has ended and there is to be another: with *insist* after any number of failures."""
        dispatcher = connection.dispatcher
        if dispatcher.closed is None or not connection.restarts:
            return False
        if connection is not self._last_dead:
            self._last_dead = connection
            self._failed_at = dispatcher.closed_at
            self._backoff.ended(dispatcher.closed_at - dispatcher.opened_at, useful=connection.useful)
            self._warn_if_given_up()
        return insist or self._backoff.failures <= self._backoff.max_failures

    def _warn_if_given_up(self) -> None:
        if self._backoff.failures == self._backoff.max_failures + 1 and not self._state.lazy:
            self._state.warn(f"{self._state.name} {self._given_up()}")

    def _given_up(self) -> str:
        return f"has ended {self._backoff.failures} times in a row and stays down until you await client.connect()"

    def _begin_reconnecting(self, dead: Connection | None) -> None:
        """Open a connection in place of *dead* for all callers that wait, unless that has begun.

        It belongs to no caller, so it does not run in the context of the one that comes first.
        """

        async def reconnect() -> None:
            pause = self._backoff.delay(0.0) if self._backoff.failures > 1 else 0.0
            await sleep(max(self._failed_at + pause - current_time(), 0.0))
            closings = self._closings
            try:
                async with self._connecting:
                    if self.connection is dead:  # the application has neither closed nor connected meanwhile
                        await self._replace(closings)
            except (AuthError, Unauthorized):
                self._backoff.reset()  # the server is up: the next request may have been authorized
                raise
            except Exception:
                self._failed_at = current_time()
                self._backoff.fail()
                self._warn_if_given_up()
                raise

        self._context.copy().run(self._reconnection.begin, reconnect)

    def _lost(self) -> None:
        """The connection has ended. If the application listens to the server, another is opened without a call."""
        if self._state.listens:
            self._background.begin(self._reconnect_in_background)

    async def _reconnect_in_background(self) -> None:
        """Reconnect until the connection is alive, or until that has failed too often."""
        while (connection := self.connection) is not None and self._reconnection_due(connection):
            self._begin_reconnecting(connection)
            try:
                await self._reconnection.wait()
            except Exception as exc:  # the next call tries again, and raises it
                if isinstance(exc, AuthError | Unauthorized):
                    return  # no pause separates these attempts
