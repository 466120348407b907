"""What the client writes into the ``_meta`` of its requests."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import baggage, context, trace

from mcp_host.testing import ScriptedPeer
from tests.client.support import HANDSHAKE, STATELESS, Era
from tests.telemetry.connecting import recorded
from tests.telemetry.recorder import Recorder

in_both_eras = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS], ids=["2025-11-25", "2026-07-28"])

STATE = trace.TraceState([("vendor", "1")])
REMOTE = trace.SpanContext(0x1234, 0x5678, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=STATE)


async def sent(recorder: Recorder, era: Era, meta: dict[str, Any] | None) -> dict[str, Any]:
    """The ``_meta`` of one call, made with a trace state and baggage, and with this *meta*. Without that of the era."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.reply(await peer.receive("tools/call"), {"content": []})

    peer = ScriptedPeer(script)
    async with recorded(recorder, peer) as client:
        token = context.attach(baggage.set_baggage("user", "ada"))
        try:
            with trace.use_span(trace.NonRecordingSpan(REMOTE)):
                await client.call_tool("t", meta=meta)
        finally:
            context.detach(token)

    found: dict[str, Any] = peer.received[-1]["params"]["_meta"]
    return {name: value for name, value in found.items() if name not in era.meta}


@in_both_eras
async def test_a_request_carries_the_trace_its_state_and_the_baggage(era: Era, recorder: Recorder) -> None:
    meta = await sent(recorder, era, {"mine": 1})

    parent = recorder.traceparent("tools/call t")
    assert meta == {"mine": 1, "traceparent": parent, "tracestate": "vendor=1", "baggage": "user=ada"}
    assert parent.startswith(f"00-{0x1234:032x}-")


@in_both_eras
async def test_a_trace_or_baggage_that_the_application_has_put_there_stays(era: Era, recorder: Recorder) -> None:
    trace_of_another = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    assert await sent(Recorder(), era, trace_of_another) == trace_of_another

    meta = await sent(recorder, era, {"baggage": "user=grace"})
    trace_of_call = {"traceparent": recorder.traceparent("tools/call t"), "tracestate": "vendor=1"}
    assert meta == {"baggage": "user=grace", **trace_of_call}


async def test_results_are_cached_although_each_request_has_another_trace(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        await peer.reply(await peer.receive("tools/list"), {"resultType": "complete", "tools": [], "ttlMs": 60_000})

    peer = ScriptedPeer(script)
    async with recorded(recorder, peer) as client:
        for _ in range(2):
            assert await client.list_tools() == []

    assert [message["method"] for message in peer.received] == ["server/discover", "tools/list"]
    assert [span.attributes.get("jsonrpc.request.id") for span in recorder.spans()] == ["2", None]


async def test_a_subscription_has_no_span(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {"listChanged": True}})
        listen = await peer.receive("subscriptions/listen")
        await peer.acknowledge(listen)
        heard.append(listen["params"])

    heard: list[dict[str, Any]] = []
    async with recorded(recorder, script, on_change=lambda change: None) as client:
        assert client.connected

    assert [params["notifications"] for params in heard] == [{"toolsListChanged": True}]
    assert [span.name for span in recorder.raw()] == ["server/discover"]
    assert recorder.series("mcp.client.operation.duration") == [({"mcp.method.name": "server/discover"}, 1)]
