"""Floods and dams: servers that read nothing, write without end, or start slowly; callbacks that never return."""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

import pytest
from anyio import Event, create_task_group, fail_after, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from mcp_host import Sampling, SamplingRequest, always
from mcp_host.errors import ConnectionClosed, RequestTimeout
from mcp_host.limits import Limits
from mcp_host.types import CreateMessageResult, LoggingMessageNotificationParams
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.measure import peak
from tests.faults.processes import BRIEF, SOON, client_of, says
from tests.faults.stdio_server import connected

pytestmark = on_both

LARGE = "x" * (3 * 1024 * 1024)  # more than a pipe holds

# A server that reads nothing

DAM = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
reply(read(), text(str(os.getpid())))
signal.sigwait({signal.SIGUSR1})
heard = []
while True:
    request = read()
    if request["method"] == "tools/call":
        heard.append(request["params"]["name"])
        reply(request, text(" ".join(heard)))
"""
"""Answers with its process id, then reads nothing until it gets a signal. Then answers with the names of all calls."""


@pytest.mark.adjustable_clock
@fault("F16")
async def test_calls_to_a_server_that_reads_nothing_time_out_and_unsent_ones_are_withdrawn() -> None:
    async def call(name: str) -> None:
        with pytest.raises(RequestTimeout):
            await client.call_tool(name, {"t": LARGE}, timeout=10)

    async with client_of(DAM) as client:
        pid = int(await says(client))
        for name in ("begun", *["withdrawn"] * 3):
            async with create_task_group() as tasks:
                tasks.start_soon(call, name)
                await wait_all_tasks_blocked()
                advance(10)
        os.kill(pid, signal.SIGUSR1)
        assert (await client.call_tool("last")).text == "begun last"


@pytest.mark.adjustable_clock
@fault("F16")
async def test_a_server_that_reads_nothing_for_too_long_is_killed() -> None:
    async def call() -> None:
        with pytest.raises(ConnectionClosed, match=r"has read none of its input for 60 s"):
            await says(client, t=LARGE)

    async with client_of("reply(read(), text('ready')); time.sleep(600)") as client:
        assert await says(client) == "ready"
        async with create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_all_tasks_blocked()
            advance(60)
        with pytest.raises(ConnectionClosed):
            await says(client)


@fault("F17")
async def test_a_server_that_writes_while_we_write_does_not_deadlock() -> None:
    """Both pipes are full at once: the reader never waits for the writer."""
    body = """
    flood = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}})
    for _ in range(4000):
        raw(flood + "\\n")
    reply(read(), text("ok"))
    """
    async with client_of(body) as client:
        assert await says(client, t=LARGE) == "ok"


# Floods


PINGS = 4000


@fault("F18")
async def test_pings_from_a_server_that_reads_no_answers_are_dropped_and_counted() -> None:
    body = f"""
    first = read()
    for n in range({PINGS}):
        say({{"id": str(n) + "x" * 1000, "method": "ping"}})
    reply(first, text("flooded"))
    pongs = 0
    while "method" not in (request := read()):
        pongs += 1
    reply(request, text(str(pongs)))
    while True: read()
    """
    limits = Limits(max_answers=16, max_outbox=64 * 1024, close_timeout=0.6)
    async with client_of(body, limits=limits) as client:
        with peak() as most:
            assert await says(client) == "flooded"
        pongs = int(await says(client))

    assert pongs > 50  # as much as a pipe holds, and be it a small one
    assert 0 <= PINGS - pongs - client.counters["dropped answers"] <= limits.max_answers  # on their way at last
    assert client.counters["dropped answers"] > 0
    assert most() < 2_000_000  # of four million


@fault("F18")
async def test_every_ping_is_answered_if_the_server_reads_the_answers() -> None:
    body = """
    first = read()
    for n in range(2000):
        say({"id": n, "method": "ping"})
        assert read() == {"jsonrpc": "2.0", "id": n, "result": {}}
    reply(first, text("ok"))
    """
    async with client_of(body) as client:
        assert await says(client) == "ok"

    assert client.counters == {}


@pytest.mark.parametrize("descriptor", [1, 2], ids=["stdout", "stderr"])
@fault("F19")
async def test_a_flood_of_tiny_lines_lets_other_tasks_run(descriptor: int) -> None:
    """One read brings tens of thousands of them."""
    body = f"""
    request = read()
    left = b"x\\n" * 50_000
    while left: left = left[os.write({descriptor}, left):]
    while True:
        reply(request, text("ok"))
        request = read()
    """
    heard = longest = 0

    def on_stderr(line: str) -> None:
        nonlocal heard
        heard += 1

    async def watch() -> None:
        nonlocal longest
        before = 0
        while True:
            await checkpoint()
            now = heard + client.counters["malformed messages"]
            longest = max(longest, now - before)
            before = now

    async with client_of(body, on_stderr=on_stderr) as client, create_task_group() as tasks:
        tasks.start_soon(watch)
        assert await says(client) == "ok"
        while heard + client.counters["malformed messages"] < 50_000:
            await says(client)
        tasks.cancel_scope.cancel()

    assert 0 < longest <= 2 * 256  # a turn of each pipe


FLOOD = """
while True:
    request = read()
    for n in range(request["params"]["arguments"].get("flood", 0)):
        say({"method": "notifications/" + METHOD, "params": PARAMS})
    reply(request, text("ok"))
"""


@fault("F19", "F21", "R01")
async def test_logs_for_a_blocked_callback_delay_no_call_and_the_newest_are_kept() -> None:
    body = FLOOD.replace("METHOD", '"message"').replace("PARAMS", '{"level": "info", "data": n}')
    taken: list[Any] = []
    everything = Event()
    stuck = Event()

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        await stuck.wait()
        taken.append(message.data)
        if message.data == 4999:
            everything.set()

    async with client_of(body, on_log=on_log, limits=Limits(max_notifications=100, close_timeout=0.6)) as client:
        with fail_after(SOON):
            assert await says(client, flood=5000) == "ok"
            assert await says(client) == "ok"
        stuck.set()
        await everything.wait()

    assert taken[-100:] == list(range(4900, 5000))
    assert client.counters == {"dropped notifications": 5000 - len(taken)}
    assert len(taken) <= 101  # and the one that was being taken


@fault("F21")
async def test_callbacks_and_handlers_that_never_return_delay_neither_calls_nor_closing() -> None:
    body = """
    reply(read(), text("ok"))
    tell("message", level="info", data="hello")
    tell("tools/list_changed")
    sample("q")
    serve_all()
    """
    stuck: list[str] = []

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        await never("log")

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return await never("model")

    async def never(what: str) -> NoReturn:
        stuck.append(what)
        if len(stuck) == 2:
            both_are.set()
        await Event().wait()
        raise AssertionError("it is never set")

    both_are = Event()
    sampling = Sampling(basic=model, approve=always)
    async with connected(body, sampling=sampling, on_log=on_log, on_change=on_log, limits=BRIEF) as client:
        await client.call_tool("x")
        await both_are.wait()
        with fail_after(SOON):
            assert (await client.call_tool("still here")).text == "still here"
            await client.aclose()

    assert sorted(stuck) == ["log", "model"]


# A slow start


@pytest.mark.adjustable_clock
@fault("F22")
async def test_the_time_that_a_server_takes_to_start_does_not_count_for_a_call() -> None:
    body = """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    print(os.getpid(), file=sys.stderr, flush=True)
    signal.sigwait({signal.SIGUSR1})
    shake_hands()
    time.sleep(60)
    """

    def start(pid: str) -> None:
        advance(60)
        os.kill(int(pid), signal.SIGUSR1)

    async def call() -> None:
        with pytest.raises(RequestTimeout):
            await says(client)

    limits = Limits(connect_timeout=600, idle_timeout=40, timeout=40, close_timeout=0.3)
    async with client_of(body, hands=False, on_stderr=start, limits=limits) as client, create_task_group() as tasks:
        tasks.start_soon(call)
        await wait_all_tasks_blocked()
        advance(40)
