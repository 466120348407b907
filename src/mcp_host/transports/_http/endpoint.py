"""The URL of a server: what a caller may give, and requests that never leave its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx
from anyio.abc import TaskGroup

from mcp_host.errors import HttpStatusError, excerpt
from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PARAMETER_PREFIX, PROTOCOL_VERSION, TOKEN
from mcp_host.transports._http.backends import HTTPX_ERRORS, HttpBackend, connection_error
from mcp_host.transports._http.response import ACCEPT_ENCODING, EVENT_STREAM, JSON, HttpResponse

SESSION_ID = "Mcp-Session-Id"
LAST_EVENT_ID = "Last-Event-ID"
ALWAYS = {"Accept": f"{JSON}, {EVENT_STREAM}", "Accept-Encoding": ACCEPT_ENCODING}
POSTED = {"Content-Type": JSON}
RESERVED = frozenset(
    name.lower()
    for name in (
        *(*ALWAYS, *POSTED, "Content-Length", "Transfer-Encoding"),
        *(SESSION_ID, PROTOCOL_VERSION, LAST_EVENT_ID, MCP_METHOD, MCP_NAME),
    )
)
"""Headers that the transport writes itself."""

MAX_REDIRECTS = 5  # curl allows 50 and browsers 20; within one origin, even two are odd
REDIRECTS = frozenset({301, 302, 303, 307, 308})

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


class Endpoint:
    """One URL and the backend that reaches it. *tasks* drain what is left unread of responses.

    If the server closes a kept-alive connection just as it is used again, that POST fails with
    `may_have_run=True`: nothing tells whether the server had read it. Only a *repeatable* request is sent twice.
    """

    def __init__(self, backend: HttpBackend, url: httpx.URL, name: str, tasks: TaskGroup) -> None:
        self.name = name
        self.closing = False
        """From here on, responses left unread are closed instead of drained."""
        self._backend = backend
        self._url = url
        self._tasks = tasks

    async def send(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, *, repeatable: bool = False
    ) -> HttpResponse:
        """Send a request and return its response, of any status, as soon as its headers have arrived.

        Redirects that keep the method (307, 308) are followed within the origin.

        Raises:
            ConnectionClosed: The server could not be reached, or the connection broke.
            HttpStatusError: A redirect that is not followed.
        """
        url = self._url
        for _ in range(MAX_REDIRECTS + 1):
            status, raw, body = await self._backend.send(method, url, headers, content, repeatable=repeatable)
            response = HttpResponse(status, raw, body, self.name, self._drain_soon)
            if status not in REDIRECTS:
                return response
            async with response:
                url = self._redirected(url, response)
        raise HttpStatusError(status, f"{response.failure}: gave up after {MAX_REDIRECTS} redirects")

    def _redirected(self, url: httpx.URL, response: HttpResponse) -> httpx.URL:
        location = response.header(b"location")
        if location is None:
            refused = "nowhere"
        else:
            try:
                target = url.join(location)
            except HTTPX_ERRORS as exc:
                raise connection_error(exc, self.name) from exc
            if response.status not in (307, 308):
                refused = f"{display_url(target)}, which would change the method"
            elif (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                refused = f"{display_url(target)}, another origin"
            else:
                return url.copy_with(raw_path=target.raw_path)  # the user and password stay ours
        raise HttpStatusError(
            response.status, f"{response.failure}: refused to follow a redirect to {excerpt(refused)}"
        )

    def _drain_soon(self, response: HttpResponse) -> bool:
        if not self.closing:
            self._tasks.start_soon(response.drain)
        return not self.closing
