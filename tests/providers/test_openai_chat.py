"""Chat Completions, both ways, of OpenAI and of the servers that speak it in their own way."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from anyio import fail_after, sleep_forever

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers import ModelAnswer, OpenAIChatModel
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.replies import Call, answer_of
from mcp_host.providers.openai import NAME_RULE
from mcp_host.providers.openai_chat import OPEN, Dialect, chunks, dialect_of, read_event, read_reply, write_request
from mcp_host.types import AudioContent, ImageContent
from tests.extent import THOROUGH, on_both
from tests.providers import prompts
from tests.providers.chat_client import ChatClient
from tests.providers.prompts import (
    ADD,
    NOW,
    PNG,
    SCHEMA,
    STRICT,
    USER,
    Counted,
    pieces,
    refusal,
    result,
    said,
    text,
    use,
    used,
)

ADD_FUNCTION = {"type": "function", "function": {"name": "add", "parameters": SCHEMA, "description": "Adds"}}
NOW_FUNCTION = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
WAV = {"type": "audio", "data": "aGk=", "mimeType": "audio/x-wav"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
DIALECTS: list[Dialect] = ["openai", "compatible"]


prompt = partial(prompts.prompt, rule=NAME_RULE, model="gpt-4.1")


def call(id: str = "c1", name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content: str, id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


# Requests


@pytest.mark.parametrize(("dialect", "limit"), [("openai", "max_completion_tokens"), ("compatible", "max_tokens")])
def test_a_plain_request(dialect: Dialect, limit: str) -> None:
    asked = prompt(systemPrompt="Be brief", temperature=0.5, stopSequences=["END", ""])

    assert write_request(asked, dialect) == {
        "model": "gpt-4.1",
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}],
        limit: 100,
        "temperature": 0.5,
        "stop": ["END"],
    }


@pytest.mark.parametrize(
    ("model", "dialect", "stops", "written"),
    [
        ("gpt-4.1", "openai", 5, {"temperature": 1}),
        ("gpt-5.6", "openai", 1, {}),
        ("qwen3", "compatible", 4, {"temperature": 1, "stop": ["0", "1", "2", "3"]}),
        ("qwen3", "compatible", 5, {"temperature": 1}),
    ],
    ids=["too many", "a reasoning model", "another server", "too many for another server"],
)
def test_what_a_model_does_not_take_is_not_written(
    model: str, dialect: Dialect, stops: int, written: dict[str, object]
) -> None:
    """Stop sequences are applied to the answer."""
    body = write_request(prompt(model=model, temperature=1, stopSequences=list(map(str, range(stops)))), dialect)

    assert {name: body[name] for name in ("temperature", "stop") if name in body} == written


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ([text("a")], "a"),
        ([text("a"), text("b")], "a\nb"),
        ([text("a"), text(""), text(" ")], "a"),
        ([text("a"), text(""), PNG, WAV], [text("a"), IMAGE, AUDIO]),
        (
            [{**WAV, "mimeType": "audio/mpeg"}],
            [{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}],
        ),
    ],
    ids=["text", "texts", "empty texts", "mixed", "mp3"],
)
def test_what_a_user_says_is_written(content: list[dict[str, Any]], written: object) -> None:
    body = write_request(prompt({"role": "user", "content": content}))

    assert body["messages"] == [{"role": "user", "content": written}]


def test_a_message_that_says_nothing_is_left_out_and_the_roles_still_alternate(subtests: pytest.Subtests) -> None:
    """An answer is empty if the model only thought, and Moonshot refuses it: "the message at position 1 with role 'assistant'
    must not be empty".
    """
    empty, more = said("assistant", text(""), text(" ")), said("user", text("Go on"))
    hi, written = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Go on"}
    both = [{"role": "user", "content": "Hi\nGo on"}]
    called = {"role": "assistant", "content": None, "tool_calls": [call()]}
    table: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
        ("between texts", [USER, empty, more], both),
        ("twice", [USER, empty, said("user", text("")), empty, more], both),
        ("beside an image", [said("user", PNG), empty, more], [{"role": "user", "content": [IMAGE, text("Go on")]}]),
        ("first", [empty, more], [written]),
        ("after results", [USER, used(), result(text("")), empty, more], [hi, called, tool(""), written]),
        ("beside a call", [USER, said("assistant", text(""), use("c1")), result()], [hi, called, tool("")]),
        ("last", [USER, empty], [hi]),
        ("none", [USER, more], [hi, written]),
    ]
    for case, conversation, messages in table:
        with subtests.test(case):
            assert write_request(prompt(*conversation))["messages"] == messages

    assert (
        refusal(write_request, prompt(empty)) == "messages: this model takes no empty text, and there is nothing else"
    )


def test_images_and_files_of_results_come_after_all_results_and_name_their_call() -> None:
    pdf = {"type": "resource", "resource": {"uri": "file:///a/b.pdf", "mimeType": "application/pdf", "blob": "aGk="}}
    calls = {"role": "assistant", "content": [text("Both."), *used("c1", a=1)["content"], *used("c2")["content"]]}
    results = [*result(text("1"), PNG)["content"], *result(pdf, PNG, id="c2", isError=True)["content"]]

    assert write_request(prompt(USER, calls, {"role": "user", "content": results}))["messages"][1:] == [
        {"role": "assistant", "content": "Both.", "tool_calls": [call(arguments='{"a": 1}'), call("c2")]},
        tool("1\n[1 file: in the user's next message]"),
        tool("The tool failed:\n[2 files: in the user's next message]", "c2"),
        {
            "role": "user",
            "content": [
                text("From the result of the tool call c1:"),
                IMAGE,
                text("From the result of the tool call c2:"),
                {"type": "file", "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,aGk="}},
                IMAGE,
            ],
        },
    ]


@pytest.mark.parametrize(
    ("block", "written"),
    [
        (result(text("no"), isError=True), "The tool failed:\nno"),
        (result(text('{"a": 1}'), structuredContent={"a": 1}), '{"a": 1}'),
        (result(text("see"), structuredContent={"a": 1}), 'see\n{"a":1}'),
        (result(), ""),
    ],
    ids=["error", "said", "unsaid", "nothing"],
)
def test_errors_and_structured_content_are_in_the_text(block: dict[str, Any], written: str) -> None:
    assert write_request(prompt(USER, used(), block))["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call()]},
        tool(written),
    ]


@pytest.mark.parametrize("id", ["x" * 41, ""], ids=["too long", "empty"])
def test_an_id_that_is_too_long_or_empty_is_the_same_other_one_in_call_and_result(id: str) -> None:
    _, asked, answered = write_request(prompt(USER, used(id), result(id=id)))["messages"]

    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] != id
    assert 0 < len(answered["tool_call_id"]) <= 40


@pytest.mark.parametrize(
    "model", ["mistral-large-latest", "mistralai/Devstral-Small-2507", "open-mixtral-8x22b", "magistral"]
)
def test_models_of_mistral_get_ids_of_nine_letters_and_digits(model: str) -> None:
    for id in ("toolu_01A", "0fypS1hVX"):
        body = write_request(prompt(USER, used(id), result(id=id), model=model), "compatible")

        _, asked, answered = body["messages"]
        assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]
        assert re.fullmatch("[a-zA-Z0-9]{9}", answered["tool_call_id"])
    assert answered["tool_call_id"] == "0fypS1hVX"


def test_models_called_kimi_get_ids_with_the_name_of_the_tool_and_the_place_of_the_call() -> None:
    """They repeat the form of the ids that they see, and servers read the name of a tool from its id."""
    both = {"role": "assistant", "content": [used("a", "now")["content"][0], used("b")["content"][0]]}
    results = {"role": "user", "content": [result(text(id), id=id)["content"][0] for id in ("b", "a")]}
    turn = {"role": "assistant", "content": None, "reasoning_content": "Sums.", "tool_calls": [call("functions.add:0")]}
    asked = prompt(
        *(USER, used("functions.add:0"), result(id="functions.add:0"), both, results),
        model="moonshotai/Kimi-K2.5",
        turns={1: turn},
    )

    _, *messages = write_request(asked, "compatible")["messages"]

    assert [call["id"] for message in messages for call in message.get("tool_calls", ())] == [
        *("functions.add:0", "functions.now:1", "functions.add:2")
    ]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == [
        *("functions.add:0", "functions.add:2", "functions.now:1")
    ]


def test_the_tool_choice_is_written(subtests: pytest.Subtests) -> None:
    """No tool is offered where none may be called and the choice may be ignored."""
    both = {"tools": [NOW_FUNCTION, ADD_FUNCTION]}
    alone: dict[str, object] = {"disable_parallel_tool_use": True}
    not_parallel = {**both, "tool_choice": "auto", "parallel_tool_calls": False}
    none = {"tools": [ADD], "toolChoice": {"mode": "none", **alone}}
    one = {"toolChoice": {"type": "tool", "name": "add"}}
    strict = {"name": "add", "schema": STRICT, "strict": True, "description": "Adds"}
    forced = {"tools": [ADD_FUNCTION], "tool_choice": "required"}
    table: list[tuple[str, list[Dialect], dict[str, Any], dict[str, Any]]] = [
        ("absent", DIALECTS, {}, both),
        ("auto", DIALECTS, {"toolChoice": {"mode": "auto"}}, {**both, "tool_choice": "auto"}),
        ("required", DIALECTS, {"toolChoice": {"mode": "required"}}, {**both, "tool_choice": "required"}),
        ("not parallel", DIALECTS, {"toolChoice": {"mode": "auto", **alone}}, not_parallel),
        ("none", ["openai"], none, {"tools": [ADD_FUNCTION], "tool_choice": "none"}),
        ("none", ["compatible"], none, {}),
        ("one", ["openai"], one, {"response_format": {"type": "json_schema", "json_schema": strict}}),
        ("one", ["compatible"], one, forced),
        ("one, and stop sequences", ["openai"], {**one, "stopSequences": ["}"]}, forced),
        ("one, and the host's format", ["openai"], {**one, "options": {"response_format": {"type": "text"}}}, forced),
    ]
    fields = ("tools", "tool_choice", "parallel_tool_calls", "response_format")
    for case, dialects, params, written in table:
        for dialect in dialects:
            with subtests.test(case, dialect=dialect):
                body = write_request(prompt(**{"tools": [NOW, ADD], **params}), dialect)
                assert {name: body[name] for name in fields if name in body} == written


def test_a_turn_with_reasoning_goes_back_as_it_was() -> None:
    turn = {"role": "assistant", "content": None, "reasoning_content": "Sums.", "tool_calls": [call("n" * 46)]}

    body = write_request(prompt(USER, used("n" * 46), result(text("1"), id="n" * 46), turns={1: turn}))

    [_, asked, answered] = body["messages"]
    assert asked == {**turn, "tool_calls": [call(answered["tool_call_id"])]}


@pytest.mark.parametrize("ids", [(None, None), ("", ""), ("", "c2")], ids=["none", "empty", "one"])
async def test_calls_of_a_kept_turn_have_the_ids_of_their_results(ids: tuple[str | None, str | None]) -> None:
    said = completion(
        "tool_calls",
        reasoning_content="Sums.",
        tool_calls=[
            {"id": id, "function": {"name": "now", "arguments": arguments}}
            for id, arguments in zip(ids, ("", None), strict=True)
        ],
    )
    client = ChatClient(json.dumps(said), json.dumps(completion(content="3")))
    model = OpenAIChatModel(client, "qwen3")
    first = await model(prompt(tools=[NOW]).request)
    results = [result(text(str(nth)), id=use.id)["content"][0] for nth, use in enumerate(first.tool_uses)]
    turn = {"role": "assistant", "content": [block.to_wire() for block in first.content]}
    await model(prompt(USER, turn, {"role": "user", "content": results[::-1]}, tools=[NOW]).request)

    _, asked, last, before = client.asked[1]["messages"]
    one, two = asked["tool_calls"]
    assert asked["reasoning_content"] == "Sums."
    assert (one["function"]["arguments"], two["function"]["arguments"]) == ("{}", "{}")
    assert one["id"] != two["id"]
    assert (before, last) == (tool("0", one["id"]), tool("1", two["id"]))


@pytest.mark.parametrize(
    ("model", "dialect", "field"),
    [
        ("deepseek-v4-pro", "compatible", {"reasoning_content": ""}),
        ("XiaomiMiMo/MiMo-V2.5", "compatible", {"reasoning_content": ""}),
        ("openai/gpt-oss-120b", "compatible", {}),
        ("magistral-medium", "compatible", {}),
        ("DeepSeek-V3.2", "openai", {}),
    ],
)
def test_a_call_whose_reasoning_is_lost_has_an_empty_one_for_models_that_want_it(
    model: str, dialect: Dialect, field: dict[str, str]
) -> None:
    """Groq, Cerebras and Mistral refuse the field."""
    asked = replace(prompt(USER, used(), result(text("1")), model=model), lost=frozenset({1}))

    _, said, answered = write_request(asked, dialect)["messages"]

    calls = [call(answered["tool_call_id"])]
    assert said == {"role": "assistant", "content": None, "tool_calls": calls, **field}


def test_reasoning_that_is_empty_in_an_answer_goes_back_empty() -> None:
    """DeepSeek refuses calls without the field also where its own answer has an empty one:
    https://github.com/craft-ai-agents/craft-agents-oss/issues/703.
    """
    whole = completion("tool_calls", reasoning_content="", tool_calls=[call()])
    streamed = folded(chunk({"reasoning_content": "", "tool_calls": [{"index": 0, **call()}]}), chunk({}, "tool_calls"))

    for reply in (whole, streamed):
        turn = read_reply(reply, prompt()).turn
        assert turn == {"role": "assistant", "content": None, "reasoning_content": "", "tool_calls": [call()]}


def test_metadata_is_written_where_answers_are_stored_and_for_other_servers() -> None:
    stored = prompt(metadata={"k": "v"}, options={"store": True})

    assert write_request(stored)["metadata"] == {"k": "v"}
    assert write_request(prompt(metadata={"k": "v"}), "compatible")["metadata"] == {"k": "v"}


def test_what_the_api_does_not_take_is_refused() -> None:
    refused = [
        ("messages[0]: this model takes wav and mp3, not 'audio/ogg'", prompt(said("user", {**WAV, "mimeType": "audio/ogg"}))),
        ("messages[2]: this model takes no image/svg+xml", prompt(USER, used(), result({**PNG, "mimeType": "image/svg+xml"}))),
        ("messages[1]: this model takes no audio in an assistant's message", prompt(USER, said("assistant", WAV))),
        ("temperature: this model takes 0 to 2, not -1", prompt(temperature=-1)),
        ("metadata: this model takes none unless the host stores the answers (store)", prompt(metadata={"k": "v"})),
        ("tools: this model takes 128 at most, not 129", prompt(tools=[{**ADD, "name": f"t{number}"} for number in range(129)])),
    ]  # fmt: skip  # one case on each line

    assert [refusal(write_request, asked) for _, asked in refused] == [sentence for sentence, _ in refused]
    assert len(write_request(refused[-1][1], "compatible")["tools"]) == 129


def test_a_description_is_as_long_as_openai_takes_it_and_says_what_it_lacks() -> None:
    for length in (1024, 1025):
        asked = prompt(tools=[{**ADD, "description": "x" * length}])
        [openai], [compatible] = (write_request(asked, dialect)["tools"] for dialect in ("openai", "compatible"))

        assert compatible["function"]["description"] == "x" * length
        note = "" if length == 1024 else "\n[cut: the description has 1025 characters]"
        assert openai["function"]["description"] == "x" * (1024 - len(note)) + note


# Replies


def completion(
    finish: str | None = "stop", /, *, choice: dict[str, Any] | None = None, **message: Any
) -> dict[str, Any]:
    said = {"role": "assistant", "content": None, **message}
    return {
        "id": "x",
        "model": "gpt-x",
        "choices": [{"index": 0, "message": said, "finish_reason": finish, **(choice or {})}],
    }


ONE = Call("c1", "add", "{}")
NONE = Call(None, None, None)


def test_a_reply_is_read(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, dict[str, Any], list[object], str]] = [
        ("text", completion(content="3"), ["3"], "endTurn"),
        ("empty", completion(content=""), [], "endTurn"),
        ("calls", completion("tool_calls", content="a", tool_calls=[call()]), ["a", ONE], "toolUse"),
        ("calls with stop", completion("stop", tool_calls=[call()]), [ONE], "toolUse"),
        ("cut off", completion("length", content="a", tool_calls=[call()]), ["a", ONE], "maxTokens"),
        ("filtered", completion("content_filter", content="a"), ["a"], "content_filter"),
        ("refusal", completion(refusal="No."), ["No."], "refusal"),
        ("stop sequence", completion(content="a", choice={"stop_reason": "END"}), ["a"], "stopSequence"),
        ("stop sequence in the text", completion(content="abENDc"), ["ab"], "stopSequence"),
        ("stop token", completion(content="a", choice={"stop_reason": 128009}), ["a"], "endTurn"),
        ("of Together", completion("eos", content="a"), ["a"], "endTurn"),
        ("in capitals", completion("STOP", content="a", tool_calls=[call()]), ["a", ONE], "toolUse"),
        ("cut off in capitals", completion("MAX_TOKENS", content="a"), ["a"], "maxTokens"),
        ("another reason", completion("recitation", content="a"), ["a"], "recitation"),
        ("parts", completion(content=[{"type": "thinking", "thinking": []}, text("a"), text("b")]), ["ab"], "endTurn"),
        ("a part without its text", completion(content=[{"type": "text", "text": None}, {"type": "output_text", "text": "a"}]), ["a"], "endTurn"),
        ("a part", completion(content={"type": "output_text", "text": "a"}), ["a"], "endTurn"),
        ("audio", completion(audio={"id": "a", "data": "aGk=", "transcript": "hi", "expires_at": 1}), [AudioContent(data="aGk=", mime_type="audio/wav"), "hi"], "endTurn"),
        ("images", completion(images=[IMAGE]), [ImageContent(data="aGk=", mime_type="image/png")], "endTurn"),
        ("bare call", completion(tool_calls=[{"function": {"name": "now"}}]), [Call(None, "now", None)], "toolUse"),
        ("the call of 2023", completion("function_call", function_call={"name": "now", "arguments": "{}"}), [Call(None, "now", "{}")], "toolUse"),
        ("calls without calls", completion("tool_calls", content="a", tool_calls=[]), ["a"], "endTurn"),
        ("no reason", {**completion(None, content="a"), "usage": {"completion_tokens": 1}}, ["a"], "endTurn"),
        ("calls and no reason", {**completion("", tool_calls=[call()]), "usage": {"completion_tokens": 1}}, [ONE], "toolUse"),
        ("cut off and no reason", {**completion(None, content="a"), "usage": {"completion_tokens": 100}}, ["a"], "maxTokens"),
        ("an empty call", completion(content="a", function_call={"name": "", "arguments": ""}), ["a"], "endTurn"),
        ("what is no call", completion(tool_calls=[None, call(), {"function": None}]), [NONE, ONE, NONE], "toolUse"),
        ("audio without words", completion(audio={"data": "aGk="}), [AudioContent(data="aGk=", mime_type="audio/wav")], "endTurn"),
        ("empty audio", completion(content="a", audio={"id": "", "data": "", "transcript": ""}), ["a"], "endTurn"),
    ]  # fmt: skip  # one case on each line
    for case, reply, content, stop_reason in table:
        with subtests.test(case):
            read = read_reply(reply, prompt(stopSequences=["END"]))

            assert (read.content, read.stop_reason, read.model) == (content, stop_reason, "gpt-x")


def test_tokens_are_counted(subtests: pytest.Subtests) -> None:
    spent, thought = {"completion_tokens": 9, "total_tokens": 39}, {"reasoning_tokens": 4}
    cached = {"cached_tokens": 20, "cache_write_tokens": 5}
    told = {"inputTokens": 30, "outputTokens": 9}
    table: list[tuple[str, dict[str, object], dict[str, int]]] = [
        ("OpenAI", {**spent, "prompt_tokens_details": cached, "completion_tokens_details": thought}, {**told, "reasoningTokens": 4, "cacheReadTokens": 20, "cacheWriteTokens": 5}),
        ("DeepSeek", {"completion_tokens": 9, "prompt_cache_hit_tokens": 20, "prompt_tokens_details": None}, {**told, "cacheReadTokens": 20}),
        ("xAI", {"completion_tokens": 5, "total_tokens": 39, "completion_tokens_details": thought}, {**told, "reasoningTokens": 4}),
        ("Gemini", {"completion_tokens": 5, "total_tokens": 39}, told),
        ("a total of more", {"completion_tokens": 5, "total_tokens": 1039, "completion_tokens_details": thought}, {**told, "reasoningTokens": 4}),
        ("a wrong total", {"completion_tokens": 9, "total_tokens": 9}, told),
        ("Moonshot", {"cached_tokens": 20, "prompt_tokens_details": {"cached_tokens": None}}, {"inputTokens": 30, "cacheReadTokens": 20}),
        ("Mistral", {"num_cached_tokens": 20}, {"inputTokens": 30, "cacheReadTokens": 20}),
        ("Alibaba", {"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 20}}, {"inputTokens": 30, "cacheReadTokens": 0, "cacheWriteTokens": 20}),
    ]  # fmt: skip  # one case on each line
    for case, usage, counts in table:
        with subtests.test(case):
            reply = {**completion(content="a"), "usage": {"prompt_tokens": 30, **usage}}
            assert read_reply(reply, prompt()).usage == counts
    assert read_reply({**completion(content="a"), "usage": None}, prompt()).usage is None


DETAILS = [{"type": "reasoning.text", "text": "Sums.", "signature": "s", "index": 0}]
SIGNED = {**call(), "extra_content": {"google": {"thought_signature": "s"}}}


def test_reasoning_is_kept_with_its_calls(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
        ("reasoning_content", {"reasoning_content": "Sums.", "tool_calls": [call()]}, {"reasoning_content": "Sums.", "tool_calls": [call()]}),
        ("reasoning", {"reasoning": "Sums.", "tool_calls": [call()]}, {"reasoning": "Sums.", "tool_calls": [call()]}),
        ("details", {"reasoning": "Sums.", "reasoning_details": DETAILS, "tool_calls": [{**call(), "index": 0}]}, {"reasoning_details": DETAILS, "tool_calls": [call()]}),
        ("signature", {"tool_calls": [SIGNED]}, {"tool_calls": [SIGNED]}),
        ("no arguments", {"reasoning": "Sums.", "tool_calls": [call(arguments="null")]}, {"reasoning": "Sums.", "tool_calls": [call()]}),
        ("none", {"tool_calls": [call()], "reasoning_content": None, "reasoning_details": []}, None),
        ("no calls", {"reasoning_content": "Sums."}, None),
    ]  # fmt: skip  # one case on each line
    for case, message, turn in table:
        with subtests.test(case):
            read = read_reply(completion("tool_calls", content="a", **message), prompt())

            assert read.turn == (None if turn is None else {"role": "assistant", "content": "a", **turn})


def test_a_model_that_starts_with_reasoning_answers_with_what_comes_after_it(subtests: pytest.Subtests) -> None:
    """Its prompt has the opening mark: DeepSeek-R1, QwQ, Qwen3-Thinking. Only the host knows that.

    A format that was asked for holds from the first word.
    """
    about = "Thinking ends with </think>, and the answer follows."
    table: list[tuple[str | None, bool, dict[str, object], list[str]]] = [
        ("Easy: 4.</think>\n\nIt is 4.", True, {}, ["It is 4."]),
        ("It was cut off he", True, {}, []),
        ("", True, {}, []),
        (None, True, {}, []),
        ('{"a": 1}', True, {"response_format": {"type": "json_object"}}, ['{"a": 1}']),
        (about, False, {}, [about]),
    ]
    for content, starts, options, answer in table:
        with subtests.test(content=content):
            asked = prompt(options=options)
            assert read_reply(completion(content=content), asked, starts_with_reasoning=starts).content == answer


def test_the_reasoning_that_a_text_starts_with_is_kept_with_its_calls() -> None:
    message: dict[str, Any] = {"content": "Sums.</think>Let me see.", "tool_calls": [call()]}

    reply = read_reply(completion("tool_calls", **message), prompt(), starts_with_reasoning=True)

    assert (reply.content, reply.turn) == (["Let me see.", Call("c1", "add", "{}")], {"role": "assistant", **message})


@pytest.mark.parametrize(
    ("dialect", "text", "content", "stop_reason"),
    [
        ("openai", '{"a": 1, "b": null}', [Call(None, "add", {"a": 1})], "toolUse"),  # b may be missing
        *(("openai", text, [text], "endTurn") for text in ("No.", '{"a": 1', "[1]", '{"a": 1e999}')),
        ("compatible", "{}", ["{}"], "endTurn"),
    ],
)
def test_the_text_in_the_strict_format_is_the_call_if_it_is_its_arguments(
    dialect: Dialect, text: str, content: object, stop_reason: str
) -> None:
    schema = {**SCHEMA, "properties": {"a": {"type": "number"}, "b": {"type": "string"}}}
    asked = prompt(tools=[{**ADD, "inputSchema": schema}], toolChoice={"mode": "required"})
    read = read_reply(completion(content=text), asked, dialect)

    assert (read.content, read.stop_reason) == (content, stop_reason)


def test_a_choice_that_failed_is_an_error() -> None:
    with pytest.raises(ProviderError, match=r"^openai: the model failed \(HTTP 502\)$"):
        read_reply(completion("error", choice={"error": {"code": 502, "message": "secret"}}), prompt())


# Streams


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "x", "model": "gpt-x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def folded(*events: dict[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = {}
    for event in events:
        read_event(reply, event)
    return reply


def calls_of(*deltas: dict[str, Any]) -> list[tuple[object, object, object]]:
    reply = folded(*[chunk({"tool_calls": [delta]}) for delta in deltas], chunk(finish="tool_calls"))
    found = read_reply(reply, prompt()).content
    return [(block.id, block.name, block.arguments) for block in found if isinstance(block, Call)]


def piece(arguments: object = None, name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **fields}


def test_deltas_of_calls_go_to_their_call(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, list[dict[str, Any]], list[tuple[object, object, object]]]] = [
        (
            "interleaved",
            [
                piece("", "add", index=0, id="c1"),
                piece("", "now", index=1, id="c2"),
                piece('{"a"', index=0),
                piece("{", index=1),
                piece(":1}", index=0),
                piece("}", index=1),
            ],
            [("c1", "add", '{"a":1}'), ("c2", "now", "{}")],
        ),
        ("whole, no index", [piece('{"a":1}', "add", id="c1"), piece("{}", "now", id="c2"), piece("{}", "now", id="c3")], [("c1", "add", '{"a":1}'), ("c2", "now", "{}"), ("c3", "now", "{}")]),
        ("interleaved by id", [piece("{", "add", id="c1"), piece("{", "now", id="c2"), piece("}", id="c1"), piece("}", id="c2")], [("c1", "add", "{}"), ("c2", "now", "{}")]),
        ("one index for all", [piece("{}", "add", index=0, id="c1"), piece("{}", "add", index=0, id="c2")], [("c1", "add", "{}"), ("c2", "add", "{}")]),
        ("repeated name and id", [piece("{", "add", index=0, id="c1"), piece("}", "add", index=0, id="c1")], [("c1", "add", "{}")]),
        ("another id each time", [piece("{", "add", index=0, id="c1"), piece("}", "", index=0, id="other")], [("c1", "add", "{}")]),
        ("neither index nor id", [piece("{", "add", id="c1"), piece("}")], [("c1", "add", "{}")]),
        ("only names", [piece("{}", "add"), piece("{}", "add")], [(None, "add", "{}"), (None, "add", "{}")]),
        ("an object", [piece({"a": 1}, "add", index=0, id="c1")], [("c1", "add", '{"a": 1}')]),
        ("a name in pieces", [piece("{}", "get_", index=0, id="c1"), piece(None, "weather", index=0)], [("c1", "get_weather", "{}")]),
        ("one index and no ids", [piece('{"a":1}', "add", index=0), piece('{"a":2}', "add", index=0), piece({}, "now", index=0)], [(None, "add", '{"a":1}'), (None, "add", '{"a":2}'), (None, "now", "{}")]),
        ("one index, no ids, a repeated name", [piece("", "add", index=0), piece('{"a":', "add", index=0), piece("{}}", "add", index=0)], [(None, "add", '{"a":{}}')]),
        (
            "one index, no ids, pieces",
            [
                piece("", "add", index=0),
                piece('{"a":', index=0),
                piece("1}", index=0),
                piece("", "add", index=0),
                piece('{"a":2}', index=0),
                piece("", "now", index=0),
            ],
            [(None, "add", '{"a":1}'), (None, "add", '{"a":2}'), (None, "now", None)],
        ),
        ("a repeated name to the end", [piece('{"a":', "add", index=0), piece("1}", "add", index=0), piece("", "add", index=0)], [(None, "add", '{"a":1}')]),
        ("a repeated name at the end", [piece('{"a":1}', "add", index=0), piece("", "add", index=0)], [(None, "add", '{"a":1}')]),
        ("two without arguments", [piece("", "now", index=0), piece("", "now", index=1)], [(None, "now", None), (None, "now", None)]),
        ("two without arguments or index", [piece("", "now"), piece("", "now")], [(None, "now", None), (None, "now", None)]),
    ]  # fmt: skip  # one case on each line, but for those of many pieces
    for case, deltas, calls in table:
        with subtests.test(case):
            assert calls_of(*deltas) == calls


def test_what_the_chunks_of_a_stream_say_is_read_once(subtests: pytest.Subtests) -> None:
    function_call = [{"name": "add"}, {"arguments": '{"a"'}, {"arguments": ":1}"}]
    whole = {"choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}]}
    without_index = [{"index": None, "delta": {"content": "a"}}, {"index": None, "finish_reason": "stop"}]
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    table: list[tuple[str, list[dict[str, Any]], list[object]]] = [
        (
            "the call of 2023",
            [*[chunk({"function_call": delta}) for delta in function_call], chunk(finish="function_call")],
            [Call(None, "add", '{"a":1}')],
        ),
        ("a message in the place of deltas", [whole], ["ab"]),
        ("a message after an empty delta", [chunk({"role": "assistant", "content": ""}), whole], ["ab"]),
        ("a message after its deltas", [chunk({"content": "a"}), chunk({"content": "b"}), whole], ["ab"]),
        ("an index that is null", [{"choices": [choice]} for choice in without_index], ["a"]),
        ("another choice", [chunk({"content": "a"}), other, chunk(finish="stop")], ["a"]),
    ]
    for case, events, content in table:
        with subtests.test(case):
            assert read_reply(folded(*events), prompt()).content == content


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_arguments_that_are_a_list_are_an_error(stream: bool) -> None:
    asked = prompt(tools=[ADD])
    wrong = call(arguments=[])  # type: ignore[arg-type]  # of a server
    reply = folded(chunk({"tool_calls": [{**wrong, "index": 0}]}), chunk(finish="tool_calls"))

    with pytest.raises(SamplingError, match=r"^the model called 'add' with arguments that are no JSON object$"):
        answer_of(read_reply(reply if stream else completion("tool_calls", tool_calls=[wrong]), asked), asked)


def test_a_reply_that_nothing_says_is_whole_is_unfinished(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, dict[str, Any]]] = [
        ("stream", folded(chunk({"content": "a"}))),
        ("not done", folded(chunk({"content": "a"}, usage={"completion_tokens": 1}), {"_not_done": True})),
        ("nothing said", folded(chunk({"content": ""}, usage={"completion_tokens": 1}))),
        (
            "counted with each delta",
            folded(chunk({}, usage={"completion_tokens": 0}), chunk({"content": "a"}, usage={"completion_tokens": 1})),
        ),
        ("not counted", completion(None, content="a")),
        ("half a call", {**completion(None, tool_calls=[call(arguments='{"a')]), "usage": {"completion_tokens": 1}}),
        ("no choice", {"choices": []}),
        ("nothing", {}),
    ]
    for case, reply in table:
        with subtests.test(case), pytest.raises(Unfinished):
            read_reply(reply, prompt())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_error_behind_http_200_says_whether_to_ask_again(subtests: pytest.Subtests, stream: bool) -> None:
    table: list[tuple[str, dict[str, Any], str, bool]] = [
        ("number", {"error": {"code": 502, "message": "secret"}}, "openai: the model failed (HTTP 502)", True),
        ("digits", {"error": {"code": "429", "message": "secret"}}, "openai: the model failed (HTTP 429)", True),
        ("a key", {"error": {"code": 401, "message": "secret"}}, "openai: the model failed (HTTP 401)", False),
        ("type", {"error": {"code": None, "type": "server_error"}}, "openai: the model failed, server_error", True),
        ("rate", {"error": {"code": "rate_limit_exceeded", "type": "requests"}}, "openai: the model failed, rate_limit_exceeded", True),
        ("prompt", {"error": {"code": "invalid_prompt"}}, "openai: the model failed, invalid_prompt", False),
        ("text", {"error": "secret"}, "openai: the model failed", False),
        ("vLLM", {"object": "error", "message": "secret", "type": "InternalServerError", "code": 500}, "openai: the model failed (HTTP 500), InternalServerError", True),
    ]  # fmt: skip  # one case on each line
    for case, error, sentence, transient in table:
        with subtests.test(case):
            with pytest.raises(ProviderError) as caught:
                folded(error) if stream else read_reply(error, prompt())

            assert (str(caught.value), caught.value.transient) == (sentence, transient)
            assert str(caught.value.original) == str(error.get("error") or error)


@pytest.mark.parametrize(
    ("reason", "code"),
    [("error", "server_error"), ("ERROR", "server_error"), ("insufficient_system_resource",) * 2, ("abort",) * 2],
)
def test_a_finish_reason_that_is_a_failure_is_one_that_may_pass(reason: str, code: str) -> None:
    with pytest.raises(ProviderError) as caught:
        read_reply(completion(reason, content="a"), prompt())

    assert (caught.value.code, caught.value.transient) == (code, True)
    assert str(caught.value.original) == f"{{'finish_reason': '{reason}'}}"  # all that the provider says


THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": [text("Su"), text("ms.")], "closed": True}


def test_thinking_among_the_parts_of_the_content_is_kept_with_its_calls() -> None:
    """Mistral: its thinking is a list of parts, in pieces in a stream."""
    opened, *rest = [
        {"type": "thinking", "thinking": some, "closed": False}
        for some in ([], *[[part] for part in THOUGHT["thinking"]])
    ]
    deltas: list[object] = ["", [opened], rest, [{**THOUGHT, "thinking": []}], "a", [text("b")]]
    calling = chunk({"tool_calls": [{**call(), "index": 0}]}, "tool_calls")
    streamed = read_reply(folded(*[chunk({"content": delta}) for delta in deltas], calling), prompt())
    whole = read_reply(completion("tool_calls", content=[THOUGHT, text("ab")], tool_calls=[call()]), prompt())

    assert streamed == whole
    assert whole.content == ["ab", ONE]
    assert whole.turn == {"role": "assistant", "content": [THOUGHT, text("ab")], "tool_calls": [call()]}


@pytest.mark.parametrize("name", ["content", "reasoning_details"])
def test_lists_in_the_parts_of_a_stream_stay_as_they_are(name: str) -> None:
    part = {"type": "reference", "reference_ids": ["1", "2"]}
    events = [chunk({name: [part]}), chunk({"tool_calls": [piece("{}", "add", index=0, id="c1")]}, "tool_calls")]

    turn = read_reply(folded(*events), prompt()).turn

    assert isinstance(turn, dict)
    assert turn[name] == [part]


def test_an_answer_without_a_finish_reason_has_the_maximum_of_the_options() -> None:
    reply = {**completion(None, content="a"), "usage": {"completion_tokens": 150}}

    assert read_reply(reply, prompt(options={"max_tokens": 200})).stop_reason == "endTurn"
    assert read_reply(reply, prompt(options={"max_completion_tokens": 150})).stop_reason == "maxTokens"


def test_reasoning_details_and_sound_are_folded() -> None:
    deltas: list[dict[str, Any]] = [
        {"reasoning_details": [{"type": "reasoning.text", "text": "Su", "index": 0, "signature": None}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "ms.", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "signature": "s", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e", "index": 1}]},
        {"audio": {"id": "a", "data": base64.b64encode(b"soun").decode()}},
        {"audio": {"data": base64.b64encode(b"d").decode(), "transcript": "so"}},
        {"audio": {"transcript": "und", "expires_at": 1}, "images": [IMAGE]},
        {"tool_calls": [piece("{}", "add", index=0, id="c1")]},
    ]
    read = read_reply(
        folded(*map(chunk, deltas), chunk(finish="tool_calls")), prompt(options={"audio": {"format": "pcm16"}})
    )

    assert read.content == [
        AudioContent(data=base64.b64encode(b"sound").decode(), mime_type="audio/pcm16"),
        "sound",
        ImageContent(data="aGk=", mime_type="image/png"),
        ONE,
    ]
    assert read.turn == {
        "role": "assistant",
        "content": None,
        "reasoning_details": [*DETAILS, {"type": "reasoning.encrypted", "data": "e", "index": 1}],
        "tool_calls": [call()],
    }


CALLS = [call("c1", "add", '{"a": 1, "b": [2, 3]}'), call("c2", "now", "{}"), call("c3", "add", '{"a": 2}')]
MESSAGE: dict[str, Any] = {
    "content": "Let me see. Both at once: 😀",
    "reasoning_content": "Sums, I see.",
    "tool_calls": CALLS,
}
WHOLE = {**completion("tool_calls", **MESSAGE), "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


def deltas(chance: random.Random) -> list[dict[str, Any]]:
    """The deltas of the message: text, reasoning and calls in random pieces, in any order in which the calls begin as
    they are in the message. Calls are told apart by index, or by an id that is repeated."""
    by_index, repeats = chance.random() < 0.7, chance.random() < 0.5
    rows: list[list[dict[str, Any]]] = [
        [{name: words} for words in pieces(chance, MESSAGE[name])] for name in ("content", "reasoning_content")
    ]
    for index, whole in enumerate(CALLS):
        name = whole["function"]["name"]
        head = {"id": whole["id"], **({"index": index} if by_index else {})}
        first, *rest = pieces(chance, whole["function"]["arguments"])
        more = {"index": index} if by_index and not repeats else head
        later = [piece(words, name if repeats else None, **more) for words in rest]
        rows.append([{"tool_calls": [delta]} for delta in [piece(first, name, type="function", **head), *later]])
    left = [row[::-1] for row in rows]
    mixed = []
    while any(left):
        begun = [len(ahead) < len(row) for ahead, row in zip(left, rows, strict=True)]
        ready = [number for number, ahead in enumerate(left) if ahead and (number <= 2 or begun[number - 1])]
        mixed.append(left[chance.choice(ready)].pop())
    return mixed


@pytest.mark.fault("S07")
def test_any_split_of_a_stream_folds_to_the_same_reply() -> None:
    expected = read_reply(WHOLE, prompt())
    chance = random.Random(13)
    for _ in range(100_000 if THOROUGH else 1_000):
        events = deltas(chance)
        end = chance.randrange(len(events) + 1)  # the finish reason may come before the last deltas
        reply: dict[str, Any] = {}
        heard = "".join([read_event(reply, chunk(delta)) for delta in events[:end]])
        read_event(reply, chunk({}, "tool_calls"))
        heard += "".join([read_event(reply, chunk(delta)) for delta in events[end:]])
        read_event(reply, {"choices": [], "usage": WHOLE["usage"]})

        assert read_reply(reply, prompt()) == expected
        assert heard == MESSAGE["content"]


def test_a_long_text_is_folded_in_linear_time() -> None:
    """The texts of a reply are lists of pieces until it is read: nothing is copied at each event."""
    reply: dict[str, Any] = {}
    for _ in range(1000):
        read_event(reply, chunk({"content": "ab"}))
    [part] = reply[OPEN]["content"]
    pieces = part["text"]
    read_event(reply, chunk({"content": "."}, "stop"))

    assert reply[OPEN]["content"][0]["text"] is pieces
    assert pieces == [*["ab"] * 1000, "."]
    assert read_reply(reply, prompt()).content == [f"{'ab' * 1000}."]


# The model


def test_the_dialect_is_known_by_the_server_and_there_is_no_other(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, Dialect]] = [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1/", "openai"),
        ("http://localhost:8000/v1", "compatible"),
        ("https://api.deepseek.com", "compatible"),
        ("https://openai.com.example.org", "compatible"),
    ]
    for url, dialect in table:
        with subtests.test(url):
            assert dialect_of(ChatClient(base_url=url)) == dialect
    with pytest.raises(ValueError, match=r"""^dialect is "openai" or "compatible", not 'vllm'$"""):
        OpenAIChatModel(ChatClient(), "m", dialect="vllm")  # type: ignore[arg-type]  # a mistake


async def test_a_whole_reply_in_place_of_a_stream_may_begin_with_a_piece_of_white_space() -> None:
    """A server sends some so that the connection stays open."""

    async def received() -> AsyncGenerator[bytes]:
        for piece in (b"\n", b'{"object": ', b'"chat.completion"}'):
            yield piece

    async with aclosing(chunks(received())) as came:
        assert [chunk async for chunk in came] == [{"object": "chat.completion"}]


@on_both
async def test_a_server_that_holds_its_stream_open_after_the_last_chunk_does_not_hold_the_answer() -> None:
    async def received() -> AsyncGenerator[bytes]:
        yield b'data: {"choices": []}\n\ndata: [DONE]\n\n'
        await sleep_forever()

    with fail_after(25):
        async with aclosing(chunks(received(), end_timeout=0)) as came:
            assert [chunk async for chunk in came] == [{"choices": []}]


def test_a_reply_with_what_no_answer_can_have_is_an_error(subtests: pytest.Subtests) -> None:
    not_fetched = "the model answered with the address of an image, and nothing is fetched"
    no_image = "the model answered with a data: URL that is no image in base64"
    custom = {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    called = "the model called a custom tool, which only the host's options can have offered"
    table: list[tuple[str, dict[str, Any], str]] = [
        ("an address", {"images": [{"image_url": {"url": "https://example.com/a.png"}}]}, not_fetched),
        ("a page", {"images": [{"image_url": {"url": "data:text/html;base64,aGk="}}]}, no_image),
        ("no base64", {"images": [{"image_url": {"url": "data:image/png,hi"}}]}, no_image),
        ("broken base64", {"images": [{"image_url": {"url": "DATA:image/png;base64,a b"}}]}, no_image),
        ("a custom tool", {"tool_calls": [custom]}, called),
    ]
    for case, message, sentence in table:
        with subtests.test(case), pytest.raises(SamplingError, match=f"^{re.escape(sentence)}$"):
            read_reply(completion(**message), prompt())


@pytest.mark.parametrize("name", ["id", "index"])
def test_the_work_for_the_calls_of_a_stream_is_linear(name: str) -> None:
    class Place(Counted):
        pass

    deltas = [{name: Place(number), "function": {"name": "add", "arguments": "{}"}} for number in range(1000)]
    folded: dict[str, Any] = {}

    read_event(folded, {"choices": [{"delta": {"tool_calls": deltas}}]})
    for delta in deltas:
        read_event(
            folded, {"choices": [{"delta": {"tool_calls": [{name: delta[name], "function": {"arguments": ""}}]}}]}
        )

    assert Place.compared < 10_000


# Streams of servers that end them in other ways

HELLO = [chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop")]
USED = {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}
USAGE = {"id": "x", "choices": [], **USED}
CALLING = chunk({"tool_calls": [piece('{"a"', "add", index=0, id="c1")]})
CUT = "openai: the stream ended before the answer was complete"
NO_CHUNK = "openai: the reply cannot be read"


def sse(*events: dict[str, Any], end: str = "") -> str:
    return "".join([f"data: {json.dumps(event)}\n\n" for event in events]) + end


async def answered(body: str, **params: Any) -> tuple[ModelAnswer, str]:
    """The answer that a stream gives, and what *on_delta* got of it."""
    heard: list[str] = []
    client = ChatClient(body, kind="application/json" if body.startswith("{") else "text/event-stream")
    model = OpenAIChatModel(client, "qwen3", on_delta=lambda delta: heard.append(delta.text))
    answer_to_prompt = await model(prompt(**params).request)
    assert isinstance(answer_to_prompt, ModelAnswer)
    return answer_to_prompt, "".join(heard)


async def streamed(body: str, **params: Any) -> tuple[str, str]:
    """The text of the answer that a stream gives, and what *on_delta* got of it."""
    given, heard = await answered(body, **params)
    return given.text, heard


async def test_a_stream_that_is_whole_is_an_answer(subtests: pytest.Subtests) -> None:
    def call_now(*arguments: str) -> list[dict[str, Any]]:
        return [chunk({"tool_calls": [piece(part, "now", index=0, id="c1")]}) for part in arguments]

    end = "data: [DONE]\n\n"
    table: list[tuple[str, str, str, int]] = [
        ("done", sse(*HELLO, end=end), "Hello", 0),
        ("done without a blank line", sse(*HELLO, end="data: [DONE]"), "Hello", 0),
        ("done before the last piece", sse(*HELLO, end=end + ":\n" * 2_000), "Hello", 0),
        ("usage", sse(*HELLO, USAGE), "Hello", 0),
        ("a finish reason", sse(*HELLO), "Hello", 0),
        ("no blank line", sse(*HELLO).rstrip(), "Hello", 0),
        ("no stream", json.dumps(completion(content="Hello")), "Hello", 0),
        # https://github.com/vllm-project/vllm/issues/53255: a required call was not parsed
        ("done, and no call to come", sse(chunk({"content": "Hello"}, "tool_calls"), end=end), "Hello", 0),
        ("done without a reason: Snowflake", sse(*HELLO[:2], chunk({"content": ""}), USAGE, end=end), "Hello", 0),
        ("done without a reason: Kimi at OpenRouter", sse(*call_now("", "{}"), USAGE, end=end), "", 1),
    ]
    for arguments in ("{}", "", " ", "null"):
        body = sse(*call_now(arguments), chunk({}, "tool_calls"))
        table.append((f"a whole call and a finish reason: {arguments!r}", body, "", 1))
    for case, body, words, calls in table:
        with subtests.test(case):
            answer, heard = await answered(body, tools=[NOW])

            assert (answer.text, heard) == (words, words)
            assert [(use.name, use.input) for use in answer.tool_uses] == [("now", {})] * calls
            assert answer.stop_reason == ("toolUse" if calls else "endTurn")


@pytest.mark.parametrize(
    ("options", "sent"),
    [({}, {"include_usage": True}), ({"stream_options": {"include_usage": False}}, {"include_usage": False})],
)
async def test_a_stream_has_the_usage_unless_the_host_says_otherwise(
    options: dict[str, object], sent: dict[str, bool]
) -> None:
    client = ChatClient(sse(*HELLO))

    await OpenAIChatModel(client, "qwen3", stream=True, options=options)(prompt().request)

    assert [asked["stream_options"] for asked in client.asked] == [sent]


async def test_a_stream_that_is_no_answer_says_what_it_is(subtests: pytest.Subtests) -> None:
    """Calls may come after the finish reason."""
    to_come = chunk({"content": "I'll add."}, "tool_calls")
    error_event = 'event: error\ndata: {"message": "secret", "code": 500}\n\n'
    error = '{"error": {"code": 503, "message": "secret"}}'
    table: list[tuple[str, str, str, bool]] = [
        ("no finish reason", sse(*HELLO[:2]), CUT, True),
        ("in the last chunk", sse(*HELLO)[:-9], CUT, True),
        ("in the second chunk", sse(*HELLO[:2]) + "data: {", CUT, True),
        ("in the first chunk", "data: {", CUT, True),
        ("calls to come", sse(to_come), CUT, True),
        ("calls to come after usage", sse({**to_come, **USED}), CUT, True),
        ("a call to go on", sse(CALLING, chunk({}, "tool_calls")), CUT, True),
        ("null", sse(*HELLO[:1]) + "data: null\n\n", NO_CHUNK, False),
        ("a list", "data: []\n\n", NO_CHUNK, False),
        ("a list before the last piece", "data: []\n\n" + sse(*HELLO), NO_CHUNK, False),
        ("error event", error_event, "openai: the model failed (HTTP 500)", True),
        ("error instead of a stream", error, "openai: the model failed (HTTP 503)", True),
    ]
    for case, body, sentence, transient in table:
        with subtests.test(case):
            with pytest.raises(ProviderError) as caught:
                await streamed(body)

            assert (str(caught.value), caught.value.transient) == (sentence, transient)


@pytest.mark.parametrize("words", ["one two three", "one tw", "two EN", "oneEND", "ENDtwo END", "a bEND"])
async def test_on_delta_gets_no_text_after_a_stop_sequence_however_it_is_split(words: str) -> None:
    stops = ["END", " two th", "bE"]
    kept = words[: min([place for stop in stops if (place := words.find(stop)) >= 0], default=len(words))]
    for first in range(len(words) + 1):
        for second in range(first, len(words) + 1):
            parts = [words[:first], words[first:second], words[second:]]
            body = sse(*[chunk({"content": part}) for part in parts], chunk({}, "stop"), end="data: [DONE]\n\n")
            assert await streamed(body, stopSequences=stops) == (kept, kept)


@pytest.mark.parametrize(
    ("stop", "halves"),
    [("END", ("E", "ND")), ("\N{GRINNING FACE}", ("\ud83d", "\ude00"))],
    ids=["letters", "a character beyond U+FFFF"],
)
@pytest.mark.parametrize("field", ["content", "refusal"])
async def test_a_streamed_answer_ends_at_a_stop_sequence_where_a_whole_one_does(
    stop: str, halves: tuple[str, str], field: str
) -> None:
    chunks = [chunk({field: f"one {halves[0]}"}), chunk({field: f"{halves[1]} two"}), chunk({}, "stop")]
    message: dict[str, Any] = {field: f"one {stop} two"}

    stream = await streamed(sse(*chunks, end="data: [DONE]\n\n"), stopSequences=[stop])
    whole = await streamed(json.dumps(completion(**message)), stopSequences=[stop])

    assert stream == whole == ("one ", "one ")
