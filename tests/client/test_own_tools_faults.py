"""Servers that misbehave while the client runs their tools inside their sampling requests."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
from anyio import create_task_group, current_time

from mcp_host import Client, Elicitation, Limits, OwnTools, Sampling, SamplingRequest, ToolCall, always
from mcp_host.errors import ConnectionClosed, InputNotGiven
from mcp_host.sampling.sampling import CheckArguments
from mcp_host.testing import Context, ScriptedModel, ScriptedPeer, Server
from mcp_host.types import CreateMessageResult, ElicitResult, Tool
from tests.client.support import HANDSHAKE, STATELESS, Era
from tests.client.test_own_tools import asking, noting, over_pipe_and_http, results, running_tools, sampling
from tests.extent import on_both
from tests.test_end_to_end import reached
from tests.testing.raw import waiting

deep = Server("deep")
DIG = Tool(name="dig", input_schema={"type": "object"})


@deep.tool
async def dig(ctx: Context) -> str:
    """Ask the model, and offer it this tool."""
    return (await ctx.sample("deeper?", tools=[DIG])).text


@deep.tool
def die() -> None:
    """End the server."""
    os._exit(1)


@deep.tool
async def risk(ctx: Context) -> str:
    """Ask the model, and offer it the tool above."""
    return (await ctx.sample("?", tools=[die])).text


def dig_deeper(request: SamplingRequest) -> CreateMessageResult:
    """Digs, and then says what that gave."""
    return request.call("dig") if len(request.messages) == 1 else request.reply(results(request)[0][0])


# Depth


@over_pipe_and_http
async def test_a_tool_that_samples_again_for_ever_ends_at_the_limit_of_nesting(
    how: str, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(*[dig_deeper] * 100)
    one_slot, limits = sampling(model, at_once=1, at_once_per_server=1), Limits(max_nesting=3)
    async with (
        reached(how, deep, __name__) as transport,
        running_tools(transport, model, era, sampling=one_slot, limits=limits) as client,
    ):
        result = await client.call_tool("dig")

    refused = (
        "the client refused sampling/createMessage: this client's limit max_nesting is 3 handlers within each other"
    )
    assert result.text == (f"{refused} (-32013)" if era.version == "2025-11-25" else "the tool dig failed")
    assert len(model.requests) == 6  # three loops, of two answers each


@on_both
@over_pipe_and_http
async def test_tools_that_sample_again_share_the_number_of_requests_of_the_outermost_call(how: str, era: Era) -> None:
    """Two calls in each answer would be 255 requests, within the limit of nesting."""

    def dig_twice(request: SamplingRequest) -> CreateMessageResult:
        return request.calls(*[ToolCall("dig")] * 2) if len(request.messages) == 1 else request.reply("enough")

    model = ScriptedModel(*[dig_twice] * 100)
    async with (
        reached(how, deep, __name__) as transport,
        running_tools(transport, model, era, limits=Limits(max_inputs=20)) as client,
    ):
        assert (await client.call_tool("dig")).text == "enough"

    assert len([request for request in model.requests if len(request.messages) == 1]) == 20


@on_both
@over_pipe_and_http
async def test_tools_that_sample_again_share_the_number_of_calls_of_the_outermost_call(
    how: str, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond that the server gets the answers, and the log says so a few times."""
    model = ScriptedModel(*[lambda request: request.calls(*[ToolCall("dig")] * 5)] * 30)
    called: list[str] = []
    async with (
        reached(how, deep, __name__) as transport,
        running_tools(
            transport, model, era, name="deep", run_own_tools=OwnTools(max_calls=19), middleware=[noting(called)]
        ) as client,
    ):
        await client.call_tool("dig")

    assert called.count("tools/call") == 1 + 15  # an answer with five calls has no room after three
    assert len(model.requests) == 1 + 15 + 3  # requests, and second answers
    says = "sampling for deep: it has to run its tools itself, after 19 calls (OwnTools.max_calls)"
    assert lines(caplog) == [says, *[f"{says} ({times} times so far)" for times in (2, 4, 8, 16)]]


# Time and cancellation


@on_both
@pytest.mark.fake_clock
async def test_a_loop_that_takes_too_long_is_refused_and_its_calls_are_cancelled(era: Era) -> None:
    server = asking("wait")
    _, cancelled = waiting(server)
    model = ScriptedModel([ToolCall("wait"), ToolCall("wait")])
    why = "this client's limit for running tools is 300 seconds"
    own_tools, limits = OwnTools(tool_timeout=1000), Limits(idle_timeout=1000)
    async with running_tools(server, model, era, run_own_tools=own_tools, limits=limits, within=1000) as client:
        began = current_time()
        if era.version == "2026-07-28":
            with pytest.raises(InputNotGiven, match=f"{why}$"):
                await client.call_tool("ask")
        else:
            text = (await client.call_tool("ask")).text
            assert text == f"the client refused sampling/createMessage: {why} (-32011)"
        assert current_time() - began == pytest.approx(300)
        await cancelled.wait()


@on_both
async def test_cancelling_the_outer_call_cancels_the_calls_of_tools(era: Era) -> None:
    server = asking("wait")
    began, cancelled = waiting(server)
    model = ScriptedModel(ToolCall("wait"))
    async with running_tools(server, model, era) as client:
        async with create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "ask")
            await began.wait()
            tasks.cancel_scope.cancel()
        await cancelled.wait()


@on_both
async def test_a_server_that_dies_in_its_tool_ends_the_request_and_the_model_is_not_asked_again(era: Era) -> None:
    model = ScriptedModel(ToolCall("die"), "never asked")
    async with reached("stdio", deep, __name__) as transport, running_tools(transport, model, era) as client:
        with pytest.raises(ConnectionClosed, match="exited with code 1"):
            await client.call_tool("risk")

    assert len(model.requests) == 1


def listing(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"inputSchema": {"type": "object"}, **tool} for tool in tools]}


def question(*offered: str) -> dict[str, Any]:
    """The params of a sampling request with tools of these names."""
    message = {"role": "user", "content": {"type": "text", "text": "?"}}
    return {"messages": [message], "maxTokens": 9} | listing(*[{"name": name} for name in offered])


@pytest.mark.fault("J04")
@on_both
async def test_cancelling_the_sampling_request_cancels_the_calls_of_tools() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        call = await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage", "params": question("t")})
        await peer.reply(await peer.receive("tools/list"), listing({"name": "t"}))
        inner = await peer.receive("tools/call")
        await peer.notify("notifications/cancelled", {"requestId": 0})
        heard.append((inner["id"], await peer.receive()))
        await peer.reply(call, {"content": []})

    heard: list[tuple[object, dict[str, Any]]] = []
    async with running_tools(ScriptedPeer(script), ScriptedModel(ToolCall("t")), HANDSHAKE) as client:
        await client.call_tool("ask")

    [(inner, message)] = heard
    assert (message["method"], message["params"]["requestId"]) == ("notifications/cancelled", inner)


# Listings


async def asked(
    script: Callable[[ScriptedPeer], Any], model: ScriptedModel, *, capabilities: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What a handshake peer gets for a sampling request with the tool `t`, where *script* answers the rest."""

    async def peer_script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=capabilities or {"tools": {}})
        call = await peer.receive("tools/call" if capabilities is None else "ping")
        await peer.send({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": question("t")})
        await script(peer)
        answers.append(await peer.receive())
        await peer.reply(call, {"content": []})

    answers: list[dict[str, Any]] = []
    async with running_tools(ScriptedPeer(peer_script), model, HANDSHAKE) as client:
        await (client.call_tool("ask") if capabilities is None else client.ping())
    [answer] = answers
    assert answer["id"] == "s"
    return answer


async def test_a_tool_that_disappears_after_the_listing_is_an_error_for_the_model() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive(), listing({"name": "t"}))
        await peer.reply_error(await peer.receive(), -32602, "unknown tool: t")

    answer = await asked(script, ScriptedModel(ToolCall("t"), lambda request: str(results(request))))

    assert answer["result"]["content"] == {"type": "text", "text": str([("unknown tool: t (-32602)", True)])}


async def test_tools_are_listed_once_for_all_answers_to_a_request(era: Era) -> None:
    """For the next request they are listed again: what the server does not list any more goes back to it."""
    methods: list[str] = []
    server = asking("tool")
    server.tool(name="tool")(lambda: "run")
    model = ScriptedModel(ToolCall("tool"), ToolCall("tool"), "done", ToolCall("tool"))
    async with running_tools(server, model, era, middleware=[noting(methods)]) as client:
        first = (await client.call_tool("ask")).text
        server.remove_tool("tool")
        second = (await client.call_tool("ask")).text

    assert (first, second) == ("done", "tool")
    assert methods == ["tools/call", "tools/list", "tools/call", "tools/call", "tools/call", "tools/list"]


@on_both
async def test_an_answer_with_tools_that_the_client_cannot_run_goes_to_the_server(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    async def fails(peer: ScriptedPeer) -> None:
        await peer.reply_error(await peer.receive("tools/list"), -32603, "no list today")

    async def lists_a_task(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive(), listing({"name": "t", "execution": {"taskSupport": "required"}}))

    async def has_no_tools(peer: ScriptedPeer) -> None:
        pass

    says = "sampling for the scripted peer: its tools cannot be listed, so it has to run them: "
    rows: list[tuple[Callable[[ScriptedPeer], Any], dict[str, Any] | None, list[str]]] = [
        (fails, None, ["no list today (-32603)"]),
        (lists_a_task, None, []),
        (has_no_tools, {"prompts": {}}, ["the scripted peer did not advertise tools, which tools/list needs"]),
    ]
    for script, capabilities, problems in rows:
        with subtests.test(script.__name__):
            caplog.clear()
            answer = await asked(script, ScriptedModel(ToolCall("t")), capabilities=capabilities)

            assert answer["result"]["stopReason"] == "toolUse"
            assert lines(caplog) == [f"{says}{problem}" for problem in problems]


# Results and limits


@pytest.mark.parametrize(("name", "limit", "count"), [("text", 500, 1003), ("messages", 2, 3), ("blocks", 3, 4)])
async def test_the_limits_of_sampling_hold_for_the_conversation_as_it_grows(name: str, limit: int, count: int) -> None:
    server = asking("long")
    server.tool(name="long")(lambda: "x" * 1000)
    model = ScriptedModel(ToolCall("long"), "never asked")
    async with running_tools(server, model, HANDSHAKE, sampling=sampling(model, **{name: limit})) as client:
        result = await client.call_tool("ask")

    assert f"limit {name} is {limit}, and a request with this answer in it would have {count}: " in result.text
    assert len(model.requests) == 1


@pytest.mark.parametrize(("check_arguments", "asked"), [("refuse", 1), ("retry", 3)])
async def test_arguments_are_checked_before_a_tool_is_run(check_arguments: CheckArguments, asked: int) -> None:
    server = Server("s")
    arguments: list[int] = []

    @server.tool
    def square(n: int) -> int:
        arguments.append(n)
        return n * n

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("?", tools=[square])).text

    model = ScriptedModel(
        ToolCall("square", {"n": "4"}), ToolCall("square", {"n": 4}), lambda request: f"{results(request)}"
    )
    handlers = Sampling(with_tools=model, approve=always, check_arguments=check_arguments)
    async with running_tools(server, model, HANDSHAKE, sampling=handlers) as client:
        result = await client.call_tool("ask")

    assert len(model.requests) == asked
    assert arguments == ([4] if asked == 3 else [])
    illegal = "this client's model gave an answer that the request does not allow"
    refused = f"the client refused sampling/createMessage: {illegal} (-32603)"
    assert result.text == (str([("16", False)]) if asked == 3 else refused)


async def test_what_a_handler_raises_within_a_tool_reaches_neither_the_model_nor_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In 2026 the error of the inner call has the text of the handler's exception."""
    server = asking("form")

    @server.tool
    async def form(ctx: Context) -> str:
        await ctx.elicit("sure?", {"type": "object", "properties": {}})
        return "done"

    async def fill_in(request: object) -> ElicitResult:
        raise RuntimeError("the password is hunter2")

    model = ScriptedModel(ToolCall("form"), lambda request: str(results(request)))
    async with running_tools(server, model, STATELESS, elicitation=Elicitation(form=fill_in)) as client:
        result = await client.call_tool("ask")

    assert result.text == str([("the tool form failed", True)])


async def test_a_client_that_was_dropped_runs_no_tools() -> None:
    client = Client(asking(), sampling=sampling(ScriptedModel()), run_own_tools=True)
    tools = client._state.features.server_tools
    assert tools is not None
    del client
    gc.collect()

    request: Any = None
    with pytest.raises(ConnectionClosed, match=r"^the client was dropped$"):
        await tools.list_tools(request, 1.0)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


if __name__ == "__main__":
    deep.run_stdio()
