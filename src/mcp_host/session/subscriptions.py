"""Subscriptions to changes of a stateless server: one `subscriptions/listen` stream for all of them.

https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from anyio import CancelScope, current_time, move_on_after, sleep

from mcp_host.concurrency.asking import unattended
from mcp_host.concurrency.synchronization import Event, Lock
from mcp_host.errors import (
    ConnectionClosed,
    HttpStatusError,
    McpError,
    McpTimeout,
    ProtocolError,
    ServerError,
    Unauthorized,
    quoted,
)
from mcp_host.protocol.backoff import listen_backoff
from mcp_host.protocol.eras import ACKNOWLEDGED, LISTEN, SUBSCRIPTION_ID
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.session.call import CallTimeouts, OnEvent
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.state import ClientState

logger = logging.getLogger(__name__)

ACKNOWLEDGE_WAIT = 1.0  # seconds for the acknowledgment before the first call; calls do not depend on it

LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""What to subscribe to, by the server capability whose `listChanged` offers it."""


class Subscriptions:
    """What one connection listens to: lists for which there is a callback, and the resources that the application names.

    There is one stream at a time. To add or remove a resource, a new stream is opened; once it is
    acknowledged, the old one is closed. If it is not, the old one stays.
    """

    def __init__(self, dispatcher: Dispatcher, state: ClientState, notify: OnEvent) -> None:
        self.dispatcher = dispatcher
        self.state = state
        self.notify = notify
        self._lock = Lock()
        self._stream: _Stream | None = None

    async def begin(self) -> None:
        """Listen to what the application wants already; wait briefly for the acknowledgment."""
        self._stream = self._start(self.state.subscriptions, None)
        if self._stream is not None:
            with move_on_after(ACKNOWLEDGE_WAIT):
                await self._stream.settled.wait()

    def restart(self) -> None:
        """Listen on a new stream: the one that is open is of another login."""
        if self._stream is not None and not self._lock.locked():  # else another one is being opened
            self._stream.scope.cancel()
            self.state.cache.drop()  # changes may be missed
            with unattended():  # no person is asked for a stream
                self._stream = self._start(self.state.subscriptions, None)

    async def add(self, uri: str, timeouts: CallTimeouts) -> None:
        """Subscribe to the resource at *uri*.

        Raises:
            ServerError: The server refuses, or does not acknowledge this resource.
            RequestTimeout: It does neither in time.
        """
        with timeouts.bound(LISTEN, idle=True):
            async with self._lock:
                await self._replace({**self.state.subscriptions, uri: None})
                agreed = uri in self.state.subscriptions
        if not agreed:
            raise ServerError(None, f"{self.state.name} did not agree to tell of changes of {quoted(uri)}")

    async def remove(self, uri: str, timeouts: CallTimeouts) -> None:
        """Unsubscribe from the resource at *uri*.

        Raises:
            ServerError, RequestTimeout: The server does not acknowledge the other subscriptions. Nothing has changed.
        """
        with timeouts.bound(LISTEN, idle=True):
            async with self._lock:
                others = {other: None for other in self.state.subscriptions if other != uri}
                if len(others) < len(self.state.subscriptions):
                    await self._replace(others)

    async def _replace(self, uris: Mapping[str, None]) -> None:
        """Listen to *uris* instead. However this ends, at most one stream is open, and the state says which."""
        last = self._stream
        if last is not None and not last.acknowledged:
            last.scope.cancel()
            last = None
        stream = self._stream = self._start(uris, last)
        if stream is None:
            if last is not None:
                last.scope.cancel()
            self._record(uris)
            return
        try:
            await stream.settled.wait()
        finally:
            if stream.acknowledged:
                self._record(uri for uri in uris if uri in stream.granted_uris or uri in self.state.subscriptions)
            else:
                stream.scope.cancel()
                self._stream = last or self._start(self.state.subscriptions, None)
        if stream.error is not None:
            raise stream.error
        self.dispatcher.require()  # the connection may have ended in the same moment

    def _record(self, uris: Iterable[str]) -> None:
        if self.dispatcher.closed is None:  # closing the client has cleared the subscriptions
            self.state.subscriptions = dict.fromkeys(uris)

    def _start(self, uris: Mapping[str, None], last: _Stream | None) -> _Stream | None:
        """Open a stream for the lists and *uris*, as far as the server announces them; None if nothing is left."""
        wanted: dict[str, Any] = {}
        offered = self.dispatcher.require().capabilities
        for kind, name in LISTS.items():
            capability = offered.get(kind)
            announced = not offered or (isinstance(capability, dict) and capability.get("listChanged"))
            if announced and self.state.wants_list(kind):
                wanted[name] = True
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        if not wanted:
            return None
        stream = _Stream(self, wanted, last)
        self.dispatcher.spawn(stream.run)
        return stream


class _Stream:
    """A subscription to what is *wanted*, reopened whenever its stream breaks, until it is cancelled.

    *last* is cancelled when the server has acknowledged this one.
    """

    def __init__(self, subscriptions: Subscriptions, wanted: dict[str, Any], last: _Stream | None) -> None:
        self.scope = CancelScope()
        self.settled = Event()
        """Set when the server has acknowledged the filter, or failed with *error*."""
        self.acknowledged = False
        self.error: Exception | None = None
        self.granted_uris: frozenset[str] = frozenset()
        self._dispatcher, self._state = subscriptions.dispatcher, subscriptions.state
        self._notify = subscriptions.notify
        self._wanted = wanted
        self._last = last
        self._gap = False
        """Whether changes may have been missed since the last stream broke."""

    async def run(self) -> None:
        """Listen until cancelled, or until the server refuses."""
        with self.scope:
            try:
                await self._listen()
            except McpError as exc:
                self.error, self.acknowledged = exc, False
                if self._dispatcher.closed is None:
                    self._state.warn(f"{self._state.name} refuses the subscription to changes: {exc}")
            except Exception as exc:  # of middleware
                self.error, self.acknowledged = exc, False
                logger.exception("subscribing to changes failed")
        self.settled.set()

    async def _listen(self) -> None:
        """Listen on one stream after another.

        If the client is no longer authorized, the next request of the application finds that out, too. So the stream
        waits for one that succeeds: a person is not asked to log in for a stream that has been open.

        Raises:
            McpError: The server does not offer this, or the connection has ended.
        """
        dispatcher, state, backoff = self._dispatcher, self._state, listen_backoff()
        while True:
            opened = current_time()
            refusal = await self._listen_once()
            if refusal is not None and (not self.acknowledged or backoff.exhausted):
                raise refusal
            state.cache.drop()  # changes may have been missed
            self._gap = True
            if refusal is None:
                backoff.ended(current_time() - opened)
                if backoff.failures == backoff.max_failures:
                    state.warn_about_server("the stream of changes keeps failing: changes are missed")
            else:
                backoff.fail()
                state.warn_about_server(f"changes are missed until a request succeeds: {refusal}")
                await dispatcher.next_success()
            await sleep(backoff.delay(None))

    async def _listen_once(self) -> McpError | None:
        """Listen on one stream until it breaks. Returns the error of a client that is not authorized.

        Raises: as `_listen`.
        """
        dispatcher, state = self._dispatcher, self._state
        era, params = dispatcher.require().era, {"notifications": self._wanted}
        timeouts = CallTimeouts(timeout=math.inf, idle_timeout=math.inf)
        try:
            with unattended() if self.acknowledged else nullcontext():
                await dispatcher.request_by_itself(LISTEN, params, era, timeouts, on_event=self._take)
        except ServerError as exc:
            state.invalidate(exc)
            if isinstance(exc, Unauthorized):
                return exc
            if not isinstance(exc, HttpStatusError) or not exc.transient:
                raise
        except (ConnectionClosed, McpTimeout, ProtocolError) as exc:
            if dispatcher.closed is not None:
                raise
            logger.debug("%s: the stream of changes broke: %s", state.name, exc)
        except McpError as exc:  # of an Auth
            return exc
        return None

    def _take(self, notification: Notification) -> None:
        if self.scope.cancel_called:
            return  # another stream has replaced this one
        if notification.method == ACKNOWLEDGED:
            self._acknowledge(notification.params.get("notifications"))
        else:
            self._notify(_without_subscription_id(notification))

    def _acknowledge(self, granted: object) -> None:
        granted = granted if isinstance(granted, dict) else {}
        if isinstance(uris := granted.get("resourceSubscriptions"), list):
            self.granted_uris = frozenset(uri for uri in uris if isinstance(uri, str))
        withheld = [name for name in LISTS.values() if name in self._wanted and granted.get(name) is not True]
        if withheld and not self.acknowledged:
            names = ", ".join(withheld)
            self._state.warn(f"{self._state.name} does not agree to {names}: such changes are not reported")
        self.acknowledged = True
        self.settled.set()
        if self._gap and self._state.list_watcher is not None:
            self._state.list_watcher.missed(self._dispatcher.require().capabilities)
        self._gap = False
        if self._last is not None:
            self._last.scope.cancel()
            self._last = None


def _without_subscription_id(notification: Notification) -> Notification:
    """*notification* without the id of its subscription, so that two equal ones compare equal."""
    params = dict(notification.params)
    meta = params.pop("_meta", None)
    if isinstance(meta, dict) and (rest := {key: value for key, value in meta.items() if key != SUBSCRIPTION_ID}):
        params["_meta"] = rest
    return Notification(notification.method, params)
