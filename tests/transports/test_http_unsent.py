"""Requests that never left: a server that is away for a moment gets them when it is back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from itertools import pairwise
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from anyio.abc import TaskGroup, TaskStatus

from mcp_host import Change, Client, Sampling, SamplingRequest, StreamableHttp, always
from mcp_host.errors import ConnectFailed, ConnectionClosed, RequestTimeout
from mcp_host.types import CreateMessageResult
from tests.clock import advance
from tests.faults.http_server import DISCOVERED, DONE, TIDES, drop, failing, mcp, says, subject, tides
from tests.transports.http_contract import by_httpx, callers_own, libraries  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import Peer, Script, serving, timed
from tests.transports.legacy_peers import hang, in_turn

ASKS = (
    b'{"jsonrpc":"2.0","id":@id,"result":{"resultType":"input_required","requestState":"s","inputRequests":'
    b'{"q":{"method":"sampling/createMessage","params":{"maxTokens":9,'
    b'"messages":[{"role":"user","content":{"type":"text","text":"And now?"}}]}}}}}'
)


class Restartable:
    """A server at one address, which can go away and come back."""

    def __init__(self, script: Script, tasks: TaskGroup) -> None:
        self.lives: list[Peer] = []
        """What each time between two starts was like."""
        self._script = script
        self._tasks = tasks
        self._port = 0
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    @property
    def url(self) -> str:
        return self.lives[0].url

    async def start(self) -> None:
        self.lives.append(await self._tasks.start(self._serve))
        self._port = int(self.url.removesuffix("/mcp").rpartition(":")[2])

    async def stop(self) -> None:
        self._scope.cancel()
        await self._ended.wait()
        await anyio.wait_all_tasks_blocked()  # until the sockets are closed, which asyncio does in its own time

    def heard(self) -> list[list[str]]:
        return [[subject(each) for each in life.heard] for life in self.lives]

    async def _serve(self, *, task_status: TaskStatus[Peer]) -> None:
        self._scope, self._ended = anyio.CancelScope(), anyio.Event()
        with self._scope:
            async with serving(self._script, port=self._port) as peer:
                task_status.started(peer)
                await anyio.sleep_forever()
        self._ended.set()


@asynccontextmanager
async def restartable(**answers: Any) -> AsyncIterator[Restartable]:
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            server = Restartable(mcp(discover=says(DISCOVERED), **answers), tasks)
            await server.start()
            yield server
            tasks.cancel_scope.cancel()


def sampling_that_stops(server: Restartable) -> Sampling:
    """The server is away when the model's answer is ready."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await server.stop()
        return request.reply("Paris")

    return Sampling(with_tools=model, approve=always)


@asynccontextmanager
async def going_away(pauses: Pauses) -> AsyncIterator[Client]:
    """A client whose server asks for sampling in a call, and goes away before it gets the answer."""
    async with (
        restartable(call=says(ASKS)) as server,
        Client(timed(server.url, sleep_unsent=pauses), era="modern", sampling=sampling_that_stops(server)) as client,
    ):
        yield client


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


class Pauses(list[float]):
    """Each pause before a request is tried again, which takes no time; in the second of them, *meanwhile* happens."""

    meanwhile: Callable[[], Awaitable[None]] = staticmethod(anyio.lowlevel.checkpoint)

    def __init__(self) -> None:
        super().__init__()
        self.ended = anyio.Event()
        """Set when the second one has ended."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        if len(self) == 2:
            await self.meanwhile()
            self.ended.set()


@pytest.mark.parametrize(
    "client", [nullcontext, httpx.AsyncClient, httpx2.AsyncClient], ids=["own", "the caller's", "one of httpx2"]
)
async def test_an_answer_that_is_ready_while_the_server_is_away_reaches_it_when_it_is_back(
    client: Callable[[], AbstractAsyncContextManager[httpx.AsyncClient | None]], pauses: Pauses
) -> None:
    async with restartable(call=in_turn(says(ASKS), says())) as server, client() as http:
        pauses.meanwhile = server.start
        async with Client(
            timed(server.url, client=http, sleep_unsent=pauses), era="modern", sampling=sampling_that_stops(server)
        ) as host:
            assert (await host.call_tool("tides")).content == TIDES

    assert pauses == [0.1, 0.5]
    assert server.heard() == [["discover", "call"], ["call"]]


@pytest.mark.fault("H23")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_any_call_of_a_server_that_was_there_before_is_made_when_it_is_back(era: Any, pauses: Pauses) -> None:
    async with restartable() as server:
        pauses.meanwhile = server.start
        async with Client(timed(server.url, sleep_unsent=pauses), era=era) as client:
            await server.stop()
            await tides(client)
            await tides(client)

    assert pauses == [0.1, 0.5]
    assert [about for about in server.heard()[1] if about != "delete"] == ["call", "call"]


@pytest.mark.fault("H23")
async def test_a_server_that_stays_unreachable_fails_the_call_which_has_not_run(pauses: Pauses) -> None:
    async with restartable() as server, Client(timed(server.url, sleep_unsent=pauses), era="modern") as client:
        await server.stop()
        error = await failing(client)

    assert type(error) is ConnectFailed
    assert error.may_have_run is False
    assert pauses == [0.1, 0.5, 2.0]


async def test_a_server_that_stays_away_in_the_middle_of_a_call_may_have_run_its_beginning(pauses: Pauses) -> None:
    async with going_away(pauses) as client:
        error = await failing(client)

    assert isinstance(error, ConnectFailed)
    assert error.may_have_run is True
    assert pauses == [0.1, 0.5, 2.0]


async def test_a_server_that_was_never_reached_fails_at_once(pauses: Pauses) -> None:
    async with restartable() as server:
        await server.stop()
        with pytest.raises(ConnectFailed):
            await Client(timed(server.url, sleep_unsent=pauses), era="modern").connect()

    assert pauses == []


async def test_a_request_that_may_have_been_read_is_not_repeated(pauses: Pauses) -> None:
    async with restartable(call=drop) as server, Client(timed(server.url, sleep_unsent=pauses), era="modern") as client:
        error = await failing(client)

    assert isinstance(error, ConnectionClosed)
    assert error.may_have_run is True
    assert (pauses, server.heard()) == ([], [["discover", "call"]])


async def time_passes() -> None:
    advance(3)
    await anyio.sleep_forever()


@pytest.mark.adjustable_clock
async def test_a_deadline_that_passes_in_a_pause_ends_the_call_and_nothing_has_run(pauses: Pauses) -> None:
    pauses.meanwhile = time_passes
    async with restartable() as server, Client(timed(server.url, sleep_unsent=pauses), era="legacy") as client:
        await server.stop()
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("tides", timeout=3)

    assert caught.value.may_have_run is False


@pytest.mark.adjustable_clock
async def test_a_deadline_that_passes_before_a_later_round_is_sent_leaves_a_beginning_that_may_have_run(
    pauses: Pauses,
) -> None:
    pauses.meanwhile = time_passes
    async with going_away(pauses) as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("tides", timeout=3)

    assert caught.value.may_have_run is True


async def test_a_request_that_was_sent_after_retries_may_have_run(pauses: Pauses) -> None:
    errors: list[ConnectionClosed] = []

    async def call() -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool("tides")
        errors.append(caught.value)

    async with (
        restartable(call=hang) as server,
        Client(timed(server.url, sleep_unsent=pauses), era="modern") as client,
        anyio.create_task_group() as tasks,
    ):
        pauses.meanwhile = server.start
        await server.stop()
        tasks.start_soon(call)
        await pauses.ended.wait()
        await server.lives[1].hears("POST", 1)
        await client.aclose()

    assert [error.may_have_run for error in errors] == [True]


@callers_own
@pytest.mark.fake_clock
async def test_a_subscription_has_its_own_backoff() -> None:
    tried: list[float] = []
    tried_often = anyio.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        if b"subscriptions/listen" not in request.content:
            found: httpx.Response = answered(request)
            return found
        tried.append(anyio.current_time())
        if len(tried) == 4:
            tried_often.set()
        raise httpx.ConnectError("away")

    async def on_change(change: Change) -> None:
        pass

    with anyio.fail_after(30):
        async with (
            httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http,
            Client(StreamableHttp("http://server.test/mcp", client=http), era="modern", on_change=on_change),
        ):
            await tried_often.wait()

    assert [later - earlier for earlier, later in pairwise(tried)] == pytest.approx([1.5, 2.25, 3.375])


@asynccontextmanager
async def mocked(
    answer: Callable[[Any], Any], pauses: Pauses, library: Any = httpx, **options: Any
) -> AsyncIterator[Client]:
    """A client by one of the caller's, with *options*, whose server is one function."""
    async with (
        library.AsyncClient(transport=library.MockTransport(answer), **options) as http,
        Client(timed("http://server.test/mcp", client=http, sleep_unsent=pauses), era="modern") as client,
    ):
        yield client


@callers_own
@libraries
@pytest.mark.parametrize("failure", ["ConnectTimeout", "PoolTimeout"])
async def test_a_request_that_timed_out_while_connecting_is_not_retried(
    library: Any, failure: str, pauses: Pauses
) -> None:
    def answer(request: Any) -> Any:
        if b"tools/call" in request.content:
            raise getattr(library, failure)("too late")
        return answered(request, library)

    async with mocked(answer, pauses, library) as client:
        error = await failing(client)

    assert type(error) is ConnectFailed
    assert error.may_have_run is False
    assert pauses == []


@callers_own
@libraries
@pytest.mark.parametrize("refused", ["ConnectError", "ProxyError"], ids=["no name", "by a proxy"])
async def test_a_name_that_is_not_found_and_a_proxy_that_finds_no_server_are_over_in_a_moment_too(
    library: Any, refused: str, pauses: Pauses
) -> None:
    left = [getattr(library, refused)("cannot be reached")] * 2

    def answer(request: Any) -> Any:
        if b"tools/call" in request.content and left:
            raise left.pop()
        return answered(request, library)

    async with mocked(answer, pauses, library) as client:
        await tides(client)

    assert pauses == [0.1, 0.5]


def answered(request: Any, library: Any = httpx) -> Any:
    """What a server that can be reached says."""
    template = DONE if b"tools/call" in request.content else DISCOVERED
    id = str(json.loads(request.content)["id"]).encode()
    return library.Response(200, headers={"content-type": "application/json"}, content=template.replace(b"@id", id))


async def asks_elsewhere(response: httpx.Response) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as other:
        await other.get("http://metrics.test/")


async def fails_itself(response: httpx.Response) -> None:
    raise httpx.ConnectError("refused")


@callers_own
@pytest.mark.parametrize("hook", [asks_elsewhere, fails_itself])
async def test_a_failure_of_a_hook_does_not_show_whether_our_request_has_run(
    hook: Callable[[httpx.Response], Awaitable[None]], pauses: Pauses
) -> None:
    """A hook is called when the server has run the call."""
    calls: list[bytes] = []

    def answer(request: httpx.Request) -> Any:
        if b"tools/call" in request.content:
            calls.append(request.content)
        return answered(request)

    async def after_calls(response: httpx.Response) -> None:
        if b"tools/call" in response.request.content:
            await hook(response)

    async with mocked(answer, pauses, event_hooks={"response": [after_calls]}) as client:
        error = await failing(client)

    assert type(error) is ConnectionClosed
    assert error.may_have_run is True
    assert (len(calls), pauses) == (1, [])
