"""Everything else that a client can ask: what is sent, and what comes of the answer."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from mcp_host import Client
from mcp_host.errors import (
    CallerError,
    InvalidToolOutput,
    ProtocolError,
    ResourceNotFound,
    ServerError,
    UrlElicitationRequired,
)
from mcp_host.limits import Limits
from mcp_host.testing import ScriptedPeer
from mcp_host.types import (
    CompleteResult,
    GetPromptResult,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)
from tests.client.support import HANDSHAKE, Era, answering, connected

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run

EVERYTHING: dict[str, Any] = {
    "tools": {},
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}


Ask = Callable[[Client], Awaitable[object]]


REF = PromptReference(name="p")
READ = {"contents": [{"uri": "a:b", "text": "t"}]}
OSLO = {"completion": {"values": ["Oslo"]}}
REQUESTS: list[tuple[Ask, str, dict[str, Any], dict[str, Any], object]] = [
    (
        lambda client: client.list_resources(),
        *("resources/list", {}, {"resources": [{"uri": "a:b", "name": "n"}]}),
        [Resource(uri="a:b", name="n")],
    ),
    (
        lambda client: client.list_resource_templates(),
        *("resources/templates/list", {}, {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "n"}]}),
        [ResourceTemplate(uri_template="a:{b}", name="n")],
    ),
    (
        lambda client: client.read_resource("a:b"),
        *("resources/read", {"uri": "a:b"}, READ),
        ReadResourceResult.from_wire(READ),
    ),
    (lambda client: client.list_prompts(), *("prompts/list", {}, {"prompts": [{"name": "p"}]}), [Prompt(name="p")]),
    (
        lambda client: client.get_prompt("p", {"a": "1"}),
        *("prompts/get", {"name": "p", "arguments": {"a": "1"}}, {"messages": []}),
        GetPromptResult(messages=[]),
    ),
    (
        lambda client: client.get_prompt("p"),
        *("prompts/get", {"name": "p"}, {"messages": []}),
        GetPromptResult(messages=[]),
    ),
    (
        lambda client: client.complete(PromptReference(name="p"), "city", "Os", context={"country": "NO"}),
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "city", "value": "Os"},
            "context": {"arguments": {"country": "NO"}},
        },
        OSLO,
        CompleteResult.from_wire(OSLO),
    ),
    (
        lambda client: client.complete(ResourceTemplateReference(uri="a:{b}"), "b", ""),
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "a:{b}"}, "argument": {"name": "b", "value": ""}},
        OSLO,
        CompleteResult.from_wire(OSLO),
    ),
]


async def test_each_request_is_written_and_its_result_read(era: Era) -> None:
    peer = answering(era, *[result for *_, result, _ in REQUESTS], capabilities=EVERYTHING)
    async with connected(peer) as client:
        answers = [await ask(client) for ask, *_ in REQUESTS]

    assert answers == [value for *_, value in REQUESTS]
    assert era.said_to(peer) == [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": era.dressed(params)}
        for id, (_, method, params, *_) in enumerate(REQUESTS, era.first_id)
    ]


WITHOUT_RESULT: list[tuple[Ask, str, dict[str, Any]]] = [
    (lambda client: client.subscribe_resource("a:b"), "resources/subscribe", {"uri": "a:b"}),
    (lambda client: client.unsubscribe_resource("a:b"), "resources/unsubscribe", {"uri": "a:b"}),
    (lambda client: client.set_log_level("warning"), "logging/setLevel", {"level": "warning"}),
    (lambda client: client.ping(), "ping", {}),
]


async def test_requests_of_handshake_revisions_are_sent_and_have_no_result() -> None:
    peer = answering(HANDSHAKE, *[{}] * 4, capabilities=EVERYTHING)
    async with connected(peer, era="legacy") as client:
        answers = [await ask(client) for ask, *_ in WITHOUT_RESULT]

    assert answers == [None] * 4
    assert peer.received[2:] == [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        for id, (_, method, params) in enumerate(WITHOUT_RESULT, 2)
    ]


async def test_a_list_is_followed_through_all_its_pages(era: Era, subtests: pytest.Subtests) -> None:
    unbounded = Limits(max_pages=math.inf)  # type: ignore[arg-type]  # which works at run time
    for limits in (Limits(), unbounded):
        with subtests.test(max_pages=limits.max_pages):
            peer = answering(
                era,
                {"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "1"},
                {"tools": [{"name": "b", "inputSchema": {}}], "nextCursor": "2"},
                {"tools": []},
            )
            async with connected(peer, limits=limits) as client:
                tools = await client.list_tools()

            assert tools == [Tool(name="a", input_schema={}), Tool(name="b", input_schema={})]
            assert [message["params"] for message in era.said_to(peer)] == [
                era.dressed(params) for params in ({}, {"cursor": "1"}, {"cursor": "2"})
            ]


@pytest.mark.fault("T01")
async def test_a_list_that_leads_nowhere_ends_with_what_was_read(era: Era) -> None:
    async def listed(*cursors: object) -> tuple[list[str], str]:
        pages = [{"tools": [{"name": f"t{n}", "inputSchema": {}}], "nextCursor": c} for n, c in enumerate(cursors)]
        async with connected(answering(era, *pages), limits=Limits(max_pages=3)) as client:
            tools = await client.list_tools()
            (warning,) = client.warnings
        return [tool.name for tool in tools], warning.partition("tools/list ends early: ")[2]

    nowhere = "the cursor {} leads nowhere new"
    assert await listed("x", "x") == (["t0", "t1"], nowhere.format("'x'"))
    assert await listed(7, 7) == (["t0", "t1"], nowhere.format("'7'"))
    assert await listed("a", "b", "a") == (["t0", "t1", "t2"], nowhere.format("'a'"))
    assert await listed(False) == (["t0"], "the cursor False is not text")
    assert await listed([7]) == (["t0"], "the cursor [7] is not text")
    names, problem = await listed("x" * 65_536, "x" * 65_537)
    assert names == ["t0", "t1"]
    assert problem.endswith(" has more than 65,536 characters")
    assert await listed("1", "2", "3", "4") == (["t0", "t1", "t2"], "more than 3 pages (Limits.max_pages)")


async def test_a_list_that_is_null_or_an_empty_object_is_empty_with_a_warning() -> None:
    """As Go and Lua write a list that nothing was put into."""
    empties: list[dict[str, object] | None] = [None, {}]
    for empty in empties:
        async with connected(
            answering(HANDSHAKE, {"tools": empty, "nextCursor": "1"}, {"tools": [{"name": "t", "inputSchema": {}}]})
        ) as client:
            assert [tool.name for tool in await client.list_tools()] == ["t"]
            assert client.warnings == [
                f"the peer: the result of tools/list has {json.dumps(empty)} for the list 'tools'"
            ]


SHAPES: list[tuple[Ask, str]] = [
    (lambda client: client.call_tool("x"), "malformed CallToolResult: content: "),
    (lambda client: client.read_resource("a:b"), "malformed ReadResourceResult: contents: "),
    (lambda client: client.get_prompt("p"), "malformed GetPromptResult: messages: "),
    (lambda client: client.complete(REF, "a", ""), "malformed CompleteResult: completion: "),
    (lambda client: client.list_tools(), "the result of tools/list has no list 'tools'"),
    (lambda client: client.list_prompts(), "the result of prompts/list has no list 'prompts'"),
]


@pytest.mark.fault("J19")
async def test_a_result_of_the_wrong_shape_is_a_protocol_error_with_the_field(subtests: pytest.Subtests) -> None:
    wrong = dict.fromkeys(["content", "contents", "messages", "completion", "prompts"], 5) | {"tools": {"name": "t"}}
    async with connected(answering(HANDSHAKE, wrong, capabilities=EVERYTHING)) as client:
        for ask, problem in SHAPES:
            with subtests.test(problem):
                with pytest.raises(ProtocolError) as caught:
                    await ask(client)

                assert type(caught.value) is ProtocolError
                assert str(caught.value).startswith(problem)
                assert caught.value.__cause__ is None


async def test_a_schema_that_nests_deeply_hides_no_other_tool() -> None:
    schema: dict[str, Any] = {}
    for _ in range(150):
        schema = {"properties": {"a": schema}}
    listed = [{"name": "deep", "inputSchema": {}, "outputSchema": schema}, {"name": "plain", "inputSchema": {}}]

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer, EVERYTHING)
        request = await peer.receive("tools/list")
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"tools": listed}}
        await peer.send_raw(json.dumps(answer).encode())

    async with connected(ScriptedPeer(script)) as client:
        tools = await client.list_tools()

    assert [tool.name for tool in tools] == ["deep", "plain"]
    assert tools[0].output_schema == schema


WRONG: list[tuple[Callable[[Any], Awaitable[object]], str]] = [
    (lambda client: client.call_tool(5), "name must be text, not int"),
    (lambda client: client.call_tool("t", [1]), "arguments must be a mapping, not list"),
    (lambda client: client.call_tool("t", '{"a": 1}'), "arguments must be a mapping, not str"),
    (lambda client: client.call_tool("t", meta=[1]), "meta must be a mapping, not list"),
    (lambda client: client.read_resource(None), "uri must be text, not NoneType"),
    (lambda client: client.subscribe_resource(b"file:///"), "uri must be text, not bytes"),
    (lambda client: client.unsubscribe_resource(5), "uri must be text, not int"),
    (lambda client: client.get_prompt(None), "name must be text, not NoneType"),
    (lambda client: client.get_prompt("p", {"a": 1}), "arguments['a'] must be text, not int"),
    (lambda client: client.get_prompt("p", "a"), "arguments must be a mapping, not str"),
    (
        lambda client: client.complete("p", "a", "b"),
        "ref must be a PromptReference or a ResourceTemplateReference, not str",
    ),
    (lambda client: client.complete(REF, 1, "b"), "argument must be text, not int"),
    (lambda client: client.complete(REF, "a", None), "value must be text, not NoneType"),
    (lambda client: client.complete(REF, "a", "b", context=["x"]), "context must be a mapping, not list"),
    (lambda client: client.complete(REF, "a", "b", context={"x": 1}), "context['x'] must be text, not int"),
    (lambda client: client.call_tool("t", on_progress=5), "on_progress has to be a function, async or plain, not int"),
]  # fmt: skip


async def test_arguments_of_the_wrong_type_are_refused_by_name_and_not_sent(
    era: Era, subtests: pytest.Subtests
) -> None:
    peer, refusals = answering(era, capabilities=EVERYTHING), list[str]()
    async with connected(peer) as client:
        for ask, says in WRONG:
            with subtests.test(says):
                with pytest.raises(TypeError) as refusal:
                    await ask(client)
                refusals.append(str(refusal.value))

    assert refusals == [says for _, says in WRONG]
    assert era.said_to(peer) == []


async def test_a_log_level_that_there_is_not_is_refused_and_not_sent(era: Era, subtests: pytest.Subtests) -> None:
    peer = answering(era, capabilities=EVERYTHING)
    levels: list[Any] = ["loud", "INFO", 5]
    async with connected(peer) as client:
        for level in levels:
            with (
                subtests.test(level=ascii(level)),
                pytest.raises(ValueError, match=rf"^level must be one of debug, info, .*, emergency, not {level!r}$"),
            ):
                await client.set_log_level(level)

    assert era.said_to(peer) == []


@pytest.mark.fault("J21")
async def test_a_malformed_tool_is_left_out_with_a_warning_and_hides_no_other() -> None:
    good = {"name": "good", "inputSchema": {"type": "object"}}
    bad = [{"name": 5, "inputSchema": {}}, {"name": "no schema"}, None, "tool", [], {**good, "inputSchema": "object"}]

    async with connected(answering(HANDSHAKE, {"tools": [good, *bad, {**good, "name": "also"}]})) as client:
        tools = await client.list_tools()
        warnings = client.warnings

    assert [tool.name for tool in tools] == ["good", "also"]
    assert [warning.partition(": ")[2].partition(":")[0] for warning in warnings] == [
        f"left out of tools/list, position {item}" for item in (1, "2, 'no schema'", 3, 4, 5, "6, 'good'")
    ]


async def test_after_a_hundred_warnings_only_each_power_of_two_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"name": f"t{number}"} for number in range(110)]  # without what a tool takes
    async with connected(answering(HANDSHAKE, {"tools": tools})) as client:
        assert await client.list_tools() == []

    logged = [record.getMessage() for record in caplog.records if record.name == "mcp_host.session.state"]
    assert len(client.warnings) == 100
    assert client.counters["further warnings"] == 10
    assert [text.rpartition(" (")[2] for text in logged[100:]] == [f"warning {n})" for n in (101, 102, 104, 108)]


WEATHER = {
    "name": "weather",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "properties": {"celsius": {"type": "number"}}, "required": ["celsius"]},
}


@pytest.mark.fault("T07")
async def test_a_listed_tools_output_is_held_to_its_schema(era: Era, subtests: pytest.Subtests) -> None:
    """Before, it is not checked, and nothing is listed behind the application's back."""
    cold: dict[str, Any] = {"content": [], "structuredContent": {"celsius": "cold"}}
    not_as_listed = "the result of 'weather' is not as listed: "
    results: list[tuple[dict[str, Any], str | None]] = [
        ({"content": [], "structuredContent": {"celsius": 4.5}}, None),
        ({"content": [], "isError": True}, None),
        (cold, "$.celsius: 'cold' is not of type 'number'"),
        ({"content": []}, "it has no structuredContent, though its outputSchema promises some"),
    ]
    peer = answering(era, cold, {"tools": [WEATHER], "ttlMs": 60_000}, *[result for result, _ in results])
    async with connected(peer) as client:
        assert (await client.call_tool("weather")).to_wire() == cold
        await client.list_tools()
        for result, problem in results:
            with subtests.test(ascii(result)):
                if problem is None:
                    assert (await client.call_tool("weather")).to_wire() == result
                else:
                    with pytest.raises(InvalidToolOutput) as failure:
                        await client.call_tool("weather")
                    assert str(failure.value) == f"{not_as_listed}{problem}"
                    assert failure.value.result.to_wire() == result

    assert [message["method"] for message in era.said_to(peer)] == ["tools/call", "tools/list", *["tools/call"] * 4]


@pytest.mark.fault("T02")
async def test_a_pattern_that_no_safe_engine_knows_costs_the_check_and_not_the_result() -> None:
    strong = {"type": "object", "properties": {"password": {"type": "string", "pattern": "^(?=.*[A-Z]).+$"}}}
    tool = {"name": "make", "inputSchema": {}, "outputSchema": strong}
    made = {"content": [], "structuredContent": {"password": "Abc"}}
    async with connected(answering(HANDSHAKE, {"tools": [tool]}, made, made)) as client:
        await client.list_tools()
        for _ in range(2):
            assert (await client.call_tool("make")).to_wire() == made
        (warning,) = client.warnings

    assert "results of the tool 'make' pass unchecked" in warning


async def test_a_schema_that_is_a_trap_is_an_error_that_carries_the_result() -> None:
    tool = {"name": "x", "inputSchema": {}, "outputSchema": {"$ref": "http://169.254.169.254/schema"}}
    result: dict[str, Any] = {"content": [], "structuredContent": {}}
    async with connected(answering(HANDSHAKE, {"tools": [tool]}, result)) as client:
        await client.list_tools()
        with pytest.raises(InvalidToolOutput, match="its schema cannot be checked") as failure:
            await client.call_tool("x")

    assert failure.value.result.to_wire() == result


async def test_errors_with_a_known_code_are_typed(era: Era, subtests: pytest.Subtests) -> None:
    def read(client: Client) -> Awaitable[object]:
        return client.read_resource("a:b")

    def call(client: Client) -> Awaitable[object]:
        return client.call_tool("x")

    url = {"mode": "url", "message": "sign in", "url": "https://a.example/x", "elicitationId": "e1"}
    errors: list[tuple[Ask, int, object, type[ServerError]]] = [
        (read, -32002, {"uri": "a:b"}, ResourceNotFound),
        (read, -32602, {"uri": "a:b"}, ResourceNotFound),
        (read, -32602, {"uri": "c:d"}, ServerError),
        (read, -32602, None, ServerError),
        (call, -32002, None, ServerError),
        (call, -32042, {"elicitations": []}, UrlElicitationRequired),
        (call, -32042, {"elicitations": [url]}, UrlElicitationRequired),
    ]
    urls: list[list[tuple[str, str | None]]] = []

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, EVERYTHING)
        for _, code, data, _ in errors:
            await peer.reply_error(await peer.receive(), code, "no", data)

    async with connected(ScriptedPeer(script)) as client:
        for ask, code, data, error in errors:
            with subtests.test(error.__name__, code=code, data=ascii(data)):
                with pytest.raises(ServerError) as failure:
                    await ask(client)
                assert (type(failure.value), failure.value.data) == (error, data)
                if isinstance(failure.value, UrlElicitationRequired):
                    urls.append([(each.url, each.elicitation_id) for each in failure.value.elicitations])

    assert urls == [[], [("https://a.example/x", "e1")]]


@pytest.mark.fault("J25")
async def test_a_server_that_does_not_know_ping_is_alive_and_another_refusal_is_an_error() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        await peer.reply_error(await peer.receive("ping"), -32601, "what?")
        await peer.reply_error(await peer.receive("ping"), -32600, "no")

    async with connected(ScriptedPeer(script), era="legacy") as client:
        await client.ping()
        with pytest.raises(ServerError) as failure:
            await client.ping()

    assert type(failure.value) is ServerError
    assert (failure.value.code, failure.value.data) == (-32600, None)


async def test_roots_may_change_and_the_server_is_notified() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        roots.append((await peer.request("roots/list"))["result"])
        await peer.receive("notifications/roots/list_changed")
        roots.append((await peer.request("roots/list"))["result"])

    roots: list[Any] = []
    async with connected(ScriptedPeer(script), era="legacy", roots=["/tmp"]) as client:
        await anyio.wait_all_tasks_blocked()
        await client.set_roots(["/home", "file:///srv/x"])
        await anyio.wait_all_tasks_blocked()

    assert roots == [
        {"roots": [{"uri": "file:///tmp"}]},
        {"roots": [{"uri": "file:///home"}, {"uri": "file:///srv/x"}]},
    ]


async def test_a_client_made_without_roots_cannot_set_them() -> None:
    with pytest.raises(CallerError, match="made without roots"):
        await Client(answering(HANDSHAKE)).set_roots(["/tmp"])
