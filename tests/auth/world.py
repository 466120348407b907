"""An authorization server and a server that it protects, in this process, with a clock that only tests move."""

from __future__ import annotations

from typing import Any

import httpx
from anyio import Event
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import OAuth
from tests.auth.authorization_server import AuthorizationServer, Protected

CALLBACK = "http://127.0.0.1:1/callback"
START = 1_000_000.0


class Gate:
    """An endpoint whose answers wait until it is open."""

    def __init__(self, server: AuthorizationServer, name: str) -> None:
        self._answer = {
            "metadata": server._metadata,
            "token": server._token,
            "authorize": server._authorize,
        }[name]
        self.is_open = Event()
        self.reached = Event()
        server.answers[name] = self

    async def __call__(self, request: Request) -> Response:
        self.reached.set()
        await self.is_open.wait()
        return await self._answer(request)


class World(httpx.AsyncBaseTransport):
    """A network of an authorization server, a protected server, and others that a test adds to *apps*, by their ports."""

    def __init__(self, **options: Any) -> None:
        self.now = START
        self.server = AuthorizationServer(clock=self.clock, origin="http://127.0.0.1:1001", **options)
        self.site = Protected(_empty, self.server, origin="http://127.0.0.1:1002")
        self.apps: dict[int, Any] = {1001: self.server.app(), 1002: self.site}
        self.logins = 0

    def clock(self) -> float:
        return self.now

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.port is not None
        return await httpx.ASGITransport(self.apps[request.url.port]).handle_async_request(request)

    def client(self, auth: OAuth | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self, auth=auth, timeout=None)

    async def person(self, url: str) -> str:
        """A person who says yes. No one follows the redirect."""
        self.logins += 1
        response = await self.client().get(url)
        assert response.status_code == 302, response.text
        return response.headers["location"]

    def oauth(self, **options: Any) -> OAuth:
        options = {"login": self.person, "redirect_uri": CALLBACK, **options}
        return OAuth(client=self.client(), _clock=self.clock, **options)

    def restarted(self, **options: Any) -> OAuth:
        """Of a process in which no one can log in."""
        return self.oauth(login=None, redirect_uri=None, **options)

    async def call(self, auth: OAuth, body: str = "") -> int:
        """The status of a request to the protected server."""
        return (await self.client(auth).post(self.site.url, content=body)).status_code

    @property
    def token_key(self) -> str:
        """Of the entry that a store has for the protected server."""
        return f"token {self.site.url} {self.server.issuer}"

    @property
    def refreshes(self) -> int:
        return self.server.count("token", grant_type="refresh_token")


async def _empty(scope: Scope, receive: Receive, send: Send) -> None:
    await Response()(scope, receive, send)
