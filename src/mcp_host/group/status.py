"""What a group knows about each of its servers, and how it says so."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

from mcp_host.concurrency.synchronization import Event
from mcp_host.handlers import Failures, as_async, call_callback

ServerState: TypeAlias = Literal["connecting", "ready", "down", "needs_login", "needs_consent", "disabled"]

MAX_WAITING = 1_000  # changes that wait for on_status; beyond that, the oldest is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """One server of a `ClientGroup`, at one time.

    *state* is one of:

    - "connecting": the first attempt is under way. A server that was down is "down" during later ones.
    - "ready": it is connected, and its tools are listed.
    - "down": it could not be reached, could not list its tools, or its connection has ended. It is tried again, with
      growing pauses. So are all servers called while the group is not open.
    - "needs_login": it wants a login, which `ClientGroup.log_in` begins.
    - "needs_consent": a person is asked whether to start it, or has not agreed: see `ClientGroup.from_file`.
    - "disabled": the host or the file has switched it off, or the file describes it wrongly.

    *since* is when that began, in UTC. *error* is the last reason why it was not ready; it stays when the server is back, until
    the group is closed.
    *protocol_version* and *tools*, their number, are those of the last connection; None before the first.
    *restarts* counts how often it became ready again.
    """

    name: str
    state: ServerState
    since: datetime
    error: str | None = None
    protocol_version: str | None = None
    tools: int | None = None
    restarts: int = 0


OnStatus: TypeAlias = Callable[[ServerStatus], Awaitable[None] | None]


class StatusChanges:
    """The changes of all servers of a group: for those who wait for the next one, and for *on_status*."""

    def __init__(self, on_status: OnStatus | None) -> None:
        shape = "(status: ServerStatus) -> None"
        self._on_status = None if on_status is None else as_async(on_status, argument="on_status", shape=shape)
        self._statuses: deque[ServerStatus] = deque(maxlen=MAX_WAITING)
        self._changed = Event()

    def open(self) -> None:
        """Begin in the running event loop. What was left of an earlier time is dropped."""
        self._statuses.clear()
        self._changed = Event()

    def add(self, status: ServerStatus, *, quiet: bool = False) -> None:
        """Say that a server has this status now. If *quiet*, *on_status* does not get it."""
        if self._on_status is not None and not quiet:
            self._statuses.append(status)
        self.wake()

    def wake(self) -> None:
        """End the waits for a change: something has changed that no status shows."""
        changed, self._changed = self._changed, Event()
        changed.set()

    async def wait(self) -> None:
        """Wait for the next change of any server."""
        await self._changed.wait()

    async def hand_over(self) -> None:
        """Hand all changes to *on_status*, one after the other, until this is cancelled."""
        failures: Failures = Counter()
        while self._on_status is not None:
            while self._statuses:
                run = partial(self._on_status, self._statuses.popleft())
                await call_callback(run, subject="on_status", failures=failures)
            await self._changed.wait()
