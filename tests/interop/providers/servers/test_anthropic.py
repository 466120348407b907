"""The local Anthropic server through the official SDK: what it says, and each rule that it holds requests against."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import pytest

from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()
TOOL = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
HELLO: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 2000,
    "messages": [{"role": "user", "content": "hi"}],
}
THINK: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}


def client(server: AnthropicServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key=server.key, max_retries=0)


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(kind: str, data: str = PNG) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def schema(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"name": "add", "input_schema": fields}]}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"seed": 1}, "seed: Extra inputs are not permitted"),
    "an unknown field of a block": (
        {"messages": [user(text("hi") | {"_meta": {}})]},
        "messages.0.content.0.text._meta: Extra inputs are not permitted",
    ),
    "a role that is none": ({"messages": [{"role": "tool", "content": "3"}]}, "messages.0.role: "),
    "no messages": ({"messages": []}, "messages: at least one message is required"),
    "a message without content": ({"messages": [user()]}, "messages.0: all messages must have non-empty content"),
    "empty text": ({"messages": [user(text(""))]}, "messages: text content blocks must be non-empty"),
    "blank text": ({"messages": [user(text(" \n"))]}, "messages: text content blocks must contain non-whitespace text"),
    "sound": ({"messages": [user({"type": "audio"})]}, "messages.0.content.0: Input tag 'audio' does not match"),
    "a picture of the assistant": (
        {"messages": [user(text("hi")), assistant(image("image/png")), user(text("hi"))]},
        "messages.1.content.0: Input tag 'image' does not match",
    ),
    "a picture of a type": (
        {"messages": [user(image("image/bmp"))]},
        "messages.0.content.0.image.source.base64.media_type: Input should be image/jpeg or",
    ),
    "a picture of another type": (
        {"messages": [user(image("image/jpeg"))]},
        "messages.0.content.0.image.source.base64: the data does not look like image/jpeg",
    ),
    "no base64": (
        {"messages": [user(image("image/png", "#"))]},
        "messages.0.content.0.image.source.base64.data: Input should be valid base64",
    ),
    "a document that is no PDF": (
        {"messages": [user({"type": "document", "source": {"type": "base64", "media_type": "a/b", "data": ""}})]},
        "messages.0.content.0.document.source.base64.media_type: Input should be application/pdf",
    ),
    "a name of a tool": ({"tools": [TOOL | {"name": "files/read.text"}]}, "tools.0.custom.name: String should match"),
    "a name that is too long": ({"tools": [TOOL | {"name": "a" * 129}]}, "tools.0.custom.name: String should match"),
    "a name twice": ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    "a tool without a schema": (
        {"tools": [{"name": "a"}]},
        "tools.0.custom.input_schema: Input should be a valid dict",
    ),
    "a field of MCP": ({"tools": [TOOL | {"title": "Add"}]}, "tools.0.custom.title: Extra inputs are not permitted"),
    "a schema without a type": (schema(properties={}), "tools.0.custom.input_schema.type: Field required"),
    "anyOf at the top": (
        schema(type="object", anyOf=[{}]),
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
    ),
    "a schema that is none": (
        schema(type="object", properties={"a": {"type": "float"}}),
        "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12.",
    ),
    "a property's name": (
        schema(type="object", properties={"filter[id]": {}}),
        "tools.0.custom.input_schema.properties: String should match pattern",
    ),
    "a choice without tools": ({"tool_choice": {"type": "any"}}, "tool_choice: tool_choice may only be specified"),
    "a choice of another tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "sub"}},
        "tool_choice.tool: Tool 'sub' not found in provided tools",
    ),
    "none, and not parallel": (
        {"tools": [TOOL], "tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
        "tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted",
    ),
    "thinking with a forced tool": (
        {"tools": [TOOL], "tool_choice": {"type": "any"}, **THINK},
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    "a small budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 1023}},
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    "a budget of all": (
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    "a temperature": ({"temperature": 1}, "temperature: Extra inputs are not permitted"),
    "a blank stop sequence": (
        {"stop_sequences": ["\n"]},
        "stop_sequences: each stop sequence must contain non-whitespac",
    ),
    "metadata": ({"metadata": {"user": "1"}}, "metadata.user: Extra inputs are not permitted"),
    "a prefill": (
        {"messages": [user(text("hi")), assistant(text("Once"))]},
        "This model does not support assistant message prefill.",
    ),
    "an id": (
        {"messages": [user(text("hi")), assistant(CALL | {"id": "call:0"})]},
        "messages.1.content.0.tool_use.id: String should match pattern",
    ),
    "a call without a result": (
        {"messages": [user(text("hi")), assistant(CALL), user(text("well"))]},
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
    ),
    "a result without a call": (
        {"messages": [user(text("hi")), assistant(text("hi")), user(RESULT)]},
        "messages.2: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
    ),
    "two results of a call": (
        {"messages": [user(text("hi")), assistant(CALL), user(RESULT, RESULT)]},
        "messages.2: each tool_use must have a single result.",
    ),
    "a result after text": (
        {"messages": [user(text("hi")), assistant(CALL), user(text("well"), RESULT)]},
        "messages.2: `tool_result` blocks must come first",
    ),
    "an id twice": (
        {"messages": [user(text("hi")), assistant(CALL), user(RESULT), assistant(CALL), user(RESULT)]},
        "messages.3: `tool_use` ids must be unique",
    ),
    "a picture in a failed result": (
        {
            "messages": [
                user(text("hi")),
                assistant(CALL),
                user(RESULT | {"is_error": True, "content": [image("image/png")]}),
            ]
        },
        'messages.2.content.0.tool_result: all content must be type "text" if `is_error` is true',
    ),
    "a link in a result": (
        {"messages": [user(text("hi")), assistant(CALL), user(RESULT | {"content": [{"type": "resource_link"}]})]},
        "messages.2.content.0.tool_result.content.0: Input tag 'resource_link' does not match",
    ),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_breaks_a_rule_is_refused(serve: Serve, change: dict[str, Any], reason: str) -> None:
    server = serve(AnthropicServer, Said(text="never"))
    async with client(server) as api:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await api.messages.create(**HELLO, extra_body=change)

    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.body["error"]["message"].startswith(reason)
    assert server.refusals == [caught.value.body["error"]["message"]]
    server.refusals.clear()


REFUSED_BEFORE: dict[str, tuple[dict[str, Any], str]] = {
    "a temperature": ({"temperature": 0.5, "model": "claude-opus-5"}, "`temperature` is deprecated for this model."),
    "a high temperature": ({"temperature": 1.5}, "temperature: range: 0..1"),
    "a temperature with thinking": (
        {"temperature": 0.5, **THINK},
        "`temperature` may only be set to 1 when thinking is enabled.",
    ),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED_BEFORE.values(), ids=REFUSED_BEFORE.keys())
async def test_the_version_before_has_temperatures_of_some_models(
    serve: Serve, change: dict[str, Any], reason: str
) -> None:
    server = serve(AnthropicServer, Said(text="hi"))
    before = {**HELLO, "model": "claude-haiku-4-5", "extra_headers": {"anthropic-version": "2023-06-01"}}
    async with client(server) as api:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await api.messages.create(**before, extra_body=change)
        await api.messages.create(**before, extra_body={"temperature": 0.5})

    assert len(server.refusals) == 1
    assert reason in str(caught.value)
    server.refusals.clear()


SAID = {
    "text": Said(text="2 + 2 = 4"),
    "nothing": Said(),
    "calls": Said(text="Let me add.", calls=[Called("add", {"a": 1}), Called("add", {}), Called("add", {"b": "ü"})]),
    "interleaved": Said(calls=[Called("add", {"a": 1}), Called("add", {"b": "ü" * 40})], interleaved=True),
    "thinking": Said(thinking="Hm. Two and two…", text="4", calls=[Called("add", {"a": 1})]),
    "hidden": Said(thinking="Hm.", redacted=True, calls=[Called("add", {"a": 1})]),
    "cut off": Said(text="2 +", stop="max_tokens"),
    "refused": Said(stop="refusal"),
    "stopped": Said(text="2 +", stop="stop_sequence"),
    "cached": Said(text="4", cached=5),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
async def test_a_stream_says_what_an_answer_says(serve: Serve, said: Said) -> None:
    """The SDK folds the stream to the message that it gets without one, apart from the ids."""
    server = serve(AnthropicServer, said, said)
    given: dict[str, Any] = {**HELLO, **THINK, "stop_sequences": ["END"]}
    async with client(server) as api:
        whole = (await api.messages.create(**given)).model_dump(exclude_none=True)
        async with api.messages.stream(**given) as stream:
            folded = (await stream.get_final_message()).model_dump(exclude_none=True)

    for message in (whole, folded):
        del message["id"]
        for block in message["content"]:
            block.pop("id", None)
        message["usage"].pop("cache_creation")
        message["usage"].pop("service_tier")
    assert folded == whole
    assert whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"] == 11
    assert whole["usage"]["output_tokens"] == 7


async def say_and_repeat(server: AnthropicServer, *changed: dict[str, Any], **options: Any) -> None:
    """Let the model call a tool, and send the result; the assistant's turn comes back as *changed*."""
    async with client(server) as api:
        reply = await api.messages.create(**HELLO, **options)
        content = [*changed, reply.content[-1]]
        result = RESULT | {"tool_use_id": reply.content[-1].to_dict()["id"]}
        messages = [*HELLO["messages"], {"role": "assistant", "content": content}, user(result)]
        await api.messages.create(**HELLO | {"messages": messages}, **options)


THOUGHT = Said(thinking="Hm.", calls=[Called("add", {"a": 1})])


async def test_thinking_that_comes_back_as_it_was_is_taken(serve: Serve) -> None:
    server = serve(AnthropicServer, THOUGHT, Said(text="4"))
    block = {"type": "thinking", "thinking": "Hm.", "signature": server.sign("thinking", "Hm.")}
    await say_and_repeat(server, block, **THINK)


@pytest.mark.parametrize("options", [THINK, {"thinking": {"type": "adaptive"}}], ids=["enabled", "adaptive"])
async def test_a_call_that_comes_back_without_its_thinking_is_refused(serve: Serve, options: dict[str, Any]) -> None:
    server = serve(AnthropicServer, THOUGHT)
    with pytest.raises(anthropic.BadRequestError, match="Expected `thinking` or `redacted_thinking`"):
        await say_and_repeat(server, text("Hm."), **options)
    server.refusals.clear()


async def test_thinking_with_another_text_is_refused(serve: Serve) -> None:
    server = serve(AnthropicServer, THOUGHT)
    block = {"type": "thinking", "thinking": "Hm!", "signature": server.sign("thinking", "Hm.")}
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
        await say_and_repeat(server, block, **THINK)
    server.refusals.clear()


async def test_thinking_of_another_answer_is_refused(serve: Serve) -> None:
    server = serve(AnthropicServer, THOUGHT)
    block = {"type": "thinking", "thinking": "Aha.", "signature": server.sign("thinking", "Aha.")}
    with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
        await say_and_repeat(server, block, **THINK)
    server.refusals.clear()


async def test_thinking_after_text_is_refused(serve: Serve) -> None:
    server = serve(AnthropicServer, THOUGHT)
    block = {"type": "thinking", "thinking": "Hm.", "signature": server.sign("thinking", "Hm.")}
    with pytest.raises(anthropic.BadRequestError, match="the first block must be"):
        await say_and_repeat(server, text("Well"), block, **THINK)
    server.refusals.clear()


async def test_thinking_is_not_needed_where_thinking_is_off(serve: Serve) -> None:
    server = serve(AnthropicServer, THOUGHT, Said(text="4"))
    await say_and_repeat(server)


async def test_failures_are_those_of_the_api(serve: Serve) -> None:
    server = serve(AnthropicServer, Failed(status=429, retry_after="7"), Failed(status=529))
    async with client(server) as api:
        with pytest.raises(anthropic.RateLimitError) as limited:
            await api.messages.create(**HELLO)
        with pytest.raises(anthropic.InternalServerError, match="overloaded_error"):
            await api.messages.create(**HELLO)
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="another", max_retries=0) as api:
        with pytest.raises(anthropic.AuthenticationError, match="invalid API key"):
            await api.messages.create(**HELLO)

    assert limited.value.response.headers["retry-after"] == "7"
    assert server.refusals == ["invalid API key"]
    server.refusals.clear()
