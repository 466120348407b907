"""Callbacks and handlers that fail, or call the client that called them: the reader goes on, and so does the session."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from anyio import Event

from mcp_host import Client, SamplingRequest, Stdio
from mcp_host.types import CreateMessageResult, ProgressNotificationParams, Root
from tests.client.support import sampling
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.servers import works
from tests.faults.stdio_server import connected, server

pytestmark = on_both

ANNOUNCES = """
call = read()
for data in range(3):
    tell("message", level="info", data=data)
    tell("resources/updated", uri=f"a:{data}")
    tell("progress", progressToken=call["params"].get("_meta", {}).get("progressToken"), progress=data)
serve(call)
serve_all()
"""


class Mine(Exception):
    """What a callback raises."""


@fault("C11")
async def test_callbacks_that_fail_are_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(message: object) -> None:
        called.append(message)
        if len(called) == 6:
            enough.set()
        raise Mine

    called: list[object] = []
    enough = Event()

    async with connected(ANNOUNCES, on_log=fail, on_change=fail) as client:
        assert await works(client)
        await enough.wait()
        assert await works(client)

    assert len(called) == 6
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [Mine] * 6


@fault("C11")
async def test_an_exception_of_a_progress_callback_reaches_only_its_caller() -> None:
    async def fail(progress: ProgressNotificationParams) -> None:
        raise Mine

    async with connected(ANNOUNCES) as client:
        with pytest.raises(Mine):
            await client.call_tool("x", on_progress=fail)
        assert await works(client)


@fault("C11")
@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
async def test_a_failing_handler_fails_only_its_own_request(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        raise Mine

    async def roots() -> list[Root]:
        raise Mine

    body = f"""
    call = read()
    sample("q") if {method!r}.startswith("sampling") else say({{"id": "q", "method": {method!r}}})
    reply(call, text(json.dumps(read())))
    serve_all()
    """

    async with connected(body, sampling=sampling(with_tools=model), roots=roots) as client:
        answer = json.loads((await client.call_tool("x")).text)
        assert await works(client)

    assert (answer["id"], answer["error"]["code"]) == ("q", -32603)
    assert "Mine" in caplog.text


@fault("C12")
async def test_callbacks_may_call_their_own_client() -> None:
    def calling_back(place: str) -> Callable[[object], Awaitable[None]]:
        async def call(message: object) -> None:
            said[place] = (await client.call_tool(place)).text
            if len(said) == 3:
                enough.set()

        return call

    said: dict[str, str] = {}
    enough = Event()
    transport = Stdio(server(ANNOUNCES))
    client = Client(transport, era="legacy", on_log=calling_back("log"), on_change=calling_back("change"))

    async with client:
        await client.call_tool("x", on_progress=calling_back("progress"))
        await enough.wait()

    assert said == {"log": "log", "change": "change", "progress": "progress"}


@fault("C12")
async def test_handlers_may_call_their_own_client() -> None:
    """Though the server waits for their answer, and for nothing else."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return request.reply((await client.call_tool("inner")).text)

    async def roots() -> list[Root]:
        return [Root(uri=f"file:///{(await client.call_tool('roots')).text}")]

    body = """
    outer = read()
    sample("q")
    say({"id": "r", "method": "roots/list"})
    heard = {}
    while len(heard) < 2:
        message = read()
        serve(message)
        if "result" in message:
            heard[message["id"]] = message["result"]
    reply(outer, text(json.dumps(heard)))
    serve_all()
    """
    client = Client(Stdio(server(body)), era="legacy", sampling=sampling(with_tools=model), roots=roots)

    async with client:
        heard = json.loads((await client.call_tool("outer")).text)
        assert await works(client)

    assert heard["q"]["content"] == {"type": "text", "text": "inner"}
    assert heard["r"] == {"roots": [{"uri": "file:///roots"}]}
