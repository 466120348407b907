"""The URL that a caller may give, whose repr hides its query, and the headers that every request has."""

from __future__ import annotations

from typing import Any

import httpx

from mcp_host.transports._http.response import ACCEPT_ENCODING, EVENT_STREAM, JSON

ALWAYS = {"Accept": f"{JSON}, {EVENT_STREAM}", "Accept-Encoding": ACCEPT_ENCODING}
POSTED = {"Content-Type": JSON}


class SecretUrl(httpx.URL):
    """A URL whose repr is for reports of errors, which show the variables of frames: see `display_url`."""

    def copy_with(self, **kwargs: Any) -> SecretUrl:
        return SecretUrl(self, **kwargs)

    def join(self, url: httpx.URL | str) -> SecretUrl:
        return SecretUrl(super().join(url))

    def __repr__(self) -> str:
        return f"URL({display_url(self)!r})"


class SecretRequest(httpx.Request):
    """A request whose repr shows as much of its URL as that of `SecretUrl`."""

    def __repr__(self) -> str:
        return f"<Request({self.method!r}, {display_url(self.url)!r})>"


def parse_url(url: str) -> SecretUrl:
    """An absolute http(s) URL, without its fragment. The error does not quote it: a URL may hold a password.

    Raises:
        ValueError: It is none.
    """
    if url != url.strip():
        raise ValueError("the URL has space around it: url.strip() removes it")
    try:
        parsed = SecretUrl(url)
        has_address = can_be_connected_to(parsed)
    except (httpx.InvalidURL, UnicodeError):
        raise ValueError("not a URL") from None
    if parsed.scheme not in ("http", "https") or not has_address:
        raise ValueError("not the URL of an HTTP server: it must look like https://host/path")
    return parsed.copy_with(fragment=None)


def can_be_connected_to(url: httpx.URL) -> bool:
    """Whether *url* has a host, and a port that exists.

    Raises:
        UnicodeError: No resolver takes its host.
    """
    url.raw_host.decode().encode("idna")  # as the resolver will: it fails for labels of 0 or 64 letters
    return bool(url.host) and (url.port is None or 0 < url.port < 65536)


def display_url(url: httpx.URL) -> str:
    """A URL for messages: without user, password, query and fragment, which may be secrets."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))
