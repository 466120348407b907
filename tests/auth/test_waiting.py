"""`OAuth` in a client: what a call waits for, and what its timeouts do meanwhile. On a clock that does not wait."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host import Client, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, OAuth
from mcp_host.errors import HttpStatusError
from tests.auth.world import World

pytestmark = pytest.mark.fake_clock

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])

OPENING = {
    "capabilities": {"tools": {}},
    "supportedVersions": ["2026-07-28"],
    "protocolVersion": "2025-11-25",
    "serverInfo": {"name": "waited for", "version": "0"},
}
RESULTS = {"server/discover": OPENING, "initialize": OPENING, "tools/call": {"content": []}}
LONG = 1000.0  # seconds, which take no time


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    message = json.loads(await Request(scope, receive).body() or b"{}")
    result = RESULTS.get(message.get("method"))
    response = None if result is None else JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})
    await (response or Response(status_code=405 if scope["method"] == "GET" else 202))(scope, receive, send)


@pytest.fixture
def world() -> World:
    world = World(lifetime=100)
    world.site.app = answers
    return world


def client(world: World, auth: OAuth, era: str, **options: Any) -> Client:
    return Client(StreamableHttp(world.site.url, client=world.client(), auth=auth), era=era, **options)


@ERAS
async def test_a_lazy_client_that_needs_a_login_says_so_at_once(world: World, era: str) -> None:
    auth = world.oauth(login=None)

    with anyio.fail_after(LONG):
        async with client(world, auth, era, lazy=True) as web_host:
            began = anyio.current_time()
            for _ in range(5):
                with pytest.raises(AuthorizationNeeded) as needed:
                    await web_host.call_tool("x")
            await auth.finish(needed.value.state, await world.person(needed.value.url))
            await web_host.call_tool("x")
            took = anyio.current_time() - began

    assert took == 0


@ERAS
async def test_a_lazy_client_that_needs_a_login_forgets_that_its_server_was_down(world: World, era: str) -> None:
    auth = world.oauth(login=None)

    async def down(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=503)(scope, receive, send)

    site, world.apps[1002] = world.apps[1002], down
    with anyio.fail_after(LONG):
        async with client(world, auth, era, lazy=True) as web_host:
            for _ in range(5):
                with pytest.raises(HttpStatusError):
                    await web_host.call_tool("x")
            world.apps[1002] = site
            took = []
            for _ in range(3):
                began = anyio.current_time()
                with pytest.raises(AuthorizationNeeded):
                    await web_host.call_tool("x")
                took.append(anyio.current_time() - began)

    assert took == [pytest.approx(3), 0, 0]
