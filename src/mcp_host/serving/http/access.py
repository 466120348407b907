"""Who may send requests over HTTP: by the bearer token, and by the headers Host and Origin."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from secrets import compare_digest
from urllib.parse import urlsplit

from mcp_host.serving.http.asgi import HttpError

LOCAL = ("127.0.0.1", "localhost", "::1")

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
CHALLENGE = 'Bearer realm="mcp"'  # a scheme "MUST be followed by one or more auth-param values" (section 3)


class Access:
    """Which requests are let in.

    With a *token*, those that send it as a bearer token. Of *hosts*, the header Host has to name one, or this machine:
    a web page whose name is made to lead to a local server (DNS rebinding) names itself. With None, it may name any.
    A web page may use the server if it is of one of *hosts*, or of this machine. All are names or addresses, without ports.

    Raises:
        ValueError: *token* cannot be sent as a bearer token.
    """

    def __init__(self, token: str | None = None, hosts: Collection[str] | None = None) -> None:
        if token is not None and not TOKEN.fullmatch(token):
            raise ValueError("a bearer token has only letters, digits and -._~+/ in it, and perhaps = at its end")
        self._token = token
        self._any_host = hosts is None
        self._hosts = {*LOCAL, *(host.lower() for host in hosts or ())}

    def check(self, headers: Mapping[str, str]) -> None:
        """Check the headers of a request, whose names are in lower case.

        Raises:
            HttpError: It is not let in.
        """
        if not self._any_host and _hostname(f"//{headers.get('host', '')}") not in self._hosts:
            raise HttpError(421, "this server is not the one that Host names")
        origin = headers.get("origin")  # sent by browsers
        if origin is not None and _hostname(origin) not in self._hosts:
            raise HttpError(403, "this origin is not allowed")  # "Servers MUST validate the Origin header"
        if self._token is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HttpError(401, "a bearer token is needed", www_authenticate=CHALLENGE)
        if not compare_digest(given.strip().encode(), self._token.encode()):
            raise HttpError(401, "the bearer token is wrong", www_authenticate=f'{CHALLENGE}, error="invalid_token"')


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
