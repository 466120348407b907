"""Metadata of protected resources and authorization servers: where they are, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from mcp_host.auth.requests.challenges import Challenge
from mcp_host.auth.requests.urls import canonical, covers, is_same_page, is_shared, is_web, origin_of, shown
from mcp_host.errors import excerpt, quoted

if TYPE_CHECKING:
    from mcp_host.types import JSONObject

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"

S256 = "S256"

AUTHORIZATION, TOKEN = "authorization_endpoint", "token_endpoint"
ENDPOINTS = (AUTHORIZATION, TOKEN, "registration_endpoint", "device_authorization_endpoint", "revocation_endpoint")
NO_URL = "its {} is no plain https URL"
RESOURCE_FIELDS = frozenset({"resource", "authorization_servers"})
SERVER_FIELDS = frozenset({"issuer", *ENDPOINTS})


class ParentResource(ValueError):
    """Metadata are of a resource above the server, and not where those of its origin are."""


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
    jwks_uri: str | None = None
    """Where the keys are that its tokens are signed with."""
    is_assumed: bool = False
    """There are no metadata: it is one of 2025-03-26, with the default endpoints."""


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


def read_resource(document: JSONObject, server_url: str, *, at: str, shared: Iterable[str] = ()) -> Resource:
    """The metadata of a protected resource in *document*, which was found *at* a URL.

    The resource is the one at *server_url* (RFC 9728, section 3.3). A resource above it counts only if the well-known
    place of the origin says so, or if it is one of those *shared*: another document may be of a tenant of that origin.

    Raises:
        ParentResource: It is above, and does not count.
        ValueError: It must not be used.
    """
    identifier = document.get("resource")
    if identifier is None:
        identifier = canonical(server_url)
    if not isinstance(identifier, str) or not covers(identifier, server_url):
        raise ValueError(f"it is of {excerpt(str(identifier))}, which is not {shown(server_url)}")
    is_exact = covers(server_url, identifier)
    if not is_exact and not is_same_page(at, origin_of(server_url) + RESOURCE) and not is_shared(identifier, shared):
        raise ParentResource(
            f"it is of {excerpt(identifier)}, which is not {shown(server_url)}, but above it: if you know that all "
            f"servers there may share one token, pass shared_resources=[{quoted(identifier)}]"
        )
    servers = _texts(document, "authorization_servers")
    if not servers:
        raise ValueError("it names no authorization server")
    return Resource(identifier, servers, _texts(document, "scopes_supported") or None)


def read_server(document: JSONObject, issuers: Sequence[str], *, for_person: bool = True) -> AuthorizationServer:
    """The metadata of an authorization server in *document*. Without `unusable_endpoints`.

    With *for_person* its authorization_endpoint, if there is one, has to be one that a browser may go to.

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
    for name in (AUTHORIZATION, TOKEN) if for_person else (TOKEN,):
        if name in unusable_endpoints(document):
            raise ValueError(NO_URL.format(name))
    token = _endpoint(document, TOKEN)
    if token is None:
        raise ValueError("it has no token_endpoint")
    return AuthorizationServer(
        issuer=issuer,
        authorization_endpoint=_endpoint(document, AUTHORIZATION),
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
        jwks_uri=_endpoint(document, "jwks_uri"),
    )


def unusable_endpoints(document: JSONObject) -> list[str]:
    """The names of endpoints in *document* that are no URLs that a browser or we may go to."""
    return [name for name in ENDPOINTS if document.get(name) is not None and _endpoint(document, name) is None]


def _endpoint(document: JSONObject, name: str) -> str | None:
    """An endpoint, if there is one that a browser or we may go to."""
    url = document.get(name)
    return url if isinstance(url, str) and is_web(url) else None


def _texts(document: JSONObject, name: str) -> tuple[str, ...]:
    """The texts of a list. Nothing else is taken from it."""
    value = document.get(name)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()
