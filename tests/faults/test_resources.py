"""What a server may take of the host: memory, tasks, descriptors, the event loop, the processor, the disk."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

import pytest
import sniffio
from anyio import create_task_group, fail_after, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from pydantic_core import to_json

from mcp_host import Client, Elicitation, FormRequest, Stdio, StreamableHttp
from mcp_host.errors import ConnectFailed, HttpStatusError, McpError, MessageTooLarge, ProtocolError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Request, Success, decode, encode
from mcp_host.testing import ScriptedPeer
from mcp_host.types import PromptReference
from tests.client.support import HANDSHAKE, QUESTION, sampling
from tests.elicitation.asking import form
from tests.extent import on_both
from tests.faults.fault import Held, fault
from tests.faults.http_server import connected, failing, mcp, says, streams, subjects, tides
from tests.faults.measure import FEW_CALLS, calls_while_idle, processor_time
from tests.faults.responsive import pulse
from tests.transports.children import python
from tests.transports.http_peers import JSON, Heard, Wire, event, serving
from tests.transports.legacy_peers import in_turn

Ask: TypeAlias = Callable[[Client], Awaitable[object]]


def ours() -> Counter[str]:
    """How many objects of each of our classes there are."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("mcp_host"))


async def drop_cancelled_timers() -> None:
    """asyncio keeps them, with the context that each was set in, until most of a hundred have been cancelled."""
    if sniffio.current_async_library() == "asyncio":
        for _ in range(1000):
            asyncio.get_running_loop().call_later(60, int).cancel()
        await checkpoint()


@on_both
@pytest.mark.parametrize("lost", [True, False], ids=["sessions that are lost", "clients that come and go"])
@fault("R03", "R04")
async def test_repeated_connecting_leaks_nothing(lost: bool) -> None:
    """Neither objects of ours nor tasks nor descriptors."""
    script = mcp(call=in_turn(*[says(b"", 404), says()] * 200) if lost else says())
    async with serving(script) as peer:
        client = Client(StreamableHttp(peer.url), era="legacy")

        async def again(times: int) -> tuple[Counter[str], Held]:
            for _ in range(times):
                await client.connect()
                await tides(client)
                if not lost:
                    await client.aclose()
            await drop_cancelled_timers()
            return ours(), Held.now()

        (objects, held), (more_objects, more_held) = await again(5), await again(30)
        await client.aclose()

    assert subjects(peer).count("initialize") >= 35
    assert more_objects - objects == Counter()
    assert more_held.beyond(held) == {}


def dies() -> Client:
    return Client(Stdio(python("", hands=False)))


def not_there() -> Client:
    return Client(Stdio(["no-such-server"]))


def refused() -> Client:
    return Client(StreamableHttp("http://127.0.0.1:1/mcp"))


def babbles() -> Client:
    return Client(Stdio(python("raw('{' * 10_000)", hands=False)))


@pytest.mark.parametrize(("made", "times"), [(dies, 3), (babbles, 3), (not_there, 50), (refused, 25)])
@fault("R04", "R05")
async def test_repeated_failed_connects_leak_nothing(made: Callable[[], Client], times: int) -> None:
    before = Held.now()
    for _ in range(times):
        with fail_after(25), pytest.raises(McpError):
            await made().connect()

    assert Held.now().beyond(before) == {}


@fault("R04", "R05")
async def test_a_refused_connect_leaves_no_connection_open() -> None:
    async with serving(mcp(discover=says(b"", 500), initialize=says(b"", 500))) as peer:
        for _ in range(25):
            with fail_after(25), pytest.raises(HttpStatusError):
                await Client(StreamableHttp(peer.url)).connect()
        await wait_all_tasks_blocked()
        before = Held.now()
        for _ in range(25):
            with fail_after(25), pytest.raises(HttpStatusError):
                await Client(StreamableHttp(peer.url)).connect()
        await wait_all_tasks_blocked()

        assert Held.now().beyond(before) == {}


CROWD = b'{"jsonrpc":"2.0","id":@id,"result":{"content":[' + b"[]," * (3 * 2**20) + b"[]]}}"


@pytest.mark.parametrize("spoiled", [says(CROWD), streams(event(CROWD))], ids=["a body", "an event"])
@fault("R06")
async def test_a_message_of_too_many_values_is_refused_without_blocking_the_loop(spoiled: Any) -> None:
    async with connected(mcp(call=in_turn(spoiled, says()))) as (client, _), pulse() as loop:
        error = await failing(client)
        await tides(client)

    assert isinstance(error, MessageTooLarge)
    assert "brackets, colons and commas" in str(error)
    assert loop.longest < processor_time(lambda: json.loads(CROWD.replace(b"@id", b"2"))), "it is not read"


@fault("R06")
async def test_a_line_of_too_many_values_is_refused_without_blocking_the_loop() -> None:
    body = """
call = read()
raw('{"jsonrpc":"2.0","id":%d,"result":{"content":[' % call["id"] + "{}," * 3 * 2**20 + "{}]}}\\n")
reply(read(), text("good"))
"""
    async with Client(Stdio(python(body)), era="legacy") as client, pulse() as loop:
        with pytest.raises(MessageTooLarge):
            await client.call_tool("x")
        assert (await client.call_tool("x")).text == "good"

    assert loop.longest < processor_time(lambda: json.loads(b"[" + b"{}," * 3 * 2**20 + b"{}]")), "it is not read"


@fault("R06")
async def test_a_large_text_is_read_without_blocking_the_loop() -> None:
    """Eight megabytes, with more commas than there may be values."""
    words = b"[,{:" * (2 * 2**20)
    result = b'{"jsonrpc":"2.0","id":@id,"result":%s}'
    large = result % (b'{"content":[{"type":"text","text":"%s"}]}' % words)
    script = mcp(call=in_turn(says(large), says(result % to_json(ORDINARY)), says()))
    async with connected(script) as (client, _):
        async with pulse() as loop:
            assert len((await client.call_tool("tides")).text) == len(words)
        assert loop.longest < await longest_allowed(client, large.replace(b"@id", b"3"))
        await tides(client)


@fault("R06")
async def test_a_compression_bomb_is_inflated_in_pieces_up_to_the_limit_without_blocking_the_loop() -> None:
    bomb = gzip.compress(b'{"jsonrpc":"2.0","id":2,"result":{"content":[],"a":"' + b"x" * (32 * 2**20))

    async def call(wire: Wire, heard: Heard) -> None:
        await wire.reply(200, {**JSON, "content-encoding": "gzip"}, bomb)

    script = mcp(call=in_turn(call, says()))
    async with connected(script, limits=Limits(max_message=16 * 2**20)) as (client, _), pulse() as loop:
        assert isinstance(await failing(client), MessageTooLarge)
        await tides(client)

    assert loop.longest < loop.spent / 2


@fault("R06", "R08")
async def test_a_list_with_many_malformed_items_does_not_block_the_loop_or_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = """
listing = read()
reply(listing, {"tools": [[]] * 30_000})
reply(read(), text("good"))
"""
    async with Client(Stdio(python(body)), era="legacy") as client, pulse() as loop:
        assert await client.list_tools() == []
        assert (await client.call_tool("x")).text == "good"

        assert len(client.warnings) == 100
        assert client.counters["further warnings"] == 29_900
    assert len(caplog.records) == 100 + 15  # the first, second, fourth… of the rest
    assert loop.longest < loop.spent / 2


MANY = 200_000
TEXT: dict[str, Any] = {"type": "text", "text": ""}
LINK: dict[str, Any] = {"type": "resource_link", "uri": "a:b", "name": ""}
CALL: Ask = lambda client: client.call_tool("x")  # noqa: E731  # rows of a table
PROMPT: Ask = lambda client: client.get_prompt("x")  # noqa: E731
READ: Ask = lambda client: client.read_resource("a:b")  # noqa: E731
COMPLETE: Ask = lambda client: client.complete(PromptReference(name="x"), "a", "")  # noqa: E731
SPOILED: dict[str, Any] = {**TEXT, "annotations": 5}
TOO_MANY_VALUES = r"^the result of .* has more than 30,000 values \(Limits"
NOT_REPAIRED = r"^malformed .* \(in more than 2,000 items, nothing malformed is left out\)$"
RESULTS: dict[str, tuple[dict[str, Any], Ask, str | None]] = {
    "blocks": ({"content": [TEXT] * MANY}, CALL, TOO_MANY_VALUES),
    "blocks that have to be mended": ({"content": [SPOILED] * (MANY // 2)}, CALL, TOO_MANY_VALUES),
    "icons of one link": ({"content": [{**LINK, "icons": [{"src": ""}] * MANY}]}, CALL, TOO_MANY_VALUES),
    "unknown members": ({"content": [], **{str(n): 0 for n in range(2 * MANY)}}, CALL, TOO_MANY_VALUES),
    "members of _meta": ({"content": [], "_meta": {str(n): 0 for n in range(2 * MANY)}}, CALL, TOO_MANY_VALUES),
    "messages": ({"messages": [{"role": "user", "content": TEXT}] * (MANY // 2)}, PROMPT, TOO_MANY_VALUES),
    "contents": ({"contents": [{"uri": "a:b", "text": ""}] * MANY}, READ, TOO_MANY_VALUES),
    "completions": ({"completion": {"values": [""] * 2 * MANY}}, COMPLETE, TOO_MANY_VALUES),
    "{} in the place of blocks": ({"content": [TEXT, *[{}] * 29_000]}, CALL, NOT_REPAIRED),
    "null in the place of blocks": ({"content": [TEXT, *[None] * 29_000]}, CALL, NOT_REPAIRED),
    "texts in the place of blocks": ({"content": [""] * 29_000}, CALL, NOT_REPAIRED),
    "blocks of a new type, and one to mend": ({"content": [*[{"type": ""}] * 9_000, SPOILED]}, CALL, NOT_REPAIRED),
    "files, and a block to mend": (
        {"content": [*[{"type": "resource", "resource": {"uri": "", "blob": ""}}] * 5_900, SPOILED]},
        CALL,
        NOT_REPAIRED,
    ),
    "texts in one message": ({"messages": [{"role": "user", "content": [""] * 29_000}]}, PROMPT, NOT_REPAIRED),
    "nulls in one message": (
        {"messages": [{"role": "user", "content": [TEXT, *[None] * 29_000]}]},
        PROMPT,
        NOT_REPAIRED,
    ),
    "messages, and one to mend": (
        {"messages": [*[{"role": "user", "content": TEXT}] * 5_900, {"role": "user", "content": SPOILED}]},
        PROMPT,
        NOT_REPAIRED,
    ),
    "contents, and one to mend": (
        {"contents": [*[{"uri": "a:b", "text": ""}] * 9_900, {"uri": "a:b", "text": "", "mimeType": 5}]},
        READ,
        NOT_REPAIRED,
    ),
    "texts in one message, as many as are mended": (
        {"messages": [{"role": "user", "content": [""] * 1_999}]},
        PROMPT,
        None,
    ),
    "texts in one message with many members": (
        {"messages": [{"role": "user", "content": [""] * 1_999, **{str(n): 0 for n in range(10_000)}}]},
        PROMPT,
        None,
    ),
}
"""Results that are within the limits of a message, the calls that get them, and the errors of those, if they fail."""
ORDINARY = {"content": [TEXT] * 9_000}
OF_THE_SERVER: dict[str, tuple[str, dict[str, Any], str]] = {
    "hints of a request for the model": (
        "sampling/createMessage",
        {**QUESTION, "modelPreferences": {"hints": [{}] * 2 * MANY}},
        "this client's limit values is 30000, and the request has more: its host can raise it with SamplingLimits(values=...)",
    ),
    "fields of a form": (
        "elicitation/create",
        {
            "message": "",
            "requestedSchema": {"type": "object", "properties": {str(n): {"type": "string"} for n in range(MANY)}},
        },
        "this client answers no elicitation of more than 10,000 values",
    ),
    "an enum of objects": (
        "elicitation/create",
        form(f={"type": "string", "enum": [{"a": 0}] * MANY}),
        "this client answers no elicitation of more than 10,000 values",
    ),
}


async def longest_allowed(client: Client, *raw: bytes) -> float:
    """Some times what it takes to read this JSON, and to get the largest result that is ordinary: for one step of the loop.

    The server's next result is that one. It runs the same code: where branches are measured, Python's takes twice as long.
    """
    async with pulse() as loop:
        assert len((await client.call_tool("x")).content) == 9_000
    return 5 * (processor_time(lambda: [decode(each) for each in raw]) + loop.longest)


@fault("R06")
async def test_no_result_that_the_limits_let_through_takes_a_long_step_to_read(subtests: pytest.Subtests) -> None:
    for case, (result, ask, refusal) in RESULTS.items():
        raw = encode(Success(3, result))

        async def script(peer: ScriptedPeer, raw: bytes = raw) -> None:
            await HANDSHAKE.open(peer, {"tools": {}, "prompts": {}, "resources": {}, "completions": {}})
            await peer.receive()
            await peer.send_raw(raw)
            await peer.reply(await peer.receive(), ORDINARY)

        with subtests.test(case):
            async with Client(ScriptedPeer(script)) as client:
                async with pulse() as loop:
                    with nullcontext() if refusal is None else pytest.raises(ProtocolError, match=refusal):
                        await ask(client)
                assert loop.longest < await longest_allowed(client, raw)


@fault("R06")
async def test_no_request_of_a_server_takes_a_long_step_to_read(subtests: pytest.Subtests) -> None:
    for case, (method, params, refusal) in OF_THE_SERVER.items():
        raw = encode(Request(1, method, params))

        async def script(peer: ScriptedPeer, raw: bytes = raw) -> None:
            await HANDSHAKE.open(peer)
            call = await peer.receive()
            await peer.send_raw(raw)
            answer = await peer.receive()
            await peer.reply(call, {"content": [{"type": "text", "text": answer["error"]["message"]}]})
            await peer.reply(await peer.receive(), ORDINARY)

        with subtests.test(case):
            elicitation = Elicitation(form=FormRequest.decline)
            async with Client(ScriptedPeer(script), sampling=sampling(), elicitation=elicitation) as client:
                async with pulse() as loop:
                    assert (await client.call_tool("x")).text == refusal
                assert loop.longest < await longest_allowed(client, raw)


@fault("R06")
async def test_an_item_of_a_list_with_too_many_values_is_left_out_and_takes_no_long_step() -> None:
    large = {"name": "b", "icons": [{"src": ""}] * MANY}
    raw = encode(Success(3, {"prompts": [{"name": "a"}, large, {"name": "c"}]}))

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer, {"prompts": {}, "tools": {}})
        await peer.receive()
        await peer.send_raw(raw)
        await peer.reply(await peer.receive(), ORDINARY)

    async with Client(ScriptedPeer(script)) as client:
        async with pulse() as loop:
            assert [prompt.name for prompt in await client.list_prompts()] == ["a", "c"]
        assert loop.longest < await longest_allowed(client, raw)

    assert client.warnings == [
        "the scripted peer: left out of prompts/list, position 1, 'b': more than 30,000 values (Limits.max_values)"
    ]


@fault("R06")
async def test_items_of_a_list_that_have_to_be_mended_take_no_long_step() -> None:
    """Others run before each: an item alone may have as many values as a result."""
    prompt = {"name": "a", "arguments": [*[{"name": ""}] * 290, {"name": "", "required": 5}]}
    turns = 0

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer, {"prompts": {}})
        await peer.reply(await peer.receive(), {"prompts": [prompt] * 200})

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with Client(ScriptedPeer(script)) as client, create_task_group() as tasks:
        tasks.start_soon(take_turns)
        assert len(await client.list_prompts()) == 200
        tasks.cancel_scope.cancel()

    assert turns >= 200


@fault("R06")
async def test_a_huge_notification_and_a_batch_of_changes_take_no_long_step() -> None:
    said: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/message"}
    log = to_json({**said, "params": {"level": "info", "data": 0, **{str(n): 0 for n in range(MANY)}}})
    updated = {"jsonrpc": "2.0", "method": "notifications/resources/updated"}
    changes = to_json([{**updated, "params": {"uri": f"a:{n}"}} for n in range(5_000)])

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        call = await peer.receive()  # in which what reads such notifications is built, once in a process
        await peer.notify("notifications/message", {"level": "info", "data": 0})
        await peer.notify("notifications/resources/updated", {"uri": "a:0"})
        await peer.reply(call, {"content": []})
        call = await peer.receive()
        await peer.send_raw(log)
        await peer.send_raw(changes)
        await peer.reply(call, {"content": []})
        await peer.reply(await peer.receive(), ORDINARY)

    async def ignore(said: object) -> None:
        pass

    async with Client(ScriptedPeer(script), on_log=ignore, on_change=ignore) as client:
        await client.call_tool("x")
        async with pulse() as loop:
            await client.call_tool("x")
        assert loop.longest < await longest_allowed(client, log, changes)

    assert client.counters == {"notifications of too many values": 1, "dropped notifications": 3_976}


@fault("R07")
async def test_a_server_that_keeps_ending_its_stream_causes_no_busy_loop() -> None:
    script = mcp(get=streams(b"retry: 0\n\n"))
    async with connected(script) as (client, peer):
        assert await calls_while_idle() < FEW_CALLS  # with what the server uses, which runs here, too
        assert subjects(peer).count("get") <= 6
        await tides(client)


@on_both
@fault("R07")
async def test_an_idle_client_uses_no_cpu_after_a_cancelled_call_and_a_failed_connect() -> None:
    body = """
while True:
    request = read()
    if request.get("params", {}).get("name") == "answer":
        reply(request, text("good"))
"""
    async with Client(Stdio(python(body)), era="legacy") as client:
        async with create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "never")
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        with pytest.raises(ConnectFailed):
            await not_there().connect()
        assert await calls_while_idle() < FEW_CALLS
        assert (await client.call_tool("answer")).text == "good"


@fault("R08")
async def test_invalid_output_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="mcp_host")
    body = r"""
call = read()
raw(("x" * 1000 + "\n") * 10_000)
for number in range(5_000):
    say({"method": "notifications/progress", "params": {"progressToken": "none", "progress": number}})
    say({"id": 10_000 + number, "result": {}})
    say({"id": 20_000 + number})
    print("stderr", file=sys.stderr)
reply(call, text("good"))
sys.stdin.read()
"""
    async with Client(Stdio(python(body)), era="legacy") as client:
        assert (await client.call_tool("x")).text == "good"

        assert client.counters["malformed messages"] >= 10_000
    assert len(caplog.records) < 40
    assert sum(len(record.getMessage()) for record in caplog.records) < 10_000
