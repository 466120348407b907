"""Streamable HTTP: one POST per message, answered by JSON or by an event stream.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http (with sessions)

httpx is imported with the first `StreamableHttp`, not with this module.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mcp_host.limits import Limits, check_count
from mcp_host.protocol.headers import check_headers
from mcp_host.secret import Secret

if TYPE_CHECKING:
    import httpx
    import httpx2

    from mcp_host.transports._http.authorization import Auth
    from mcp_host.transports._http.channel import HttpChannel
    from mcp_host.transports._http.pool import SharedPoolState
    from mcp_host.transports._http.session import Timing
    from mcp_host.transports._http.tls import Cert, FilePath, Verify


logger = logging.getLogger(__name__)

HTTPS_ONLY = "{} is for https:// only: over http:// there are no certificates"
OWN_CLIENT = "client= brings its own {}: write StreamableHttp(url, client=httpx.AsyncClient({}))"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StreamableHttp:
    """Connect to the server at *url* over Streamable HTTP.

    *headers* are sent with every request, and never to another origin.

    *verify* says which certificates to trust over https. True (the default): those of public authorities, or
    of the authorities in `SSL_CERT_FILE` or `SSL_CERT_DIR`, if the environment has one of these. The path of a PEM
    file or directory: those of the authorities in it. False: any certificate, with a warning in the log.
    An `ssl.SSLContext` is used as it is. *cert* is the client's own certificate: the path of a PEM file that
    has its key too, ``(certificate, key)`` or ``(certificate, key, password)``. Files are read when you connect.

    *auth* is an `httpx.Auth`, or one of httpx2. It is for one user, and so is this object.

    *uds* is the path of a unix socket to connect to, in place of the host in the URL.

    A *client* of httpx or httpx2 is used with its proxies, certificates, authentication and its connect, write and pool
    timeouts. Its read timeout and redirects are not used, and it is never closed.
    Without a client, proxies come from the environment, but not for a unix socket.

    At most *max_connections* calls are in flight at a time; None means no bound. Further calls
    wait in order, and can be cancelled or time out meanwhile. Nothing else is counted:
    neither open streams, replies and cancellations, nor calls made by a handler or callback.
    The `httpx.Limits` of a *client* apply too, so it needs more connections than that
    (httpx's default is 100 as well; a request that gets none within the pool timeout fails).

    Raises:
        ValueError: The URL is not http(s), a header cannot be sent or is written by the
            transport itself, *max_connections* is below 1, or arguments contradict each other.
        TypeError: An argument has another type.
    """

    url: str
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    client: httpx.AsyncClient | httpx2.AsyncClient | None = field(default=None, kw_only=True)
    max_connections: int | None = field(default=100, kw_only=True)
    verify: Verify = field(default=True, kw_only=True)
    cert: Cert | None = field(default=None, kw_only=True)
    uds: FilePath | None = field(default=None, kw_only=True)
    auth: Auth | None = field(default=None, kw_only=True)
    _parsed: httpx.URL = field(init=False)
    _name: str = field(init=False)
    _cert: tuple[str, str | None, str | None] | None = field(init=False, default=None)
    _host_name: str | None = field(init=False, default=None)
    _shared: SharedPoolState | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        from mcp_host.transports._http.url import display_url, parse_url

        if self.max_connections is not None:
            check_count("max_connections", self.max_connections)
        object.__setattr__(self, "_parsed", parse_url(self.url))
        object.__setattr__(self, "_name", display_url(self._parsed))
        object.__setattr__(self, "headers", check_headers(self.headers or {}))
        if self.client is not None:
            from mcp_host.transports._http.backend import HttpLibrary

            HttpLibrary.of(self.client)
        if self.verify is not True or self.cert is not None:
            self._check_certificates()
        if self.uds is not None:
            self._check_socket(self.uds)
        if self.auth is not None:
            from mcp_host.transports._http.authorization import library_of

            library_of(self.auth)

    def _check_certificates(self) -> None:
        from mcp_host.transports._http.tls import check_cert, check_verify

        check_verify(self.verify)
        if self._parsed.scheme != "https" and not isinstance(self.verify, bool):
            raise ValueError(HTTPS_ONLY.format("verify"))
        if self.cert is not None:
            object.__setattr__(self, "_cert", check_cert(self.cert))
            if self._parsed.scheme != "https":
                raise ValueError(HTTPS_ONLY.format("cert"))
            if not isinstance(self.verify, bool | str | os.PathLike):
                raise ValueError("verify has an ssl.SSLContext: load the certificate into it, with its load_cert_chain")
        if self.client is not None:
            raise ValueError(OWN_CLIENT.format("certificates", "verify=..., cert=..."))

    def _check_socket(self, uds: FilePath) -> None:
        from mcp_host.transports._http.tls import check_path

        object.__setattr__(self, "uds", check_path("uds", uds, "uds is the path of a unix socket"))
        if self.client is not None:
            raise ValueError(OWN_CLIENT.format("sockets", "transport=httpx.AsyncHTTPTransport(uds=...)"))
        if not hasattr(socket, "AF_UNIX"):
            raise ValueError("uds: there are no unix sockets here")

    @property
    def name(self) -> str:
        """The URL without user, password, query and fragment."""
        return self._name

    @property
    def identity(self) -> str:
        """The URL as in *name*, because one host often serves many servers by path; and the unix socket, if any."""
        return self.name if self.uds is None else f"{self.name} at {self.uds}"

    @property
    def restart(self) -> bool:
        """A server over HTTP was not started by us."""
        return False

    def named(self, name: str) -> StreamableHttp:
        """The same server, under the name that the host gave it. Errors and log lines have the URL, too."""
        transport = copy(self)
        object.__setattr__(transport, "_host_name", name)
        return transport

    def _sharing(self) -> StreamableHttp:
        """The same server, for clients that share their idle connections to it and the headers that were found valid. Everything else is each client's own."""
        from mcp_host.transports._http.pool import SharedPoolState

        transport = copy(self)
        object.__setattr__(transport, "_shared", SharedPoolState())
        return transport

    def __repr__(self) -> str:
        return f"StreamableHttp({self.name!r}{'' if self.uds is None else f', uds={self.uds!r}'})"

    def open(self, limits: Limits) -> AbstractAsyncContextManager[HttpChannel]:
        """Open a channel. Nothing is sent until the first request is."""
        return self._open(limits)

    @asynccontextmanager
    async def _open(self, limits: Limits, timing: Timing | None = None) -> AsyncIterator[HttpChannel]:
        from mcp_host.transports._http.backend import HttpxBackend, own_backend
        from mcp_host.transports._http.channel import open_channel
        from mcp_host.transports._http.session import Timing
        from mcp_host.transports._http.url import ALWAYS

        url, client = self._parsed, self.client
        name = self._name if self._host_name is None else f"{self._host_name} ({self._name})"
        headers = {each: Secret(value) for each, value in (self.headers or {}).items()} | ALWAYS
        if self.verify is False and url.scheme == "https":
            logger.warning("%s: verify=False: any server is trusted that answers at this address", name)
        if client is None:
            uds = None if self.uds is None else os.fspath(self.uds)
            backend = own_backend(
                url,
                headers,
                name,
                limits,
                verify=self.verify,
                cert=self._cert,
                uds=uds,
                auth=self.auth,
                state=None if self._shared is None else self._shared.here(),
            )
        else:
            backend = HttpxBackend(url, headers, name, client, self.auth)
        opened = open_channel(backend, self.max_connections, limits, owned=client is None, timing=timing or Timing())
        async with backend.owner, opened as channel:
            yield channel
