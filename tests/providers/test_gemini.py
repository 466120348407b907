"""Gemini, both ways: what is written for a request, what a reply and a stream say, and how the SDK is used."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from mcp_host import run_tool_loop
from mcp_host.errors import ProviderError, SamplingError, UnusableCalls
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.replies import Call, Reply, answer_of
from mcp_host.providers.gemini import GeminiModel, _path, read_event, read_reply, with_options, write_request
from mcp_host.types import AudioContent, ImageContent, UserMessage
from tests.extent import THOROUGH
from tests.providers import prompts
from tests.providers.prompts import PNG, USER, WAV, refusal, resource, said, text, use
from tests.providers.prompts import result_of as result

ADD = {"name": "add", "inputSchema": {"type": "object"}}
SPLITS = 100_000 if THOROUGH else 2_000


prompt = partial(prompts.prompt, rule=GeminiModel.name_rule, model="gemini-3-pro")


def blob(kind: str | None) -> dict[str, Any]:
    return resource(blob="aGk=", **({} if kind is None else {"mimeType": kind}))


def file(kind: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": kind, "data": "aGk="}}


def answered(output: str, **more: object) -> dict[str, Any]:
    """A result of the tool ``add``."""
    return {"functionResponse": {"name": "add", "response": {"output": output}, **more}}


def contents(*messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = write_request(prompt(*messages, **more))["contents"]
    return written


# Requests


def test_a_request_has_what_was_asked_for() -> None:
    assert write_request(prompt()) == {
        "model": "gemini-3-pro",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {"maxOutputTokens": 100},
    }
    body = write_request(
        prompt(
            systemPrompt="Be brief.",
            temperature=0.5,
            stopSequences=["END"],
            metadata={"team": "a"},
            maxTokens=2**40,
            tools=[{**ADD, "description": "Adds."}, {"name": "read/file", "inputSchema": {"type": "object"}}],
        )
    )

    assert body == {
        "model": "gemini-3-pro",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"maxOutputTokens": 2147483647, "temperature": 0.5, "stopSequences": ["END"]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "add",
                        "description": "Adds.",
                        "parametersJsonSchema": {"type": "object", "properties": {}},
                    },
                    {
                        "name": "read_file",
                        "description": "The tool's name: read/file",
                        "parametersJsonSchema": {"type": "object", "properties": {}},
                    },
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "labels": {"team": "a"},
    }


def test_tool_choices(subtests: pytest.Subtests) -> None:
    tools = [ADD, {"name": "read/file", "inputSchema": {"type": "object"}}]
    one = {"type": "tool", "name": "read/file"}
    table: list[tuple[str, dict[str, Any], object]] = [
        ("none given", {}, {"mode": "AUTO"}),
        ("auto", {"toolChoice": {"mode": "auto"}}, {"mode": "AUTO"}),
        ("required", {"toolChoice": {"mode": "required"}}, {"mode": "ANY"}),
        ("none", {"toolChoice": {"mode": "none"}}, {"mode": "NONE"}),
        ("one tool", {"toolChoice": one}, {"mode": "ANY", "allowedFunctionNames": ["read_file"]}),
    ]
    for case, params, config in table:
        with subtests.test(case):
            body = write_request(prompt(tools=tools, **params))
            assert body["toolConfig"] == {"functionCallingConfig": config}


def test_messages_of_one_role_are_joined_and_empty_texts_left_out() -> None:
    assert contents(
        said("user", text("a"), text("")),
        said("user", PNG, WAV),
        said("assistant", text("")),
        said("user", text("b")),
        said("assistant", text("c")),
        said("user", text("d")),
    ) == [
        {"role": "user", "parts": [{"text": "a"}, file("image/png"), file("audio/wav"), {"text": "b"}]},
        {"role": "model", "parts": [{"text": "c"}]},
        {"role": "user", "parts": [{"text": "d"}]},
    ]


CALLED = (USER, said("assistant", use("c1", a=1)))


def test_what_a_tool_result_has_is_written(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, list[Any], dict[str, Any], object]] = [
        ("texts", [text("3"), text("4")], {}, {"response": {"output": "3\n4"}}),
        ("nothing", [], {}, {"response": {"output": ""}}),
        ("error", [text("no")], {"isError": True}, {"response": {"error": "no"}}),
        ("structured once", [text('{"a": 1}')], {"structuredContent": {"a": 1}}, {"response": {"output": '{"a": 1}'}}),
        (
            "structured",
            [text("see")],
            {"structuredContent": {"$ref": "x"}},
            {"response": {"output": 'see\n{"$ref":"x"}'}},
        ),
        ("image", [text("see"), PNG], {}, {"response": {"output": "see"}, "parts": [file("image/png")]}),
        ("pdf", [blob("application/pdf")], {}, {"response": {"output": ""}, "parts": [file("application/pdf")]}),
        ("resource", [resource(text="words")], {}, {"response": {"output": "Contents of file:///a:\nwords"}}),
        ("file of JSON", [blob("application/json")], {}, {"response": {"output": "Contents of file:///a:\nhi"}}),
        (
            "link",
            [{"type": "resource_link", "uri": "file:///b", "name": "b", "description": "B"}],
            {},
            {"response": {"output": '{"name":"b","uri":"file:///b","description":"B","type":"resource_link"}'}},
        ),
    ]
    for case, content, fields, response in table:
        with subtests.test(case):
            written = contents(*CALLED, said("user", result("c1", *content, **fields)), USER, tools=[ADD])

            assert written[1:] == [
                {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "add", **response}}]},  # type: ignore[dict-item]
                {"role": "user", "parts": [{"text": "Hi"}]},
            ]


def test_files_that_a_result_cannot_hold_follow_in_a_message_of_their_own() -> None:
    answer = said("user", result("c1", text("see"), PNG, blob("video/quicktime")))  # "video/mov" at Gemini
    both = "see\n[file 1 of those that follow]\n[file 2 of those that follow]"
    one = answered("see\n[file 1 of those that follow]", parts=[file("image/png")])

    assert contents(*CALLED, answer, model="gemini-2.5-flash")[2:] == [
        {"role": "user", "parts": [answered(both)]},
        {"role": "user", "parts": [file("image/png"), file("video/mov")]},
    ]
    assert contents(*CALLED, answer, USER)[2:] == [
        {"role": "user", "parts": [one]},
        {"role": "user", "parts": [file("video/mov"), {"text": "Hi"}]},
    ]


def test_parallel_results_are_one_message_in_the_order_of_the_calls() -> None:
    written = contents(
        USER,
        said("assistant", text("both"), use("c1"), use("c2", "read/file")),
        said("user", result("c2", text("two")), result("c1", text("one"))),
        model="gemini-2.5-flash",
    )

    assert written[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "both"},
                {"functionCall": {"name": "add", "args": {}}},
                {"functionCall": {"name": "read_file", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [answered("one"), {"functionResponse": {"name": "read_file", "response": {"output": "two"}}}],
        },
    ]


TURN = {
    "role": "model",
    "parts": [
        {"text": "hm", "thought": True},
        {"functionCall": {"id": "f1", "name": "add", "args": {"a": 1}, "new": 1}, "thoughtSignature": "c2ln+/=="},
        {"functionCall": {"name": "add", "args": {"a": 2}}},
    ],
}


def test_a_turn_of_the_model_goes_back_as_it_came_and_results_have_its_ids() -> None:
    written = contents(
        USER,
        said("assistant", use("f1", a=1), use("c2", a=2)),
        said("user", result("f1", text("1")), result("c2", text("2"))),
        turns={1: TURN},
    )

    assert written[1:] == [TURN, {"role": "user", "parts": [answered("1", id="f1"), answered("2")]}]


def test_a_call_without_its_signature_is_text_in_the_current_turn_of_gemini_3() -> None:
    """The API validates the calls after the last message of the user that is no tool result."""
    messages = (
        USER,
        said("assistant", use("c1", a=1)),
        said("user", result("c1", text("1"))),
        said("assistant", text("one")),
        said("user", text("go on")),
        said("assistant", text("well"), use("c2", a=2)),
        said("user", result("c2", text("2"), PNG, isError=True)),
    )

    assert contents(*messages)[1:] == [
        {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 1}}}]},
        {"role": "user", "parts": [answered("1")]},
        {"role": "model", "parts": [{"text": "one"}]},
        {"role": "user", "parts": [{"text": "go on"}]},
        {"role": "model", "parts": [{"text": "well"}, {"text": '[I call the tool add with {"a":2}]'}]},
        {
            "role": "user",
            "parts": [{"text": "[the tool add failed: 2\n[file 1 of those that follow]]"}, file("image/png")],
        },
    ]


def test_an_empty_message_of_the_user_begins_no_turn() -> None:
    """It is left out, so that the API does not see it."""
    written = contents(*CALLED, said("user", result("c1", text("1"))), said("user", text("")))

    assert written[1:] == [
        {"role": "model", "parts": [{"text": '[I call the tool add with {"a":1}]'}]},
        {"role": "user", "parts": [{"text": "[the tool add returned: 1]"}]},
    ]


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "models/gemini-1.5-pro", "gemma-3-27b-it"])
def test_older_models_get_calls_without_signatures_as_calls(model: str) -> None:
    written = contents(*CALLED, said("user", result("c1", text("1"))), model=model)

    assert written[1] == {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 1}}}]}


def test_a_picture_of_the_model_without_its_signature_is_the_users_since_gemini_3(subtests: pytest.Subtests) -> None:
    """The API refuses it as the model's own. A result has to follow its call."""
    beside, here, call = {"text": "[file 1 of the user's message beside this one]"}, {"text": "Here"}, use("c1", a=1)
    called = {"functionCall": {"name": "add", "args": {"a": 1}}}
    first, png = {"text": "Hi"}, file("image/png")
    more = (said("user", result("c1", text("1"))), said("user", text("go on")))
    go_on = {"role": "user", "parts": [{"text": "go on"}]}
    answers = [{"role": "user", "parts": [answered("1")]}, go_on]
    table: list[tuple[str, str, list[Any], list[dict[str, Any]]]] = [
        ("older", "gemini-2.5-flash-image", [], [{"role": "user", "parts": [first]}, {"role": "model", "parts": [here, png]}, {"role": "user", "parts": [{"text": "go on"}]}]),
        ("newer", "gemini-3-pro-image", [], [{"role": "user", "parts": [first]}, {"role": "model", "parts": [here, beside]}, {"role": "user", "parts": [png, {"text": "go on"}]}]),
        ("with a call", "gemini-3-pro-image", [call], [{"role": "user", "parts": [first, png]}, {"role": "model", "parts": [here, beside, called]}, *answers]),
    ]  # fmt: skip  # one case on each line
    for case, model, calls, written in table:
        with subtests.test(case):
            messages = (USER, said("assistant", text("Here"), PNG, *calls), *(more if calls else more[1:]))
            assert contents(*messages, model=model) == written


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3-pro"])
def test_a_call_at_the_very_beginning_is_text(model: str) -> None:
    """The API refuses a call that does not follow a turn of the user or the results of others."""
    messages = (said("assistant", text("well"), use("c1", a=1)), said("user", result("c1", text("1"))))

    assert contents(*messages, model=model) == [
        {"role": "model", "parts": [{"text": "well"}, {"text": '[I call the tool add with {"a":1}]'}]},
        {"role": "user", "parts": [{"text": "[the tool add returned: 1]"}]},
    ]


def test_what_gemini_cannot_take_is_refused() -> None:
    of_result = "messages[2]: this model takes no "
    stops = "stopSequences: this model takes at most 5, and no empty one"
    refused = [
        ("messages[0]: this model takes no model/obj", prompt(said("user", {**PNG, "mimeType": "model/obj"}))),
        (f"{of_result}audio/webm", prompt(*CALLED, said("user", result("c1", blob("audio/webm; codecs=opus"))))),
        (f"{of_result}application/zip", prompt(*CALLED, said("user", result("c1", blob("application/zip"))))),
        (f"{of_result}files of an unknown type", prompt(*CALLED, said("user", result("c1", blob(None))))),
        ("messages: this model takes no empty text, and there is nothing else", prompt(said("user", text("")))),
        (
            "messages: this model takes no conversation that ends with an assistant's message",
            prompt(USER, said("assistant", text("a"))),
        ),
        (stops, prompt(stopSequences=list("abcdef"))),
        (stops, prompt(stopSequences=["a", ""])),
        ("temperature: this model takes 0 to 2, not 2.5", prompt(temperature=2.5)),
        ("metadata: this model takes labels only, which are texts", prompt(metadata={"a": 1})),
    ]

    assert [refusal(write_request, asked) for _, asked in refused] == [sentence for sentence, _ in refused]


def test_options_are_merged_in_the_spelling_of_the_sdk_or_of_the_api() -> None:
    options: dict[str, object] = {
        "thinking_config": {"thinking_level": "low"},
        "maxOutputTokens": None,
        "generation_config": {"top_k": 3},
        "response_json_schema": {"properties": {"a_b": {}}},
        "safety_settings": [{"category": "x"}],
        "systemInstruction": None,
    }
    asked = prompt(options=options, systemPrompt="Hello", temperature=1)

    assert with_options(write_request(asked), asked) == {
        "model": "gemini-3-pro",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {
            "temperature": 1,
            "thinkingConfig": {"thinkingLevel": "low"},
            "topK": 3,
            "responseJsonSchema": {"properties": {"a_b": {}}},
        },
        "safetySettings": [{"category": "x"}],
    }


# Replies


def reply_of(*parts: dict[str, Any], finish: str | None = "STOP", **fields: Any) -> dict[str, Any]:
    finished = {} if finish is None else {"finishReason": finish}
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, **finished, **fields}],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7},
        "modelVersion": "gemini-3-pro-001",
    }


USAGE = {"inputTokens": 11, "outputTokens": 7}
ASKED = prompt(tools=[ADD])


def test_a_reply_with_everything() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "thinking", "thought": True},
        {"text": "Look: "},
        {"text": "here", "thoughtSignature": "AA=="},
        file("image/png"),
        file("audio/wav"),
        {"newer": {}},
        {"text": "I"},
        {"executableCode": {"language": "PYTHON", "code": "1+1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"text": "It is 2."},
        {"functionCall": {"id": "f1", "name": "add", "args": {"a": 1}}},
        {"functionCall": {"name": "add"}},
    ]

    assert read_reply(reply_of(*parts), ASKED) == Reply(
        content=[
            "Look: here",
            ImageContent(data="aGk=", mime_type="image/png"),
            AudioContent(data="aGk=", mime_type="audio/wav"),
            "I",
            "It is 2.",
            Call("f1", "add", {"a": 1}),
            Call(None, "add", None),
        ],
        model="gemini-3-pro-001",
        stop_reason="endTurn",
        turn={"role": "model", "parts": parts},
        usage=USAGE,
    )


def test_of_several_candidates_the_first_by_its_index_is_the_answer() -> None:
    whole = reply_of({"text": "second"}, index=1)
    whole["candidates"] += reply_of({"text": "first"}, index=0)["candidates"]
    streamed: dict[str, Any] = {}
    other = {"candidates": [{"index": 1, "content": {"parts": [{"text": "second"}]}}]}
    shown = read_event(streamed, other) + read_event(streamed, reply_of({"text": "first"}))

    assert read_reply(whole, ASKED).content == read_reply(streamed, ASKED).content == ["first"]
    assert shown == "first"


@pytest.mark.parametrize("arguments", [[], "", 0, [1]])
def test_arguments_that_are_no_object_are_an_error_that_names_the_tool(arguments: object) -> None:
    with pytest.raises(SamplingError, match=r"^the model called 'add' with arguments that are no"):
        answer_of(read_reply(reply_of({"functionCall": {"name": "add", "args": arguments}}), ASKED), ASKED)


def test_a_turn_with_calls_is_kept_where_it_must_go_back(subtests: pytest.Subtests) -> None:
    """What a newer model did not sign, it takes back as it is: only the turn tells that nothing is lost."""
    call: dict[str, Any] = {"functionCall": {"name": "add", "args": {}}}
    signed, code = {**call, "thoughtSignature": "AA=="}, {"executableCode": {"code": "1+1"}}
    table: list[tuple[str, str, list[dict[str, Any]], bool]] = [
        ("older, unsigned", "gemini-2.5-pro", [call], False),
        ("older, signed", "gemini-2.5-pro", [signed], True),
        ("older, with what a tool of Google has left", "gemini-2.5-pro", [code, call], True),
        ("newer, unsigned", "gemini-3-pro", [call], True),
    ]
    for case, model, parts, kept in table:
        with subtests.test(case):
            reply = read_reply(reply_of(*parts), prompt(tools=[ADD], model=model))
            assert reply.turn == ({"role": "model", "parts": parts} if kept else None)


@pytest.mark.backends("asyncio")  # elsewhere the adapter uses the blocking side of the SDK
async def test_a_signed_picture_comes_back_in_its_turn() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "AA=="}
    parts: list[dict[str, Any]] = [{"text": "Here", "thoughtSignature": "AA=="}, picture]
    sent: list[dict[str, Any]] = []

    async def generate_content(*, config: dict[str, Any], **rest: object) -> object:
        sent.append(config["http_options"]["extra_body"])
        return SimpleNamespace(sdk_http_response=SimpleNamespace(body=json.dumps(reply_of(*parts))))

    aio = SimpleNamespace(models=SimpleNamespace(generate_content=generate_content))
    model = GeminiModel(SimpleNamespace(vertexai=False, aio=aio), "gemini-3-pro-image")
    drawn = await run_tool_loop(model, "Draw.")
    await run_tool_loop(model, messages=[*drawn.messages, UserMessage("Blue.")])

    assert sent[1]["contents"][1] == {"role": "model", "parts": parts}


def test_of_several_calls_the_first_is_kept_if_the_server_wants_one() -> None:
    first = {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "AA=="}
    second = {"functionCall": {"name": "add", "args": {"a": 2}}}
    one = prompt(tools=[ADD], toolChoice={"mode": "auto", "disable_parallel_tool_use": True})

    reply = read_reply(reply_of(first, second, {"text": "!"}), one)

    assert reply.content == [Call(None, "add", {"a": 1}), "!"]
    assert reply.turn == {"role": "model", "parts": [first, {"text": "!"}]}


def test_finish_reasons() -> None:
    reasons = {
        "STOP": "endTurn",
        "MAX_TOKENS": "maxTokens",
        "CONTINUATION": "maxTokens",
        **dict.fromkeys(("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "IMAGE_SAFETY"), "content_filter"),
        "OTHER": "OTHER",
        "NEWER_THAN_US": "NEWER_THAN_US",
    }

    read = {finish: read_reply(reply_of({"text": "a"}, finish=finish), ASKED) for finish in reasons}
    assert read == {name: Reply(["a"], "gemini-3-pro-001", stop, usage=USAGE) for name, stop in reasons.items()}


def test_a_blocked_prompt_is_a_content_filter() -> None:
    reply = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 11}}

    usage = {"inputTokens": 11, "outputTokens": 0}
    assert read_reply(reply, ASKED) == Reply([], "gemini-3-pro", "content_filter", usage=usage)


@pytest.mark.parametrize("finish", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_calls_that_gemini_keeps_to_itself_are_an_error_after_which_the_model_is_asked_again(finish: str) -> None:
    reply = read_reply(reply_of({"text": "So:"}, finish=finish, finishMessage="add(a="), ASKED)

    with pytest.raises(UnusableCalls, match=rf"^the model called a tool .+ \({finish}\)$") as caught:
        answer_of(reply, ASKED)
    assert (caught.value.answer.text, caught.value.problems) == ("So:", {})


def test_a_reply_without_an_answer_is_an_error(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, str]] = [
        ("MISSING_THOUGHT_SIGNATURE", "the request has a call of a tool without its thought signature"),
        ("PUP_LIMITED_DISABLED", "the account is limited or disabled"),
    ]
    for finish, problem in table:
        with subtests.test(finish):
            with pytest.raises(SamplingError) as raised:
                read_reply(reply_of(finish=finish, finishMessage="add(a="), ASKED)

            assert str(raised.value) == f"{problem} ({finish})"


def test_calls_in_pieces_are_an_error_that_names_the_option() -> None:
    pieces = [
        {"name": "add", "willContinue": True},
        {"partialArgs": [{"jsonPath": "$.a", "numberValue": 1}], "willContinue": True},
        {},
    ]

    with pytest.raises(SamplingError, match="leave streamFunctionCallArguments out of the options"):
        read_reply(reply_of(*({"functionCall": piece} for piece in pieces)), ASKED)


@pytest.mark.parametrize("reply", [{}, {"usageMetadata": {}}, reply_of({"text": "a"}, finish=None)])
def test_a_stream_that_ended_early_is_an_error(reply: dict[str, Any]) -> None:
    with pytest.raises(Unfinished):
        read_reply(reply, ASKED)


def test_usage_has_all_that_is_told() -> None:
    reply = reply_of({"text": "a"})
    reply["usageMetadata"] = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 20,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 38,
    }

    assert read_reply(reply, ASKED).usage == {
        "inputTokens": 15,
        "outputTokens": 23,
        "reasoningTokens": 20,
        "cacheReadTokens": 4,
    }


# Streams

WHOLE: list[dict[str, Any]] = [
    {"text": "Let me think about grüße.", "thought": True},
    {"text": "First I add, and then I say more than one word."},
    {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "c2ln+/=="},
    {"functionCall": {"name": "add", "args": {"b": [1, 2]}}},
    {"text": "And after the calls there is text, too."},
    {"text": "", "thoughtSignature": "AA=="},
]


def pieces(parts: Sequence[dict[str, Any]], choose: random.Random) -> Iterator[dict[str, Any]]:
    """*parts*, with the plain texts cut anywhere."""
    for part in parts:
        if "thoughtSignature" in part or "functionCall" in part:
            yield part
            continue
        words = part["text"]
        while words:
            length = choose.randint(1, len(words))
            yield {**part, "text": words[:length]}
            words = words[length:]


def events(parts: Sequence[dict[str, Any]], choose: random.Random) -> Iterator[dict[str, Any]]:
    """A stream of *parts*; the finish reason comes anywhere in its second half."""
    left = list(pieces(parts, choose))
    finish = choose.randint(len(left) // 2, len(left))
    sent = 0
    while sent <= len(left):
        number = choose.randint(0, 2) if sent < len(left) else 1
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": left[sent : sent + number]}, "index": 0}
        if sent <= finish < sent + number:
            candidate["finishReason"] = "STOP"
        sent += number
        usage = {"promptTokenCount": 11, "candidatesTokenCount": sent}
        yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-pro-001"}
    yield {"usageMetadata": {"candidatesTokenCount": 7}}


def test_any_split_of_a_stream_folds_to_the_reply_without_a_stream() -> None:
    choose = random.Random(13)
    expected = read_reply(reply_of(*WHOLE), ASKED)
    for _ in range(SPLITS):
        reply: dict[str, Any] = {}
        told = "".join([read_event(reply, event) for event in events(WHOLE, choose)])

        assert read_reply(reply, ASKED) == expected
        assert told == "First I add, and then I say more than one word.And after the calls there is text, too."


def test_a_stream_of_many_pieces_is_folded_in_linear_time() -> None:
    """The parts of a reply are its pieces until it is read: nothing is copied at each event."""
    reply: dict[str, Any] = {}
    for _ in range(1000):
        read_event(reply, {"candidates": [{"content": {"parts": [{"text": "ab"}]}}]})
    before = reply["candidates"][0]["content"]["parts"]
    read_event(reply, {"candidates": [{"finishReason": "STOP"}]})

    assert reply["candidates"][0]["content"]["parts"] is before
    assert len(before) == 1000
    assert read_reply(reply, ASKED) == Reply(["ab" * 1000], "gemini-3-pro", "endTurn")


def test_an_error_that_is_null_is_none() -> None:
    whole = {**reply_of({"text": "ok"}), "error": None}
    streamed: dict[str, Any] = {}
    read_event(streamed, whole)

    assert read_reply(whole, ASKED).content == read_reply(streamed, ASKED).content == ["ok"]


def test_an_error_behind_http_200_is_raised() -> None:
    with pytest.raises(ProviderError) as raised:
        read_reply({"error": {"code": 503, "message": "secret", "status": "UNAVAILABLE"}}, ASKED)

    assert (str(raised.value), raised.value.transient) == ("gemini: the model failed (HTTP 503), UNAVAILABLE", True)
    assert "secret" in str(raised.value.original)
    with pytest.raises(ProviderError, match=r"^gemini: the model failed$"):
        read_reply({"error": "secret"}, ASKED)


def test_the_path_of_a_model(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, bool, str]] = [
        ("gemini-3-pro", False, "models/gemini-3-pro"),
        ("models/gemini-3-pro", False, "models/gemini-3-pro"),
        ("tunedModels/mine", False, "tunedModels/mine"),
        ("gemini-3-pro", True, "publishers/google/models/gemini-3-pro"),
        ("meta/llama-4", True, "publishers/meta/models/llama-4"),
        ("publishers/meta/models/llama-4", True, "publishers/meta/models/llama-4"),
        ("projects/p/locations/l/endpoints/1", True, "projects/p/locations/l/endpoints/1"),
    ]
    for model, is_vertex, path in table:
        with subtests.test(model=model, is_vertex=is_vertex):
            assert _path(model, is_vertex=is_vertex) == path


def streaming(api: object) -> GeminiModel:
    """A model whose SDK makes its requests by *api*."""
    aio = SimpleNamespace(models=SimpleNamespace(generate_content=print))
    return GeminiModel(SimpleNamespace(vertexai=False, aio=aio, _api_client=api), "gemini-3-pro", stream=True)


@pytest.mark.backends("trio")  # where the adapter uses the blocking side of the SDK, in a thread
async def test_a_response_that_comes_after_the_request_was_cancelled_is_hung_up() -> None:
    asked, answered, closed = Event(), Event(), Event()

    def ask(request: object, *, stream: bool) -> object:
        asked.set()
        assert answered.wait(25)
        return SimpleNamespace(response_stream=SimpleNamespace(close=closed.set))

    model = streaming(SimpleNamespace(_build_request=lambda *request: request, _request=ask))
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model, prompt().request)
            assert await anyio.to_thread.run_sync(asked.wait, 10)
            tasks.cancel_scope.cancel()
        assert not closed.is_set()
        answered.set()
        assert await anyio.to_thread.run_sync(closed.wait, 10)


@pytest.mark.backends("asyncio")  # where the adapter uses the SDK's asynchronous side
async def test_a_response_of_either_http_library_of_the_sdk_is_closed() -> None:
    async def segments() -> AsyncGenerator[dict[str, Any]]:
        yield reply_of({"text": "ok"})

    async def aclose() -> None:
        closed.append("aclose")

    async def ask(request: object, *, stream: bool) -> object:
        return SimpleNamespace(response_stream=streams.pop(0), async_segments=segments)

    closed: list[str] = []
    streams = [SimpleNamespace(aclose=aclose), SimpleNamespace(close=lambda: closed.append("close"))]
    model = streaming(SimpleNamespace(_build_request=lambda *request: request, _async_request=ask))

    assert [(await model(prompt().request)).text for _ in range(2)] == ["ok", "ok"]
    assert closed == ["aclose", "close"]


async def test_leaving_closes_both_sides_of_the_sdk() -> None:
    class Asynchronous:
        models = SimpleNamespace(generate_content=print)

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None:
            closed.append("asynchronous")

    closed: list[str] = []
    sdk = SimpleNamespace(vertexai=False, aio=Asynchronous(), close=lambda: closed.append("blocking"))
    async with GeminiModel(sdk, "gemini-3-pro"):
        assert closed == []

    assert closed == ["asynchronous", "blocking"]


async def test_an_sdk_without_the_method_below_its_streams_is_one_error_that_says_so() -> None:
    """Whole answers come through its public method."""
    with pytest.raises(ProviderError) as raised:
        await streaming(object())(prompt().request)

    assert str(raised.value) == (
        "gemini: this release of the SDK has no _api_client._build_request, which this adapter needs: "
        "install an earlier one"
    )


def test_a_stream_that_fails_tells_its_status_and_code_and_no_other_text() -> None:
    failures: list[tuple[dict[str, object], str, int | None, str | None]] = [
        ({"code": 503, "status": "UNAVAILABLE", "message": "secret"}, " (HTTP 503), UNAVAILABLE", 503, "UNAVAILABLE"),
        ({"code": 10**9, "status": "\x1b[2Jkey AIzaSyDUMMY is bad"}, "", None, None),
        ({"code": "503", "status": ["UNAVAILABLE"]}, "", None, None),
    ]
    for error, more, status, code in failures:
        with pytest.raises(ProviderError) as raised:
            read_event({}, {"error": error})
        failure = raised.value
        assert (str(failure), failure.status, failure.code) == (f"gemini: the stream failed{more}", status, code)
        assert str(failure.original) == str(error)
