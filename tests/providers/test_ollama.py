"""Ollama, both ways: what is written for a request, what a reply and a stream say, and how the SDK is used."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers.exchange import schemas
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.replies import Call, Reply, answer_of
from mcp_host.providers.exchange.requests import Offer, Prompt
from mcp_host.providers.ollama import OllamaModel, read_event, read_reply, with_options, write_request
from tests.extent import THOROUGH
from tests.providers import prompts
from tests.providers.prompts import PNG, USER, WAV, deep_schema, refusal, resource, said, text, use
from tests.providers.prompts import result_of as result

ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
READ = {
    "name": "files/read text",
    "description": "Reads.",
    "inputSchema": {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/place"}},
        "$defs": {"place": {"type": "object"}},
    },
}
SPLITS = 100_000 if THOROUGH else 2_000


prompt = partial(prompts.prompt, rule=OllamaModel.name_rule, model="qwen3")


def blob(kind: str, data: str) -> dict[str, Any]:
    return resource(blob=data, mimeType=kind)


# Requests


def test_a_request_has_what_was_asked_for() -> None:
    assert write_request(prompt()) == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": "Hi"}],
        "options": {"num_predict": 100},
    }
    body = write_request(
        prompt(systemPrompt="Be brief.", temperature=0.5, stopSequences=["END"], maxTokens=2**40, tools=[ADD, READ])
    )

    assert body == {
        "model": "qwen3",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "options": {"num_predict": 2147483647, "temperature": 0.5, "stop": ["END"]},
        "tools": [
            {"type": "function", "function": {"name": "add", "parameters": ADD["inputSchema"]}},
            {
                "type": "function",
                "function": {"name": "files/read text", "description": "Reads.", "parameters": READ["inputSchema"]},
            },
        ],
    }


def test_the_conversation_with_images_calls_and_results_in_the_order_of_the_calls() -> None:
    body = write_request(
        prompt(
            said("user", text("a"), PNG, text("b")),
            said("assistant", text("both"), use("c1", a=1), use("c2", "files/read text")),
            said("user", result("c2", text("two"), PNG), result("c1", text("no"), isError=True)),
            said("assistant", text("done")),
            tools=[ADD, READ],
        )
    )

    assert body["messages"] == [
        {"role": "user", "content": "a\nb", "images": ["aGk="]},
        {
            "role": "assistant",
            "content": "both",
            "tool_calls": [
                {"function": {"name": "add", "arguments": {"a": 1}}},
                {"function": {"name": "files/read text", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_name": "add", "content": "The tool failed:\nno"},
        {"role": "tool", "tool_name": "files/read text", "content": "two", "images": ["aGk="]},
        {"role": "assistant", "content": "done"},
    ]


def test_a_text_that_is_empty_is_left_out() -> None:
    calls = said("assistant", text(" "), use("c1", a=1))
    conversation = said("user", text(""), PNG), said("assistant", text("")), calls, said("user", result("c1", text("")))

    assert write_request(prompt(*conversation, tools=[ADD]))["messages"] == [
        {"role": "user", "content": "", "images": ["aGk="]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "tool_name": "add", "content": ""},
    ]
    nothing = refusal(write_request, prompt(said("assistant", text("")), systemPrompt="Be brief."))
    assert nothing == "messages: this model takes no empty text, and there is nothing else"


def test_what_a_tool_result_has_is_written(subtests: pytest.Subtests) -> None:
    link = {"type": "resource_link", "uri": "file:///b", "name": "b"}
    structured = {"structuredContent": {"a": 1}}
    table: list[tuple[str, dict[str, Any], str]] = [
        ("nothing", result("c1"), ""),
        ("structured once", result("c1", text('{"a": 1}'), **structured), '{"a": 1}'),
        ("structured", result("c1", text("see"), **structured), 'see\n{"a":1}'),
        ("resource", result("c1", resource(text="words")), "Contents of file:///a:\nwords"),
        ("link", result("c1", link), '{"name":"b","uri":"file:///b","type":"resource_link"}'),
        ("file of text", result("c1", blob("text/csv; charset=utf-8", "w7w7MQ==")), "Contents of file:///a:\nü;1"),
        ("file of JSON", result("c1", blob("application/json", "eyJhIjoxfQ==")), 'Contents of file:///a:\n{"a":1}'),
    ]
    for case, block, written in table:
        with subtests.test(case):
            body = write_request(prompt(USER, said("assistant", use("c1")), said("user", block)))
            assert body["messages"][2] == {"role": "tool", "tool_name": "add", "content": written}


def test_a_turn_of_the_model_goes_back_as_it_came() -> None:
    turn = {
        "role": "assistant",
        "content": "",
        "thinking": "hm",
        "tool_calls": [{"id": "x", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}}],
    }
    messages = (USER, said("assistant", use("c1", a=1)), said("user", result("c1", text("1"))))

    assert write_request(prompt(*messages, turns={1: turn}))["messages"][1:] == [
        turn,
        {"role": "tool", "tool_name": "add", "content": "1"},
    ]


def test_what_ollama_cannot_take_is_refused() -> None:
    def returned(*content: dict[str, Any]) -> Prompt:
        return prompt(USER, said("assistant", use("c1")), said("user", result("c1", *content)))

    broken = {"name": "b", "inputSchema": deep_schema()}
    no_schema = "the tool 'b': this model takes no such schema: it is nested too deep"
    refused = [
        *[(no_schema, prompt(tools=[ADD, broken], toolChoice={"mode": mode})) for mode in ("required", "auto")],
        ("messages[0]: this model takes no audio", prompt(said("user", WAV))),
        ("messages[2]: this model takes no audio", returned(WAV)),
        ("messages[2]: this model takes no application/pdf", returned(blob("application/pdf", "aGk="))),
        ("messages[2]: this model takes no text/plain that is not UTF-8", returned(blob("text/plain", "/w=="))),
        ("metadata: this model takes none", prompt(metadata={"a": 1})),
    ]

    assert [refusal(write_request, asked) for _, asked in refused] == [sentence for sentence, _ in refused]


def test_options_are_fields_of_the_request_or_parameters_of_the_model() -> None:
    asked = prompt(options={"think": True, "num_ctx": 16384, "options": {"seed": 1}, "num_predict": None})

    assert with_options(write_request(asked), asked) == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": "Hi"}],
        "think": True,
        "options": {"num_ctx": 16384, "seed": 1},
    }


def test_a_nested_schema_is_sent_whole() -> None:
    """The SDK's own ``chat`` would leave only the types and descriptions of the first level."""
    place = {"type": "object", "properties": {"x": {"type": "number", "minimum": 0}}, "required": ["x"]}
    schema = {"type": "object", "properties": {"at": {"anyOf": [place, {"type": "null"}]}}}

    [tool] = write_request(prompt(tools=[{"name": "go", "inputSchema": schema}]))["tools"]

    assert tool["function"]["parameters"] == schema


# The tool choice


def test_no_tools_are_sent_where_none_may_be_called() -> None:
    body = write_request(prompt(tools=[ADD], toolChoice={"mode": "none"}))

    assert body.keys() == {"model", "messages", "options"}


ONE = prompt(systemPrompt="Be brief.", tools=[ADD, READ], toolChoice={"type": "tool", "name": "add"})
ANY = prompt(tools=[ADD, READ], toolChoice={"mode": "required"})


def test_one_required_tool_is_the_format_of_the_answer() -> None:
    body = write_request(ONE)

    assert body["format"] == ADD["inputSchema"]
    assert "tools" not in body
    assert body["messages"][0] == {
        "role": "system",
        "content": "Be brief.\n\nCall this tool. Answer with the JSON of its arguments only.\n"
        '{"name":"add","description":"","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}',
    }


def test_one_of_several_required_tools_is_a_name_and_arguments() -> None:
    body = write_request(ANY)

    def call(name: str, arguments: object) -> dict[str, Any]:
        properties = {"name": {"type": "string", "enum": [name]}, "arguments": arguments}
        return {"type": "object", "properties": properties, "required": ["name", "arguments"]}

    read = {"type": "object", "properties": {"at": {"type": "object"}}}
    assert body["format"] == {"anyOf": [call("add", ADD["inputSchema"]), call("files/read text", read)]}
    assert "tools" not in body
    assert body["messages"][0]["content"].startswith("Call one of these tools.")


@pytest.mark.parametrize(
    ("choice", "field"), [({"mode": "required"}, "format"), ({"mode": "auto"}, "tools")], ids=["required", "auto"]
)
async def test_tools_that_a_server_repeats_are_written_once(choice: object, field: str) -> None:
    """Those that are required are in the system prompt of each request, too."""
    asked = prompt(systemPrompt="Be brief.", tools=[ADD, READ], toolChoice=choice)
    write = schemas.function if field == "tools" else schemas.format_of_object
    asked.offer = await Offer.of(asked.request, OllamaModel.name_rule, write, None, print)
    first, second = write_request(asked), write_request(asked)

    assert second[field] is first[field]
    assert second == first == write_request(replace(asked, offer=None))


# Replies


def reply_of(content: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "model": "qwen3:8b",
        "created_at": "2026-11-01T12:00:00Z",
        "message": {"role": "assistant", "content": content, **fields},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 11,
        "eval_count": 7,
    }


USAGE = {"inputTokens": 11, "outputTokens": 7}
ASKED = prompt(tools=[ADD])
CALLS = [
    {"function": {"name": "add", "arguments": {"a": 1}}},
    {"id": "x", "function": {"name": "add", "arguments": {}}},
]


def test_a_reply_with_everything() -> None:
    reply = reply_of("Look", thinking="hm", tool_calls=CALLS)

    assert read_reply(reply, ASKED) == Reply(
        content=["Look", Call(None, "add", {"a": 1}), Call(None, "add", {})],
        model="qwen3:8b",
        stop_reason="endTurn",
        turn={"role": "assistant", "content": "Look", "thinking": "hm", "tool_calls": CALLS},
        usage=USAGE,
    )


@pytest.mark.parametrize(
    ("content", "asked", "call"),
    [
        ('{"a": 1}', ONE, Call(None, "add", {"a": 1})),
        ('{"name": "files/read text", "arguments": {"at": {}}}', ANY, Call(None, "files/read text", {"at": {}})),
    ],
    ids=["one tool", "one of several"],
)
def test_a_required_call_is_read_from_the_answer(content: str, asked: Prompt, call: Call) -> None:
    assert read_reply(reply_of(content), asked) == Reply([call], "qwen3:8b", "endTurn", usage=USAGE)


def test_the_thinking_of_a_required_call_is_kept_with_the_call(subtests: pytest.Subtests) -> None:
    """Of a model that starts with it, too: there the format may apply from the first word on."""
    table: list[tuple[dict[str, Any], bool, dict[str, Any] | None]] = [
        (reply_of('{"a": 1}', thinking="hm"), False, {"content": "", "thinking": "hm"}),
        (reply_of('<think>hm</think>\n{"a": 1}'), False, {"content": "<think>hm</think>\n"}),
        (reply_of('hm</think>\n{"a": 1}'), True, {"content": "hm</think>\n"}),
        (reply_of('{"a": 1}'), True, None),
    ]
    for reply, starts, kept in table:
        with subtests.test(message=reply["message"]):
            read = read_reply(reply, ONE, starts_with_reasoning=starts)

            call = {"function": {"name": "add", "arguments": {"a": 1}}}
            assert read.content == [Call(None, "add", {"a": 1})]
            assert read.turn == (None if kept is None else {"role": "assistant", **kept, "tool_calls": [call]})


@pytest.mark.parametrize(
    ("content", "options", "answer"),
    [
        ("Easy: 4.</think>\n\nIt is 4.", {}, ["It is 4."]),
        ("It was cut off he", {}, []),
        ("", {}, []),
        ('{"a": 1}', {"format": "json"}, ['{"a": 1}']),  # a format holds from the first word
    ],
    ids=["an answer", "cut off", "nothing", "JSON that was asked for"],
)
def test_a_model_that_starts_with_reasoning_answers_with_what_comes_after_it(
    content: str, options: dict[str, object], answer: list[str]
) -> None:
    assert read_reply(reply_of(content), prompt(options=options), starts_with_reasoning=True).content == answer


def test_a_required_call_that_was_cut_off_is_a_text() -> None:
    reply = reply_of('{"a": ') | {"done_reason": "length"}

    assert read_reply(reply, ONE) == Reply(['{"a": '], "qwen3:8b", "maxTokens", usage=USAGE)


@pytest.mark.parametrize("arguments", ["", " ", "null", None])
def test_a_call_without_arguments_is_one_of_a_tool_that_needs_none(arguments: object) -> None:
    call = {"function": {"name": "now", "arguments": arguments}}

    assert read_reply(reply_of(tool_calls=[call]), ASKED).content == [Call(None, "now", None)]


def test_what_is_no_call_is_one_that_names_no_tool() -> None:
    reply = reply_of(tool_calls=[None, *CALLS[:1], {"function": None}])

    assert [call.name for call in read_reply(reply, ASKED).content if isinstance(call, Call)] == [None, "add", None]


@pytest.mark.parametrize("arguments", [[], 0, [1]])
def test_arguments_that_are_no_object_are_an_error_that_names_the_tool(arguments: object) -> None:
    call = {"function": {"name": "add", "arguments": arguments}}
    with pytest.raises(SamplingError, match=r"^the model called 'add' with arguments that are no"):
        answer_of(read_reply(reply_of(tool_calls=[call]), ASKED), ASKED)


def test_a_text_in_place_of_a_required_call_is_a_text(subtests: pytest.Subtests) -> None:
    """A model that does not keep to the format: its server can read the text, or ask again."""
    table: list[tuple[str, Prompt]] = [
        *((content, ONE) for content in ("", "{'a': 1}", "[1]", "well")),
        *((f'{{"name": "add", "arguments": {arguments}}}', ANY) for arguments in ('""', "1")),
        *((content, ANY) for content in ('{"name": "add"}', '{"name": 1, "arguments": {}}', "[]", "well")),
    ]
    for content, asked in table:
        with subtests.test(content=content):
            read = read_reply(reply_of(content), asked)

            assert (read.content, read.stop_reason) == ([content] if content else [], "endTurn")


def test_of_several_calls_the_first_is_kept_if_the_server_wants_one() -> None:
    one = prompt(tools=[ADD], toolChoice={"mode": "auto", "disable_parallel_tool_use": True})
    reply = read_reply(reply_of(thinking="hm", tool_calls=CALLS), one)

    assert reply.content == [Call(None, "add", {"a": 1})]
    assert reply.turn == {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": CALLS[:1]}


@pytest.mark.parametrize(
    ("done_reason", "stop_reason"),
    [("stop", "endTurn"), ("length", "maxTokens"), ("newer", "newer"), (None, "endTurn")],
)
def test_done_reasons(done_reason: str | None, stop_reason: str) -> None:
    """A cached prompt has no count."""
    reply = reply_of("a") | {"done_reason": done_reason}
    del reply["prompt_eval_count"]

    read = read_reply(reply, ASKED)
    assert (read.stop_reason, read.usage) == (stop_reason, {"inputTokens": 0, "outputTokens": 7})


def test_a_stream_that_ended_early_is_an_error() -> None:
    reply: dict[str, Any] = {}
    read_event(reply, {"model": "qwen3", "message": {"role": "assistant", "content": "a"}, "done": False})

    with pytest.raises(Unfinished):
        read_reply(reply, ASKED)


# Streams


def cut(words: str, choose: random.Random) -> Iterator[str]:
    while words:
        length = choose.randint(1, len(words))
        yield words[:length]
        words = words[length:]


def events(reply: dict[str, Any], choose: random.Random) -> Iterator[dict[str, Any]]:
    """A stream of *reply*: thinking, text and calls in pieces; the last piece of the text may come with the end."""
    message = reply["message"]
    chunks: list[dict[str, Any]] = [{"content": "", "thinking": piece} for piece in cut(message["thinking"], choose)]
    chunks += [{"content": piece} for piece in cut(message["content"], choose)]
    between = choose.randint(0, len(chunks))
    chunks[between:between] = [{"content": "", "tool_calls": [call]} for call in message["tool_calls"]]
    ends = choose.randint(0, 1)
    for index, chunk in enumerate(chunks):
        last = reply if ends and index == len(chunks) - 1 else {"model": reply["model"], "done": False}
        yield {**last, "message": {"role": "assistant", **chunk}}
    if not ends:
        yield {**reply, "message": {"role": "assistant", "content": ""}}


def test_any_split_of_a_stream_folds_to_the_reply_without_a_stream() -> None:
    choose = random.Random(13)
    whole = reply_of("First I add, grüße, and more.", thinking="Let me think about it.", tool_calls=CALLS)
    expected = read_reply(whole, ASKED)
    for _ in range(SPLITS):
        reply: dict[str, Any] = {}
        told = "".join([read_event(reply, event) for event in events(whole, choose)])

        assert read_reply(reply, ASKED) == expected
        assert told == "First I add, grüße, and more."


def test_a_stream_of_many_pieces_is_folded_in_linear_time() -> None:
    """The texts of a reply are lists of pieces until it is read: nothing is copied at each event."""
    reply: dict[str, Any] = {}
    for _ in range(1000):
        read_event(reply, {"message": {"content": "ab"}, "done": False})
    before = reply["message"]["content"]
    read_event(reply, json.loads('{"model": "q", "message": {"content": ""}, "done": true}'))

    assert reply["message"]["content"] is before
    assert len(before) == 1001
    assert read_reply(reply, ASKED) == Reply(["ab" * 1000], "q", "endTurn")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_sdk_without_the_method_below_chat_is_one_error_that_says_so(stream: bool) -> None:
    with pytest.raises(ProviderError) as raised:
        await OllamaModel(SimpleNamespace(chat=print), "qwen3", stream=stream)(ASKED.request)

    assert str(raised.value) == (
        "ollama: this release of the SDK has no _request, which this adapter needs: install an earlier one"
    )
