"""An authorization server for tests, strict where the specifications are, and an MCP server that it protects.

It stands for real ones, which need accounts; `make interop` has one that others wrote. Its person says yes at once.
What a client has to prove is verified: a test fails where that is wrong.
"""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.asgi import serving
from tests.auth.verifying import (
    check,
    raise_refused,
    unverified,
    verify_assertion,
    verify_code,
    verify_login,
    verify_proof,
)

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"

App = Callable[..., Awaitable[None]]
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class Grant:
    """What a person has agreed to."""

    client_id: str
    scope: str
    resource: str
    redirect_uri: str = ""
    challenge: str = ""
    is_used: bool = False
    family: str = ""
    """The code that it comes from."""
    thumbprint: str = ""
    """Of the key that it is bound to, if it is."""


@dataclass
class Issued:
    """An access token."""

    scope: str
    resource: str
    expires_at: float
    family: str
    thumbprint: str


@dataclass
class AuthorizationServer:
    """RFC 6749, 7523, 7591, 7636, 8414, 8707, 9207 and 9449, as far as the specification asks for them.

    *metadata* are further fields of its metadata, *methods* the authentications at its token endpoint. A client may have
    its keys in ``jwks``. A test may take away or change anything while it runs.
    """

    metadata: dict[str, object] = field(default_factory=dict)
    methods: list[str] = field(default_factory=lambda: ["none"])
    lifetime: float = 3600.0
    clock: Callable[[], float] = time.time
    keys: list[Mapping[str, object]] = field(default_factory=list)
    """The public keys (JWK) of what it signs."""
    rotates: bool = True
    gives_refresh_tokens: bool = True
    default_scope: str = ""
    """What a login gets that asks for no scope."""
    grants: str | None = None
    """What each login gets, if it is not what it asked for."""
    answers: dict[str, Endpoint] = field(default_factory=dict)
    """Other answers, by the name of the endpoint: metadata, register, authorize, token."""

    polls: list[str] = field(default_factory=list)
    interval: float = 5
    """Seconds between polls."""
    device_grant: Grant | None = None
    trusts: str = ""
    """The assertion that it gives a token for (RFC 7523, section 2.1)."""
    nonce: str = ""
    """What it wants in proofs, if it does."""
    assertions: list[tuple[str, str]] = field(default_factory=list)
    """The client and the ``kid`` of each."""
    origin: str = ""
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, Grant] = field(default_factory=dict)
    refresh_tokens: dict[str, Grant] = field(default_factory=dict)
    tokens: dict[str, Issued] = field(default_factory=dict)
    revoked: list[str] = field(default_factory=list)
    """Families of which a refresh token came twice: RFC 9700, section 4.14.2."""
    log: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Each request: the name of the endpoint, and what it was given."""

    @property
    def issuer(self) -> str:
        return self.origin

    def count(self, name: str, **given: str) -> int:
        """How many requests of the endpoint *name* had been *given* these."""
        return sum(kind == name and given.items() <= fields.items() for kind, fields in self.log)

    def document(self) -> dict[str, object]:
        document: dict[str, object] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": self.methods,
            "authorization_response_iss_parameter_supported": True,
            "response_types_supported": ["code"],
            "jwks_uri": f"{self.issuer}/jwks" if self.keys else None,
            **self.metadata,
        }
        return {name: value for name, value in document.items() if value is not None}

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        return {
            "metadata": self._metadata,
            "jwks": self._jwks,
            "register": self._register,
            "authorize": self._authorize,
            "device": self._device,
            "token": self._token,
            "revoke": self._revocation,
        }

    def refuse(self, name: str, status: int, **document: object) -> None:
        """Let the endpoint *name* refuse all requests from now on."""

        async def answer(request: Request) -> Response:
            return JSONResponse(document, status)

        self.answers[name] = answer

    def change(self, name: str, change: Callable[[dict[str, Any]], dict[str, object]]) -> None:
        """Let answers of the endpoint *name* have what *change* makes of them."""

        async def answer(request: Request) -> Response:
            response = await self.endpoints[name](request)
            return JSONResponse(change(json.loads(bytes(response.body))), response.status_code)

        self.answers[name] = answer

    def app(self) -> App:
        def routed(name: str) -> Route:
            async def endpoint(request: Request) -> Response:
                return await self.answers.get(name, self.endpoints[name])(request)

            path = "/.well-known/oauth-authorization-server" if name == "metadata" else f"/{name}"
            return Route(path, endpoint, methods=["GET" if name in ("metadata", "jwks", "authorize") else "POST"])

        return Starlette(routes=[routed(name) for name in self.endpoints])

    async def _metadata(self, request: Request) -> Response:
        self.log.append(("metadata", {}))
        return JSONResponse(self.document())

    async def _jwks(self, request: Request) -> Response:
        self.log.append(("jwks", {}))
        return JSONResponse({"keys": self.keys})

    async def _register(self, request: Request) -> Response:
        asked = await request.json()
        self.log.append(("register", {name: str(value) for name, value in asked.items()}))
        if asked["application_type"] not in ("native", "web") or not (
            asked["redirect_uris"] or DEVICE_CODE in asked["grant_types"]
        ):
            return JSONResponse({"error": "invalid_client_metadata"}, 400)
        method = asked["token_endpoint_auth_method"]
        if method not in self.methods:
            return JSONResponse({"error": "invalid_client_metadata"}, 400)
        client = {**asked, "client_id": f"client-{len(self.clients)}"}
        if method != "none":
            client |= {"client_secret": secrets.token_hex(), "client_secret_expires_at": 0}
        self.clients[client["client_id"]] = client
        return JSONResponse(client, 201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        verify_login(asked)
        self.log.append(("authorize", asked))
        client = self.clients.get(asked["client_id"])
        if client is None or asked["redirect_uri"] not in client["redirect_uris"]:
            return Response("unknown client", 400)  # never redirected: RFC 6749, section 4.1.2.1
        answer = {"state": asked["state"], "iss": self.issuer}
        complete = asked["response_type"] == "code" and asked["code_challenge_method"] == "S256" and asked["resource"]
        if not complete or not asked["code_challenge"]:
            answer["error"] = "invalid_request"
        else:
            answer["code"] = code = secrets.token_urlsafe()
            scope = asked.get("scope", self.default_scope) if self.grants is None else self.grants
            grant = Grant(asked["client_id"], scope, asked["resource"])
            grant.redirect_uri, grant.challenge, grant.family = asked["redirect_uri"], asked["code_challenge"], code
            self.codes[code] = grant
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", 302)

    async def _device(self, request: Request) -> Response:
        """RFC 8628, where a test says by `polls` what each poll gets: an error, or an empty text for the token."""
        asked = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        self.log.append(("device", asked))
        self.device_grant = Grant(asked["client_id"], asked.get("scope", ""), asked["resource"])
        codes = {"device_code": "device-code", "user_code": "WDJB-MJHT", "interval": self.interval, "expires_in": 600}
        page = f"{self.issuer}/device-page"
        return JSONResponse(codes | {"verification_uri": page, "verification_uri_complete": f"{page}?user_code=WDJB"})

    async def _token(self, request: Request) -> Response:
        asked = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        thumbprint = ""
        if proofs := request.headers.getlist("dpop"):
            if self.nonce and unverified(proofs[0])[1].get("nonce") != self.nonce:
                return JSONResponse({"error": "use_dpop_nonce"}, 400, {"dpop-nonce": self.nonce})
            thumbprint = verify_proof(proofs, "POST", str(request.url))
        self.log.append(("token", asked))
        client_id = self._authenticated(request, asked)
        if client_id is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        if asked["grant_type"] == DEVICE_CODE and (error := self.polls.pop(0)):
            return JSONResponse({"error": error}, 400)
        grant = self._granted(asked, client_id, thumbprint)
        if grant is None or grant.is_used or grant.client_id != client_id:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if asked.get("resource") != grant.resource:
            return JSONResponse({"error": "invalid_target"}, 400)
        grant.is_used = self.rotates if "refresh_token" in asked else "code" in asked or "device_code" in asked
        grant.thumbprint = thumbprint
        return self.issue(grant)

    def _granted(self, asked: dict[str, str], client_id: str, thumbprint: str) -> Grant | None:
        """What the client gives for a token."""
        match asked["grant_type"]:
            case "authorization_code":
                grant = self.codes.get(asked["code"])
                if grant is None or grant.redirect_uri != asked["redirect_uri"]:
                    return None
                verify_code(asked["code_verifier"], grant.challenge)
                return grant
            case "refresh_token":
                grant = self.refresh_tokens.get(asked["refresh_token"])
                if grant is not None and grant.is_used:
                    self._revoke(grant.family)
                check(grant is None or grant.thumbprint == thumbprint, "a refresh token has no proof by its key")
                return grant
            case "client_credentials":
                return Grant(client_id, asked.get("scope", ""), asked["resource"])
            case "urn:ietf:params:oauth:grant-type:jwt-bearer" if asked["assertion"] == self.trusts:
                return Grant(client_id, asked.get("scope", ""), asked["resource"])
            case _:
                return self.device_grant if asked.get("device_code") == "device-code" else None

    async def _revocation(self, request: Request) -> Response:
        asked = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        self.log.append(("revoke", asked))
        if self._authenticated(request, asked) is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        self.tokens.pop(asked["token"], None)
        self.refresh_tokens.pop(asked["token"], None)
        return Response()

    def issue(self, grant: Grant) -> Response:
        token, kind = secrets.token_urlsafe(), "DPoP" if grant.thumbprint else "Bearer"
        expires_at = self.clock() + self.lifetime
        self.tokens[token] = Issued(grant.scope, grant.resource, expires_at, grant.family, grant.thumbprint)
        answer: dict[str, object] = {"access_token": token, "token_type": kind, "expires_in": self.lifetime}
        if grant.scope:
            answer["scope"] = grant.scope
        if self.gives_refresh_tokens and (grant.is_used or not self.rotates):
            refresh_token = secrets.token_urlsafe()
            self.refresh_tokens[refresh_token] = Grant(
                grant.client_id, grant.scope, grant.resource, family=grant.family, thumbprint=grant.thumbprint
            )
            answer["refresh_token"] = refresh_token
        return JSONResponse(answer)

    def forget(self) -> None:
        """Take back all tokens."""
        self.tokens.clear()
        self.refresh_tokens.clear()

    @property
    def secrets(self) -> set[str]:
        """All that must not be shown."""
        names = ("state", "code_verifier", "code", "refresh_token")
        given = {fields[name] for _, fields in self.log for name in names if name in fields}
        clients = {client["client_secret"] for client in self.clients.values() if "client_secret" in client}
        return {*self.tokens, *self.refresh_tokens, *self.codes, *given, *clients}

    def _revoke(self, family: str) -> None:
        self.revoked.append(family)
        for tokens in (self.tokens, self.refresh_tokens):
            for token in [token for token, each in tokens.items() if each.family == family]:
                del tokens[token]

    def _authenticated(self, request: Request, asked: dict[str, str]) -> str | None:
        header = request.headers.get("authorization", "")
        if header.startswith("Basic "):
            id, _, secret = b64decode(header.removeprefix("Basic ")).decode().partition(":")
            id, secret, method = unquote_plus(id), unquote_plus(secret), "client_secret_basic"
        elif "client_assertion" in asked:
            id, secret, method = unverified(asked["client_assertion"])[1]["iss"], "", "private_key_jwt"
        else:
            id, secret = asked.get("client_id", ""), asked.get("client_secret", "")
            method = "client_secret_post" if secret else "none"
        client = self.clients.get(id)
        if (
            client is None
            or client["token_endpoint_auth_method"] != method
            or client.get("client_secret", "") != secret
        ):
            return None
        if method == "private_key_jwt":
            kid = verify_assertion(asked, id, str(self.document()["issuer"]), client["jwks"]["keys"])
            self.assertions.append((id, kid))
        return id


@dataclass
class Protected:
    """An MCP server that wants a token of *server*: with *scope*, if that is not empty, else with any."""

    app: App
    server: AuthorizationServer
    scope: str = ""
    resource: dict[str, object] = field(default_factory=dict)
    """Further fields of the metadata of the protected resource."""
    tells_metadata: bool = True
    """Whether a challenge has the URL of the metadata."""
    needs: Callable[[bytes], str] = lambda body: ""
    """The further scope that a request needs."""
    origin: str = ""
    seen: list[str] = field(default_factory=list)
    """The Authorization headers of requests; an empty text for none."""
    queries: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        metadata = "/.well-known/oauth-protected-resource/mcp"
        if scope["path"] == metadata:
            document = {"resource": self.url, "authorization_servers": [self.server.issuer], **self.resource}
            response = JSONResponse({name: value for name, value in document.items() if value is not None})
            await response(scope, receive, send)
            return
        if scope["path"] != "/mcp":
            await Response(status_code=404)(scope, receive, send)
            return
        authorization = dict(scope["headers"]).get(b"authorization", b"").decode()
        self.seen.append(authorization)
        self.queries.append(scope["query_string"])
        kind, _, text = authorization.partition(" ")
        token = self.server.tokens.get(text)
        if kind == "DPoP":
            request = Request(scope)
            proofs = request.headers.getlist("dpop")
            thumbprint = verify_proof(proofs, request.method, str(request.url), token=text)
            check(
                token is None or token.thumbprint == thumbprint,
                "a token comes with a proof by another key than its own",
            )
        else:
            check(token is None or not token.thumbprint, "a token that is bound to a key comes without a proof")
        body, replayed = await read_body(receive)
        wanted = [name for name in (self.scope, self.needs(body)) if name]
        at = f'resource_metadata="{self.origin}{metadata}"' if self.tells_metadata else 'realm="mcp"'
        if token is None or token.expires_at <= self.server.clock() or token.resource != self.url:
            scoped = f', scope="{self.scope}"' if self.scope else ""
            challenge = {"www-authenticate": f'Bearer error="invalid_token", {at}{scoped}'}
            await Response(status_code=401, headers=challenge)(scope, receive, send)
            return
        if not set(wanted) <= set(token.scope.split()):
            challenge = {"www-authenticate": f'Bearer error="insufficient_scope", scope="{wanted[-1]}", {at}'}
            await Response(status_code=403, headers=challenge)(scope, receive, send)
            return
        await self.app(scope, replayed, send)


async def read_body(receive: Receive) -> tuple[bytes, Receive]:
    """The body of a request, and a *receive* that gives it again."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Any:
        return next(given, None) or await receive()

    return body, again


@contextmanager
def protected(app: App, server: AuthorizationServer | None = None) -> Iterator[Protected]:
    """Serve *app* protected by *server*, each on its own origin."""
    server = server or AuthorizationServer()
    resource = Protected(app, server)
    try:
        with serving(server.app()) as server.origin, serving(resource) as resource.origin:
            yield resource
    finally:
        raise_refused()


def parameters(url: str) -> dict[str, str]:
    """The query of *url*."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
