"""OpenAI's Responses API, both ways: what is written for a request, and what a reply and a stream say."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.replies import Call, answer_of
from mcp_host.providers.openai import NAME_RULE
from mcp_host.providers.openai_responses import OPEN, read_event, read_reply, write_request
from mcp_host.types import ImageContent
from tests.extent import THOROUGH
from tests.providers import prompts
from tests.providers.prompts import (
    ADD,
    NOW,
    PNG,
    SCHEMA,
    STRICT,
    USER,
    WAV,
    Counted,
    deep_schema,
    pieces,
    refusal,
    result,
    text,
    used,
)

FUNCTION = {"type": "function", "name": "add", "description": "Adds", "parameters": SCHEMA, "strict": False}
IMAGE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}


prompt = partial(prompts.prompt, rule=NAME_RULE, model="gpt-5.6")


def resource(**contents: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a/b%20c", **contents}}


# Requests


def test_a_plain_request_is_not_stored_and_asks_for_encrypted_reasoning() -> None:
    assert write_request(prompt(systemPrompt="Be brief", metadata={"k": "v"}, temperature=0.5)) == {
        "model": "gpt-5.6",
        "input": [{"role": "user", "content": "Hi"}],
        "instructions": "Be brief",
        "max_output_tokens": 100,
        "metadata": {"k": "v"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_a_model_that_does_not_reason_takes_a_temperature_and_no_encrypted_reasoning() -> None:
    assert write_request(prompt(model="gpt-4.1-mini", temperature=0.5)) == {
        "model": "gpt-4.1-mini",
        "input": [{"role": "user", "content": "Hi"}],
        "max_output_tokens": 100,
        "temperature": 0.5,
        "store": False,
    }


def test_what_a_tool_result_has_is_written(subtests: pytest.Subtests) -> None:
    pdf = {"type": "input_file", "filename": "b c.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    link = {"type": "resource_link", "uri": "file:///b", "name": "b"}
    csv = resource(blob="aGk=", mimeType="text/csv; charset=utf-8")
    table: list[tuple[str, dict[str, Any], object]] = [
        ("text", result(text("3")), "3"),
        ("none", result(), ""),
        ("texts", result(text("3"), text("4")), "3\n4"),
        ("image", result(text("3"), PNG), [{"type": "input_text", "text": "3"}, IMAGE]),
        ("jpg", result({**PNG, "mimeType": "image/JPG"}), [{**IMAGE, "image_url": "data:image/jpeg;base64,aGk="}]),
        ("resource", result(resource(text="words")), "Contents of file:///a/b%20c:\nwords"),
        ("resource without a URI", result(resource(text="words", uri="")), "words"),
        ("text blob", result(csv), "Contents of file:///a/b%20c:\nhi"),
        ("image blob", result(resource(blob="aGk=", mimeType="image/png")), [IMAGE]),
        ("pdf", result(resource(blob="JVBERi0=", mimeType="application/pdf")), [pdf]),
        ("link", result(link), '{"name":"b","uri":"file:///b","type":"resource_link"}'),
        ("error", result(text("no"), isError=True), "The tool failed:\nno"),
        ("error without text", result(isError=True), "The tool failed:"),
        ("structured content that the text says", result(text('{"a": 1}'), structuredContent={"a": 1}), '{"a": 1}'),
        ("structured content", result(text("see"), structuredContent={"a": 1}), 'see\n{"a":1}'),
        ("structured content alone", result(structuredContent={"a": 1}), '{"a":1}'),
    ]
    for case, message, written in table:
        with subtests.test(case):
            assert write_request(prompt(USER, used(a=1), message))["input"][1:] == [
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
                {"type": "function_call_output", "call_id": "c1", "output": written},
            ]


def test_a_text_that_is_empty_is_left_out() -> None:
    conversation = (
        prompts.said("user", text(""), PNG),
        prompts.said("assistant", text(" "), *used()["content"]),
        result(text(""), PNG),
    )

    assert write_request(prompt(*conversation, prompts.said("assistant", text("")), prompts.said("user", text("\n"))))[
        "input"
    ] == [
        {"role": "user", "content": [IMAGE]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [IMAGE]},
    ]
    nothing = refusal(write_request, prompt(prompts.said("assistant", text(""))))
    assert nothing == "messages: this model takes no empty text, and there is nothing else"


def test_parallel_calls_and_results_keep_their_order() -> None:
    calls = {"role": "assistant", "content": [text("Both."), *used("c1")["content"], *used("c2", "now")["content"]]}
    results = {"role": "user", "content": result(text("2"), id="c2")["content"] + result(text("1"))["content"]}

    assert write_request(prompt(USER, calls, results))["input"][1:] == [
        {"role": "assistant", "content": "Both."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ]


def test_an_id_that_is_too_long_is_the_same_other_one_in_call_and_result() -> None:
    items = write_request(prompt(USER, used("x" * 41), result(id="x" * 41)))["input"]

    assert items[1]["call_id"] == items[2]["call_id"] != "x" * 41
    assert len(items[1]["call_id"]) <= 40


def test_the_tool_choice_is_written(subtests: pytest.Subtests) -> None:
    now = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}, "strict": False}
    alone: dict[str, object] = {"disable_parallel_tool_use": True}
    table: list[tuple[str, dict[str, Any], dict[str, object]]] = [
        ("absent", {}, {}),
        ("auto", {"toolChoice": {"mode": "auto"}}, {"tool_choice": "auto"}),
        ("empty", {"toolChoice": {}}, {"tool_choice": "auto"}),
        ("required", {"toolChoice": {"mode": "required"}}, {"tool_choice": "required"}),
        ("none", {"toolChoice": {"mode": "none"}}, {"tool_choice": "none"}),
        ("alone", {"toolChoice": {"mode": "auto", **alone}}, {"tool_choice": "auto", "parallel_tool_calls": False}),
        ("none, not parallel", {"toolChoice": {"mode": "none", **alone}}, {"tool_choice": "none"}),
    ]
    fields = ("tools", "tool_choice", "parallel_tool_calls", "text")
    for case, params, written in table:
        with subtests.test(case):
            body = write_request(prompt(tools=[ADD, NOW], **params))
            assert {name: body[name] for name in fields if name in body} == {"tools": [FUNCTION, now], **written}


def test_a_single_forced_tool_is_the_strict_format_of_the_text_where_it_can_be(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    form = {"type": "json_schema", "name": "add", "description": "Adds", "schema": STRICT, "strict": True}
    as_format = {"text": {"format": form}}
    as_function = {"tool_choice": {"type": "function", "name": "add"}}
    one = {"type": "tool", "name": "add"}
    required = {"mode": "required", "disable_parallel_tool_use": True}
    bounded = {
        "name": "add",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}},
    }
    optional = {**ADD, "inputSchema": {**SCHEMA, "required": []}}
    nullable = {**STRICT, "properties": {"a": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}
    table: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("one of two", {"tools": [ADD, NOW], "toolChoice": one}, as_format),
        ("the only one", {"tools": [ADD], "toolChoice": required}, as_format),
        ("optional", {"tools": [optional], "toolChoice": one}, {"text": {"format": {**form, "schema": nullable}}}),
        ("not strict", {"tools": [bounded], "toolChoice": one}, as_function),
        ("stop sequences", {"tools": [ADD], "toolChoice": one, "stopSequences": ["}"]}, as_function),
        (
            "the host's text",
            {"tools": [ADD], "toolChoice": one, "options": {"text": {"verbosity": "low"}}},
            as_function,
        ),
    ]
    fields = ("tool_choice", "parallel_tool_calls", "text")
    for case, params, written in table:
        with subtests.test(case):
            body = write_request(prompt(**params))
            assert {name: body[name] for name in fields if name in body} == written
            assert ("tools" in body) == (written is as_function)
    assert caplog.messages == ["the inputSchema of 'add' is too rich for OpenAI's strict mode: it is a function"]


REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e", "status": None}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}


def test_a_turn_with_reasoning_goes_back_as_it_was() -> None:
    turn = [{name: value for name, value in REASONING.items() if value is not None}, CALL]

    body = write_request(prompt(USER, used(), result(text("1")), turns={1: turn}))

    output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    assert body["input"] == [{"role": "user", "content": "Hi"}, *turn, output]


def test_what_the_api_does_not_take_is_refused() -> None:
    no_audio = "this model takes no audio at the Responses API"
    no_schema = "the tool 't': this model takes no such schema: it is nested too deep"
    refused = [
        (f"messages[0]: {no_audio}", prompt({"role": "user", "content": [WAV]})),
        (f"messages[2]: {no_audio}", prompt(USER, used(), result(WAV))),
        (f"messages[2]: {no_audio}", prompt(USER, used(), result(resource(blob="aGk=", mimeType="audio/mpeg")))),
        ("messages[0]: this model takes no image/tiff", prompt({"role": "user", "content": [{**PNG, "mimeType": "image/tiff"}]})),
        ("messages[2]: this model takes no files of an unknown type", prompt(USER, used(), result(resource(blob="aGk=")))),
        ("messages[2]: this model takes no text/plain that is not UTF-8", prompt(USER, used(), result(resource(blob="/w==", mimeType="text/plain")))),
        ("messages[1]: this model takes no image in an assistant's message", prompt(USER, {"role": "assistant", "content": [PNG]})),
        ("temperature: this model takes 0 to 2, not 2.5", prompt(temperature=2.5)),
        ("maxTokens: this model takes at least 16, not 15", prompt(maxTokens=15)),
        ("metadata: this model takes only texts of 512 characters, under names of 64: not 'trace'", prompt(metadata={"trace": 1})),
        ("metadata: this model takes at most 16 pairs", prompt(metadata=dict.fromkeys(map(str, range(17)), ""))),
        (no_schema, prompt(tools=[{"name": "t", "inputSchema": deep_schema()}])),
        # no schema for the strict format either
        (no_schema, prompt(tools=[{"name": "t", "inputSchema": deep_schema()}], toolChoice={"mode": "required"})),
    ]  # fmt: skip  # one case on each line

    assert [refusal(write_request, asked) for _, asked in refused] == [sentence for sentence, _ in refused]


# Replies


def said(*parts: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    written = [{"type": "output_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": written, **fields}


def response(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "model": "gpt-x", "status": status, "output": list(output), **fields}


ONE = Call("c1", "add", '{"a":1}')


def unfinished(reason: str) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def test_a_reply_is_read(subtests: pytest.Subtests) -> None:
    bare = {"type": "function_call", "name": "now"}
    table: list[tuple[str, dict[str, Any], list[object], str]] = [
        ("text", response(said("3")), ["3"], "endTurn"),
        ("nothing", response(), [], "endTurn"),
        ("empty", response(said("")), [], "endTurn"),
        ("calls", response(said("a", "b"), CALL), ["a", "b", ONE], "toolUse"),
        ("refusal", response(said({"type": "refusal", "refusal": "No."}), CALL), ["No.", ONE], "refusal"),
        ("cut off", response(said("a"), **unfinished("max_output_tokens")), ["a"], "maxTokens"),
        ("filtered", response(CALL, **unfinished("content_filter")), [ONE], "content_filter"),
        ("incomplete", response(CALL, status="incomplete"), [ONE], "maxTokens"),
        ("image", response({"type": "image_generation_call", "id": "ig_1", "result": "aGk=", "output_format": "webp"}), [ImageContent(data="aGk=", mime_type="image/webp")], "endTurn"),
        ("search", response({"type": "web_search_call", "id": "ws_1"}, said("3")), ["3"], "endTurn"),
        ("a search of tools before a call", response(said("3"), {"type": "tool_search_call"}, {"type": "tool_search_output"}, CALL), ["3", ONE], "toolUse"),
        ("a container of OpenAI", response({"type": "shell_call", "call_id": "s"}, {"type": "shell_call_output", "call_id": "s"}, said("3")), ["3"], "endTurn"),
        ("xAI", response({"type": "custom_tool_call", "name": "x_keyword_search"}, {"type": "web_search_call"}, said("3")), ["3"], "endTurn"),
        ("a text alone", response({"type": "message"}, {"type": "message", "content": None}, {"type": "message", "content": "3"}), ["3"], "endTurn"),
        ("a newer part", response(said({"type": "of_next_year"}, "3")), ["3"], "endTurn"),
        ("a call without an id", response({name: CALL[name] for name in ("type", "name", "arguments")}), [replace(ONE, id=None)], "toolUse"),
        ("a bare call", response(bare), [Call(None, "now", None)], "toolUse"),
        ("a stop sequence", response(said("a\n\nbEND")), ["a"], "stopSequence"),
        ("a stop sequence in the second text", response(said("ab", "ENDc")), ["ab"], "stopSequence"),
    ]  # fmt: skip  # one case on each line
    for nothing in ("", " ", "null", " null\n"):
        call = response({**bare, "arguments": nothing})
        table.append((f"a call with {nothing!r}", call, [Call(None, "now", None)], "toolUse"))
    for case, reply, content, stop_reason in table:
        with subtests.test(case):
            read = read_reply(reply, prompt(stopSequences=["END", "\n\n", ""]))

            assert (read.content, read.stop_reason, read.model) == (content, stop_reason, "gpt-x")


def test_tokens_are_counted() -> None:
    usage = {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 39,
    }

    assert read_reply(response(usage=usage), prompt()).usage == {
        "inputTokens": 30,
        "outputTokens": 9,
        "reasoningTokens": 4,
        "cacheReadTokens": 20,
        "cacheWriteTokens": 5,
    }
    assert read_reply(response(), prompt()).usage is None


def test_an_output_with_reasoning_or_a_phase_is_kept_as_a_whole() -> None:
    phased = said("Let me see.", phase="commentary")
    tied = {**CALL, "namespace": "crm"}

    assert read_reply(response(REASONING, CALL), prompt()).turn == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        CALL,
    ]
    assert read_reply(response(phased, CALL), prompt()).turn == [phased, CALL]
    assert read_reply(response(tied), prompt()).turn == [tied]
    assert read_reply(response(said("a", phase=None), CALL), prompt()).turn is None


def test_reasoning_that_is_neither_encrypted_nor_stored_is_not_sent_back(subtests: pytest.Subtests) -> None:
    """ "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."."""
    bare = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Sums."}]}
    readable = {**bare, "content": [{"type": "reasoning_text", "text": "Sums."}]}  # of vLLM
    search = {"type": "web_search_call", "id": "ws_1"}
    tied = {**CALL, "namespace": "crm"}
    table: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None]] = [
        ("left out", [bare, CALL], None),
        ("null", [{**bare, "encrypted_content": None}, said("a"), CALL], None),
        ("empty", [{**bare, "encrypted_content": "", "content": []}, CALL], None),
        ("one of two", [{**bare, "id": "rs_0", "encrypted_content": "e"}, bare, search, CALL], None),
        ("with a tied call", [bare, tied], [{name: tied[name] for name in tied if name != "id"}]),
        ("not encrypted", [readable, CALL], [readable, CALL]),
    ]
    for case, output, turn in table:
        with subtests.test(case):
            assert read_reply(response(*output), prompt()).turn == turn
    assert read_reply(response(bare, CALL), prompt(options={"store": True})).turn == [bare, CALL]


def test_the_text_in_the_strict_format_is_the_call_if_it_is_whole(subtests: pytest.Subtests) -> None:
    asked = prompt(tools=[{**ADD, "name": "a/b"}], toolChoice={"mode": "required"})
    comment, final = said("I will add.", phase="commentary"), said('{"a": 1}', phase="final_answer")
    call = Call(None, "a_b", {"a": 1})
    table: list[tuple[str, dict[str, Any], list[object], str]] = [
        ("whole", response(said('{"a": 1}')), [call], "toolUse"),
        ("after a comment", response(comment, final), ["I will add.", call], "toolUse"),
        ("refused", response(said({"type": "refusal", "refusal": "No."})), ["No."], "refusal"),
        ("cut off", response(said('{"a'), status="incomplete"), ['{"a'], "maxTokens"),
        ("other words", response(comment, said("No.")), ["I will add.", "No."], "endTurn"),
        ("empty", response(), [], "endTurn"),
    ]
    for case, reply, content, stop_reason in table:
        with subtests.test(case):
            read = read_reply(reply, asked)
            assert (read.content, read.stop_reason) == (content, stop_reason)
    [use] = answer_of(read_reply(response(said('{"a": 1}')), asked), asked).tool_uses
    assert (use.name, use.input) == ("a/b", {"a": 1})


def test_a_turn_with_reasoning_whose_text_is_a_call_goes_back_as_it_was_and_then_as_the_call() -> None:
    """The API refuses reasoning without the message that followed it, and results without a call."""
    turn = [{name: value for name, value in REASONING.items() if value is not None}, said('{"a":1}')]

    body = write_request(prompt(USER, used(a=1), result(text("1")), turns={1: turn}))

    called = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    assert body["input"] == [{"role": "user", "content": "Hi"}, *turn, called, output]


@pytest.mark.parametrize("reply", [response(status="in_progress"), {}], ids=["in progress", "nothing"])
def test_a_reply_that_goes_on_is_unfinished(reply: dict[str, Any]) -> None:
    with pytest.raises(Unfinished):
        read_reply(reply, prompt())


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("computer_call", []),
        ("computer_call", [CALL]),
        ("computer_call", [said("b")]),
        ("mcp_approval_request", [REASONING, CALL]),
        ("tool_search_call", []),
        ("tool_search_call", [CALL]),
    ],
)
def test_a_call_of_a_tool_that_the_host_runs_is_an_error(kind: str, after: Sequence[dict[str, Any]]) -> None:
    with pytest.raises(SamplingError, match=f"the model wrote a {kind}"):
        read_reply(response(said("a"), {"type": kind, "id": "cu_1"}, *after), prompt())


# Streams

ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Sums, I see."}]},
    said("Let me see. ", "Both at once: 😀", {"type": "refusal", "refusal": "Not that."}),
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": [2, 3]}'},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "now", "arguments": "{}"},
]
WHOLE = response(*ITEMS, usage={"input_tokens": 1, "output_tokens": 2})
KINDS = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "summary_text": ("response.reasoning_summary_text", "text"),
}


def deltas(chance: random.Random, index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one item: begun empty, grown in random pieces, and with or without the events that repeat it."""
    place = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "function_call":
        empty = {**item, "arguments": ""}
        events = [
            {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            for piece in pieces(chance, item["arguments"])
        ]
        done = [{"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}]
    else:
        field, counter = ("summary", "summary_index") if item["type"] == "reasoning" else ("content", "content_index")
        empty = {**item, field: []}
        rows = []
        done = []
        for nth, part in enumerate(item[field]):
            kind, key = KINDS[part["type"]]
            where = {**place, counter: nth}
            rows.append([{"type": f"{kind}.delta", **where, "delta": piece} for piece in pieces(chance, part[key])])
            done.append({"type": f"{kind}.done", **where, key: part[key]})
        events = mixed(chance, rows)
    added = {"type": "response.output_item.added", "output_index": index, "item": empty}
    finished = {"type": "response.output_item.done", "output_index": index, "item": item}
    return [added, *events, *(done if chance.random() < 0.5 else ()), *([finished] if chance.random() < 0.5 else ())]


def mixed(chance: random.Random, rows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All events of *rows*, each row in its order."""
    turns = [number for number, row in enumerate(rows) for _ in row]
    chance.shuffle(turns)
    rest = [iter(row) for row in rows]
    return [next(rest[number]) for number in turns]


def test_any_split_of_a_stream_folds_to_the_same_reply() -> None:
    expected = read_reply(WHOLE, prompt())
    chance = random.Random(13)
    for _ in range(100_000 if THOROUGH else 1_000):
        events = mixed(chance, [deltas(chance, index, item) for index, item in enumerate(ITEMS)])
        end = WHOLE if chance.random() < 0.5 else {**WHOLE, "output": []}
        reply: dict[str, Any] = {}
        read_event(reply, {"type": "response.created", "response": {**WHOLE, "status": "in_progress", "output": []}})
        heard = {0: "", 1: "", 2: ""}
        for event in events:
            words = read_event(reply, event)
            if words:
                heard[event["content_index"]] += words
        with pytest.raises(Unfinished):
            read_reply(reply, prompt())
        read_event(reply, {"type": "response.completed", "response": end})

        assert read_reply(reply, prompt()) == expected
        assert heard == {0: "Let me see. ", 1: "Both at once: 😀", 2: "Not that."}


def test_an_item_is_as_it_was_when_it_was_done() -> None:
    """ "The `encrypted_content` in `response.output_item.added` may be incomplete"."""
    reply: dict[str, Any] = {}
    for kind, encrypted in (("added", "e"), ("done", "encrypted")):
        item = {**REASONING, "encrypted_content": encrypted}
        read_event(reply, {"type": f"response.output_item.{kind}", "output_index": 0, "item": item})
    read_event(reply, {"type": "response.completed", "response": response(REASONING)})

    assert reply["output"] == [{**REASONING, "encrypted_content": "encrypted"}]


@pytest.mark.parametrize("end", [[], [{"type": "message", "id": "msg_1"}, {"type": "function_call"}]], ids=["", "bare"])
def test_an_item_that_is_done_without_its_text_has_that_of_its_deltas(end: list[dict[str, Any]]) -> None:
    reply: dict[str, Any] = {}
    bare = [{"type": "message", "id": "msg_1", "content": []}, {**CALL, "arguments": ""}]
    words = [("output_text", "3"), ("function_call_arguments", CALL["arguments"])]
    for index, (item, (kind, delta)) in enumerate(zip(bare, words, strict=True)):
        read_event(reply, {"type": f"response.{kind}.delta", "output_index": index, "delta": delta})
        read_event(reply, {"type": "response.output_item.done", "output_index": index, "item": item})
    read_event(reply, {"type": "response.completed", "response": response(*end)})

    assert read_reply(reply, prompt()).content == ["3", ONE]


def test_an_item_that_is_done_without_its_text_has_that_of_the_end() -> None:
    reply: dict[str, Any] = {}
    bare = {"type": "message", "id": "msg_1", "content": []}
    read_event(reply, {"type": "response.output_item.done", "output_index": 0, "item": bare})
    shown = read_event(reply, {"type": "response.completed", "response": response(said("3"))})

    assert (read_reply(reply, prompt()).content, shown) == (["3"], "3")


def test_an_index_that_is_null_is_the_first() -> None:
    reply: dict[str, Any] = {}
    for index in (None, 0):
        event = {"type": "response.output_text.delta", "output_index": 0, "content_index": index, "delta": "a"}
        read_event(reply, event)
    read_event(reply, {"type": "response.completed", "response": response()})

    assert read_reply(reply, prompt()).content == ["aa"]


def test_events_without_an_index_go_to_their_item() -> None:
    reply: dict[str, Any] = {}
    for item in ITEMS[2:]:
        read_event(reply, {"type": "response.output_item.added", "item": {**item, "arguments": ""}})
    for item in reversed(ITEMS[2:]):
        event = {"type": "response.function_call_arguments.delta", "item_id": item["id"], "delta": item["arguments"]}
        read_event(reply, event)
    read_event(reply, {"type": "response.completed", "response": response()})

    assert [(item["call_id"], item["arguments"]) for item in reply["output"]] == [
        ("c1", '{"a": 1, "b": [2, 3]}'),
        ("c2", "{}"),
    ]


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        ("server_error", True),
        ("server_is_overloaded", True),
        ("slow_down", True),
        ("invalid_prompt", False),
        (None, False),
    ],
)
def test_a_failure_says_whether_to_ask_again(code: str | None, transient: bool) -> None:
    error = {"code": code, "message": "secret"}
    failed = response(status="failed", error=error if code else None)
    streamed: dict[str, Any] = {}
    read_event(streamed, {"type": "response.failed", "response": failed})
    failures: list[Callable[[], object]] = [
        lambda: read_event({}, {"type": "error", **error}),
        lambda: read_event({}, {"type": "error", "error": error}),
        lambda: read_reply(failed, prompt()),
        lambda: read_reply(streamed, prompt()),
    ]
    says = f"openai: the model failed{f', {code}' if code else ''}"
    for fail in failures:
        with pytest.raises(ProviderError) as caught:
            fail()
        assert (str(caught.value), caught.value.transient) == (says, transient)
        assert "secret" in str(caught.value.original) or code is None


def test_a_long_text_is_folded_in_linear_time() -> None:
    """The texts of a reply are lists of pieces until it ends: nothing is copied at each event."""
    reply: dict[str, Any] = {}
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "ab"}
    read_event(reply, delta)
    [pieces] = reply[OPEN][0]["pieces"].values()
    for _ in range(999):
        read_event(reply, delta)

    assert [*map(id, reply[OPEN][0]["pieces"].values())] == [id(pieces)]
    assert pieces == ["ab"] * 1000
    read_event(reply, {"type": "response.completed", "response": response()})
    assert read_reply(reply, prompt()).content == ["ab" * 1000]


@pytest.mark.parametrize(
    ("kind", "said"), [("completed", "Let me see. Not that."), ("incomplete", "Let me see. Not that."), ("failed", "")]
)
def test_a_text_that_comes_only_with_the_end_of_the_response_is_shown_once(kind: str, said: str) -> None:
    message = {
        "content": [{"type": "output_text", "text": "Let me see. "}, {"type": "refusal", "refusal": "Not that."}]
    }
    ended = {"type": f"response.{kind}", "response": response({"type": "message", **message})}
    delta = {"type": "response.refusal.delta", "output_index": 0, "content_index": 1, "delta": "Not that."}

    assert read_event({}, ended) == said
    reply: dict[str, Any] = {}
    assert [read_event(reply, event) for event in (delta, ended)] == ["Not that.", ""]


def test_the_work_for_items_without_an_index_is_linear() -> None:
    class Id(Counted):
        pass

    folded: dict[str, Any] = {}
    ids = [Id(f"item_{number}") for number in range(1000)]

    for id in ids:
        item = {"type": "message", "id": id, "content": []}
        read_event(folded, {"type": "response.output_item.added", "item": item})
    for id in ids:
        read_event(folded, {"type": "response.output_text.delta", "item_id": id, "content_index": 0, "delta": "x"})
    read_event(folded, {"type": "response.completed", "response": {"status": "completed", "model": "m"}})

    assert Id.compared < 10_000
    assert len(folded["output"]) == 1000
    assert folded["output"][7]["content"] == [{"type": "output_text", "text": "x"}]
