"""The URL and the headers that a caller may give, and those that the transport writes itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx

from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PARAMETER_PREFIX, PROTOCOL_VERSION, TOKEN
from mcp_host.transports._http.response import ACCEPT_ENCODING, EVENT_STREAM, JSON

SESSION_ID = "Mcp-Session-Id"
LAST_EVENT_ID = "Last-Event-ID"
ALWAYS = {"Accept": f"{JSON}, {EVENT_STREAM}", "Accept-Encoding": ACCEPT_ENCODING}
POSTED = {"Content-Type": JSON}
_BY_HTTP = (*ALWAYS, *POSTED, "Content-Length", "Transfer-Encoding", LAST_EVENT_ID)
RESERVED = frozenset(map(str.lower, (*_BY_HTTP, SESSION_ID, PROTOCOL_VERSION, MCP_METHOD, MCP_NAME)))
"""Headers that the transport writes itself."""

# RFC 9110, section 5: a line end in a value would inject another header.
_VALUE = re.compile(r"([!-~]([ \t!-~]*[!-~])?)?")


def parse_url(url: str) -> httpx.URL:
    """An absolute http(s) URL, without its fragment. The error does not quote it: a URL may hold a password.

    Raises:
        ValueError: It is none.
    """
    if url != url.strip():
        raise ValueError("the URL has space around it: url.strip() removes it")
    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode().encode("idna")  # as the resolver will: it fails for labels of 0 or 64 letters
    except (httpx.InvalidURL, UnicodeError):
        raise ValueError("not a URL") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 80) < 65536:
        raise ValueError("not the URL of an HTTP server: it must look like https://host/path")
    return parsed.copy_with(fragment=None)


def display_url(url: httpx.URL) -> str:
    """A URL for messages: without user, password, query and fragment, which may be secrets."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of a caller's *headers*. The error quotes no value: it may be a secret.

    Raises:
        ValueError: A name or value cannot be sent, or the transport writes this header itself.
    """
    for name, value in headers.items():
        if not TOKEN.fullmatch(name):
            raise ValueError(f"not a header name: {name!r}")
        if name.lower() in RESERVED or name.lower().startswith(PARAMETER_PREFIX.lower()):
            raise ValueError(f"the transport writes the header {name} itself")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} is not printable ASCII without space around it")
    return dict(headers)
