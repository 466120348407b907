"""Parameters that HTTP headers repeat: a proxy demands them of its hosts, and sends them to its server."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import pytest
from anyio import fail_after
from pydantic import Field

from mcp_host import Client, StreamableHttp
from mcp_host.proxy import Proxy
from mcp_host.proxy.mirrored import MirroredParameters
from mcp_host.serving.errors import RequestError
from mcp_host.testing import ScriptedPeer, Server
from tests.extent import on_both
from tests.proxy.servers import ERAS, text_of, through
from tests.testing import raw

REGION: dict[str, Any] = {"type": "string", "x-mcp-header": "Region"}


def tool(name: str, **properties: object) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def annotated(era: str) -> Server:
    server = Server("annotated", versions=ERAS[era])

    @server.tool
    def find(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return region

    @server.tool
    def bad(x: Annotated[list[str], Field(json_schema_extra={"x-mcp-header": "X"})]) -> str:
        return ""

    return server


@on_both
async def test_a_call_over_http_has_the_headers_of_the_tool_that_the_host_has_listed() -> None:
    sent: list[str] = []

    async def note(request: httpx.Request) -> None:
        sent.extend(value for name, value in request.headers.items() if name.startswith("mcp-param"))

    async with (
        annotated("modern").http() as url,
        httpx.AsyncClient(event_hooks={"request": [note]}) as http,
        through(Proxy(StreamableHttp(url, client=http)), "modern") as host,
    ):
        assert [each.name for each in await host.list_tools()] == ["find"]  # the other may not be called over HTTP
        assert text_of(await host.call_tool("find", {"region": "süd"})) == "süd"

    assert sent == ["=?base64?c8O8ZA==?="]


@on_both
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_host_over_http_has_to_repeat_them(era: str) -> None:
    """Also if the server does not know of it."""
    call = raw.with_meta(raw.call(1, "find", arguments={"region": "south"}), {})
    headers = {"mcp-protocol-version": raw.MODERN, "mcp-method": "tools/call", "mcp-name": "find"}
    headers["accept"] = "application/json, text/event-stream"
    proxy = Proxy(annotated(era))
    with fail_after(25):
        async with proxy.http() as url, httpx.AsyncClient() as http:
            async with Client(url, era="modern") as host:
                await host.list_tools()
                assert text_of(await host.call_tool("find", {"region": "south"})) == "south"
            for region, status in ((None, 400), ("north", 400), ("south", 200)):
                named = {} if region is None else {"mcp-param-region": region}
                assert (await http.post(url, json=call, headers=headers | named)).status_code == status


def test_the_pages_of_a_listing_are_taken_together_and_the_next_listing_replaces_them() -> None:
    mirrored = MirroredParameters()
    first, second = {"tools": [tool("a", x=REGION), tool("plain")]}, {"tools": [tool("b", x=REGION)]}
    for page, is_first, names in ((first, True, ["a"]), (second, False, ["a", "b"]), (second, True, ["b"])):
        assert mirrored.note(page, first=is_first) == page
        assert [*mirrored.schemas] == names


def test_a_tool_with_an_invalid_annotation_is_left_out_and_what_is_no_tool_passes(caplog: Any) -> None:
    listed = [tool("bad", x={"type": "object", "x-mcp-header": "X"}), tool("good", x=REGION), 7, {"name": "no schema"}]
    mirrored = MirroredParameters()

    assert mirrored.note({"tools": listed, "more": 1}, first=True) == {"tools": listed[1:], "more": 1}
    assert [*mirrored.schemas] == ["good"]
    assert "the tool 'bad' is left out: the x-mcp-header 'X' is on a parameter whose type is 'object'" in caplog.text
    for odd in ({"tools": 7}, {}, {"tools": [tool("half of a character", x={"\ud800": {}})]}):
        assert mirrored.note(odd, first=True) == odd
        assert mirrored.schemas == {}


def test_what_is_no_parameter_or_cannot_be_sent_in_a_header_is_none_or_an_error() -> None:
    mirrored = MirroredParameters()
    mirrored.note({"tools": [tool("find", x={"type": "integer", "x-mcp-header": "X"})]}, first=True)

    assert mirrored.headers({"name": "find", "arguments": {"x": 1}}) == {"Mcp-Param-X": "1"}
    for params in ({"name": "other", "arguments": {"x": 1}}, {"name": "find", "arguments": 1}, {"name": "find"}):
        assert mirrored.headers(params) == {}
    assert mirrored.headers({"name": "find", "arguments": {}}) == {}
    with pytest.raises(RequestError, match="an argument that goes into a header cannot"):
        mirrored.headers({"name": "find", "arguments": {"x": 2**60}})


@on_both
async def test_a_server_over_a_pipe_may_offer_any_tool() -> None:
    listed = [tool("bad", x={"type": "object", "x-mcp-header": "X"}), tool("good", x=REGION)]

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        await peer.reply(
            await peer.receive("tools/list"),
            {"resultType": "complete", "tools": listed, "ttlMs": 0, "cacheScope": "public"},
        )

    async with through(Proxy(ScriptedPeer(script)), "modern") as host:
        assert [each.name for each in await host.list_tools()] == ["bad", "good"]
