"""The span of each request that the client makes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import TraceFlags

from mcp_host import Client, StreamableHttp, telemetry
from mcp_host.errors import ConnectionClosed, HttpStatusError, NotAdvertised, RequestTimeout, ServerError
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.telemetry import OpenTelemetry
from mcp_host.testing import ScriptedPeer
from mcp_host.types import ProgressNotificationParams
from tests.client.sites import Site
from tests.extent import on_both
from tests.telemetry.connecting import address, answering, called, everywhere, in_both_eras, network, reached, recorded
from tests.telemetry.recorder import Recorded, Recorder, traceparent
from tests.telemetry.servers import server


@everywhere
async def test_a_call_has_a_client_span_whose_trace_goes_to_the_server(
    how: str, era: str, version: str, recorder: Recorder
) -> None:
    async with reached(how) as transport, recorded(recorder, transport, era=era) as client:
        result = await client.call_tool("forecast", {"city": "Oslo"})

    attributes = called("forecast", version, **network(transport), **address(transport))
    assert recorder.spans() == [Recorded(name="tools/call forecast", kind="CLIENT", attributes=attributes)]
    assert result.text == recorder.traceparent("tools/call forecast")


@in_both_eras
async def test_every_request_has_a_span_with_its_target(era: str, version: str, recorder: Recorder) -> None:
    async with recorded(recorder, server, era=era) as client:
        await client.list_tools()
        await client.get_prompt("greet", {"name": "Ada"})
        await client.read_resource("notes://today")

    def span(id: int, method: str, target: str = "", **more: str) -> Recorded:
        common = {"mcp.method.name": method, "jsonrpc.request.id": str(id), "mcp.protocol.version": version}
        return Recorded(name=f"{method} {target}".strip(), kind="CLIENT", attributes=common | more)

    assert recorder.spans() == [
        span(2, "tools/list"),
        span(3, "prompts/get", "greet", **{"gen_ai.prompt.name": "greet"}),
        span(4, "resources/read", **{"mcp.resource.uri": "notes://today"}),
    ]


async def test_a_notification_has_a_span_without_an_id_and_carries_the_trace(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        heard.append(await peer.receive("notifications/weather"))
        done.set()

    heard: list[dict[str, Any]] = []
    done = anyio.Event()
    async with recorded(recorder, script, era="legacy") as client:
        await client.notify("notifications/weather", {"rain": True})
        await done.wait()

    name = "notifications/weather"
    attributes = {"mcp.method.name": name, "mcp.protocol.version": "2025-11-25"}
    assert recorder.spans() == [Recorded(name=name, kind="CLIENT", attributes=attributes)]
    assert heard[0]["params"] == {"rain": True, "_meta": {"traceparent": recorder.traceparent(name)}}


async def test_connecting_has_spans_within_the_span_that_connects(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()

    with recorder.tracer.start_as_current_span("start"):
        async with recorded(recorder, script):
            pass

    start, discover, initialize = recorder.raw()
    assert [start.name, discover.name, initialize.name] == ["start", "server/discover", "initialize"]
    assert discover.parent == initialize.parent == start.get_span_context()
    assert discover.attributes == {
        "mcp.method.name": "server/discover",
        "jsonrpc.request.id": "1",
        "error.type": "-32601",
        "rpc.response.status_code": "-32601",
    }
    assert initialize.attributes == {
        "mcp.method.name": "initialize",
        "jsonrpc.request.id": "2",
        "mcp.protocol.version": "2025-11-25",
    }


async def test_a_tool_that_failed_is_a_tool_error(recorder: Recorder) -> None:
    async with recorded(recorder, server, era="modern") as client:
        await client.call_tool("forecast", {"city": "Atlantis"})

    [span] = recorder.spans()
    assert (span.status, span.attributes["error.type"]) == ("ERROR", "tool_error")
    assert "rpc.response.status_code" not in span.attributes


async def test_an_error_response_is_its_code_and_its_message(recorder: Recorder) -> None:
    script = answering(lambda peer, call: peer.reply_error(call, -32602, "no tool t\n  at line 3"))
    async with recorded(recorder, script, era="legacy", record_content=True) as client:
        with pytest.raises(ServerError):
            await client.call_tool("t")

    attributes = called("t", **{"error.type": "-32602", "rpc.response.status_code": "-32602"})
    attributes["gen_ai.tool.call.arguments"] = "{}"
    assert recorder.spans() == [
        Recorded(name="tools/call t", kind="CLIENT", attributes=attributes, status="ERROR: no tool t")
    ]


async def test_an_http_status_without_a_json_rpc_error_is_the_error(recorder: Recorder) -> None:
    site = Site(tools_call=httpx.Response(500, text="overloaded"))
    with anyio.fail_after(25):
        async with site.client(middleware=[recorder.middleware()]) as client:
            with pytest.raises(HttpStatusError):
                await client.call_tool("t")

    where = {"network.transport": "tcp", "network.protocol.name": "http", "server.address": "server.test"}
    [span] = recorder.spans()
    assert span.attributes == {**called("t", "2026-07-28", **{"error.type": "500"}), **where, "server.port": 80}
    assert span.status == "ERROR", "the error quotes the response"


@pytest.mark.fake_clock
async def test_a_timeout_is_one(recorder: Recorder) -> None:
    async with recorded(recorder, answering(lambda peer, call: anyio.sleep(10)), era="legacy") as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=5)

    [span] = recorder.spans()
    assert (span.attributes["error.type"], span.status) == ("timeout", "ERROR")


@on_both
async def test_a_cancelled_call_ends_its_span(recorder: Recorder) -> None:
    async def cancel(peer: ScriptedPeer, call: dict[str, Any]) -> None:
        scope.cancel()

    scope = anyio.CancelScope()
    async with recorded(recorder, answering(cancel), era="legacy") as client:
        with scope:
            await client.call_tool("t")

    assert scope.cancelled_caught
    [span] = recorder.spans()
    assert (span.attributes["error.type"], span.status) == ("cancelled", "ERROR")


async def test_a_lost_connection_is_named_by_its_exception_without_the_servers_stderr(recorder: Recorder) -> None:
    program = "import sys; sys.stdin.readline(); sys.stderr.write('token 123'); sys.stderr.flush(); sys.exit(3)"
    handshake = (
        "import sys, json; print(json.dumps({'jsonrpc': '2.0', 'id': json.loads(sys.stdin.readline())['id'], 'result':"
        " {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's', 'version': '0'}}}"
        "), flush=True); sys.stdin.readline(); "
    )
    command = [sys.executable, "-c", handshake + program]
    async with recorded(recorder, command, era="legacy", record_content=True) as client:
        with pytest.raises(ConnectionClosed, match="token 123"):
            await client.call_tool("t")

    [span] = recorder.spans()
    assert span.attributes["error.type"] == "mcp_host.errors.ConnectionClosed"
    assert span.status.startswith("ERROR: ")
    assert "token 123" not in span.status


async def test_a_call_that_is_not_possible_has_a_span_too(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()

    async with recorded(recorder, script, era="legacy") as client:
        with pytest.raises(NotAdvertised):
            await client.call_tool("t")

    [span] = recorder.spans()
    assert span.attributes["error.type"] == "mcp_host.errors.NotAdvertised"
    assert "jsonrpc.request.id" not in span.attributes


async def progress(peer: ScriptedPeer, call: dict[str, Any]) -> None:
    await peer.notify("notifications/progress", {"progressToken": call["id"], "progress": 1})
    await peer.reply(call, {"content": []})


async def test_an_error_in_a_progress_callback_is_named_as_the_application_raised_it(recorder: Recorder) -> None:
    async def on_progress(progress: ProgressNotificationParams) -> None:
        raise KeyError("mine")

    async with recorded(recorder, answering(progress), era="legacy", record_content=True) as client:
        with pytest.raises(KeyError):
            await client.call_tool("t", on_progress=on_progress)

    [span] = recorder.spans()
    assert (span.attributes["error.type"], span.status) == ("KeyError", "ERROR: 'mine'")


# Parents


@on_both
async def test_the_callers_span_is_the_parent_and_callbacks_run_within_the_call(recorder: Recorder) -> None:
    def on_progress(progress: ProgressNotificationParams) -> None:
        with recorder.tracer.start_as_current_span("progress"):
            pass

    async with recorded(recorder, answering(progress), era="legacy") as client:
        with recorder.tracer.start_as_current_span("agent"):
            await client.call_tool("t", on_progress=on_progress)

    assert [(span.name, span.parent) for span in recorder.spans()] == [
        ("agent", None),
        ("tools/call t", "agent"),
        ("progress", "tools/call t"),
    ]


@on_both
async def test_two_clients_with_one_middleware_have_separate_traces(recorder: Recorder) -> None:
    async def call(client: Client, agent: str) -> None:
        with recorder.tracer.start_as_current_span(agent):
            told[agent] = (await client.call_tool("forecast", {"city": "Oslo"})).text

    told: dict[str, str] = {}
    middleware = [recorder.middleware()]
    with anyio.fail_after(25):
        async with (
            Client(server, era="legacy", middleware=middleware) as one,
            Client(server, era="modern", middleware=middleware) as other,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(call, one, "first")
            tasks.start_soon(call, other, "second")

    first, second = [span for span in recorder.raw() if span.name in told]
    calls = [span for span in recorder.raw() if span.name == "tools/call forecast"]
    found = {(first if span.parent == first.get_span_context() else second).name: traceparent(span) for span in calls}
    assert found == told
    assert found["first"] != found["second"]


async def test_middleware_outside_is_around_the_span_and_middleware_inside_within_it() -> None:
    async def busy_once(peer: ScriptedPeer, call: dict[str, Any]) -> None:
        await peer.reply_error(call, -32000, "busy")
        await peer.reply(await peer.receive("tools/call"), {"content": []})

    async def retry(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        try:
            return await call_next(request)
        except ServerError:
            return await call_next(request)

    outside, inside = Recorder(), Recorder()
    peer = ScriptedPeer(answering(busy_once))
    with anyio.fail_after(25):
        async with Client(peer, era="legacy", middleware=[outside.middleware(), retry]) as client:
            await client.call_tool("t")
        async with Client(peer, era="legacy", middleware=[retry, inside.middleware()]) as client:
            await client.call_tool("t")

    def seen(recorder: Recorder) -> list[tuple[str, str]]:
        return [(span.status, span.attributes["jsonrpc.request.id"]) for span in recorder.spans()]

    assert seen(outside) == [("UNSET", "3")]
    assert seen(inside) == [("ERROR", "2"), ("UNSET", "3")]
    sent = [call["params"]["_meta"]["traceparent"] for call in peer.received if call["method"] == "tools/call"]
    assert sent[0] == sent[1] == outside.traceparent("tools/call t")
    assert len(set(sent[2:])) == 2


async def offline(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
    """Answers calls in place of the server."""
    if isinstance(request, ClientRequest) and request.method == "tools/call":
        return {"content": [{"type": "text", "text": "from memory"}]}
    return await call_next(request)


async def test_a_request_that_middleware_answers_has_no_id(recorder: Recorder) -> None:
    async with recorded(recorder, server, era="legacy", inside=[offline]) as client:
        assert (await client.call_tool("t")).text == "from memory"

    [span] = recorder.spans()
    assert span.attributes == called("t", id=None)


def test_a_unix_socket_and_default_ports_are_addresses_too() -> None:
    def tcp(host: str, port: int) -> dict[str, object]:
        return {"network.transport": "tcp", "server.address": host, "server.port": port}

    addresses: list[tuple[StreamableHttp, dict[str, object]]] = [
        (
            StreamableHttp("http://localhost/mcp", uds="/tmp/mcp.sock"),
            {"network.transport": "unix", "server.address": "/tmp/mcp.sock"},
        ),
        (StreamableHttp("https://user:secret@example.com/mcp?key=1"), tcp("example.com", 443)),
        (StreamableHttp("http://[::1]:8000/mcp"), tcp("::1", 8000)),
    ]
    common = {"mcp.method.name": "ping", "network.protocol.name": "http"}

    for transport, expected in addresses:
        assert telemetry._attributes(ClientRequest("ping", transport=transport)) == common | expected


async def test_what_the_sampler_drops_is_dropped_by_the_server_too() -> None:
    recorder = Recorder(sampler=ALWAYS_OFF)
    async with recorded(recorder, server) as client:
        told = (await client.call_tool("forecast", {"city": "Oslo"})).text

    assert recorder.raw() == []
    version, trace_id, _, flags = told.split("-")
    assert (version, int(flags, 16) & TraceFlags.SAMPLED) == ("00", 0)
    assert int(trace_id, 16) != 0
    assert recorder.series("mcp.client.operation.duration")[-1][1] == 1, "metrics are independent of the sampler"


async def test_a_lazy_client_connects_in_the_span_that_opened_it_because_several_calls_may_wait(
    recorder: Recorder,
) -> None:
    client = Client(server, era="modern", lazy=True, middleware=[recorder.middleware()])
    with anyio.fail_after(25):
        async with AsyncExitStack() as stack:
            with recorder.tracer.start_as_current_span("start"):
                await stack.enter_async_context(client)
            with recorder.tracer.start_as_current_span("agent"):
                await client.call_tool("forecast", {"city": "Oslo"})

    start, agent, discover, call = recorder.raw()
    assert (discover.name, discover.parent) == ("server/discover", start.get_span_context())
    assert (call.name, call.parent) == ("tools/call forecast", agent.get_span_context())


# Content


async def test_arguments_and_results_are_recorded_only_on_demand(recorder: Recorder) -> None:
    async def use(client: Client) -> None:
        await client.call_tool("forecast", {"city": "Atlantis"})
        await client.get_prompt("greet", {"name": "Ada"})

    secret = Recorder()
    async with recorded(secret, server, era="legacy", record_content=True) as client:
        await use(client)
    async with recorded(recorder, server, era="legacy") as client:
        await use(client)

    for private, public in zip(recorder.spans(), secret.spans(), strict=True):
        content = public.attributes.keys() - private.attributes.keys()
        found = {name: public.attributes[name] for name in content}
        if private.name == "prompts/get greet":
            assert found == {"gen_ai.prompt.variable.name": "Ada"}
        else:
            assert found == {
                "gen_ai.tool.call.arguments": '{"city":"Atlantis"}',
                "gen_ai.tool.call.result": '{"content":[{"type":"text","text":"no such city: Atlantis"}],"isError":true}',
            }
        assert "Ada" not in str(private)
        assert "Atlantis" not in str(private)


async def test_arguments_that_are_no_json_are_not_recorded_and_harm_no_call(recorder: Recorder) -> None:
    async with recorded(recorder, server, era="legacy", record_content=True, inside=[offline]) as client:
        assert (await client.call_tool("t", {"half": "\ud800"})).text == "from memory"

    [span] = recorder.spans()
    assert span.attributes["gen_ai.tool.call.arguments"] == "(not recorded: it cannot be written as JSON)"


async def test_long_names_and_uris_are_cut(recorder: Recorder) -> None:
    """The application may have them from a list of the server."""
    async with recorded(recorder, server, era="legacy", inside=[offline]) as client:
        await client.call_tool("t" * 500)
        with pytest.raises(ServerError):
            await client.read_resource("u" * 500)

    call, read = recorder.spans()
    name = "t" * 128 + "… (500 characters)"
    assert (call.name, call.attributes["gen_ai.tool.name"]) == (f"tools/call {name}", name)
    assert read.attributes["mcp.resource.uri"] == "u" * 300 + "… (500 characters)"


# The global providers

LATE = """
import anyio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from mcp_host import Client
from mcp_host.telemetry import OpenTelemetry
from mcp_host.testing import Server

async def main():
    async with client:
        pass

client = Client(Server("late"), middleware=[OpenTelemetry()])
exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
trace.set_tracer_provider(provider := TracerProvider())
provider.add_span_processor(SimpleSpanProcessor(exporter))
metrics.set_meter_provider(MeterProvider([reader]))
anyio.run(main)
print([span.name for span in exporter.get_finished_spans()])
[scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(scope.scope.name, [metric.name for metric in scope.metrics])
"""


def test_the_global_providers_are_used_even_if_they_are_set_later() -> None:
    printed = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True).stdout

    assert printed.splitlines() == [
        "['server/discover']",
        "mcp_host ['mcp.client.operation.duration', 'mcp.client.session.duration']",
    ]


# Without an SDK


@pytest.mark.parametrize("older", [False, True])
async def test_without_an_sdk_nothing_is_recorded_and_a_trace_from_elsewhere_is_passed_on(
    older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an SDK, newer versions make spans that are those around them, older ones invalid spans."""
    if older:
        monkeypatch.setattr(trace.NoOpTracer, "start_span", lambda *args, **options: trace.INVALID_SPAN)
    context = trace.SpanContext(0x1234, 0x5678, is_remote=True, trace_flags=TraceFlags(1))
    with anyio.fail_after(25):
        async with Client(server, middleware=[OpenTelemetry()]) as client:
            alone = await client.call_tool("forecast", {"city": "Oslo"})
            with trace.use_span(trace.NonRecordingSpan(context)):
                within = await client.call_tool("forecast", {"city": "Oslo"})

    assert alone.text == "None"
    assert within.text == "00-00000000000000000000000000001234-0000000000005678-01"


WITHOUT = """
import sys
from mcp_host import Client
Client(['server'], middleware=[print])
print('opentelemetry' in sys.modules)
sys.modules['opentelemetry'] = None
import mcp_host.telemetry
"""


def test_only_what_needs_opentelemetry_imports_it_and_without_it_the_error_names_the_extra() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert ended.stdout == "False\n"
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: mcp_host.telemetry needs opentelemetry-api: pip install 'mcp-host[otel]'"
    )
