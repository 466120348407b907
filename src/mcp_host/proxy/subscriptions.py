"""The subscriptions of a proxy at the server, for hosts that listen to changes of resources (2026-07-28)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from functools import partial

from anyio import current_time

from mcp_host.client.client import Client
from mcp_host.concurrency.synchronization import Lock
from mcp_host.concurrency.tasks import spawn
from mcp_host.errors import McpError, excerpt

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT = 30.0  # seconds for the server's answers: the host waits for them, and so do other subscriptions


class Subscriptions:
    """Those of one connection: each lasts as long as a listener needs it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listeners_of: Counter[str] = Counter()
        self._lock = Lock()  # of subscribing and unsubscribing: the server has to get them in order

    @asynccontextmanager
    async def listening(self, uris: Sequence[str]) -> AsyncIterator[Set[str]]:
        """While a host listens; the value is those of *uris* to which the server has agreed."""
        agreed = set[str]()
        try:
            async with self._lock:
                deadline = current_time() + ANSWER_TIMEOUT
                for uri in dict.fromkeys(uris):
                    if await self._add(uri, deadline):
                        agreed.add(uri)
            yield agreed
        finally:
            for uri in agreed:
                spawn(partial(self._remove, uri))  # the host may have cancelled this task

    async def _add(self, uri: str, deadline: float) -> bool:
        if uri not in self._listeners_of:
            try:
                await self._client.subscribe_resource(uri, timeout=max(deadline - current_time(), 0.0))
            except McpError as exc:
                logger.warning("%s: changes of %s are not announced: %s", self._client.name, excerpt(uri), exc)
                return False
        self._listeners_of[uri] += 1
        return True

    async def _remove(self, uri: str) -> None:
        async with self._lock:
            self._listeners_of[uri] -= 1
            if not self._listeners_of[uri]:
                del self._listeners_of[uri]
                with suppress(McpError):
                    await self._client.unsubscribe_resource(uri, timeout=ANSWER_TIMEOUT)
