"""The clocks of a call: its bound, the server's silence, and the time that input may stop both; and that of connecting."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, Elicitation, FormRequest, SamplingRequest
from mcp_host.client.client import ITEMS_PER_TICK
from mcp_host.errors import RequestTimeout
from mcp_host.limits import Limits
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.session.call import CallTimeouts
from mcp_host.testing import Context, ScriptedPeer, Server
from mcp_host.types import CreateMessageResult, ElicitResult
from tests.client.rounds import DONE, SAMPLE, answering, wants
from tests.client.sites import Site
from tests.client.support import EMPTY, INITIALIZED, QUESTION, Era, connected, methods, sampling, seconds_of_call
from tests.client.support import answering as answering_in
from tests.clock import advance
from tests.extent import on_both
from tests.faults.http_server import LOG
from tests.transports.http_peers import EVENTS, event

pytestmark = on_both


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.now


def begun(clock: Clock, *, timeout: float = 60, idle_timeout: float = 20, input_timeout: float = 100) -> CallTimeouts:
    return CallTimeouts(timeout=timeout, idle_timeout=idle_timeout, input_timeout=input_timeout, clock=clock)


def test_a_call_ends_after_its_timeout_or_before_when_the_server_is_silent_and_input_stops_both_clocks() -> None:
    clock = Clock()
    timeouts = begun(clock)

    clock.now += 15
    assert (timeouts.end, timeouts.idle_end(clock.now)) == (1060, 1035)
    timeouts.pause()
    assert (timeouts.end, timeouts.idle_end(clock.now)) == (1160, 1135)  # if the pause never ends
    clock.now += 50
    timeouts.resume()
    assert (timeouts.end, timeouts.idle_end(clock.now)) == (1110, 1085)
    clock.now += 30

    assert (timeouts.end, timeouts.idle_end(clock.now)) == (1110, 1110)


async def test_no_silence_is_counted_in_a_pause_and_it_begins_anew_after_it() -> None:
    clock = Clock()
    timeouts = begun(clock)
    deadlines: list[float] = []

    with timeouts.silence(2) as scope:
        for change in (timeouts.pause, timeouts.resume):
            deadlines.append(scope.deadline)
            clock.now += 50
            change()
        deadlines.append(scope.deadline)
        scope.deadline = math.inf

    assert deadlines == [1002, math.inf, 1102]
    assert timeouts.observers == []


@pytest.mark.fake_clock
async def test_scopes_and_observers_follow_the_clocks_which_are_read_once_for_each_event() -> None:
    clock = Clock()
    timeouts = begun(clock)
    heard: list[float] = []
    timeouts.observers.append(lambda now: heard.append(timeouts.idle_end(now)))

    with timeouts.scope() as whole, timeouts.scope(idle=True) as silent:
        before = clock.readings
        seen = [(whole.deadline, silent.deadline)]
        timeouts.pause()
        seen.append((whole.deadline, silent.deadline))
        clock.now += 5
        timeouts.resume()
        seen.append((whole.deadline, silent.deadline))
        assert clock.readings - before == 2
    timeouts.pause()

    assert seen == [(1060, 1020), (1160, 1120), (1065, 1025)]
    assert heard[:2] == [1120, 1025]
    assert whole.deadline == 1065, "which it does no longer"


def test_input_that_overlaps_counts_once() -> None:
    clock = Clock()
    timeouts = begun(clock)

    timeouts.pause()
    clock.now += 10
    timeouts.pause()
    clock.now += 10
    timeouts.resume()
    clock.now += 10
    timeouts.resume()

    assert timeouts.end == 1090
    timeouts.pause()
    assert timeouts.end == 1090 + 70, "30 of the 100 seconds for input are gone"


def test_the_time_for_input_is_one_for_the_whole_call_and_then_the_clocks_run_again() -> None:
    clock = Clock()
    timeouts = begun(clock)

    timeouts.pause()
    clock.now += 70
    timeouts.resume()
    timeouts.pause()
    clock.now += 25
    assert timeouts.idle_end(clock.now) == 1000 + 70 + 30 + 20, "five seconds of input are left"
    clock.now += 10
    assert timeouts.idle_end(clock.now) == 1105 + 20, "a sign of life while the clocks run again"
    assert timeouts.end == 1160
    timeouts.resume()

    assert timeouts.end == 1160
    timeouts.pause()
    assert timeouts.end == 1160


def test_each_of_the_three_may_have_no_bound_or_no_length() -> None:
    ends = {
        (math.inf, 20, 100): (math.inf, 1120),
        (60, math.inf, 100): (1160, 1160),
        (60, 20, math.inf): (math.inf, math.inf),
        (60, 20, 0): (1060, 1020),
        (math.inf, math.inf, math.inf): (math.inf, math.inf),
    }
    paused: dict[tuple[float, float, float], tuple[float, float]] = {}
    for timeout, idle_timeout, input_timeout in ends:
        clock = Clock()
        timeouts = begun(clock, timeout=timeout, idle_timeout=idle_timeout, input_timeout=input_timeout)
        timeouts.pause()
        paused[timeout, idle_timeout, input_timeout] = timeouts.end, timeouts.idle_end(clock.now)
        clock.now += 7
        timeouts.resume()

        assert timeouts.end == 1000 + timeout + min(7, input_timeout)
    assert paused == ends


def test_the_timeout_that_passed_is_named_with_its_value() -> None:
    def overdue(passes: float, *, paused: float, resumes: bool = True) -> str:
        clock = Clock()
        timeouts = begun(clock)
        timeouts.pause()
        clock.now += paused
        if resumes:
            timeouts.resume()
            clock.now += passes
        return timeouts.overdue()

    took, silent = "took longer than 60 s (timeout)", "the server was silent for 20 s (idle_timeout)"
    after_input = ", after its input had taken 100 s (input_timeout)"
    assert overdue(60, paused=0) == took
    assert overdue(20, paused=0) == silent
    assert overdue(20, paused=99) == silent
    assert overdue(0, paused=160, resumes=False) == took + after_input
    assert overdue(60, paused=100) == took + after_input
    assert overdue(20, paused=100) == silent + after_input


# In calls

Ask = Callable[[Context], Awaitable[object]]
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def asking(version: str, *asks: Ask) -> Server:
    server = Server("asker", versions=[version])

    @server.tool
    async def ask(ctx: Context) -> str:
        for each in asks:
            await each(ctx)
        return "done"

    return server


async def a_form(ctx: Context) -> ElicitResult:
    return await ctx.elicit("sure?", FORM)


async def a_model(ctx: Context) -> CreateMessageResult:
    return (await ctx.sample("capital?")).answer


@pytest.mark.fake_clock
@pytest.mark.parametrize(("asks", "clock"), [(a_form, "timeout"), (a_model, "idle_timeout")], ids=["form", "model"])
async def test_a_form_and_a_model_may_take_longer_than_the_call_they_belong_to(era: Era, asks: Ask, clock: str) -> None:
    async def think(request: SamplingRequest) -> CreateMessageResult:
        await anyio.sleep(0.8)
        return request.reply("Paris")

    async def fill_in(request: FormRequest) -> ElicitResult:
        await anyio.sleep(0.8)
        return request.decline()

    clocks: dict[str, Any] = {clock: 0.6}
    async with connected(
        asking(era.version, asks).in_process(),
        sampling=sampling(with_tools=think),
        elicitation=Elicitation(form=fill_in),
        within=10,
    ) as client:
        assert (await client.call_tool("ask", **clocks)).text == "done"


@pytest.mark.fault("S27")
@pytest.mark.fake_clock
async def test_a_server_that_asks_again_and_again_gets_no_more_than_the_time_for_input(era: Era) -> None:
    asked = 0

    async def dawdle(request: FormRequest) -> ElicitResult:
        nonlocal asked
        asked += 1
        await anyio.sleep(0.15)
        return request.decline()

    limits = Limits(timeout=0.5, input_timeout=0.5)
    with anyio.fail_after(10):
        began = anyio.current_time()
        async with Client(
            asking(era.version, *[a_form] * 60).in_process(), elicitation=Elicitation(form=dawdle), limits=limits
        ) as client:
            with pytest.raises(RequestTimeout, match=r"0.5 s \(timeout\), after its input had taken 0.5 s"):
                await client.call_tool("ask")
        took = anyio.current_time() - began

    assert took == pytest.approx(1)
    assert asked == 7


@pytest.mark.fake_clock
async def test_two_handlers_at_once_for_one_call_stop_its_clocks_once_and_until_the_last_has_ended() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        for number in (1, 2):
            await peer.send(
                {"jsonrpc": "2.0", "id": f"q{number}", "method": "sampling/createMessage", "params": QUESTION}
            )
        await peer.receive()
        await peer.receive()
        await peer.reply(call, EMPTY)

    takes = [1.4, 0.4]  # the second in line takes longer than the first and the timeout

    async def think(request: SamplingRequest) -> CreateMessageResult:
        await anyio.sleep(takes.pop())
        return request.reply("Paris")

    async with connected(
        ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=think), limits=Limits(timeout=0.6), within=10
    ) as client:
        await client.call_tool("x")

    assert takes == []


async def test_a_call_with_a_timeout_of_zero_is_not_sent_and_has_not_run(era: Era) -> None:
    peer = answering_in(era, EMPTY)
    async with connected(peer) as client:
        with pytest.raises(RequestTimeout, match=r"^tools/call: took longer than 0 s \(timeout\)$") as caught:
            await client.call_tool("late", timeout=0)
        await client.call_tool("in time")

    assert caught.value.may_have_run is False
    said = [message["params"] for message in era.said_to(peer)]
    assert said == [era.dressed({"name": "in time", "arguments": {}})]


@pytest.mark.adjustable_clock
async def test_a_later_round_that_no_time_is_left_for_is_not_sent_and_the_beginning_may_have_run() -> None:
    async def slow(request: SamplingRequest) -> CreateMessageResult:
        advance(60)  # in one turn of the loop, so that no alarm comes before the answer
        return request.reply("Paris")

    peer = answering(wants("s", q=SAMPLE))
    limits = Limits(input_timeout=0)
    async with connected(peer, sampling=sampling(with_tools=slow), limits=limits, within=60 + 5) as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("x", timeout=60)

    assert caught.value.may_have_run is True
    assert methods(peer).count("tools/call") == 1


@pytest.mark.fake_clock
async def test_idle_rounds_never_wait_for_longer_than_ten_seconds() -> None:
    """The pauses are 0.1, 0.2, 0.4, 0.8, 1.6, 3.2 and 6.4 seconds, and then 10 each."""
    peer = answering(*[wants("s")] * 9, DONE)
    async with connected(peer, limits=Limits(max_idle_rounds=9), within=100) as client:
        assert await seconds_of_call(client) == pytest.approx(12.7 + 10 + 10)


SIGNS = [b": ping\n\n", b":\r\n", b"\n", b"id: 7\ndata:\n\n", b"event: ping\ndata: {}\n\n", event(LOG)]


class Slow(httpx.AsyncByteStream):
    """An event stream with a *piece* every fifteen seconds, *pieces* times; then *last*."""

    def __init__(self, piece: bytes, pieces: int, last: bytes) -> None:
        self.given = (piece, pieces, last)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        piece, pieces, last = self.given
        for _ in range(pieces):
            await anyio.sleep(15)
            yield piece
        yield last


@pytest.mark.fake_clock
async def test_any_line_on_the_calls_own_stream_restarts_the_idle_timeout_but_not_the_timeout(
    era: Era, subtests: pytest.Subtests
) -> None:
    def tools_call(message: dict[str, Any]) -> httpx.Response:
        last = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", "content": []}})
        stream = Slow(
            message["params"]["name"].encode(), message["params"]["arguments"]["pieces"], event(last.encode())
        )
        return httpx.Response(200, headers=EVENTS, stream=stream)

    accepted = dict.fromkeys(("notifications_initialized", "notifications_cancelled"), httpx.Response(202))
    site = Site(tools_call=tools_call, initialize=INITIALIZED, **accepted)
    async with site.connected(era=era.version, within=10_000) as client:
        for sign in SIGNS:
            with subtests.test(sign=sign):
                assert (await client.call_tool(sign.decode(), {"pieces": 9}, idle_timeout=20)).content == []
                with pytest.raises(RequestTimeout, match=r"took longer than 50 s \(timeout\)"):
                    await client.call_tool(sign.decode(), {"pieces": 9}, idle_timeout=20, timeout=50)
        with pytest.raises(RequestTimeout, match=r"silent for 20 s \(idle_timeout\)"):
            await client.call_tool("half a line", {"pieces": 9}, idle_timeout=20)


# While connecting


@pytest.mark.fake_clock
async def test_a_silent_server_is_shaken_hands_with_after_two_seconds_or_a_third_of_the_time(
    subtests: pytest.Subtests,
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive("initialize"), INITIALIZED)

    for connect_timeout, silence in [(30.0, 2.0), (6.0, 2.0), (3.0, 1.0), (0.6, 0.2)]:
        with subtests.test(connect_timeout=connect_timeout):
            peer, began = ScriptedPeer(script), anyio.current_time()
            async with connected(peer, limits=Limits(connect_timeout=connect_timeout), within=100) as client:
                assert client.protocol_version == "2025-11-25"
                assert anyio.current_time() - began == pytest.approx(silence)


@pytest.mark.fake_clock
async def test_a_request_of_the_server_while_connecting_pauses_the_connect_timeout() -> None:
    """Here over what the last connection was subscribed to; a login will, in the same way."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"resources": {"subscribe": True}})
        subscribe = await peer.receive("resources/subscribe")
        if first:
            first.clear()
            await peer.reply(subscribe, {})
            await peer.aclose()
        else:
            answers.append(await peer.request("sampling/createMessage", QUESTION))
            await peer.reply(subscribe, {})

    async def think(request: SamplingRequest) -> CreateMessageResult:
        await anyio.sleep(1.2)
        return request.reply("Paris")

    first, answers = [True], list[dict[str, Any]]()
    async with connected(
        ScriptedPeer(script),
        era="legacy",
        sampling=sampling(with_tools=think),
        limits=Limits(connect_timeout=0.8),
        within=10,
    ) as client:
        await client.subscribe_resource("a:1")
        while client.connected:
            await anyio.wait_all_tasks_blocked()
        await client.connect()
        assert client.warnings == []

    assert [answer["result"]["content"]["text"] for answer in answers] == ["Paris"]


@pytest.mark.adjustable_clock
async def test_reading_a_long_list_is_within_its_timeout(era: Era) -> None:
    async def late(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        result = await call_next(request)
        advance(2)
        return result

    long = {"tools": [{"name": str(n), "inputSchema": {}} for n in range(2 * ITEMS_PER_TICK)]}
    async with connected(answering_in(era, long), within=25, middleware=[late]) as client:
        with pytest.raises(RequestTimeout, match=r"^tools/list: took longer than 1 s \(timeout\)$"):
            await client.list_tools(timeout=1)
        assert len(await client.list_tools(timeout=60)) == 2 * ITEMS_PER_TICK
