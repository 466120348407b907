"""What a client keeps between connections."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from mcp_host.errors import (
    CallerError,
    HeaderMismatch,
    HttpStatusError,
    MissingRequiredClientCapability,
    ServerError,
    Unauthorized,
    UnsupportedProtocolVersion,
)
from mcp_host.handlers import in_middleware_of, worth_logging
from mcp_host.limits import Limits, check_seconds
from mcp_host.protocol.backoff import RETRY_DELAYS, Backoff, restart_backoff
from mcp_host.protocol.cache import Cache
from mcp_host.protocol.eras import DISCOVER, OPTIONAL
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.protocol.negotiation import AllowedVersions, EraCache, EraName, Offers
from mcp_host.session.session import ClientFeatures
from mcp_host.transports.base import Channel, Nameable, Transport
from mcp_host.types import Implementation

if TYPE_CHECKING:  # imported on demand
    from mcp_host.concurrency.tasks import HandlerTasks
    from mcp_host.middleware import MiddlewareStack
    from mcp_host.session.changes import Change
    from mcp_host.types import LoggingMessageNotificationParams

logger = logging.getLogger(__name__)

OnChange: TypeAlias = "Callable[[Change], Awaitable[None] | None]"
OnLog: TypeAlias = "Callable[[LoggingMessageNotificationParams], Awaitable[None] | None]"
OnNotification: TypeAlias = Callable[[Notification], Awaitable[None] | None]
AsyncOnChange: TypeAlias = "Callable[[Change], Awaitable[None]]"
AsyncOnComplete: TypeAlias = Callable[[str], Awaitable[None]]
AsyncOnLog: TypeAlias = "Callable[[LoggingMessageNotificationParams], Awaitable[None]]"
AsyncOnNotification: TypeAlias = Callable[[Notification], Awaitable[None]]

MAX_WARNINGS = 100  # kept and logged; after that, only warnings 1, 2, 4, 8 ... are logged
CHANGED_SERVER = (HttpStatusError, HeaderMismatch, MissingRequiredClientCapability, UnsupportedProtocolVersion)
DEFAULT_LOG_LEVEL = "info"  # with an `on_log` and no level: since 2026-07-28 servers log only on request


class ListWatcher(Protocol):
    """What hears of changes of lists, and of those that may have been missed. It outlives every connection, too."""

    capabilities: Collection[str]
    """The server capabilities whose lists are wanted."""

    def start(self, handlers: HandlerTasks) -> None:
        """A connection is ready. Its *handlers* may run tasks."""
        ...

    def notify(self, notification: Notification) -> None:
        """Take a notification of the server."""
        ...

    def connected(self, capabilities: Collection[str]) -> None:
        """A session begins with a server of these *capabilities*: what an earlier one has listed may be outdated."""
        ...

    def missed(self, capabilities: Collection[str]) -> None:
        """Changes may have been missed."""
        ...


@dataclass(kw_only=True, eq=False)
class ClientState:
    """What the application configured and has asked for, and what the client has learned. It outlives every connection."""

    transport: Transport
    name: str
    """The name of the server: the host's, or else that of the transport."""
    key: str
    """What facts about the server are kept under: the host's name, or else the identity of the transport."""
    client_info: Implementation
    features: ClientFeatures
    limits: Limits
    allowed_versions: AllowedVersions
    era_cache: EraCache
    cache: Cache
    middleware: MiddlewareStack | None = None
    lazy: bool = False
    """Whether requests open the connection, at first and when the server has ended."""
    retry_delays: Sequence[float] = RETRY_DELAYS
    """Seconds before each resend of one message over HTTP."""
    restart_backoff: Callable[[], Backoff] = restart_backoff
    ping_interval: float | None = None
    """After so many seconds of silence the server is pinged, in revisions with ping."""
    on_log: AsyncOnLog | None = None
    on_change: AsyncOnChange | None = None
    on_notification: AsyncOnNotification | None = None
    watches_tools: bool = False
    """Whether calls depend on a listing of the tools that is not out of date."""
    list_watcher: ListWatcher | None = None
    on_elicitation_complete: AsyncOnComplete | None = None
    subscriptions: dict[str, None] = field(default_factory=dict)
    """URIs of resources; an ordered set."""
    log_level: str | None = None
    around_ours: MiddlewareStack | None = field(init=False)
    """The middleware, if any of it is for requests of the client."""
    default_log_level: str | None = field(init=False)
    """What each request names instead, in revisions where it has to."""
    warnings: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    offers: Sequence[Offers] = field(init=False)
    """The capabilities to advertise, and the smaller offers for strict servers."""

    def __post_init__(self) -> None:
        if self.ping_interval is not None:
            check_seconds("ping_interval", self.ping_interval, zero=False)
        self.around_ours = None if self.middleware is None else self.middleware.around_ours
        handshake = self.allowed_versions.legacy
        self.default_log_level = None if self.on_log is None else DEFAULT_LOG_LEVEL
        self.offers = self.features.offers((handshake or self.allowed_versions.modern)[0])

    @property
    def listens(self) -> bool:
        """Whether the application listens to the server: then a connection that has ended is replaced without a call."""
        callbacks = (self.on_change, self.on_notification, self.list_watcher)
        return bool(self.subscriptions) or any(callback is not None for callback in callbacks)

    def check_not_awaited(self) -> None:
        """Check that the caller, which is about to wait until the client has connected, is not what that waits for.

        Raises:
            CallerError: It runs in the middleware of a request that the client makes by itself.
        """
        if in_middleware_of(self):
            raise CallerError(
                "the client is connecting: middleware of a request without a call_id cannot wait for that"
            )

    def wants_list(self, kind: str) -> bool:
        """Whether changes of the list of "tools", "prompts" or "resources" matter."""
        watched = self.list_watcher is not None and kind in self.list_watcher.capabilities
        return watched or self.on_change is not None or (kind == "tools" and self.watches_tools)

    def accepted(self, offers: Offers) -> None:
        """The server has accepted *offers*: later connections offer no more."""
        if offers == self.offers[0]:
            return
        rejected = " and ".join(feature for feature in OPTIONAL if feature in self.offers[0] - offers)
        self.offers = self.offers[self.offers.index(offers) :]
        self.warn(f"{self.name} connected only without {rejected}: the client no longer advertises it")

    def open_transport(self) -> AbstractAsyncContextManager[Channel]:
        """Open the transport. If the host has named the server, its errors and log lines say so, where it can be told."""
        transport = self.transport
        if self.name != transport.name and isinstance(transport, Nameable):
            transport = transport.named(self.name)
        return transport.open(self.limits)

    def remember_era(self, era: EraName) -> None:
        """Remember the server's era, where the client was free to choose."""
        if self.allowed_versions.both_eras:
            self.era_cache.set(self.key, era)

    def known_era(self) -> EraName | None:
        """The era, from when the server had this name, or none yet."""
        return self.era_cache.get(self.key) or self.era_cache.get(self.transport.identity)

    def forget_era(self) -> None:
        self.era_cache.forget(self.key)
        self.era_cache.forget(self.transport.identity)

    def invalidate(self, error: ServerError) -> None:
        """Drop cached results that may not hold after *error*: the server or our permissions may have changed."""
        if isinstance(error, Unauthorized):
            self.cache.drop()
        elif isinstance(error, CHANGED_SERVER):
            self.cache.drop(DISCOVER)

    def warn(self, text: str) -> None:
        """Tell the application of something that went wrong without failing a call."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)
            logger.warning("%s", text)
            return
        self.counters["further warnings"] += 1
        if worth_logging(count := self.counters["further warnings"]):
            logger.warning("%s (warning %d)", text, MAX_WARNINGS + count)

    def warn_about_server(self, text: str) -> None:
        """Like `warn`, with the name of the server before *text*."""
        self.warn(f"{self.name}: {text}")
