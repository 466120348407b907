"""How much a server may ask, and for how long what it asked is being answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pydantic_core import to_json

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.errors import RequestTimeout, RoundsExceeded
from mcp_host.limits import Limits
from mcp_host.sampling import SamplingLimits
from mcp_host.testing import ClientError, Context, ScriptedPeer, Server
from mcp_host.transports.base import Channel
from mcp_host.types import CreateMessageResult, TextContent
from tests.client.rounds import DONE, SAMPLE, wants
from tests.client.support import EMPTY, PARIS, QUESTION, Era, HangingModel, asking_server, connected, sampling
from tests.extent import on_both

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run


@on_both
async def test_progress_that_was_not_asked_for_keeps_no_call_alive(era: Era) -> None:
    """Not even under the id of the request, which some servers take for a token."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        while True:
            for token in (call["id"], str(call["id"])):
                await peer.notify("notifications/progress", {"progressToken": token, "progress": 1})
            await anyio.sleep(0.01)

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(RequestTimeout, match="idle_timeout"):
            await client.call_tool("x", idle_timeout=0.2)
        assert client.counters["progress for nothing"] > 0


# How much


async def refusal(client: Client, tool: str = "ask") -> str | None:
    """Call this tool, and say why the client refused what that asks for, if it did."""
    try:
        result = await client.call_tool(tool)
    except RoundsExceeded as exc:
        return str(exc)
    return result.text if result.is_error else None


def too_much(era: Era, most: int, limit: str = "max_inputs") -> str:
    """Why a call is refused one more request than *most*."""
    if era.version == "2026-07-28":
        what = {"max_inputs": "inputs", "max_model_calls": "model calls"}[limit]
        return f"tools/call: the server asked for more than {most} {what} (Limits.{limit})"
    return f"this client's limit {limit} is {most} for one call"


@pytest.mark.fault("S13")
async def test_one_number_ends_endless_sampling_in_both_eras(era: Era) -> None:
    server = Server("asker", versions=[era.version])
    asked = 0

    @server.tool
    async def loop(ctx: Context) -> None:
        while True:
            await ctx.sample("more?")

    async def model(request: SamplingRequest) -> CreateMessageResult:
        nonlocal asked
        asked += 1
        return request.reply("more")

    async with connected(server, sampling=sampling(with_tools=model), within=30) as client:
        refused = await refusal(client, "loop")

    assert asked == 100
    assert refused is not None
    assert too_much(era, 100, "max_model_calls") in refused


@pytest.mark.parametrize("most", [8, 2])
async def test_handlers_within_each_other_have_a_bound(era: Era, most: int) -> None:
    """A server that asks again within each call of a handler would find no other: every one of them is a new call."""
    server = asking_server(versions=[era.version])
    depth, deepest, refusals = 0, 0, list[str | None]()

    async def model(request: SamplingRequest) -> str:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        refusals.append(await refusal(client))
        depth -= 1
        return "enough"

    limits = Limits() if most == 8 else Limits(max_nesting=most)
    async with connected(server, sampling=sampling(with_tools=model), limits=limits, within=30) as client:
        for _ in range(2):  # which are counted apart
            assert (await client.call_tool("ask")).text == "enough"

    assert deepest == most
    if era.version == "2026-07-28":
        words = f"tools/call: the server asked for input in {most} handlers within each other (Limits.max_nesting)"
    else:
        words = f"this client's limit max_nesting is {most} handlers within each other"
    assert [words in text for text in refusals if text] == [True, True]


async def test_what_is_asked_within_the_calls_of_handlers_counts_for_the_outermost_call(era: Era) -> None:
    """Two calls in each handler are 7 requests on three levels. One budget for all of them ends that after 5."""
    server = asking_server(versions=[era.version])
    asked, refusals = 0, list[str | None]()

    async def model(request: SamplingRequest) -> str:
        nonlocal asked
        asked += 1
        for _ in range(2):
            refusals.append(await refusal(client))
        return "enough"

    limits = Limits(max_inputs=5, max_nesting=3)
    async with connected(server, sampling=sampling(with_tools=model), limits=limits) as client:
        for number in (1, 2):  # which are counted apart
            assert (await client.call_tool("ask")).text == "enough"
            assert asked == 5 * number

    refused = [text for text in refusals if text]
    assert len(refused) == 12
    assert any(too_much(era, 5) in text for text in refused)


async def test_what_another_server_asks_within_a_call_of_a_handler_counts_for_the_outermost_call(era: Era) -> None:
    """Two servers, each of which is called by the handler of the other."""
    asked = 0

    def handler(other: int) -> Callable[[SamplingRequest], Awaitable[str]]:
        async def model(request: SamplingRequest) -> str:
            nonlocal asked
            asked += 1
            with suppress(RoundsExceeded):
                await clients[other].call_tool("ask")
            return "enough"

        return model

    clients = [
        Client(
            asking_server(versions=[era.version]).in_process(),
            sampling=sampling(with_tools=handler(other)),
            limits=Limits(max_inputs=4, max_nesting=12),
        )
        for other in (1, 0)
    ]
    with anyio.fail_after(5):
        async with clients[0], clients[1]:
            assert (await clients[0].call_tool("ask")).text == "enough"

    assert asked == 4


async def test_a_call_that_asks_for_nothing_buys_no_deeper_nesting_than_max_inputs() -> None:
    """Over a pipe it could be the one that a request is for. So the nesting is not certain, but the number is."""
    server = asking_server(versions=["2025-11-25"])
    asked = 0

    @server.tool
    async def quiet() -> None:
        await anyio.sleep_forever()

    async def model(request: SamplingRequest) -> str:
        nonlocal asked
        asked += 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "quiet")
            await client.call_tool("ask")
            tasks.cancel_scope.cancel()
        return "enough"

    limits = Limits(max_inputs=12, max_nesting=4)
    async with connected(server, sampling=sampling(with_tools=model), limits=limits) as client:
        assert (await client.call_tool("ask")).text == "enough"

    assert asked == 12


async def ask(peer: ScriptedPeer, id: str) -> None:
    """Send a sampling request with this id."""
    await peer.send({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": QUESTION})


async def test_what_is_asked_within_the_calls_of_a_request_between_calls_counts_like_that_request() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await ask(peer, "between calls")
        for number in (1, 2):
            call = await peer.receive("tools/call")
            await ask(peer, f"within call {number}")
        refused.append(await peer.receive())
        await peer.reply(call, EMPTY)
        done.set()

    async def model(request: SamplingRequest) -> str:
        await client.call_tool("x")
        return "Paris"

    refused, done = list[dict[str, Any]](), anyio.Event()
    async with connected(
        ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model), limits=Limits(max_inputs=2)
    ) as client:
        await done.wait()

    too_much = {"code": -32013, "message": "this client's limit max_inputs is 2 in 3600 seconds without a call"}
    assert [(message["id"], message["error"]) for message in refused] == [("within call 2", too_much)]


@on_both
async def test_handlers_of_calls_side_by_side_are_not_within_each_other(era: Era) -> None:
    """Over a pipe each question may be of any call in flight, those of other handlers among them."""
    server = asking_server(versions=[era.version])
    inside, all_inside = 0, anyio.Event()

    @server.tool
    async def inner(ctx: Context) -> str:
        nonlocal inside
        inside += 1
        arrived.set()
        await all_inside.wait()
        return (await ctx.sample("inner")).text

    async def model(request: SamplingRequest) -> str:
        return (await client.call_tool("inner")).text if request.messages[0].text == "outer" else "leaf"

    async def call() -> None:
        texts.append((await client.call_tool("ask", {"words": "outer"})).text)

    texts = list[str]()
    async with (
        connected(server, sampling=sampling(with_tools=model), limits=Limits(max_nesting=2), within=30) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(12):
            arrived = anyio.Event()
            tasks.start_soon(call)
            await arrived.wait()
        all_inside.set()

    assert texts == ["leaf"] * 12


@on_both
async def test_a_call_of_a_task_that_outlives_its_handler_is_in_no_handler(era: Era) -> None:
    server = asking_server(versions=[era.version])

    async def model(request: SamplingRequest) -> str:
        if not handled.is_set():
            tasks.start_soon(later)
        return "enough"

    async def later() -> None:
        await handled.wait()
        texts.append((await client.call_tool("ask")).text)

    texts, handled = list[str](), anyio.Event()
    async with (
        connected(server, sampling=sampling(with_tools=model), limits=Limits(max_nesting=1), within=30) as client,
        anyio.create_task_group() as tasks,
    ):
        texts_of_first = (await client.call_tool("ask")).text
        handled.set()

    assert (texts_of_first, texts) == ("enough", ["enough"])


@on_both
async def test_a_call_that_a_task_of_a_handler_makes_is_in_that_handler(era: Era) -> None:
    """Also where it is one of several in flight, so that a question may be of any."""
    server = asking_server(versions=[era.version])
    limits = Limits(max_nesting=1)

    async def model(request: SamplingRequest) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
        return "enough"

    async def call() -> None:
        refusals.append(await refusal(client))

    refusals = list[str | None]()
    async with connected(server, sampling=sampling(with_tools=model), limits=limits, within=30) as client:
        assert (await client.call_tool("ask")).text == "enough"

    assert ["max_nesting" in text for text in refusals if text] == [True]


async def test_a_call_of_the_innermost_handler_may_be_made_again_without_a_question() -> None:
    """It is only what is asked there that is refused."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        await peer.reply(await peer.receive(), wants("outer", k=SAMPLE))
        await peer.reply(await peer.receive(), wants("inner"))
        again = await peer.receive()
        assert again["params"]["requestState"] == "inner"
        await peer.reply(again, DONE | {"content": [{"type": "text", "text": "inner"}]})
        await peer.reply(await peer.receive(), DONE)

    async def model(request: SamplingRequest) -> str:
        seen.append((await client.call_tool("inner")).text)
        return "Paris"

    seen = list[str]()
    limits = Limits(max_nesting=1)
    async with connected(ScriptedPeer(script), sampling=sampling(with_tools=model), limits=limits) as client:
        assert (await client.call_tool("outer")).content == []

    assert seen == ["inner"]


@on_both
async def test_a_second_request_for_the_innermost_call_is_as_deep_as_the_first() -> None:
    """Any call in flight may be meant, so the calls of its handler have the deepest nesting that is possible."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        outer = await peer.receive("tools/call")
        await ask(peer, "for outer")
        inner = await peer.receive("tools/call")
        await ask(peer, "for inner")
        await second.wait()
        await ask(peer, "for inner, too")
        innermost = await peer.receive("tools/call")
        await ask(peer, "for innermost")
        refused.append(await peer.receive())
        held.set()
        for call in (innermost, inner, outer):
            await peer.reply(call, EMPTY)

    async def model(request: SamplingRequest) -> str:
        calls.append(request)
        match len(calls):
            case 1:
                await client.call_tool("inner")
            case 2:
                second.set()
                await held.wait()
            case _:
                await client.call_tool("innermost")
        return "Paris"

    second, held = anyio.Event(), anyio.Event()
    calls, refused = list[SamplingRequest](), list[dict[str, Any]]()
    async with connected(
        ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model), limits=Limits(max_nesting=2), within=5
    ) as client:
        await client.call_tool("outer")

    assert [(message["id"], message["error"]["message"]) for message in refused] == [
        ("for innermost", "this client's limit max_nesting is 2 handlers within each other")
    ]


@pytest.mark.fault("S13")
@pytest.mark.parametrize("limit", ["max_inputs", "max_model_calls"])
async def test_between_calls_a_server_may_ask_as_much_in_an_hour_as_within_a_call_and_that_has_no_nesting(
    limit: str,
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        for pause in [10, 10, 10, 10, 3559.9, 0.1, 0, 0]:
            refusal = (await peer.request("sampling/createMessage", QUESTION)).get("error")
            refusals.append(refusal and f"{refusal['code']} {refusal['message']}")
            await anyio.sleep(pause)
        asked.set()

    limits = replace(Limits(max_nesting=1), **{limit: 3})
    refusals, asked = list[str | None](), anyio.Event()
    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(), limits=limits, within=5000):
        await asked.wait()

    too_much = f"-32013 this client's limit {limit} is 3 in 3600 seconds without a call"
    assert refusals == [None, None, None, too_much, too_much, too_much, None, too_much]


@pytest.mark.fault("S13")
async def test_each_call_may_cause_as_many_requests_as_the_limit_says_whatever_was_asked_before_it() -> None:
    async def ask_four_times(peer: ScriptedPeer) -> None:
        answers = [await peer.request("sampling/createMessage", QUESTION) for _ in range(4)]
        answered.append(["result" in answer for answer in answers])

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await ask_four_times(peer)
        for _ in range(2):
            call = await peer.receive("tools/call")
            await ask_four_times(peer)
            await peer.reply(call, EMPTY)

    answered = list[list[bool]]()
    limits = Limits(max_inputs=3)
    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(), limits=limits) as client:
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            await client.call_tool("x")

    assert answered == [[True, True, True, False]] * 3


# For how long


@on_both
async def test_a_handler_ends_with_the_last_of_the_calls_that_it_may_belong_to() -> None:
    """A server over one pipe asks for sampling while two calls are in flight."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        calls = [await peer.receive("tools/call") for _ in range(2)]
        names = {call["id"]: call["params"]["name"] for call in calls}
        await ask(peer, "q")
        for _ in calls:
            message = await peer.receive()
            heard.append(f"{message['method']} {names[message['params']['requestId']]}")
        heard.append((await peer.receive())["error"])
        all_heard.set()

    async def call(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await client.call_tool(name)

    heard, all_heard, model = list[object](), anyio.Event(), HangingModel()
    first, second = anyio.CancelScope(), anyio.CancelScope()
    async with (
        connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(call, "a", first)
        tasks.start_soon(call, "b", second)
        await model.begun.wait()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not model.ended.is_set()
        second.cancel()
        await model.ended.wait()
        await all_heard.wait()

    assert heard == [
        "notifications/cancelled a",
        "notifications/cancelled b",
        {"code": -32012, "message": "the call that this belonged to has ended"},
    ]


@on_both
async def test_a_request_between_calls_does_not_end_with_a_call() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await ask(peer, "q")
        await peer.reply(await peer.receive("tools/call"), EMPTY)
        answers.append(await peer.receive())
        answered.set()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        begun.set()
        await called.wait()
        return request.reply("Paris", model="m")

    begun, called, answered = anyio.Event(), anyio.Event(), anyio.Event()
    answers: list[dict[str, Any]] = []
    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client:
        await begun.wait()
        await client.call_tool("x")
        called.set()
        await answered.wait()

    assert answers == [{"jsonrpc": "2.0", "id": "q", "result": PARIS}]


# From within a handler


@on_both
async def test_handlers_that_make_calls_do_not_wait_for_the_slots_of_each_other(era: Era) -> None:
    """As many handlers as there are slots, each with two calls at once that need a model again."""
    server = asking_server(versions=[era.version])
    all_running = anyio.Event()
    running = most = 0

    async def model(request: SamplingRequest) -> CreateMessageResult:
        nonlocal running, most
        (block,) = request.messages[0].content
        assert isinstance(block, TextContent)
        if block.text == "inner":
            return request.reply("done")
        running += 1
        most = max(most, running)
        if running == 4:
            all_running.set()
        await all_running.wait()
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(client.call_tool, "ask", {"words": "inner"})
        running -= 1
        return request.reply("done")

    async with (
        connected(server, sampling=sampling(with_tools=model), within=10) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(4):
            tasks.start_soon(client.call_tool, "ask", {"words": "outer"})

    assert (running, most) == (0, 4)


@on_both
@pytest.mark.parametrize("tool", ["answers", "never_answers"])
async def test_a_call_of_a_handler_returns_within_its_timeout_even_without_a_free_slot(era: Era, tool: str) -> None:
    server = Server("asker", versions=[era.version])
    second, took, released = anyio.Event(), anyio.Event(), anyio.Event()
    outcome: list[object] = []

    @server.tool
    async def ask(ctx: Context, words: str) -> str:
        if words == "takes the slot":
            second.set()
        return (await ctx.sample(words)).text

    @server.tool
    async def answers() -> str:
        return "answered"

    @server.tool
    async def never_answers() -> None:
        await anyio.sleep_forever()

    async def model(request: SamplingRequest) -> str:
        if request.messages[0].text == "takes the slot":
            took.set()
            await released.wait()
            return "done"
        await second.wait()
        await anyio.wait_all_tasks_blocked()  # so the other request waits for the slot
        began = anyio.current_time()
        try:
            outcome.append((await client.call_tool(tool, timeout=10)).text)
        except RequestTimeout:
            outcome.append(RequestTimeout)
        outcome.append(anyio.current_time() - began)
        released.set()
        return "done"

    sampling = Sampling(with_tools=model, approve=always, limits=SamplingLimits(at_once=1, at_once_per_server=1))
    async with connected(server, sampling=sampling, within=100) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "ask", {"words": "lends the slot"})
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(client.call_tool, "ask", {"words": "takes the slot"})

    assert took.is_set()
    assert outcome == ["answered" if tool == "answers" else RequestTimeout, pytest.approx(10)]


@on_both
@pytest.mark.parametrize(
    ("asks", "seconds", "words"),
    [(1, 35, "silent for 20 s"), (9, 50, "took longer than 50 s")],
    ids=["stops", "goes on"],
)
async def test_requests_of_the_server_restart_the_idle_timeout_but_not_the_timeout(
    era: Era, asks: int, seconds: float, words: str
) -> None:
    """It asks every 15 seconds, with an idle_timeout of 20, until it has nothing more to ask."""
    server = Server("asker", versions=[era.version])

    @server.tool
    async def ask(ctx: Context) -> None:
        for _ in range(asks):
            await anyio.sleep(15)
            await ctx.sample("more?")
        await anyio.sleep_forever()

    async with connected(server, sampling=sampling(), within=1000) as client:
        began = anyio.current_time()
        with pytest.raises(RequestTimeout, match=words):
            await client.call_tool("ask", timeout=50, idle_timeout=20)
        took = anyio.current_time() - began

    assert took == pytest.approx(seconds)


@on_both
async def test_a_request_that_exceeds_a_limit_restarts_the_idle_timeout_like_any_other() -> None:
    server = Server("asker", versions=["2025-11-25"])
    refused: list[str] = []

    @server.tool
    async def ask(ctx: Context) -> None:
        for _ in range(3):
            await anyio.sleep(15)
            try:
                await ctx.sample("more?")
            except ClientError as exc:
                refused.append(str(exc))
        await anyio.sleep_forever()

    limits = Limits(max_inputs=1)
    async with connected(server, sampling=sampling(), limits=limits, within=1000) as client:
        began = anyio.current_time()
        with pytest.raises(RequestTimeout, match="silent for 20 s"):
            await client.call_tool("ask", timeout=100, idle_timeout=20)
        took = anyio.current_time() - began

    assert len(refused) == 2
    assert took == pytest.approx(65)


@on_both
async def test_a_task_that_a_callback_starts_in_a_handler_lends_the_slot_of_the_handler() -> None:
    server = asking_server(versions=["2025-11-25"])

    @server.tool
    async def report(ctx: Context) -> None:
        await ctx.report_progress(1)

    answers: list[str] = []

    async def model(request: SamplingRequest) -> str:
        if answers:
            return "inner"
        answers.append("outer")
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                await reported.wait()
                answers.append((await client.call_tool("ask")).text)

            async def on_progress(progress: object) -> None:
                tasks.start_soon(call)

            reported = anyio.Event()
            await client.call_tool("report", on_progress=on_progress)
            reported.set()
        return "outer"

    one = Sampling(with_tools=model, approve=always, limits=SamplingLimits(at_once=1))
    async with connected(server, sampling=one) as client:
        assert (await client.call_tool("ask")).text == "outer"

    assert answers == ["outer", "inner"]


class StreamPerRequest(ScriptedPeer):
    """As over HTTP, where a stream may repeat old messages."""

    @asynccontextmanager
    async def open(self, limits: Limits) -> AsyncIterator[Channel]:
        async with super().open(limits) as channel:
            channel.stream_per_request = True
            yield channel


async def test_the_last_1024_requests_that_were_answered_are_known_again() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        for number in [*range(1025), 1, 1024, 0]:
            await peer.send({"jsonrpc": "2.0", "id": number, "method": "roots/list"})
        while len(answered) < 1026:
            answered.append((await peer.receive())["id"])
        done.set()

    answered, done = list[int](), anyio.Event()
    async with connected(StreamPerRequest(script), era="legacy", limits=Limits(max_answers=2000)) as client:
        await done.wait()
        assert client.counters == {"repeated requests": 2}

    assert sorted(answered) == [0, *range(1025)]


@on_both
@pytest.mark.parametrize(("seconds", "delivered"), [(29, 1025), (31, 1024)])
async def test_an_answer_that_cannot_be_delivered_is_dropped_after_thirty_seconds(seconds: int, delivered: int) -> None:
    """The transport takes 1,024 messages that the server does not read; the next waits for room."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(1025)]
        await peer.send_raw(to_json(pings))
        await anyio.sleep(seconds)
        reads_again.set()

    reads_again = anyio.Event()
    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy", within=100):
        await reads_again.wait()
        await anyio.wait_all_tasks_blocked()

    assert len([message for message in peer.received if "result" in message]) == delivered
