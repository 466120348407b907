"""Cancelled calls and server requests: the other side is told, no task waits for that, and nothing is sent twice."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from anyio import CancelScope, Event, create_task_group, current_time, fail_after, sleep_forever, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from mcp_host import Client, Limits, SamplingRequest, Stdio, StreamableHttp
from mcp_host.errors import RequestTimeout
from mcp_host.types import CreateMessageResult, ProgressNotificationParams
from tests.client.support import sampling
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import mcp, says, streams, subject, subjects
from tests.faults.processes import BRIEF
from tests.faults.servers import works
from tests.faults.stdio_server import GOOD, connected, hear, server
from tests.transports.http_peers import event, serving
from tests.transports.legacy_peers import Answer, hang, in_turn

pytestmark = on_both

PROMPT = 25.0  # seconds for what has to happen at once, on a busy machine; any wait of the client's own is longer
LARGE = {"text": "x" * 3_000_000}  # more than any pipe holds
DEAF = Stdio(server("time.sleep(60)"))  # reads nothing more
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@id,"progress":1}}'


async def call_until_progress(client: Client) -> None:
    """Make a call, and give it up as soon as the server says something about it."""

    async def on_progress(progress: ProgressNotificationParams) -> None:
        scope.cancel()

    with CancelScope() as scope:
        await client.call_tool("slow", on_progress=on_progress)
    assert scope.cancelled_caught


@fault("C05", "C06")
@pytest.mark.parametrize("cancelled", [says(b"", 202), says(b"", 500), hang], ids=["accepted", "failed", "unanswered"])
async def test_an_abandoned_call_is_cancelled_over_http_even_if_the_notification_fails(cancelled: Answer) -> None:
    script = mcp(call=in_turn(streams(event(PROGRESS), stay=True), says()), cancelled=cancelled)

    async with serving(script) as peer, Client(StreamableHttp(peer.url), era="legacy", limits=BRIEF) as client:
        with fail_after(PROMPT):
            await call_until_progress(client)
            assert await works(client)
        await peer.heard.reaches(lambda heard: "cancelled" in map(subject, heard))

    call, cancel = (next(heard for heard in peer.heard if subject(heard) == name) for name in ("call", "cancelled"))
    assert cancel.rpc["params"]["requestId"] == call.rpc["id"]
    assert subjects(peer).count("initialize") == 1


@fault("C06")
async def test_abandoning_a_call_to_a_server_that_reads_nothing_takes_no_time() -> None:
    async with Client(DEAF, era="legacy", limits=BRIEF) as client:
        for arguments in ({}, LARGE, {}, LARGE):
            with fail_after(PROMPT), CancelScope() as scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(client.call_tool, "x", arguments)
                    await checkpoint()
                    scope.cancel()


@pytest.mark.adjustable_clock
@fault("C07", within=3200)
async def test_a_timeout_is_on_time_even_if_the_server_does_not_read_the_cancellation() -> None:
    """And not twice the timeout, for what is cancelled is told so without a wait."""

    async def call(arguments: dict[str, str]) -> None:
        began = current_time()
        with pytest.raises(RequestTimeout, match=r"took longer than 1000 s \(timeout\)$"):
            await client.call_tool("x", arguments, timeout=1000)
        assert 1000 <= current_time() - began < 2000

    limits = Limits(idle_timeout=6000, stall_timeout=6000, close_timeout=0.6)
    async with Client(DEAF, era="legacy", limits=limits) as client:
        for arguments in ({}, LARGE, {}):
            async with create_task_group() as tasks:
                tasks.start_soon(call, arguments)
                await wait_all_tasks_blocked()
                advance(1000)


@fault("C08", "S19")
@pytest.mark.parametrize("stubborn", [False, True], ids=["at-once", "in-the-end"])
async def test_a_request_that_the_server_has_cancelled_gets_no_answer(stubborn: bool) -> None:
    """Its handler is cancelled. It is not answered either where that cannot be stopped, and answers in the end."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        begun.set()
        try:
            with CancelScope(shield=stubborn):
                await (go_on.wait() if stubborn else sleep_forever())
            return request.reply("late")
        finally:
            ended.set()

    body = """
    first = read()
    sample("q")
    second = read()
    tell("cancelled", requestId="q")
    serve(second)
    third = read()
    say({"id": "p", "method": "ping"})
    heard = read()
    reply(third, text(json.dumps(heard)))
    serve(first)
    read()
    """
    begun, go_on, ended = Event(), Event(), Event()

    async with connected(body, sampling=sampling(with_tools=model)) as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "first")
        await begun.wait()
        await client.call_tool("second")
        go_on.set()
        await ended.wait()
        assert json.loads((await client.call_tool("third")).text) == {"jsonrpc": "2.0", "id": "p", "result": {}}


@fault("C09")
async def test_a_cancellation_that_races_with_the_answer_leaves_one_answer_at_most() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        for _ in range(next(pauses) % 12):
            await checkpoint()
        return request.reply("Paris")

    rounds = 300
    body = f"""
    call = read()
    heard = []
    for n in range({rounds}):
        sample(n)
        if n % 3 == 0:
            heard.append(read()["id"])
        for _ in range(n * 40):
            pass  # so that the two meet at every point
        tell("cancelled", requestId=n)
        say({{"id": "p", "method": "ping"}})
        while (id := read()["id"]) != "p":
            heard.append(id)
    reply(call, text(json.dumps(heard)))
    read()
    """
    pauses = iter(range(rounds))

    async with connected(body, sampling=sampling(with_tools=model)) as client:
        answered = Counter(json.loads((await client.call_tool("x")).text))

    assert set(answered.values()) == {1}
    assert answered.keys() >= set(range(0, rounds, 3)), "those that were cancelled too late"


@fault("C05", "C09")
async def test_calls_abandoned_as_their_answer_arrives_are_cancelled_once_at_most() -> None:
    """As soon as they have begun, after progress that comes together with the answer, and after progress without one."""
    body = """
    cancelled = []
    while (message := read()).get("params", {}).get("name") != "last":
        if "id" in message:
            raw(message["params"]["arguments"]["words"].replace("@id", str(message["id"])))
        else:
            cancelled.append(message["params"]["requestId"])
    reply(message, text(json.dumps(cancelled)))
    read()
    """
    progress = PROGRESS + b"\n"

    async def is_answered(words: bytes, pauses: int) -> bool:
        begun = Event()

        async def on_progress(progress: ProgressNotificationParams) -> None:
            begun.set()

        async def give_up() -> None:
            if words != GOOD:
                await begun.wait()
            for _ in range(pauses):
                await checkpoint()
            tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(give_up)
            await hear(client, words, on_progress=on_progress)
            tasks.cancel_scope.cancel()
            return True
        return False

    async with connected(body) as client:
        answered = {
            words: [await is_answered(words, pauses) for pauses in range(40)]
            for words in (GOOD, progress + GOOD, progress)
        }
        cancelled = Counter(json.loads((await client.call_tool("last")).text))

    assert any(answered[progress + GOOD])
    assert not any(answered[progress])
    assert set(cancelled.values()) == {1}
    assert len(cancelled) >= 40
    assert client.counters.keys() <= {"answers to nothing"}
