"""Discovery: from an MCP server to its authorization server, in the order of the specification.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from anyio import move_on_after

from mcp_host.auth.errors import AuthError, DiscoveryFailed
from mcp_host.auth.requests.challenges import Challenge
from mcp_host.errors import excerpt, quoted
from mcp_host.terminal.browser import host_of, is_web_url

if TYPE_CHECKING:
    from mcp_host.auth.requests.client import AuthClient
    from mcp_host.types import JSONObject

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"

WITHOUT_METADATA = "default endpoints of 2025-03-26"
"""The action of the step that a server without any metadata of authorization leads to."""

DISCOVERY_TIME = 60.0  # seconds; a server may name 18 places that never answer, and the clocks of calls stop meanwhile
MOST_STEPS = 50
MOST_SERVERS = 5  # authorization servers of one resource that are tried
S256 = "S256"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
NO_ALIASES: Mapping[str, str] = MappingProxyType({})
# "MCP clients SHOULD include the header [...] during Server Metadata Discovery": in that revision only, whose
# authorization server is the MCP server itself.
OF_2025_03_26 = {"MCP-Protocol-Version": "2025-03-26"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step on the way to a token, for `OAuth.explain`."""

    action: str
    url: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.action} at {self.url}: {self.outcome}"


class Steps(list[Step]):
    """The last steps."""

    def add(self, action: str, url: str, outcome: str) -> None:
        self.append(Step(action, shown(url), outcome))
        del self[:-MOST_STEPS]


@dataclass(frozen=True, slots=True)
class Resource:
    """The metadata of a protected resource (RFC 9728, section 2)."""

    identifier: str
    """What tokens are asked for, and what they are good for: the URL of the MCP server, or one above it."""
    authorization_servers: tuple[str, ...]
    scopes: tuple[str, ...] | None
    """The scopes that the server's basic functions need. None if it does not say."""


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """The metadata of an authorization server (RFC 8414, section 2)."""

    issuer: str
    authorization_endpoint: str | None
    token_endpoint: str
    registration_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    code_challenge_methods: tuple[str, ...] = ()
    token_auth_methods: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ()
    sends_issuer: bool = False
    """Whether authorization responses have an ``iss`` (RFC 9207)."""
    takes_client_urls: bool = False
    """Whether a client id may be the URL of a Client ID Metadata Document."""
    dpop_algorithms: tuple[str, ...] = ()


async def discover(
    client: AuthClient,
    server_url: str,
    challenge: Challenge,
    steps: Steps,
    *,
    issuer: str | None = None,
    aliases: Mapping[str, str] = NO_ALIASES,
) -> tuple[Resource, AuthorizationServer]:
    """The protected resource at *server_url*, and its authorization server.

    Of several authorization servers it is the one of *issuer*, if given, else the first that can be used. *aliases* are
    issuers by another name that a protected resource may have for them.

    Raises:
        DiscoveryFailed: There is none, or not within `DISCOVERY_TIME`. The text names each step.
    """
    with move_on_after(DISCOVERY_TIME):
        return await _discover(client, server_url, challenge, steps, issuer, aliases)
    raise _failed(server_url, f"its authorization server is not found within {DISCOVERY_TIME:g} seconds", steps)


async def _discover(
    client: AuthClient,
    server_url: str,
    challenge: Challenge,
    steps: Steps,
    issuer: str | None,
    aliases: Mapping[str, str],
) -> tuple[Resource, AuthorizationServer]:
    resource = await _resource(client, server_url, challenge, steps)
    if resource is None:
        found = await _server_of_2025_03_26(client, server_url, steps)
        if issuer not in (None, found[1].issuer):  # its client would show its secret to any server without metadata
            raise DiscoveryFailed(f"{shown(server_url)} is its own authorization server, not {excerpt(issuer)}")
        return found
    candidates = [(name, aliases.get(name, name)) for name in resource.authorization_servers]
    if issuer is not None:
        candidates = [candidate for candidate in candidates if issuer in candidate]
        if not candidates:
            named = excerpt(", ".join(resource.authorization_servers))
            raise DiscoveryFailed(f"{shown(server_url)} has the authorization server {named}, not {excerpt(issuer)}")
    for names in candidates[:MOST_SERVERS]:
        server = await _server(client, names, steps)
        if server is not None:
            return resource, server
    raise _failed(server_url, "no metadata of its authorization server can be used", steps)


def resource_urls(server_url: str, challenge: Challenge) -> list[str]:
    """Where the metadata of the protected resource at *server_url* may be, best first."""
    scheme, netloc, path, *_ = urlsplit(server_url)
    paths = [RESOURCE + path.rstrip("/"), RESOURCE]
    known = [urlunsplit((scheme, netloc, path, "", "")) for path in paths]
    named = challenge.resource_metadata
    return list(dict.fromkeys([named, *known] if named is not None else known))


def metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of the authorization server *issuer* may be, in the order of the specification."""
    scheme, netloc, path, *_ = urlsplit(issuer)
    path = path.rstrip("/")
    paths = [SERVER + path, OPENID + path]
    if path:
        paths.append(path + OPENID)
    return [urlunsplit((scheme, netloc, path, "", "")) for path in paths]


async def _resource(client: AuthClient, server_url: str, challenge: Challenge, steps: Steps) -> Resource | None:
    for url in resource_urls(server_url, challenge):
        document = await _get(client, "metadata of the protected resource", url, steps)
        if document is not None:
            break
    else:
        return None
    identifier = document.get("resource")
    if identifier is None:
        identifier = canonical(server_url)
    if not isinstance(identifier, str) or not covers(identifier, server_url):
        raise _refused(steps, f"it is of {excerpt(str(identifier))}, which is not {shown(server_url)}")
    servers = _texts(document, "authorization_servers")
    if not servers:
        raise _refused(steps, "it names no authorization server")
    return Resource(identifier, servers, _texts(document, "scopes_supported") or None)


async def _server(
    client: AuthClient, issuers: Sequence[str], steps: Steps, headers: Mapping[str, str] | None = None
) -> AuthorizationServer | None:
    """The authorization server with one of *issuers*; its metadata are where the first of them says."""
    try:
        urls = metadata_urls(issuers[0])
    except ValueError:
        steps.add("metadata of the authorization server", issuers[0], "refused: it is no URL")
        return None
    for url in urls:
        document = await _get(client, "metadata of the authorization server", url, steps, headers)
        if document is None:
            continue
        try:
            return _checked(document, issuers)
        except ValueError as exc:
            _refuse(steps, str(exc))
    return None


async def _server_of_2025_03_26(
    client: AuthClient, server_url: str, steps: Steps
) -> tuple[Resource, AuthorizationServer]:
    """A server without metadata of a protected resource is its own authorization server.

    https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#fallbacks-for-servers-without-metadata-discovery
    """
    scheme, netloc, *_ = urlsplit(server_url)
    origin = f"{scheme}://{netloc}"
    resource = Resource(canonical(server_url), (origin,), None)
    issuers = (origin, f"{origin}/")  # no one has stated which of the two it is
    server = await _server(client, issuers, steps, OF_2025_03_26)
    if server is None:
        if any(step.outcome.startswith("refused") for step in steps):
            raise _failed(server_url, "no metadata of its authorization server can be used", steps)
        steps.add(WITHOUT_METADATA, origin, "used, because there is no metadata")
        server = AuthorizationServer(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            code_challenge_methods=(S256,),  # "PKCE is REQUIRED for all clients" in that revision
        )
    return resource, server


async def _get(
    client: AuthClient, action: str, url: str, steps: Steps, headers: Mapping[str, str] | None = None
) -> JSONObject | None:
    """The document at *url*. None if there is none, for any reason: the next place is tried."""
    try:
        answer = await client.get_json(url, headers)
    except AuthError as exc:
        steps.add(action, url, f"refused or not reached: {exc}")
        return None
    found = answer.json if answer.status == 200 else None
    steps.add(action, url, answer.problem if found is None else "found")
    return found


def _checked(document: JSONObject, issuers: Sequence[str]) -> AuthorizationServer:
    """The metadata in *document*.

    Raises:
        ValueError: It must not be used.
    """
    stated = document.get("issuer")
    issuer = next((issuer for issuer in issuers if issuer == stated), None)
    if issuer is None:  # RFC 8414, section 3.3: "identical", so that not even a slash at the end may differ
        problem = f"its issuer is {excerpt(str(stated))}, not {excerpt(issuers[0])}"
        if isinstance(stated, str) and stated.rstrip("/") == issuers[0].rstrip("/"):
            aliases = f"{{{quoted(issuers[0])}: {quoted(stated)}}}"
            problem += f": if you know that they are one, pass issuer_aliases={aliases}"
        raise ValueError(problem)
    token = _endpoint(document, "token_endpoint")
    if token is None:
        raise ValueError("it has no token_endpoint")
    return AuthorizationServer(
        issuer=issuer,
        authorization_endpoint=_endpoint(document, "authorization_endpoint"),
        token_endpoint=token,
        registration_endpoint=_endpoint(document, "registration_endpoint"),
        device_authorization_endpoint=_endpoint(document, "device_authorization_endpoint"),
        revocation_endpoint=_endpoint(document, "revocation_endpoint"),
        code_challenge_methods=_texts(document, "code_challenge_methods_supported"),
        token_auth_methods=_texts(document, "token_endpoint_auth_methods_supported") or None,
        scopes=_texts(document, "scopes_supported"),
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        takes_client_urls=document.get("client_id_metadata_document_supported") is True,
        dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported"),
    )


def _endpoint(document: JSONObject, name: str) -> str | None:
    """An endpoint, if there is one.

    Raises:
        ValueError: It is no URL that a browser or we may go to.
    """
    url = document.get(name)
    if url is None:
        return None
    if not isinstance(url, str) or not is_web(url):
        raise ValueError(f"its {name} is no https URL")
    return url


def is_web(url: str) -> bool:
    """Whether *url* is one of https; or of http on this machine, for development."""
    return is_web_url(url) and (urlsplit(url).scheme == "https" or host_of(url) in LOOPBACK)


def canonical(url: str) -> str:
    """The resource identifier of the server at *url*: without query and fragment, and without a path that is only a slash."""
    scheme, netloc, path, *_ = urlsplit(url)
    return urlunsplit((scheme.lower(), netloc.rpartition("@")[2].lower(), "" if path == "/" else path, "", ""))


def covers(identifier: str, url: str) -> bool:
    """Whether a token for the resource *identifier* is one for *url*: the same origin, and the same path or one below."""
    try:
        resource, target = urlsplit(identifier), urlsplit(url)
        same = _origin(resource.scheme, resource.hostname, resource.port) == _origin(
            target.scheme, target.hostname, target.port
        )
    except ValueError:
        return False
    above, below = resource.path.rstrip("/") + "/", target.path.rstrip("/") + "/"
    return same and below.startswith(above) and not resource.fragment


def _origin(scheme: str, host: str | None, port: int | None) -> tuple[str, str | None, int | None]:
    return scheme, host, port or {"http": 80, "https": 443}.get(scheme)


def shown(url: str) -> str:
    """*url* for messages: without user, password, query and fragment, which may be secrets."""
    try:
        scheme, netloc, path, *_ = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    return excerpt(urlunsplit((scheme, netloc.rpartition("@")[2], path, "", "")))


def _texts(document: JSONObject, name: str) -> tuple[str, ...]:
    """The texts of a list. Nothing else is taken from it."""
    value = document.get(name)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _refuse(steps: Steps, problem: str) -> None:
    last = steps.pop()
    steps.append(Step(last.action, last.url, f"refused: {problem}"))


def _refused(steps: Steps, problem: str) -> DiscoveryFailed:
    _refuse(steps, problem)
    return DiscoveryFailed(str(steps[-1]))


def _failed(server_url: str, problem: str, steps: Sequence[Step]) -> DiscoveryFailed:
    return DiscoveryFailed(f"{shown(server_url)}: {problem}\n" + "\n".join(_lines(steps)))


def _lines(steps: Sequence[Step]) -> Iterator[str]:
    return (f"  {step}" for step in steps)
