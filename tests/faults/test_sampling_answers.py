"""What leaves the host: legal answers and legal errors, and nothing of what went wrong inside of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from anyio import Event, create_task_group, sleep_forever

from mcp_host import Client, SamplingRequest, ToolCall
from mcp_host.errors import ConnectionClosed, InputRefused
from mcp_host.types import CreateMessageResult, TextContent, ToolResultContent, ToolUseContent
from tests.faults.asking import PARIS, answers, ask, asker, assistant, result, sampling, tool, use, user, words
from tests.faults.fault import fault

Turn: TypeAlias = Callable[[SamplingRequest], Any]

ILLEGAL = {"error": {"code": -32603, "message": "this client's model gave an answer that the request does not allow"}}
FAILED = {"error": {"code": -32603, "message": "this client's model failed"}}
SECRET = "sk-very-secret"

GIVES_UP = """
call = read()
ask = {"id": "q", "method": "sampling/createMessage", "params": call["params"]["arguments"]}
say(ask)
reply(read(), {})  # to the ping of a model that is thinking
say({"method": "notifications/cancelled", "params": {"requestId": "q"}})
say(ask | {"id": "r"})
reply(call, text(json.dumps(read())))
"""


def turn(*blocks: Any, stop: str | None = None) -> CreateMessageResult:
    return CreateMessageResult(content=list(blocks), model="m", stop_reason=stop)


def call(id: str = "n1", name: str = "add", **arguments: Any) -> ToolUseContent:
    return ToolUseContent(id=id, name=name, input=arguments)


async def answer_of(turn: Turn, **params: Any) -> dict[str, Any]:
    """What the server hears when the handler does this; a plain question is answered after it as ever."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        if request.params.max_tokens == 1:
            return request.reply("Paris")
        answer: CreateMessageResult = turn(request)
        return answer

    async with asker(sampling=sampling(model)) as client:
        first, second = await answers(client, ask(**params), ask(maxTokens=1))

    assert second == PARIS
    return first


@pytest.mark.parametrize(
    ("turn", "params", "why"),
    [
        (turn(call(name="rm")), {"tools": [tool()]}, "it calls 'rm', which the request does not offer"),
        (turn(call()), {}, "it calls 'add', but the request allows no tools"),
        (turn(call()), {"tools": [tool()], "toolChoice": {"mode": "none"}}, "the request allows no tools"),
        (turn(call(), call()), {"tools": [tool()]}, "the tool_use id 'n1' was used before"),
        (turn(*[call(f"n{n}") for n in range(33)]), {"tools": [tool()]}, "it calls 33 tools"),
        (turn(ToolResultContent(tool_use_id="n1", content=[])), {"tools": [tool()]}, "it holds a tool_result"),
        ({"role": "assistant"}, {}, "its type is dict, not CreateMessageResult or str"),
        (None, {}, "its type is NoneType, not CreateMessageResult or str"),
    ],
    ids=["not on offer", "none on offer", "forbidden", "one id twice", "too many", "a result", "a dict", "nothing"],
)
@fault("S08")
async def test_an_illegal_answer_is_not_sent(
    turn: object, params: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await answer_of(lambda request: turn, **params) == ILLEGAL
    assert why in caplog.text


@fault("S08")
async def test_malformed_tool_arguments_of_a_model_fail_only_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    def badly(request: SamplingRequest) -> CreateMessageResult:
        return request.call("add", json.loads('{"a":'))

    assert await answer_of(badly, tools=[tool()]) == FAILED
    assert "JSONDecodeError" in caplog.text


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (turn(call()), "toolUse"),
        (turn(call(), stop="toolUse"), "toolUse"),
        (turn(call(), stop="endTurn"), "toolUse"),
        (turn(call(), stop="tool_calls"), "toolUse"),
        (turn(TextContent(text="2"), stop="endTurn"), "endTurn"),
        (turn(TextContent(text="2"), stop="maxTokens"), "maxTokens"),
    ],
    ids=["not said", "said", "an end with tools", "a provider's word", "an end", "cut"],
)
@fault("S09")
async def test_the_stop_reason_is_tool_use_exactly_if_the_answer_calls_tools(
    given: CreateMessageResult, written: str
) -> None:
    assert (await answer_of(lambda request: given, tools=[tool()]))["result"]["stopReason"] == written


@pytest.mark.parametrize(
    ("given", "params", "why"),
    [
        (turn(TextContent(text="2"), stop="toolUse"), {}, "its stop reason is toolUse, but it calls no tool"),
        (turn(TextContent(text="2"), stop="endTurn"), {"toolChoice": {"mode": "required"}}, "toolChoice requires one"),
    ],
    ids=["tools without any", "none where one must be"],
)
@fault("S09")
async def test_a_stop_reason_that_contradicts_the_answer_is_not_sent(
    given: CreateMessageResult, params: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await answer_of(lambda request: given, tools=[tool()], **params) == ILLEGAL
    assert why in caplog.text


@fault("S09")
async def test_several_tools_are_called_in_one_answer_and_their_results_come_back() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        if len(request.messages) > 1:
            return request.reply("Paris")
        return request.calls(ToolCall("add", {"a": 1}), ToolCall("add", {"a": 2}))

    async with asker(sampling=sampling(model)) as client:
        (first,) = await answers(client, ask(tools=[tool()]))
        ids = [block["id"] for block in first["result"]["content"]]
        turns = [user(words("1 + 1?")), assistant(*map(use, ids)), user(*map(result, ids))]
        assert await answers(client, ask(*turns, tools=[tool()])) == [PARIS]

    assert first["result"]["stopReason"] == "toolUse"
    assert [block["input"] for block in first["result"]["content"]] == [{"a": 1}, {"a": 2}]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SECRET),
        TimeoutError(SECRET),
        SystemExit(SECRET),
        BaseExceptionGroup(SECRET, [KeyError(SECRET)]),
    ],
    ids=["an error", "a timeout", "an exit", "a group"],
)
@fault("S16", "S17", "S18")
async def test_a_handlers_exception_is_only_in_the_hosts_log(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(request: SamplingRequest) -> CreateMessageResult:
        raise error

    assert await answer_of(fails) == FAILED
    assert SECRET in caplog.text


@fault("S17", "S18")
async def test_a_refusal_of_a_handler_is_sent_with_its_reason_and_an_integer_code() -> None:
    def refuses(request: SamplingRequest) -> CreateMessageResult:
        request.refuse("not at this hour")

    def explains(request: SamplingRequest) -> CreateMessageResult:
        raise InputRefused(-32050, "come back tomorrow", {"retry": True})

    error = {"code": -32050, "message": "come back tomorrow", "data": {"retry": True}}
    assert await answer_of(refuses) == {"error": {"code": -1, "message": "not at this hour"}}
    assert await answer_of(explains) == {"error": error}


class Waiting:
    """A model that pings its client and then never answers, the first time."""

    def __init__(self) -> None:
        self.client: Client
        self.thinks, self.stopped = Event(), Event()

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        if self.thinks.is_set():
            return request.reply("Paris")
        self.thinks.set()
        try:
            await self.client.ping()
            await sleep_forever()
            return request.reply("too late")
        finally:
            self.stopped.set()


@fault("S19")
async def test_a_handler_is_cancelled_with_its_request_and_no_answer_is_sent() -> None:
    model = Waiting()
    async with asker(GIVES_UP, sampling=sampling(model)) as model.client:
        heard = json.loads((await model.client.call_tool("ask", ask())).text)

    assert heard == {"jsonrpc": "2.0", "id": "r"} | PARIS
    assert model.stopped.is_set()


@fault("S19")
async def test_a_handler_is_cancelled_when_its_client_is_closed() -> None:
    model = Waiting()
    async with create_task_group() as tasks:
        async with asker(GIVES_UP.replace("cancelled", "message"), sampling=sampling(model)) as model.client:
            tasks.start_soon(failing, model.client)
            await model.thinks.wait()
        assert model.stopped.is_set()


async def failing(client: Client) -> None:
    with pytest.raises(ConnectionClosed):
        await client.call_tool("ask", ask())
