"""Who asked: the caller's own object and context variables reach the handlers of its call, and nothing else."""

from __future__ import annotations

import gc
import json
import logging
import math
import traceback
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NoReturn

import anyio
import pytest

from mcp_host import (
    Allow,
    Client,
    Elicitation,
    FormRequest,
    Limits,
    OuterCall,
    Sampling,
    SamplingRequest,
    Stdio,
    StreamableHttp,
    UrlRequest,
)
from mcp_host.errors import InputNotGiven, RequestTimeout
from mcp_host.roots import RootLike, RootsRequest
from mcp_host.session.call import Call, CallTimeouts
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageRequestParams, CreateMessageResult, ElicitRequestURLParams, ElicitResult
from tests.client.rounds import DONE, FORM, ROOTS, SAMPLE, answering, wants
from tests.client.support import EMPTY, HANDSHAKE, PARIS, TOOLS, Era, asking_server, connected, sampling, say_paris
from tests.extent import on_both
from tests.faults.http_server import accept, mcp, says
from tests.transports.children import python
from tests.transports.http_peers import Heard, Wire, event, serving

USER: ContextVar[str] = ContextVar("USER", default="none")
QUESTIONS = (SAMPLE, FORM, ROOTS)
OFFERED: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
RESULTS: dict[str, dict[str, Any]] = {
    "tools/call": EMPTY,
    "prompts/get": {"messages": []},
    "resources/read": {"contents": []},
}
REQUESTS: list[tuple[str, str, Callable[..., Awaitable[object]]]] = [
    ("tools/call", "x", lambda client, **options: client.call_tool("x", **options)),
    ("prompts/get", "x", lambda client, **options: client.get_prompt("x", **options)),
    ("resources/read", "a:b", lambda client, **options: client.read_resource("a:b", **options)),
]


class Caller:
    """An object of the application's, of which this library may do nothing but hand it on."""

    def _touched(self, *_: object) -> NoReturn:
        raise AssertionError("looked at")

    __repr__ = __str__ = __eq__ = __bool__ = __reduce__ = _touched
    __hash__ = _touched


class Handlers:
    """Every kind of handler. Each notes the call that it was told of, and the user in its context."""

    def __init__(self) -> None:
        self.outers: list[OuterCall | None] = []
        self.servers: list[str] = []
        self.users: list[str] = []
        self.requests: list[object] = []
        self.options: dict[str, Any] = {
            "sampling": sampling(with_tools=self._model),
            "elicitation": Elicitation(form=self._form),
            "roots": self._roots,
        }

    def _note(self, request: SamplingRequest | FormRequest | RootsRequest) -> None:
        self.requests.append(request)
        self.outers.append(request.outer)
        self.servers.append(request.server)
        self.users.append(USER.get())
        USER.set("another, in a copy of the context")

    async def _model(self, request: SamplingRequest) -> CreateMessageResult:
        self._note(request)
        return request.reply("Paris", model="m")

    async def _form(self, request: FormRequest) -> ElicitResult:
        self._note(request)
        return request.decline()

    async def _roots(self, request: RootsRequest) -> Sequence[RootLike]:
        self._note(request)
        return ["/srv"]


def asking(era: Era, rounds: int = 1) -> ScriptedPeer:
    """Within each call it asks all three questions: over a pipe one after the other, since 2026 in so many rounds."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, OFFERED)
        while True:
            call = await peer.receive()
            if era is HANDSHAKE:
                for question in QUESTIONS:
                    await peer.request(**question)
            else:
                for _ in range(rounds):
                    await peer.reply(call, wants(None, a=SAMPLE, b=FORM, c=ROOTS))
                    call = await peer.receive()
            await peer.reply(call, RESULTS[call["method"]])

    return ScriptedPeer(script, name="the peer")


async def test_each_handler_learns_who_made_the_call_and_every_round_is_of_one_call(
    era: Era, subtests: pytest.Subtests
) -> None:
    """Over a pipe that is inferred: it is the only call in flight."""
    for method, name, ask in REQUESTS:
        user, seen = Caller(), Handlers()
        with subtests.test(method=method):
            async with connected(asking(era, rounds=2), era=era.version, **seen.options) as client:
                await ask(client, caller=user)

            ids = [2] * 3 if era is HANDSHAKE else [2] * 3 + [3] * 3
            assert [outer and outer.caller is user for outer in seen.outers] == [True] * len(ids)
            first = seen.outers[0]
            assert first is not None
            assert seen.outers == [
                OuterCall(method, name, id, call_id=first.call_id, inferred=era is HANDSHAKE) for id in ids
            ]
            assert seen.servers == ["the peer"] * len(ids)


@on_both
async def test_with_two_calls_in_flight_over_a_pipe_no_caller_is_guessed() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        calls = [await peer.receive("tools/call"), await peer.receive("tools/call")]
        for question in QUESTIONS:
            await peer.request(**question)
        for call in calls:
            await peer.reply(call, EMPTY)

    async def call(user: str) -> None:
        USER.set(user)
        await client.call_tool("x", caller=user)

    seen = Handlers()
    with anyio.fail_after(25):
        USER.set("the one who connects")
        async with Client(ScriptedPeer(script), era="legacy", **seen.options) as client:
            USER.set("changed later")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "ann")
                tasks.start_soon(call, "bob")

    assert seen.outers == [None] * 3
    assert [each.unknown_caller for each in seen.requests if isinstance(each, SamplingRequest)] == [True]
    assert seen.users == ["the one who connects"] * 3


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("kind", [int, str], ids=["late", "late, to a text"])  # which some servers make of a number
async def test_a_request_is_not_attributed_to_the_next_call_while_an_abandoned_one_may_run(
    kind: type[int | str],
) -> None:
    """Over a pipe, a server that ignores a cancellation goes on asking for that call."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        given_up = await peer.receive("tools/call")
        await peer.receive("notifications/cancelled")
        call = await peer.receive("tools/call")
        await peer.request(**SAMPLE)
        await peer.reply({"id": kind(given_up["id"])}, EMPTY)
        await peer.request(**SAMPLE)
        await peer.reply(call, EMPTY)

    seen = Handlers()
    async with connected(ScriptedPeer(script), era="legacy", **seen.options, within=1000) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", caller="ann", timeout=1)
        await client.call_tool("x", caller="bob", idle_timeout=500)

    assert [outer and outer.caller for outer in seen.outers] == [None, "bob"]


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("idle_timeout", [120, math.inf])
async def test_each_abandoned_call_counts_for_its_idle_timeout(idle_timeout: float) -> None:
    """But for 120 seconds at most, where the server never answers it."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        for _ in range(2):
            await peer.receive("notifications/cancelled")
        call = await peer.receive("tools/call")
        await anyio.sleep(50)  # the first counts no more
        await peer.request(**SAMPLE)
        await anyio.sleep(71)  # nor does the second
        await peer.request(**SAMPLE)
        await peer.reply(call, EMPTY)

    seen, limits = Handlers(), Limits(idle_timeout=idle_timeout)
    async with connected(ScriptedPeer(script), era="legacy", **seen.options, limits=limits, within=1000) as client:
        for name in ("ann", "bob"):
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", caller=name, timeout=99)
        await client.call_tool("x", caller="cat", idle_timeout=500)

    assert [outer and outer.caller for outer in seen.outers] == [None, "cat"]


@on_both
@pytest.mark.fake_clock
async def test_abandoned_calls_are_forgotten_without_further_requests() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        while True:
            await peer.receive()

    limits = Limits(idle_timeout=10)
    async with connected(ScriptedPeer(script), era="legacy", limits=limits, within=1000) as client:
        for _ in range(30):
            with anyio.move_on_after(1):
                await client.call_tool("x")
        assert client._lifetime.connection is not None
        remembered = client._lifetime.connection.dispatcher._inbound.abandoned

    assert len(remembered) == 10


@on_both
@pytest.mark.parametrize("era", ["legacy", "auto"], ids=["2025-11-25", "2026-07-28"])
async def test_over_http_each_of_many_calls_in_flight_has_its_own_caller_and_context(era: str) -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        assert request.outer is not None
        seen.append((request.outer.caller, USER.get(), request.outer.call_id))
        if len(seen) == 3:
            all_asked.set()
        await all_asked.wait()
        return request.reply(f"{request.outer.caller} asked for {request.messages[0].content[0].to_wire()['text']}")

    async def call(user: str) -> None:
        USER.set(user)
        answers.append((await client.call_tool("ask", {"words": f"the land of {user}"}, caller=user)).text)

    seen: list[tuple[object, str, int | str]] = []
    answers: list[str] = []
    all_asked = anyio.Event()
    with anyio.fail_after(25):
        async with (
            asking_server().http() as url,
            Client(StreamableHttp(url), era=era, sampling=sampling(with_tools=model)) as client,
            anyio.create_task_group() as tasks,
        ):
            for user in ("ann", "bob", "cat"):
                tasks.start_soon(call, user)

    assert sorted(answers) == [f"{user} asked for the land of {user}" for user in ("ann", "bob", "cat")]
    assert sorted((caller, user) for caller, user, _ in seen) == [(user, user) for user in ("ann", "bob", "cat")]
    assert len({call_id for *_, call_id in seen}) == 3


@on_both
async def test_over_http_a_request_on_the_servers_own_stream_belongs_to_no_call() -> None:
    """What comes there "SHOULD be unrelated to any concurrently-running JSON-RPC request"."""
    called, answered = anyio.Event(), anyio.Event()

    async def ask(wire: Wire, heard: Heard) -> None:
        await wire.events()
        await called.wait()
        await wire.say(event(json.dumps({"jsonrpc": "2.0", "id": "q", **SAMPLE}).encode()))
        await wire.hung_up()

    async def take(wire: Wire, heard: Heard) -> None:
        await accept(wire, heard)
        answered.set()

    async def wait_for_the_answer(wire: Wire, heard: Heard) -> None:
        called.set()
        await answered.wait()
        await says()(wire, heard)

    server = mcp(get=ask, answer=take, call=wait_for_the_answer)
    seen = Handlers()
    with anyio.fail_after(25):
        USER.set("the one who connects")
        async with serving(server) as peer, Client(StreamableHttp(peer.url), era="legacy", **seen.options) as client:
            USER.set("the one who calls")
            await client.call_tool("x", caller="ann")

    assert (seen.outers, seen.users) == ([None], ["the one who connects"])


@on_both
async def test_each_call_has_a_unique_id_no_caller_by_default_and_its_own_copy_of_the_context(era: Era) -> None:
    async def call(user: str) -> None:
        USER.set(user)
        await client.call_tool("x")
        after.append(USER.get())

    seen, after = Handlers(), list[str]()
    async with connected(asking(era), **seen.options) as client:
        for user in ("ann", "bob"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, user)

    assert seen.users == ["ann"] * 3 + ["bob"] * 3
    assert after == ["ann", "bob"]
    assert [outer and outer.caller for outer in seen.outers] == [None] * 6
    ids = [outer.call_id for outer in seen.outers if outer is not None]
    assert ids == [ids[0]] * 3 + [ids[3]] * 3
    assert ids[0] != ids[3]


async def test_the_caller_is_in_nothing_that_is_sent_shown_or_logged(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: FormRequest) -> ElicitResult:
        shown.append(repr(request))
        raise RuntimeError("no form")

    name = "ann"[::-1] * 2  # so that no line of this file has it
    shown: list[str] = []
    caplog.set_level(logging.DEBUG)
    seen = Handlers()
    peer = asking(era)
    async with connected(peer, **{**seen.options, "elicitation": Elicitation(form=fail)}) as client:
        try:
            await client.call_tool("x", caller=name)
        except InputNotGiven as exc:
            shown += traceback.format_exception(exc)

    assert [outer and outer.caller for outer in seen.outers] == [name] * len(seen.requests)
    assert seen.outers
    shown += [*map(repr, seen.requests), *map(repr, seen.outers), caplog.text, repr(peer.received)]
    assert [text for text in shown if name in text] == []


@on_both
async def test_the_caller_object_is_released_after_its_call(era: Era) -> None:
    async def call() -> weakref.ref[Caller]:
        user = Caller()
        await client.call_tool("x", caller=user)
        return weakref.ref(user)

    seen = Handlers()
    async with connected(asking(era), **seen.options) as client:
        gone = await call()
        seen.outers.clear()
        seen.requests.clear()
        gc.collect()

        assert gone() is None


@on_both
async def test_a_request_right_after_the_response_of_a_call_does_not_belong_to_that_call() -> None:
    """In a batch with it: they are taken in one step, in which the caller cannot go on, however busy the machine is."""
    body = f"""
        call = read()
        messages = [
            {{"jsonrpc": "2.0", "id": call["id"], "result": {{"content": []}}}},
            {{"jsonrpc": "2.0", "id": 1, **{SAMPLE!r}}},
        ]
        raw(json.dumps(messages) + "\\n")
        heard = [read(), read()]  # what it asked is answered, and another call made, in either order
        reply(*[message for message in heard if "method" in message], {{"content": []}})
    """
    seen = Handlers()
    async with connected(Stdio(python(body)), era="legacy", **seen.options) as client:
        await client.call_tool("x", caller="ann")
        await client.call_tool("y", caller="bob")

    assert seen.outers == [None]


@on_both
async def test_two_questions_of_one_round_need_one_yes_if_that_is_for_the_whole_call() -> None:
    """Both are asked at once. When the first is answered, the second is withdrawn, and its handler runs."""

    async def approve(request: SamplingRequest) -> Allow:
        asked.append("asked")
        if len(asked) == 1:
            await both.wait()
            return Allow("call")
        both.set()
        try:
            await anyio.sleep_forever()
        finally:
            asked.append("withdrawn")
        raise AssertionError

    asked: list[str] = []
    both = anyio.Event()
    peer = answering(wants(None, a=SAMPLE, b=SAMPLE), wants(None, a=SAMPLE, b=SAMPLE), DONE)
    async with connected(peer, sampling=Sampling(with_tools=say_paris, approve=approve)) as client:
        await client.call_tool("x")

    assert asked == ["asked", "asked", "withdrawn"]
    assert [message["params"]["inputResponses"] for message in peer.received[2:]] == [{"a": PARIS, "b": PARIS}] * 2


def test_the_caller_object_is_never_used_for_a_repr_or_a_comparison() -> None:
    outer = OuterCall("tools/call", "x", 7, call_id=1, caller=Caller())
    visit = ElicitRequestURLParams(message="Sign in", url="https://id.example/")
    completion = CreateMessageRequestParams(messages=[], max_tokens=1)
    holders: list[object] = [
        outer,
        RootsRequest("shop", outer),
        UrlRequest("shop", visit, outer),
        SamplingRequest(params=completion, server="shop", outer=outer),
        Call(
            method="ping", params={}, timeouts=CallTimeouts(timeout=1, idle_timeout=1, clock=lambda: 0), caller=Caller()
        ),
    ]

    assert [text for text in map(repr, holders) if "caller" in text] == []
    assert outer == replace(outer, caller=Caller())
    assert hash(outer) == hash(replace(outer, caller=Caller()))
