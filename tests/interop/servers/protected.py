"""Protected servers that others wrote: with their own OAuth, or behind an authorization server.

Runs in the environments that `run.py` installs: ``protected.py ISSUER MARK KIND PORT [KIND PORT]...``. The kinds:

sdk: the official SDK, which asks the authorization server *ISSUER* after each token.
sdk-own: the official SDK as its own authorization server.
fastmcp, dpop: FastMCP, which asks *ISSUER*; tokens of "dpop" are bound to a key.
fastmcp-own: FastMCP's provider in memory.
fastmcp-proxy: FastMCP's proxy, whose people log in at *ISSUER*.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

from __future__ import annotations

import json
import secrets
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

import anyio
import httpx
import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenVerifier,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthToken

ISSUER, _, *SERVERS = sys.argv[1:]
INTROSPECTION = f"{ISSUER}token/introspection"
LIFETIME = 3600
RESOURCE_SERVER = ("resource", "the secret of the resource")


async def introspect(token: str) -> dict:
    async with httpx.AsyncClient() as http:
        asked = await http.post(INTROSPECTION, data={"token": token}, auth=RESOURCE_SERVER)
    return asked.raise_for_status().json()


class Introspection(TokenVerifier):
    """Asks the authorization server, as the official SDK's example does."""

    async def verify_token(self, token: str) -> AccessToken | None:
        told = await introspect(token)
        if not told["active"]:
            return None
        return AccessToken(
            token=token,
            client_id=told["client_id"],
            scopes=told.get("scope", "").split(),
            expires_at=told["exp"],
            resource=told["aud"],
            subject=told.get("sub"),
        )


class InMemory(OAuthAuthorizationServerProvider):
    """The authorization server that the official SDK leaves to its users: one person, who says yes at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clients = {}
        self.codes = {}
        self.refresh_tokens = {}
        self.tokens = {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        code = secrets.token_urlsafe()
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh_tokens.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh_tokens[refresh_token.token]
        return self._issue(client, scopes, self.url)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token):
        self.tokens.pop(token.token, None)
        self.refresh_tokens.pop(token.token, None)

    def _issue(self, client, scopes, resource):
        print("grant", flush=True)
        access, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.tokens[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(time.time()) + LIFETIME,
            resource=resource,
        )
        self.refresh_tokens[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes)
        return OAuthToken(access_token=access, expires_in=LIFETIME, scope=" ".join(scopes), refresh_token=refresh)


class StepUp:
    """The tool `change` needs the scope "write": FastMCP refuses other tokens."""

    def __init__(self, app, verifier, metadata) -> None:
        from fastmcp.server.auth.middleware import RequireAuthMiddleware
        from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
        from starlette.middleware.authentication import AuthenticationMiddleware

        self._app = app
        strict = RequireAuthMiddleware(app, ["write"], metadata)
        self._strict = AuthenticationMiddleware(strict, backend=BearerAuthBackend(verifier))

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again():
            return next(given, None) or await receive()

        asked = json.loads(body) if body.startswith(b"{") else {}
        needs_more = asked.get("method") == "tools/call" and asked["params"]["name"] == "change"
        await (self._strict if needs_more else self._app)(scope, again, send)


class Bound:
    """Tokens that are bound to a key (RFC 9449): what is left of a request whose proof is right is one of a bearer."""

    def __init__(self, app, url: str) -> None:
        self._app = app
        self._url = url
        self._seen = set()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or not self._url.endswith(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        kind, _, token = headers.get(b"authorization", b"").decode().partition(" ")
        problem = "there is no token"
        if token:
            problem = "no token of DPoP" if kind != "DPoP" else await self._problem(scope, headers, token)
        if problem:
            print(f"proof refused: {problem}", flush=True)
            headers[b"authorization"] = b""
        else:
            headers[b"authorization"] = f"Bearer {token}".encode()
            print("proof accepted", flush=True)
        await self._app({**scope, "headers": list(headers.items())}, receive, send)

    async def _problem(self, scope, headers, token) -> str:
        proof = headers.get(b"dpop", b"").decode()
        head = json.loads(_decoded(proof.partition(".")[0]))
        key = ECKey.import_key(head["jwk"])
        claims = jwt.decode(proof, key, algorithms=["ES256"]).claims
        told = await introspect(token)
        hashed = urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=").decode()
        wanted = {"htm": scope["method"], "htu": self._url, "ath": hashed}
        if head["typ"] != "dpop+jwt" or "d" in head["jwk"]:
            return "no proof"
        if wrong := [name for name, value in wanted.items() if claims.get(name) != value]:
            return f"wrong {wrong}"
        if told.get("cnf", {}).get("jkt") != key.thumbprint():
            return "of another key"
        if abs(time.time() - claims["iat"]) > 60 or claims["jti"] in self._seen:
            return "old"
        self._seen.add(claims["jti"])
        return ""


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def of_the_sdk(kind: str, origin: str, url: str):
    try:
        from mcp.server import MCPServer
    except ImportError:  # version 1
        from mcp.server.fastmcp import FastMCP as MCPServer
    own = kind == "sdk-own"
    settings = AuthSettings(
        issuer_url=origin if own else ISSUER,
        resource_server_url=url,
        required_scopes=["read"],
        validate_token_resource=True,
        client_registration_options=ClientRegistrationOptions(enabled=own, valid_scopes=["read", "write"]),
        revocation_options=RevocationOptions(enabled=own),
    )
    given = {"auth_server_provider": InMemory(url)} if own else {"token_verifier": Introspection()}
    server = MCPServer("protected", auth=settings, **given)
    server.tool()(who)
    return server.streamable_http_app()


def of_fastmcp(kind: str, origin: str, url: str):
    from fastmcp import FastMCP
    from fastmcp.server.auth import RemoteAuthProvider
    from fastmcp.server.auth.oauth_proxy import OAuthProxy
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
    from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier
    from key_value.aio.stores.memory import MemoryStore

    path = url.removeprefix(origin)
    id, secret = RESOURCE_SERVER
    verifier = IntrospectionTokenVerifier(
        introspection_url=INTROSPECTION, client_id=id, client_secret=secret, required_scopes=["read"]
    )
    match kind:
        case "fastmcp-own":
            options = ClientRegistrationOptions(enabled=True, valid_scopes=["read", "write"])
            auth = InMemoryOAuthProvider(
                base_url=origin,
                client_registration_options=options,
                revocation_options=RevocationOptions(enabled=True),
                required_scopes=["read"],
            )
        case "fastmcp-proxy":
            auth = OAuthProxy(
                upstream_authorization_endpoint=f"{ISSUER}auth",
                upstream_token_endpoint=f"{ISSUER}token",
                upstream_revocation_endpoint=f"{ISSUER}token/revocation",
                upstream_client_id="proxy",
                upstream_client_secret="the secret of the proxy",
                token_verifier=verifier,
                base_url=origin,
                client_storage=MemoryStore(),
            )
        case _:
            verifier.audience = url
            auth = RemoteAuthProvider(verifier, [ISSUER], origin)
    server = FastMCP("protected", auth=auth)
    server.tool(who)
    server.tool(change)
    app = server.http_app(path=path)
    if kind in ("fastmcp-own", "fastmcp-proxy"):
        return app
    stepping = StepUp(app, verifier, f"{origin}/.well-known/oauth-protected-resource{path}")
    return Bound(stepping, url) if kind == "dpop" else stepping


def who() -> list[str]:
    """Whose token it is, and its scopes."""
    token = get_access_token()
    subject = (getattr(token, "claims", None) or {}).get("sub") or getattr(token, "subject", None)
    return [subject or token.client_id, *sorted(token.scopes)]


def change() -> list[str]:
    """Needs more than to read."""
    return who()


async def serve() -> None:
    async with anyio.create_task_group() as tasks:
        for kind, port in zip(SERVERS[::2], SERVERS[1::2], strict=True):
            origin = f"http://127.0.0.1:{port}"
            url = f"{origin}/mcp"
            app = (of_the_sdk if kind.startswith("sdk") else of_fastmcp)(kind, origin, url)
            tasks.start_soon(uvicorn.Server(uvicorn.Config(app, port=int(port))).serve)


anyio.run(serve)
