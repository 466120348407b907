"""Sending what no caller waits for: answers to the server, cancellations of our requests, progress of handlers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

from anyio import move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.concurrency.asking import unattended
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    McpTimeout,
    ProtocolError,
    SessionLost,
    Unauthorized,
)
from mcp_host.handlers import worth_logging
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.eras import Era
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Failure, Notification, Success
from mcp_host.session.session import FAILED
from mcp_host.transports.base import Channel, Headers

logger = logging.getLogger(__name__)

NO_HEADERS: Headers = {}
OnUndelivered: TypeAlias = Callable[[str, Exception | None], None]
"""Gets why an answer was not delivered, and the error if the server certainly does not have it."""
SEND_TIMEOUT = 30.0  # seconds for delivering an answer or a cancellation: less than any sensible call timeout


class BackgroundSender:
    """Sends messages that no caller waits for: at most *limit* at a time; *on_sent* is called after each of them.

    One that is not delivered is a warning, by *warn*, unless the connection has ended: that is reported elsewhere.

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
        warn: Callable[[str], None],
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
        self._warn = warn
        self._retry_delays = retry_delays

    def send_soon(
        self,
        message: Notification | Success | Failure,
        era: Era | None,
        headers: Headers = NO_HEADERS,
        on_undelivered: OnUndelivered | None = None,
    ) -> None:
        """Send *message* without waiting if possible, or else in the background; not if the connection is closed."""
        if self.closed or self._send_now(message):
            return
        if self.sending >= self._limit:
            self._counters["dropped answers"] += 1  # the server sends a flood of pings, say, and reads no answers
            return

        async def send() -> None:
            try:
                await self._deliver(message, era, headers, on_undelivered)
            finally:
                self.sending -= 1
                self._on_sent()

        self.sending += 1
        self._tasks.start_soon(send)

    async def send(
        self,
        message: Notification | Success | Failure,
        era: Era | None,
        headers: Headers = NO_HEADERS,
        on_undelivered: OnUndelivered | None = None,
    ) -> None:
        """Send *message*. If that fails, this returns, too."""
        if not self._send_now(message):
            await self._deliver(message, era, headers, on_undelivered)

    async def _deliver(
        self,
        message: Notification | Success | Failure,
        era: Era | None,
        headers: Headers,
        on_undelivered: OnUndelivered | None,
    ) -> None:
        failures: list[Exception] = []
        # A call waits for what its server does with an answer; no one waits for a cancellation.
        attended = nullcontext() if isinstance(message, Success | Failure) else unattended()
        with attended, move_on_after(SEND_TIMEOUT) as timeout:
            try:
                await self._send_with_retries(message, era, headers, failures)
            except CallerError:
                logger.exception("a message could not be written as JSON")
                if isinstance(message, Success | Failure):  # the server must not wait for an answer in vain
                    await self.send(Failure(message.id, INTERNAL_ERROR, FAILED), era, headers, on_undelivered)
                return
            except Exception as exc:
                failures.append(exc)
                reason = str(exc)
                if not isinstance(exc, McpError):  # of an Auth
                    logger.exception("a message could not be sent")
                    reason = f"{type(exc).__name__}: {exc}"
            else:
                return
        if timeout.cancelled_caught:
            reason = f"it took longer than {SEND_TIMEOUT:g} seconds"
        self._undelivered(message, reason)
        if on_undelivered is not None:
            is_certain = not timeout.cancelled_caught and not any(map(_may_have_arrived, failures))
            on_undelivered(reason, failures[-1] if is_certain else None)

    def _send_now(self, message: Notification | Success | Failure) -> bool:
        """Send *message* if that needs no waiting. False if it is still to be sent."""
        try:
            return self._channel.send_now(message)
        except CallerError:
            return False  # `_deliver` handles it
        except McpError as exc:
            self._undelivered(message, str(exc), quiet=True)
            return True

    async def _send_with_retries(
        self, message: Notification | Success | Failure, era: Era | None, headers: Headers, failures: list[Exception]
    ) -> None:
        """Send *message*. An answer over HTTP is repeated if it may be lost: servers accept it only once.

        All *failures* but the last, which is raised, are added.
        """
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
                failures.append(exc)
            except SessionLost:
                raise
            except ConnectionClosed as exc:
                failures.append(exc)
            await sleep(delay)
        return await self._channel.send(message, headers)

    def _undelivered(self, message: Notification | Success | Failure, reason: str, *, quiet: bool = False) -> None:
        self._counters["undelivered messages"] += 1
        if worth_logging(count := self._counters["undelivered messages"]):
            what = message.method if isinstance(message, Notification) else "an answer"
            so_far = f" ({count} messages so far)" if count > 1 else ""
            text = f"{what} was not delivered{so_far}: {reason}"
            if quiet or self.closed:
                logger.debug("%s", text)
            else:
                self._warn(text)


def _may_have_arrived(error: Exception) -> bool:
    """Whether the server may have taken a message that failed with *error*. An Auth fails before anything is sent."""
    if isinstance(error, ConnectionClosed):
        return error.may_have_run
    return isinstance(error, HttpStatusError | McpTimeout | ProtocolError) and not isinstance(error, Unauthorized)
