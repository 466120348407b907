"""Delivering the server's notifications to the application's callbacks, one at a time and in order."""

from __future__ import annotations

import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import Any, TypeAlias

from mcp_host import types
from mcp_host.concurrency.synchronization import Event
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import ProtocolError
from mcp_host.handlers import Failures, call_callback, worth_logging
from mcp_host.protocol.cache import CHANGES
from mcp_host.protocol.eras import ACKNOWLEDGED
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.session.state import ClientState

logger = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[dict[str, Any]], Callable[[], Awaitable[None]]]
"""Parses a notification and returns the callback to await. Raises `ProtocolError` if it is malformed."""

LOG = "notifications/message"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
KNOWN = frozenset({LOG, ELICITATION_COMPLETE, ACKNOWLEDGED, *CHANGES})
"""What is never for *on_notification*, besides progress and cancellations."""

Key: TypeAlias = int | tuple[str, str | None]
"""Of a queued notification: the method and the URI of a change, so that it is found at once, or a number."""


class NotificationQueue:
    """A bounded queue of notifications for the callbacks.

    They are called in a task of *handlers* that runs while there are any, so that a callback can use the client. A change that is
    queued already is not queued again. If the queue is full, the oldest is dropped and counted that is
    neither a change nor the end of an elicitation.
    """

    def __init__(self, state: ClientState, handlers: HandlerTasks) -> None:
        self._handlers = handlers
        self._state = state
        self._counters = state.counters
        self._failures: Failures = Counter()
        self._queue: OrderedDict[Key, Notification] = OrderedDict()
        self._numbers = itertools.count()
        self._expendable: OrderedDict[Key, None] = OrderedDict()
        """The keys of what may be dropped, in order."""
        self._is_running = False
        self._delivered: Event | None = None
        """Set when there is no more to deliver, if a task waits for that."""
        self._on_other = state.on_notification

    @cached_property
    def _prepare(self) -> Mapping[str, Prepare]:
        """For each method for which there is a callback."""
        state, prepare = self._state, dict[str, Prepare]()
        if (on_log := state.on_log) is not None:
            prepare[LOG] = lambda wire: partial(on_log, types.LoggingMessageNotification.from_wire(wire).params)
        if (on_change := state.on_change) is not None:
            from mcp_host.session.changes import TYPES

            for method in TYPES:
                prepare[method] = lambda wire: partial(on_change, TYPES[wire["method"]].from_wire(wire))
        if (on_complete := state.on_elicitation_complete) is not None:
            prepare[ELICITATION_COMPLETE] = lambda wire: partial(
                on_complete, types.ElicitationCompleteNotification.from_wire(wire).params.elicitation_id
            )
        return prepare

    def offer(self, notification: Notification) -> None:
        """Queue *notification* if there is a callback for it."""
        method = notification.method
        if method not in self._prepare and (method in KNOWN or self._on_other is None):
            return
        uri = notification.params.get("uri")
        key = (method, uri if isinstance(uri, str) else None) if method in CHANGES else next(self._numbers)
        if key in self._queue:
            self._counters["coalesced notifications"] += 1
            return
        if len(self._queue) >= self._state.limits.max_notifications:
            self._counters["dropped notifications"] += 1
            if self._expendable:
                key_of_oldest, _ = self._expendable.popitem(last=False)
                del self._queue[key_of_oldest]
            else:
                self._queue.popitem(last=False)
        self._queue[key] = notification
        if method == LOG or method not in self._prepare:
            self._expendable[key] = None
        if not self._is_running and not self._handlers.cancelled:
            self._is_running = True
            self._handlers.start(self._run)

    async def _run(self) -> None:
        """Call the callbacks until there is no more to deliver, or the connection is closed."""
        try:
            while self._queue:
                key, notification = self._queue.popitem(last=False)
                self._expendable.pop(key, None)
                await self._deliver(notification)
        finally:
            self._is_running = False
            if self._delivered is not None:
                self._delivered.set()
                self._delivered = None

    async def delivered(self) -> None:
        """Wait until the callbacks have had what came so far, or get no more."""
        if self._is_running:
            self._delivered = self._delivered or Event()
            await self._delivered.wait()

    async def _deliver(self, notification: Notification) -> None:
        if (prepare := self._prepare.get(notification.method)) is None:
            assert self._on_other is not None, "`offer` has looked"
            other = partial(self._on_other, notification)
            await call_callback(other, subject="on_notification", failures=self._failures)
            return
        params = {"params": notification.params} if notification.params else {}
        wire = {"jsonrpc": "2.0", "method": notification.method} | params
        try:
            callback = prepare(wire)
        except ProtocolError as exc:
            self._counters["malformed notifications"] += 1
            if worth_logging(count := self._counters["malformed notifications"]):
                logger.debug("ignored a malformed notification (%d so far): %s", count, exc)
        else:
            subject = f"the callback for {notification.method}"
            await call_callback(callback, subject=subject, failures=self._failures)
