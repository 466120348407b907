"""What Streamable HTTP asks of a request before its message is looked at, and how it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from mcp_host.protocol.jsonrpc import INVALID_REQUEST, Failure, encode

METHODS = ("GET", "POST", "DELETE")
LOCAL = ("127.0.0.1", "localhost", "::1")

JSON = "application/json"
EVENTS = "text/event-stream"
TAKES = {"POST": (JSON, EVENTS), "GET": (EVENTS,), "DELETE": ()}
""" "The client MUST include an Accept header, listing" these."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole HTTP response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def refuse(status: int, message: str, code: int = INVALID_REQUEST, **headers: str) -> Reply:
    """A refusal: "the HTTP response body MAY comprise a JSON-RPC error response that has no id"."""
    return Reply(status, encode(Failure(None, code, message)), {"content-type": JSON, **headers})


def refusal(request: HttpRequest, path: str, methods: Sequence[str] = METHODS) -> Reply | None:
    """Why *request* is not even looked at, if so. *methods* are those that there are at *path*."""
    if request.path != path:
        return refuse(404, f"there is nothing at {request.path}")
    if not _is_local(request.headers.get("origin")):
        return refuse(403, "this origin may not speak to us")  # "Servers MUST validate the Origin header"
    if request.method not in methods:
        return refuse(405, f"not {request.method}", allow=", ".join(methods))
    if missing := [kind for kind in TAKES[request.method] if not _accepts(request.headers.get("accept", ""), kind)]:
        return refuse(406, f"the client has to accept {' and '.join(missing)}")
    if request.method == "POST" and _media_type(request.headers.get("content-type", "")) != JSON:
        return refuse(415, f"the body has to be {JSON}")
    return None


def _is_local(origin: str | None) -> bool:
    """A browser says where its page is from; a page from elsewhere has no business with a local server."""
    return origin is None or urlsplit(origin).hostname in LOCAL


def _accepts(header: str, kind: str) -> bool:
    accepted = [_media_type(item) for item in header.split(",")]
    return kind in accepted or f"{kind.partition('/')[0]}/*" in accepted or "*/*" in accepted


def _media_type(item: str) -> str:
    return item.partition(";")[0].strip().lower()
