"""What a server of the handshake revisions asks of us, and what it hears in return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest

from mcp_host import Elicitation, FormRequest, SamplingRequest
from mcp_host.errors import ServerError
from mcp_host.limits import Limits
from mcp_host.session.session import Session
from mcp_host.testing import ScriptedPeer
from mcp_host.types import AudioContent, CreateMessageResult, ElicitResult, ToolUseContent
from tests.client.support import (
    ADD,
    EMPTY,
    INITIALIZED,
    PARIS,
    QUESTION,
    TOOLS,
    Era,
    HangingModel,
    Recorder,
    ask_during_call,
    connected,
    sampling,
    text,
)
from tests.extent import on_both

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run


async def asked(
    method: str = "sampling/createMessage",
    params: Mapping[str, Any] = QUESTION,
    *,
    version: str = "2025-11-25",
    idle_timeout: float = 120,
    **registered: Any,
) -> dict[str, Any]:
    """What a server hears that asks something inside a tool call."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS, version=version)
        call = await peer.receive("tools/call")
        response.update(await peer.request(method, dict(params)))
        await peer.reply(call, EMPTY)

    response: dict[str, Any] = {}
    async with connected(ScriptedPeer(script), era="legacy", **registered) as client:
        await client.call_tool("geo", idle_timeout=idle_timeout)
    return {key: value for key, value in response.items() if key not in ("jsonrpc", "id")}


@pytest.mark.fault("S09")
async def test_tools_and_parallel_tool_use_travel_in_both_directions() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        assert [tool.name for tool in request.tools] == ["add"]
        uses = [ToolUseContent(id=str(n), name="add", input={"n": n}) for n in (1, 2)]
        return CreateMessageResult(content=uses, model="m", stop_reason="toolUse")

    answer = await asked(params=QUESTION | {"tools": [ADD]}, sampling=sampling(with_tools=model))

    assert answer == {
        "result": {
            "role": "assistant",
            "model": "m",
            "stopReason": "toolUse",
            "content": [{"type": "tool_use", "id": str(n), "name": "add", "input": {"n": n}} for n in (1, 2)],
        }
    }


@pytest.mark.fault("S24")
@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_without_a_handler_a_request_is_refused(method: str) -> None:
    answer = await asked(method, QUESTION)

    assert answer == {"error": {"code": -32601, "message": f"this client does not offer {method}"}}


async def test_tools_in_basic_mode_are_refused_and_not_stripped() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        raise AssertionError("must not be asked")

    answer = await asked(params=QUESTION | {"tools": [ADD]}, sampling=sampling(basic=model))

    assert answer["error"]["code"] == -32602


@pytest.mark.fault("S25")
@pytest.mark.parametrize(
    ("version", "declared", "wish", "is_taken"),
    [
        ("2025-06-18", False, "thisServer", True),
        ("2025-11-25", False, "none", True),
        ("2025-11-25", False, "thisServer", False),
        ("2025-11-25", False, "allServers", False),
        ("2025-11-25", True, "allServers", True),
    ],
)
async def test_a_wish_for_context_that_was_not_declared_is_refused_where_it_can_be_declared(
    version: str, declared: bool, wish: str, is_taken: bool
) -> None:
    seen: list[str | None] = []

    async def model(request: SamplingRequest) -> str:
        seen.append(request.include_context)
        return "Paris"

    answer = await asked(
        params=QUESTION | {"includeContext": wish},
        version=version,
        sampling=sampling(with_tools=model, context=declared),
    )

    if is_taken:
        assert (answer["result"]["content"], seen) == ({"type": "text", "text": "Paris"}, [wish])
    else:
        reason = "includeContext: this client did not declare sampling.context"
        assert (answer, seen) == ({"error": {"code": -32602, "message": reason}}, [])


@pytest.mark.parametrize(
    ("version", "params"),
    [("2025-06-18", QUESTION), ("2025-11-25", QUESTION), ("2025-11-25", {**QUESTION, "tools": []})],
    ids=["2025-06-18", "2025-11-25", "an empty list of tools"],
)
async def test_without_tools_several_texts_are_joined_into_the_one_block_that_servers_take(
    version: str, params: dict[str, Any]
) -> None:
    """The official SDKs refuse a list, although 2025-11-25 has one."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return CreateMessageResult(content=[text("Paris."), text("In France.")], model="m")

    answer = await asked(params=params, version=version, sampling=sampling(with_tools=model))

    assert answer["result"]["content"] == {"type": "text", "text": "Paris.\n\nIn France."}
    answer = await asked(params={**QUESTION, "tools": [ADD]}, sampling=sampling(with_tools=model))
    assert len(answer["result"]["content"]) == 2


async def test_a_ping_is_answered_at_any_time() -> None:
    async def script(peer: ScriptedPeer) -> None:
        early = await peer.request("ping")
        await peer.reply(peer.received[0], INITIALIZED)
        await peer.receive("notifications/initialized")
        answers.extend([early, await peer.request("ping")])

    answers: list[dict[str, Any]] = []
    async with connected(ScriptedPeer(script), era="legacy"):
        await anyio.wait_all_tasks_blocked()

    assert [answer["result"] for answer in answers] == [{}, {}]


@on_both
async def test_when_a_call_ends_what_it_caused_is_cancelled_and_answered() -> None:
    async def script(peer: ScriptedPeer) -> None:
        call = await ask_during_call(peer)
        await model.begun.wait()
        await peer.reply(call, EMPTY)
        answers.append(await peer.receive())

    model = HangingModel()
    answers: list[dict[str, Any]] = []

    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("geo")
        await anyio.wait_all_tasks_blocked()

    assert [answer["error"]["code"] for answer in answers] == [-32012]


@on_both
async def test_an_answer_that_was_found_although_its_call_had_ended_waits_until_it_can_be_sent() -> None:
    pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(1, 1025)]  # what the transport takes

    async def script(peer: ScriptedPeer) -> None:
        call = await ask_during_call(peer)
        await started.wait()
        await peer.reply(call, EMPTY)
        for ping in pings:
            await peer.send(ping)
        await anyio.wait_all_tasks_blocked()
        found.set()
        await anyio.wait_all_tasks_blocked()
        heard.extend([await peer.receive() for _ in (*pings, 0)])
        over.set()

    started, found, over = anyio.Event(), anyio.Event(), anyio.Event()
    heard: list[dict[str, Any]] = []

    async def model(request: SamplingRequest) -> CreateMessageResult:
        with anyio.CancelScope(shield=True):
            started.set()
            await found.wait()
        return request.reply("Paris", model="m")

    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("geo")
        await over.wait()

    assert [message for message in heard if message["id"] == 0] == [{"jsonrpc": "2.0", "id": 0, "result": PARIS}]


@on_both
async def test_a_handler_that_fails_on_its_way_out_of_a_call_that_has_ended_ends_nothing_else() -> None:
    async def script(peer: ScriptedPeer) -> None:
        call = await ask_during_call(peer)
        await started.wait()
        await peer.reply(call, EMPTY)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    started = anyio.Event()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise ZeroDivisionError
        raise AssertionError

    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("geo")
        await anyio.wait_all_tasks_blocked()
        assert (await client.call_tool("geo")).to_wire() == EMPTY


@pytest.mark.fault("J04", "J08")
@on_both
async def test_a_second_request_with_an_id_in_use_is_refused_and_the_first_continues() -> None:
    async def script(peer: ScriptedPeer) -> None:
        call = await ask_during_call(peer)
        await peer.send({"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage", "params": QUESTION})
        answers.append(await peer.receive())
        go_on.set()
        answers.append(await peer.receive())
        await peer.reply(call, EMPTY)

    go_on = anyio.Event()
    answers: list[dict[str, Any]] = []
    asked_times: list[int] = []

    async def model(request: SamplingRequest) -> CreateMessageResult:
        asked_times.append(1)
        await go_on.wait()
        return request.reply("Paris", model="m")

    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("geo")

    assert len(asked_times) == 1
    assert [answer.get("error", {}).get("code", answer.get("result")) for answer in answers] == [-32600, PARIS]


@pytest.mark.fault("S27")
@on_both
async def test_the_idle_timeout_stops_while_the_server_waits_for_us() -> None:
    """The clock of the call stands still while our side answers, and starts anew afterwards."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await anyio.sleep(0.3)
        return request.reply("Paris", model="m")

    assert await asked(sampling=sampling(with_tools=model), idle_timeout=0.15) == {"result": PARIS}


@pytest.mark.fault("R02")
@on_both
async def test_a_flood_of_requests_is_held_to_its_bound_and_counted() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        for n in range(20):
            await peer.send({"jsonrpc": "2.0", "id": n, "method": "sampling/createMessage", "params": QUESTION})

    models, limits = sampling(with_tools=HangingModel()), Limits(max_answers=5)
    async with connected(ScriptedPeer(script), era="legacy", sampling=models, limits=limits) as client:
        await anyio.wait_all_tasks_blocked()

        assert client.counters == {"dropped requests": 15}


IMAGE: Any = {"type": "image", "data": "", "mimeType": "image/png"}
NOT_A_NUMBER = ToolUseContent(id="1", name="add", input={"n": float("nan")})
FAILURES: list[tuple[CreateMessageResult | Exception, dict[str, Any], str, str]] = [
    (RuntimeError("secret sk-123"), {}, "this client's model failed", "sk-123"),
    (
        CreateMessageResult(content=[text("a"), IMAGE], model="m"),
        {},
        "this client's model gave an answer that the request does not allow",
        "it holds several blocks, and the server expects one",
    ),
    (
        CreateMessageResult(content=AudioContent(data="aGk=", mime_type="audio/wav"), model="m"),
        {"version": "2024-11-05"},
        "this client's answer does not fit this protocol revision",
        "2025-03-26",
    ),
    (
        CreateMessageResult(content=[NOT_A_NUMBER], model="m", stop_reason="toolUse"),
        {"params": QUESTION | {"tools": [ADD]}},
        "this client failed to answer",
        "not expressible in JSON",
    ),
]


def model_with(outcome: CreateMessageResult | Exception) -> Callable[[SamplingRequest], Awaitable[CreateMessageResult]]:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return model


async def test_an_answer_that_cannot_be_given_or_written_is_an_error_and_only_our_log_says_why(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for outcome, asks, message, reason in FAILURES:
        caplog.clear()
        with subtests.test(message=message):
            answer = await asked(**asks, sampling=sampling(with_tools=model_with(outcome)))

            assert answer == {"error": {"code": -32603, "message": message}}
            assert reason in caplog.text


async def test_a_form_is_answered_by_the_handler_for_forms() -> None:
    async def form(request: FormRequest) -> ElicitResult:
        return request.accept(name="Ada")

    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await asked(
        "elicitation/create", {"message": "who?", "requestedSchema": schema}, elicitation=Elicitation(form=form)
    )

    assert answer == {"result": {"action": "accept", "content": {"name": "Ada"}}}


async def test_a_form_whose_answer_the_revision_cannot_carry_is_refused_before_it_is_shown() -> None:
    async def form(request: FormRequest) -> ElicitResult:
        raise AssertionError("must not be shown")

    several = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    params = {"message": "which?", "requestedSchema": {"type": "object", "properties": {"tags": several}}}
    answer = await asked("elicitation/create", params, version="2025-06-18", elicitation=Elicitation(form=form))

    problem = "a choice of several at content came with revision 2025-11-25"
    assert answer == {"error": {"code": -32602, "message": f"this elicitation cannot be answered: {problem}"}}


async def test_a_fault_of_our_own_while_answering_is_an_error_to_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*arguments: object, **also: Any) -> dict[str, Any]:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Session, "answer", broken)

    answer = await asked("roots/list", {})

    assert answer == {"error": {"code": -32603, "message": "this client failed to answer"}}
    assert "ZeroDivisionError: ours" in caplog.text


@on_both
async def test_early_messages_are_kept_up_to_a_limit() -> None:
    async def script(peer: ScriptedPeer) -> None:
        request = await peer.receive("initialize")
        for n in range(74):
            await peer.notify("notifications/message", {"level": "info", "data": n})
        await peer.reply(request, INITIALIZED)

    seen = Recorder()
    async with connected(ScriptedPeer(script), era="legacy", on_log=seen):
        await anyio.wait_all_tasks_blocked()

    assert [message.data for message in seen] == list(range(64))


@pytest.mark.fault("J03")
@on_both
async def test_an_error_without_an_id_answers_no_call_when_several_wait(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        calls = [await peer.receive("tools/call") for _ in range(2)]
        await peer.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}})
        for call in calls:
            await peer.reply(call, EMPTY)

    async with connected(ScriptedPeer(script)) as client, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(client.call_tool, "x")

    assert client.counters == {"errors without an id": 1}


@pytest.mark.fault("J03")
@on_both
async def test_an_error_without_an_id_that_may_answer_a_notification_answers_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some servers answer each notification so. The next request after one that was answered gets the error at once."""

    async def refuse(peer: ScriptedPeer, method: str) -> None:
        error = {"code": -32601, "message": f"unknown: {method}"}
        await peer.send({"jsonrpc": "2.0", "id": None, "error": error})

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        call = await peer.receive("tools/call")
        await refuse(peer, "notifications/initialized")
        params = {**QUESTION, "_meta": {"progressToken": 7}}
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": params})
        await peer.receive("notifications/progress")
        await refuse(peer, "notifications/progress")
        await peer.reply(call, EMPTY)
        await peer.receive("notifications/cancelled")
        call = await peer.receive("tools/call")
        await refuse(peer, "notifications/cancelled")
        await peer.reply(call, EMPTY)
        await peer.receive("tools/call")
        await refuse(peer, "tools/call")

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await request.report_progress(1)
        return request.reply("Paris", model="m")

    async with connected(ScriptedPeer(script), era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("x")
        with anyio.move_on_after(1):
            await client.call_tool("cancelled")
        await client.call_tool("x")
        with pytest.raises(ServerError, match=r"^unknown: tools/call \(-32601\)$"):
            await client.call_tool("x")

    assert client.counters["errors without an id"] == 3
    assert [text for text in caplog.messages if "without an id" in text] == [
        f"the scripted peer: skipped an error without an id ({n} so far): unknown: notifications/{what}"
        for n, what in ((1, "initialized"), (2, "progress"))
    ]


async def test_a_long_id_and_a_long_progress_token_of_a_server_are_not_sent_back() -> None:
    """The client repeats them, in one step, and keeps ids to recognise a replay."""
    long = "a" * 4097

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        call = await peer.receive("tools/call")
        for length in (4096, 4097):
            await peer.send({"jsonrpc": "2.0", "id": long[:length], "method": "ping"})
        await peer.request("sampling/createMessage", {**QUESTION, "_meta": {"progressToken": long}})
        await peer.reply(call, EMPTY)

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await request.report_progress(1)
        return request.reply("Paris", model="m")

    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy", sampling=sampling(with_tools=model)) as client:
        await client.call_tool("x")

    assert peer.received[-2:] == [
        {"jsonrpc": "2.0", "id": long[:4096], "result": {}},
        {"jsonrpc": "2.0", "id": "peer-1", "result": PARIS},
    ]
    assert client.counters == {"requests with too long an id": 1}


@on_both
async def test_a_flood_of_pings_is_held_to_its_bound_and_counted() -> None:
    """What the transport takes is answered; of the rest, five wait for it, and no more."""
    flood = 1024 + 20

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        pings = [b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % n for n in range(flood)]
        await peer.send_raw(b"[" + b",".join(pings) + b"]")

    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy", limits=Limits(max_answers=5)) as client:
        await anyio.wait_all_tasks_blocked()
        dropped = client.counters["dropped answers"]

    assert 14 <= dropped <= 15  # on trio one more goes straight to the peer, which is waiting
    assert len([message for message in peer.received if "result" in message]) == flood - dropped


async def test_roots_are_answered_alike_in_revisions_before_sampling_with_tools() -> None:
    answer = await asked("roots/list", {}, version="2025-06-18", roots=["/srv"])

    assert answer == {"result": {"roots": [{"uri": "file:///srv"}]}}


@on_both
async def test_the_roots_are_listed_although_the_call_in_flight_has_ended() -> None:
    """A server asks for them once, whenever it is, and for all calls."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        call = await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": 0, "method": "roots/list"})
        await asked.wait()
        await peer.reply(call, EMPTY)
        answers.append(await peer.receive())
        answered.set()

    async def roots() -> list[str]:
        asked.set()
        await called.wait()
        return ["/srv"]

    asked, called, answered = anyio.Event(), anyio.Event(), anyio.Event()
    answers: list[dict[str, Any]] = []
    async with connected(ScriptedPeer(script), era="legacy", roots=roots) as client:
        await client.call_tool("geo")
        called.set()
        await answered.wait()

    assert [answer.get("result") for answer in answers] == [{"roots": [{"uri": "file:///srv"}]}]
