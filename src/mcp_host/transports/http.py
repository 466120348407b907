"""Streamable HTTP: one POST per message, answered by JSON or by an event stream.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http (with sessions)

httpx is imported with the first `StreamableHttp`, not with this module.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mcp_host.limits import Limits, check_count
from mcp_host.protocol.headers import check_headers

if TYPE_CHECKING:
    import httpx

    from mcp_host.transports._http.channel import HttpChannel


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StreamableHttp:
    """Connect to the server at *url* over Streamable HTTP.

    *headers* are sent with every request, and never to another origin. A *client* is
    used with its proxies, certificates, authentication and its connect, write and pool
    timeouts. Its read timeout and redirects are not used, and it is never closed.
    Without a client, proxies and certificates come from the environment.

    At most *max_connections* calls are in flight at a time; None means no bound. Further calls
    wait in order, and can be cancelled or time out meanwhile. Nothing else is counted:
    neither open streams, replies and cancellations, nor calls made by a handler or callback.
    The `httpx.Limits` of a *client* apply too, so it needs more connections than that
    (httpx's default is 100 as well; a request that gets none within the pool timeout fails).

    Raises:
        ValueError: The URL is not http(s), a header cannot be sent or is written by the
            transport itself, or *max_connections* is below 1.
        TypeError: *max_connections* is not an integer.
    """

    url: str
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    client: httpx.AsyncClient | None = field(default=None, kw_only=True)
    max_connections: int | None = field(default=100, kw_only=True)
    _parsed: httpx.URL = field(init=False)
    _name: str = field(init=False)

    def __post_init__(self) -> None:
        from mcp_host.transports._http.url import display_url, parse_url

        if self.max_connections is not None:
            check_count("max_connections", self.max_connections)
        object.__setattr__(self, "_parsed", parse_url(self.url))
        object.__setattr__(self, "_name", display_url(self._parsed))
        object.__setattr__(self, "headers", check_headers(self.headers or {}))

    @property
    def name(self) -> str:
        """The URL without user, password, query and fragment."""
        return self._name

    @property
    def identity(self) -> str:
        """The same as *name*: one host often serves many servers, by path."""
        return self.name

    @property
    def restart(self) -> bool:
        """A server over HTTP was not started by us."""
        return False

    def __repr__(self) -> str:
        return f"StreamableHttp({self.name!r})"

    @asynccontextmanager
    async def open(self, limits: Limits) -> AsyncIterator[HttpChannel]:
        """Open a channel. Nothing is sent until the first request is."""
        from mcp_host.transports._http.channel import open_channel

        headers, bound = self.headers or {}, self.max_connections
        async with open_channel(self._parsed, self._name, headers, self.client, bound, limits) as channel:
            yield channel
