"""The real server as one host sees it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Hashable, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self, TypeAlias
from weakref import WeakValueDictionary

from anyio import CancelScope, sleep

from mcp_host.concurrency.asking import unattended
from mcp_host.concurrency.synchronization import Event, Lock
from mcp_host.concurrency.tasks import spawn
from mcp_host.errors import CallerError, McpError
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.eras import REQUIRED_CAPABILITY
from mcp_host.protocol.jsonrpc import Notification, Params, encode
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.proxy.answers import HostCall
from mcp_host.proxy.settings import Settings
from mcp_host.proxy.translation import (
    OF_A_CONNECTION,
    answers_of,
    check_method,
    error_downstream,
    extensions_upstream,
)
from mcp_host.proxy.upstream import Upstream
from mcp_host.serving.errors import RequestError
from mcp_host.serving.remote_client import ReceivedRequest, RemoteClient
from mcp_host.serving.service import Ask, Handler, Peer, Prepare, Service
from mcp_host.serving.subscriptions import LISTED
from mcp_host.transports.http import StreamableHttp
from mcp_host.types import Implementation, JSONObject
from mcp_host.version import __version__

logger = logging.getLogger(__name__)

MAX_SUSPENDED = 1024  # calls of one host that wait for its input (2026-07-28)
MAX_NOTIFICATIONS = 1000  # of one host that its server has not taken; beyond that, they are dropped
ROUND_PAUSE = 0.02  # seconds: what a server with a handshake asks at once arrives within it

MAX_EXTENDED = 8  # connections that declare extensions, of one host whose requests each name its own (2026-07-28); others then declare none

Key: TypeAlias = tuple[bool, tuple[bool, ...], bytes]
"""The era of a host, which requests it answers, and its extensions: all that the connection to the server depends on."""


@dataclass(slots=True, eq=False)
class Attempt:
    """The attempts to connect to a server, after each other."""

    scope: CancelScope = field(default_factory=CancelScope)
    tried: Event = field(default_factory=Event)
    error: RequestError | None = None
    """Why the last one has failed."""


@dataclass(slots=True, kw_only=True, eq=False)
class Relay(Service):
    """Passes the requests of one host on to the server. It connects when the host says what it can do.

    Since 2026-07-28 each request of the host says that: there is one `Upstream` for each `Key`.
    """

    settings: Settings
    peer: Peer | None = None
    declared: Params = field(default_factory=dict)
    """The capabilities of the server, once there is a connection to it."""
    described: Params | None = None
    """What else the server has said of itself, then."""
    upstreams: dict[Key, Upstream] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    """Of connecting and closing."""
    attempts: dict[Key, Attempt] = field(default_factory=dict)
    """Of one of several servers, which the others do not wait for."""
    notifications: list[Notification] = field(default_factory=list)
    """Those of the host that are not passed on yet."""
    backoff: Backoff = field(default_factory=partial(Backoff, max_failures=0, max_delay=60.0, min_delay=0.5))
    begun: set[Relay] = field(default_factory=set)
    """Those of the hosts, if this one is what they are made from."""
    by_principal: WeakValueDictionary[Hashable, Settings] | None = None
    """Their settings."""
    ended: Callable[[Relay], object] = lambda relay: None
    """Called once the host's session has ended and the connections are closed."""

    relays = True
    pause = ROUND_PAUSE

    @classmethod
    def of(cls, settings: Settings, peer: Peer | None = None) -> Self:
        """A relay to the server of *settings*."""
        return cls(
            info=Implementation(name=settings.shown_name, version=__version__),
            instructions=None,
            versions=VERSIONS,
            ttl=0.0,
            resume_timeout=settings.limits.input_timeout,
            max_suspended=MAX_SUSPENDED,
            state_key=settings.state_key,
            settings=settings,
            peer=peer,
        )

    def begin(self, peer: Peer | None, principal: Hashable = None) -> Relay:
        relay = Relay.of(self._settings_of(principal), peer)
        relay.ended = self.begun.discard
        self.begun.add(relay)
        return relay

    def _settings_of(self, principal: Hashable) -> Settings:
        """Those of the sessions of *principal*, which share their idle connections over HTTP with no other's."""
        server = self.settings.server
        if not isinstance(server, StreamableHttp):
            return self.settings
        if self.by_principal is None:
            self.by_principal = WeakValueDictionary()
        if (settings := self.by_principal.get(principal)) is None:
            settings = self.by_principal[principal] = replace(self.settings, server=server._sharing())
        return settings

    def end(self) -> None:
        spawn(self._end)

    async def _end(self) -> None:
        await self.aclose()
        self.ended(self)

    async def aclose(self) -> None:
        for relay in [*self.begun]:
            await relay.aclose()
        for attempt in self.attempts.values():
            attempt.scope.cancel()
        async with self.lock:  # `end` may be closing them
            while self.upstreams:
                _, upstream = self.upstreams.popitem()
                await upstream.client.aclose()

    def prepare(self, client: RemoteClient) -> Prepare:
        return partial(self._prepare, client)

    async def _prepare(self, client: RemoteClient) -> None:
        await self._upstream(client)

    def capabilities(self) -> Params:
        return self.declared

    def others(self) -> Params:
        return self.described or {}

    def check(self, method: str) -> None:
        """The server itself refuses what it does not have."""

    def find(self, method: str, params: Params, client: RemoteClient) -> Handler:
        check_method(method, client)
        return partial(self._request, method, params)

    async def _request(self, method: str, params: Params, call: ReceivedRequest, ask: Ask) -> Params:
        upstream = await self._upstream(call.client)
        if call.continuing is not None:
            params = params | call.continuing
        return await upstream.request(method, params, HostCall(call, ask))

    def input_schema(self, tool: str) -> JSONObject | None:
        schemas = (upstream.mirrored.schemas.get(tool) for upstream in self.upstreams.values())
        return next(filter(None, schemas), None)

    @asynccontextmanager
    async def listening(self, uris: Sequence[str], client: RemoteClient) -> AsyncIterator[Set[str]]:
        upstream = await self._upstream(client)
        async with upstream.subscriptions.listening(uris) as agreed:
            yield agreed

    def notified(self, notification: Notification) -> None:
        checked = () if self.settings.tools is None else REQUIRED_CAPABILITY
        if notification.method in OF_A_CONNECTION or notification.method in checked:
            return  # a request without an id: no policy has seen it, and some servers would run it
        if len(self.notifications) < MAX_NOTIFICATIONS:
            self.notifications.append(notification)
            if len(self.notifications) == 1:
                spawn(self._notify)

    async def _notify(self) -> None:
        """Pass on the notifications, each after the one before."""
        while self.notifications:
            method, params = self.notifications[0].method, self.notifications[0].params
            for upstream in [*self.upstreams.values()]:
                with suppress(McpError):  # the revision of the server has none of that name, or the server has ended
                    await upstream.client.relay_notification(method, params)
            del self.notifications[0]

    # As one of several servers

    def connected(self, client: RemoteClient) -> bool:
        """Whether there is a connection for a host with these capabilities, which may have been lost."""
        return self._key(client) in self.upstreams

    def start(self, client: RemoteClient) -> Attempt:
        """Begin to open one, unless that has begun: in a task without an owner, again and again after growing pauses."""
        key = self._key(client)
        if key not in self.attempts:
            self.attempts[key] = Attempt()
            spawn(partial(self._keep_trying, client, key))
        return self.attempts[key]

    async def reach(self, client: RemoteClient) -> None:
        """Wait until there is one. The attempts go on if this fails, or if the caller is cancelled.

        Raises:
            RequestError: The last one has failed.
        """
        attempt = self.start(client)
        await attempt.tried.wait()
        if attempt.error is not None:
            raise attempt.error

    async def _keep_trying(self, client: RemoteClient, key: Key) -> None:
        attempt = self.attempts[key]
        with attempt.scope, unattended():  # no browser opens by itself
            while not self.connected(client):
                try:
                    await self._upstream(client)
                except RequestError as exc:
                    attempt.error = exc
                    attempt.tried.set()
                    self.backoff.fail()
                    await sleep(self.backoff.delay(0.0))
            attempt.error = None
            self.backoff.reset()
            for kind in LISTED & self.declared.keys():  # the host may have them without those of this server
                await self.announce(f"notifications/{kind}/list_changed", {})
        attempt.tried.set()
        del self.attempts[key]

    async def _upstream(self, client: RemoteClient) -> Upstream:
        """The connection to the server for a host with these capabilities, opened if there is none.

        Raises:
            RequestError: The server cannot be reached.
        """
        key = self._key(client)
        if key not in self.upstreams:
            async with self.lock:  # only for this: meanwhile, other hosts use other connections
                key = self._key(client)  # there may be `MAX_EXTENDED` now
                if key not in self.upstreams:
                    await self._connect(key, client)
        return self.upstreams[key]

    async def _connect(self, key: Key, client: RemoteClient) -> None:
        extensions = extensions_upstream(client.capabilities) if key[2] else {}
        upstream = Upstream(self.settings, client, self.peer, self.announce, extensions)
        try:
            await upstream.client.connect()
        except McpError as exc:
            level = logging.DEBUG if self.backoff.failures else logging.WARNING  # it has been said
            logger.log(level, "%s: %s", self.settings.shown_name, exc)
            raise error_downstream(exc, stateless=client.stateless) from exc
        self.upstreams[key] = upstream
        self.info = upstream.server_info()
        self.instructions = upstream.client.instructions
        self.declared = upstream.capabilities()
        self.described = upstream.others()

    def _key(self, client: RemoteClient) -> Key:
        plain: Key = (client.stateless, answers_of(client.capabilities), b"")
        if not (extensions := extensions_upstream(client.capabilities)):
            return plain
        try:
            written = encode(Notification("", {"_meta": {"": {"extensions": extensions}}}))
        except CallerError:  # they nest too deeply to be declared, or have an infinite number
            return plain
        extended: Key = (*plain[:2], written)
        known = self.upstreams.keys() | self.attempts.keys()
        has_room = sum(bool(declared) for *_, declared in known) < MAX_EXTENDED
        return extended if has_room or extended in known else plain
