"""What the application registered with a client, and what it has asked for since."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_host.errors import HttpStatusError, Unauthorized
from mcp_host.limits import Limits
from mcp_host.protocol.eras import DISCOVER, Era, Legacy, Modern
from mcp_host.protocol.negotiation import AllowedVersions
from mcp_host.session.attempts import EraCache, EraName, Offers
from mcp_host.session.cache import Cache
from mcp_host.session.features import ClientFeatures, SessionFeatures
from mcp_host.types import Implementation, ServerCapabilities


@dataclass(frozen=True, slots=True)
class Session:
    """What holds until the next handshake, which settles another one with the next *epoch*.

    A stateless server knows of no session. What it said of itself once holds as long as the connection.
    """

    epoch: int
    era: Era
    server_info: Implementation
    server_capabilities: ServerCapabilities
    capabilities: Mapping[str, Any]
    """The server's, as it wrote them: a capability we have no name for counts, too."""
    instructions: str | None
    inputs: SessionFeatures


logger = logging.getLogger(__name__)

MAX_WARNINGS = 100  # kept for the application, and logged; after them, only each power of two is
DEFAULT_LOG_LEVEL = "info"  # for who listens and has named none: since 2026-07-28 a server is silent unless it is asked


@dataclass(kw_only=True)
class ClientConfig:
    """Outlives every connection, so that no reconnect can miss any of it."""

    client_info: Implementation
    inputs: ClientFeatures
    limits: Limits
    allowed_versions: AllowedVersions
    server: str
    """How this server is known to *era_cache*."""
    era_cache: EraCache
    cache: Cache
    hears_logs: bool
    hears_changes: bool
    subscriptions: dict[str, None] = field(default_factory=dict)
    """URIs of resources; a set that keeps its order."""
    log_level: str | None = None
    warnings: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    offers: Sequence[Offers] = ()
    """What to advertise to the server, and then what instead if it is too strict for that."""

    def __post_init__(self) -> None:
        self.offers = self.inputs.offers(
            Legacy(self.allowed_versions.legacy[0]) if self.allowed_versions.legacy else Modern
        )

    @property
    def wanted_log_level(self) -> str | None:
        """What each request asks for, in an era in which each has to."""
        return self.log_level or (DEFAULT_LOG_LEVEL if self.hears_logs else None)

    def settle(self, offers: Offers, name: str) -> None:
        """The server called *name* can bear to be told of *offers*, and perhaps of nothing more."""
        if offers == self.offers[0]:
            return
        refused = self.offers[0].without(offers)
        self.offers = self.offers[self.offers.index(offers) :]
        self.warn(
            f"{name} failed the handshake that advertised {refused}, and passed it without: so it gets no {refused}"
        )

    def remember(self, era: EraName) -> None:
        """The server has turned out to be of that era, where the client was free to find that out."""
        if self.allowed_versions.both_eras:
            self.era_cache.note(self.server, era)

    def forget(self) -> None:
        """What was believed of the server's era may be wrong."""
        self.era_cache.forget(self.server)

    def heed_refusal(self, refusal: HttpStatusError) -> None:
        """The server has refused by HTTP status: what it said before may not hold, or not for whoever this is now."""
        if isinstance(refusal, Unauthorized):
            self.cache.drop()
        else:
            self.cache.drop(DISCOVER)  # it may have become another one

    def clear_subscriptions(self) -> None:
        """The application has closed the client: what it had asked of the server is over."""
        self.subscriptions.clear()
        self.log_level = None

    def warn(self, text: str) -> None:
        """Something the application should know, though nothing failed."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)
            logger.warning("%s", text)
            return
        self.counters["further warnings"] += 1
        if (count := self.counters["further warnings"]) & (count - 1) == 0:  # a server must not fill a disk
            logger.warning("%s (warning %d)", text, MAX_WARNINGS + count)
