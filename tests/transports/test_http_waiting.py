"""More calls than there may be connections: which of them wait, in what order, and what never waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import httpx
import pytest
from anyio.abc import TaskGroup

from mcp_host import Change, Client, Sampling, SamplingRequest, StreamableHttp, always
from mcp_host.errors import ConnectionClosed, McpError, RequestTimeout
from mcp_host.types import CreateMessageResult, ProgressNotificationParams
from tests.clock import advance
from tests.faults.http_server import (
    ASK,
    DISCOVERED,
    DONE,
    chunked,
    connected,
    filled,
    mcp,
    says,
    streams,
    subject,
    subjects,
    tides,
    welcome,
)
from tests.transports.http_contract import by_httpx, callers_own  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import Heard, Log, Peer, Wire, event
from tests.transports.legacy_peers import Answer, hang, in_turn

AGREED = (
    b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},'
    b'"_meta":{"io.modelcontextprotocol/subscriptionId":@id}}}'
)
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@id,"progress":1}}'


class Holding:
    """Answers calls when it is told to: the first with the name that `release` is given, and so on."""

    def __init__(self) -> None:
        self.held = Log[str]()
        self._released = Log[str]()

    async def __call__(self, wire: Wire, heard: Heard) -> None:
        name = heard.rpc["params"]["name"]
        self.held.append(name)
        await self._released.reaches(lambda released: name in released)
        await says()(wire, heard)

    def release(self, *names: str) -> None:
        for name in names:
            self._released.append(name)

    async def holds(self, *names: str) -> None:
        """Wait until the server has heard of just these calls, in this order."""
        await self.held.reaches(lambda held: len(held) >= len(names))
        assert self.held == list(names)


@asynccontextmanager
async def crowded(call: Answer) -> AsyncIterator[tuple[Client, Peer, TaskGroup]]:
    """A client with one connection, to a server that answers calls so; and tasks for these."""
    with anyio.fail_after(60):
        async with connected(mcp(call=call), max_connections=1) as (client, peer), anyio.create_task_group() as tasks:
            yield client, peer, tasks


async def in_line(tasks: TaskGroup, client: Client, *names: str) -> None:
    """Start a call of each tool, one after the other."""
    for name in names:
        tasks.start_soon(client.call_tool, name)
        await anyio.wait_all_tasks_blocked()


Connected: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[Client, Peer]]]


@asynccontextmanager
async def by_a_client_of_the_callers(script: Any, **options: Any) -> AsyncIterator[tuple[Client, Peer]]:
    async with (
        httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as http,
        connected(script, client=http, **options) as both,
    ):
        yield both


# Which calls wait


class Waves:
    """Answers no call before it holds *size* of them; then all of these."""

    def __init__(self, size: int) -> None:
        self.sizes = [0]
        self._size = size
        self._full = anyio.Event()

    async def __call__(self, wire: Wire, heard: Heard) -> None:
        full = self._full
        self.sizes[-1] += 1
        if self.sizes[-1] == self._size:
            self.sizes.append(0)
            self._full = anyio.Event()
            full.set()
        await full.wait()
        await says()(wire, heard)


async def in_flight(client: Client, count: int) -> int:
    """Make so many calls at once; return how many were answered."""
    answered = 0

    async def call() -> None:
        nonlocal answered
        await client.call_tool("tides")
        answered += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call)
    return answered


@pytest.mark.parametrize("by_httpx", ["our pool"], indirect=True)  # httpx takes half a minute for them
async def test_a_thousand_calls_in_flight_share_a_hundred_connections() -> None:
    server = Waves(100)
    with anyio.fail_after(60):
        async with connected(mcp(call=server)) as (client, peer):
            assert await in_flight(client, 1000) == 1000

    assert server.sizes == [100] * 10 + [0]
    assert 100 <= peer.connections <= 102, "besides the calls there is a handshake, and a GET beside its end"


@pytest.mark.parametrize("connected", [connected, by_a_client_of_the_callers], ids=["own", "the caller's"])
async def test_no_more_calls_are_made_at_once_than_there_may_be_connections(connected: Connected) -> None:
    server = Waves(10)
    with anyio.fail_after(25):
        async with connected(mcp(call=server), max_connections=10) as (client, peer):
            assert await in_flight(client, 60) == 60

    assert server.sizes == [10] * 6 + [0]
    assert 10 <= peer.connections <= 12


async def test_calls_that_wait_are_made_in_the_order_of_asking() -> None:
    server = Holding()
    async with crowded(server) as (client, _, tasks):
        await in_line(tasks, client, "a", "b", "c", "d", "e")
        await server.holds("a")
        server.release("a", "b", "c", "d", "e")

    assert server.held == ["a", "b", "c", "d", "e"]


async def test_a_call_that_failed_makes_room_like_one_that_was_answered() -> None:
    answers = in_turn(says(b"", 500), says(b"{}"), lambda wire, heard: wire.reset(), says())
    async with connected(mcp(call=answers), max_connections=1) as (client, peer):
        for _ in range(3):
            with pytest.raises(McpError), anyio.fail_after(25):
                await client.call_tool("tides")
        await tides(client)

    assert subjects(peer).count("call") == 4


async def test_a_connection_with_an_unfinished_response_is_in_use() -> None:
    """The next call neither goes out beside it, nor waits longer than the unread rest is drained."""
    first_is_over = False
    overlapped: list[bool] = []

    async def lingering(wire: Wire, heard: Heard) -> None:
        nonlocal first_is_over
        await wire.say(chunked(event(filled(DONE, heard))))
        await wire.hung_up()
        first_is_over = True

    async def at_once(wire: Wire, heard: Heard) -> None:
        overlapped.append(not first_is_over)
        await says()(wire, heard)

    async with connected(mcp(call=in_turn(lingering, at_once)), max_connections=1) as (client, _):
        await tides(client)
        await tides(client)

    assert overlapped == [False]


@callers_own
@pytest.mark.parametrize("bound", [0, -1, float("nan")])
def test_there_is_at_least_one_connection(bound: int) -> None:
    with pytest.raises(ValueError, match=r"^max_connections must be at least 1, not"):
        StreamableHttp("http://server.test/mcp", max_connections=bound)


# The end of waiting


@pytest.mark.adjustable_clock
async def test_a_call_that_is_cancelled_or_times_out_while_it_waits_was_never_made_and_takes_no_turn() -> None:
    server = Holding()
    given_up = anyio.CancelScope()
    late: list[RequestTimeout] = []

    async def give_up(client: Client) -> None:
        with given_up:
            await client.call_tool("b")

    async def time_out(client: Client) -> None:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("c", timeout=30)
        late.append(caught.value)

    async with crowded(server) as (client, peer, tasks):
        await in_line(tasks, client, "a")
        await server.holds("a")
        for end in (give_up, time_out):
            tasks.start_soon(end, client)
            await anyio.wait_all_tasks_blocked()
        advance(30)
        await in_line(tasks, client, "d")
        given_up.cancel()
        await anyio.wait_all_tasks_blocked()
        server.release("a", "d")

    assert given_up.cancelled_caught
    assert [error.may_have_run for error in late] == [False]
    assert server.held == ["a", "d"]
    assert "cancelled" not in subjects(peer), "the server knows of no such call"


async def test_a_server_is_not_silent_about_a_call_that_was_not_made_yet() -> None:
    """One that may be silent for no time at all still gets its turn; only then its time is up."""
    server = Holding()
    errors: list[RequestTimeout] = []

    async def call() -> None:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("b", idle_timeout=0)
        errors.append(caught.value)

    async with crowded(server) as (client, _, tasks):
        await in_line(tasks, client, "a")
        await server.holds("a")
        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        assert not errors
        server.release("a")

    (error,) = errors
    assert error.may_have_run is True


async def test_closing_tells_queued_calls_that_they_were_not_made() -> None:
    may_have_run: dict[str, bool] = {}

    async def call(client: Client, name: str) -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool(name)
        may_have_run[name] = caught.value.may_have_run

    async with crowded(hang) as (client, peer, tasks):
        tasks.start_soon(call, client, "a")
        await peer.heard.reaches(lambda heard: [subject(each) for each in heard].count("call") == 1)
        tasks.start_soon(call, client, "b")
        await anyio.wait_all_tasks_blocked()
        await client.aclose()

    assert may_have_run == {"a": True, "b": False}


# What never waits


@pytest.mark.fault("C12")
async def test_a_handler_may_call_the_server_while_every_connection_waits_for_it() -> None:
    """Nor does its reply wait."""
    answers = Log[object]()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await client.call_tool("tides")
        return request.reply("Paris")

    async def asking(wire: Wire, heard: Heard) -> None:
        await wire.events(event(ASK))
        await answers.reaches(lambda answers: len(answers) == 1)
        await wire.say(event(filled(DONE, heard)))
        await wire.end()

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc["id"])
        await wire.reply(202)

    sampling = Sampling(with_tools=model, approve=always)
    script = mcp(call=in_turn(asking, says()), answer=answer)
    async with connected(script, sampling=sampling, max_connections=1) as (client, peer):
        await tides(client)

    assert [each for each in subjects(peer) if each in ("call", "answer")] == ["call", "call", "answer"]


@pytest.mark.fault("C12", "E27")
async def test_a_callback_may_call_the_server_while_its_call_has_the_only_connection() -> None:
    async def on_progress(report: ProgressNotificationParams) -> None:
        await tides(client)

    script = mcp(call=in_turn(streams(event(PROGRESS), event(DONE)), says()))
    async with connected(script, max_connections=1) as (client, peer):
        await tides(client, on_progress=on_progress)

    assert subjects(peer).count("call") == 2


async def test_a_new_handshake_does_not_wait_for_calls_of_the_last_session() -> None:
    """The only connection has a call that will never end; what its handler calls finds the session lost."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await client.call_tool("tides")
        return request.reply("Paris")

    resourceful = [welcome(id, capabilities={"tools": {}, "resources": {"subscribe": True}}) for id in ("s-1", "s-2")]
    script = mcp(
        initialize=in_turn(*resourceful),
        call=in_turn(streams(event(ASK), stay=True), says(b"", 404)),
        subscribe=says(b'{"jsonrpc":"2.0","id":@id,"result":{}}'),
    )
    sampling = Sampling(with_tools=model, approve=always)
    with anyio.fail_after(25):
        async with (
            connected(script, sampling=sampling, max_connections=1) as (client, peer),
            anyio.create_task_group() as tasks,
        ):
            await client.subscribe_resource("sea:north")
            tasks.start_soon(client.call_tool, "tides")
            await peer.heard.reaches(lambda heard: [subject(each) for each in heard].count("subscribe") == 2)
            tasks.cancel_scope.cancel()

    assert [each for each in subjects(peer) if each in ("initialize", "subscribe", "call")] == [
        *("initialize", "subscribe", "call", "call"),
        *("initialize", "subscribe"),
    ]


async def test_streams_that_stay_open_take_no_connection_from_the_calls() -> None:
    async with connected(mcp(get=streams(stay=True)), max_connections=1) as (client, peer):
        await peer.hears("GET", 1)
        for _ in range(3):
            await tides(client)

    assert subjects(peer).count("call") == 3


async def test_a_subscription_stream_does_not_count_as_a_call() -> None:
    async def on_change(change: Change) -> None:
        pass

    script = mcp(discover=says(DISCOVERED), listen=streams(event(AGREED), stay=True))
    async with connected(script, era="modern", on_change=on_change, max_connections=1) as (client, peer):
        for _ in range(3):
            await tides(client)

    assert subjects(peer) == ["discover", "listen", "call", "call", "call"]


async def test_a_cancellation_is_sent_while_the_next_call_has_the_only_connection() -> None:
    server = Holding()
    given_up = anyio.CancelScope()

    async def give_up(client: Client) -> None:
        with given_up:
            await client.call_tool("a")

    async with crowded(server) as (client, peer, tasks):
        tasks.start_soon(give_up, client)
        await server.holds("a")
        await in_line(tasks, client, "b")
        given_up.cancel()
        await server.holds("a", "b")
        await peer.heard.reaches(lambda heard: "cancelled" in map(subject, heard))
        server.release("b")


async def test_the_end_of_a_session_does_not_wait_for_calls_that_hang() -> None:
    async with crowded(hang) as (client, peer, tasks):
        tasks.start_soon(client.call_tool, "a")
        await peer.heard.reaches(lambda heard: "call" in map(subject, heard))
        tasks.cancel_scope.cancel()

    assert subjects(peer)[-1] == "delete"
