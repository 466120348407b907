"""Stateless requests (2026-07-28), also beside a session on the same connection."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group
from pydantic import BaseModel

from mcp_host.testing import Context, RequestError, Server, ToolError
from mcp_host.types import (
    CallToolResult,
    ClientCapabilities,
    ReadResourceResult,
    SamplingCapability,
    TextContent,
    TextResourceContents,
)
from tests.extent import on_both
from tests.testing.raw import INITIALIZE, MODERN, Wire, connect, failed, legacy, meta, modern, text, waiting

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run

ALL = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
SERVER_INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}}


class Sum(BaseModel):
    value: int


def full(**options: Any) -> Server:
    server = Server("s", instructions="Be kind.", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    def total(a: int) -> Sum:
        return Sum(value=a)

    @server.tool
    def listed() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="x")], structured_content=[1, None], meta={"mine": 1})

    @server.tool
    def broken() -> None:
        raise ToolError("no")

    @server.tool
    def refused() -> None:
        raise RequestError(7, "never", {"why": "so"})

    @server.tool
    def who(ctx: Context) -> dict[str, object]:
        return {"name": ctx.client_info.name, "version": ctx.protocol_version, "id": ctx.request_id}

    @server.resource("r://a", mime_type="text/plain")
    def a() -> str:
        return "words"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.completion("greet", "name")
    def names(value: str, settled: object) -> list[str]:
        return [value + "a"]

    return server


async def test_discovery_returns_the_capabilities() -> None:
    async with modern(full(ttl=1.5)) as raw:
        result = await raw.result("server/discover")

    assert result == {
        "resultType": "complete",
        "supportedVersions": ALL,
        "capabilities": {
            "logging": {},
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
        },
        "instructions": "Be kind.",
        "ttlMs": 1500,
        "cacheScope": "public",
        "_meta": SERVER_INFO,
    }


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
async def test_lists_have_a_ttl(method: str) -> None:
    async with modern(full()) as raw, legacy(full()) as old:
        result = await raw.result(method)
        same = await old.result(method)

    assert result == {**same, "resultType": "complete", "ttlMs": 0, "cacheScope": "public", "_meta": SERVER_INFO}


@pytest.mark.parametrize("ttl", [-1, float("inf"), float("nan")])
def test_a_ttl_is_a_number_of_seconds(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl is a number of seconds, 0 or more, not "):
        Server("s", ttl=ttl)


async def test_a_read_resource_may_be_cached_privately() -> None:
    async with modern(full(ttl=60)) as raw:
        result = await raw.complete("resources/read", {"uri": "r://a"})

    contents = {"uri": "r://a", "mimeType": "text/plain", "text": "words"}
    assert result == {"contents": [contents], "ttlMs": 60_000, "cacheScope": "private"}


async def test_a_function_can_override_the_ttl_and_the_meta() -> None:
    server = Server("s")

    @server.resource("r://a")
    def a() -> ReadResourceResult:
        contents = TextResourceContents(uri="r://a", text="x")
        return ReadResourceResult(contents=[contents], ttl_ms=5, cache_scope="public", meta={"mine": 1})

    async with modern(server) as raw:
        result = await raw.result("resources/read", {"uri": "r://a"})

    assert result == {
        "resultType": "complete",
        "contents": [{"uri": "r://a", "text": "x"}],
        "ttlMs": 5,
        "cacheScope": "public",
        "_meta": {**SERVER_INFO, "mine": 1},
    }


INVALID = "Invalid arguments: a: Input should be a valid integer"
SAME: list[tuple[str, Wire, Wire]] = [
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, text("3") | {"structuredContent": {"result": 3}}),
    ("tools/call", {"name": "total", "arguments": {"a": 1}}, text('{"value":1}') | {"structuredContent": {"value": 1}}),
    ("tools/call", {"name": "listed"}, text("x") | {"structuredContent": [1, None], "_meta": {"mine": 1}}),
    ("tools/call", {"name": "broken"}, failed("no")),
    ("tools/call", {"name": "add", "arguments": {"a": "x", "b": 2}}, failed(INVALID)),
    (
        "prompts/get",
        {"name": "greet", "arguments": {"name": "you"}},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello you"}}]},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "m"}},
        {"completion": {"values": ["ma"], "total": 1, "hasMore": False}},
    ),
]


async def test_stateless_requests_call_the_same_functions(subtests: pytest.Subtests) -> None:
    for method, params, result in SAME:
        with subtests.test(f"{method} {params}"):
            async with modern(full()) as raw:
                assert await raw.complete(method, params) == result


NOT_STATELESS = ("ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "made/up")
REFUSED: list[tuple[str, Wire, Wire]] = [
    ("resources/read", {"uri": "r://b"}, {"code": -32602, "message": "Resource not found", "data": {"uri": "r://b"}}),
    ("tools/call", {"name": "none"}, {"code": -32602, "message": "Unknown tool: none"}),
    ("tools/call", {"name": "refused"}, {"code": 7, "message": "never", "data": {"why": "so"}}),
    ("tools/list", {"cursor": "x"}, {"code": -32602, "message": "Invalid cursor: x"}),
    *[(method, {}, {"code": -32601, "message": f"Method not found: {method}"}) for method in NOT_STATELESS],
]


async def test_unanswerable_requests_are_refused(subtests: pytest.Subtests) -> None:
    for method, params, error in REFUSED:
        with subtests.test(f"{method} {params}"):
            async with modern(full()) as raw:
                assert await raw.error(method, params) == error


async def test_methods_of_undeclared_capabilities_are_refused() -> None:
    common = {
        "tools/list": "tools",
        "resources/read": "resources",
        "prompts/get": "prompts",
        "completion/complete": "completions",
    }
    server = Server("empty")
    async with modern(server) as new, legacy(server) as old:
        for raw, needed in ((new, common), (old, {**common, "resources/subscribe": "resources"})):
            for method, missing in needed.items():
                message = f"{method} needs {missing}, which was not declared"
                assert await raw.error(method) == {"code": -32601, "message": message}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"protocolVersion": MODERN}, "io.modelcontextprotocol/clientCapabilities: Field required"),
        (
            {"protocolVersion": 5, "clientCapabilities": {}},
            "io.modelcontextprotocol/protocolVersion: Input should be a valid string",
        ),
        (
            {"protocolVersion": MODERN, "clientCapabilities": {}, "logLevel": "loud"},
            "io.modelcontextprotocol/logLevel: Input should be 'debug', 'info', 'notice', 'warning', 'error', "
            "'critical', 'alert' or 'emergency'",
        ),
    ],
    ids=["no capabilities", "no version to speak of", "no such level"],
)
async def test_a_request_with_incomplete_meta_is_malformed(said: Wire, problem: str) -> None:
    asked = {f"io.modelcontextprotocol/{key}": value for key, value in said.items()}
    async with connect(full()) as raw:
        assert await raw.error("tools/list", {"_meta": asked}) == {
            "code": -32602,
            "message": f"malformed RequestMetaObject: {problem}",
        }


@pytest.mark.parametrize("version", ["2025-11-25", "1900-01-01"])
async def test_a_meta_with_an_unsupported_revision_is_refused(version: str) -> None:
    async with modern(full(versions=(MODERN, "2025-11-25"))) as raw:
        error = await raw.error("tools/list", {"_meta": meta(version=version)})

    assert error == {
        "code": -32022,
        "message": "Unsupported protocol version: this server supports 2026-07-28, 2025-11-25",
        "data": {"supported": ["2026-07-28", "2025-11-25"], "requested": version},
    }


async def test_a_modern_server_tells_an_older_client_its_revisions() -> None:
    async with connect(full(versions=(MODERN,))) as raw:
        refused = await raw.error("initialize", INITIALIZE)
        malformed = await raw.error("initialize")
        unsigned = await raw.error("tools/list")

    assert refused == {
        "code": -32022,
        "message": "Unsupported protocol version: this server supports 2026-07-28",
        "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
    }
    assert malformed["data"] == {"supported": ["2026-07-28"], "requested": ""}
    assert unsigned == {
        "code": -32602,
        "message": "malformed RequestMetaObject: io.modelcontextprotocol/protocolVersion: Field required",
    }


async def test_a_legacy_server_answers_no_stateless_requests() -> None:
    server = full(versions=("2025-11-25",))
    async with connect(server) as raw:
        early = await raw.error("server/discover", {"_meta": meta()})
        await raw.initialize()
        late = await raw.error("server/discover", {"_meta": meta()})
        listed = await raw.result("tools/list", {"_meta": meta()})

    assert early == {"code": -32600, "message": "not initialized yet"}
    assert late == {"code": -32601, "message": "Method not found: server/discover"}
    assert "resultType" not in listed


async def test_requests_of_both_eras_are_answered_on_one_connection() -> None:
    async with connect(full()) as raw:
        raw.meta = meta()
        first = await raw.complete("tools/call", {"name": "who"})
        raw.meta = {}
        await raw.initialize(version="2025-06-18")
        second = await raw.call("who")
        raw.meta = meta()
        third = await raw.complete("tools/call", {"name": "who"})

    versions = [result["structuredContent"]["version"] for result in (first, second, third)]
    assert versions == ["2026-07-28", "2025-06-18", "2026-07-28"]


async def test_the_name_of_the_client_is_optional() -> None:
    anonymous = meta()
    del anonymous["io.modelcontextprotocol/clientInfo"]
    async with connect(full()) as raw:
        raw.meta = anonymous
        result = await raw.complete("tools/call", {"name": "who"})

    assert result["structuredContent"] == {"name": "", "version": "2026-07-28", "id": 1}


async def test_each_request_has_its_own_client_capabilities() -> None:
    server, seen = Server("s"), []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.client_capabilities)

    async with modern(server, capabilities={"sampling": {}}) as raw:
        await raw.complete("tools/call", {"name": "look"})
        raw.meta = meta({})
        await raw.complete("tools/call", {"name": "look"})

    assert seen == [ClientCapabilities(sampling=SamplingCapability()), ClientCapabilities()]


@on_both
async def test_progress_and_logs_are_sent_if_the_request_asks_for_them() -> None:
    server = Server("s")

    @server.tool
    async def chatter(ctx: Context) -> None:
        await ctx.report_progress(1, 2, "half")
        await ctx.log("debug", "small")
        await ctx.log("warning", {"a": 1}, logger="l")

    async with modern(server) as raw:
        silent = await raw.complete("tools/call", {"name": "chatter"})
        raw.meta = meta() | {"progressToken": "t", "io.modelcontextprotocol/logLevel": "info"}
        await raw.start("chatter")
        progress, log, answer = [await raw.receive() for _ in range(3)]

    assert silent == {"content": []}
    assert progress["params"] == {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
    assert log["params"] == {"level": "warning", "logger": "l", "data": {"a": 1}}
    assert answer["result"]["content"] == []


@on_both
async def test_a_request_that_is_cancelled_is_not_answered() -> None:
    begun, ended = waiting(server := Server("s"))
    async with modern(server) as raw:
        id = await raw.start("wait")
        await begun.wait()
        await raw.notify("notifications/cancelled", {"requestId": id})
        await ended.wait()

        assert await raw.nothing_more()


MISSING: list[tuple[Wire, str, Wire, str, Wire]] = [
    ({}, "tools/call", {"name": "sample"}, "sampling", {"sampling": {}}),
    ({}, "resources/read", {"uri": "r://a"}, "sampling", {"sampling": {}}),
    ({}, "prompts/get", {"name": "sample"}, "sampling", {"sampling": {}}),
    ({"sampling": {}}, "tools/call", {"name": "tools"}, "sampling.tools", {"sampling": {"tools": {}}}),
    ({"sampling": {}}, "tools/call", {"name": "context"}, "sampling.context", {"sampling": {"context": {}}}),
    ({"elicitation": {"url": {}}}, "tools/call", {"name": "form"}, "elicitation.form", {"elicitation": {"form": {}}}),
    ({"elicitation": {}}, "tools/call", {"name": "url"}, "elicitation.url", {"elicitation": {"url": {}}}),
    ({}, "tools/call", {"name": "roots"}, "roots", {"roots": {}}),
    ({}, "tools/call", {"name": "several"}, "sampling", {"sampling": {}}),
]


async def test_a_missing_client_capability_is_an_error(subtests: pytest.Subtests) -> None:
    for capabilities, method, params, missing, required in MISSING:
        with subtests.test(f"{method} {params} {capabilities}"):
            async with modern(asking(), capabilities=capabilities) as raw:
                error = await raw.error(method, params)

            assert error == {
                "code": -32021,
                "message": f"the client did not declare {missing}",
                "data": {"requiredCapabilities": required},
            }


async def test_a_tool_can_catch_a_missing_client_capability() -> None:
    async with modern(asking(), capabilities={"sampling": {}}) as raw:
        result = await raw.complete("tools/call", {"name": "careful"})

    assert result == text("the client did not declare roots")


async def test_in_legacy_revisions_a_missing_capability_is_an_error_result() -> None:
    async with legacy(asking(), capabilities={}) as raw:
        single = await raw.call("sample")
        several = await raw.call("several")

    assert single == several == failed("the client did not declare sampling")


def asking() -> Server:
    server = Server("s")

    @server.tool
    @server.prompt
    @server.resource("r://a")
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("Why?")).text

    @server.tool
    async def tools(ctx: Context) -> None:
        await ctx.sample("Why?", tools=[])

    @server.tool
    async def context(ctx: Context) -> None:
        await ctx.sample("Why?", include_context="thisServer")

    @server.tool
    async def form(ctx: Context) -> None:
        await ctx.elicit("Sure?", {"type": "object", "properties": {}})

    @server.tool
    async def url(ctx: Context) -> None:
        await ctx.elicit_url("Go", "https://example.com", "e")

    @server.tool
    async def roots(ctx: Context) -> None:
        await ctx.list_roots()

    @server.tool
    async def several(ctx: Context) -> None:
        async with create_task_group() as tasks:
            tasks.start_soon(ctx.sample, "a")
            tasks.start_soon(ctx.sample, "b")

    @server.tool
    async def careful(ctx: Context) -> str:
        try:
            await ctx.list_roots()
        except Exception as exc:
            return str(exc)
        return "roots"

    return server
