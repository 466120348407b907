"""`Context`: what a tool can do with its client."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from anyio import move_on_after
from pydantic import BaseModel, Field

from mcp_host.testing import ClientError, Context, RequestError, Server
from mcp_host.types import ModelHint, ModelPreferences, SamplingMessage, TextContent, Tool
from tests.extent import on_both
from tests.testing.raw import Raw, Wire, answer, calls, failed, legacy, text, use

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

server = Server("s")


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


ADD = {
    "name": "add",
    "description": "Add.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
}


class Trip(BaseModel):
    """Where to?"""

    city: str = Field(min_length=2)
    travel: Literal["train", "ship"] = "train"


class Nested(BaseModel):
    trip: Trip


@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.sample("Why?")).text


@server.tool
async def ask_in_full(ctx: Context) -> str:
    answer = await ctx.sample(
        messages=[SamplingMessage(role="user", content=TextContent(text="Why?"))],
        max_tokens=5,
        system_prompt="Be brief.",
        tools=[add, Tool(name="raw", input_schema={"type": "object"})],
        tool_choice="required",
        model_preferences=ModelPreferences(hints=[ModelHint(name="m")], cost_priority=1),
        temperature=0.5,
        stop_sequences=["."],
        include_context="thisServer",
        metadata={"k": 1},
    )
    return str(answer.stop_reason)


@server.tool
async def loop(ctx: Context) -> str:
    return (await ctx.sample_loop("6 + 7?", tools=[add])).text


@server.tool
async def trip(ctx: Context) -> dict[str, Any]:
    answer = await ctx.elicit("Where to?", Trip)
    return {"action": answer.action, "content": answer.content}


@server.tool
async def nested(ctx: Context) -> str:
    try:
        await ctx.elicit("Where to?", Nested)
    except ValueError as exc:
        return str(exc)
    return "not refused"


@server.tool
async def form(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})).action


@server.tool
async def login(ctx: Context) -> str:
    answer = await ctx.elicit_url("Log in", "https://example.com/login", "e1")
    await ctx.elicit_complete("e1")
    return answer.action


@server.tool
async def roots(ctx: Context) -> list[str]:
    return [root.uri for root in await ctx.list_roots()]


@server.tool
async def report(ctx: Context) -> None:
    await ctx.report_progress(1)
    await ctx.report_progress(2, 2.5, "nearly")


@server.tool
async def chatter(ctx: Context) -> None:
    await ctx.log("debug", "small")
    await ctx.log("error", {"big": True}, logger="l")


@server.tool
async def impatient(ctx: Context) -> str:
    with move_on_after(0):
        await ctx.sample("Why?")
    return "enough"


@server.tool
async def anything(ctx: Context) -> dict[str, Any]:
    await ctx.notify("notifications/made_up", {"x": 1})
    try:
        return await ctx.request("made/up", {"y": 2})
    except ClientError as exc:
        return {"method": exc.method, "code": exc.code, "message": exc.message, "data": exc.data}


@server.tool
def who(ctx: Context) -> dict[str, Any]:
    return {"meta": dict(ctx.meta), "declared": ctx.client_capabilities.to_wire()}


async def exchange(tool: str, *answers: object, to: Server = server, **arguments: object) -> tuple[list[Wire], Wire]:
    """Call a tool and give it these answers. Returns its requests, and the result of the call."""
    asked: list[Wire] = []
    async with legacy(to) as raw:
        call = await raw.start(tool, **arguments)
        for given in answers:
            asked.append(await raw.receive())
            await raw.reply(asked[-1], given)

        return asked, await result_of(raw, call)


async def result_of(raw: Raw, id: int) -> Wire:
    message = await raw.receive()
    assert message["id"] == id, message
    result: Wire = message["result"]
    return result


async def test_sampling_asks_the_model_and_returns_its_answer() -> None:
    [asked], result = await exchange("ask", answer("Because."))

    messages = [{"role": "user", "content": {"type": "text", "text": "Why?"}}]
    assert asked == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "sampling/createMessage",
        "params": {"messages": messages, "maxTokens": 1024},
    }
    assert result == text("Because.")


async def test_sampling_sends_all_its_arguments() -> None:
    [asked], result = await exchange("ask_in_full", calls(use("u", "add", a=1, b=2)))

    assert asked["params"] == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}],
        "maxTokens": 5,
        "systemPrompt": "Be brief.",
        "tools": [ADD, {"name": "raw", "inputSchema": {"type": "object"}}],
        "toolChoice": {"mode": "required"},
        "modelPreferences": {"hints": [{"name": "m"}], "costPriority": 1},
        "temperature": 0.5,
        "stopSequences": ["."],
        "includeContext": "thisServer",
        "metadata": {"k": 1},
    }
    assert result == text("toolUse")


async def test_a_form_is_made_from_a_model_and_the_answer_is_validated_against_it() -> None:
    filled_in = {"action": "accept", "content": {"city": "Bergen", "travel": "ship"}}
    [asked], good = await exchange("trip", filled_in)
    _, bad = await exchange("trip", {"action": "accept", "content": {"city": "B"}})
    _, declined = await exchange("trip", {"action": "decline"})

    assert asked["method"] == "elicitation/create"
    assert asked["params"] == {
        "mode": "form",
        "message": "Where to?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 2},
                "travel": {"type": "string", "enum": ["train", "ship"], "default": "train"},
            },
            "required": ["city"],
        },
    }
    assert good["structuredContent"] == filled_in
    assert bad == failed("the user's input does not fit Trip")
    assert declined["structuredContent"] == {"action": "decline", "content": None}


async def test_a_form_cannot_hold_another_form() -> None:
    _, result = await exchange("nested")

    assert result["content"][0]["text"].startswith("Nested is no form: ")


async def test_a_url_is_elicited_and_completed() -> None:
    async with legacy(server) as raw:
        call = await raw.start("login")
        asked = await raw.receive()
        await raw.reply(asked, {"action": "accept"})
        done = await raw.receive()
        result = await result_of(raw, call)

    url = "https://example.com/login"
    assert asked["params"] == {"mode": "url", "message": "Log in", "url": url, "elicitationId": "e1"}
    assert done == {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e1"}}
    assert result == text("accept")


async def test_roots_are_listed() -> None:
    _, result = await exchange("roots", {"roots": [{"uri": "file:///a"}]})

    assert result["structuredContent"] == {"result": ["file:///a"]}


async def test_progress_is_reported_under_the_clients_token_before_the_result() -> None:
    async with legacy(server) as raw:
        await raw.request("tools/call", {"name": "report", "_meta": {"progressToken": "t"}})
        first, second, answered = [await raw.receive() for _ in range(3)]

        assert first["params"] == {"progressToken": "t", "progress": 1}
        assert second["params"] == {"progressToken": "t", "progress": 2, "total": 2.5, "message": "nearly"}
        assert answered["result"] == {"content": []}
        assert await raw.call("report") == {"content": []}, "without a token there is no progress"


async def test_the_log_respects_the_level_that_the_client_has_set() -> None:
    small = {"level": "debug", "data": "small"}
    big = {"level": "error", "data": {"big": True}, "logger": "l"}
    async with legacy(server) as raw:
        await raw.start("chatter")
        assert [(await raw.receive())["params"] for _ in range(2)] == [small, big]
        await raw.receive()

        assert await raw.result("logging/setLevel", {"level": "error"}) == {}
        await raw.start("chatter")
        assert (await raw.receive())["params"] == big
        await raw.receive()

        assert (await raw.error("logging/setLevel", {"level": "loud"}))["code"] == -32602


async def test_a_request_is_cancelled_with_its_caller_and_a_late_answer_is_ignored() -> None:
    async with legacy(server) as raw:
        call = await raw.start("impatient")
        asked, cancelled = await raw.receive(), await raw.receive()

        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"] == {"requestId": asked["id"]}
        assert await result_of(raw, call) == text("enough")
        await raw.reply(asked, answer("Late."))
        assert await raw.result("ping") == {}


async def test_an_error_of_the_client_is_an_exception_with_its_code_message_and_data() -> None:
    async with legacy(server, lenient=True) as raw:
        call = await raw.start("anything")
        told, asked = await raw.receive(), await raw.receive()
        await raw.reply_error(asked, -1, "no", {"why": "because"})

        assert told == {"jsonrpc": "2.0", "method": "notifications/made_up", "params": {"x": 1}}
        assert (asked["method"], asked["params"]) == ("made/up", {"y": 2})
        assert (await result_of(raw, call))["structuredContent"] == {
            "method": "made/up",
            "code": -1,
            "message": "no",
            "data": {"why": "because"},
        }


async def test_a_tool_that_does_not_catch_a_refusal_fails_with_its_text() -> None:
    async with legacy(server) as raw:
        call = await raw.start("ask")
        await raw.reply_error(await raw.receive(), -1, "User rejected sampling request", None)
        result = await result_of(raw, call)

    assert result == failed("the client refused sampling/createMessage: User rejected sampling request (-1)")


async def test_a_malformed_answer_of_the_client_fails_the_tool_that_waits_for_it() -> None:
    _, incomplete = await exchange("ask", {"role": "assistant"})
    _, no_object = await exchange("ask", "words")

    assert incomplete == failed("malformed CreateMessageResult: content: Field required")
    assert no_object == failed("the client refused sampling/createMessage: result is not an object (-32600)")


UNDECLARED: list[tuple[str, dict[str, Any], str]] = [
    ("ask", {}, "sampling"),
    ("ask_in_full", {"sampling": {"context": {}}}, "sampling.tools"),
    ("loop", {"sampling": {}}, "sampling.tools"),
    ("ask_in_full", {"sampling": {"tools": {}}}, "sampling.context"),
    ("form", {}, "elicitation.form"),
    ("form", {"elicitation": {"url": {}}}, "elicitation.form"),
    ("login", {"elicitation": {}}, "elicitation.url"),
    ("roots", {"sampling": {}}, "roots"),
]


async def test_a_client_is_not_asked_for_undeclared_capabilities(subtests: pytest.Subtests) -> None:
    for tool, capabilities, missing in UNDECLARED:
        with subtests.test(f"{tool} {capabilities}"):
            async with legacy(server, capabilities=capabilities) as raw:
                assert await raw.call(tool) == failed(f"the client did not declare {missing}")


async def test_an_empty_elicitation_capability_means_forms() -> None:
    async with legacy(server, version="2025-06-18", capabilities={"elicitation": {}}) as raw:
        call = await raw.start("form")
        asked = await raw.receive()
        await raw.reply(asked, {"action": "cancel"})

        assert "mode" not in asked["params"]
        assert await result_of(raw, call) == text("cancel")


async def test_a_conversation_that_does_not_fit_an_older_revision_is_not_sent() -> None:
    old = Server("old")

    @old.tool
    async def two_blocks(ctx: Context) -> str:
        block = TextContent(text="a")
        return (await ctx.sample(messages=[SamplingMessage(role="user", content=[block, block])])).text

    async with legacy(old, version="2025-06-18") as raw:
        assert await raw.call("two_blocks") == failed(
            "a list of blocks at messages[0].content came with revision 2025-11-25; this conversation is in 2025-06-18"
        )


async def test_a_tool_sees_the_requests_meta_and_what_the_client_declared() -> None:
    async with legacy(server, capabilities={"roots": {"listChanged": True}}) as raw:
        result = await raw.result("tools/call", {"name": "who", "_meta": {"com.example/k": 1}})

    assert result["structuredContent"] == {"meta": {"com.example/k": 1}, "declared": {"roots": {"listChanged": True}}}


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_request_error_in_a_tool_of_the_loop_answers_the_request(at_once: int) -> None:
    strict = Server("strict")

    async def refuse() -> str:
        raise RequestError(-32050, "not like this", {"k": 1})

    @strict.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample_loop("Go!", tools=[refuse])).text

    async with legacy(strict) as raw:
        call = await raw.start("ask")
        uses = [use(f"u{n}", "refuse") for n in range(at_once)]
        await raw.reply(await raw.receive(), calls(*uses))
        refusal = await raw.receive()

    assert refusal == {
        "jsonrpc": "2.0",
        "id": call,
        "error": {"code": -32050, "message": "not like this", "data": {"k": 1}},
    }
