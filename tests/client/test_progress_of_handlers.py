"""Handlers that tell a server how far their answer has come."""

from __future__ import annotations

import json
import math
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Elicitation, FormRequest, Sampling, SamplingRequest, StreamableHttp, always
from mcp_host.sampling import Handler
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult, ElicitResult
from tests.client.rounds import DONE, SAMPLE, answering, wants
from tests.client.sites import handshake, streamed
from tests.client.support import EMPTY, PARIS, QUESTION, connected, sampling
from tests.extent import on_both

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

    assert [message["method"] for message in peer.received] == ["server/discover", "tools/call", "tools/call"]


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
