"""Anthropic Messages, both ways: what is written for a request, and what a reply and a stream say."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers import ModelAnswer
from mcp_host.providers.anthropic import AnthropicModel, read_event, read_reply, write_request
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.replies import Call, Reply, answer_of
from mcp_host.providers.exchange.requests import Prompt
from mcp_host.providers.exchange.streams import Delta
from mcp_host.types import TextContent
from tests.extent import THOROUGH
from tests.faults.measure import grows_linearly
from tests.providers import prompts
from tests.providers.prompts import PNG, USER, WAV, deep_schema, pieces, refusal, resource, result, said, text, used

ADD = {"name": "add", "inputSchema": {"type": "object"}}


prompt = partial(prompts.prompt, rule=AnthropicModel.name_rule, model="claude")


PNG_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def document(kind: str, media_type: str, data: str) -> dict[str, Any]:
    return {"type": "document", "source": {"type": kind, "media_type": media_type, "data": data}, "title": "file:///a"}


def test_a_plain_request_has_the_model_the_tokens_and_the_text() -> None:
    assert write_request(prompt()) == {
        "model": "claude",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [text("Hi")]}],
    }


def test_what_a_tool_result_has_is_written(subtests: pytest.Subtests) -> None:
    link = {"type": "resource_link", "uri": "file:///b", "name": "b", "description": "B"}
    json_file, csv_file = document("text", "text/plain", "{}"), document("text", "text/plain", "hi")
    pdf = resource(blob="JVBERi0=", mimeType="application/pdf")
    untitled = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    structured: dict[str, Any] = {"structuredContent": {"a": 1}}
    table: list[tuple[str, dict[str, Any], object]] = [
        ("text", result(text("3")), [text("3")]),
        ("empty", result(text(""), text(" \n")), None),
        ("image", result(PNG), [PNG_BLOCK]),
        (
            "text file",
            result(resource(text="words", mimeType="text/x-python")),
            [document("text", "text/plain", "words")],
        ),
        ("empty file", result(resource(text="")), [text("[file:///a is empty]")]),
        ("empty file without a URI", result(resource(uri="", text="")), [text("[a resource is empty]")]),
        ("pdf", result(pdf), [document("base64", "application/pdf", "JVBERi0=")]),
        ("pdf as an image", result({**PNG, "mimeType": "application/pdf"}), [untitled]),
        ("text blob", result(resource(blob="aGk=", mimeType="text/csv; charset=utf-8")), [csv_file]),
        ("JSON blob", result(resource(blob="e30=", mimeType="application/json")), [json_file]),
        ("image blob", result(resource(blob="aGk=", mimeType="image/png")), [PNG_BLOCK]),
        ("link", result(link), [text('{"name":"b","uri":"file:///b","description":"B","type":"resource_link"}')]),
        ("structured content that the text says", result(text('{"a": 1}'), **structured), [text('{"a": 1}')]),
        ("structured content", result(text("see there"), **structured), [text("see there"), text('{"a":1}')]),
    ]
    for case, message, written in table:
        with subtests.test(case):
            body = write_request(prompt(USER, used(a=1), message, tools=[ADD]))

            block = {"type": "tool_result", "tool_use_id": "c1"}
            assert body["messages"][1:] == [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
                {"role": "user", "content": [block if written is None else {**block, "content": written}]},
            ]


def test_the_result_of_a_failed_tool_has_text_only_and_its_image_comes_after_all_results_and_says_whose_it_is() -> None:
    calls = {"role": "assistant", "content": used("c1")["content"] + used("c2")["content"]}
    first, second = result(text("no"), PNG, isError=True), result(PNG, id="c2", isError=True)
    results = {"role": "user", "content": first["content"] + second["content"]}

    assert write_request(prompt(USER, calls, results))["messages"][2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "is_error": True,
            "content": [text("no"), text("[1 file: after the results]")],
        },
        {
            "type": "tool_result",
            "tool_use_id": "c2",
            "is_error": True,
            "content": [text("The tool failed, without a message."), text("[1 file: after the results]")],
        },
        text("From the result of the tool call c1:"),
        PNG_BLOCK,
        text("From the result of the tool call c2:"),
        PNG_BLOCK,
    ]


@pytest.mark.parametrize(
    ("uri", "said"), [("file:///log.txt", "Contents of file:///log.txt:\nNo such host."), ("", "No such host.")]
)
def test_a_text_file_in_the_result_of_a_failed_tool_is_its_text(uri: str, said: str) -> None:
    """The API takes no document there."""
    file = {"type": "resource", "resource": {"uri": uri, "text": "No such host."}}
    failed = write_request(prompt(USER, used(), result(file, isError=True)))["messages"][2]["content"]

    assert failed == [{"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": [text(said)]}]


def test_the_tool_choice_is_written(subtests: pytest.Subtests) -> None:
    one, alone = {"type": "tool", "name": "add"}, {"disable_parallel_tool_use": True}
    table: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("absent", {}, {}),
        ("auto", {"toolChoice": {"mode": "auto"}}, {"tool_choice": {"type": "auto"}}),
        ("required", {"toolChoice": {"mode": "required"}}, {"tool_choice": {"type": "any"}}),
        ("none", {"toolChoice": {"mode": "none"}}, {"tool_choice": {"type": "none"}}),
        ("one", {"toolChoice": one}, {"tool_choice": one}),
        ("not parallel", {"toolChoice": {"mode": "auto", **alone}}, {"tool_choice": {"type": "auto", **alone}}),
    ]
    for case, params, written in table:
        with subtests.test(case):
            body = write_request(prompt(tools=[ADD], **params))
            tools = [{"name": "add", "input_schema": {"type": "object"}}]
            assert {name: body[name] for name in ("tools", "tool_choice") if name in body} == {
                "tools": tools,
                **written,
            }


def test_calls_of_a_conversation_without_tools_have_tools_that_cannot_be_called() -> None:
    body = write_request(prompt(USER, used(name="a/b"), result(text("1"))))

    assert body["tools"] == [{"name": "a_b", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_a_schema_has_no_alternatives_at_its_top() -> None:
    schema = {"properties": {"a": {"anyOf": [{}]}}, "anyOf": [{"required": ["a"]}]}

    body = write_request(prompt(tools=[{"name": "t", "description": "d", "inputSchema": schema}]))

    said = 'The arguments also have to conform to this JSON Schema: {"anyOf": [{"required": ["a"]}]}'
    written = {"type": "object", "properties": {"a": {"anyOf": [{}]}}, "required": ["a"], "description": said}
    assert body["tools"] == [{"name": "t", "description": "d", "input_schema": written}]


def test_arguments_under_names_that_the_api_does_not_take_have_others_there() -> None:
    properties = {"filter[id]": {"type": "string"}, "filter_id_": {"type": "number"}, "q": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["filter[id]", "q"]}
    arguments: dict[str, Any] = {"filter[id]": "x", "filter_id_": 1, "q": "y", "made up": 2}
    asked = prompt(USER, used(**arguments), result(), tools=[{"name": "add", "inputSchema": schema}])
    written = {"filter_id__2": "x", "filter_id_": 1, "q": "y", "made up": 2}

    body = write_request(asked)

    assert body["tools"][0]["input_schema"] == {
        "type": "object",
        "properties": {
            "filter_id__2": {"type": "string", "description": "The argument's name: filter[id]"},
            "filter_id_": {"type": "number"},
            "q": {"type": "string"},
        },
        "required": ["filter_id__2", "q"],
    }
    assert body["messages"][1]["content"][0]["input"] == written
    called = {"type": "tool_use", "id": "c2", "name": "add", "input": written}
    assert read_reply(message(called), asked).content == [Call("c2", "add", arguments)]


def test_system_stop_sequences_and_the_user_are_written_and_the_temperature_is_left_out() -> None:
    body = write_request(
        prompt(systemPrompt="Be brief", temperature=0.5, stopSequences=["END"], metadata={"user_id": "u"})
    )

    rest = {name: value for name, value in body.items() if name not in ("model", "max_tokens", "messages")}
    assert rest == {"system": "Be brief", "stop_sequences": ["END"], "metadata": {"user_id": "u"}}


def test_what_the_api_does_not_take_is_refused() -> None:
    no_schema = "this model takes no such schema: it is nested too deep"
    refused = {
        "messages[0]: this model takes no audio": prompt(said("user", WAV)),
        "messages[2]: this model takes no audio": prompt(USER, used(), result(WAV)),
        "messages[0]: this model takes no image/tiff": prompt(said("user", {**PNG, "mimeType": "image/tiff"})),
        r"messages[0]: this model takes no image/\x1b[2j": prompt(said("user", {**PNG, "mimeType": "image/\x1b[2J"})),
        "messages[2]: this model takes no application/zip": prompt(
            USER, used(), result(resource(blob="aGk=", mimeType="application/zip"))
        ),
        "messages[2]: this model takes no files of an unknown type": prompt(
            USER, used(), result(resource(blob="aGk="))
        ),
        "messages[2]: this model takes no text/plain that is not UTF-8": prompt(
            USER, used(), result(resource(blob="/w==", mimeType="text/plain"))
        ),
        "messages[1]: this model takes no image in an assistant's message": prompt(USER, said("assistant", PNG)),
        "messages: this model takes no empty text, and there is nothing else": prompt(said("user", text(" "))),
        "stopSequences[1]: this model takes no stop sequence of white space": prompt(stopSequences=["a", "\n"]),
        "metadata: this model takes only a user_id, which is a text": prompt(metadata={"trace": 1}),
        f"the tool 't': {no_schema}": prompt(tools=[{"name": "t", "inputSchema": deep_schema()}]),
    }

    assert [refusal(write_request, asked) for asked in refused.values()] == [*refused]


def test_an_answer_goes_on_from_a_last_message_without_white_space_at_its_end() -> None:
    body = write_request(prompt(USER, {"role": "assistant", "content": text("The answer is \n")}))

    assert body["messages"][1] == {"role": "assistant", "content": [text("The answer is")]}
    assert write_request(prompt(USER, used()))["messages"][1]["content"] == [
        {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    ]


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TOOL_USE = {"type": "tool_use", "id": "n1", "name": "add", "input": {"a": 1}}
ENABLED: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
OFF = {"type": "disabled"}


def test_thinking_is_on_where_the_api_takes_it(subtests: pytest.Subtests) -> None:
    table: list[
        tuple[str, dict[str, Any], list[dict[str, Any]], dict[int, object], dict[str, Any], tuple[object, ...]]
    ] = [
        ("a budget is added", ENABLED, [USER], {}, {}, (2100, ENABLED["thinking"])),
        ("the host's tokens", {**ENABLED, "max_tokens": 9}, [USER], {}, {}, (9, ENABLED["thinking"])),
        ("not with a forced tool", ENABLED, [USER], {}, {"tools": [ADD], "toolChoice": {"mode": "required"}}, (100, OFF)),
        ("lost", ENABLED, [USER, used(), result()], {}, {}, (100, OFF)),
        ("lost, from the beginning", ENABLED, [used(), result()], {}, {}, (100, OFF)),
        ("restored", ENABLED, [USER, used(), result()], {1: [THOUGHT, TOOL_USE]}, {}, (2100, ENABLED["thinking"])),
        # without interleaved thinking, the model thinks once before several calls
        ("once for several calls", ENABLED, [USER, used("1"), result(id="1"), used("2"), result(id="2")], {1: [THOUGHT, TOOL_USE]}, {}, (2100, ENABLED["thinking"])),
        ("a new turn", ENABLED, [USER, used(), result(), USER], {}, {}, (2100, ENABLED["thinking"])),
        ("adaptive", ADAPTIVE, [USER, used(), result()], {}, {}, (100, ADAPTIVE["thinking"])),
        ("adaptive and forced", ADAPTIVE, [USER], {}, {"tools": [ADD], "toolChoice": {"mode": "required"}}, (100, ADAPTIVE["thinking"])),
        ("None leaves out", {**ENABLED, "thinking": None}, [USER], {}, {}, (100, None)),
    ]  # fmt: skip  # one case on each line
    for case, options, conversation, turns, params, fields in table:
        with subtests.test(case):
            asked = prompt(*conversation, options=options, turns=turns, **params)

            body = AnthropicModel.with_options(write_request(asked), asked)

            assert (body["max_tokens"], body.get("thinking")) == fields


def test_thinking_is_off_where_a_later_part_of_the_turn_is_lost() -> None:
    loop = [USER, used("1"), result(id="1"), used("2"), result(id="2")]
    asked = replace(prompt(*loop, options=ENABLED, turns={1: [THOUGHT, TOOL_USE]}), lost=frozenset({3}))

    assert AnthropicModel.with_options(write_request(asked), asked)["thinking"] == OFF


def message(*content: dict[str, Any], stop: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7, **usage},
    }


def test_stop_reasons_are_those_of_mcp_where_it_has_them() -> None:
    reasons = {
        "end_turn": "endTurn",
        "max_tokens": "maxTokens",
        "model_context_window_exceeded": "maxTokens",
        "stop_sequence": "stopSequence",
        "tool_use": "toolUse",
        "refusal": "refusal",
        "pause_turn": "pause_turn",
        "of_next_year": "of_next_year",
    }
    usage = {"inputTokens": 11, "outputTokens": 7}

    read = {native: read_reply(message(text("ok"), stop=native), prompt()) for native in reasons}
    assert read == {native: Reply(["ok"], "claude-x", stop, usage=usage) for native, stop in reasons.items()}


def test_a_reply_with_thinking_is_kept_as_a_turn_without_empty_texts() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}

    reply = read_reply(message(THOUGHT, redacted, text(""), TOOL_USE, stop="tool_use"), prompt())

    assert (reply.content, reply.turn) == ([Call("n1", "add", {"a": 1})], [THOUGHT, redacted, TOOL_USE])


@pytest.mark.parametrize(("code", "transient"), [("overloaded_error", True), ("invalid_request_error", False)])
def test_an_error_behind_http_200_says_whether_to_ask_again(code: str, transient: bool) -> None:
    with pytest.raises(ProviderError) as raised:
        read_reply({"type": "error", "error": {"type": code, "message": "secret"}}, prompt())

    assert (str(raised.value), raised.value.transient) == (f"anthropic: the model failed, {code}", transient)
    assert "secret" in str(raised.value.original)


def test_texts_that_citations_divide_are_one_text() -> None:
    cited = {**text("halt"), "citations": [{"type": "web_search_result_location", "url": "https://example.org"}]}
    blocks = [text("A search."), SEARCH, FOUND, text("They "), cited, text("")]

    assert read_reply(message(*blocks, text(" it.")), prompt()).content == ["A search.", "They halt it."]


def test_texts_that_citations_divide_are_joined_in_linear_time() -> None:
    def read(count: int) -> None:
        assert read_reply(message(*[text("a" * 1000)] * count), prompt()).content == ["a" * 1000 * count]

    assert grows_linearly(read, 500)


ITERATIONS = [
    {"type": "compaction", "input_tokens": 100, "cache_read_input_tokens": 1000, "output_tokens": 30},
    {"type": "message", "input_tokens": 11, "output_tokens": 7},
    {"type": "advisor_message", "model": "claude-y", "input_tokens": 200, "output_tokens": 60},
]


def test_usage_counts_cached_tokens_as_input_and_what_only_the_iterations_have(subtests: pytest.Subtests) -> None:
    cached = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 10}
    thought: dict[str, Any] = {"output_tokens_details": {"thinking_tokens": 5}}
    table: list[tuple[dict[str, Any], dict[str, int]]] = [
        (
            {**cached, **thought},
            {"inputTokens": 121, "reasoningTokens": 5, "cacheReadTokens": 100, "cacheWriteTokens": 10},
        ),
        ({"iterations": ITERATIONS}, {"inputTokens": 1311, "outputTokens": 97, "cacheReadTokens": 1000}),
        ({"iterations": 7}, {}),
        ({"iterations": [7]}, {}),
        ({"iterations": [{"type": ["compaction"]}]}, {}),
        ({"iterations": [{"type": "compaction", "input_tokens": "1"}]}, {}),
    ]
    for usage, counts in table:
        with subtests.test(usage=usage):
            read = read_reply(message(text("ok"), **usage), prompt())
            assert read.usage == {"inputTokens": 11, "outputTokens": 7, **counts}


class Pausing:
    """An SDK's client that answers each request with the next of *replies*, whole or as events."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.messages = self
        self.replies = list(replies)
        self.bodies: list[dict[str, Any]] = []

    async def create(self, *, stream: bool = False, **body: Any) -> Any:
        self.bodies.append(body)
        reply = self.replies.pop(0)
        return self.events(reply) if stream else reply

    @asynccontextmanager
    async def events(self, reply: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async def each() -> AsyncGenerator[dict[str, Any]]:
            yield {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}
            for index, block in enumerate(reply["content"]):
                yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "message_delta", "delta": {"stop_reason": reply["stop_reason"]}}
            yield {"type": "message_stop"}

        async with aclosing(each()) as events:
            yield events


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_paused_turn_goes_on_until_it_ends(stream: bool) -> None:
    first = message(text("Let me see."), SEARCH, stop="pause_turn", input_tokens=10, output_tokens=2)
    second = message(FOUND, text("It is 3."), input_tokens=20, output_tokens=3)
    client = Pausing({**first, "container": {"id": "box", "expires_at": "later"}}, second)
    shown: list[str] = []

    def show(delta: Delta) -> None:
        shown.append(delta.text)

    answer = await AnthropicModel(client, "claude", on_delta=show if stream else None)(prompt().request)

    assert answer == ModelAnswer(
        content=[TextContent(text="Let me see."), TextContent(text="It is 3.")],
        model="claude-x",
        stop_reason="endTurn",
        usage={"inputTokens": 30, "outputTokens": 5},
    )
    went_on = [*client.bodies[0]["messages"], {"role": "assistant", "content": first["content"]}]
    assert client.bodies[1] == {**client.bodies[0], "messages": went_on, "container": "box"}
    assert shown == (["Let me see.", "It is 3."] if stream else [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_goes_on_after_the_conversation_is_compacted(stream: bool) -> None:
    compacted = {"type": "compaction", "content": "They talked.", "encrypted_content": None}
    client = Pausing(message(compacted, stop="compaction", iterations=ITERATIONS[:1]), message(text("Hello")))

    answer = await AnthropicModel(client, "claude", stream=stream)(prompt().request)

    assert isinstance(answer, ModelAnswer)
    assert (answer.text, answer.stop_reason) == ("Hello", "endTurn")
    assert answer.usage == {"inputTokens": 1122, "outputTokens": 44, "cacheReadTokens": 1000}
    assert client.bodies[1]["messages"][-1] == {"role": "assistant", "content": [compacted]}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_is_paused_again_goes_on_after_all_of_it(stream: bool) -> None:
    parts = [[text("Let me see."), SEARCH], [FOUND, text("Once more.")], [text("It is 3.")]]
    client = Pausing(*(message(*part, stop="pause_turn") for part in parts[:2]), message(*parts[2]))

    await AnthropicModel(client, "claude", stream=stream)(prompt().request)

    asked = client.bodies[0]["messages"]
    assert [body["messages"][len(asked) :] for body in client.bodies] == [
        [],
        [{"role": "assistant", "content": parts[0]}],
        [{"role": "assistant", "content": [*parts[0], *parts[1]]}],
    ]


async def test_the_usage_of_a_paused_turn_is_that_of_all_its_requests() -> None:
    """Counts that only one of the requests has are kept, and so are those inside of others."""

    def spent(read: int | None, written: int | None, thought: int) -> dict[str, Any]:
        cached = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        return {**cached, "output_tokens_details": {"thinking_tokens": thought}}

    first = message(text("Let me see."), stop="pause_turn", **spent(None, 9, 4))
    second = message(text("3."), **spent(6, None, 3))

    answer = await AnthropicModel(Pausing(first, second), "claude")(prompt().request)

    assert isinstance(answer, ModelAnswer)
    assert answer.usage == {
        "inputTokens": 37,
        "outputTokens": 14,
        "reasoningTokens": 7,
        "cacheReadTokens": 6,
        "cacheWriteTokens": 9,
    }


async def test_an_error_in_the_place_of_how_a_paused_turn_goes_on_is_raised() -> None:
    client = Pausing(message(SEARCH, stop="pause_turn"), {"type": "error", "error": {"type": "overloaded_error"}})

    with pytest.raises(ProviderError, match=r"^anthropic: the model failed, overloaded_error$"):
        await AnthropicModel(client, "claude")(prompt().request)


async def test_a_turn_that_is_paused_too_often_ends_so() -> None:
    client = Pausing(*[message(text("Still."), SEARCH, stop="pause_turn")] * 20)

    answer = await AnthropicModel(client, "claude")(prompt().request)

    assert (len(client.bodies), len(answer.content), answer.stop_reason) == (9, 9, "pause_turn")


def test_a_conversation_that_ends_with_the_assistant_is_refused_for_models_that_do_not_go_on() -> None:
    def asked(model: str) -> Prompt:
        return replace(prompt(USER, said("assistant", text("It is"))), model=model)

    problem = "messages: this model takes no conversation that ends with an assistant's message"
    old = ["claude-3-haiku-20240307", "claude-opus-4-20250514", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"]
    for model in (*old, "claude-haiku-4-5", "mine"):
        assert write_request(asked(model))["messages"][1]["content"] == [text("It is")], model
    new = ["claude-opus-4-6", "us.anthropic.claude-opus-4-6-v1", "claude-sonnet-4-6@20260217", "claude-sonnet-5"]
    for model in (*new, "claude-haiku-5-20261001"):
        assert refusal(write_request, asked(model)) == problem, model


def folded(*events: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    reply: dict[str, Any] = {}
    texts = [read_event(reply, event) for event in events]
    return reply, [text for text in texts if text]


def start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: object) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


STREAM = [
    {"type": "message_start", "message": message(stop=None, output_tokens=1)},
    start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    {"type": "ping"},
    delta(0, type="thinking_delta", thinking="h"),
    start(1, {"type": "text", "text": ""}),
    delta(1, type="text_delta", text="He"),
    delta(0, type="thinking_delta", thinking="m"),
    start(2, {"type": "tool_use", "id": "n1", "name": "add", "input": {}}),
    delta(2, type="input_json_delta", partial_json=""),
    delta(2, type="input_json_delta", partial_json='{"a"'),
    delta(1, type="text_delta", text="llo"),
    delta(0, type="signature_delta", signature="s"),
    delta(0, type="delta_of_next_year"),
    {"type": "content_block_stop", "index": 0},
    {"type": "event_of_next_year"},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"input_tokens": None, "output_tokens": 7},
    },
    delta(2, type="input_json_delta", partial_json=": 1}"),
    {"type": "message_stop"},
]


def test_a_stream_folds_to_the_message_that_the_api_gives_without_one() -> None:
    assert folded(*STREAM) == (message(THOUGHT, text("Hello"), TOOL_USE, stop="tool_use"), ["He", "llo"])


@pytest.mark.parametrize("begun", [None, [{"type": "page_location"}]])
def test_citations_that_are_streamed_are_those_of_their_text(begun: list[dict[str, Any]] | None) -> None:
    pages = [{"type": "page_location", "start_page_number": number} for number in (1, 2)]
    cites = [delta(0, type="citations_delta", citation=page) for page in pages]
    opened = start(0, {"type": "text", "text": "", "citations": begun})
    reply, shown = folded(STREAM[0], opened, cites[0], delta(0, type="text_delta", text="Hi"), cites[1], STREAM[-1])

    assert reply["content"] == [{**text("Hi"), "citations": [*(begun or []), *pages]}]
    assert shown == ["Hi"]


def test_a_compaction_that_is_streamed_is_whole() -> None:
    told = {"content": "They talked.", "encrypted_content": "e"}
    opened = start(0, {"type": "compaction", "content": None})
    reply, _ = folded(STREAM[0], opened, delta(0, type="compaction_delta", **told), STREAM[-1])

    assert reply["content"] == [{"type": "compaction", **told}]


def test_a_stream_that_another_model_goes_on_with_names_that_model() -> None:
    switched = {"type": "fallback", "from": {"model": "claude-x"}, "to": {"model": "claude-y"}}
    reply, _ = folded(STREAM[0], start(0, switched), start(1, text("ok")), STREAM[-3], STREAM[-1])

    assert read_reply(reply, prompt()).model == "claude-y"


def test_a_container_that_the_end_of_a_stream_does_not_repeat_stays() -> None:
    begun = {"type": "message_start", "message": {**message(stop=None), "container": {"id": "box"}}}
    end = {"type": "message_delta", "delta": {"stop_reason": "pause_turn", "container": None}}
    reply, _ = folded(begun, end, STREAM[-1])

    assert (reply["container"], reply["stop_reason"]) == ({"id": "box"}, "pause_turn")


def test_fields_that_compatible_servers_leave_out_are_empty() -> None:
    message_ = {name: value for name, value in message(stop=None).items() if name != "model"}
    opened = [start(0, {"type": "text"}), start(1, {"type": "thinking", "thinking": None})]
    deltas = [delta(0, type="text_delta", text="ok"), delta(1, type="thinking_delta", thinking="hm")]
    reply, shown = folded({"type": "message_start", "message": message_}, *opened, *deltas, STREAM[-3], STREAM[-1])

    read = read_reply(reply, prompt())
    assert (read.content, read.model, shown) == (["ok"], prompt().model, ["ok"])


@pytest.mark.parametrize("events", range(len(STREAM)))
def test_a_stream_that_ends_early_is_an_error(events: int) -> None:
    reply, _ = folded(*STREAM[:events])

    with pytest.raises(Unfinished):
        read_reply(reply, prompt())


def test_the_arguments_of_a_streamed_call_are_an_object_or_stay_text_that_is_an_error(
    subtests: pytest.Subtests,
) -> None:
    """A character may be cut in two. Without its other half, it is in no JSON."""
    no_json, no_object = "arguments that are not JSON: .+", "arguments that are no JSON object"
    table: list[tuple[list[str], object, object]] = [
        (['{"a": "\ud83d', '\ude00"}'], {"a": "\N{GRINNING FACE}"}, {"a": "\N{GRINNING FACE}"}),
        (['{"a": "\ud83d', '"}'], '{"a": "\ud83d"}', no_json),
        (['{"a'], '{"a', no_json),
        (["[]"], "[]", no_object),
        (["0"], "0", no_object),
        (["null"], "null", no_object),
        ([" "], " ", no_json),
    ]
    asked = prompt(tools=[ADD])
    for parts, written, read in table:
        with subtests.test(parts=parts):
            deltas = [delta(0, type="input_json_delta", partial_json=part) for part in parts]
            reply, _ = folded(STREAM[0], start(0, {**TOOL_USE, "input": {}}), *deltas, STREAM[-3], STREAM[-1])
            assert reply["content"] == [{**TOOL_USE, "input": written}]
            if isinstance(read, dict):
                assert [use.input for use in answer_of(read_reply(reply, asked), asked).tool_uses] == [read]
            else:
                with pytest.raises(SamplingError, match=f"^the model called 'add' with {read}$"):
                    answer_of(read_reply(reply, asked), asked)


# Any split


def split(chance: Random) -> list[dict[str, Any]]:
    """The events of `WHOLE`: each block in random pieces, the pieces of all blocks in a random order, unknown events between."""
    queues: list[list[dict[str, Any]]] = []
    for index, block in enumerate(WHOLE):
        match block["type"]:
            case "thinking":
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(chance, block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
                opened = {**block, "thinking": "", "signature": ""}
            case "text":
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces(chance, block["text"])]
                opened = text("")
            case _:
                written = json.dumps(block["input"], ensure_ascii=chance.random() < 0.5)
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(chance, written)]
                opened = {**block, "input": {}}
        stop = {"type": "content_block_stop", "index": index}
        queues.append([start(index, opened), *(delta(index, **fields) for fields in deltas), stop])
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}
    queues.append([end])  # deltas after the stop reason count
    events = [STREAM[0]]
    while queues:
        queue = chance.choice(queues)
        events.append(queue.pop(0))
        if not queue:
            queues.remove(queue)
        if chance.random() < 0.1:
            events.append({"type": "ping"})
    return [*events, {"type": "message_stop"}]


WHOLE = [
    THOUGHT,
    text("Grüße, 世界 🌍"),
    {"type": "tool_use", "id": "n1", "name": "add", "input": {"a": [1, {"b": '}\\"é'}], "c": None}},
    {"type": "tool_use", "id": "n2", "name": "add", "input": {}},
]
SPLITS = 100_000 if THOROUGH else 2_000


def test_any_split_of_a_stream_folds_to_the_same_message() -> None:
    chance = Random(13)

    for number in range(SPLITS):
        assert folded(*split(chance))[0] == message(*WHOLE, stop="tool_use"), f"split {number} of seed 13"
