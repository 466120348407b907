"""`ServerSampling`: what it sends, and what it makes of the answers of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from mcp_host import ServerSampling
from mcp_host.errors import NotDeclared, ProtocolError
from mcp_host.sampling.structured import ParsedResult, ParseError, RequestedCall, UnparsedResult
from mcp_host.types import ModelHint, ModelPreferences

Wire = dict[str, Any]


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
    """A host that answers from a script, and records the requests."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.requests: list[Wire] = []

    async def __call__(self, params: Wire) -> Mapping[str, Any]:
        self.requests.append(params)
        answer = self._answers.pop(0)
        assert isinstance(answer, dict)
        return answer


def says(text: str, stop: str = "endTurn") -> Wire:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", "stopReason": stop}


def calls(*uses: Wire, stop: str = "toolUse") -> Wire:
    return {"role": "assistant", "content": list(uses), "model": "m", "stopReason": stop}


def use(name: str, arguments: Wire, id: str = "1") -> Wire:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def user(text: str) -> Wire:
    return {"role": "user", "content": {"type": "text", "text": text}}


def assistant(text: str) -> Wire:
    return {"role": "assistant", "content": {"type": "text", "text": text}}


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
    assert [message.to_wire() for message in answer.messages] == [user("Why?"), assistant("Because.")]


async def test_all_options_are_sent() -> None:
    sampling, requests = with_tools(says("."), says("."), says("."))

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


async def test_a_malformed_result_of_the_host_is_a_protocol_error() -> None:
    sampling, _ = with_tools({"role": "assistant"})

    with pytest.raises(ProtocolError, match="malformed CreateMessageResult: content: Field required"):
        await sampling.sample("Why?")


# With a schema


async def test_a_schema_is_carried_by_a_tool_that_the_model_has_to_call() -> None:
    sampling, requests = with_tools(calls(use("answer", {"row": 1, "column": 2})))

    answer = await sampling.sample("Your move?", schema=Move)

    assert answer.parsed == Move(row=1, column=2)
    assert answer.parse_error is None
    assert requests == [
        {
            "messages": [user("Your move?")],
            "maxTokens": 1024,
            "tools": [
                {
                    "name": "answer",
                    "description": "Give your answer by calling this tool. Where to play.",
                    "inputSchema": MOVE,
                }
            ],
            "toolChoice": {"mode": "required"},
        }
    ]
    assert [message.to_wire() for message in answer.messages] == [
        user("Your move?"),
        assistant('{"row": 1, "column": 2}'),
    ]


async def test_without_tools_a_schema_is_in_the_prompt() -> None:
    sampling, requests = without_tools(says('{"row": 1, "column": 2}'))

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
    assert answer.messages[0].to_wire() == user("Your move?")


@dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


@pytest.mark.parametrize("can_call", [True, False], ids=["by a tool", "by the prompt"])
@pytest.mark.parametrize(
    ("schema", "written", "parsed"),
    [
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
    ],
    ids=str,
)
async def test_any_type_that_pydantic_takes_is_a_schema(
    can_call: bool, schema: Any, written: object, parsed: object
) -> None:
    answer = calls(use("answer", written)) if can_call and isinstance(written, dict) else says(json.dumps(written))
    sampling = ServerSampling(Recorder(answer), with_tools=can_call)

    result = await sampling.sample("?", schema=schema)

    assert isinstance(result, ParsedResult)
    assert result.parsed == parsed


async def test_a_wrong_answer_is_asked_for_again_with_what_was_wrong() -> None:
    wrong = use("answer", {"row": 7, "column": 2})
    sampling, requests = with_tools(calls(wrong), calls(use("answer", {"row": 1, "column": 2}, id="2")))

    answer = await sampling.sample("Your move?", schema=Move)

    assert answer.parsed == Move(row=1, column=2)
    assert requests[1] == requests[0] | {
        "messages": [
            user("Your move?"),
            {"role": "assistant", "content": wrong},
            {
                "role": "user",
                "content": {
                    "type": "tool_result",
                    "toolUseId": "1",
                    "content": [
                        {
                            "type": "text",
                            "text": "the answer does not fit the schema: row: Input should be less than or equal to 2",
                        }
                    ],
                    "isError": True,
                },
            },
        ]
    }
    assert len(answer.messages) == 2


async def test_a_wrong_text_is_asked_for_again_with_what_was_wrong() -> None:
    sampling, requests = without_tools(says("Row 1!"), says('{"row": 1, "column": 2}'))

    answer = await sampling.sample("Your move?", schema=Move)

    assert answer.parsed == Move(row=1, column=2)
    assert requests[1]["messages"][1:] == [
        assistant("Row 1!"),
        user("The answer is not JSON: expected value at line 1 column 1. Answer again."),
    ]


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


async def test_schema_and_tools_exclude_each_other() -> None:
    sampling, _ = with_tools()

    with pytest.raises(TypeError, match="schema and tools exclude each other"):
        await sampling.sample("?", schema=Move, tools=[Move])  # type: ignore[call-overload]


# With tools


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_a_call_of_a_model_is_parsed() -> None:
    sampling, requests = with_tools(calls(use("Move", {"row": 1, "column": 2}), use("add", {"a": 1}, id="2")))

    answer = await sampling.sample("?", tools=[Move, add], tool_choice="required")

    assert requests[0]["toolChoice"] == {"mode": "required"}
    assert [tool["name"] for tool in requests[0]["tools"]] == ["Move", "add"]
    assert requests[0]["tools"][0] == {"name": "Move", "description": "Where to play.", "inputSchema": MOVE}
    assert answer.tool_calls == (
        RequestedCall("1", "Move", {"row": 1, "column": 2}, parsed=Move(row=1, column=2)),
        RequestedCall("2", "add", {"a": 1}),
    )


async def test_the_conversation_goes_on_with_all_results_in_one_message() -> None:
    uses = [use("Move", {"row": 1, "column": 2}), use("add", {"a": 1}, id="2")]
    sampling, requests = with_tools(calls(*uses), says("Done."))

    answer = await sampling.sample("?", tools=[Move, add])
    move, sum = answer.tool_calls
    await sampling.sample(messages=answer.answered({sum: 3, move: Move(row=1, column=2)}))

    assert requests[1]["messages"] == [
        user("?"),
        {"role": "assistant", "content": uses},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "toolUseId": "1",
                    "content": [{"type": "text", "text": '{"row":1,"column":2}'}],
                    "structuredContent": {"row": 1, "column": 2},
                },
                {"type": "tool_result", "toolUseId": "2", "content": [{"type": "text", "text": "3"}]},
            ],
        },
    ]


async def test_a_client_without_tools_is_offered_none() -> None:
    sampling, requests = without_tools()

    with pytest.raises(NotDeclared, match=r"the client did not declare sampling\.tools"):
        await sampling.sample("?", tools=[add])

    assert requests == []
