"""Messages over stdio that are none, or say what they should not: one call is hurt at most, at once and by a typed error."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable

import pytest
from anyio import Event, create_task_group

from mcp_host import Client, SamplingRequest
from mcp_host.errors import ProtocolError, ServerError
from mcp_host.types import CreateMessageResult, LoggingMessageNotificationParams, PromptReference, UnknownContent
from tests.client.support import HangingModel, sampling
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, hear, unharmed

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\x00\r\n" * 5_000
"""A hundred thousand characters that clear a screen, name a window, and turn the text around."""


REQUESTS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "malformed CallToolResult: content: ": lambda client: client.call_tool("x"),
    "malformed ReadResourceResult: contents: ": lambda client: client.read_resource("a:b"),
    "malformed GetPromptResult: messages: ": lambda client: client.get_prompt("p"),
    "malformed CompleteResult: completion: ": lambda client: client.complete(PromptReference(name="p"), "a", ""),
    "the result of tools/list has no list 'tools'": lambda client: client.list_tools(),
    "the result of prompts/list has no list 'prompts'": lambda client: client.list_prompts(),
}


@fault("J19")
async def test_a_result_of_the_wrong_shape_is_a_protocol_error_with_the_field() -> None:
    body = """
    welcome(tools={}, resources={}, prompts={}, completions={})
    wrong = dict.fromkeys(["content", "contents", "messages", "completion", "tools", "prompts"], 5)
    while True:
        request = read()
        reply(request, text("good") if request["params"].get("name") == "good" else wrong)
    """

    async with connected(body, hands=False) as client:
        for problem, request in REQUESTS.items():
            with pytest.raises(ProtocolError) as caught:
                await request(client)
            assert (await client.call_tool("good")).text == "good"

            assert type(caught.value) is ProtocolError
            assert str(caught.value).startswith(problem)
            assert caught.value.__cause__ is None


@fault("J20")
async def test_a_block_of_an_unknown_type_is_kept_whole_beside_the_others() -> None:
    hologram = {"type": "hologram", "depth": [1, {"a": None}], "text": "x"}
    content = [{"type": "text", "text": "before"}, hologram, {"type": "text", "text": "after"}]

    async with connected() as client:
        result = await hear(
            client, b'{"jsonrpc":"2.0","id":@id,"result":%s}\n' % json.dumps({"content": content}).encode()
        )

    assert [block.to_wire() for block in result.content] == content
    assert isinstance(result.content[1], UnknownContent)


@fault("J21")
async def test_a_malformed_tool_is_left_out_with_a_warning_and_hides_no_other() -> None:
    good = {"name": "good", "inputSchema": {"type": "object"}}
    bad = [{"name": 5, "inputSchema": {}}, {"name": "no schema"}, None, "tool", [], {**good, "inputSchema": "object"}]
    body = f"""
    reply(read(), {{"tools": {[good, *bad, {**good, "name": "also"}]!r}}})
    serve_all()
    """

    async with connected(body) as client:
        assert [tool.name for tool in await client.list_tools()] == ["good", "also"]
        assert (await client.call_tool("good")).text == "good"
        assert [warning.partition(": ")[2].partition(":")[0] for warning in client.warnings] == [
            f"left out of tools/list, position {item}" for item in (1, "2, 'no schema'", 3, 4, 5, "6, 'good'")
        ]


METHODS = [b"cancelled", b"progress", b"message", b"resources/updated", b"elicitation/complete", b"who/knows"]
PARAMS = [b"", b',"params":null', b',"params":[]', b',"params":7', b',"params":{}']


@fault("J22")
async def test_malformed_notifications_are_ignored() -> None:
    async def on_log(log: LoggingMessageNotificationParams) -> None:
        logged.append(log.data)
        last.set()

    async def on_progress(progress: object) -> None:
        raise AssertionError

    logged: list[object] = []
    last = Event()
    bad = [b'{"jsonrpc":"2.0","method":"notifications/%s"%s}\n' % each for each in itertools.product(METHODS, PARAMS)]
    log = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"heard"}}\n'

    async with connected(on_log=on_log) as client:
        assert (await hear(client, *bad, log, GOOD, on_progress=on_progress)).text == "good"
        await last.wait()
        assert await unharmed(client)

    assert logged == ["heard"]


ASKED = [
    ('"id": "r", "method": "ping", "params": [1]', "r", -32600),
    ('"id": "r", "method": "ping", "params": "x"', "r", -32600),
    ('"id": "r", "method": "sampling/createMessage", "params": []', "r", -32602),
    ('"id": "r", "method": "sampling/createMessage"', "r", -32602),
    ('"id": "r", "method": "sampling/createMessage", "params": null', "r", -32602),
    ('"id": "r", "method": "tools/call", "params": {"name": "x"}', "r", -32601),
    ('"id": "r", "method": ""', "r", -32601),
    ('"id": "", "method": "who/knows"', "", -32601),
    ('"id": -5, "method": "who/knows"', -5, -32601),
]


@fault("J23", "J24")
async def test_a_request_that_cannot_be_served_is_refused_with_the_right_code() -> None:
    body = f"""
    call = read()
    answers = []
    for asked in {[asked for asked, *_ in ASKED]!r}:
        line('"jsonrpc": "2.0", ' + asked)
        answers.append(read())
    reply(call, text(json.dumps(answers)))
    serve_all()
    """

    async with connected(body, sampling=sampling()) as client:
        answers = json.loads((await client.call_tool("x")).text)
        assert (await client.call_tool("good")).text == "good"

    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(id, code) for _, id, code in ASKED]


REPLY = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"bad"}]}}\n'
REQUEST = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}\n'
UNKNOWN = [b"999", b'"x"', b'"@idx"', b'" @id"', b'"@id.0"', b"-@id"]
INVALID = [REPLY % id for id in (b"@id.5", b"true", b"[@id]")]
INVALID += [REQUEST % id for id in (b"null", b"true", b"[]", b"{}", b"1.5")]


@fault("J01", "J02", "J05", "J06", "J23")
async def test_messages_with_an_unknown_used_or_invalid_id_are_counted_and_do_no_harm() -> None:
    async with connected() as client:
        for message in (*(REPLY % id for id in UNKNOWN), *INVALID):
            assert (await hear(client, message, GOOD)).text == "good", message
        assert (await hear(client, GOOD, REPLY % b"@id", REPLY % b"@id")).text == "good"
        assert await unharmed(client), "which it is not if the parrot has heard anything but calls"
        assert client.counters == {"answers to nothing": len(UNKNOWN) + 2, "malformed messages": len(INVALID)}


@fault("J04")
async def test_zero_is_a_valid_id() -> None:
    """The server's requests under it are answered, and can be cancelled."""
    body = """
    first = read()
    sample(0)
    second = read()
    tell("cancelled", requestId=0)
    say({"id": 0, "method": "ping"})
    reply(second, text(json.dumps(read())))
    third = read()
    serve(first)
    serve(third)
    read()
    """
    asked: list[SamplingRequest] = []
    hanging = HangingModel()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        asked.append(request)
        return await hanging(request)

    async with connected(body, sampling=sampling(with_tools=model)) as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "first")
        await hanging.begun.wait()
        heard = json.loads((await client.call_tool("second")).text)
        await hanging.ended.wait()  # though the call that it asked for goes on
        await client.call_tool("third")

    assert heard == {"jsonrpc": "2.0", "id": 0, "result": {}}
    assert len(asked) == 1


@fault("J25")
async def test_a_server_that_refuses_a_ping_is_alive() -> None:
    body = """
    refuse(until("ping"), -32601, "Method not found")
    serve_all()
    """

    async with connected(body) as client:
        await client.ping()
        assert (await client.call_tool("good")).text == "good"


@fault("J30")
async def test_a_hostile_error_message_is_cut_and_harmless_wherever_it_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    text = json.dumps(HOSTILE).encode()

    async with connected() as client:
        with pytest.raises(ServerError) as caught:
            await hear(client, b'{"jsonrpc":"2.0","id":@id,"error":{"code":1,"message":%s}}\n' % text)
        await hear(client, b"%s\n" % HOSTILE.replace("\n", "").encode(), b'{"\x1b[2J":\n', GOOD)
        with pytest.raises(ProtocolError) as malformed:
            await hear(client, b'{"jsonrpc":"2.0","id":@id,"result":{"content":[{"type":"text",%s:1}]}}\n' % text)

    assert caught.value.message == HOSTILE
    for shown in (str(caught.value), repr(caught.value), str(malformed.value), *caplog.messages):
        assert shown.isprintable()
        assert len(shown) < 1000
    assert len(caplog.messages) >= 2
