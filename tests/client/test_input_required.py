"""Calls of a stateless server that requires input (2026-07-28, basic/patterns/mrtr): rounds, refusals, limits and endings."""

from __future__ import annotations

import gc
import math
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest

from mcp_host import Client, Deny, Elicitation, FormRequest, OuterCall, Sampling, SamplingRequest, always
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    InputNotGiven,
    InputRefused,
    ProtocolError,
    RequestTimeout,
    RoundsExceeded,
    ServerError,
)
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Request
from mcp_host.sampling import SamplingLimits
from mcp_host.session.session import Session
from mcp_host.testing import ScriptedPeer
from mcp_host.testing.scripted import Wire
from mcp_host.transports.base import Headers, RequestHandle
from mcp_host.transports.in_process import MemoryChannel
from mcp_host.types import CreateMessageResult, ElicitResult
from tests.client.rounds import DONE, FORM, ROOTS, SAMPLE, USER, answering, wants
from tests.client.sites import MIRRORED, Site, mirrored_headers
from tests.client.support import (
    ADD,
    PARIS,
    QUESTION,
    HangingModel,
    Recorder,
    connected,
    ended_by_closing,
    methods,
    report_progress,
    sampling,
    say_paris,
)
from tests.extent import on_both

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run


def extras(message: Wire) -> dict[str, Any]:
    """What a retry carries besides the original params."""
    return {key: value for key, value in message["params"].items() if key in ("inputResponses", "requestState")}


async def confirm(request: FormRequest) -> ElicitResult:
    return request.accept({"ok": True})


STATES = [' {"a": 1}\n\u0000 =?é🙂\ufeff ', "", " ", "a\r\nb", '{"b": 1,  "a": 1.0}', "e\u0301\u2028", "x" * 100_000]


@pytest.mark.fault("S30")
async def test_a_sampling_answer_is_sent_in_the_retry_with_a_new_id_and_the_same_state(
    subtests: pytest.Subtests,
) -> None:
    for state in STATES:
        peer = answering(wants(state, k=SAMPLE), DONE)
        with subtests.test(state=ascii(state[:20])):
            async with connected(peer, sampling=sampling()) as client:
                await client.call_tool("x", {"n": 1}, meta={"trace": 7})

            _, first, retry = peer.received
            assert (first["id"], retry["id"]) == (2, 3)
            assert retry["params"] == first["params"] | {"inputResponses": {"k": PARIS}, "requestState": state}


async def test_no_state_is_sent_where_none_came_and_none_leaks_into_the_next_round_or_call() -> None:
    peer = answering(wants("s", k=SAMPLE), wants(None, k=SAMPLE), DONE)

    async with connected(peer, sampling=sampling()) as client:
        await client.call_tool("x")
        await client.call_tool("x")

    assert [extras(message) for message in peer.received[1:]] == [
        {},
        {"inputResponses": {"k": PARIS}, "requestState": "s"},
        {"inputResponses": {"k": PARIS}},
        {},
    ]


@pytest.mark.parametrize(
    ("request_", "result"),
    [
        (lambda client: client.call_tool("x"), DONE),
        (lambda client: client.get_prompt("x"), {"resultType": "complete", "messages": []}),
        (lambda client: client.read_resource("a:b"), {"contents": [], "ttlMs": 9_000_000_000, "cacheScope": "public"}),
    ],
    ids=["tools/call", "prompts/get", "resources/read"],
)
async def test_calls_prompts_and_reads_may_ask_for_input(
    request_: Callable[[Client], Awaitable[object]], result: dict[str, Any]
) -> None:
    """And what came of it is never served again from the cache: it depends on the answers."""
    peer = answering(wants("s", k=SAMPLE), result, wants("s", k=SAMPLE), result)

    async with connected(peer, sampling=sampling()) as client:
        await request_(client)
        await request_(client)

    assert len(peer.received) == 5


@on_both
async def test_all_that_one_result_asks_for_is_answered_side_by_side_and_sent_together() -> None:
    both = anyio.Event()

    async def slowly(request: SamplingRequest) -> CreateMessageResult:
        await both.wait()
        return request.reply("Paris", model="m")

    async def release(request: FormRequest) -> ElicitResult:
        both.set()
        return request.decline()

    peer = answering(wants(None, a=SAMPLE, b=FORM, c=ROOTS), DONE)
    async with connected(
        peer, sampling=sampling(with_tools=slowly), elicitation=Elicitation(form=release), roots=["/tmp/x"]
    ) as client:
        await client.call_tool("x")

    given = extras(peer.received[-1])["inputResponses"]
    assert list(given) == ["a", "b", "c"]
    assert given == {"a": PARIS, "b": {"action": "decline"}, "c": {"roots": [{"uri": "file:///tmp/x"}]}}


async def test_sampling_with_tools_is_answered_with_the_tools_the_model_wants() -> None:
    seen: list[SamplingRequest] = []

    async def use_the_tool(request: SamplingRequest) -> CreateMessageResult:
        seen.append(request)
        return request.call(request.tools[0].name, {"a": 1})

    asks = {"method": "sampling/createMessage", "params": QUESTION | {"tools": [ADD]}}
    peer = answering(wants(None, k=asks), DONE)
    async with connected(peer, sampling=Sampling(with_tools=use_the_tool, approve=always)) as client:
        assert client.sampling_mode == "with_tools"
        await client.call_tool("solve")

    answer = extras(peer.received[-1])["inputResponses"]["k"]
    assert (answer["stopReason"], answer["content"]["type"], answer["content"]["name"]) == (
        "toolUse",
        "tool_use",
        "add",
    )
    assert seen[0].outer is not None
    assert seen[0].outer == OuterCall("tools/call", "solve", 2, call_id=seen[0].outer.call_id)


async def test_every_round_repeats_in_headers_what_the_first_did() -> None:
    results: list[dict[str, Any]] = [wants("s", k=ROOTS), wants("s", k=ROOTS), DONE]
    site = Site(tools_list={"tools": [MIRRORED]}, tools_call=lambda message: results.pop(0))

    async with site.connected(roots=[]) as client:
        await client.list_tools()
        await client.call_tool("query", {"region": "eu", "deep": {"n": 42}})

    first, *others = (mirrored_headers(post) for post in site.posts[-3:])
    assert first == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "query",
        "mcp-param-region": "eu",
        "mcp-param-n": "42",
    }
    assert others == [first, first]


# What our side refuses


async def deny(request: SamplingRequest) -> Deny:
    return Deny("not today")


async def fail(request: SamplingRequest) -> CreateMessageResult:
    raise RuntimeError("the secret of the host")


async def fail_without_a_word(request: SamplingRequest) -> CreateMessageResult:
    raise KeyError


REFUSED: list[tuple[Sampling | None, dict[str, Any], str, type[Exception]]] = [
    (Sampling(with_tools=say_paris, approve=deny), SAMPLE, "not today", InputRefused),
    (
        Sampling(with_tools=fail, approve=always),
        SAMPLE,
        r"asks for 'sampling/createMessage' under 'bad': .* model failed: RuntimeError: the secret of the host$",
        RuntimeError,
    ),
    (
        Sampling(with_tools=fail_without_a_word, approve=always),
        SAMPLE,
        "this client's model failed: KeyError$",
        KeyError,
    ),
    (
        Sampling(basic=say_paris, approve=always),
        {"method": "sampling/createMessage", "params": QUESTION | {"tools": [ADD]}},
        "tools",
        InputRefused,
    ),
    (
        Sampling(with_tools=say_paris, approve=always, limits=SamplingLimits(messages=1)),
        {"method": "sampling/createMessage", "params": QUESTION | {"messages": [USER, USER]}},
        "messages",
        InputRefused,
    ),
    (
        Sampling(with_tools=say_paris, approve=always),
        {"method": "sampling/createMessage", "params": QUESTION | {"includeContext": "thisServer"}},
        r"includeContext: this client did not declare sampling\.context",
        InputRefused,
    ),
    (None, SAMPLE, "does not offer sampling/createMessage", InputRefused),
    (None, FORM, "does not offer elicitation/create", InputRefused),
    (None, {"method": "tools/call", "params": {}}, "does not offer tools/call", InputRefused),
]


@pytest.mark.fault("S15", "S29")
async def test_a_refused_input_request_ends_the_call_and_nothing_is_sent(subtests: pytest.Subtests) -> None:
    for registered, asked, why, cause in REFUSED:
        peer = answering(wants("s", good=ROOTS, bad=asked), DONE)
        with subtests.test(why=why):
            async with connected(peer, sampling=registered, roots=[]) as client:
                with pytest.raises(InputNotGiven, match=why) as raised:
                    await client.call_tool("x")
                assert client.connected

            error = raised.value
            assert (error.key, error.method, type(error.__cause__)) == ("bad", asked["method"], cause)
            assert methods(peer) == ["server/discover", "tools/call"]


@on_both
async def test_an_input_that_is_refused_ends_the_handlers_beside_it() -> None:
    """The call has failed, so their answers would go nowhere."""

    async def fail(request: FormRequest) -> ElicitResult:
        await model.begun.wait()
        raise RuntimeError

    model = HangingModel()
    peer = answering(wants(None, slow=SAMPLE, bad=FORM), DONE)
    async with connected(peer, sampling=sampling(with_tools=model), elicitation=Elicitation(form=fail)) as client:
        with pytest.raises(InputNotGiven) as raised:
            await client.call_tool("x")

        assert model.ended.is_set()
    assert raised.value.key == "bad"


# Limits


LOOSE = {"type": "object", "properties": {"ok": {}}}
ROUNDS = Limits(max_idle_rounds=2, max_inputs_per_round=3, max_inputs=4, max_model_calls=1)


@pytest.mark.fault("S13", "S29")
@pytest.mark.parametrize(
    ("result", "limit", "requests"),
    [
        (wants("s", k=ROOTS), "max_inputs", 5),
        (wants("s"), "max_idle_rounds", 3),
        (wants("s", a=ROOTS, b=ROOTS, c=ROOTS, d=ROOTS), "max_inputs_per_round", 1),
        (wants("s", a=ROOTS, b=ROOTS, c=ROOTS), "max_inputs", 2),
        (wants("s", a=SAMPLE), "max_model_calls", 2),
        (wants("s", a=SAMPLE, b=ROOTS, c=SAMPLE), "max_model_calls", 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_server_that_asks_without_end_is_ended_by_a_limit_that_has_a_name(
    result: dict[str, Any], limit: str, requests: int
) -> None:
    peer = answering(result)

    async with connected(peer, roots=[], sampling=sampling(), limits=ROUNDS) as client:
        with pytest.raises(RoundsExceeded, match=rf"Limits\.{limit}") as raised:
            await client.call_tool("x")
        assert client.connected

    assert raised.value.limit == limit
    assert len(peer.received) - 1 == requests


@pytest.mark.fault("S29")
@on_both
async def test_idle_rounds_wait_twice_as_long_each_time_and_count_until_the_server_asks_for_something() -> None:
    idle, asked = 3 * [wants("s")], list[float]()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        for result in (*idle, wants("s", k=ROOTS), *idle, DONE):
            call = await peer.receive("tools/call")
            asked.append(anyio.current_time())
            await peer.reply(call, result)

    async with connected(ScriptedPeer(script), roots=[], limits=Limits(max_idle_rounds=3)) as client:
        await client.call_tool("x")

    assert [end - begin for begin, end in pairwise(asked)] == pytest.approx([0.1, 0.2, 0.4, 0, 0.1, 0.2, 0.4])


@pytest.mark.fault("S12", "S29")
@on_both
async def test_input_for_a_call_of_ours_waits_for_the_model_however_much_there_is() -> None:
    """The limit refuses what servers send unasked. To refuse one input would fail the whole call."""
    limits = SamplingLimits(at_once_per_server=1, waiting=1)
    peer = answering(wants(None, a=SAMPLE, b=SAMPLE, c=SAMPLE, d=SAMPLE), DONE)
    async with connected(
        peer, sampling=Sampling(with_tools=say_paris, approve=always, limits=limits), within=25
    ) as client:
        await client.call_tool("x")

    assert peer.received[-1]["params"]["inputResponses"] == dict.fromkeys("abcd", PARIS)


# Deadlines and endings


@pytest.mark.fake_clock
@on_both
async def test_our_own_time_is_not_the_servers_silence() -> None:
    async def think(request: SamplingRequest) -> CreateMessageResult:
        await anyio.sleep(0.3)
        return request.reply("Paris", model="m")

    peer = answering(wants(None, k=SAMPLE), DONE)
    async with connected(peer, sampling=sampling(with_tools=think)) as client:
        await client.call_tool("x", idle_timeout=0.2)

    assert peer.received[-1]["params"]["inputResponses"] == {"k": PARIS}


@on_both
async def test_a_handler_that_never_returns_ends_with_the_time_for_input_and_the_calls_own() -> None:
    peer = answering(wants(None, k=SAMPLE), DONE)
    limits = Limits(input_timeout=0.1)
    async with connected(peer, sampling=sampling(with_tools=HangingModel()), limits=limits) as client:
        with pytest.raises(RequestTimeout, match=r"tools/call: took longer than 0.1 s \(timeout\), .* 0.1 s"):
            await client.call_tool("x", timeout=0.1)
        assert client.connected


@on_both
async def test_closing_ends_the_gathering_of_input_and_then_its_call() -> None:
    async def call() -> None:
        try:
            await client.call_tool("x")
        finally:
            assert model.ended.is_set()

    model = HangingModel()
    async with connected(answering(wants(None, k=SAMPLE)), sampling=sampling(with_tools=model)) as client:
        await ended_by_closing(client, call, begun=model.begun)


@on_both
async def test_a_cancelled_call_cancels_the_gathering_of_its_input() -> None:
    model = HangingModel()
    async with connected(answering(wants(None, k=SAMPLE), DONE), sampling=sampling(with_tools=model)) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "x")
            await model.begun.wait()
            tasks.cancel_scope.cancel()
        assert model.ended.is_set()
        await client.call_tool("x")


@pytest.mark.fault("C12")
@on_both
async def test_a_handler_may_call_the_client_in_whose_call_it_works() -> None:
    async def look_up(request: SamplingRequest) -> CreateMessageResult:
        await client.call_tool("inner")
        return request.reply("Paris", model="m")

    peer = answering(wants(None, k=SAMPLE), DONE)
    async with connected(peer, sampling=sampling(with_tools=look_up)) as client:
        await client.call_tool("outer")

    assert [message["params"].get("name") for message in peer.received] == [None, "outer", "inner", "outer"]


async def test_the_error_of_nested_handlers_names_the_failure_once() -> None:
    """The error of the outer call says what the innermost handler raised; the errors between are its causes."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        assert request.outer is not None
        if request.outer.name != "3":
            await client.call_tool(str(int(request.outer.name or "") + 1))
        raise RuntimeError("no credit")

    peer = answering(wants(None, k=SAMPLE))
    async with connected(peer, sampling=sampling(with_tools=model)) as client:
        with pytest.raises(InputNotGiven) as raised:
            await client.call_tool("1")

    assert str(raised.value) == (
        "tools/call: the server asks for 'sampling/createMessage' under 'k': this client's model failed: "
        "RuntimeError: no credit"
    )
    assert isinstance(raised.value.__cause__, InputNotGiven)


@on_both
async def test_a_call_that_took_input_leaves_no_cancel_scope_behind() -> None:
    kind = type(anyio.CancelScope())

    def scopes() -> int:
        gc.collect()
        return sum(isinstance(thing, kind) for thing in gc.get_objects())

    peer = answering(*[wants("s", k=ROOTS), DONE] * 25)

    async with connected(peer, roots=[]) as client:
        await client.call_tool("x")
        after_one = scopes()
        for _ in range(20):
            await client.call_tool("x")
        after_more = scopes()

    assert after_more == after_one


@on_both
@pytest.mark.parametrize("requests", [{}, {"k": ROOTS}], ids=["nothing", "input"])
async def test_a_call_ends_if_the_server_requires_more_and_ends(requests: dict[str, Any]) -> None:
    """Which of the two the client learns first may differ."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        await peer.reply(await peer.receive("tools/call"), wants("s", **requests))
        await peer.aclose()

    for _ in range(20):
        async with connected(ScriptedPeer(script), roots=[]) as client:
            with pytest.raises(ConnectionClosed) as raised:
                await client.call_tool("x")
        assert raised.value.may_have_run


@pytest.mark.fault("S31")
@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "task"},
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {"k": 1}},
    ],
    ids=["unknown type", "neither", "no request"],
)
async def test_a_result_that_is_none_fails_its_call_and_no_other(result: dict[str, Any]) -> None:
    async with connected(answering(result, DONE)) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("x")
        await client.call_tool("x")


async def test_an_error_in_the_middle_of_the_rounds_is_the_calls_error() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        await peer.reply(await peer.receive(), wants("s", k=FORM))
        await peer.reply_error(await peer.receive(), -32602, "that state has expired")

    async with connected(ScriptedPeer(script), elicitation=Elicitation(form=confirm)) as client:
        with pytest.raises(ServerError, match="expired"):
            await client.call_tool("x")


@on_both
async def test_progress_of_every_round_comes_in_order_before_the_result() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        for step, result in enumerate((wants("s", k=ROOTS), DONE), start=1):
            call = await peer.receive("tools/call")
            await report_progress(peer, call, step)
            await peer.reply(call, result)

    seen = Recorder()
    async with connected(ScriptedPeer(script), roots=[]) as client:
        await client.call_tool("x", on_progress=seen)

    assert [report.progress for report in seen] == [1, 2]


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"content": {"ok": "\ud800"}}, "surrogates"),
        ({"content": {"ok": math.nan}}, "not JSON compliant"),
        ({"meta": nested(252)}, ""),  # this can be a result, but not a part of a request's params
    ],
    ids=["half a character", "no number", "too deep"],
)
async def test_an_answer_that_cannot_be_written_raises_input_not_given(answer: dict[str, Any], why: str) -> None:
    async def garble(request: FormRequest) -> ElicitResult:
        return ElicitResult(action="accept", **answer)

    form = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": LOOSE}}
    peer = answering(wants("s", good=ROOTS, bad=form), DONE)
    async with connected(peer, elicitation=Elicitation(form=garble), roots=[]) as client:
        with pytest.raises(InputNotGiven, match=rf"under 'bad': .*: CallerError: not expressible.*{why}") as caught:
            await client.call_tool("x")

    assert (caught.value.key, caught.value.method) == ("bad", "elicitation/create")
    assert isinstance(caught.value.__cause__, CallerError)
    assert methods(peer) == ["server/discover", "tools/call"]


async def test_a_fault_of_our_own_while_answering_is_an_error_to_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*arguments: object, **also: Any) -> dict[str, Any]:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Session, "answer", broken)
    async with connected(answering(wants("s", k=ROOTS)), roots=[]) as client:
        with pytest.raises(InputNotGiven) as raised:
            await client.call_tool("x")

    problem = "this client failed to answer: ZeroDivisionError: ours"
    assert str(raised.value) == f"tools/call: the server asks for 'roots/list' under 'k': {problem}"
    assert "answering roots/list failed" in caplog.text


async def test_an_error_of_the_transport_about_a_repeated_request_blames_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, error = MemoryChannel.request, CallerError("this transport cannot write that")

    async def refuse_states(channel: MemoryChannel, request: Request, headers: Headers, handle: RequestHandle) -> None:
        if "requestState" in request.params:
            raise error
        await make(channel, request, headers, handle)

    monkeypatch.setattr(MemoryChannel, "request", refuse_states)
    async with connected(answering(wants("s", k=ROOTS)), roots=[]) as client:
        with pytest.raises(CallerError) as caught:
            await client.call_tool("x")

    assert caught.value is error
