"""Restarting a server that has ended: with growing delays, and once for all callers that wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from anyio import sleep

from mcp_host.concurrency import SingleFlight, spawn
from mcp_host.protocol.backoff import restart_backoff
from mcp_host.session.call import CallTimeouts
from mcp_host.session.connection import Connection

RESTART_PAUSE = 0.5  # seconds before a server that keeps ending is started again; longer each time

Reopen: TypeAlias = Callable[[Connection], Coroutine[object, object, None]]


class Restarter:
    """Replaces a dead connection by calling *reopen* with it. *wanted* is `Transport.restart`.

    "If the server process exits unexpectedly, the client SHOULD restart it" (2026-07-28,
    basic/transports/stdio). Restarts stop after eight consecutive failures: connections that gave the
    application no result and did not last.
    """

    def __init__(self, name: str, wanted: bool | None, reopen: Reopen, warn: Callable[[str], None]) -> None:
        self._name = name
        self._wanted = wanted
        self._reopen = reopen
        self._warn = warn
        self._backoff = restart_backoff()
        self._flight = SingleFlight(spawn)
        self._restarting = False
        self._last_dead: Connection | None = None

    def due(self, connection: Connection) -> bool:
        """Whether *connection* is dead and should be restarted: by choice, or because its revision says so."""
        session = connection.dispatcher.session
        if connection.dispatcher.closed is None or session is None:
            return False
        if not (session.era.restarts if self._wanted is None else self._wanted):
            return False
        if connection is not self._last_dead:
            self._last_dead = connection
            self._backoff.ended(connection.dispatcher.lifetime, useful=connection.useful)
            self._warn_if_given_up()
        return self._backoff.failures <= self._backoff.max_failures

    def _warn_if_given_up(self) -> None:
        if self._backoff.failures == self._backoff.max_failures + 1:
            self._warn(f"{self._name} has ended {self._backoff.failures} times in a row: it stays down until connect()")

    async def wait(self, dead: Connection, timeouts: CallTimeouts) -> None:
        """Restart *dead*, or wait for the restart that is running.

        Raises:
            RequestTimeout: The call has timed out; the restart goes on.
            McpError: The restart has failed.
        """
        self._flight.begin(partial(self._restart, dead))
        with timeouts.bound(f"starting {self._name} again", idle=True):
            await self._flight.wait()

    def restart_in_background(self, current: Callable[[], Connection | None]) -> None:
        """Restart the *current* connection without a call, until it is alive or restarts have stopped."""
        if not self._restarting:
            self._restarting = True
            spawn(partial(self._restart_in_background, current))

    async def _restart_in_background(self, current: Callable[[], Connection | None]) -> None:
        try:
            while (connection := current()) is not None and self.due(connection):
                with suppress(Exception):  # the next call tries again, and raises it
                    await self.wait(connection, CallTimeouts(timeout=math.inf, idle_timeout=math.inf))
        finally:
            self._restarting = False

    def reset(self) -> None:
        """The application connects: forget earlier failures. Waiting callers look again."""
        self._backoff.reset()
        self._flight.end(None)

    def end(self, error: Exception) -> None:
        """Stop restarting. Waiting callers get *error*."""
        self._flight.end(error)

    async def _restart(self, dead: Connection) -> None:
        await sleep(self._backoff.delay(RESTART_PAUSE) if self._backoff.failures > 1 else 0.0)
        try:
            await self._reopen(dead)
        except Exception:
            self._backoff.fail()
            self._warn_if_given_up()
            raise
