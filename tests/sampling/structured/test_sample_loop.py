"""`ServerSampling.sample_loop`: what it returns, and the turn that gives an answer its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from anyio import fail_after, sleep, sleep_forever
from pydantic import BaseModel

from mcp_host import ServerSampling
from mcp_host.errors import EndsLoop, NotDeclared
from mcp_host.functions import FunctionTool, ToolError
from mcp_host.sampling.loop.engine import Step
from mcp_host.sampling.structured import (
    ParsedLoopResult,
    ParseError,
    RequestedCall,
    ServerLoopResult,
    UnparsedLoopResult,
)
from mcp_host.types import AssistantMessage, Tool, UserMessage
from tests.extent import on_both
from tests.sampling.asking import Wire, result, text
from tests.sampling.structured.test_sample import (
    IMAGE,
    A,
    Recorder,
    SdkImage,
    SdkResult,
    SdkText,
    assistant,
    calls,
    says,
    sdk_image,
    use,
    user,
    with_tools,
    without_tools,
)


class Port(BaseModel):
    """A port."""

    name: str


def height(port: str) -> float:
    """The height of the tide in metres."""
    if port == "Atlantis":
        raise ToolError("no such port")
    return {"Brest": 6.1, "Dover": 6.8}[port]


BREST, DOVER = use("height", {"port": "Brest"}), use("height", {"port": "Dover"}, id="2")


def usage(answer: Wire, **numbers: float) -> Wire:
    return {**answer, "_meta": {"usage": numbers}}


async def test_a_loop_returns_every_turn_the_usage_and_why_it_ended() -> None:
    sampling, requests = with_tools(
        usage(calls(BREST, DOVER), inputTokens=9, outputTokens=2), usage(says("Dover."), inputTokens=20, outputTokens=1)
    )
    turns: list[Step] = []

    done = await sampling.sample_loop(
        "Brest or Dover?", tools=[height], on_turn=turns.append, system_prompt="Be brief."
    )

    assert type(done) is ServerLoopResult
    assert (done.ended, done.text, done.model, done.stop_reason) == ("answered", "Dover.", "m", "endTurn")
    assert done.usage == {"inputTokens": 29, "outputTokens": 3}
    assert done.open_calls is None
    assert list(done.steps) == turns
    assert [[call.use.name for call in turn.calls] for turn in turns] == [["height", "height"], []]
    assert [message.to_wire() for message in done.messages] == [
        user("Brest or Dover?"),
        {"role": "assistant", "content": [BREST, DOVER]},
        {"role": "user", "content": [result("1", text("6.1")), result("2", text("6.8"))]},
        assistant("Dover."),
    ]
    assert requests[1]["messages"] == [message.to_wire() for message in done.messages[:3]]
    assert [request["systemPrompt"] for request in requests] == ["Be brief."] * 2


async def test_a_schema_shapes_one_more_turn_without_the_tools() -> None:
    sampling, requests = with_tools(
        usage(calls(BREST), outputTokens=1),
        usage(says("It is Brest."), outputTokens=2),
        usage(calls(use("answer", {"nam": "Brest"}, id="2")), outputTokens=3),
        usage(calls(use("answer", {"name": "Brest"}, id="3")), outputTokens=4),
    )
    turns: list[Step] = []

    async def on_turn(turn: Step) -> None:
        turns.append(turn)

    done = await sampling.sample_loop("Which port?", tools=[height], schema=Port, on_turn=on_turn)

    assert isinstance(done, ParsedLoopResult)
    assert (done.parsed, done.parse_error, done.ended) == (Port(name="Brest"), None, "answered")
    assert done.usage == {"outputTokens": 10}
    assert [[tool["name"] for tool in request["tools"]] for request in requests] == [
        *(["height"], ["height"]),
        *(["answer"], ["answer"]),
    ]
    assert requests[2]["toolChoice"] == {"mode": "required"}
    assert requests[2]["messages"][-2:] == [assistant("It is Brest."), user("Now give your answer.")]
    assert list(done.steps) == turns
    assert [turn.messages for turn in turns[2:]] == [
        (),
        (UserMessage("Now give your answer."), AssistantMessage('{"name": "Brest"}')),
    ]
    assert done.messages == [UserMessage("Which port?"), *(message for turn in turns for message in turn.messages)]


async def test_a_shape_that_no_try_has_is_a_parse_error() -> None:
    sampling, requests = with_tools(says("It is Brest."), says("Brest!"), says("Brest!!"))

    done = await sampling.sample_loop("Which port?", tools=[height], schema=Port, retries=1)

    assert isinstance(done, UnparsedLoopResult)
    assert done.parse_error == ParseError("the answer is not JSON: expected value at line 1 column 1", "Brest!!")
    assert (done.parsed, done.ended, done.text) == (None, "answered", "Brest!!")
    assert len(requests) == len(done.steps) == 3


async def test_the_answer_of_a_last_turn_gets_its_shape_too() -> None:
    sampling, requests = with_tools(calls(BREST), says("Brest."), calls(use("answer", {"result": 6.1})))

    done = await sampling.sample_loop("How high?", tools=[height], schema=float, max_turns=2)

    assert (done.parsed, done.ended) == (6.1, "max_turns")
    assert requests[1]["toolChoice"] == {"mode": "none"}


async def test_a_call_of_a_tool_without_a_function_ends_the_loop() -> None:
    """The loop goes on by hand."""
    sampling, requests = with_tools(
        calls(BREST), calls(use("Port", {"name": "Brest"}, id="2"), DOVER | {"id": "3"}), says("Done.")
    )

    done = await sampling.sample_loop("?", tools=[height, Port])
    assert done.open_calls is not None
    port, dover = done.open_calls.tool_calls
    after = await sampling.sample_loop(
        messages=done.open_calls.answered({port: "It is near.", dover: 6.8}), tools=[height, Port]
    )

    assert done.ended == "tool_calls"
    assert port == RequestedCall("2", "Port", {"name": "Brest"}, parsed=Port(name="Brest"))
    assert dover == RequestedCall("3", "height", {"port": "Dover"})
    assert requests[2]["messages"][-1]["content"] == [result("2", text("It is near.")), result("3", text("6.8"))]
    assert (after.ended, after.text) == ("answered", "Done.")


async def test_a_loop_that_ends_early_has_no_shape() -> None:
    sampling, requests = with_tools(calls(use("Port", {"name": "Brest"})))

    done = await sampling.sample_loop("?", tools=[Tool(name="Port", input_schema={"type": "object"})], schema=Port)

    assert done.parse_error == ParseError("the loop ended before: tool_calls", "")
    assert done.open_calls is not None
    assert done.ended == "tool_calls"
    assert len(requests) == 1


@on_both
@pytest.mark.parametrize("options", [{}, {"schema": Port}], ids=["plain", "with a schema"])
@pytest.mark.fake_clock
async def test_after_a_timeout_the_calls_that_had_finished_are_known(options: Wire) -> None:
    async def book() -> str:
        await sleep(1)
        return "booked"

    sampling, _ = with_tools(calls(use("book", {}), use("hang", {}, id="2")))
    with fail_after(100):
        done: Any = await sampling.sample_loop(
            "?", tools=[book, FunctionTool(sleep_forever, name="hang")], timeout=5, **options
        )

    assert done.unfinished is not None
    assert (done.ended, done.steps, len(done.messages)) == ("timeout", (), 3)
    assert [(call.use.name, call.result.text) for call in done.unfinished.calls] == [("book", "booked")]
    assert "schema" not in options or done.parse_error == ParseError("the loop ended before: timeout", "")


@on_both
@pytest.mark.parametrize("late", ["host", "on_turn"])
@pytest.mark.fake_clock
async def test_the_timeout_covers_the_turn_that_gives_the_answer_its_shape(late: str) -> None:
    class Host(Recorder):
        async def __call__(self, params: Wire) -> Mapping[str, Any]:
            if late == "host" and len(self.requests) == 2:
                await sleep_forever()
            return await super().__call__(params)

    async def on_turn(step: Step) -> None:
        if late == "on_turn" and step.answer.text == "Brest!":
            await sleep_forever()

    host = Host(says("It is Brest."), says("Brest!"), says('{"name": "Brest"}'))
    sampling = ServerSampling(host, with_tools=True)
    with fail_after(20):
        done = await sampling.sample_loop("?", tools=[height], schema=Port, on_turn=on_turn, timeout=10)

    assert (done.ended, done.answer, done.text) == ("timeout", None, "")
    assert done.parse_error == ParseError("the loop ended before: timeout", "It is Brest.")
    assert [step.answer.text for step in done.steps] == ["It is Brest.", "Brest!"]


def picture() -> SdkImage:
    return sdk_image()


def pictures() -> list[SdkText | SdkImage]:
    return [SdkText(text="a"), sdk_image()]


def failure() -> SdkResult:
    return SdkResult(content=[SdkText(text="a")], isError=True)


def untyped():  # type: ignore[no-untyped-def]
    return sdk_image()


@pytest.mark.parametrize(
    ("tool", "written"),
    [
        (picture, {"content": [IMAGE]}),
        (pictures, {"content": [A, IMAGE]}),
        (failure, {"content": [A], "isError": True}),
        (untyped, {"content": [IMAGE]}),
    ],
)
async def test_a_tool_that_returns_blocks_of_the_official_sdk_gives_them_to_the_model(tool: Any, written: Wire) -> None:
    sampling, requests = with_tools(calls(use(tool.__name__, {})), says("."))

    await sampling.sample_loop("?", tools=[tool])

    assert "outputSchema" not in requests[0]["tools"][0]
    assert requests[1]["messages"][-1]["content"] == {"type": "tool_result", "toolUseId": "1", **written}


@on_both
@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_tool_can_end_the_loop(at_once: int) -> None:
    def stop() -> str:
        raise EndsLoop("enough")

    sampling, requests = with_tools(calls(*[use("stop", {}, id=str(n)) for n in range(at_once)]))

    with pytest.raises(EndsLoop, match=r"^enough$"):
        await sampling.sample_loop("?", tools=[stop])

    assert len(requests) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"tools": []}, NotDeclared, "the client did not declare sampling.tools"),
        ({"tools": "height"}, TypeError, "tools must be a list of tools, not str"),
        ({"tools": [], "schema": "int"}, TypeError, "schema must be a type"),
        ({"tools": [], "retries": -1}, ValueError, "retries must be"),
        ({"tools": [], "tool_choice": "look"}, ValueError, "a tool is required, and the request offers none"),
        ({"tools": [], "messages": []}, TypeError, "give either a prompt or messages, not both"),
        ({"on_turn": 5, "tools": [height]}, TypeError, "on_turn has to be a function, async or plain, not int"),
        ({"on_turn": lambda: None, "tools": [height]}, TypeError, "on_turn is called with one argument"),
        ({"max_result_bytes": "1", "tools": [height]}, TypeError, "max_result_bytes must be a number, not '1'"),
    ],
    ids=lambda value: " and ".join(value) if isinstance(value, dict) else "",
)
async def test_wrong_arguments_are_refused_before_anything_is_sent(
    arguments: dict[str, Any], error: type[Exception], problem: str
) -> None:
    sampling, requests = without_tools()

    with pytest.raises(error, match=problem):
        await sampling.sample_loop("?", **arguments)

    assert requests == []


async def test_long_results_are_cut_for_the_model() -> None:
    def log() -> str:
        return "x" * 3_000_000

    sampling, requests = with_tools(calls(use("log", {})), says("."))

    await sampling.sample_loop("?", tools=[log], max_result_bytes=100)

    words = requests[1]["messages"][-1]["content"]["content"][0]["text"]
    assert words == f"{'x' * 27}\n[2999946 of 3000000 bytes are left out here]\n{'x' * 27}"


async def test_on_turn_gets_each_try_of_a_shape_before_the_next() -> None:
    sampling, requests = with_tools(says("Brest."), says("no"), says('{"name": "Brest"}'))
    asked: list[int] = []

    def on_turn(step: Step) -> None:
        asked.append(len(requests))

    done = await sampling.sample_loop("?", tools=[height], schema=Port, on_turn=on_turn)

    assert asked == [1, 2, 3]
    assert done.parsed == Port(name="Brest")
    assert [len(step.messages) for step in done.steps] == [1, 0, 2]
