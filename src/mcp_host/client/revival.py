"""Starting a server again that has died: at a pace that slows down, and once for everybody who waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from anyio import sleep

from mcp_host.client.connection import Connection
from mcp_host.client.exchange import Patience
from mcp_host.client.joint import Joint
from mcp_host.concurrency import spawn
from mcp_host.protocol.pace import restarting

RESTART_PAUSE = 0.5  # seconds before a server that keeps ending is started again; longer each time

Reopen: TypeAlias = Callable[[Connection], Coroutine[object, object, None]]


class Revival:
    """Brings a connection back, by *reopen*, which is given the dead one. *wanted* is the transport's word on it.

    "If the server process exits unexpectedly, the client SHOULD restart it" (2026-07-28,
    basic/transports/stdio). A server that was good for nothing `attempts` times in a row is left alone.
    """

    def __init__(self, name: str, wanted: bool | None, reopen: Reopen) -> None:
        self._name = name
        self._wanted = wanted
        self._reopen = reopen
        self._pace = restarting()
        self._effort = Joint(spawn)

    def due(self, connection: Connection) -> bool:
        """Whether *connection* is dead and to be brought back: by choice, or as its revision has it."""
        session = connection.link.session
        if connection.link.alive or session is None or self._pace.exhausted:
            return False
        return session.era.restarts if self._wanted is None else self._wanted

    async def wait(self, dead: Connection, patience: Patience) -> None:
        """Bring *dead* back, or wait while somebody does.

        Raises:
            RequestTimeout: That takes longer than the call may; it goes on.
            McpError: It has failed.
        """
        self._effort.begin(partial(self._start_again, dead))
        await self._effort.wait(patience, f"starting {self._name} again")

    async def see_to(self, dead: Connection) -> None:
        """Bring *dead* back though nobody calls, for as long as there is hope."""
        while self.due(dead):
            with suppress(Exception):  # which the next call gets as well, for it tries again
                await self.wait(dead, Patience.of(math.inf, math.inf))
                return

    def forgive(self) -> None:
        """Somebody connects: what was is forgotten, and who waits looks again."""
        self._pace.hit()
        self._effort.end(None)

    def end(self, error: Exception) -> None:
        """Nothing is to be brought back any more: who waits gets *error*."""
        self._effort.end(error)

    async def _start_again(self, dead: Connection) -> None:
        if dead.useful:
            self._pace.hit()
        pause = self._pace.pause(RESTART_PAUSE) if self._pace.missed else 0.0
        self._pace.miss()
        await sleep(pause)
        await self._reopen(dead)
