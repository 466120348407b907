"""An exception in a progress callback reaches the caller unchanged, whether it is an error of ours or not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest

from mcp_host.concurrency.backends import Loop
from mcp_host.concurrency.deadlines import Alarm
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    HeaderMismatch,
    McpError,
    NotConnected,
    RequestTimeout,
    ServerError,
    SessionLost,
    Unauthorized,
)
from mcp_host.protocol.jsonrpc import Request, Success
from mcp_host.session.call import Call, CallTimeouts, PendingRequest
from mcp_host.testing import ScriptedPeer
from mcp_host.types import ProgressNotificationParams
from tests.client.rounds import DONE, SAMPLE, wants
from tests.client.sites import MIRRORED, Site, streamed
from tests.client.support import EMPTY, Era, connected, sampling
from tests.extent import on_both


def reporting(era: Era, *, answered: bool) -> ScriptedPeer:
    """A peer that reports progress twice to its first request, and then answers it or not."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, {"tools": {}, "resources": {}})
        request = await peer.receive()
        for done in (1, 2):
            await peer.notify("notifications/progress", {"progressToken": request["id"], "progress": done})
        if answered:
            await peer.reply(request, EMPTY)
        await peer.receive()

    return ScriptedPeer(script)


@on_both
async def test_a_progress_callback_may_be_a_plain_function(era: Era) -> None:
    seen: list[float] = []
    async with connected(reporting(era, answered=True), within=30) as client:
        await client.call_tool("x", on_progress=lambda report: seen.append(report.progress))

    assert seen == [1, 2]


async def test_a_progress_callback_that_could_not_be_called_is_refused_before_anything_is_sent(era: Era) -> None:
    async def without_parameters() -> None:
        raise AssertionError

    peer = ScriptedPeer(era.open)
    async with connected(peer, within=30) as client:
        with pytest.raises(TypeError, match=r"on_progress\(progress: ProgressNotificationParams\) -> None"):
            await client.call_tool("x", on_progress=without_parameters)  # type: ignore[arg-type]  # which is what is tested

    assert era.said_to(peer) == []


@on_both
@pytest.mark.parametrize("error", [ValueError("mine"), ServerError(5, "of another call")], ids=["any", "one of ours"])
@pytest.mark.parametrize("answered", [False, True], ids=["before the answer", "after the answer"])
async def test_an_exception_of_a_progress_callback_ends_only_its_call(
    era: Era, error: Exception, answered: bool
) -> None:
    async def on_progress(progress: ProgressNotificationParams) -> None:
        seen.append(progress.progress)
        await anyio.wait_all_tasks_blocked()  # until the server has said all
        raise error

    seen: list[float] = []
    peer = reporting(era, answered=answered)
    async with connected(peer) as client:
        with pytest.raises(type(error)) as caught:
            await client.call_tool("slow", on_progress=on_progress)
        await anyio.wait_all_tasks_blocked()

    assert caught.value is error
    assert seen == [1]
    call, *others = era.said_to(peer)
    cancelled = [] if answered else [("notifications/cancelled", call["id"])]
    assert [(message["method"], message["params"]["requestId"]) for message in others] == cancelled


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("closed", [False, True], ids=["connected", "closed meanwhile"])
async def test_no_callback_runs_or_begins_after_the_timeout(era: Era, closed: bool) -> None:
    async def never_end(progress: ProgressNotificationParams) -> None:
        seen.append(progress.progress)
        began.set()
        await anyio.sleep_forever()

    async def call_slow() -> None:
        with pytest.raises(ConnectionClosed if closed else RequestTimeout):
            await client.call_tool("slow", on_progress=never_end, timeout=1.5 if closed else 0.1)

    began = anyio.Event()
    seen: list[float] = []
    async with connected(reporting(era, answered=False)) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call_slow)
        await began.wait()
        if closed:
            await client.aclose()  # which gives callers a second

    assert seen == [1]


def pending(idle_timeout: float, note: Callable[[dict[str, Any]], Awaitable[None]]) -> PendingRequest:
    """A tool call with the id 1 that waits for its answer, and whose progress *note* gets."""
    timeouts = CallTimeouts(timeout=100, idle_timeout=idle_timeout)
    call = Call(method="tools/call", params={}, timeouts=timeouts, on_report=note)
    request, alarm = Request(1, "tools/call", {}), Alarm(Loop.running())
    return PendingRequest(request, timeouts, lambda message, origin: None, alarm, call)


@on_both
async def test_progress_that_came_with_the_answer_is_delivered_after_the_timeout() -> None:
    async def note(params: dict[str, Any]) -> None:
        seen.append(params["progress"])

    seen: list[int] = []
    handle = pending(10, note)
    handle.report({"progressToken": 1, "progress": 1})
    handle.settle(Success(1, {}))
    handle.expire()

    await handle.deliver_progress()

    assert seen == [1]


@pytest.mark.fake_clock
async def test_progress_on_another_stream_is_a_sign_of_life() -> None:
    async def note(params: dict[str, Any]) -> None:
        raise AssertionError("not yet")

    handle = pending(10, note)
    await anyio.sleep(5)
    handle.report({"progressToken": 1, "progress": 1})

    assert handle.deadline == pytest.approx(anyio.current_time() + 10)


# An error that the callback got from another client is not about this call.


def fails_with(error: McpError) -> Callable[[ProgressNotificationParams], None]:
    def on_progress(progress: ProgressNotificationParams) -> None:
        raise error

    return on_progress


OF_ANOTHER_CLIENT = [
    ConnectionClosed("another server exited", may_have_run=False),
    ConnectionClosed("the stream of another call broke"),
    SessionLost("another session is lost", may_have_run=False),
    RequestTimeout("another call took too long", may_have_run=False),
    Unauthorized(401, "log in elsewhere"),
    HeaderMismatch(-32020, "another server misses a header"),
]


async def test_an_error_that_a_progress_callback_raises_repeats_nothing_and_drops_no_cached_result() -> None:
    def answer_with_progress(request: dict[str, Any]) -> httpx.Response:
        report = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1}
        progress = {"method": "notifications/progress", "params": report}
        return streamed(progress, {"id": request["id"], "result": EMPTY})

    listed = {"tools": [MIRRORED | {"annotations": {"idempotentHint": True}}], "ttlMs": 60_000, "cacheScope": "private"}
    site = Site(tools_list=listed, tools_call=answer_with_progress)
    async with site.connected() as client:
        await client.list_tools()
        for error in OF_ANOTHER_CLIENT:
            before = dict(vars(error))
            with pytest.raises(type(error)) as caught:
                await client.call_tool("query", on_progress=fails_with(error))
            await client.list_tools()

            assert caught.value is error
            assert vars(error) == before
    assert site.methods() == ["server/discover", "tools/list", *["tools/call"] * len(OF_ANOTHER_CLIENT)]


async def test_a_progress_callback_that_raises_session_lost_begins_no_new_session() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.notify("notifications/progress", {"progressToken": call["id"], "progress": 1})
        while True:
            await peer.reply(await peer.receive("tools/call"), EMPTY)

    error = SessionLost("of another client", may_have_run=False)
    peer = ScriptedPeer(script)
    async with connected(peer) as client:
        with pytest.raises(SessionLost) as caught:
            await client.call_tool("x", on_progress=fails_with(error), timeout=5)
        await client.call_tool("y")

    assert caught.value is error
    assert [message["method"] for message in peer.received].count("initialize") == 1


async def test_an_error_of_a_progress_callback_during_a_repeated_call_reaches_the_caller() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        while True:
            for asked in (wants("again"), wants(None, k=SAMPLE)):
                await peer.reply(await peer.receive("tools/call"), asked)
                call = await peer.receive("tools/call")
                await peer.notify("notifications/progress", {"progressToken": call["id"], "progress": 1})
                await peer.reply(call, DONE)

    errors = [CallerError("mine"), NotConnected("another client"), ConnectionClosed("another", may_have_run=False)]
    async with connected(ScriptedPeer(script), sampling=sampling()) as client:
        for error in errors:
            for _ in range(2):
                before = dict(vars(error))
                with pytest.raises(type(error)) as caught:
                    await client.call_tool("x", on_progress=fails_with(error))

                assert caught.value is error
                assert vars(error) == before


async def test_an_error_of_a_progress_callback_of_any_request_keeps_its_cause_and_where_it_was_raised(era: Era) -> None:
    async def on_progress(progress: ProgressNotificationParams) -> None:
        try:
            raise LookupError("why")
        except LookupError as why:
            causes.append(why)
            if progress.progress:
                raise ValueError("mine")  # noqa: B904  # its context is asserted

    causes: list[LookupError] = []
    async with connected(reporting(era, answered=False)) as client:
        with pytest.raises(ValueError, match="mine") as caught:
            await client.read_resource("a:1", on_progress=on_progress)

    assert (caught.value.__cause__, caught.value.__context__) == (None, causes[0])
    assert caught.traceback[-1].name == "on_progress"


@on_both
async def test_progress_that_comes_with_the_answer_but_after_it_is_not_delivered() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        report = {"progressToken": call["id"], "progress": 2}
        answer = {"jsonrpc": "2.0", "id": call["id"], "result": EMPTY}
        await peer.notify("notifications/progress", report | {"progress": 1})
        late = {"jsonrpc": "2.0", "method": "notifications/progress", "params": report}
        await peer.send_raw(json.dumps([answer, late]).encode())

    seen: list[float] = []
    async with connected(ScriptedPeer(script), era="legacy") as client:
        await client.call_tool("x", on_progress=lambda report: seen.append(report.progress))

    assert seen == [1]
    assert client.counters == {}
