"""A server written with the official Python SDK, spoken to with a handshake: what only that era has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio import Event, fail_after, sleep_forever

from mcp_host import (
    Allow,
    Client,
    Deny,
    OuterCall,
    Sampling,
    SamplingRequest,
    Stdio,
    StreamableHttp,
    __version__,
    always,
)
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    CreateMessageResult,
    ProgressNotificationParams,
    SamplingMessage,
    TextContent,
)
from tests.interop.heard import reported
from tests.interop.processes import AnyTransport, HttpServer, free_port, official_sdk, running

IN_TIME = 30.0  # seconds for a test; each takes a fraction of one when the machine is idle


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServer]:
    port = free_port()
    mark = f"interop-sdk-{port}"
    with HttpServer(official_sdk("http", port, mark), port, ready="Uvicorn running") as server:
        yield server

    assert running(mark) == []


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, mark: str) -> AnyTransport:
    if request.param == "stdio":
        return Stdio(official_sdk("stdio", 0, mark))
    http: HttpServer = request.getfixturevalue("http")
    return StreamableHttp(http.url)


def user(text: str) -> SamplingMessage:
    return SamplingMessage(role="user", content=TextContent(text=text))


async def test_the_handshake_declares_sampling_with_tools(server: AnyTransport) -> None:
    sampling = Sampling(with_tools=ScriptedModel(), approve=always)
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=sampling) as client:
            told = reported(await client.call_tool("handshake"))
            mode, version, warnings = client.sampling_mode, client.protocol_version, client.warnings

    assert told == {
        "negotiated": "2025-11-25",
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"sampling": {"tools": {}}},
            "clientInfo": {"name": "mcp-host", "version": __version__},
        },
    }
    assert (mode, version, warnings) == ("with_tools", "2025-11-25", [])


async def test_a_basic_handler_alone_declares_no_tools(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(basic=ScriptedModel(), approve=always)) as client:
            told = reported(await client.call_tool("handshake"))
            mode = client.sampling_mode

    assert isinstance(told, dict)
    assert told["initialize"]["capabilities"] == {"sampling": {}}
    assert mode == "basic"


async def test_a_request_names_the_call_that_it_belongs_to(server: AnyTransport) -> None:
    model = ScriptedModel("yes")
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(with_tools=model, approve=always)) as client:
            await client.call_tool("ask", {"question": "really?"})

    (request,) = model.requests
    assert request.outer is not None
    inferred = isinstance(server, Stdio)  # over HTTP the request comes on the stream of the call
    assert request.outer == OuterCall(
        "tools/call", "ask", request.outer.request_id, call_id=request.outer.call_id, inferred=inferred
    )


async def test_a_request_on_the_connections_own_stream_is_answered(server: AnyTransport) -> None:
    model = ScriptedModel("yes", name="a-model")
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(with_tools=model, approve=always)) as client:
            told = reported(await client.call_tool("unprompted", {"question": "really?"}))

    assert told == {
        "role": "assistant",
        "content": {"type": "text", "text": "yes"},
        "model": "a-model",
        "stopReason": "endTurn",
    }
    (request,) = model.requests
    # Over HTTP that stream names no call; over a pipe there is but one stream, and one call in flight.
    assert (request.outer is not None and request.outer.inferred) is isinstance(server, Stdio)
    assert (request.outer is None) is not isinstance(server, Stdio)


async def test_several_texts_of_an_answer_arrive_as_one_since_the_sdk_takes_no_list_without_tools(
    server: AnyTransport,
) -> None:
    def answer(request: SamplingRequest) -> CreateMessageResult:
        return CreateMessageResult(content=[TextContent(text="Yes."), TextContent(text="Really.")], model="a-model")

    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(with_tools=answer, approve=always)) as client:
            told = reported(await client.call_tool("unprompted", {"question": "really?"}))

    assert isinstance(told, dict)
    assert told["content"] == {"type": "text", "text": "Yes.\n\nReally."}


async def test_tools_for_a_basic_handler_are_refused_and_never_stripped(server: AnyTransport) -> None:
    model = ScriptedModel("without tools")
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(basic=model, approve=always)) as client:
            told = reported(await client.call_tool("ask", {"question": "2+3?", "tools": True}))

    assert told == {"error": {"code": -32602, "message": "tools: this client did not declare sampling.tools"}}
    assert model.requests == []


async def test_a_denied_request_is_answered_with_minus_one_and_the_reason(server: AnyTransport) -> None:
    async def deny(request: SamplingRequest) -> Allow | Deny:
        return Deny("not today")

    model = ScriptedModel("never")
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(with_tools=model, approve=deny)) as client:
            told = reported(await client.call_tool("ask", {"question": "2+3?", "tools": True}))

    assert told == {"error": {"code": -1, "message": "not today"}}
    assert model.requests == []


async def test_the_error_of_a_failing_handler_is_not_sent(
    server: AnyTransport, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: SamplingRequest) -> str:
        raise RuntimeError("the key is s3cret")

    with fail_after(IN_TIME):
        async with Client(
            server, era="legacy", sampling=Sampling(with_tools=ScriptedModel(fail), approve=always)
        ) as client:
            told = reported(await client.call_tool("ask", {"question": "2+3?", "tools": True}))

    assert told == {"error": {"code": -32603, "message": "this client's model failed"}}
    assert "the key is s3cret" in caplog.text


async def test_a_tool_result_for_no_tool_use_is_refused_with_the_message_it_is_in(server: AnyTransport) -> None:
    model = ScriptedModel("never")
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(with_tools=model, approve=always)) as client:
            told = reported(await client.call_tool("ask", {"question": "2+3?", "tools": True, "results": ["call_9"]}))

    problem = "messages[1]: tool_result 'call_9' answers no tool_use of the message before it"
    assert told == {"error": {"code": -32602, "message": problem}}
    assert model.requests == []


async def test_a_stream_that_the_server_closes_is_resumed_where_it_was(http: HttpServer) -> None:
    steps: list[float] = []

    async def on_progress(report: ProgressNotificationParams) -> None:
        steps.append(report.progress)

    before = http.count('"GET /mcp HTTP/1.1" 200')
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(http.url), era="legacy") as client:
            result = await client.call_tool("count", {"to": 5, "pause_at": 3}, on_progress=on_progress)

    assert steps == [1, 2, 3, 4, 5]
    assert result.structured_content == {"result": 5}
    http.says('"GET /mcp HTTP/1.1" 200', times=before + 2)  # the connection's own stream, and the rest of the call's


async def test_closing_ends_the_session_of_the_server(http: HttpServer) -> None:
    before = http.count('"DELETE /mcp HTTP/1.1" 200')
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(http.url), era="legacy") as client:
            await client.ping()

    http.says('"DELETE /mcp HTTP/1.1" 200', times=before + 1)


@pytest.mark.parametrize("kind", ["json", "stateless"])
async def test_a_server_that_answers_with_json_or_without_a_session_works(kind: str, mark: str) -> None:
    port = free_port()
    with fail_after(IN_TIME), HttpServer(official_sdk(kind, port, mark), port, ready="Uvicorn running") as http:
        async with Client(StreamableHttp(http.url), era="legacy") as client:
            tools = [tool.name for tool in await client.list_tools()]
            result = await client.call_tool("count", {"to": 3})
            warnings = client.warnings

    assert "count" in tools
    assert (result.structured_content, warnings) == ({"result": 3}, [])


async def test_a_handler_ends_when_the_server_cancels_its_request(server: AnyTransport) -> None:
    ended = Event()

    async def take_forever(request: SamplingRequest) -> str:
        try:
            await sleep_forever()
        finally:
            ended.set()
        return "never"

    async def answer_afterwards(request: SamplingRequest) -> str:
        await ended.wait()
        return "the first has ended"

    model = ScriptedModel(take_forever, answer_afterwards)
    with fail_after(IN_TIME):
        async with Client(server, era="legacy", sampling=Sampling(with_tools=model, approve=always)) as client:
            heard = await client.call_tool("lose_patience")

    assert heard.structured_content == {"result": ["Request 'sampling/createMessage' timed out", "the first has ended"]}
