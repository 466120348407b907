"""`OAuth` and the streams that a client keeps open, in both eras, on a clock that does not wait."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host import Change, Client, OAuth, StreamableHttp
from mcp_host.auth import AuthorizationNeeded
from tests.auth.world import World

pytestmark = [pytest.mark.fake_clock, pytest.mark.parametrize("era", ["modern", "legacy"])]

LATER = 200.0  # seconds in which a stream that broke is opened again, if nothing keeps it from that
ACKNOWLEDGED, CHANGED = "notifications/subscriptions/acknowledged", "notifications/tools/list_changed"
OPENING = {
    "capabilities": {"tools": {"listChanged": True}},
    "supportedVersions": ["2026-07-28"],
    "protocolVersion": "2025-11-25",
    "serverInfo": {"name": "streams", "version": "0"},
}
RESULTS = {"server/discover": OPENING, "initialize": OPENING, "tools/call": {"content": []}}


class Streams:
    """A server whose first stream tells of a change and breaks, *meanwhile* something else happens. The second stays open."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.opened = 0
        self._meanwhile = meanwhile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        message = json.loads(await request.body() or b"{}")
        if request.method == "GET" or message.get("method") == "subscriptions/listen":
            response = await self._stream(message.get("id"))
        elif (result := RESULTS.get(message.get("method"))) is not None:
            response = JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})
        else:
            response = Response(status_code=202)
        await response(scope, receive, send)

    async def _stream(self, id: int | None) -> Response:
        self.opened += 1
        if self.opened == 2:
            await anyio.sleep_forever()
        self._meanwhile()
        params = {"_meta": {"io.modelcontextprotocol/subscriptionId": id}, "notifications": {"toolsListChanged": True}}
        methods = [CHANGED] if id is None else [ACKNOWLEDGED, CHANGED]
        messages = [{"jsonrpc": "2.0", "method": method, "params": params} for method in methods]
        events = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
        return Response(events, media_type="text/event-stream")


@asynccontextmanager
async def listening(world: World, auth: OAuth, era: str) -> AsyncIterator[Client]:
    """A client of the world's protected server, when its stream has broken and could be open again."""

    async def note(change: Change) -> None:
        pass

    with anyio.fail_after(50 * LATER):
        transport = StreamableHttp(world.site.url, client=world.client(), auth=auth)
        async with Client(transport, era=era, on_change=note) as client:
            await anyio.sleep(LATER)
            yield client


async def test_a_stream_whose_token_is_refused_is_open_again_with_a_refreshed_one(era: str) -> None:
    world = World()
    world.site.app = streams = Streams(world.server.tokens.clear)

    async with listening(world, world.oauth(), era):
        pass

    assert (streams.opened, world.logins, world.refreshes) == (2, 1, 1)


async def test_a_web_host_has_a_login_for_a_stream_when_a_request_needs_it(era: str) -> None:
    world = World()
    world.site.app = streams = Streams(world.server.forget)
    auth = world.oauth(login=None)

    async def log_in(needing: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(AuthorizationNeeded) as needed:
            await needing()
        await auth.finish(needed.value.state, await world.person(needed.value.url))

    await log_in(lambda: world.call(auth))
    async with listening(world, auth, era) as client:
        refused = len(world.site.seen)
        await anyio.sleep(LATER)
        assert (streams.opened, len(world.site.seen)) == (1, refused)  # it waits
        await log_in(lambda: client.call_tool("x"))
        await anyio.sleep(LATER)
        assert streams.opened == 1
        await client.call_tool("x")
        await anyio.sleep(LATER)

    assert (streams.opened, world.logins) == (2, 2)
