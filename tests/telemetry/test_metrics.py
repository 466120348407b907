"""The durations of requests and of sessions."""

from __future__ import annotations

import time

import anyio
import pytest
from opentelemetry.sdk.metrics.export import Histogram

from mcp_host import Client
from mcp_host.errors import ConnectFailed, ConnectionClosed, ServerError
from mcp_host.testing import ScriptedPeer
from tests.client.support import HANDSHAKE, STATELESS, Era
from tests.extent import on_both
from tests.telemetry.connecting import address, in_both_eras, network, reached, recorded
from tests.telemetry.recorder import Recorder
from tests.telemetry.servers import server

OPERATION = "mcp.client.operation.duration"
SESSION = "mcp.client.session.duration"


async def test_the_histograms_are_in_seconds_with_the_boundaries_of_the_conventions(recorder: Recorder) -> None:
    begun = time.perf_counter()
    async with recorded(recorder, server) as client:
        await client.call_tool("forecast", {"city": "Oslo"})
    elapsed = time.perf_counter() - begun

    assert recorder.metrics().keys() == {OPERATION, SESSION}
    for name, metric in recorder.metrics().items():
        assert metric.unit == "s"
        assert isinstance(metric.data, Histogram)
        for point in recorder.points(name):
            assert tuple(point.explicit_bounds) == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
            assert 0 < point.sum <= elapsed


async def test_the_hosts_name_for_a_server_is_in_spans_and_metrics(recorder: Recorder) -> None:
    async with recorded(recorder, server, name="weather office") as client:
        await client.call_tool("forecast", {"city": "Oslo"})

    points = [point for name in (OPERATION, SESSION) for point in recorder.points(name)]
    for attributes in [*(span.attributes for span in recorder.spans()), *(point.attributes or {} for point in points)]:
        assert attributes["service.peer.name"] == "weather office"


async def test_the_durations_of_requests_have_few_series(recorder: Recorder) -> None:
    """A URI, an id or content would make a series for each of its values."""
    async with recorded(recorder, server, era="legacy", record_content=True) as client:
        await client.call_tool("forecast", {"city": "Oslo"})
        await client.call_tool("forecast", {"city": "Oslo"})
        await client.read_resource("notes://today")
        with pytest.raises(ServerError):
            await client.call_tool("tomorrow")

    version = {"mcp.protocol.version": "2025-11-25"}
    call = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", **version}
    error = {"error.type": "-32602", "rpc.response.status_code": "-32602"}
    assert recorder.series(OPERATION) == [
        ({"mcp.method.name": "initialize", **version}, 1),
        ({**call, "gen_ai.tool.name": "forecast"}, 2),
        ({"mcp.method.name": "resources/read", **version}, 1),
        ({**call, "gen_ai.tool.name": "tomorrow", **error}, 1),
    ]


async def test_codes_that_a_server_makes_up_add_one_series(recorder: Recorder) -> None:
    """The spans say what they were."""
    codes = [-32601, -32050, 7, 8, -40000]

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        for code in codes:
            await peer.reply_error(await peer.receive("tools/call"), code, "no")

    async with recorded(recorder, script, era="legacy") as client:
        for _ in codes:
            with pytest.raises(ServerError):
                await client.call_tool("t")

    series = [(found["error.type"], found["rpc.response.status_code"]) for found, _ in recorder.series(OPERATION)[1:]]
    assert series == [("-32601", "-32601"), ("-32050", "-32050"), ("_OTHER", "_OTHER")]
    assert [span.attributes["error.type"] for span in recorder.spans()] == list(map(str, codes))


@on_both
@in_both_eras
async def test_a_session_that_the_client_closes_ends_without_an_error(
    era: str, version: str, recorder: Recorder
) -> None:
    async with recorded(recorder, server, era=era) as client:
        await client.aclose()
        await client.connect()

    assert recorder.series(SESSION) == [({"mcp.protocol.version": version}, 2)]


@pytest.mark.fake_clock
async def test_the_duration_of_a_session_begins_when_connecting_has_ended(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        request = await peer.receive("initialize")
        await anyio.sleep(3)
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "0"}}
        await peer.reply(request, result)

    with anyio.fail_after(100):
        async with Client(ScriptedPeer(script), era="legacy", middleware=[recorder.middleware()]):
            await anyio.sleep(40)

    [point] = recorder.points(SESSION)
    assert point.sum == pytest.approx(40)


@on_both
@pytest.mark.parametrize("era", [HANDSHAKE, STATELESS], ids=["2025-11-25", "2026-07-28"])
async def test_a_session_that_the_server_ends_has_an_error_at_once(era: Era, recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await end.wait()
        await peer.aclose()

    end = anyio.Event()
    async with recorded(recorder, script) as client:
        assert SESSION not in recorder.metrics()
        end.set()
        with pytest.raises(ConnectionClosed):
            await client.list_tools()
        with pytest.raises(ConnectionClosed):
            await client.list_tools()
        found = recorder.series(SESSION)

    assert found == [({"mcp.protocol.version": era.version, "error.type": "mcp_host.errors.ConnectionClosed"}, 1)]
    assert recorder.series(SESSION) == found


async def test_an_http_session_that_is_lost_ends_and_the_next_one_begins(recorder: Recorder) -> None:
    async with reached("http") as transport, recorded(recorder, transport, era="legacy") as client:
        await client.call_tool("forecast", {"city": "Oslo"})
        await server.expire_sessions()
        await client.call_tool("forecast", {"city": "Oslo"})

    common = {"mcp.protocol.version": "2025-11-25", **network(transport), **address(transport)}
    assert recorder.series(SESSION) == [({**common, "error.type": "mcp_host.errors.SessionLost"}, 1), (common, 1)]


@on_both
async def test_a_connection_that_never_began_is_no_session(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.receive()
        await peer.aclose()

    with pytest.raises(ConnectFailed):
        async with recorded(recorder, script, era="legacy"):
            pass

    assert SESSION not in recorder.metrics()
