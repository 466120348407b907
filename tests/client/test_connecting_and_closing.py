"""Connecting and closing: from any task, in any order, more than once."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Change, Client, Elicitation, FormRequest, SamplingRequest, StreamableHttp
from mcp_host.errors import ConnectionClosed, ConnectTimeout, HttpStatusError, NotConnected
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Request
from mcp_host.testing import ScriptedPeer
from mcp_host.transports._http.channel import HttpChannel
from mcp_host.transports.base import Channel, Headers, RequestHandle
from mcp_host.transports.in_process import MemoryChannel
from mcp_host.transports.stdio import Stdio
from mcp_host.types import CreateMessageResult, ElicitResult, Implementation, ProgressNotificationParams
from tests.client.rounds import SAMPLE, wants
from tests.client.sites import Site
from tests.client.support import (
    EMPTY,
    HANDSHAKE,
    QUESTION,
    TOOLS,
    Era,
    HangingModel,
    answering,
    connected,
    ended_by_closing,
    methods,
    report_progress,
    sampling,
    say_paris,
    silent,
)
from tests.clock import advance
from tests.extent import on_both
from tests.faults.http_server import DISCOVERED, drop, mcp, says, welcome
from tests.transports.children import python, running
from tests.transports.http_peers import Heard, Wire, serving

FIRST = {"auto": "server/discover", "legacy": "initialize", "modern": "server/discover"}
"""What a client says first, by what it may speak."""
CLOSED_MEANWHILE = "closed while it was being opened"


async def test_the_handshake_says_who_we_are_and_what_we_answer() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS, instructions="be kind")

    peer = ScriptedPeer(script)
    async with connected(
        peer, era="legacy", sampling=sampling(), roots=[], client_info=Implementation(name="ide", version="3")
    ) as client:
        assert client.protocol_version == "2025-11-25"
        assert client.server_info.name == "the scripted peer"
        assert client.server_capabilities.tools is not None
        assert client.instructions == "be kind"
        assert client.sampling_mode == "with_tools"
        assert client.warnings == []

    assert peer.received == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"sampling": {"tools": {}}, "roots": {"listChanged": True}},
                "clientInfo": {"name": "ide", "version": "3"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}},
    ]


@on_both
async def test_clients_close_in_the_order_they_came_from_a_task_that_did_not_bring_them(era: Era) -> None:
    first, second = Client(answering(era, EMPTY)), Client(answering(era, EMPTY))

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.connect)
        await second.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.aclose)
        assert (await second.call_tool("still-here")).content == []
        await second.aclose()


@pytest.mark.fault("C15", "C16")
@on_both
async def test_connecting_and_closing_may_be_done_more_than_once(era: Era) -> None:
    peer = answering(era, EMPTY)
    client = Client(peer)

    with anyio.fail_after(25):
        await client.aclose()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(client.connect)
        await client.call_tool("one")
        await client.aclose()
        await client.aclose()
        await client.connect()
        await client.call_tool("two")
        await client.aclose()

    assert methods(peer) == [*era.opening, "tools/call", *era.opening_again, "tools/call"]


@on_both
async def test_an_error_in_the_callers_own_block_arrives_bare(era: Era) -> None:
    with anyio.fail_after(25), pytest.raises(ValueError, match="mine"):
        async with Client(answering(era, EMPTY)):
            raise ValueError("mine")


@pytest.mark.fault("C13", "S19")
@on_both
async def test_closing_ends_the_calls_in_flight_and_the_running_handlers(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        await (peer.request(**SAMPLE) if era is HANDSHAKE else peer.reply(call, wants(None, k=SAMPLE)))

    model = HangingModel()
    async with connected(ScriptedPeer(script), sampling=sampling(with_tools=model)) as client:
        calls = [lambda: client.call_tool("x")] * 3
        ends = await ended_by_closing(client, *calls, begun=model.begun)

    assert [(str(end), end.may_have_run) for end in ends] == [("the client was closed", True)] * 3
    assert model.ended.is_set()


@pytest.mark.fault("C13", "C15")
@pytest.mark.parametrize(
    ("era", "answers"),
    [("auto", {}), ("auto", {"sampling": sampling()}), ("legacy", {"sampling": sampling()}), ("modern", {})],
    ids=["auto", "auto with sampling", "legacy with sampling", "modern"],
)
@on_both
async def test_closing_while_another_task_connects_ends_the_connecting(era: str, answers: dict[str, Any]) -> None:
    peer = ScriptedPeer(silent)
    client = Client(peer, era=era, **answers)
    with anyio.fail_after(25):
        ended = await ended_by_closing(client, client.connect, client.connect)  # of which the second waits for its turn

    assert [(CLOSED_MEANWHILE in str(error), error.may_have_run) for error in ended] == 2 * [(True, False)]
    with pytest.raises(NotConnected):
        await client.call_tool("x")
    assert methods(peer) == [FIRST[era]]
    assert client.warnings == []


@on_both
async def test_closing_during_a_second_attempt_is_not_the_failure_of_the_first() -> None:
    second = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        request = await peer.receive("initialize")
        if request["params"]["capabilities"]["sampling"]:
            await peer.reply_error(request, -32602, "unrecognized_keys: tools")
        else:
            second.set()

    client = Client(ScriptedPeer(script), era="legacy", sampling=sampling())
    with anyio.fail_after(25):
        (ended,) = await ended_by_closing(client, client.connect, begun=second)

    assert (CLOSED_MEANWHILE in str(ended), ended.may_have_run) == (True, False)


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("era", FIRST)
async def test_a_cancelled_connect_leaves_nothing_behind(era: str) -> None:
    client = Client(ScriptedPeer(silent), era=era)
    with anyio.move_on_after(0.05):
        await client.connect()

    assert not client.connected
    await client.aclose()


@pytest.mark.fake_clock
@pytest.mark.parametrize(
    ("era", "said"),
    [
        ("auto", ["server/discover", "initialize"]),
        ("modern", ["server/discover"]),
        ("legacy", ["initialize"]),
    ],
)
@on_both
async def test_a_server_that_never_answers_costs_one_bounded_wait(era: str, said: list[str]) -> None:
    peer = ScriptedPeer(silent)
    with anyio.fail_after(5), pytest.raises(ConnectTimeout, match=r"was not ready within 0\.05 s"):
        await Client(peer, era=era, limits=Limits(connect_timeout=0.05)).connect()

    # "The initialize request MUST NOT be cancelled by clients", and nothing but the probe may come before it
    assert methods(peer) == said


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_every_handshake_revision_is_spoken(version: str) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS, version=version)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling()) as client:
        assert client.protocol_version == version
        assert client.sampling_mode == "with_tools"  # which it was offered
        await client.call_tool("x")


@on_both
async def test_a_server_that_dies_of_sampling_tools_is_started_once_more_without_them() -> None:
    strict = """
        request = read()
        assert "tools" not in request["params"]["capabilities"]["sampling"]
        reply(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "0"}})
        read()
        read()
    """
    client = Client(Stdio(python(strict, hands=False)), era="legacy", sampling=sampling())
    with anyio.fail_after(25):
        for _ in range(2):  # the second time it is known, and not tried again
            async with client:
                assert client.sampling_mode == "basic"

    assert len(client.warnings) == 1


async def fill_in(request: FormRequest) -> ElicitResult:
    return request.accept()


PROBED = ["server/discover"]
SHAKEN = ["initialize"]


@pytest.mark.parametrize(
    ("era", "posts"),
    [
        ("legacy", {400: SHAKEN * 2, 500: SHAKEN * 2, 401: SHAKEN, 404: SHAKEN, 503: SHAKEN}),
        (
            "auto",
            {
                **dict.fromkeys((400, 500), (PROBED + SHAKEN) * 2),
                **dict.fromkeys((404, 502, 503, 504), PROBED + SHAKEN),
                401: PROBED,
            },
        ),
    ],
)
async def test_only_what_a_strict_server_might_say_by_http_is_tried_again(
    era: str, posts: dict[int, list[str]]
) -> None:
    async def heard_by_server(status: int) -> list[str]:
        site = Site(server_discover=httpx.Response(status), initialize=httpx.Response(status))
        with anyio.fail_after(25), pytest.raises(HttpStatusError) as failure:
            await site.client(era=era, sampling=sampling()).connect()
        assert failure.value.status == status
        return site.methods()

    assert {status: await heard_by_server(status) for status in posts} == posts


@on_both
async def test_a_client_whose_server_ended_can_be_connected_again(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.receive("tools/call")
        await peer.aclose()

    client = Client(ScriptedPeer(script), sampling=sampling(basic=say_paris))
    with anyio.fail_after(25):
        async with client:
            with pytest.raises(ConnectionClosed):
                await client.call_tool("x")
            await client.connect()
            assert client.connected
            assert client.sampling_mode == "basic"


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("unbearable", [{"sampling": {"tools": {}}}, {"elicitation": {}}], ids=["tools", "forms"])
async def test_a_server_over_http_that_hangs_up_over_a_capability_is_tried_without_it(
    unbearable: dict[str, Any], era: str
) -> None:
    async def shake_hands(wire: Wire, heard: Heard) -> None:
        offered.append(heard.rpc["params"]["capabilities"])
        await (drop if unbearable.items() <= offered[-1].items() else welcome())(wire, heard)

    offered: list[dict[str, Any]] = []
    forms = Elicitation(form=fill_in)
    async with serving(mcp(discover=drop, initialize=shake_hands)) as peer:
        client = Client(StreamableHttp(peer.url), era=era, sampling=sampling(), elicitation=forms)
        with anyio.fail_after(25):
            async with client:
                (warning,) = client.warnings

    with_forms: dict[str, Any] = {"sampling": {}, "elicitation": {}}
    most = with_forms | {"sampling": {"tools": {}}}
    asked = [most, most, with_forms, {"sampling": {}}]  # a network that breaks once costs no capability
    if "sampling" in unbearable:
        assert (offered, "only without sampling.tools:" in warning) == (asked[:3], True)
    else:
        assert (offered, "only without sampling.tools and elicitation.form:" in warning) == (asked, True)


async def test_a_connection_that_breaks_once_under_the_probe_costs_no_capability() -> None:
    breaks = iter([drop])

    async def discover(wire: Wire, heard: Heard) -> None:
        await next(breaks, says(DISCOVERED))(wire, heard)

    refuse = says(b'{"jsonrpc":"2.0","id":@id,"error":{"code":-32601,"message":"no such method"}}')
    async with serving(mcp(discover=discover, initialize=refuse)) as peer:
        with anyio.fail_after(25):
            async with Client(StreamableHttp(peer.url), sampling=sampling()) as client:
                assert (client.protocol_version, client.sampling_mode) == ("2026-07-28", "with_tools")
                assert client.warnings == []


@on_both
async def test_callers_let_go_before_the_transport_is_closed_even_where_closing_may_take_no_time(era: Era) -> None:
    """What a caller still does in its stream is not torn away from it."""
    order: list[str] = []
    closed = anyio.Event()

    class Watched(ScriptedPeer):
        @asynccontextmanager
        async def open(self, limits: Limits) -> AsyncIterator[Channel]:
            try:
                async with super().open(limits) as channel:
                    yield channel
            finally:
                order.append("the transport is closed")
                closed.set()

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await report_progress(peer, await peer.receive("tools/call"), 1)

    async def on_progress(progress: ProgressNotificationParams) -> None:
        await client.aclose()
        await anyio.wait_all_tasks_blocked()
        order.append("the caller has let go")

    client = Client(Watched(script), limits=Limits(close_timeout=0))
    with anyio.fail_after(25):
        await client.connect()
        with pytest.raises(ConnectionClosed):
            await client.call_tool("x", on_progress=on_progress)
        await closed.wait()

    assert order == ["the caller has let go", "the transport is closed"]


@on_both
async def test_a_bug_in_a_transport_ends_the_calls_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def listen(channel: MemoryChannel, receive: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(MemoryChannel, "listen", listen)
    failure = "reading from the server failed: ZeroDivisionError"
    with anyio.fail_after(25), pytest.raises(ConnectionClosed, match=failure):
        await Client(ScriptedPeer(silent)).connect()

    assert "a bug" in caplog.text


async def test_a_transport_on_which_nothing_more_arrives_by_itself_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls have streams of their own."""
    listened = anyio.Event()

    async def listen(channel: HttpChannel, receive: object) -> None:
        listened.set()

    monkeypatch.setattr(HttpChannel, "listen", listen)
    async with Site(tools_call=EMPTY).connected() as client:
        await listened.wait()
        await client.call_tool("x")
        assert client.connected


@on_both
async def test_a_channel_that_fails_a_pending_request_ends_the_call_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(channel: MemoryChannel, request: Request, headers: Headers, handle: RequestHandle) -> None:
        handle.fail(ConnectionClosed("lost on its way"))
        with handle.bounded():
            await anyio.sleep_forever()

    async with connected(ScriptedPeer(HANDSHAKE.open), era="legacy") as client:
        monkeypatch.setattr(MemoryChannel, "request", lose)
        with pytest.raises(ConnectionClosed, match="lost on its way"):
            await client.ping()


async def test_roots_may_be_replaced_before_there_is_a_connection() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        answers.append((await peer.request("roots/list"))["result"])

    answers: list[Any] = []
    client = Client(ScriptedPeer(script), era="legacy", roots=[])
    await client.set_roots(["/tmp"])
    with anyio.fail_after(25):
        async with client:
            await anyio.wait_all_tasks_blocked()

    assert answers == [{"roots": [{"uri": "file:///tmp"}]}]


@on_both
async def test_a_callback_may_close_its_own_client() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        await peer.notify("notifications/tools/list_changed")

    async def on_change(change: Change) -> None:
        try:
            await client.aclose()
        finally:
            closed.set()

    closed = anyio.Event()
    client = Client(ScriptedPeer(script), era="legacy", on_change=on_change, limits=Limits(close_timeout=60))
    with anyio.fail_after(25):
        await client.connect()
        await closed.wait()
        await client.aclose()

    assert not client.connected


@on_both
async def test_a_handler_may_close_its_own_client(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        if era is HANDSHAKE:
            await peer.request(**SAMPLE)
        else:
            await peer.reply(call, wants(None, k=SAMPLE))

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await client.aclose()
        raise AssertionError("cancelled by then")

    client = Client(ScriptedPeer(script), sampling=sampling(with_tools=model), limits=Limits(close_timeout=60))
    with anyio.fail_after(25):
        await client.connect()
        with pytest.raises(ConnectionClosed, match="the client was closed"):
            await client.call_tool("x")
        await client.aclose()

    assert not client.connected


@on_both
@pytest.mark.adjustable_clock
async def test_closing_continues_if_its_caller_is_cancelled() -> None:
    client = Client(Stdio(python("reply(read(), text(str(os.getpid()))); time.sleep(60)")))

    with anyio.fail_after(25):
        await client.connect()
        pid = int((await client.call_tool("pid")).text)
        with anyio.move_on_after(0):
            await client.aclose()
        await anyio.wait_all_tasks_blocked()
        assert running(pid)
        advance(2)  # in which a server may end by itself
        await client.aclose()

    assert not running(pid)


@on_both
async def test_a_handler_that_cannot_be_cancelled_does_not_keep_the_server_alive() -> None:
    body = """
    print(os.getpid(), file=sys.stderr, flush=True)
    read()
    say({"id": "q", "method": "sampling/createMessage", "params": json.loads(sys.argv[1])})
    time.sleep(60)
    """

    async def model(request: SamplingRequest) -> CreateMessageResult:
        asked.set()
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return request.reply("late")

    asked, go_on = anyio.Event(), anyio.Event()
    pids: list[int] = []
    server = Stdio([*python(body), json.dumps(QUESTION)], on_stderr=lambda line: pids.append(int(line)))
    client = Client(server, era="legacy", sampling=sampling(with_tools=model), limits=Limits(close_timeout=1))

    async def call() -> None:
        with pytest.raises(ConnectionClosed):
            await client.call_tool("x")

    with anyio.fail_after(25):
        await client.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await asked.wait()
            try:
                await client.aclose()
                assert not running(pids[0])
            finally:
                go_on.set()


@pytest.mark.parametrize(("first", "second"), [("asyncio", "trio"), ("trio", "asyncio"), ("asyncio", "asyncio")])
def test_a_client_left_open_in_one_event_loop_can_be_connected_in_the_next(era: Era, first: str, second: str) -> None:
    client = Client(answering(era, EMPTY))

    async def leave_open() -> None:
        await client.connect()

    async def use() -> None:
        with anyio.fail_after(25):
            assert not client.connected
            await client.aclose()
            async with client:
                assert (await client.call_tool("x")).content == []

    anyio.run(leave_open, backend=first)
    anyio.run(use, backend=second)


@on_both
async def test_a_client_that_is_dropped_when_its_server_ends_leaves_nothing() -> None:
    left = anyio.Event()

    def drop() -> None:
        clients.clear()
        gc.collect()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        try:
            await peer.receive()
        finally:
            left.set()

    peer = ScriptedPeer(script, name="brief")
    with anyio.fail_after(25):
        clients = [Client(peer)]
        await clients[0].connect()
        peer._outbox.close()  # not `aclose`, which would let the client know before it is dropped
        with pytest.warns(ResourceWarning, match="a client of brief was dropped without being closed"):
            drop()
        await left.wait()


def test_a_handler_may_run_an_event_loop_in_a_thread_of_asyncios() -> None:
    """Such a thread inherits the handler's context, which must not say that an event loop runs there."""
    server = """
        call = read()
        say({"id": "q", "method": "sampling/createMessage", "params": json.loads(QUESTION)})
        reply(call, text(read()["result"]["content"]["text"]))
    """

    async def think() -> str:
        return "Paris"

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return request.reply(await asyncio.to_thread(anyio.run, think))

    async def main() -> str:
        command = python(server.replace("QUESTION", repr(json.dumps(QUESTION))))
        async with asyncio.timeout(10), Client(Stdio(command), sampling=sampling(with_tools=model)) as client:
            return (await client.call_tool("geo")).text

    assert asyncio.run(main()) == "Paris"
