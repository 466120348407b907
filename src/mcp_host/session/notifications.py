"""Handing what a server announces to the application's callbacks, one at a time and in order."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio import Event

from mcp_host import types
from mcp_host.errors import ProtocolError
from mcp_host.handlers import call_callback
from mcp_host.protocol.jsonrpc import Notification

if TYPE_CHECKING:
    from mcp_host.session.changes import Change

logger = logging.getLogger(__name__)

OnChange: TypeAlias = "Callable[[Change], Awaitable[None] | None]"
OnLog: TypeAlias = "Callable[[types.LoggingMessageNotificationParams], Awaitable[None] | None]"
AsyncOnChange: TypeAlias = "Callable[[Change], Awaitable[None]]"
AsyncOnComplete: TypeAlias = Callable[[str], Awaitable[None]]
AsyncOnLog: TypeAlias = "Callable[[types.LoggingMessageNotificationParams], Awaitable[None]]"
Prepare: TypeAlias = Callable[[dict[str, Any]], Callable[[], Awaitable[None]]]
"""Reads a notification, and says what is to be called. Raises `ProtocolError` for a malformed one."""

CHANGES = frozenset(
    {
        *("notifications/tools/list_changed", "notifications/prompts/list_changed"),
        *("notifications/resources/list_changed", "notifications/resources/updated"),
    }
)
"""The methods of what *on_change* is told."""
LOG = "notifications/message"
ELICITATION_COMPLETE = "notifications/elicitation/complete"


class NotificationQueue:
    """A bounded queue in front of the callbacks.

    A task of its own runs them, so that a callback may itself call the client. A
    change that waits already is not queued again; past the bound the oldest log
    message gives way, and is counted.
    """

    def __init__(
        self,
        limit: int,
        counters: Counter[str],
        *,
        on_log: AsyncOnLog | None,
        on_change: AsyncOnChange | None,
        on_elicitation_complete: AsyncOnComplete | None,
    ) -> None:
        self._limit = limit
        self._counters = counters
        self._queue: deque[Notification] = deque()
        self._wake = Event()
        self._prepare = _prepared(on_log, on_change, on_elicitation_complete)

    @property
    def wanted(self) -> bool:
        """Whether any callback is registered."""
        return bool(self._prepare)

    def offer(self, notification: Notification) -> None:
        """Queue what a callback wants; ignore the rest."""
        if notification.method not in self._prepare:
            return
        if notification.method in CHANGES and notification in self._queue:
            self._counters["coalesced notifications"] += 1
            return
        if len(self._queue) >= self._limit:
            self._make_room()
        self._queue.append(notification)
        self._wake.set()

    async def run(self) -> None:
        """Deliver for ever."""
        while True:
            while self._queue:
                await self._hand_over(self._queue.popleft())
            self._wake = Event()
            await self._wake.wait()

    async def _hand_over(self, notification: Notification) -> None:
        try:
            callback = self._prepare[notification.method](_wire(notification))
        except ProtocolError as exc:
            self._counters["malformed notifications"] += 1
            logger.debug("ignored: %s", exc)
        else:
            await call_callback(callback, subject=f"the callback for {notification.method}")

    def _make_room(self) -> None:
        self._counters["dropped notifications"] += 1
        oldest = next((waiting for waiting in self._queue if waiting.method == LOG), self._queue[0])
        self._queue.remove(oldest)


def _prepared(
    on_log: AsyncOnLog | None, on_change: AsyncOnChange | None, on_elicitation_complete: AsyncOnComplete | None
) -> dict[str, Prepare]:
    prepared: dict[str, Prepare] = {}
    if on_log is not None:
        prepared[LOG] = _log_to(on_log)
    if on_change is not None:
        prepared |= {method: _change_to(on_change) for method in CHANGES}
    if on_elicitation_complete is not None:
        prepared[ELICITATION_COMPLETE] = _completion_to(on_elicitation_complete)
    return prepared


def _log_to(callback: AsyncOnLog) -> Prepare:
    return lambda wire: partial(callback, types.LoggingMessageNotification.from_wire(wire).params)


def _change_to(callback: AsyncOnChange) -> Prepare:
    from mcp_host.session.changes import read_change

    return lambda wire: partial(callback, read_change(wire))


def _completion_to(callback: AsyncOnComplete) -> Prepare:
    return lambda wire: partial(callback, types.ElicitationCompleteNotification.from_wire(wire).params.elicitation_id)


def _wire(notification: Notification) -> dict[str, Any]:
    params = {"params": notification.params} if notification.params else {}  # absent stays absent
    return {"jsonrpc": "2.0", "method": notification.method} | params
