"""One call: its arguments, its progress, its deadlines, and the one answer it gets."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    MessageTooLarge,
    NotAdvertised,
    NotConnected,
    ProtocolError,
    RequestTimeout,
    ServerError,
)
from mcp_host.limits import Limits
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CallToolResult, ProgressNotificationParams, TextContent
from tests.client.support import (
    EMPTY,
    HANDSHAKE,
    TOOLS,
    Era,
    Recorder,
    answering,
    connected,
    ignore,
    report_progress,
    said_to,
)
from tests.extent import on_both

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run


async def test_a_call_says_what_was_meant_and_returns_what_was_answered(era: Era) -> None:
    peer = answering(era, {"content": [{"type": "text", "text": "hi"}], "isError": False})

    async with connected(peer) as client:
        result = await client.call_tool("echo", {"text": "hi"}, meta={"trace": "7"})

    assert result == CallToolResult(content=[TextContent(text="hi")], is_error=False)
    assert era.said_to(peer) == [
        {
            "jsonrpc": "2.0",
            "id": era.first_id,
            "method": "tools/call",
            "params": era.dressed({"name": "echo", "arguments": {"text": "hi"}, "_meta": {"trace": "7"}}),
        }
    ]


async def test_an_error_of_the_server_is_a_server_error(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.reply_error(await peer.receive("tools/call"), -32602, "no such tool\x1b[2J", {"tool": "x"})

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(ServerError) as failure:
            await client.call_tool("x")

    assert (failure.value.code, failure.value.data) == (-32602, {"tool": "x"})
    assert failure.value.message == "no such tool\x1b[2J"
    assert str(failure.value) == "no such tool\\x1b[2J (-32602)"


def saying(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@pytest.mark.fault("C18")
async def test_answers_find_their_calls_in_any_order(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        calls = [await peer.receive("tools/call") for _ in range(3)]
        for call in reversed(calls):
            await peer.reply(call, saying(call["params"]["name"]))

    async with connected(ScriptedPeer(script)) as client:
        assert await said_to(client, "a", "b", "c") == {"a": "a", "b": "b", "c": "c"}


async def test_progress_is_awaited_in_order_before_the_call_returns(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        await report_progress(peer, call, 1, 2.5, 3)
        await peer.reply(call, EMPTY)

    seen: list[float] = []

    async def on_progress(progress: ProgressNotificationParams) -> None:
        await checkpoint()
        seen.append(progress.progress)

    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("slow", on_progress=on_progress)
        assert seen == [1, 2.5, 3]


@pytest.mark.fault("J22")
async def test_unknown_and_malformed_progress_is_counted_and_ignored(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        token = call["params"]["_meta"]["progressToken"]
        for params in (
            {"progressToken": 99, "progress": 1},
            {"progressToken": "x" * 50, "progress": 1},
            {"progressToken": token},
            {"progressToken": token, "progress": "fast"},
            {"progressToken": token, "progress": "nan"},
            {"progressToken": str(token), "progress": 2},
            {"progressToken": token, "progress": "2.5", "total": "5"},
        ):
            await peer.notify("notifications/progress", params)
        await peer.reply(call, EMPTY)

    seen = Recorder()
    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("slow", on_progress=seen)

    assert [(report.progress, report.total) for report in seen] == [(2, None), (2.5, 5)]
    assert client.counters["progress for nothing"] == 5


@pytest.mark.fault("F19", "F21")
async def test_a_slow_callback_gets_the_newest_progress_but_not_all(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        await report_progress(peer, call, *range(1500))
        await peer.reply(call, EMPTY)
        all_said.set()

    all_said = anyio.Event()
    seen: list[float] = []

    async def on_progress(progress: ProgressNotificationParams) -> None:
        if not seen:
            await all_said.wait()
            await anyio.wait_all_tasks_blocked()
        seen.append(progress.progress)

    async with connected(ScriptedPeer(script), within=25) as client:
        await client.call_tool("slow", on_progress=on_progress)

    assert seen == [*range(1024), 1499], "the first, 1,023 that had room to wait, and the newest in the last place"


async def test_a_silent_server_times_the_call_out_and_gets_a_cancellation(era: Era) -> None:
    peer = answering(era)

    async with connected(peer) as client:
        with pytest.raises(RequestTimeout, match=r"tools/call: the server was silent for 0 s \(idle_timeout\)$"):
            await client.call_tool("stuck", idle_timeout=0)
        await anyio.wait_all_tasks_blocked()

    assert peer.received[-1] == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": peer.received[-2]["id"]},
    }
    assert isinstance(RequestTimeout(""), TimeoutError)


async def test_the_error_of_a_silent_server_names_what_was_skipped_meanwhile(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.send_raw(b"before")
        await peer.reply(await peer.receive("tools/call"), EMPTY)
        await peer.receive("tools/call")
        await peer.send_raw(b'{"jsonrpc":')
        await peer.send_raw(b"\x1b[2JTraceback")

    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("first")
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("stuck", idle_timeout=0.05)

    assert "(idle_timeout); skipped meanwhile: 2, the last not JSON" in str(caught.value)
    assert str(caught.value).endswith("Traceback")
    assert str(caught.value).isprintable()


@pytest.mark.fault("C10")
async def test_progress_does_not_extend_the_timeout_of_a_call(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        while True:
            await report_progress(peer, call, 1)
            await anyio.sleep(0.01)

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(RequestTimeout, match=r"tools/call: took longer than 0.1 s \(timeout\)$"):
            await client.call_tool("busy", idle_timeout=0.05, timeout=0.1, on_progress=ignore)


@pytest.mark.fault("C05", "J07")
async def test_a_cancelled_caller_is_announced_and_the_connection_lives(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        first = await peer.receive("tools/call")
        await peer.receive("notifications/cancelled")
        await peer.reply(first, EMPTY)  # late: it must not be taken for the next answer
        await peer.reply(await peer.receive("tools/call"), saying("second"))

    async with connected(ScriptedPeer(script)) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "first")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        result = await client.call_tool("second")

    assert result.content == [TextContent(text="second")]
    assert client.counters["answers to nothing"] == 1


BROKEN: list[tuple[bytes, type[Exception], str]] = [
    (b'{"jsonrpc":"2.0","id":ID,"result":[1]}', ProtocolError, "result is not an object"),
    (b'{"jsonrpc":"2.0","id":ID}', ProtocolError, "neither result nor error"),
    (b'{"id":ID,"result":{}}', ProtocolError, "jsonrpc"),
    (b'{"jsonrpc":"2.0","id":ID,"result":{"x":"\xff"}}', ProtocolError, "not JSON"),
    (b'{"jsonrpc":"2.0","id":ID,"result":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}", ProtocolError, "not JSON"),
    (b'{"jsonrpc":"2.0","id":ID,"error":{"code":1.0}}', ServerError, "without a message"),
    (b'{"jsonrpc":"2.0","id":ID,"result":{"content":5}}', ProtocolError, "malformed CallToolResult: content"),
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}', ServerError, "what"),
    (b'{"jsonrpc":"2.0","id":ID,"result":{"x":"' + b"y" * 20_000 + b'"}}', MessageTooLarge, "Limits.max_message"),
    (b'{"result":{"x":"' + b"y" * 20_000 + b'"},"jsonrpc":"2.0","id":ID}', MessageTooLarge, "Limits.max_message"),
]


@pytest.mark.fault("F06", "J03", "J10", "J11", "J12", "J13")
async def test_a_broken_answer_fails_its_call_at_once_and_no_other(era: Era, subtests: pytest.Subtests) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        for raw, *_ in BROKEN:
            call = await peer.receive("tools/call")
            await peer.send_raw(raw.replace(b"ID", b"%d" % call["id"]))
            await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), limits=Limits(max_message=15_000)) as client:
        for raw, error, words in BROKEN:
            with subtests.test(raw=raw[:80]):
                with pytest.raises(error, match=words):
                    await client.call_tool("broken")
                assert (await client.call_tool("whole")).content == []


@pytest.mark.fault("J01", "J02")
async def test_an_id_that_came_back_in_another_spelling_is_still_ours(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        for spelling in (b'"%d"', b"%d.0"):
            call = await peer.receive("tools/call")
            await peer.send_raw(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}' % (spelling % call["id"]))

    async with connected(ScriptedPeer(script)) as client:
        for _ in range(2):
            assert (await client.call_tool("x")).content == []


@pytest.mark.fault("F14")
async def test_a_batch_answers_each_call_and_a_malformed_member_fails_only_its_own() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS | {"logging": {}}, version="2025-03-26")
        calls = sorted(
            [await peer.receive("tools/call") for _ in range(3)], key=lambda call: str(call["params"]["name"])
        )
        one, three = [
            {"jsonrpc": "2.0", "id": call["id"], "result": saying(call["params"]["name"])} for call in calls[::2]
        ]
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "waves"}}
        await peer.send_raw(json.dumps([three, note, {"jsonrpc": "2.0", "id": calls[1]["id"]}, 7, one]).encode())

    async def fail() -> None:
        with pytest.raises(ProtocolError, match="neither result nor error"):
            await client.call_tool("b")

    logs = Recorder()
    async with connected(ScriptedPeer(script), era="legacy", on_log=logs) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            assert await said_to(client, "a", "c") == {"a": "a", "c": "c"}
        await logs.called.wait()

    assert [message.data for message in logs] == ["waves"]


async def test_a_feature_that_was_not_advertised_is_not_requested() -> None:
    peer = answering(HANDSHAKE)

    async with connected(peer, era="legacy") as client:
        with pytest.raises(NotAdvertised, match=r"did not advertise resources\.subscribe"):
            await client.subscribe_resource("file:///x")
        with pytest.raises(NotAdvertised, match="did not advertise prompts"):
            await client.list_prompts()

    assert [message["method"] for message in peer.received] == ["initialize", "notifications/initialized"]


async def test_calls_before_connecting_and_after_closing_say_so(era: Era) -> None:
    client = Client(answering(era))
    with pytest.raises(NotConnected):
        await client.call_tool("x")
    with anyio.fail_after(5):
        async with client:
            pass
        with pytest.raises(NotConnected):
            await client.call_tool("x")


async def test_arguments_that_are_not_json_are_the_callers_error_and_nothing_is_sent(era: Era) -> None:
    peer = answering(era, EMPTY)

    async with connected(peer) as client:
        with pytest.raises(CallerError, match="not expressible in JSON"):
            await client.call_tool("x", {"a": float("nan")})
        await client.call_tool("y")

    assert [message["params"]["name"] for message in era.said_to(peer)] == ["y"]


async def test_a_server_that_ends_ends_every_call_that_waits_for_it(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        for _ in range(2):
            await peer.receive("tools/call")
        await peer.aclose()

    async def call() -> None:
        with pytest.raises(ConnectionClosed, match="the scripted peer has ended"):
            await client.call_tool("x")

    async with connected(ScriptedPeer(script)) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            tasks.start_soon(call)
        assert not client.connected
        with pytest.raises(ConnectionClosed) as later:
            await client.call_tool("later")

    assert not later.value.may_have_run, "over a link that is gone nothing is sent"
