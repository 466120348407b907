"""A server over HTTP whose place another one takes, which speaks the other era: it costs one call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, ClientGroup, EraCache, StreamableHttp
from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError
from tests.client.sites import DISCOVERED, refused, response
from tests.client.support import EMPTY, INITIALIZED
from tests.extent import on_both

pytestmark = on_both

URL = "http://mcp.test/mcp"
UNSUPPORTED = refused(400, -32022, {"supported": ["2026-07-28"]})
NO_SESSION = refused(400, -32000)
Refusal = Callable[[dict[str, Any]], httpx.Response]


def status(number: int) -> Refusal:
    return lambda message: httpx.Response(number)


class Replaced:
    """A server that speaks one *era*, and answers requests of the other with *refusals*."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.refusals = {"legacy": NO_SESSION, "modern": UNSUPPORTED}
        self.heard: list[str] = []
        self.instead: dict[str, Refusal] = {}

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        message = json.loads(request.content)
        method, era = message["method"], self.era
        self.heard.append(method)
        if method in self.instead:
            return self.instead[method](message)
        if ("_meta" in message.get("params", {})) != (era == "modern") or (method == "initialize") > (era == "legacy"):
            return self.refusals[era](message)
        if method == "initialize":
            return httpx.Response(200, json=response(message, INITIALIZED).json(), headers={"mcp-session-id": era})
        if "id" not in message:
            return httpx.Response(202)
        results = {"server/discover": DISCOVERED, "tools/call": {**EMPTY, "resultType": "complete"}}
        return response(message, results.get(method, {"tools": []}))


@asynccontextmanager
async def client_of(server: Replaced, **options: Any) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
        with anyio.fail_after(200):
            async with Client(StreamableHttp(URL, client=http), **options) as client:
                await client.call_tool("x")
                yield client


CHANGES: list[tuple[str, str, Refusal, str]] = [
    ("legacy", "modern", UNSUPPORTED, "2026-07-28"),
    ("legacy", "modern", refused(404, -32601), "2026-07-28"),
    ("legacy", "modern", status(404), "2026-07-28"),
    ("legacy", "modern", refused(400, -32020), "2026-07-28"),
    ("modern", "legacy", NO_SESSION, "2025-11-25"),
    ("modern", "legacy", status(404), "2025-11-25"),
    ("modern", "legacy", status(422), "2025-11-25"),
]


async def test_a_server_that_speaks_the_other_era_now_costs_one_call(subtests: pytest.Subtests) -> None:
    for old, new, refusal, version in CHANGES:
        for lazy in (False, True):
            with subtests.test(old=old, new=new, refusal=refusal({"id": 1}).content, lazy=lazy):
                server, cache = Replaced(old), EraCache()
                server.refusals[new] = refusal
                async with client_of(server, lazy=lazy, era_cache=cache) as client:
                    server.era = new
                    with pytest.raises(ConnectionClosed, match="no longer speaks revision") as lost:
                        await client.call_tool("x")

                    assert (lost.value.may_have_run, client.connected) == (False, False)
                    assert [*cache.export().values()] == [new]
                    assert (await client.call_tool("x")).content == []
                    assert client.protocol_version == version


async def test_such_a_client_connects_again_on_demand(subtests: pytest.Subtests) -> None:
    for old, new, _, version in (CHANGES[0], CHANGES[4]):
        with subtests.test(old=old):
            server = Replaced(old)
            async with client_of(server) as client:
                server.era = new
                with pytest.raises(ConnectionClosed):
                    await client.list_tools()
                await client.connect()

                assert client.protocol_version == version


async def test_calls_that_meet_the_other_era_together_share_one_probe() -> None:
    server = Replaced("legacy")
    failures: list[McpError] = []

    async def call(client: Client) -> None:
        try:
            await client.call_tool("x")
        except McpError as exc:
            failures.append(exc)

    async with client_of(server) as client:
        server.era = "modern"
        server.heard.clear()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call, client)

    assert {type(failure) for failure in failures} == {ConnectionClosed}
    assert server.heard.count("server/discover") == 1


async def test_a_refusal_of_a_server_that_has_not_changed_is_raised_as_it_is(subtests: pytest.Subtests) -> None:
    """The connection stays open."""
    unavailable, other = status(503), refused(400, -32022, {"supported": ["2099-01-01"]})
    table: list[tuple[str, str, str, Refusal, dict[str, Refusal], list[str]]] = [
        ("modern, as it was", "modern", "auto", NO_SESSION, {}, ["server/discover"]),
        ("legacy, as it was", "legacy", "auto", refused(400, -32602), {}, ["server/discover"]),
        ("about the request", "modern", "auto", refused(400, -32602), {}, []),
        ("credentials", "modern", "auto", status(403), {}, []),
        ("pinned", "modern", "modern", NO_SESSION, {}, []),
        ("no answer to the probe", "modern", "auto", NO_SESSION, {"server/discover": unavailable}, ["server/discover"]),
        ("another revision", "modern", "auto", NO_SESSION, {"server/discover": other}, ["server/discover"]),
        ("no message", "modern", "auto", NO_SESSION, {"server/discover": status(202)}, ["server/discover"]),
        (
            "a lost session",
            "legacy",
            "auto",
            status(404),
            {"initialize": status(400)},
            ["initialize", "server/discover"],
        ),
    ]
    for case, era, pinned, refusal, instead, probed in table:
        with subtests.test(case):
            server = Replaced(era)
            async with client_of(server, era=pinned) as client:
                server.heard.clear()
                server.instead = {"tools/call": refusal, **instead}
                with pytest.raises(HttpStatusError):
                    await client.call_tool("x")

                assert client.connected
                assert server.heard[1:] == probed


@pytest.mark.fake_clock
async def test_a_ping_finds_the_other_era() -> None:
    server = Replaced("legacy")

    async with client_of(server, ping_interval=10.0) as client:
        server.era = "modern"
        await anyio.sleep(11)

        assert not client.connected


@pytest.mark.fake_clock
async def test_a_group_calls_a_server_in_its_other_era_after_one_failure() -> None:
    server = Replaced("legacy")
    server.instead["tools/list"] = lambda message: response(message, {"tools": [{"name": "x", "inputSchema": {}}]})
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
        with anyio.fail_after(200):
            async with ClientGroup({"s": StreamableHttp(URL, client=http)}) as group:
                name = (await group.list_tools())[0].name
                server.era = "modern"
                with pytest.raises(ConnectionClosed):
                    await group.call_tool(name)
                await anyio.sleep(60)

                assert (await group.call_tool(name)).content == []
