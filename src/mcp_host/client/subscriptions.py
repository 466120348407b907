"""Hearing of changes from a stateless server: one `subscriptions/listen` for all that the client wants to hear of.

https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from anyio import CancelScope, Event, Lock, current_time, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.client.exchange import OnEvent, Patience
from mcp_host.client.link import Link
from mcp_host.client.registration import Registration
from mcp_host.client.server_errors import refined, server_error
from mcp_host.errors import HttpStatusError, McpError, RequestTimeout, ServerError, quoted
from mcp_host.protocol.eras import SUBSCRIPTION_ID
from mcp_host.protocol.jsonrpc import Failure, Notification, Params
from mcp_host.protocol.pace import listening

logger = logging.getLogger(__name__)

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
STREAM_WAIT = 1.0  # seconds for the acknowledgment before the first call; calls go on without it
STEADY = 30.0  # seconds after which a stream that ended has been a good one: proxies cut idle ones every minute

LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""By the server capability whose `listChanged` announces them."""


class Subscriptions:
    """What one connection listens to: lists, where the application has a callback, and the resources it names.

    There is one stream at a time. When something is added or removed, the next one
    is acknowledged before the last is left.
    """

    def __init__(self, link: Link, registration: Registration, notify: OnEvent, tasks: TaskGroup, name: str) -> None:
        self._link = link
        self._registration = registration
        self._notify = notify
        self._tasks = tasks
        self._name = name
        self._turn = Lock()
        self._stream: _Stream | None = None

    async def begin(self) -> None:
        """Listen to what is wanted already. Waits a little for the server to agree, and not for it to have news."""
        stream = self._next(self._registration.subscriptions)
        if stream is not None:
            with move_on_after(STREAM_WAIT):
                await stream.settled.wait()

    async def add(self, uri: str, patience: Patience) -> None:
        """Hear of changes of the resource at *uri*.

        Raises:
            ServerError: The server refuses, or does not acknowledge this one.
            RequestTimeout: It does neither in time.
        """
        async with self._turn:
            stream = self._next({**self._registration.subscriptions, uri: None})
            assert stream is not None  # there is something to listen to: this
            error = await stream.outcome(patience)
            if error is None and uri not in stream.granted_uris:
                error = ServerError(None, f"{self._name} did not agree to tell of changes of {quoted(uri)}")
            if error is not None:
                self._next(self._registration.subscriptions)
                raise error
            self._registration.subscriptions[uri] = None

    async def remove(self, uri: str, patience: Patience) -> None:
        """Hear no more of the resource at *uri*, once this returns.

        Raises:
            ServerError, RequestTimeout: The server does not agree to tell of the others. It tells of nothing, then.
        """
        async with self._turn:
            if self._registration.subscriptions.pop(uri, self) is not None:
                return
            stream = self._next(self._registration.subscriptions)
            if stream is not None and (error := await stream.outcome(patience)) is not None:
                raise error

    def _next(self, uris: Mapping[str, None]) -> _Stream | None:
        """Begin to listen anew, and leave the stream so far once the new one stands."""
        wanted = self._filter(uris)
        last, self._stream = self._stream, None
        if wanted:
            self._stream = _Stream(self._link, self._registration, self._notify, wanted, self._name)
            self._tasks.start_soon(self._stream.run, last)
        elif last is not None:
            last.scope.cancel()
        return self._stream

    def _filter(self, uris: Mapping[str, None]) -> dict[str, Any]:
        """What to ask for: no more than the server has announced, where it has announced anything."""
        wanted: dict[str, Any] = {}
        offered = self._link.require().capabilities
        if self._registration.hears_changes:
            wanted = {name: True for kind, name in LISTS.items() if not offered or _says_changed(offered.get(kind))}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        return wanted


class _Stream:
    """One filter, listened to for as long as nobody cancels it, however often the stream breaks."""

    def __init__(
        self, link: Link, registration: Registration, notify: OnEvent, wanted: dict[str, Any], name: str
    ) -> None:
        self.scope = CancelScope()
        self.settled = Event()
        """Set when the server has agreed, or refused with *error*."""
        self.error: McpError | None = None
        self.granted_uris: frozenset[str] = frozenset()
        self._link = link
        self._registration = registration
        self._notify = notify
        self._wanted = wanted
        self._name = name
        self._last: _Stream | None = None

    async def outcome(self, patience: Patience) -> McpError | None:
        """What has become of it: None if the server has agreed."""
        with CancelScope(deadline=min(patience.end, current_time() + patience.silence)) as scope:
            await self.settled.wait()
        if scope.cancelled_caught:
            return RequestTimeout(f"{LISTEN}: the server has not acknowledged the subscription")
        return self.error

    async def run(self, last: _Stream | None) -> None:
        """Listen. *last* is cancelled when this stream stands, or never will."""
        self._last = last
        with self.scope:
            try:
                await self._listen_for_ever()
            except McpError as exc:
                self.error = exc
                if self._link.alive:
                    self._registration.warn(f"{self._name} tells of no changes: {exc}")
        self._settle()

    async def _listen_for_ever(self) -> None:
        pace = listening()
        while True:
            opened = current_time()
            await self._listen()
            self._registration.cache.drop()  # whatever has changed meanwhile, nobody will say so
            if current_time() - opened >= STEADY:
                pace.hit()
            pace.miss()
            if pace.missed == pace.attempts:
                self._registration.warn(f"{self._name}: the stream of changes keeps failing; they are not heard of")
            await sleep(pace.pause(None))

    async def _listen(self) -> None:
        """One stream from its opening to its end; returns if another may be better.

        Raises:
            McpError: There is nothing to be had, or not over this link.
        """
        era = self._link.require().era
        params: Params = {"notifications": self._wanted}
        try:
            reply = await self._link.ask(
                LISTEN,
                era.dress(params, None),
                era.headers(LISTEN, params),
                Patience.of(math.inf, math.inf),
                on_event=self._take,
            )
        except HttpStatusError as exc:
            if not exc.transient:
                raise refined(LISTEN, params, exc) from exc
        except McpError as exc:
            if not self._link.alive:
                raise
            logger.debug("%s: the stream of changes broke: %s", self._name, exc)
        else:
            if isinstance(reply, Failure):
                raise server_error(LISTEN, params, reply)

    def _take(self, notification: Notification) -> None:
        if self.scope.cancel_called:
            return  # another stream has taken its place
        if notification.method == ACKNOWLEDGED:
            self.granted_uris = _uris(notification.params.get("notifications"))
            self._settle()
        else:
            self._notify(_plain(notification))

    def _settle(self) -> None:
        self.settled.set()
        if self._last is not None:
            self._last.scope.cancel()
            self._last = None


def _uris(granted: object) -> frozenset[str]:
    uris = granted.get("resourceSubscriptions") if isinstance(granted, dict) else None
    return frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()


def _says_changed(capability: object) -> bool:
    return isinstance(capability, dict) and bool(capability.get("listChanged"))


def _plain(notification: Notification) -> Notification:
    """*notification* without the id of the subscription, in which two that say the same would differ."""
    meta = {key: value for key, value in notification.params["_meta"].items() if key != SUBSCRIPTION_ID}
    params = {key: value for key, value in notification.params.items() if key != "_meta"}
    return Notification(notification.method, params | ({"_meta": meta} if meta else {}))
