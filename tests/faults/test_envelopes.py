"""Messages over stdio that are none, or say what they should not: one call is hurt at most, at once and by a typed error."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from anyio import Event

from mcp_host import Client
from mcp_host.errors import ProtocolError, ServerError
from mcp_host.types import LoggingMessageNotificationParams, PromptReference, UnknownContent
from tests.client.support import sampling
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, error_of, hear, unharmed

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\x00\r\n" * 20_000
"""Half a million characters that clear a screen, name a window, and turn the text around."""


@fault("J09")
@pytest.mark.parametrize("result", [b"{}", b"null", b"[]"], ids=["object", "null", "list"])
async def test_a_reply_with_a_result_and_an_error_is_an_error(result: bytes) -> None:
    both = b'{"jsonrpc":"2.0","id":@id,"result":%s,"error":{"code":-32000,"message":"no","data":[1]}}\n'

    error = await error_of(both % result)

    assert type(error) is ServerError
    assert (error.code, error.message, error.data) == (-32000, "no", [1])


@fault("J10", "J11", "J12")
@pytest.mark.parametrize(
    ("members", "words"),
    [
        (b'"jsonrpc":"2.0","id":@id', "neither result nor error"),
        (b'"id":@id,"result":{}', 'jsonrpc is not "2.0"'),
        (b'"jsonrpc":"1.0","id":@id,"result":{}', 'jsonrpc is not "2.0"'),
        (b'"jsonrpc":2.0,"id":@id,"result":{}', 'jsonrpc is not "2.0"'),
        (b'"jsonrpc":"2.0","id":@id,"result":[]', "result is not an object"),
        (b'"jsonrpc":"2.0","id":@id,"result":null', "result is not an object"),
        (b'"jsonrpc":"2.0","id":@id,"result":"done"', "result is not an object"),
        (b'"jsonrpc":"2.0","id":@id,"error":"no"', "error is not an error object"),
        (b'"jsonrpc":"2.0","id":@id,"error":null', "error is not an error object"),
        (b'"jsonrpc":"2.0","id":@id,"error":{"code":"1","message":"m"}', "error is not an error object"),
        (b'"jsonrpc":"2.0","id":@id,"error":{"code":1.5,"message":"m"}', "error is not an error object"),
        (b'"jsonrpc":"2.0","id":@id,"error":{"code":true,"message":"m"}', "error is not an error object"),
        (b'"jsonrpc":"2.0","id":@id,"error":{"code":1}', "error is not an error object"),
        (b'"jsonrpc":"2.0","id":@id,"result":{"content":[', "not JSON"),
        (b'"result":{"x":"\xff"},"jsonrpc":"2.0","id":@id', "not JSON"),
    ],
    ids=lambda value: value.decode("latin-1") if isinstance(value, bytes) else "",
)
async def test_a_malformed_reply_fails_its_call_at_once(members: bytes, words: str) -> None:
    error = await error_of(b"{%s}\n" % members)

    assert type(error) is ProtocolError
    assert words in str(error)


@fault("J18")
async def test_an_invalid_message_is_skipped_and_counted() -> None:
    rubbish = [
        b"\0\0\0\n",
        bytes(range(14, 256)) * 50 + b"\n",
        b"\0" + GOOD,
        b"\x7fELF\x02\x01\x01\n",
        b"\x1f\x8b\x08\n",
    ]

    async with connected() as client:
        assert (await hear(client, *rubbish, GOOD)).text == "good"
        assert client.counters == {"malformed messages": len(rubbish)}


@fault("J19")
@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (lambda client: client.call_tool("x"), "malformed CallToolResult: content: "),
        (lambda client: client.read_resource("a:b"), "malformed ReadResourceResult: contents: "),
        (lambda client: client.get_prompt("p"), "malformed GetPromptResult: messages: "),
        (lambda client: client.complete(PromptReference(name="p"), "a", ""), "malformed CompleteResult: completion: "),
        (lambda client: client.list_tools(), "the result of tools/list has no list 'tools'"),
        (lambda client: client.list_prompts(), "the result of prompts/list has no list 'prompts'"),
    ],
    ids=["tools/call", "resources/read", "prompts/get", "completion/complete", "tools/list", "prompts/list"],
)
async def test_a_result_of_the_wrong_shape_is_a_protocol_error_with_the_field(
    request_: Callable[[Client], Awaitable[object]], problem: str
) -> None:
    body = """
    welcome(tools={}, resources={}, prompts={}, completions={})
    wrong = ["content", "contents", "messages", "completion", "tools", "prompts"]
    reply(read(), dict.fromkeys(wrong, 5))
    serve_all()
    """

    async with connected(body, hands=False) as client:
        with pytest.raises(ProtocolError) as caught:
            await request_(client)
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
            f"left out of tools/list, position {position}" for position in range(1, 7)
        ]


@fault("J22")
@pytest.mark.parametrize(
    "params",
    [b"", b',"params":null', b',"params":[]', b',"params":7', b',"params":{}'],
    ids=["absent", "null", "list", "number", "empty"],
)
async def test_malformed_notifications_are_ignored(params: bytes) -> None:
    async def on_log(log: LoggingMessageNotificationParams) -> None:
        logged.append(log.data)
        last.set()

    async def on_progress(progress: object) -> None:
        raise AssertionError

    logged: list[object] = []
    last = Event()
    methods = [b"cancelled", b"progress", b"message", b"resources/updated", b"elicitation/complete", b"who/knows"]
    bad = [b'{"jsonrpc":"2.0","method":"notifications/%s"%s}\n' % (method, params) for method in methods]
    log = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"heard"}}\n'

    async with connected(on_log=on_log) as client:
        assert (await hear(client, *bad, log, GOOD, on_progress=on_progress)).text == "good"
        await last.wait()
        assert await unharmed(client)

    assert logged == ["heard"]


@fault("J22")
@pytest.mark.parametrize(
    "wrong",
    [
        b'{"progressToken":@id}',
        b'{"progressToken":@id,"progress":"half"}',
        b'{"progressToken":@id,"progress":null}',
        b'{"progressToken":[@id],"progress":1}',
        b'{"progressToken":@id,"progress":1,"total":"x"}',
        b'{"progressToken":@id,"progress":1,"message":1}',
    ],
    ids=bytes.decode,
)
async def test_malformed_progress_reaches_no_callback_and_fails_no_call(wrong: bytes) -> None:
    async def on_progress(progress: object) -> None:
        raise AssertionError

    async with connected() as client:
        bad = b'{"jsonrpc":"2.0","method":"notifications/progress","params":%s}\n' % wrong
        assert (await hear(client, bad, GOOD, on_progress=on_progress)).text == "good"


@fault("J23", "J24")
@pytest.mark.parametrize(
    ("asked", "id", "code"),
    [
        ('"id": "r", "method": "ping", "params": [1]', "r", -32600),
        ('"id": "r", "method": "ping", "params": "x"', "r", -32600),
        ('"id": "r", "method": "sampling/createMessage", "params": []', "r", -32600),
        ('"id": "r", "method": "sampling/createMessage"', "r", -32602),
        ('"id": "r", "method": "sampling/createMessage", "params": null', "r", -32602),
        ('"id": "r", "method": "tools/call", "params": {"name": "x"}', "r", -32601),
        ('"id": "r", "method": ""', "r", -32601),
        ('"id": "", "method": "who/knows"', "", -32601),
        ('"id": -5, "method": "who/knows"', -5, -32601),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused_with_the_right_code(
    asked: str, id: object, code: int
) -> None:
    body = f"""
    call = read()
    raw('{{"jsonrpc": "2.0", {asked}}}\\n')
    reply(call, text(json.dumps(read())))
    serve_all()
    """

    async with connected(body, sampling=sampling()) as client:
        answer = json.loads((await client.call_tool("x")).text)
        assert (await client.call_tool("good")).text == "good"

    assert (answer["id"], answer["error"]["code"]) == (id, code)


@fault("J23")
@pytest.mark.parametrize("id", [b"null", b"true", b"[]", b"{}", b"1.5"], ids=bytes.decode)
async def test_a_request_with_an_invalid_id_is_counted_and_not_answered(id: bytes) -> None:
    async with connected() as client:
        assert (await hear(client, b'{"jsonrpc":"2.0","id":%s,"method":"ping"}\n' % id, GOOD)).text == "good"
        assert await unharmed(client), "which it is not if the parrot has heard anything but calls"
        assert client.counters == {"malformed messages": 1}


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
