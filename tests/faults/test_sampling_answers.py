"""What leaves the host: legal answers and legal errors, and nothing of what went wrong inside of it."""

from __future__ import annotations

import json

import pytest
from anyio import Event, create_task_group, sleep_forever

from mcp_host import Client, SamplingRequest, ToolCall
from mcp_host.errors import ConnectionClosed
from mcp_host.types import CreateMessageResult
from tests.faults.asking import PARIS, answers, ask, asker, assistant, result, sampling, tool, use, user, words
from tests.faults.fault import fault

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


FAILURES = [
    RuntimeError(SECRET),
    TimeoutError(SECRET),
    json.JSONDecodeError(SECRET, '{"a":', 5),
    SystemExit(SECRET),
    BaseExceptionGroup(SECRET, [KeyError(SECRET)]),
]


@fault("S08", "S16", "S17", "S18")
async def test_a_handlers_exception_is_only_in_the_hosts_log(caplog: pytest.LogCaptureFixture) -> None:
    """Also one for malformed arguments of a tool. The request after it is answered as ever."""
    left: list[BaseException | None] = [each for failure in FAILURES for each in (failure, None)]

    async def model(request: SamplingRequest) -> CreateMessageResult:
        if (failure := left.pop(0)) is not None:
            raise failure
        return request.reply("Paris")

    async with asker(sampling=sampling(model)) as client:
        assert await answers(client, *[ask()] * len(left)) == [FAILED, PARIS] * len(FAILURES)

    assert caplog.text.count(SECRET) >= len(FAILURES)


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
