"""Sending what no caller waits for: answers to the server, cancellations of our requests, progress of handlers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from anyio import move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.concurrency.asking import unattended
from mcp_host.errors import CallerError, ConnectionClosed, HttpStatusError, McpError, SessionLost
from mcp_host.handlers import worth_logging
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.eras import Era
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Failure, Notification, Success
from mcp_host.session.session import FAILED
from mcp_host.transports.base import Channel, Headers

logger = logging.getLogger(__name__)

NO_HEADERS: Headers = {}
SEND_TIMEOUT = 30.0  # seconds for delivering an answer or a cancellation: less than any sensible call timeout


class BackgroundSender:
    """Sends messages that no caller waits for: at most *limit* at a time; *on_sent* is called after each of them.

    The *era* of a message writes its HTTP headers. Before there is one, a message has none. Further *headers* are those
    that middleware has given the call that it belongs to.
    """

    def __init__(
        self,
        channel: Channel,
        tasks: TaskGroup,
        limit: int,
        counters: Counter[str],
        on_sent: Callable[[], None],
        *,
        retry_delays: Sequence[float] = RETRY_DELAYS,
    ) -> None:
        self.closed = False
        self.sending = 0
        self._channel = channel
        self._tasks = tasks
        self._limit = limit
        self._counters = counters
        self._on_sent = on_sent
        self._retry_delays = retry_delays

    def send_soon(
        self, message: Notification | Success | Failure, era: Era | None, headers: Headers = NO_HEADERS
    ) -> None:
        """Send *message* without waiting if possible, or else in the background; not if the connection is closed."""
        if self.closed or self._send_now(message):
            return
        if self.sending >= self._limit:
            self._counters["dropped answers"] += 1  # the server sends a flood of pings, say, and reads no answers
            return

        async def send() -> None:
            try:
                await self._deliver(message, era, headers)
            finally:
                self.sending -= 1
                self._on_sent()

        self.sending += 1
        self._tasks.start_soon(send)

    async def send(
        self, message: Notification | Success | Failure, era: Era | None, headers: Headers = NO_HEADERS
    ) -> None:
        """Send *message*. Failures are only counted and logged: a closed connection is reported elsewhere."""
        if not self._send_now(message):
            await self._deliver(message, era, headers)

    async def _deliver(self, message: Notification | Success | Failure, era: Era | None, headers: Headers) -> None:
        # A call waits for what its server does with an answer; no one waits for a cancellation.
        attended = nullcontext() if isinstance(message, Success | Failure) else unattended()
        with attended, move_on_after(SEND_TIMEOUT) as timeout:
            try:
                await self._send_with_retries(message, era, headers)
            except CallerError:
                logger.exception("a message could not be written as JSON")
                if isinstance(message, Success | Failure):  # the server must not wait for an answer in vain
                    await self.send(Failure(message.id, INTERNAL_ERROR, FAILED), era, headers)
            except McpError as exc:
                self._undelivered(exc)
            except Exception as exc:  # of an Auth
                logger.exception("a message could not be sent")
                self._undelivered(type(exc).__name__)
        if timeout.cancelled_caught:
            self._undelivered(f"it took longer than {SEND_TIMEOUT:g} seconds")

    def _send_now(self, message: Notification | Success | Failure) -> bool:
        """Send *message* if that needs no waiting. False if it is still to be sent."""
        try:
            return self._channel.send_now(message)
        except CallerError:
            return False  # `_deliver` handles it
        except McpError as exc:
            self._undelivered(exc)
            return True

    async def _send_with_retries(
        self, message: Notification | Success | Failure, era: Era | None, headers: Headers
    ) -> None:
        """Send *message*. An answer over HTTP is repeated if it may be lost: servers accept it only once."""
        method, params = (message.method, message.params) if isinstance(message, Notification) else (None, {})
        over_http = self._channel.stream_per_request
        if era is not None and over_http:
            headers = {**headers, **era.headers(method or "", params)}
        for delay in self._retry_delays if method is None and over_http else ():
            try:
                return await self._channel.send(message, headers)
            except HttpStatusError as exc:
                if not exc.transient:
                    raise
            except SessionLost:
                raise
            except ConnectionClosed:
                pass
            await sleep(delay)
        return await self._channel.send(message, headers)

    def _undelivered(self, reason: object) -> None:
        self._counters["undelivered messages"] += 1
        if worth_logging(count := self._counters["undelivered messages"]):
            logger.debug("not delivered: %s (%d messages so far)", reason, count)
