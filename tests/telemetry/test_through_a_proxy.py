"""The spans of a proxy: one on each side, in the trace of its host."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after
from opentelemetry import trace

from mcp_host import Client
from mcp_host.errors import ServerError
from mcp_host.proxy import Proxy
from mcp_host.telemetry import OpenTelemetry
from tests.telemetry.connecting import called
from tests.telemetry.recorder import Recorder, traceparent
from tests.telemetry.servers import server

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_call_has_a_span_on_each_side_which_are_in_the_trace_of_the_host(era: str) -> None:
    host, between = Recorder(), Recorder()
    proxy = Proxy(server, era=era, middleware=[between.middleware()])
    with fail_after(25):
        async with Client(proxy, era=era, middleware=[host.middleware()]) as client:
            reached = await client.call_tool("forecast", {"city": "Oslo"})
            with pytest.raises(ServerError):
                await client.request("x/nothing")
        await proxy.aclose()

    to_host, to_server, failed, _ = between.spans()
    assert (to_host.name, to_host.kind, to_host.links) == ("tools/call forecast", "SERVER", [])
    assert to_host.attributes == {"mcp.method.name": "tools/call", "gen_ai.tool.name": "forecast"}
    id = to_server.attributes["jsonrpc.request.id"]
    assert (to_server.kind, to_server.attributes) == ("CLIENT", called("forecast", era, id))
    assert (failed.name, failed.kind, failed.status) == ("x/nothing", "SERVER", "ERROR")
    assert failed.attributes["error.type"] == "-32601"
    assert to_host.parent == host.traceparent("tools/call forecast").split("-")[2]
    _, sent = [traceparent(span) for span in between.raw() if span.name == "tools/call forecast"]
    assert reached.text == sent
    assert sent.split("-")[1] == host.traceparent("tools/call forecast").split("-")[1]


async def relayed(meta: dict[str, Any], *middleware: OpenTelemetry) -> str:
    """The `traceparent` that the server gets of a host's request with this *meta*."""
    proxy = Proxy(server, middleware=middleware)
    with fail_after(25):
        async with Client(proxy) as client:
            reached = await client.call_tool("forecast", {"city": "Oslo"}, meta=meta)
        await proxy.aclose()
    return reached.text


@pytest.mark.parametrize("older", [False, True])
async def test_without_an_sdk_the_trace_of_the_host_is_passed_on(older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if older:
        monkeypatch.setattr(trace.NoOpTracer, "start_span", lambda *args, **options: trace.INVALID_SPAN)
    assert await relayed({"traceparent": TRACE}, OpenTelemetry()) == TRACE
    assert await relayed({}, OpenTelemetry()) == "None"


async def test_a_trace_that_is_none_is_replaced() -> None:
    recorder = Recorder()
    reached = await relayed({"traceparent": "x", "tracestate": "a=1"}, recorder.middleware())

    to_host, to_server = recorder.raw()[-2:]
    assert to_host.parent is None
    assert reached == traceparent(to_server)
