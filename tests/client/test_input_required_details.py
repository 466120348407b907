"""What a call says again in each round, how long idle rounds wait, and what one refusal ends (2026-07-28, basic/patterns/mrtr)."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import anyio
import pytest

from mcp_host import Elicitation, FormRequest, Sampling, SamplingRequest, always
from mcp_host.errors import ConnectionClosed, InputNotGiven
from mcp_host.sampling import SamplingLimits
from mcp_host.session.session import Session
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult, ElicitResult
from tests.client.rounds import DONE, FORM, ROOTS, SAMPLE, answering, wants
from tests.client.sites import MIRRORED, Site, mirrored_headers
from tests.client.support import PARIS, connected, sampling, say_paris
from tests.extent import on_both

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run


@pytest.mark.fault("S29")
@on_both
async def test_idle_rounds_wait_twice_as_long_each_time_until_the_server_asks_for_something() -> None:
    idle = wants("s")
    asked: list[float] = []

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        for result in (idle, idle, idle, wants("s", k=ROOTS), idle, idle, DONE):
            call = await peer.receive("tools/call")
            asked.append(anyio.current_time())
            await peer.reply(call, result)

    async with connected(ScriptedPeer(script), roots=[]) as client:
        await client.call_tool("x")

    assert [end - begin for begin, end in pairwise(asked)] == pytest.approx([0.1, 0.2, 0.4, 0, 0.1, 0.2])


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
async def test_an_input_that_is_refused_ends_the_handlers_beside_it() -> None:
    """The call has failed, so their answers would go nowhere."""
    thinking = anyio.Event()
    ended: list[str] = []

    async def think_for_ever(request: SamplingRequest) -> CreateMessageResult:
        thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("the thinking")
        raise AssertionError

    async def fail(request: FormRequest) -> ElicitResult:
        await thinking.wait()
        raise RuntimeError

    peer = answering(wants(None, slow=SAMPLE, bad=FORM), DONE)
    async with connected(
        peer, sampling=sampling(with_tools=think_for_ever), elicitation=Elicitation(form=fail)
    ) as client:
        with pytest.raises(InputNotGiven) as raised:
            await client.call_tool("x")

        assert ended == ["the thinking"]
    assert raised.value.key == "bad"


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


@on_both
async def test_input_for_a_call_of_ours_waits_for_the_model_however_much_there_is() -> None:
    """The limit refuses what servers send unasked. To refuse one input would fail the whole call."""
    limits = SamplingLimits(at_once_per_server=1, waiting=1)
    peer = answering(wants(None, a=SAMPLE, b=SAMPLE, c=SAMPLE, d=SAMPLE), DONE)
    async with connected(
        peer, sampling=Sampling(with_tools=say_paris, approve=always, limits=limits), within=10
    ) as client:
        await client.call_tool("x")

    assert peer.received[-1]["params"]["inputResponses"] == dict.fromkeys("abcd", PARIS)


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


async def test_a_fault_of_our_own_while_answering_is_an_error_to_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*arguments: object, **also: Any) -> dict[str, Any]:
        raise ZeroDivisionError("ours")

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        await peer.reply(await peer.receive("tools/call"), wants("s", k=ROOTS))

    monkeypatch.setattr(Session, "answer", broken)
    async with connected(ScriptedPeer(script), roots=[]) as client:
        with pytest.raises(InputNotGiven) as raised:
            await client.call_tool("x")

    problem = "this client failed to answer: ZeroDivisionError: ours"
    assert str(raised.value) == f"tools/call: the server asks for 'roots/list' under 'k': {problem}"
    assert "answering roots/list failed" in caplog.text
