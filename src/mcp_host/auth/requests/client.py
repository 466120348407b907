"""The HTTP client of OAuth's own requests: metadata, registration, tokens.

Their URLs come from the network, so where they lead is checked, and what comes back is bounded.
"""

from __future__ import annotations

import json
import socket
import time
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from math import inf
from typing import TypeAlias
from urllib.parse import urlencode

import httpx
from anyio import connect_tcp, getaddrinfo, move_on_after
from anyio.abc import SocketStream
from pydantic_core import from_json

from mcp_host.auth.errors import AddressRefused, AuthError, DiscoveryFailed, RegistrationFailed, TokenRequestFailed
from mcp_host.auth.requests.addresses import Kind, kinds_allowed_by, kinds_of_address, kinds_of_host
from mcp_host.auth.requests.error_codes import plain_code
from mcp_host.errors import ConnectionClosed, ProtocolError, excerpt
from mcp_host.limits import Limits, MiB, check_seconds
from mcp_host.secret import SecretBytes, SecretValues
from mcp_host.transports._http.backend import (
    REDIRECTS,
    RELEASE_TIME,
    AnyClient,
    HttpBackend,
    HttpLibrary,
    HttpxBackend,
    PoolBackend,
    display_proxy,
    environment_proxy,
    unusable_proxy,
)
from mcp_host.transports._http.response import JSON, HttpResponse, once
from mcp_host.transports._http.tls import explain, make_context
from mcp_host.transports._http.url import display_url, parse_url
from mcp_host.types import JSONObject

MAX_BODY = MiB  # bytes; metadata and tokens have a few thousand
MAX_REDIRECTS = 3  # from a host to its www, and from a path to the one with a slash
ATTEMPT_TIME = 5.0  # seconds for connecting to one of several addresses

BUSY = frozenset({408, 425, 429, *range(500, 600)})

FORM = "application/x-www-form-urlencoded"
ALWAYS = {"Accept": JSON, "Accept-Encoding": "identity"}
UNBOUNDED = Limits(connect_timeout=inf, stall_timeout=inf)  # `AuthClient` bounds an exchange as a whole
VERIFY, CERT = "OAuth(client=httpx.AsyncClient(verify=...))", "OAuth(client=httpx.AsyncClient(cert=...))"
OTHER_RULES = "OAuth(client=httpx.AsyncClient()) leaves addresses to that client"

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host, best first; it is also told the port."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, with any status. *json* is None if the body is no JSON object of at most `MAX_BODY`.

    *headers* are not case-sensitive. *problem* is for messages: "HTTP 404", or "HTTP 200 without a JSON object (text/html)".
    """

    status: int
    problem: str
    json: JSONObject | None = field(repr=False)  # there may be a token in it
    headers: Mapping[str, str] = field(repr=False)
    time: float = field(repr=False)
    """When the request was sent, in seconds since 1970: a lifetime in it began later."""

    @property
    def is_busy(self) -> bool:
        """Whether the status is of a server that may answer otherwise later."""
        return self.status in BUSY

    @property
    def code(self) -> str | None:
        """The `plain_code` in *json*."""
        return None if self.json is None else plain_code(self.json.get("error"))

    @property
    def outcome(self) -> str:
        """*problem* with the code, if there is one: "HTTP 400 (invalid_grant)"."""
        return f"{self.problem} ({self.code})" if self.code else self.problem


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of *host* by the system's resolver. Raises OSError."""
    return [address[0] for *_, address in await getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class AuthClient:
    """Sends OAuth's own requests for the MCP server at *server_url*. It needs no closing.

    URLs are https. They may be http on this machine, if the MCP server is on it, too. An address must not be more private
    than that in *server_url*: see `addresses`. That is checked with the address that is then connected to. Redirects are
    followed for metadata only, each with the same checks, and never from https to http.
    Proxies come from the environment.

    A *client* of httpx or httpx2 decides itself how to connect and to which addresses; everything else is checked all
    the same. Its authentication and its Authorization header are not sent, and it is never closed.

    *timeout* is for one exchange as a whole, in seconds.

    Raises:
        ValueError, TypeError: An argument cannot be used.
    """

    def __init__(
        self,
        server_url: str,
        *,
        client: AnyClient | None = None,
        timeout: float = 30.0,
        resolve: Resolve = resolve,
        clock: Callable[[], float] = time.time,
    ) -> None:
        server = parse_url(server_url)
        if client is not None:
            HttpLibrary.of(client)
        self._client = client
        self._timeout = check_seconds("timeout", timeout)
        self._resolve = resolve
        self._clock = clock
        self._server = excerpt(display_url(server))
        self._allowed = kinds_allowed_by(server.host)

    async def get_json(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """GET metadata.

        Raises:
            AddressRefused: *url*, or one that it redirects to, must not be used.
            DiscoveryFailed: No response, or none within the time.
        """
        return await self._exchange(DiscoveryFailed, "GET", url, headers or {})

    async def post_form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Answer:
        """POST *fields* to a token endpoint. Redirects are answers like any other.

        Raises:
            AddressRefused: *url* must not be used.
            TokenRequestFailed: No response, or none within the time.
        """
        headers = {"Content-Type": FORM, **(headers or {})}
        return await self._exchange(TokenRequestFailed, "POST", url, headers, SecretBytes(urlencode(fields).encode()))

    async def post_json(self, url: str, body: JSONObject) -> Answer:
        """POST *body* to a registration endpoint. Redirects are answers like any other.

        Raises:
            AddressRefused: *url* must not be used.
            RegistrationFailed: No response, or none within the time.
        """
        headers, content = {"Content-Type": JSON}, json.dumps(body).encode()
        return await self._exchange(RegistrationFailed, "POST", url, headers, content)

    async def _exchange(
        self, failure: type[AuthError], method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> Answer:
        target, redirects = self._check(url), MAX_REDIRECTS if method == "GET" else 0
        with move_on_after(self._timeout):
            while True:
                try:
                    answer = await self._send(method, target, headers, content)
                except ConnectionClosed as exc:
                    if (
                        type(exc.__cause__ or exc.__context__).__name__ == "RemoteProtocolError"
                    ):  # of h11 or httpx: it quotes what came
                        raise failure(f"{method} {_name(target)}: the response is not HTTP, or not complete") from None
                    reason = explain(exc, VERIFY, CERT) or str(exc).removeprefix(f"{_name(target)}: ")
                    raise failure(f"{method} {_name(target)}: {reason}") from exc
                location = answer.headers.get("location")
                if not redirects or answer.status not in REDIRECTS or location is None:
                    return answer
                target, redirects = self._redirected(target, location), redirects - 1
        raise failure(f"{method} {_name(target)}: no answer within {self._timeout:g} seconds")

    def _check(self, url: str) -> httpx.URL:
        try:
            parsed = parse_url(url)
        except ValueError as exc:
            raise AddressRefused(f"a URL that came from the network is refused: {exc}") from exc
        if parsed.userinfo:
            raise AddressRefused(f"{_name(parsed)} is refused: it has a user or a password")
        if parsed.scheme == "http" and not ({Kind.LOOPBACK} == kinds_of_host(parsed.host) <= self._allowed):
            raise AddressRefused(f"{_name(parsed)} is refused: it is not https")
        return parsed

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        try:
            target, *others = map(url.join, once(location).split(", "))  # no URL has a blank
        except httpx.InvalidURL as exc:
            raise AddressRefused(f"a redirect of {_name(url)} is refused: not a URL") from exc
        if others:
            names = ", ".join(map(_name, (target, *others)))
            raise AddressRefused(f"a redirect of {_name(url)} is refused: it is to one of {names}")
        target = self._check(str(target))
        if url.scheme == "https" and target.scheme == "http":
            raise AddressRefused(f"a redirect of {_name(url)} is refused: {_name(target)} is not https")
        return target

    async def _send(self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None) -> Answer:
        backend, sent = self._backend(url), self._clock()
        try:
            async with await backend.send(method, {**ALWAYS, **headers}, content, redirects=False) as response:
                return await _read(response, sent)
        finally:
            if self._client is None:
                with move_on_after(RELEASE_TIME, shield=True):
                    await backend.aclose()

    def _backend(self, url: httpx.URL) -> HttpBackend:
        name = _name(url)
        if self._client is not None:
            return HttpxBackend(url, {}, name, self._client, anonymous=True)
        tls = make_context(name, verify=True, cert=None)
        proxy = environment_proxy(url) if url.scheme == "https" else None  # http never leaves this machine
        if proxy is None:
            return PoolBackend(url, {}, name, UNBOUNDED, tls, connect=partial(self._connect, url))
        if refused := kinds_of_host(url.host) - self._allowed:
            raise self._refused(url, url.host, refused)
        try:
            through = display_proxy(proxy)
            client = httpx.AsyncClient(proxy=proxy, verify=tls, trust_env=False, timeout=None)
        except (ImportError, ValueError, httpx.InvalidURL) as exc:
            raise unusable_proxy(name, exc) from None
        return HttpxBackend(url, {}, name, client, anonymous=True, proxy=through)

    async def _connect(self, url: httpx.URL, host: str, port: int) -> SocketStream:
        """Connect to an address of *host* that is allowed; the connection is to what has been checked."""
        allowed = self._allowed if url.scheme == "https" else {Kind.LOOPBACK}
        addresses, refused = [], None
        for address in await self._resolve(host, port):
            if kinds := kinds_of_address(ip_address(address)) - allowed:
                refused = refused or self._refused(url, address, kinds)
            else:
                addresses.append(address)
        if not addresses:
            raise refused or OSError("the host has no address")
        *others, last = addresses
        for address in others:
            with suppress(OSError), move_on_after(ATTEMPT_TIME):
                return await connect_tcp(address, port)
        return await connect_tcp(last, port)

    def _refused(self, url: httpx.URL, address: str, kinds: Set[Kind]) -> AddressRefused:
        kind = " and ".join(sorted(kind.value for kind in kinds))
        text = f"{_name(url)} is refused: its address {address} is {kind}, which {self._server} does not allow"
        return AddressRefused(f"{text} ({OTHER_RULES})")


def _name(url: httpx.URL) -> str:
    return excerpt(display_url(url))


async def _read(response: HttpResponse, sent: float) -> Answer:
    status, value = response.status, None
    problem = f"HTTP {status}"
    if status in REDIRECTS:
        problem += ", a redirect that is not followed"
    else:
        try:
            body = await response.read_all(MAX_BODY)
        except ProtocolError as exc:  # it is too large, or encoded as was not asked for
            problem += f": {str(exc).removeprefix(f'{response.name}: ')}"
        else:
            value = _json_object(body)
            if value is None and response.is_success:
                problem += f" without a JSON object ({excerpt(response.content_type) or 'no content type'})"
    return Answer(status, problem, value, response.headers, sent)


def _json_object(body: bytes) -> JSONObject | None:
    try:
        # A parser may ignore a byte order mark (RFC 8259, section 8.1).
        value = from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError:
        return None
    return SecretValues(value) if isinstance(value, dict) else None
