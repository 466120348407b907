"""What a host lets through of a server's tools: which of them, under which names, and with which check of results."""

from __future__ import annotations

import json
import re
from typing import Any

import anyio
import pytest

from mcp_host import Client, Elicitation, FormRequest, StreamableHttp, ToolPolicy, safe_tool_name
from mcp_host.errors import CallerError, InvalidToolOutput, RequestTimeout
from mcp_host.testing import ScriptedPeer, Server
from mcp_host.types import CallToolResult, ElicitResult, Tool
from tests.client.sites import MIRRORED, Site
from tests.client.support import HANDSHAKE, Era, connected, names
from tests.extent import on_both

OUTPUT = {"type": "object", "properties": {"celsius": {"type": "number"}}, "required": ["celsius"]}
COLD: dict[str, Any] = {"content": [], "structuredContent": {"celsius": "cold"}}
MISMATCH = "the result of 'weather' is not as listed: $.celsius: 'cold' is not of type 'number'"


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def offering(era: Era, *tools: dict[str, Any], result: dict[str, Any] | None = None) -> ScriptedPeer:
    """A peer that lists *tools*, and answers each call with *result*, or else with the name that was called."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        while True:
            request = await peer.receive()
            if request["method"] == "tools/list":
                await peer.reply(request, {"tools": list(tools)})
            else:
                text = {"content": [{"type": "text", "text": request["params"]["name"]}]}
                await peer.reply(request, text if result is None else result)

    return ScriptedPeer(script)


def methods(era: Era, peer: ScriptedPeer) -> list[str]:
    return [message["method"] for message in era.said_to(peer)]


def called(era: Era, peer: ScriptedPeer) -> list[str]:
    return [message["params"]["name"] for message in era.said_to(peer) if message["method"] == "tools/call"]


# Output checks


async def weather(era: Era, policy: ToolPolicy, result: dict[str, Any]) -> tuple[CallToolResult, list[str]]:
    """The result of a listed tool with an outputSchema, and the client's warnings without the server's name."""
    peer = offering(era, tool("weather", outputSchema=OUTPUT), result=result)
    async with connected(peer, tools=policy) as client:
        await client.list_tools()
        return await client.call_tool("weather"), [line.partition(": ")[2] for line in client.warnings]


async def test_a_mismatch_may_be_a_warning_beside_the_result(era: Era) -> None:
    result, warnings = await weather(era, ToolPolicy(output="warn"), COLD)

    assert (result.to_wire(), warnings) == (COLD, [MISMATCH])


async def test_a_check_that_is_off_reads_no_schema(era: Era, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("a schema was compiled")

    monkeypatch.setattr("mcp_host.json_schema.schema.Schema", compiled)
    result, warnings = await weather(era, ToolPolicy(output="off"), COLD)

    assert (result.to_wire(), warnings) == (COLD, [])
    with pytest.raises(AssertionError, match="compiled"):  # which shows that the trap works
        await weather(era, ToolPolicy(), COLD)


async def test_a_function_checks_results_instead_and_what_it_raises_reaches_the_caller(era: Era) -> None:
    seen: list[tuple[str, dict[str, Any] | None, object]] = []

    async def check(tool: Tool, result: CallToolResult) -> None:
        seen.append((tool.name, tool.output_schema, result.structured_content))
        raise ZeroDivisionError("as cold as that")

    with pytest.raises(ZeroDivisionError, match="as cold as that"):
        await weather(era, ToolPolicy(output=check), COLD)

    assert seen == [("weather", OUTPUT, {"celsius": "cold"})]


async def test_a_plain_function_that_raises_nothing_lets_the_result_through() -> None:
    def check(tool: Tool, result: CallToolResult) -> Any:
        return "what it returns is not looked at"

    result, warnings = await weather(HANDSHAKE, ToolPolicy(output=check), COLD)

    assert (result.to_wire(), warnings) == (COLD, [])


async def test_a_function_checks_tools_without_an_output_schema_but_neither_failures_nor_unlisted_tools() -> None:
    seen: list[str] = []

    async def check(tool: Tool, result: CallToolResult) -> None:
        seen.append(tool.name)

    failed: dict[str, Any] = {"content": [], "isError": True}
    with anyio.fail_after(25):
        for result in (None, failed):
            peer = offering(HANDSHAKE, tool("plain"), result=result)
            async with Client(peer, tools=ToolPolicy(output=check)) as client:
                await client.call_tool("plain")
                await client.list_tools()
                await client.call_tool("plain")

    assert seen == ["plain"]


@on_both
@pytest.mark.fake_clock
async def test_a_function_that_does_not_return_ends_with_the_timeout_of_the_call() -> None:
    async def check(tool: Tool, result: CallToolResult) -> None:
        await anyio.sleep_forever()

    peer = offering(HANDSHAKE, tool("weather"), result=COLD)
    async with connected(peer, tools=ToolPolicy(output=check), within=60) as client:
        await client.list_tools()
        with pytest.raises(InvalidToolOutput, match="'weather' could not be checked within the call's timeout"):
            await client.call_tool("weather", timeout=5)


# Allowed tools


async def test_tools_that_are_not_allowed_are_neither_listed_nor_called(era: Era) -> None:
    """Names decide that without a listing, too."""
    peer = offering(era, tool("read"), tool("delete"))
    async with connected(peer, tools=ToolPolicy(allow=["read"])) as client:
        texts = []
        for _ in range(2):
            texts.append((await client.call_tool("read")).text)
            with pytest.raises(CallerError, match=r"^ToolPolicy lets no tool 'delete' of this server through$"):
                await client.call_tool("delete")
            listed = await names(client)

        assert client.warnings == []
    assert (listed, texts) == (["read"], ["read"] * 2)
    assert methods(era, peer) == ["tools/call", "tools/list"] * 2


async def test_a_function_decides_by_the_definition_which_the_first_call_lists(era: Era) -> None:
    peer = offering(era, tool("read", annotations={"readOnlyHint": True}), tool("delete"))

    def harmless(tool: Tool) -> bool:
        return tool.annotations is not None and tool.annotations.read_only_hint is True

    async with connected(peer, tools=ToolPolicy(allow=harmless)) as client:
        for name in ("delete", "unheard of"):
            with pytest.raises(CallerError, match=f"lets no tool '{name}'"):
                await client.call_tool(name)
        result = await client.call_tool("read")

    assert (result.text, methods(era, peer)) == ("read", ["tools/list", "tools/call"])


@on_both
async def test_calls_wait_for_one_listing_together(era: Era) -> None:
    peer = offering(era, tool("a"), tool("b"))
    async with connected(peer, tools=ToolPolicy(allow=lambda tool: True)) as client, anyio.create_task_group() as tasks:
        for name in ("a", "b", "a"):
            tasks.start_soon(client.call_tool, name)

    assert sorted(methods(era, peer)) == ["tools/call"] * 3 + ["tools/list"]


@on_both
@pytest.mark.fake_clock
async def test_a_call_that_waits_for_the_listing_of_another_ends_with_its_own_timeout() -> None:
    peer = ScriptedPeer(HANDSHAKE.open)  # which never lists
    async with (
        connected(peer, tools=ToolPolicy(allow=lambda tool: True), within=60) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.call_tool, "a")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RequestTimeout, match="took longer than 5 s"):
            await client.call_tool("a", timeout=5)
        tasks.cancel_scope.cancel()


async def test_a_call_whose_session_was_lost_is_repeated_where_names_decide() -> None:
    shop = Server("shop", versions=["2025-11-25"])

    @shop.tool
    async def read() -> str:
        return "a page"

    with anyio.fail_after(25):
        async with shop.http() as url, Client(StreamableHttp(url), tools=ToolPolicy(allow={"read"})) as client:
            await client.list_tools()
            await shop.expire_sessions()
            assert (await client.call_tool("read")).text == "a page"


# Names


async def test_a_renamed_tool_is_listed_and_called_by_its_new_name(era: Era) -> None:
    peer = offering(era, tool("search", description="Searches."), tool("read"), tool("a"), tool("b"))
    async with connected(peer, tools=ToolPolicy(rename={"search": "web_search", "a": "b", "b": "a"})) as client:
        listed = await client.list_tools()
        results = [(await client.call_tool(name, {"q": 1})).text for name in ("web_search", "read", "a", "b")]
        with pytest.raises(CallerError, match="lets no tool 'search'"):
            await client.call_tool("search")

    assert [each.name for each in listed] == ["web_search", "read", "b", "a"]
    assert [each.description for each in listed[:2]] == ["Searches.", None]
    assert results == ["search", "read", "b", "a"]
    assert era.said_to(peer)[1]["params"] == era.dressed({"name": "search", "arguments": {"q": 1}})


async def test_a_call_by_a_new_name_lists_first(era: Era) -> None:
    peer = offering(era, tool("search"))
    async with connected(peer, tools=ToolPolicy(rename=lambda name: f"github_{name}")) as client:
        result = await client.call_tool("github_search")

    assert (result.text, methods(era, peer)) == ("search", ["tools/list", "tools/call"])


async def test_tools_whose_new_names_clash_are_all_left_out_and_say_why(era: Era, subtests: pytest.Subtests) -> None:
    renames: list[Any] = [{"a": "b"}, lambda name: "b" if name == "a" else name]
    for rename in renames:
        with subtests.test(ascii(rename)):
            peer = offering(era, tool("a"), tool("b"), tool("c"))
            async with connected(peer, tools=ToolPolicy(rename=rename)) as client:
                for _ in range(2):
                    assert await names(client) == ["c"]
                with pytest.raises(
                    CallerError, match=r"'b' is left out: ToolPolicy.rename gives .* the same name 'b'$"
                ):
                    await client.call_tool("b")

                assert [line.partition(": ")[2] for line in client.warnings] == [
                    "the tool 'a' is left out: ToolPolicy.rename gives 'b' the same name 'b'",
                    "the tool 'b' is left out: ToolPolicy.rename gives 'a' the same name 'b'",
                ]
            assert called(era, peer) == []


async def test_a_tool_that_is_not_allowed_clashes_with_none() -> None:
    peer = offering(HANDSHAKE, tool("a"), tool("b"))
    async with connected(peer, tools=ToolPolicy(allow={"a"}, rename=lambda name: "it")) as client:
        assert await names(client) == ["it"]
        assert (await client.call_tool("it")).text == "a"


async def test_errors_about_a_renamed_tool_have_the_name_that_the_application_uses(era: Era) -> None:
    listed = [tool("weather", outputSchema=OUTPUT), tool("long", execution={"taskSupport": "required"})]
    peer = offering(era, *listed, result=COLD)
    async with connected(peer, tools=ToolPolicy(rename=lambda name: f"my_{name}")) as client:
        with pytest.raises(InvalidToolOutput, match="the result of 'my_weather' is not as listed"):
            await client.call_tool("my_weather")
        with pytest.raises(CallerError, match="the tool 'my_long' runs only as a task"):
            await client.call_tool("my_long")

    assert called(era, peer) == ["weather"]


async def test_a_renamed_tool_has_the_headers_of_its_annotations_and_the_name_of_the_server() -> None:
    site = Site(tools_list={"tools": [MIRRORED]}, tools_call={"content": []})
    async with site.connected(tools=ToolPolicy(rename=lambda name: f"db_{name}")) as client:
        await client.call_tool("db_query", {"region": "eu"})

    post = site.posts[-1]
    assert json.loads(post.content)["params"]["name"] == "query"
    assert {name: post.headers[name] for name in ("mcp-name", "mcp-param-region")} == {
        "mcp-name": "query",
        "mcp-param-region": "eu",
    }


async def test_a_handler_of_a_renamed_tool_hears_the_name_that_the_server_knows() -> None:
    outer: list[str | None] = []

    async def decline(request: FormRequest) -> ElicitResult:
        assert request.outer is not None
        outer.append(request.outer.name)
        return request.decline()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.reply(await peer.receive("tools/list"), {"tools": [tool("ask")]})
        call = await peer.receive("tools/call")
        await peer.request(
            "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        )
        await peer.reply(call, {"content": []})

    policy = ToolPolicy(rename=lambda name: f"my_{name}")
    async with connected(ScriptedPeer(script), tools=policy, elicitation=Elicitation(form=decline)) as client:
        await client.call_tool("my_ask")

    assert outer == ["ask"]


def test_a_safe_name_has_only_what_every_provider_takes() -> None:
    expected = {
        "read_file-2": "read_file-2",
        "x" * 64: "x" * 64,
        "x" * 65: "x" * 55 + "_9537c5fd",
        "files.read": "files_read_601e4eb6",
        "files/read": "files_read_2b733164",
        "lire\u00e9\n": "lire___50bee1da",
        "": "_e3b0c442",
        "\ud800": "__91a681b9",
    }
    safe = {name: safe_tool_name(name) for name in expected}

    assert safe == expected
    assert [name for name in safe.values() if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)] == []


# Arguments that cannot be right


async def allowed(tool: Tool) -> bool:
    return False


def test_arguments_that_cannot_be_right_are_refused_at_once(subtests: pytest.Subtests) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"allow": "search"}, TypeError, 'allow is a set of names, like {"search"}, or a function'),
        ({"allow": [1]}, TypeError, "allow is a set of names"),
        ({"allow": 7}, TypeError, "allow is a set of names"),
        ({"allow": allowed}, TypeError, "allow must be a plain function"),
        ({"allow": lambda: True}, TypeError, r"write `def allow\(tool: Tool\) -> bool`"),
        ({"rename": "a"}, TypeError, "rename is a mapping of names"),
        ({"rename": {"a": 1}}, TypeError, "rename is a mapping of names"),
        ({"rename": {"a": "c", "b": "c"}}, ValueError, "rename gives two tools the name 'c'"),
        ({"rename": allowed}, TypeError, "rename must be a plain function"),
        ({"output": "loud"}, ValueError, 'output is "error", "warn", "off" or a function, not \'loud\''),
        ({"output": None}, ValueError, "not None"),
        ({"pins": "pins.json"}, TypeError, r"^pins is ToolPins\(\), or ToolPins\(file=...\)$"),
    ]
    for arguments, error, says in wrong:
        with subtests.test(ascii(arguments)), pytest.raises(error, match=says):
            ToolPolicy(**arguments)


def test_a_client_takes_a_policy_and_nothing_else(subtests: pytest.Subtests) -> None:
    mistakes: list[Any] = [{"allow": ["a"]}, ["a"], ToolPolicy]
    for wrong in mistakes:
        with (
            subtests.test(ascii(wrong)),
            pytest.raises(TypeError, match=r"^tools is ToolPolicy\(allow=..., rename=..., output=..., pins=...\)"),
        ):
            Client(offering(HANDSHAKE), tools=wrong)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (ToolPolicy(allow=lambda tool: allowed(tool)), "allow has to return True or False, not coroutine"),  # type: ignore[arg-type,return-value]  # as untyped code may
        (ToolPolicy(rename=lambda name: None), "rename has to return text, not NoneType"),  # type: ignore[arg-type,return-value]  # as above
    ],
    ids=["allow", "rename"],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # it is the mistake that is tested
async def test_a_function_that_decides_nothing_lets_nothing_through(policy: ToolPolicy, says: str) -> None:
    peer = offering(HANDSHAKE, tool("a"))
    async with connected(peer, tools=policy) as client:
        for _ in range(2):
            with pytest.raises(TypeError, match=f"^{says}$"):
                await client.call_tool("a")

    assert called(HANDSHAKE, peer) == []
