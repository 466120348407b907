"""Hearing of changes from a stateless server: one `subscriptions/listen` for all that the client wants to hear of.

https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

from anyio import CancelScope, Event, Lock, current_time, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.errors import HttpStatusError, McpError, ServerError, quoted
from mcp_host.protocol.backoff import listen_backoff
from mcp_host.protocol.eras import ACKNOWLEDGED, LISTEN, SUBSCRIPTION_ID
from mcp_host.protocol.jsonrpc import Failure, Notification, Params
from mcp_host.session.call import CallTimeouts, refined, server_error
from mcp_host.session.config import ClientConfig
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.pending import OnEvent

logger = logging.getLogger(__name__)

ACKNOWLEDGE_WAIT = 1.0  # seconds for the acknowledgment before the first call; calls go on without it

LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""By the server capability whose `listChanged` announces them."""


class Subscriptions:
    """What one connection listens to: lists, where the application has a callback, and the resources it names.

    One stream stands at a time. When something is added or removed, the next one is
    acknowledged before the last is left, and if it is not, the last goes on.
    """

    def __init__(
        self, dispatcher: Dispatcher, config: ClientConfig, notify: OnEvent, tasks: TaskGroup, name: str
    ) -> None:
        self._dispatcher = dispatcher
        self._config = config
        self._notify = notify
        self._tasks = tasks
        self._name = name
        self._turn = Lock()
        self._stream: _Stream | None = None

    async def begin(self) -> None:
        """Listen to what is wanted already. Waits a little for the server to agree, and not for it to have news."""
        self._stream = self._start(self._config.subscriptions, None)
        if self._stream is not None:
            with move_on_after(ACKNOWLEDGE_WAIT):
                await self._stream.settled.wait()

    async def add(self, uri: str, timeouts: CallTimeouts) -> None:
        """Hear of changes of the resource at *uri*.

        Raises:
            ServerError: The server refuses, or does not acknowledge this one.
            RequestTimeout: It does neither in time.
        """
        with timeouts.bound(LISTEN, idle=True):
            async with self._turn:
                await self._change({**self._config.subscriptions, uri: None})
                if uri not in self._config.subscriptions:
                    raise ServerError(None, f"{self._name} did not agree to tell of changes of {quoted(uri)}")

    async def remove(self, uri: str, timeouts: CallTimeouts) -> None:
        """Hear no more of the resource at *uri*, once this returns.

        Raises:
            ServerError, RequestTimeout: The server does not agree to tell of the others alone. Nothing has changed, then.
        """
        with timeouts.bound(LISTEN, idle=True):
            async with self._turn:
                left = {other: None for other in self._config.subscriptions if other != uri}
                if len(left) < len(self._config.subscriptions):
                    await self._change(left)

    async def _change(self, uris: Mapping[str, None]) -> None:
        """Listen to other resources. However this ends, one stream is left at most, and it is the one on record."""
        last = self._standing()
        stream = self._stream = self._start(uris, last)
        if stream is None:
            if last is not None:
                last.scope.cancel()
            self._record(uris)
            return
        try:
            await stream.settled.wait()
        finally:
            if stream.stands:
                self._record([uri for uri in uris if uri in stream.granted_uris | self._config.subscriptions.keys()])
            else:
                stream.scope.cancel()
                self._stream = last or self._start(self._config.subscriptions, None)
        if stream.error is not None:
            raise stream.error
        self._dispatcher.require()  # what ended in the very moment of the agreement has not begun

    def _record(self, uris: Iterable[str]) -> None:
        if self._dispatcher.alive:  # else the client was closed, which has forgotten everything
            wanted = dict.fromkeys(uris)
            self._config.subscriptions.clear()
            self._config.subscriptions.update(wanted)

    def _standing(self) -> _Stream | None:
        """The stream so far, if the server has agreed to it. Another need not be waited for any longer."""
        if self._stream is not None and not self._stream.stands:
            self._stream.scope.cancel()
            return None
        return self._stream

    def _start(self, uris: Mapping[str, None], last: _Stream | None) -> _Stream | None:
        wanted = self._filter(uris)
        if not wanted:
            return None
        stream = _Stream(self._dispatcher, self._config, self._notify, wanted, self._name)
        self._tasks.start_soon(stream.run, last)
        return stream

    def _filter(self, uris: Mapping[str, None]) -> dict[str, Any]:
        """What to ask for: no more than the server has announced, where it has announced anything."""
        wanted: dict[str, Any] = {}
        offered = self._dispatcher.require().capabilities
        if self._config.hears_changes:
            wanted = {name: True for kind, name in LISTS.items() if not offered or _says_changed(offered.get(kind))}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        return wanted


class _Stream:
    """One filter, listened to for as long as nobody cancels it, however often the stream breaks."""

    def __init__(
        self, dispatcher: Dispatcher, config: ClientConfig, notify: OnEvent, wanted: dict[str, Any], name: str
    ) -> None:
        self.scope = CancelScope()
        self.settled = Event()
        """Set when the server has agreed, or refused with *error*."""
        self.stands = False
        self.error: McpError | None = None
        self.granted_uris: frozenset[str] = frozenset()
        self._dispatcher = dispatcher
        self._config = config
        self._notify = notify
        self._wanted = wanted
        self._name = name
        self._last: _Stream | None = None

    async def run(self, last: _Stream | None) -> None:
        """Listen. *last* is cancelled when this stream stands."""
        self._last = last
        with self.scope:
            try:
                await self._listen_for_ever()
            except McpError as exc:
                self.error, self.stands = exc, False
                if self._dispatcher.alive:
                    self._config.warn(f"{self._name} tells of no changes: {exc}")
        self.settled.set()

    async def _listen_for_ever(self) -> None:
        backoff = listen_backoff()
        while True:
            opened = current_time()
            await self._listen()
            self._config.cache.drop()  # whatever has changed meanwhile, nobody will say so
            backoff.ended(current_time() - opened)
            if backoff.failures == backoff.max_failures:
                self._config.warn(f"{self._name}: the stream of changes keeps failing; they are not heard of")
            await sleep(backoff.delay(None))

    async def _listen(self) -> None:
        """One stream from its opening to its end; returns if another may be better.

        Raises:
            McpError: There is nothing to be had, or not over this link.
        """
        era = self._dispatcher.require().era
        params: Params = {"notifications": self._wanted}
        dressed, headers = era.prepare_params(params, None), era.headers(LISTEN, params)
        timeouts = CallTimeouts(timeout=math.inf, idle_timeout=math.inf)
        try:
            reply = await self._dispatcher.ask(LISTEN, dressed, headers, timeouts, on_event=self._take)
        except HttpStatusError as exc:
            self._config.heed_refusal(exc)
            if not exc.transient:
                raise refined(LISTEN, params, exc) from exc
        except McpError as exc:
            if not self._dispatcher.alive:
                raise
            logger.debug("%s: the stream of changes broke: %s", self._name, exc)
        else:
            if isinstance(reply, Failure):
                raise server_error(LISTEN, params, reply)

    def _take(self, notification: Notification) -> None:
        if self.scope.cancel_called:
            return  # another stream has taken its place
        if notification.method == ACKNOWLEDGED:
            self._agree(notification.params.get("notifications"))
        else:
            self._notify(_plain(notification))

    def _agree(self, granted: object) -> None:
        granted = granted if isinstance(granted, dict) else {}
        self.granted_uris = _texts(granted.get("resourceSubscriptions"))
        withheld = [name for name in LISTS.values() if name in self._wanted and granted.get(name) is not True]
        if withheld and not self.stands:
            self._config.warn(f"{self._name} does not agree to {', '.join(withheld)}: such changes go unheard")
        self.stands = True
        self.settled.set()
        if self._last is not None:
            self._last.scope.cancel()
            self._last = None


def _says_changed(capability: object) -> bool:
    return isinstance(capability, dict) and bool(capability.get("listChanged"))


def _texts(value: object) -> frozenset[str]:
    return frozenset(text for text in value if isinstance(text, str)) if isinstance(value, list) else frozenset()


def _plain(notification: Notification) -> Notification:
    """*notification* without the id of the subscription, in which two that say the same would differ."""
    said = notification.params.get("_meta")
    meta = {key: value for key, value in said.items() if key != SUBSCRIPTION_ID} if isinstance(said, dict) else {}
    params = {key: value for key, value in notification.params.items() if key != "_meta"}
    return Notification(notification.method, params | ({"_meta": meta} if meta else {}))
