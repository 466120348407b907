"""URLs of resources and authorization servers: how they are checked, compared and shown."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from mcp_host.errors import excerpt
from mcp_host.terminal.browser import host_of, is_web_url

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_URL = 4096  # characters of an endpoint, or of a page for a person
AT_SOCKET = " at "  # as in `StreamableHttp.identity`; no URL has a blank
DEFAULT_PORTS = {"http": 80, "https": 443}


def is_web(url: str) -> bool:
    """Whether *url* is one of https, without a user; or of http on this machine, for development."""
    is_plain = len(url) <= MAX_URL and is_web_url(url) and not has_user(url)
    return is_plain and (urlsplit(url).scheme == "https" or host_of(url) in LOOPBACK)


def has_user(url: str) -> bool:
    """Whether *url* has a user or a password, which a person may take for the host: ``https://bank.example@host/``."""
    return "@" in urlsplit(url).netloc


def origin_of(url: str) -> str:
    """The scheme, host and port of *url*, as they are written in it."""
    scheme, netloc, *_ = urlsplit(url)
    return f"{scheme}://{netloc}"


def canonical(url: str) -> str:
    """The resource identifier of the server at *url*: without query and fragment, and without a path that is only a slash.

    A unix socket stays: see `url_of`.
    """
    url, at, socket = url.partition(AT_SOCKET)
    scheme, netloc, path, *_ = urlsplit(url)
    path = "" if path == "/" else path
    return urlunsplit((scheme.lower(), netloc.rpartition("@")[2].lower(), path, "", "")) + at + socket


def url_of(server: str) -> str:
    """The URL in the name of a *server*: ``http://localhost/mcp at /run/a.sock`` is one behind that unix socket."""
    return server.partition(AT_SOCKET)[0]


def at_socket_of(server: str, url: str) -> str:
    """*url* behind the unix socket of *server*, if it has one."""
    _, at, socket = server.partition(AT_SOCKET)
    return url + at + socket


def covers(identifier: str, url: str) -> bool:
    """Whether a token for the resource *identifier* is one for *url*: the same origin, and the same path or one below.

    A slash at the end makes no difference. A path that leads up again, as any server may decode it, is not one below.
    An *identifier* with a user, a fragment, blanks or control characters is none.
    """
    try:
        resource, target = urlsplit(identifier), urlsplit(url)
        is_same_origin = _origin(resource) == _origin(target)
    except ValueError:
        return False
    above, below = resource.path.rstrip("/") + "/", target.path.rstrip("/") + "/"
    is_identifier = is_web_url(identifier) and not resource.fragment and not has_user(identifier)
    return is_same_origin and is_identifier and below.startswith(above) and not _leads_up(below.removeprefix(above))


def _leads_up(path: str) -> bool:
    """Whether a segment is ``..``: also one that is encoded, twice at most, after a backslash, or with a parameter."""
    decoded = unquote(unquote(path)).replace("\\", "/")
    return any(segment.partition(";")[0] == ".." for segment in decoded.split("/"))


def is_shared(identifier: str, shared: Iterable[str]) -> bool:
    """Whether the resource *identifier* is one of those *shared*."""
    return any(covers(identifier, each) and covers(each, identifier) for each in shared)


def is_same_page(url: str, other: str) -> bool:
    """Whether two URLs differ only in their queries and fragments, and in what a browser writes in another way."""
    try:
        one, two = urlsplit(url), urlsplit(other)
        return (_origin(one), _user(one), one.path or "/") == (_origin(two), _user(two), two.path or "/")
    except ValueError:
        return False


def shown(url: str) -> str:
    """*url* for messages: without user, password, query and fragment, which may be secrets."""
    try:
        scheme, netloc, path, *_ = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    return excerpt(urlunsplit((scheme, netloc.rpartition("@")[2], path, "", "")))


def _user(url: SplitResult) -> str:
    """The user and password in it."""
    return url.netloc.rpartition("@")[0]


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    """Equal for the same origin (RFC 6454, section 5).

    Raises:
        ValueError: Its port is none.
    """
    return url.scheme, url.hostname, url.port or DEFAULT_PORTS.get(url.scheme)
