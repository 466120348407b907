"""Who may send requests over HTTP: by the bearer token, and by the headers Host and Origin.

The token may be one of an authorization server, which says whose it is (RFC 6750, RFC 9728).
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from secrets import compare_digest
from typing import TypeAlias
from urllib.parse import urlsplit

from mcp_host.errors import AuthError
from mcp_host.serving.http.asgi import JSON, HttpError, HttpExchange, HttpResponse, Principal

LOCAL = ("127.0.0.1", "localhost", "::1")

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
CHALLENGE = 'Bearer realm="mcp"'  # a scheme "MUST be followed by one or more auth-param values" (section 3)

RETRY_AFTER = "5"  # seconds, if the authorization server cannot be reached

Verify: TypeAlias = Callable[[str], Awaitable[Principal]]
"""Whose bearer token it is. Raises ValueError for one that is not good, PermissionError if it lacks a scope, `AuthError` if that cannot be found out."""


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """A server whose tokens are of an authorization server."""

    url: str
    issuer: str
    metadata_urls: Sequence[str]
    """Where its metadata are, best first."""
    verify: Verify
    scopes: Sequence[str] = ()
    """Those that a token needs, all of them."""

    @property
    def metadata(self) -> HttpResponse:
        document: dict[str, object] = {
            "resource": self.url,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
        }
        if self.scopes:
            document["scopes_supported"] = [*self.scopes]
        return HttpResponse(200, json.dumps(document).encode(), {"content-type": JSON})


class Access:
    """Which requests are let in.

    With a *token*, those that send it as a bearer token; with *protected*, those that send one for that resource.
    Of *hosts*, the header Host has to name one, or this machine: a web page whose name is made to lead to a local server
    (DNS rebinding) names itself. With None, it may name any.
    A web page may use the server if it is of one of *hosts*, or of this machine. All are names or addresses, without ports.

    Raises:
        ValueError: *token* cannot be sent as a bearer token.
    """

    def __init__(
        self,
        token: str | None = None,
        hosts: Collection[str] | None = None,
        protected: ProtectedResource | None = None,
    ) -> None:
        if token is not None and not TOKEN.fullmatch(token):
            raise ValueError("a bearer token has only letters, digits and -._~+/ in it, and perhaps = at its end")
        self._verify: Verify | None = None if token is None else partial(_verify, token)
        self._challenge = CHALLENGE
        self._metadata = dict[str, HttpResponse]()
        if protected is not None:
            self._verify = protected.verify
            self._challenge = f'Bearer resource_metadata="{protected.metadata_urls[0]}"'
            if protected.scopes:  # "MCP servers SHOULD include a `scope` parameter" (authorization)
                self._challenge += f', scope="{" ".join(protected.scopes)}"'
            self._metadata = {urlsplit(url).path: protected.metadata for url in protected.metadata_urls}
        self._any_host = hosts is None
        self._hosts = {*LOCAL, *(host.lower() for host in hosts or ())}

    def metadata(self, http: HttpExchange) -> HttpResponse | None:
        """The metadata of the protected resource, if the request is for them.

        Raises:
            HttpError: It is not let in.
        """
        if (document := self._metadata.get(http.path)) is not None:
            self._check_host(http.headers)
        return document

    async def check(self, headers: Mapping[str, str]) -> Principal:
        """Check the headers of a request, whose names are in lower case. Returns who has sent it.

        Raises:
            HttpError: It is not let in.
        """
        self._check_host(headers)
        if self._verify is None:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HttpError(401, "a bearer token is needed", www_authenticate=self._challenge)
        try:
            return await self._verify(given.strip())
        except ValueError as exc:
            problem = f"the bearer token is wrong: {exc}"
            raise HttpError(401, problem, www_authenticate=f'{self._challenge}, error="invalid_token"') from None
        except PermissionError as exc:
            problem = f"the bearer token is not enough: {exc}"
            raise HttpError(403, problem, www_authenticate=f'{self._challenge}, error="insufficient_scope"') from None
        except AuthError:
            raise HttpError(503, "the authorization server cannot be reached", retry_after=RETRY_AFTER) from None

    def _check_host(self, headers: Mapping[str, str]) -> None:
        if not self._any_host and _hostname(f"//{headers.get('host', '')}") not in self._hosts:
            raise HttpError(421, "this server is not the one that Host names")
        origin = headers.get("origin")  # sent by browsers
        if origin is not None and _hostname(origin) not in self._hosts:
            raise HttpError(403, "this origin is not allowed")  # "Servers MUST validate the Origin header"


async def _verify(token: str, given: str) -> None:
    if not compare_digest(given.encode(), token.encode()):
        raise ValueError("it is another")


def hosts_at(host: str, address: str) -> tuple[str, ...] | None:
    """The hosts of an `Access` for a server at *host* that listens at *address*: any, if that is every address."""
    return None if ip_address(address).is_unspecified else (host, address)


def is_exposed(address: str) -> bool:
    """Whether other machines can connect to a server that listens at *address*."""
    return not ip_address(address).is_loopback


def _hostname(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.port != 0 and parts.username is None else None
    except ValueError:  # such as a bracket that is not closed, or two hosts, whose second is no port
        return None
