"""Progress of calls, whose callback may raise anything, and of handlers, which tell a server how far their answer has come."""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Elicitation, FormRequest, Sampling, SamplingRequest, StreamableHttp, always
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
from mcp_host.sampling import Handler
from mcp_host.session.call import Call, CallTimeouts, PendingRequest
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult, ElicitResult, ProgressNotificationParams
from tests.client.rounds import DONE, SAMPLE, answering, wants
from tests.client.sites import MIRRORED, Site, handshake, streamed
from tests.client.support import EMPTY, PARIS, QUESTION, Era, connected, methods, report_progress, sampling
from tests.clock import advance
from tests.extent import on_both
from tests.transports.http_peers import event


def reporting(era: Era, *, answered: bool) -> ScriptedPeer:
    """A peer that reports progress twice to its first request, and then answers it or not."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, {"tools": {}, "resources": {}})
        request = await peer.receive()
        await report_progress(peer, request, 1, 2)
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


ENTERED: ContextVar[bool] = ContextVar("ENTERED", default=False)  # a thread has a copy of its caller's variables


class PlainCallback:
    """A plain callback that waits for *go*, and counts the threads that are begun for it."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.threads = 0
        self.go = threading.Event()

    def __call__(self, report: ProgressNotificationParams) -> None:
        self.threads += not ENTERED.get()
        ENTERED.set(True)
        assert self.go.wait(25)
        self.seen.append(report.progress)


@on_both
async def test_a_plain_progress_callback_gets_all_that_has_arrived_in_one_thread(era: Era) -> None:
    """A thread takes a hundred times as long as the callback, so a flood would delay the answer."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        await report_progress(peer, call, *range(500))
        await peer.reply(call, EMPTY)
        await anyio.wait_all_tasks_blocked()
        callback.go.set()

    callback = PlainCallback()
    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("x", on_progress=callback)

    assert callback.seen == [*range(500)]
    assert callback.threads <= 2  # of what had arrived when it began, and of the rest


@on_both
async def test_over_http_a_plain_callback_gets_the_progress_of_one_piece_in_one_thread() -> None:
    def answer(message: dict[str, Any]) -> httpx.Response:
        token = message["params"]["_meta"]["progressToken"]
        said = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}'
        reports = b"".join([event(said % (token, step)) for step in range(500)])
        return streamed(reports, {"id": message["id"], "result": DONE})

    callback = PlainCallback()
    callback.go.set()
    with anyio.fail_after(25):
        async with Site(tools_call=answer).client() as client:
            await client.call_tool("x", on_progress=callback)

    assert callback.seen == [*range(500)]
    assert callback.threads == 1


@pytest.mark.adjustable_clock
@on_both
async def test_a_thread_that_a_timeout_has_left_behind_calls_no_more_of_its_callback(era: Era) -> None:
    async def let_the_call_time_out() -> None:
        while not callback.threads:
            await anyio.to_thread.run_sync(int)
        advance(300)

    callback = PlainCallback()
    async with connected(reporting(era, answered=False), within=600) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(let_the_call_time_out)
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", on_progress=callback, timeout=300)
        callback.go.set()
        while not callback.seen:
            await anyio.to_thread.run_sync(int)
        await anyio.to_thread.run_sync(int)

    assert callback.seen == [1]


@on_both
async def test_a_lambda_that_calls_an_async_function_is_awaited_for_one_report_after_the_other(era: Era) -> None:
    async def note(report: ProgressNotificationParams) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(report.progress)

    seen: list[float] = []
    async with connected(reporting(era, answered=True)) as client:
        await client.call_tool("x", on_progress=lambda report: note(report))

    assert seen == [1, 2]


async def test_a_progress_callback_that_could_not_be_called_is_refused_before_anything_is_sent(era: Era) -> None:
    async def without_parameters() -> None:
        raise AssertionError

    peer = ScriptedPeer(era.open)
    async with connected(peer, within=30) as client:
        with pytest.raises(TypeError, match=r"on_progress\(progress: ProgressNotificationParams\) -> None"):
            await client.call_tool("x", on_progress=without_parameters)  # type: ignore[arg-type]  # which is what is tested

    assert era.said_to(peer) == []


@pytest.mark.fault("C11")
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


def pending(idle_timeout: float, note: Callable[[deque[dict[str, Any]]], Awaitable[None]]) -> PendingRequest:
    """A tool call with the id 1 that waits for its answer, and whose progress *note* gets."""
    timeouts = CallTimeouts(timeout=100, idle_timeout=idle_timeout)
    call = Call(method="tools/call", params={}, timeouts=timeouts, on_reports=note)
    request, alarm = Request(1, "tools/call", {}), Alarm(Loop.running())
    return PendingRequest(request, timeouts, lambda message, origin: None, alarm, call)


@on_both
async def test_progress_that_came_with_the_answer_is_delivered_after_the_timeout() -> None:
    async def note(reports: deque[dict[str, Any]]) -> None:
        seen.append(reports.popleft()["progress"])

    seen: list[int] = []
    handle = pending(10, note)
    handle.report({"progressToken": 1, "progress": 1})
    handle.settle(Success(1, {}))
    handle.expire()

    await handle.deliver_progress()

    assert seen == [1]


@pytest.mark.fake_clock
async def test_progress_on_another_stream_is_a_sign_of_life() -> None:
    async def note(reports: deque[dict[str, Any]]) -> None:
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
        await report_progress(peer, call, 1)
        while True:
            await peer.reply(await peer.receive("tools/call"), EMPTY)

    error = SessionLost("of another client", may_have_run=False)
    peer = ScriptedPeer(script)
    async with connected(peer) as client:
        with pytest.raises(SessionLost) as caught:
            await client.call_tool("x", on_progress=fails_with(error), timeout=25)
        await client.call_tool("y")

    assert caught.value is error
    assert methods(peer).count("initialize") == 1


async def test_an_error_of_a_progress_callback_during_a_repeated_call_reaches_the_caller() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        while True:
            for asked in (wants("again"), wants(None, k=SAMPLE)):
                await peer.reply(await peer.receive("tools/call"), asked)
                call = await peer.receive("tools/call")
                await report_progress(peer, call, 1)
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


# Of handlers


FORM = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}


class Asking:
    """A server that asks once within a call, and remembers what it heard."""

    def __init__(self, method: str, params: dict[str, Any], token: object) -> None:
        self._method = method
        self._params = params if token is None else params | {"_meta": {"progressToken": token}}
        self.heard: list[object] = []

    async def __call__(self, peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": "q", "method": self._method, "params": self._params})
        while "method" in (message := await peer.receive()):
            assert message["method"] == "notifications/progress"
            self.heard.append(message["params"])
        self.heard.append(message.get("result", message.get("error")))
        await peer.reply(call, EMPTY)
        while True:
            self.heard.append(await peer.receive())


async def model(request: SamplingRequest) -> CreateMessageResult:
    await request.report_progress(1)
    await request.report_progress(2.5, 4, "thinking")
    await request.report_progress(2.5)  # which does not grow
    await request.report_progress(0, message="again")
    await request.report_progress(3, total=4)
    return request.reply("Paris", model="m")


def reports(token: object) -> list[object]:
    return [
        {"progressToken": token, "progress": 1},
        {"progressToken": token, "progress": 2.5, "total": 4, "message": "thinking"},
        {"progressToken": token, "progress": 3, "total": 4},
    ]


async def heard(with_tools: Handler, *, token: object = "t") -> list[object]:
    """What a server hears that asks this model within a call, and gives *token*."""
    script = Asking("sampling/createMessage", QUESTION, token)
    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=with_tools)) as client:
        await client.call_tool("x")
    return script.heard


@on_both
async def test_a_server_that_gave_a_token_gets_the_progress_of_its_sampling(subtests: pytest.Subtests) -> None:
    for token in ("t", 7, 0):
        with subtests.test(token=token):
            assert await heard(model, token=token) == [*reports(token), PARIS]
    for wrong in (None, True, 1.5, ["t"]):
        with subtests.test(wrong=ascii(wrong)):
            assert await heard(model, token=wrong) == [PARIS]


async def test_a_stateless_server_gets_no_progress() -> None:
    """The only notification of a client since 2026-07-28 is a cancellation."""
    ask = {**SAMPLE, "params": QUESTION | {"_meta": {"progressToken": "t"}}}
    peer = answering(wants(None, k=ask), DONE)
    async with connected(peer, sampling=sampling(with_tools=model)) as client:
        await client.call_tool("x")

    assert methods(peer) == ["server/discover", "tools/call", "tools/call"]


async def test_a_form_reports_as_well() -> None:
    async def fill_in(request: FormRequest) -> ElicitResult:
        await request.report_progress(0.5, message="asking")
        return request.decline()

    script = Asking("elicitation/create", FORM, "t")
    async with connected(ScriptedPeer(script), era="legacy", elicitation=Elicitation(form=fill_in)) as client:
        await client.call_tool("x")

    assert script.heard == [{"progressToken": "t", "progress": 0.5, "message": "asking"}, {"action": "decline"}]


@on_both
async def test_after_the_answer_nothing_is_reported() -> None:
    requests: list[SamplingRequest] = []

    async def leave_it(request: SamplingRequest) -> CreateMessageResult:
        requests.append(request)
        return request.reply("Paris", model="m")

    script = Asking("sampling/createMessage", QUESTION, "t")
    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=leave_it)) as client:
        await client.call_tool("x")
        await requests[0].report_progress(1)
        await anyio.wait_all_tasks_blocked()

    assert script.heard == [PARIS]


async def test_a_report_that_is_no_progress_raises_in_the_handler_and_does_not_count_as_the_last_one() -> None:
    async def count(request: SamplingRequest) -> CreateMessageResult:
        numbers: list[tuple[float, float | None]] = [(math.nan, None), (math.inf, None), (1, math.inf)]
        for progress, total in numbers:
            with pytest.raises(ValueError, match="finite"):
                await request.report_progress(progress, total)
        with pytest.raises(ValueError, match="progress"):
            await request.report_progress(True)
        with pytest.raises(ValueError, match="message"):
            await request.report_progress(1, message=5)  # type: ignore[arg-type]  # the mistake in question
        await request.report_progress(1)
        return request.reply("Paris", model="m")

    assert await heard(count) == [{"progressToken": "t", "progress": 1}, PARIS]


@on_both
async def test_over_http_reports_are_posts_that_come_before_the_answer() -> None:
    async def serve(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        message = json.loads(request.content)
        match message.get("method"):
            case "initialize":
                return handshake(message)
            case "tools/call":
                params = QUESTION | {"_meta": {"progressToken": "t"}}
                question = {"id": "q", "method": "sampling/createMessage", "params": params}
                return streamed(question, answered, {"id": message["id"], "result": EMPTY})
            case "notifications/progress":
                received.append(message["params"])
                return httpx.Response(500)  # which fails no handler
            case None:
                received.append(message["result"])
                answered.set()
        return httpx.Response(202)

    answered, received = anyio.Event(), list[object]()
    transport = StreamableHttp("http://server.test/mcp", client=httpx.AsyncClient(transport=httpx.MockTransport(serve)))
    async with connected(transport, era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("x")

    assert received == [*reports("t"), PARIS]


async def test_a_callback_for_another_client_reports_nothing() -> None:
    callback = Sampling(with_tools=model, approve=always).callback(server="other")

    answer = await callback(QUESTION | {"_meta": {"progressToken": "t"}})

    assert answer == {"result": PARIS}


async def test_progress_that_is_not_json_is_logged_and_the_answer_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def report_a_surrogate(request: SamplingRequest) -> CreateMessageResult:
        await request.report_progress(1, message="\ud800")
        return request.reply("Paris", model="m")

    assert await heard(report_a_surrogate) == [PARIS]
    assert "a message could not be written as JSON" in caplog.text
