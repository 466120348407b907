"""An authorization server, a server that it protects, and a person: over HTTP, or in this process, with a clock that only tests move."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from anyio import Event, create_task_group, fail_after
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host import Client, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, LoginFailed, Machine, MemoryTokens, OAuth
from mcp_host.auth.grants import Token
from mcp_host.auth.storage.saved import Saved
from mcp_host.testing import Server
from tests.auth.authorization_server import AuthorizationServer, Protected, protected

CALLBACK = "http://127.0.0.1:1/callback"
START = 1_000_000.0
SOON = 25.0  # seconds, on a busy machine


@asynccontextmanager
async def soon() -> AsyncIterator[TaskGroup]:
    """Tasks that end soon."""
    with fail_after(SOON):
        async with create_task_group() as tasks:
            yield tasks


# Over HTTP


def new_browser() -> httpx.AsyncClient:
    """One for plain HTTP: it reads no certificates, which takes a while."""
    return httpx.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def person(url: str) -> str:
    """A person who says yes. No one follows the redirect."""
    async with new_browser() as browser:
        return await _redirect(browser, url)


async def _redirect(browser: httpx.AsyncClient, url: str) -> str:
    response = await browser.get(url)
    assert response.status_code == 302, response.text
    return response.headers["location"]


def oauth(**options: Any) -> OAuth:
    return OAuth(**{"login": person, "redirect_uri": CALLBACK, **options})


def server() -> Server:
    server = Server("protected")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


@pytest.fixture
def site() -> Iterator[Protected]:
    with protected(server().asgi()) as site:
        yield site


async def call(site: Protected, auth: OAuth) -> None:
    with fail_after(SOON):
        async with Client(StreamableHttp(site.url, auth=auth)) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}


# In this process


class Gate:
    """An endpoint whose answers wait until it is open."""

    def __init__(self, server: AuthorizationServer, name: str) -> None:
        self._answer = server.answers.get(name, server.endpoints[name])
        self.is_open = Event()
        self.reached = Event()
        self.waiting = 0
        server.answers[name] = self

    async def __call__(self, request: Request) -> Response:
        self.reached.set()
        self.waiting += 1
        try:
            await self.is_open.wait()
        finally:
            self.waiting -= 1
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

    def another_server(self, **options: Any) -> AuthorizationServer:
        other = AuthorizationServer(clock=self.clock, origin="http://127.0.0.1:1003", **options)
        self.apps[1003] = other.app()
        return other

    def client(self, auth: OAuth | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self, auth=auth, timeout=None)

    async def person(self, url: str) -> str:
        """As the other one, and counted."""
        self.logins += 1
        return await _redirect(self.client(), url)

    def oauth(self, **options: Any) -> OAuth:
        options = {"login": self.person, "redirect_uri": CALLBACK, **options}
        return OAuth(client=self.client(), _clock=self.clock, **options)

    def machine(self, machine: Machine, **options: Any) -> OAuth:
        return OAuth.machine(machine, client=self.client(), _clock=self.clock, **options)

    def restarted(self, **options: Any) -> OAuth:
        """Of a process in which no one can log in."""
        return self.oauth(login=None, redirect_uri=None, **options)

    async def log_in(self, *, later: float = 0, **options: Any) -> OAuth:
        """As `oauth`, of a person who has logged in, so many seconds *later*."""
        auth = self.oauth(**options)
        assert await self.call(auth) == 200
        self.now += later
        return auth

    async def saved(self, auth: OAuth) -> tuple[Saved, Token]:
        """What is saved for the protected server, and the token in it."""
        saved = await auth.saved(self.site.url)
        assert saved is not None
        assert saved.token is not None
        return saved, saved.token

    async def needed(self, auth: OAuth, body: str = "") -> AuthorizationNeeded:
        """What a call raises where no one can log in."""
        with pytest.raises(AuthorizationNeeded) as needed:
            await self.call(auth, body)
        return needed.value

    async def given_up(self, auth: OAuth) -> None:
        """A call whose login ends because of a logout."""
        with pytest.raises(LoginFailed, match=r"/mcp: logged out before there was a token"):
            await self.call(auth)

    async def finish(self, auth: OAuth, needed: AuthorizationNeeded) -> None:
        await auth.finish(needed.state, await self.person(needed.url))

    async def call(self, auth: OAuth, body: str = "") -> int:
        """The status of a request to the protected server."""
        return (await self.client(auth).post(self.site.url, content=body)).status_code

    async def log_in_again(self, auth: OAuth) -> Token:
        """The token of a login that is asked for."""
        await auth.login(self.site.url)
        return (await self.saved(auth))[1]

    @property
    def scopes(self) -> list[str | None]:
        """Those that each login has asked for."""
        return [fields.get("scope") for name, fields in self.server.log if name == "authorize"]

    @property
    def token_key(self) -> str:
        """Of the entry that a store has for the protected server."""
        return f"token {self.site.url} {self.server.issuer}"

    @property
    def refreshes(self) -> int:
        return self.server.count("token", grant_type="refresh_token")


async def logged_in(*, later: float = 0) -> tuple[World, OAuth]:
    """A world in which a person has logged in, so many seconds *later*. Its tokens last for 100 seconds."""
    world = World(lifetime=100)
    return world, await world.log_in(later=later)


async def gives_up(url: str) -> str:
    """A person who does not log in."""
    raise LoginFailed("not now")


async def rewrite(store: MemoryTokens, key: str, change: Callable[[str], str | None]) -> None:
    """Store what *change* makes of what is stored."""
    text = await store.load(key)
    assert text is not None
    assert await store.swap(key, text, change(text))


async def _empty(scope: Scope, receive: Receive, send: Send) -> None:
    await Response()(scope, receive, send)


OPENING = {
    "capabilities": {"tools": {"listChanged": True}},
    "supportedVersions": ["2026-07-28"],
    "protocolVersion": "2025-11-25",
    "serverInfo": {"name": "protected", "version": "0"},
}
RESULTS = {"server/discover": OPENING, "initialize": OPENING, "tools/call": {"content": []}, "ping": {}}


class Answers:
    """It answers at once, except where a subclass does something else in `respond`."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = json.loads(await Request(scope, receive).body() or b"{}")
        method = message.get("method", scope["method"])
        self.methods.append(method)
        response = await self.respond(method, message)
        if response is None and (result := RESULTS.get(method)) is not None:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            response = JSONResponse(answer, headers={"mcp-session-id": "s"} if method == "initialize" else None)
        await (response or Response(status_code=405 if method == "GET" else 202))(scope, receive, send)

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        """Another response to a request: to one with *method* in its *message*, or to a GET."""
