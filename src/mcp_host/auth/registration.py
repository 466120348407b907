"""Clients: how an authorization server knows us.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from mcp_host.auth.errors import RegistrationFailed
from mcp_host.auth.keys import PrivateKey
from mcp_host.auth.requests.error_codes import INVALID_REQUEST
from mcp_host.auth.requests.metadata import AuthorizationServer
from mcp_host.auth.requests.steps import Steps
from mcp_host.auth.requests.urls import LOOPBACK, is_web, shown
from mcp_host.secret import Secret, SecretText

if TYPE_CHECKING:
    from mcp_host.auth.requests.client import AuthClient

TokenAuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
"""How a client authenticates at the token endpoint."""

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"

WITH_SECRET: tuple[TokenAuthMethod, ...] = ("client_secret_basic", "client_secret_post")
METHODS: tuple[TokenAuthMethod, ...] = ("none", *WITH_SECRET)  # of `Dynamic`
SCOPES_REFUSED = frozenset({400, 403})
REGISTRATION_REFUSED = frozenset({401, 403, 404, 405})  # of servers that register only clients that they know
BY_HAND = "register a client there by hand, and pass Registered(...)"
MAX_TEXT = 4096  # characters of a client's id, which is a part of URLs, or of its secret, which is one of headers
MAX_STATED_SCOPES = 8192  # characters of the scopes in the answer to a registration, as in a login; of more, none count
VSCHARS = re.compile(r"[ -~]+")  # all that a client's id and secret may have (RFC 6749, appendix A)
LAST_SECOND = 1e12  # a client that expires later, in some 30,000 years, does not expire
DEFAULT_METHODS = ("client_secret_basic",)  # RFC 8414, section 2, where the metadata has no list


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client of one authorization server. *expires_at* is in seconds since 1970; None for never.

    *scopes* are those that it was registered with. None if they are not known.

    *has_failed* is of its last login, where another registration may help: it is used if no other can be had.
    """

    id: str
    secret: SecretText | None = field(default=None, repr=False)
    method: TokenAuthMethod = "none"
    redirect_uris: tuple[str, ...] = ()
    expires_at: float | None = None
    scopes: tuple[str, ...] | None = None
    has_failed: bool = False

    def can_be_used(self, redirect_uri: str | None, now: float) -> bool:
        """Whether it may be redirected to *redirect_uri*, and has not expired. None is for a login on another device."""
        expired = self.expires_at is not None and self.expires_at <= now
        return not expired and _uris(redirect_uri) == self.redirect_uris

    def may_ask_for(self, scopes: Iterable[str]) -> bool:
        """Whether it was registered with all *scopes*. If that is not known, the server says whether it may."""
        return self.scopes is None or set(scopes) <= set(self.scopes)


class Registered:
    """A client that was registered by hand, at the authorization server *issuer*.

    Pass the *issuer*: otherwise it is the first authorization server that an MCP server names, and no other later.

    *method* is how it authenticates at the token endpoint. By default that is "client_secret_basic" with a *secret*, or
    "client_secret_post" where the server offers only that; "private_key_jwt" with a *key*, and "none" with neither.

    Raises:
        TypeError: *id* or *secret* is no text.
        ValueError: One of them is empty or has control characters, or arguments contradict each other.
    """

    def __init__(
        self,
        id: str,
        secret: str | None = None,
        *,
        issuer: str | None = None,
        method: TokenAuthMethod | None = None,
        key: PrivateKey | None = None,
    ) -> None:
        checked_text("id", id)
        if secret is not None:
            checked_text("secret", secret)
        if secret and key is not None:
            raise ValueError("secret and key are two ways to authenticate: pass one of them")
        self._chooses = method is None and bool(secret)
        method = method or ("client_secret_basic" if secret else "none" if key is None else "private_key_jwt")
        if (method == "private_key_jwt") != (key is not None) or (method in WITH_SECRET) != bool(secret):
            raise ValueError(f"method={method!r} needs something else than what was passed")
        self.issuer = issuer
        self.key = key
        self._client = OAuthClient(id, None if secret is None else Secret(secret), method)

    def __repr__(self) -> str:
        return f"Registered({self._client.id!r}, issuer={self.issuer!r})"

    def client(self, server: AuthorizationServer, redirect_uri: str | None) -> OAuthClient | None:
        """The client at *server*. None if it is for another."""
        if self.issuer is not None and self.issuer != server.issuer:
            return None
        method = method_with_secret(server) if self._chooses else self._client.method
        return replace(self._client, method=method, redirect_uris=_uris(redirect_uri))


class Cimd:
    """A client whose id is the URL of its Client ID Metadata Document.

    It is used where the authorization server takes such ids. *url* is where your application publishes the
    document; it must list the redirect URI that is used. With a *key*, it must have the public one, and
    "private_key_jwt" as its ``token_endpoint_auth_method``. With *issuer* it is used at that authorization server only.

    Raises:
        ValueError: *url* is not https with a path, or has a user, a fragment or control characters.
    """

    def __init__(self, url: str, *, key: PrivateKey | None = None, issuer: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not is_web(url) or parts.path in ("", "/") or parts.fragment:
            raise ValueError("the URL of a Client ID Metadata Document is https with a path, and no user and fragment")
        self.issuer = issuer
        self.key = key
        self._url = url

    def __repr__(self) -> str:
        return f"Cimd({self._url!r})"

    def client(self, server: AuthorizationServer, redirect_uri: str | None) -> OAuthClient | None:
        """The client at *server*. None if it takes no such ids, or it is for another."""
        if not server.takes_client_urls or self.issuer not in (None, server.issuer):
            return None
        return OAuthClient(self._url, None, "none" if self.key is None else "private_key_jwt", _uris(redirect_uri))


class Dynamic:
    """A client that registers itself (RFC 7591), with *name* as the name that people see.

    *metadata* are further fields of the registration, such as ``client_uri`` or ``contacts``, which win.
    """

    issuer = None
    key = None

    def __init__(self, name: str = "mcp-host", metadata: Mapping[str, object] | None = None) -> None:
        self._name = name
        self._metadata = dict(metadata or {})

    def __repr__(self) -> str:
        return f"Dynamic({self._name!r})"

    async def register(
        self,
        http: AuthClient,
        server: AuthorizationServer,
        redirect_uri: str | None,
        scopes: Sequence[str],
        steps: Steps,
    ) -> OAuthClient | None:
        """A new client at *server*. None if it registers none.

        Raises:
            RegistrationFailed: The server did not.
        """
        url = server.registration_endpoint
        if url is None:
            return None
        body: dict[str, Any] = {
            "client_name": self._name,
            "redirect_uris": _uris(redirect_uri),
            "grant_types": [DEVICE_CODE if redirect_uri is None else "authorization_code", "refresh_token"],
            "response_types": [] if redirect_uri is None else ["code"],
            "token_endpoint_auth_method": _method(server),
            # "Omitting it defaults to "web" under OIDC, which can conflict with native-style redirect URIs"
            "application_type": "native" if is_native(redirect_uri) else "web",
            **self._metadata,
        }
        # "Scope values that the client can use" (RFC 7591, section 2). Servers of the official SDK refuse all others.
        scope = {"scope": " ".join(scopes)} if scopes else {}
        registered: Sequence[str] | None = scopes
        answer = await http.post_json(url, {**scope, **body})
        if scope and answer.status in SCOPES_REFUSED:  # those of a resource may be known to it only in a login
            steps.add("registration", url, f"{answer.outcome}: tried again without scopes")
            registered = None
            answer = await http.post_json(url, body)
        if answer.status not in (200, 201) or answer.json is None:
            steps.add("registration", url, answer.outcome)
            # RFC 7591 has other codes for metadata that another request could mend.
            is_final = answer.status in REGISTRATION_REFUSED or answer.code == INVALID_REQUEST
            advice = f": {BY_HAND}" if is_final and not server.is_assumed else ""
            raise RegistrationFailed(f"registration at {shown(url)}: {answer.outcome}{advice}")
        try:
            client = _read(answer.json, body["token_endpoint_auth_method"], server, redirect_uri, registered)
        except ValueError as exc:
            steps.add("registration", url, f"refused: {exc}")
            raise RegistrationFailed(f"registration at {shown(url)}: {exc}") from None
        steps.add("registration", url, "registered")
        return client


Registration: TypeAlias = Registered | Cimd | Dynamic


def is_native(redirect_uri: str | None) -> bool:
    """Whether the client is a native application: it is redirected to the person's machine, or shows a code."""
    return redirect_uri is None or urlsplit(redirect_uri).hostname in LOOPBACK


def checked_text(argument: str, text: str) -> str:
    """*text*, the *argument* of that name.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty, or has control characters, such as the end of the line that it was read from.
    """
    if not isinstance(text, str):
        raise TypeError(f"{argument} has to be a text, not {type(text).__name__}")
    if not text:
        raise ValueError(f"{argument} is empty")
    if not text.isprintable():
        raise ValueError(f"{argument} has control characters, such as the end of a line")
    return text


def method_with_secret(server: AuthorizationServer) -> TokenAuthMethod:
    """How a client that was registered by hand with a secret authenticates, if that is not known.

    "The authorization server MUST support the HTTP Basic authentication scheme" (RFC 6749, section 2.3.1): some do not.
    """
    offered = server.token_auth_methods or DEFAULT_METHODS
    is_post_only = "client_secret_post" in offered and "client_secret_basic" not in offered
    return "client_secret_post" if is_post_only else "client_secret_basic"


def _method(server: AuthorizationServer) -> TokenAuthMethod:
    """How a client that registers itself authenticates: without a secret, which could be stolen, or as the server prefers.

    Servers of the official SDK prefer "client_secret_post", and revoke tokens for no other.
    """
    return "none" if "none" in (server.token_auth_methods or DEFAULT_METHODS) else _preferred_with_secret(server)


def _preferred_with_secret(server: AuthorizationServer) -> TokenAuthMethod:
    """The first method with a secret that *server* offers. "none" if it offers none of them."""
    offered = server.token_auth_methods or DEFAULT_METHODS
    return next((method for name in offered for method in WITH_SECRET if method == name), "none")


def _uris(redirect_uri: str | None) -> tuple[str, ...]:
    return () if redirect_uri is None else (redirect_uri,)


def _read(
    answer: Mapping[str, object],
    asked: object,
    server: AuthorizationServer,
    redirect_uri: str | None,
    scopes: Iterable[str] | None,
) -> OAuthClient:
    """The client in the response to a registration (RFC 7591, section 3.2.1). With None as *scopes* they stay unknown.

    Raises:
        ValueError: It has none that can be used.
    """
    id, secret = _text(answer, "client_id"), _text(answer, "client_secret")
    if id is None:
        raise ValueError("the answer has no client_id")
    method = answer.get("token_endpoint_auth_method")
    if method is None:  # a server that gives a secret expects it
        method = "none" if secret is None else _preferred_with_secret(server) if asked == "none" else asked
    known = next((known for known in METHODS if known == method), None)
    if known is None:
        raise ValueError("the server wants an authentication at its token endpoint that this client does not know")
    if known != "none" and secret is None:
        raise ValueError("the answer has no client_secret for its token_endpoint_auth_method")
    expires = answer.get("client_secret_expires_at")  # 0 for never
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not 0 < expires <= LAST_SECOND:
        expires = None
    if scopes is not None:
        stated = answer.get("scope")
        given = stated.split() if isinstance(stated, str) and len(stated) <= MAX_STATED_SCOPES else ()
        scopes = tuple(dict.fromkeys([*scopes, *given]))
    return OAuthClient(str(id), secret, known, _uris(redirect_uri), None if expires is None else float(expires), scopes)


def _text(answer: Mapping[str, object], name: str) -> Secret | None:
    """The id or the secret of a client in *answer*. None if it has none.

    Raises:
        ValueError: It must not be used.
    """
    if not isinstance(answer.get(name), str) or not answer[name]:
        return None
    text = Secret(answer[name])
    if len(text) > MAX_TEXT:
        raise ValueError(f"its {name} has {len(text):,} characters, and {MAX_TEXT:,} are the most")
    if not VSCHARS.fullmatch(text):
        raise ValueError(f"its {name} has control characters, or others that are not ASCII")
    return text
