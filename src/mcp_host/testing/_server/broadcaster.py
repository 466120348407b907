"""Whom a server tells of what has changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from mcp_host.protocol.jsonrpc import Params
from mcp_host.testing._server.catalog import Catalog


class Broadcaster(Protocol):
    """One conversation, or all requests that stand for themselves at one endpoint."""

    async def announce(self, method: str, params: Params) -> None:
        """Send a notification to whoever of them wants to hear it."""

    async def end_subscriptions(self) -> None:
        """End every `subscriptions/listen` with its result."""


AudienceT = TypeVar("AudienceT", bound=Broadcaster)


class Serve(Protocol):
    """Has a server speak to the audience that is made for its catalog, until this is left."""

    def __call__(self, audience_for: Callable[[Catalog], AudienceT], /) -> AbstractContextManager[AudienceT]: ...
