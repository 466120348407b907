"""What is made again after a stream broke: for how long that may go on, and what is forgotten meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, OuterCall, SamplingRequest
from mcp_host.errors import ConnectFailed, ConnectionClosed, HeaderMismatch, RequestTimeout
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult
from tests.client.rounds import ROOTS, SAMPLE, wants
from tests.client.sites import Site, refused, streamed
from tests.client.support import ADD, Recorder, connected, ended_by_closing, open_listening, sampling
from tests.extent import on_both
from tests.transports.http_peers import EVENTS

pytestmark = [on_both, pytest.mark.fake_clock]

NEVER = 3600.0


def breaking(times: int, asked: list[float] | None = None) -> Site:
    """A site on which the stream of a read breaks so many times, and then says nothing any more. *asked* gets when."""
    left = times * [b": soon\n\n"]

    def read(message: dict[str, Any]) -> httpx.Response:
        if asked is not None:
            asked.append(anyio.current_time())
        if left:
            return streamed(left.pop())
        return streamed(anyio.Event())

    return Site(resources_read=read)


async def test_a_call_that_is_made_again_is_the_same_call_to_its_handlers() -> None:
    outers: list[OuterCall | None] = []

    async def model(request: SamplingRequest) -> CreateMessageResult:
        outers.append(request.outer)
        return request.reply("Paris", model="m")

    question = wants("s", k=SAMPLE)
    results: list[dict[str, Any] | None] = [question, None, question, {"contents": []}]

    def read(message: dict[str, Any]) -> httpx.Response:
        result = results.pop(0)
        if result is None:
            return streamed(b": soon\n\n")
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": result})

    async with Site(resources_read=read).connected(sampling=sampling(with_tools=model), within=5) as client:
        await client.read_resource("a:b", caller="ann")

    assert results == []
    first, second = outers
    assert first is not None
    assert first == OuterCall("resources/read", "a:b", 2, call_id=first.call_id)
    assert second == OuterCall("resources/read", "a:b", 4, call_id=first.call_id)
    assert [outer and outer.caller for outer in outers] == ["ann", "ann"]


async def test_a_request_whose_stream_breaks_is_made_again_three_times_after_longer_and_longer_pauses() -> None:
    asked: list[float] = []
    site = breaking(4, asked)

    async with site.connected(within=5) as client:
        with pytest.raises(ConnectionClosed) as failure:
            await client.read_resource("a:1")

    assert failure.value.may_have_run
    assert [end - begin for begin, end in pairwise(asked)] == pytest.approx([0.1, 0.5, 2.0])
    assert site.methods() == ["server/discover", *4 * ["resources/read"]]


async def test_a_request_that_is_made_again_keeps_the_deadline_of_the_first(subtests: pytest.Subtests) -> None:
    rows = [(1, 3, 2), (2, 3, 3), (3, 3, 4), (1, 0.05, 1)]  # in the last, half of the first wait
    for times, timeout, requests in rows:
        with subtests.test(times=times, timeout=timeout):
            site = breaking(times)
            async with site.connected(within=5) as client:
                begun = anyio.current_time()
                with pytest.raises(RequestTimeout, match=rf"took longer than {timeout} s \(timeout\)$"):
                    await client.read_resource("a:1", idle_timeout=NEVER, timeout=timeout)
                assert anyio.current_time() - begun == pytest.approx(timeout)

            assert site.methods() == ["server/discover", *requests * ["resources/read"]]


async def test_a_lost_request_may_have_run_if_it_could_not_be_sent_again() -> None:
    """The stream breaks. When the request is made again, the server cannot be reached until the time is up."""
    streams = [b": soon\n\n"]

    def read(message: dict[str, Any]) -> httpx.Response:
        if streams:
            return httpx.Response(200, headers=EVENTS, content=streams.pop())
        raise httpx.ConnectError("refused")

    async with Site(resources_read=read).connected(within=5) as client:
        with pytest.raises(RequestTimeout, match=r"took longer than 1 s \(timeout\)$") as failure:
            await client.read_resource("a:1", timeout=1)

    assert failure.value.may_have_run


async def test_the_cache_is_cleared_when_the_stream_of_changes_ends() -> None:
    """Changes before the next stream begins are not announced."""
    over = anyio.Event()
    fresh = {"resultType": "complete", "tools": [ADD], "ttlMs": 60_000, "cacheScope": "private"}

    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, {"tools": {"listChanged": True}})
        await peer.reply(await peer.receive("tools/list"), fresh)
        await over.wait()
        await peer.reply(listen, {"resultType": "complete"})
        await peer.reply(await peer.receive("tools/list"), fresh | {"tools": []})

    listings, changes = list[list[str]](), Recorder()

    async def list_tools() -> None:
        listings.append([tool.name for tool in await client.list_tools()])

    async with connected(ScriptedPeer(script), on_change=changes) as client:
        await list_tools()
        await list_tools()
        over.set()
        await anyio.wait_all_tasks_blocked()
        await list_tools()

    assert listings == [["add"], ["add"], []]
    assert changes == []


# Over connections that break


def site(*answers: Callable[[dict[str, Any]], object]) -> Client:
    """A client of a stateless server over HTTP that answers calls and reads with *answers*."""
    left = list(answers)

    def answer(message: dict[str, Any]) -> object:
        return left.pop(0)(message)

    return Site(tools_call=answer, resources_read=answer).client(roots=[])


def want_roots(message: dict[str, Any]) -> object:
    return wants("s", r=ROOTS)


def refuse_connection(message: dict[str, Any]) -> httpx.Response:
    raise httpx.ConnectError("refused")


def break_off(message: dict[str, Any]) -> httpx.Response:
    raise httpx.ReadError("reset")


@pytest.mark.parametrize(
    ("answers", "ask", "error"),
    [
        ([want_roots, *4 * [refuse_connection]], lambda client: client.call_tool("x"), ConnectFailed),
        ([want_roots, refused(400, -32020)], lambda client: client.call_tool("x"), HeaderMismatch),
        ([break_off, *5 * [refuse_connection]], lambda client: client.read_resource("a:1"), ConnectFailed),
    ],
    ids=["its first round", "headers were refused later", "its first attempt"],
)
async def test_a_call_may_have_run_if_a_part_of_it_was_sent(
    answers: list[Callable[..., object]], ask: Callable[[Client], Awaitable[object]], error: type[Any]
) -> None:
    with anyio.fail_after(5):
        async with site(*answers) as client:
            with pytest.raises(error) as raised:
                await ask(client)

    assert raised.value.may_have_run


async def test_the_pause_before_a_request_is_made_again_counts() -> None:
    with anyio.fail_after(5):
        async with site(break_off, break_off) as client:
            with pytest.raises(RequestTimeout, match=r"took longer than 0.05 s \(timeout\)$"):
                await client.read_resource("a:1", timeout=0.05)


async def test_closing_ends_the_pause_before_a_request_is_made_again() -> None:
    client = site(break_off, break_off)
    client._state.retry_delays = (60.0,)

    with anyio.fail_after(5):
        await client.connect()
        (ended,) = await ended_by_closing(client, lambda: client.read_resource("a:1"))

    assert ended.may_have_run
