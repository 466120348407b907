"""Messages of ours that nobody here waits for: answers, cancellations."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from anyio import move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.errors import CallerError, ConnectionClosed, HttpStatusError, McpError, SessionLost
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Failure, Notification, Success
from mcp_host.session.answers import FAILED
from mcp_host.transports.base import Channel, Headers

logger = logging.getLogger(__name__)

ANSWER_DEADLINE = 30.0  # seconds for delivering an answer or a cancellation: short of any sensible call timeout


class BackgroundSender:
    """Sends over *channel*, *limit* messages at a time; *on_done* is called whenever one of them is out of hand."""

    def __init__(
        self, channel: Channel, tasks: TaskGroup, limit: int, counters: Counter[str], on_done: Callable[[], None]
    ) -> None:
        self.under_way = 0
        self._channel = channel
        self._tasks = tasks
        self._limit = limit
        self._counters = counters
        self._on_done = on_done

    def soon(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*: now, where that takes no waiting, or `later`."""
        if not self.at_once(message):
            self.later(message, headers)

    def later(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message* in a task of its own, unless too many are on their way."""
        if self.under_way >= self._limit:
            self._counters["dropped answers"] += 1  # a flood of pings, say, by somebody who reads no answers
        else:
            self.under_way += 1
            self._tasks.start_soon(self._counted, message, headers)

    async def now(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*, and wait for that. Never raises: the link may have died, and everyone knows."""
        await self._deliver(message, headers)

    def at_once(self, message: Notification | Success | Failure) -> bool:
        """Send *message* if that takes no waiting; whether it is out of hand."""
        try:
            return self._channel.send_now(message)
        except CallerError:
            return False  # to be found out again where it is dealt with
        except McpError as exc:
            self._undelivered(exc)
            return True

    def _undelivered(self, error: McpError) -> None:
        self._counters["undelivered messages"] += 1
        logger.debug("not delivered: %s", error)

    async def _deliver(self, message: Notification | Success | Failure, headers: Headers) -> None:
        with move_on_after(ANSWER_DEADLINE):
            try:
                await self._send(message, headers)
            except CallerError:
                logger.exception("what was to be sent is not JSON")
                if isinstance(message, Success | Failure):  # the server must not wait for ever
                    await self._deliver(Failure(message.id, INTERNAL_ERROR, FAILED), headers)
            except McpError as exc:
                self._undelivered(exc)

    async def _send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*; an answer again if it may have been lost on its way, for a server takes it but once."""
        is_answer = isinstance(message, Success | Failure)
        for pause in RETRY_DELAYS if is_answer and self._channel.stream_per_request else ():
            try:
                return await self._channel.send(message, headers)
            except McpError as exc:
                if not _may_pass(exc):
                    raise
            await sleep(pause)
        return await self._channel.send(message, headers)

    async def _counted(self, message: Notification | Success | Failure, headers: Headers) -> None:
        try:
            await self._deliver(message, headers)
        finally:
            self.under_way -= 1
            self._on_done()


def _may_pass(error: McpError) -> bool:
    """Whether what kept a message from its server may be over in a moment."""
    if isinstance(error, HttpStatusError):
        return error.transient
    return isinstance(error, ConnectionClosed) and not isinstance(error, SessionLost)
