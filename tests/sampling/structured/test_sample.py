"""`ServerSampling`: what it sends, and what it makes of the answers of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from itertools import product
from math import nan
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from mcp_host import ServerSampling
from mcp_host.errors import NotDeclared, ProtocolError, SamplingError
from mcp_host.sampling.structured import ParsedResult, ParseError, RequestedCall, ToolCallsResult, UnparsedResult
from mcp_host.types import CallToolResult, ModelHint, ModelPreferences, TextContent
from tests import spec
from tests.sampling.asking import Wire, result, text


class Move(BaseModel):
    """Where to play."""

    row: int = Field(ge=0, le=2)
    column: int


MOVE = {
    "type": "object",
    "properties": {"row": {"type": "integer", "minimum": 0, "maximum": 2}, "column": {"type": "integer"}},
    "required": ["row", "column"],
}


class Recorder:
    """A host that answers from a script, and records the requests. It checks them with the official schemas."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.requests: list[Wire] = []

    async def __call__(self, params: Wire) -> Mapping[str, Any]:
        self.requests.append(params)
        if "MCP_SPEC_DIR" in os.environ:
            for revision in ("2025-11-25", "2026-07-28"):
                spec.assert_valid(revision, "CreateMessageRequestParams", params)
        answer = self._answers.pop(0)
        assert isinstance(answer, dict)
        return answer


def says(words: str, stop: str = "endTurn") -> Wire:
    return {"role": "assistant", "content": text(words), "model": "m", "stopReason": stop}


def calls(*uses: Wire, stop: str = "toolUse") -> Wire:
    return {"role": "assistant", "content": list(uses), "model": "m", "stopReason": stop}


def use(name: str, arguments: Wire, id: str = "1") -> Wire:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def user(words: str) -> Wire:
    return {"role": "user", "content": text(words)}


def assistant(words: str) -> Wire:
    return {"role": "assistant", "content": text(words)}


def with_tools(*answers: object) -> tuple[ServerSampling, list[Wire]]:
    recorder = Recorder(*answers)
    return ServerSampling(recorder, with_tools=True), recorder.requests


def without_tools(*answers: object) -> tuple[ServerSampling, list[Wire]]:
    recorder = Recorder(*answers)
    return ServerSampling(recorder, with_tools=False), recorder.requests


# Plain


async def test_a_plain_answer_has_a_text_a_model_and_a_stop_reason() -> None:
    sampling, requests = with_tools(says("Because.", stop="maxTokens"))

    answer = await sampling.sample("Why?")

    assert requests == [{"messages": [user("Why?")], "maxTokens": 1024}]
    assert (answer.text, answer.model, answer.stop_reason) == ("Because.", "m", "maxTokens")
    assert answer.content == answer.answer.content == [TextContent(text="Because.")]
    assert [message.to_wire() for message in answer.messages] == [user("Why?"), assistant("Because.")]


async def test_all_options_are_sent() -> None:
    sampling, requests = with_tools(says("."), says("."), says("."), says("."))

    await sampling.sample(
        "Why?",
        system_prompt="Be brief.",
        max_tokens=5,
        model_preferences=ModelPreferences(hints=[ModelHint(name="m")], cost_priority=1),
        temperature=0.5,
        stop_sequences=(".",),
        metadata={"k": 1},
        include_context="none",
    )
    await sampling.sample("Why?", model_preferences="claude")
    await sampling.sample("Why?", model_preferences=["claude", "gpt"])
    await sampling.sample("Why?", model_preferences={"hints": [{"name": "claude"}], "costPriority": 1})

    assert requests[0] == {
        "messages": [user("Why?")],
        "systemPrompt": "Be brief.",
        "maxTokens": 5,
        "modelPreferences": {"hints": [{"name": "m"}], "costPriority": 1},
        "temperature": 0.5,
        "stopSequences": ["."],
        "metadata": {"k": 1},
        "includeContext": "none",
    }
    assert requests[1]["modelPreferences"] == {"hints": [{"name": "claude"}]}
    assert requests[2]["modelPreferences"] == {"hints": [{"name": "claude"}, {"name": "gpt"}]}
    assert requests[3]["modelPreferences"] == {"hints": [{"name": "claude"}], "costPriority": 1}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"role": "assistant"}, "content: Field required"),
        (calls(use("a", {"x": nan})), r"content(\[0\])?: Out of range float"),  # the next request may have to repeat it
    ],
    ids=["malformed", "no JSON"],
)
async def test_a_malformed_result_of_the_host_is_a_protocol_error(answer: Wire, problem: str) -> None:
    sampling, _ = with_tools(answer)

    with pytest.raises(ProtocolError, match=f"^malformed CreateMessageResult: {problem}"):
        await sampling.sample("Why?")


# With a schema


async def test_a_schema_is_carried_by_a_tool_and_what_was_wrong_in_a_call_is_its_result() -> None:
    wrong = use("answer", {"row": 7, "column": 2})
    sampling, requests = with_tools(calls(wrong), calls(use("answer", {"row": 1, "column": 2}, id="2")))

    answer = await sampling.sample("Your move?", schema=Move)

    assert answer.parsed == Move(row=1, column=2)
    assert answer.parse_error is None
    description = "Give your answer by calling this tool. Where to play."
    assert requests[0] == {
        "messages": [user("Your move?")],
        "maxTokens": 1024,
        "tools": [{"name": "answer", "description": description, "inputSchema": MOVE}],
        "toolChoice": {"mode": "required"},
    }
    problem = text("the answer does not fit the schema: row: Input should be less than or equal to 2")
    assert requests[1] == requests[0] | {
        "messages": [
            user("Your move?"),
            {"role": "assistant", "content": wrong},
            {"role": "user", "content": result("1", problem, isError=True)},
        ]
    }
    assert [message.to_wire() for message in answer.messages] == [
        user("Your move?"),
        assistant('{"row": 1, "column": 2}'),
    ]


async def test_without_tools_a_schema_is_in_the_prompt_and_a_wrong_text_is_asked_for_again() -> None:
    sampling, requests = without_tools(says("Row 1!"), says('{"row": 1, "column": 2}'))

    answer = await sampling.sample("Your move?", schema=Move)

    assert answer.parsed == Move(row=1, column=2)
    assert requests[0].keys() == {"messages", "maxTokens"}
    (message,) = requests[0]["messages"]
    *words, schema = message["content"]["text"].split("\n")
    assert words == [
        "Your move?",
        "",
        "Answer with JSON only, without any other text. It has to conform to this JSON Schema:",
    ]
    assert json.loads(schema) == {"description": "Where to play."} | MOVE
    assert requests[1]["messages"] == [
        message,
        assistant("Row 1!"),
        user("The answer is not JSON: expected value at line 1 column 1. Answer again."),
    ]
    assert answer.messages[0].to_wire() == user("Your move?")


@dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


SCHEMAS: list[tuple[Any, object, object]] = [
    (Move, {"row": 0, "column": 0}, Move(row=0, column=0)),
    (Point, {"x": 1}, Point(1)),
    (Named, {"name": "n"}, {"name": "n"}),
    (list[int], {"result": [1, 2]}, [1, 2]),
    (int, {"result": 3}, 3),
    (bool, {"result": False}, False),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Literal["a", "b"], {"result": "b"}, "b"),
    (int | None, {"result": None}, None),
    (TypeAdapter(tuple[int, str]), {"result": [1, "a"]}, (1, "a")),
    (MOVE, {"row": 0, "column": 0}, {"row": 0, "column": 0}),
    ({"type": "integer"}, {"result": 3}, 3),
    ({"enum": ["a"]}, {"result": "a"}, "a"),
]


async def test_any_type_that_pydantic_takes_is_a_schema(subtests: pytest.Subtests) -> None:
    for can_call, (schema, value, parsed) in product((True, False), SCHEMAS):
        with subtests.test(can_call=can_call, schema=schema):
            answer = calls(use("answer", value)) if can_call and isinstance(value, dict) else says(json.dumps(value))
            sampling = ServerSampling(Recorder(answer), with_tools=can_call)

            answered = await sampling.sample("?", schema=schema)

            assert isinstance(answered, ParsedResult)
            assert answered.parsed == parsed


async def test_the_words_of_a_validator_go_to_the_model_as_they_are() -> None:
    def is_free(square: int) -> int:
        if square == 5:
            raise ValueError("5 is taken")
        return square

    sampling, requests = without_tools(*[says(f'{{"result": {square}}}') for square in (5, 7)])

    answer = await sampling.sample("Your move?", schema=TypeAdapter(Annotated[int, AfterValidator(is_free)]))

    assert answer.parsed == 7
    assert requests[1]["messages"][-1] == user("The answer does not fit the schema: 5 is taken. Answer again.")


async def test_after_all_tries_there_is_a_parse_error() -> None:
    sampling, _ = without_tools(says("Row 1!"))

    answer = await sampling.sample("Your move?", schema=Move, retries=0)

    assert isinstance(answer, UnparsedResult)
    assert answer.parse_error == ParseError("the answer is not JSON: expected value at line 1 column 1", "Row 1!")
    assert answer.parsed is None


# With tools


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_calls_are_parsed_and_the_conversation_goes_on_with_all_results_in_one_message() -> None:
    uses = [use("Move", {"row": 1, "column": 2}), use("add", {"a": 1}, id="2")]
    sampling, requests = with_tools(calls(*uses), says("Done."))

    answer = await sampling.sample("?", tools=[Move, add], tool_choice="required")
    move, sum = answer.tool_calls
    await sampling.sample(messages=answer.answered({sum: 3, move: Move(row=1, column=2)}))

    assert requests[0]["toolChoice"] == {"mode": "required"}
    assert [tool["name"] for tool in requests[0]["tools"]] == ["Move", "add"]
    assert requests[0]["tools"][0] == {"name": "Move", "description": "Where to play.", "inputSchema": MOVE}
    assert move == RequestedCall("1", "Move", {"row": 1, "column": 2}, parsed=Move(row=1, column=2))
    assert sum == RequestedCall("2", "add", {"a": 1})
    assert requests[1]["messages"] == [
        user("?"),
        {"role": "assistant", "content": uses},
        {
            "role": "user",
            "content": [
                result("1", text('{"row":1,"column":2}'), structuredContent={"row": 1, "column": 2}),
                result("2", text("3")),
            ],
        },
    ]


async def test_a_client_without_tools_is_offered_none() -> None:
    sampling, requests = without_tools()

    with pytest.raises(NotDeclared, match=r"the client did not declare sampling\.tools"):
        await sampling.sample("?", tools=[add])

    assert requests == []


# What models and hosts do


async def test_a_host_that_answers_with_a_text_though_a_tool_was_forced_is_understood() -> None:
    """A list may be written as it is: only the arguments of a call have to be an object."""
    sampling, requests = with_tools(says('["a"]'), says("```json\n[1]\n```"), says('{"result": [1]}'))

    answers = [await sampling.sample("?", schema=list[int]) for _ in range(2)]

    assert [answer.parsed for answer in answers] == [[1], [1]]
    assert requests[1]["messages"][1:] == [
        assistant('["a"]'),
        user('The answer is not an object with one member, "result". Answer again.'),
    ]


@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
async def test_a_refusal_is_not_asked_for_again(stop: str) -> None:
    sampling, requests = with_tools(says("I cannot.", stop=stop))

    answer = await sampling.sample("?", schema=Move, retries=5)

    assert answer.parse_error == ParseError("the model refused to answer", "I cannot.")
    assert len(requests) == 1


async def test_an_empty_answer_is_not_part_of_the_conversation() -> None:
    empty = {"role": "assistant", "content": [], "model": "m", "stopReason": "endTurn"}
    sampling, requests = with_tools(empty, says(""), empty)

    answer = await sampling.sample("?", schema=Move, retries=1)
    plain = await sampling.sample("?")

    problem = "The answer is empty. Answer again."
    assert requests[1]["messages"] == [user(f"?\n\n{problem}")]
    assert answer.parse_error == ParseError("the answer is empty", "")
    assert [message.to_wire() for message in answer.messages] == [user("?")]
    assert [message.to_wire() for message in plain.messages] == [user("?")]


async def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    """Its call is not part of the conversation: nothing says that it is whole."""
    cut = calls(use("answer", {"row": 1, "column": 2}), stop="maxTokens")
    sampling, requests = with_tools(cut, calls(use("answer", {"row": 1, "column": 1})))

    answer = await sampling.sample("?", schema=Move)

    assert answer.parsed == Move(row=1, column=1)
    problem = "The answer was cut off: it has too many tokens. Answer again."
    assert requests[1]["messages"] == [user(f"?\n\n{problem}")]


async def test_each_of_several_answers_gets_its_result_before_the_model_is_asked_again() -> None:
    """Also where a model gives them the same id."""
    two = [use("answer", {"row": 1, "column": 1}, id="a"), use("answer", {"row": 2, "column": 2}, id="a")]
    sampling, requests = with_tools(calls(*two), says("?"))

    answer = await sampling.sample("?", schema=Move, retries=1)

    _, said, told = requests[1]["messages"]
    ids = [block["id"] for block in said["content"]]
    assert len(set(ids)) == 2
    assert [(block["toolUseId"], block["isError"]) for block in told["content"]] == [(id, True) for id in ids]
    assert answer.parse_error is not None


async def test_a_conversation_that_ends_with_the_model_goes_on_with_a_question() -> None:
    sampling, requests = with_tools(says("Row 1."), calls(use("answer", {"row": 1, "column": 2})))

    plain = await sampling.sample("Your move?")
    answer = await sampling.sample(messages=plain.messages, schema=Move)

    assert answer.parsed == Move(row=1, column=2)
    assert requests[1]["messages"] == [user("Your move?"), assistant("Row 1."), user("Now give your answer.")]


async def test_the_words_of_the_schema_follow_results_of_tools_in_a_message_of_their_own() -> None:
    sampling, requests = without_tools(says('{"result": 1}'))
    conversation = [{"role": "user", "content": [text("?"), text("??")]}]

    await sampling.sample(messages=conversation, schema=int)

    assert requests[0]["messages"][0] == conversation[0]
    assert requests[0]["messages"][1]["content"]["text"].startswith("Answer with JSON only")


async def test_calls_with_ids_of_before_get_fresh_ones() -> None:
    sampling, requests = with_tools(calls(use("add", {"a": 1}, id="1")), calls(use("add", {"a": 2}, id="1")), says("."))

    first = await sampling.sample("?", tools=[add])
    second = await sampling.sample(messages=first.answered({first.tool_calls[0]: 1}), tools=[add])
    await sampling.sample(messages=second.answered({second.tool_calls[0]: 2}))

    ids = [message["content"]["id"] for message in requests[2]["messages"] if message["role"] == "assistant"]
    assert len(set(ids)) == 2
    assert second.tool_calls[0].id == ids[1]


async def test_a_tool_choice_of_one_tool_offers_that_tool_alone_and_an_answer_may_have_no_call() -> None:
    """The specification has no such choice."""
    sampling, requests = with_tools(says("3"))

    answer = await sampling.sample("?", tools=[Move, add], tool_choice="add")

    assert [tool["name"] for tool in requests[0]["tools"]] == ["add"]
    assert requests[0]["toolChoice"] == {"mode": "required"}
    assert (answer.tool_calls, answer.text) == ((), "3")
    assert [message.to_wire() for message in answer.answered({})] == [user("?"), assistant("3")]


async def test_arguments_that_do_not_fit_a_model_are_a_parse_error_which_can_be_the_result() -> None:
    sampling, requests = with_tools(calls(use("Move", {"row": 7})), says("."))

    answer = await sampling.sample("?", tools=[Move])
    (call,) = answer.tool_calls
    assert call.parse_error is not None
    await sampling.sample(messages=answer.answered({call: call.parse_error}))

    problem = "the call does not fit the schema: row: Input should be less than or equal to 2; column: Field required"
    assert call == RequestedCall("1", "Move", {"row": 7}, parse_error=ParseError(problem, '{"row": 7}'))
    assert requests[1]["messages"][-1]["content"] == result("1", text(problem), isError=True)


async def calling(*uses: Wire) -> ToolCallsResult:
    """The answer of a model that is offered `add` and `Move`, and calls *uses*."""
    sampling, _ = with_tools(calls(*uses))
    return await sampling.sample("?", tools=[add, Move])


async def written(value: object) -> object:
    """How *value* goes out as the result of a call."""
    answer = await calling(use("add", {}))
    return answer.answered({answer.tool_calls[0]: value})[-1].to_wire()["content"]


TEXT = TextContent(text="a")

RESULTS: list[tuple[object, list[str], object]] = [
    ("a", ["a"], None),
    (TEXT, ["a"], None),
    ([TEXT, TEXT], ["a", "a"], None),
    (CallToolResult(content=[TEXT], structured_content={"a": 1}), ["a"], {"a": 1}),
    ({"a": 1}, ['{"a":1}'], {"a": 1}),
    (Move(row=1, column=2), ['{"row":1,"column":2}'], {"row": 1, "column": 2}),
    (3, ["3"], None),
    (None, ["null"], None),
    ([1, "a"], ['[1,"a"]'], None),
    ([], ["[]"], None),
    ([Move(row=1, column=2)], ['[{"row":1,"column":2}]'], None),
    (date(2026, 11, 22), ["2026-11-22"], None),
]


async def test_results_of_all_kinds(subtests: pytest.Subtests) -> None:
    for value, content, structured in RESULTS:
        with subtests.test(value=value):
            fields = {} if structured is None else {"structuredContent": structured}

            assert await written(value) == result("1", *map(text, content), **fields)


class SdkText(BaseModel):
    """Stands for a block of the official SDK."""

    type: Literal["text"] = "text"
    text: str
    annotations: Any = None
    meta: Any = Field(default=None, alias="_meta")


class SdkImage(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    type: Literal["image"] = "image"
    data: str
    mime_type: str
    annotations: Any = None


class SdkResult(BaseModel):
    content: list[SdkText | SdkImage]
    structured_content: Any = Field(default=None, alias="structuredContent")
    is_error: bool = Field(default=False, alias="isError")


class Note(BaseModel):
    """A value, though it has a field of that name."""

    type: str
    text: str


class Shout(BaseModel):
    type: Literal["text"] = "text"
    text: str


class Footnote(BaseModel):
    type: Literal["text"] = "text"
    text: int
    annotations: None = None


A, IMAGE = text("a"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def sdk_image() -> SdkImage:
    return SdkImage(data="aGk=", mime_type="image/png")


OF_THE_SDK: dict[str, tuple[object, Wire]] = {
    "a block": (sdk_image(), {"content": [IMAGE]}),
    "blocks": ([SdkText(text="a"), sdk_image()], {"content": [A, IMAGE]}),
    "blocks of both": ([SdkText(text="a"), TEXT], {"content": [A, A]}),
    "a failed result": (SdkResult(content=[SdkText(text="a")], isError=True), {"content": [A], "isError": True}),
    "a result": (
        SdkResult(content=[SdkText(text="a")], structuredContent={"a": 1}),
        {"content": [A], "structuredContent": {"a": 1}, "isError": False},
    ),
    "other values": (
        Footnote(text=5),
        {
            "content": [text('{"type":"text","text":5,"annotations":null}')],
            "structuredContent": {"type": "text", "text": 5, "annotations": None},
        },
    ),
    "a value": (
        Note(type="text", text="a"),
        {"content": [text('{"type":"text","text":"a"}')], "structuredContent": {"type": "text", "text": "a"}},
    ),
    "a value of one type": (
        Shout(text="a"),
        {"content": [text('{"type":"text","text":"a"}')], "structuredContent": {"type": "text", "text": "a"}},
    ),
}


async def test_results_of_the_official_sdk_go_out_as_they_are(subtests: pytest.Subtests) -> None:
    for case, (value, fields) in OF_THE_SDK.items():
        with subtests.test(case):
            assert await written(value) == {"type": "tool_result", "toolUseId": "1", **fields}


async def test_a_call_that_cannot_be_done_answers_itself() -> None:
    answer = await calling(use("add", {"a": 1, "b": 2}), use("subtract", {"a": 1}, id="2"), use("Move", {}, id="3"))

    results = answer.answered({answer.tool_calls[0]: 3})[-1].to_wire()["content"]

    unknown = "there is no tool 'subtract'"
    unfit = "the call does not fit the schema: row: Field required; column: Field required"
    assert answer.tool_calls[1:] == (
        RequestedCall("2", "subtract", {"a": 1}, parse_error=ParseError(unknown, '{"a": 1}')),
        RequestedCall("3", "Move", {}, parse_error=ParseError(unfit, "{}")),
    )
    assert results == [
        result("1", text("3")),
        result("2", text(unknown), isError=True),
        result("3", text(unfit), isError=True),
    ]


def cycle() -> list[object]:
    values: list[object] = []
    values.append(values)
    return values


NO_JSON: list[object] = [
    cycle(),
    "\ud800",
    SdkText(text="\ud800"),
    {"a": nan},
    CallToolResult(content=[], structured_content={"a": {1}}),
    {"a": "\ud800"},
    ["\ud800"],
    object(),
    Note.model_construct(type="\ud800", text="a"),
]


async def test_a_result_that_is_no_json_is_an_error_that_names_the_call(subtests: pytest.Subtests) -> None:
    for value in NO_JSON:
        with subtests.test(value=value):
            answer = await calling(use("add", {}))

            with pytest.raises(TypeError, match=r"^the result of 'add' is no JSON: "):
                answer.answered({answer.tool_calls[0]: value})


async def test_every_call_gets_one_result_and_no_other_does() -> None:
    answer = await calling(use("add", {}), use("add", {}, id="2"))
    first, second = answer.tool_calls

    with pytest.raises(ValueError, match=r"^the call of 'add' \('2'\) has no result$"):
        answer.answered({first: 1})
    with pytest.raises(ValueError, match=r"^'3' is no call of this answer$"):
        answer.answered({first: 1, second: 2, RequestedCall("3", "add", {}): 3})
    with pytest.raises(ValueError, match=r"^'1' is no call of this answer$"):
        answer.answered({"1": 1, second: 2})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"^the result of 'add' is no JSON: Unable to serialize unknown type"):
        answer.answered({first: object(), second: 2})
    with pytest.raises(TypeError, match=r"^the results must be a dict, with one for each call, not NoneType$"):
        answer.answered(None)  # type: ignore[arg-type]


# Wrong arguments


WRONG_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"schema": Move, "tools": [add]}, TypeError, "schema and tools exclude each other: sample with the tools first"),
    ({"tool_choice": "auto"}, TypeError, "tool_choice needs tools"),
    ({"max_token": 9}, TypeError, "'max_token' is no argument of a request to the model"),
    ({"stop_sequences": "."}, TypeError, "stop_sequences must be a list of str, not a str"),
    ({"temperature": "hot"}, ValueError, "temperature: Input should be a valid"),
    ({"model_preferences": [3]}, TypeError, "model_preferences must be .* not list"),
    ({"model_preferences": 5}, TypeError, "model_preferences must be .* not int"),
    ({"model_preferences": {"hints": 5}}, ValueError, "model_preferences: hints: Input should be a valid list"),
    ({"model_preferences": {"claude": 1}}, ValueError, "model_preferences: there is no 'claude'"),
    ({"schema": Move, "retries": -1}, ValueError, "retries must be"),
    ({"messages": []}, TypeError, "give either a prompt or messages, not both"),
]  # fmt: skip


async def test_wrong_arguments_are_refused_before_anything_is_sent(subtests: pytest.Subtests) -> None:
    for arguments, error, problem in WRONG_ARGUMENTS:
        with subtests.test(arguments=arguments):
            sampling, requests = with_tools()

            with pytest.raises(error, match=problem):
                await sampling.sample("?", **arguments)

            assert requests == []


def test_what_sends_the_requests_is_a_function() -> None:
    with pytest.raises(TypeError, match="create_message has to be a function, async or plain, not dict"):
        ServerSampling({}, with_tools=True)  # type: ignore[arg-type]


async def test_a_system_prompt_is_given_once() -> None:
    sampling, requests = with_tools(says("."))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]

    await sampling.sample(messages=messages)
    with pytest.raises(ValueError, match="the system prompt is given twice: as an argument, and in the messages"):
        await sampling.sample(messages=messages, system_prompt="Be kind.")

    assert requests == [{"messages": [user("?")], "maxTokens": 1024, "systemPrompt": "Be brief."}]


# What cannot be sent, and answers that are none


UNSENDABLE: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"a": object()}}, "metadata: Object of type object is not JSON serializable"),
    ({"metadata": {"a": "\ud800"}}, "metadata: .*surrogates not allowed"),
    ({"stop_sequences": ["a", "\ud800"]}, r"stopSequences\[1\]: .*surrogates not allowed"),
    ({"temperature": float("nan")}, "temperature: Out of range float values are not JSON compliant"),
    ({"temperature": 1e999}, "temperature: Out of range float values are not JSON compliant"),
]


async def test_what_is_no_json_is_not_sent(subtests: pytest.Subtests) -> None:
    for (arguments, field), schema in product(UNSENDABLE, (None, Move)):
        with subtests.test(arguments=arguments, schema=schema):
            sampling, requests = with_tools()
            if schema is not None:
                arguments = {**arguments, "schema": schema}

            with pytest.raises(ValueError, match=rf"^the request cannot be sent: {field}"):
                await sampling.sample("?", **arguments)

            assert requests == []


async def test_a_prompt_with_half_a_surrogate_pair_is_not_sent() -> None:
    sampling, requests = with_tools()

    with pytest.raises(ValueError, match=r"messages|TextContent"):
        await sampling.sample("\ud800")

    assert requests == []


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize(
    "answer",
    [{**says("x"), "role": "user"}, calls({"type": "tool_result", "toolUseId": "1", "content": []})],
    ids=["role", "tool_result"],
)
async def test_an_answer_that_is_none_of_an_assistant_raises_with_any_number_of_retries(
    answer: Wire, retries: int
) -> None:
    sampling, requests = with_tools(answer)

    no_answer = "role: Input should be 'assistant'$|it is a tool_result in an assistant message"
    with pytest.raises((ProtocolError, SamplingError), match=no_answer):
        await sampling.sample("?", schema=Move, retries=retries)

    assert len(requests) == 1
