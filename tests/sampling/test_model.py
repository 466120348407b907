"""The scripted model, which host authors test with."""

from __future__ import annotations

import pytest

from mcp_host.errors import SamplingError
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.testing.model import ScriptedModel
from mcp_host.types import CreateMessageResult, TextContent
from tests.sampling.asking import ADD, request, text, user

ASKED = request(tools=[ADD])


def called(answer: CreateMessageResult) -> list[tuple[str, dict[str, object]]]:
    return [(call.name, call.input) for call in answer.tool_uses]


async def test_it_gives_its_turns_in_order_and_remembers_what_it_was_asked() -> None:
    whole = CreateMessageResult(content=TextContent(text="whole"), model="other")
    model = ScriptedModel("one", ToolCall("add", {"a": 1}), [ToolCall("add"), ToolCall("add")], whole, name="m-1")
    asked = [request(user(text(f"{n}")), tools=[ADD]) for n in range(4)]

    answers = [await model(each) for each in asked]

    assert answers[0] == CreateMessageResult(content=TextContent(text="one"), model="m-1", stop_reason="endTurn")
    assert called(answers[1]) == [("add", {"a": 1})]
    assert called(answers[2]) == [("add", {}), ("add", {})]
    assert [answer.model for answer in answers] == ["m-1", "m-1", "m-1", "other"]
    assert answers[3] is whole
    assert model.requests == asked


async def test_a_turn_can_be_made_from_the_request() -> None:
    async def later(request: SamplingRequest) -> ToolCall:
        return ToolCall(request.tools[0].name)

    model = ScriptedModel(lambda request: f"{request.max_tokens} tokens", later)

    assert await model(ASKED) == CreateMessageResult(
        content=TextContent(text="100 tokens"), model="scripted", stop_reason="endTurn"
    )
    assert called(await model(ASKED)) == [("add", {})]


async def test_a_turn_can_refuse_or_fail() -> None:
    def fail(request: SamplingRequest) -> str:
        raise ConnectionError("overloaded")

    with pytest.raises(ConnectionError, match=r"^overloaded$"):
        await ScriptedModel(fail)(ASKED)


async def test_a_request_after_the_end_of_the_script_fails() -> None:
    model = ScriptedModel("one")
    assert model.remaining == 1
    await model(ASKED)
    assert model.remaining == 0

    with pytest.raises(SamplingError, match=r"^the script has 1 turns, and this is request 2$"):
        await model(ASKED)

    assert model.requests == [ASKED, ASKED]
    assert model.remaining == 0


async def test_it_calls_no_tool_that_is_not_on_offer() -> None:
    with pytest.raises(ValueError, match=r"^no tool 'subtract' among those on offer: add$"):
        await ScriptedModel(ToolCall("subtract"))(ASKED)
