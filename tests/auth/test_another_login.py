"""Another person logs in within one client: what was private to the one before is theirs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from mcp_host import Change, Client, ListChanged, OAuth, StreamableHttp, ToolPins, ToolPolicy
from mcp_host.auth import LoginFailed, MemoryTokens
from mcp_host.errors import ToolChanged
from mcp_host.sampling import Allow, Sampling, SamplingRequest
from mcp_host.types import TextResourceContents, Tool
from tests.auth.authorization_server import Protected, protected
from tests.auth.world import Answers, oauth, person

FRESH = {"resultType": "complete", "ttlMs": 600_000}
OFFERED: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "resources": {}}}


class Private(Answers):
    """What it says is for one token alone, but for public resources, and fresh for ten minutes."""

    site: Protected

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        owner, params = self.site.seen[-1], message.get("params", {})
        scope = "public" if params.get("uri") == "x://public" else "private"
        results: dict[str, dict[str, Any]] = {
            "server/discover": OFFERED,
            "tools/list": {"tools": [{"name": "of", "description": owner, "inputSchema": {"type": "object"}}]},
            "resources/read": {"contents": [{"uri": params.get("uri"), "text": owner}]},
        }
        if method not in results:
            return None
        result = {**FRESH, "cacheScope": scope, **results[method]}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.fixture
def private() -> Iterator[Private]:
    app = Private()
    with protected(app) as app.site:
        yield app


async def bearer(auth: OAuth, url: str) -> str:
    saved = await auth.saved(url)
    assert saved is not None
    assert saved.token is not None
    return f"Bearer {saved.token.access_token}"


async def read(client: Client, uri: str = "x://private") -> str:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    return contents.text


async def test_a_private_result_is_for_the_login_that_it_was_given_to(private: Private) -> None:
    url, auth = private.site.url, oauth()
    client = Client(StreamableHttp(url, auth=auth))
    with anyio.fail_after(25):
        async with client:
            ada, public = await read(client), await read(client, "x://public")
            assert ada == public == await bearer(auth, url)
        async with client:
            assert await read(client) == ada, "the same person"
            await auth.login(url)
            carol = await bearer(auth, url)
            assert await read(client) == carol != ada
            private.site.server.tokens.clear()
            await client.call_tool("x")
            assert await read(client) == carol != await bearer(auth, url), "a refreshed token is of the same login"
            await auth.logout(url)
            assert await read(client, "x://public") == public
        await auth.login(url)
        async with client:
            assert await read(client) == await bearer(auth, url)

    assert private.methods.count("resources/read") == 4


async def test_without_a_login_no_private_result_is_served(private: Private) -> None:
    async def once(url: str) -> str:
        if private.methods:
            raise LoginFailed("not now")
        return await person(url)

    url, auth = private.site.url, oauth(login=once)
    with anyio.fail_after(25):
        async with Client(StreamableHttp(url, auth=auth)) as client:
            await read(client)
            await auth.logout(url)
            with pytest.raises(LoginFailed, match="not now"):
                await read(client)


async def test_a_login_in_another_process_counts_as_soon_as_it_is_known(private: Private) -> None:
    url, store = private.site.url, MemoryTokens()
    here, there = oauth(tokens=store), oauth(tokens=store)
    with anyio.fail_after(25):
        async with Client(StreamableHttp(url, auth=here)) as client:
            ada = await read(client)
            await there.login(url)
            assert await read(client) == ada
            private.site.server.tokens.pop(ada.removeprefix("Bearer "))
            await client.call_tool("x")
            assert await read(client) == await bearer(there, url) != ada


async def test_the_tools_that_another_person_has_are_listed_before_they_are_called_or_handed_over(
    private: Private,
) -> None:
    """Pins, callbacks and the cache see those of the login of the moment."""
    url, auth, pins = private.site.url, oauth(), ToolPins()
    shown = list[list[Tool]]()
    handed_over = anyio.Event()

    async def show(tools: list[Tool]) -> None:
        shown.append(tools)
        handed_over.set()

    options: dict[str, Any] = {"tools": ToolPolicy(pins=pins), "list_changed": ListChanged(tools=show, delay=0)}
    with anyio.fail_after(25):
        async with Client(StreamableHttp(url, auth=auth), **options) as client:
            (tool,) = await client.list_tools()
            assert tool.description == await bearer(auth, url)
            assert not shown
            await auth.login(url)
            with pytest.raises(ToolChanged):
                await client.call_tool("of")
            await handed_over.wait()

    assert (shown, private.methods.count("tools/call")) == ([[]], 0)


async def test_a_session_is_begun_anew_for_another_login_and_goes_on_with_more_scopes(private: Private) -> None:
    url, auth = private.site.url, oauth()
    private.site.needs = lambda body: "write" if b"write" in body else ""
    with anyio.fail_after(25):
        async with Client(StreamableHttp(url, auth=auth), era="legacy") as client:
            await client.call_tool("x")
            await client.call_tool("write")
            private.site.server.tokens.clear()
            await client.call_tool("write")
            assert private.methods.count("initialize") == 1
            await auth.logout(url)
            await client.call_tool("x")
            assert private.methods.count("initialize") == 2


class Asking(Private):
    """Wants an answer of the model before it answers a call."""

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        if method != "tools/call" or "inputResponses" in message["params"]:
            return await super().respond(method, message)
        params = {"maxTokens": 9, "messages": [{"role": "user", "content": {"type": "text", "text": "Who?"}}]}
        wanted = {"m": {"method": "sampling/createMessage", "params": params}}
        result = {"resultType": "input_required", "inputRequests": wanted}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def test_what_is_allowed_for_the_session_ends_with_the_login() -> None:
    sessions, auth, app = list[object](), oauth(), Asking()

    def approve(request: SamplingRequest) -> Allow:
        sessions.append(request.session)
        return Allow("session")

    def answer(request: SamplingRequest) -> str:
        return "me"

    with protected(app) as app.site, anyio.fail_after(25):
        url = app.site.url
        async with Client(
            StreamableHttp(url, auth=auth), sampling=Sampling(with_tools=answer, approve=approve)
        ) as client:
            for _ in range(2):
                await client.call_tool("x")
            assert len(sessions) == 1
            await auth.login(url)
            await client.call_tool("x")

    first, second = sessions
    assert first is not second


async def test_changes_are_listened_to_with_the_token_of_the_last_login(site: Protected) -> None:
    url, auth = site.url, oauth()
    listened, is_anew = list[str](), threading.Event()

    def note(body: bytes) -> str:
        if b'"subscriptions/listen"' in body:
            listened.append(site.seen[-1])
            if len(set(listened)) == 2:
                is_anew.set()
        return ""

    async def on_change(change: Change) -> None:
        pass

    site.needs = note
    with anyio.fail_after(25):
        async with Client(StreamableHttp(url, auth=auth), on_change=on_change) as client:
            await client.call_tool("add", {"a": 2, "b": 3})
            ada = await bearer(auth, url)
            await auth.login(url)
            await client.call_tool("add", {"a": 2, "b": 3})
            await anyio.to_thread.run_sync(is_anew.wait, 20)
            assert listened == [ada, await bearer(auth, url)]
