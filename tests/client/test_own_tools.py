"""The server's own tools, run by the client inside the server's sampling requests."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal

import pytest

from mcp_host import (
    Allow,
    Client,
    Deny,
    OwnTools,
    Sampling,
    SamplingLimits,
    SamplingRequest,
    ToolCall,
    ToolPins,
    ToolPolicy,
    always,
)
from mcp_host.errors import CallerError
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, Middleware, approve_tool_calls
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.types import Tool, ToolResultContent
from tests.client.support import Era, connected
from tests.test_end_to_end import everywhere, reached

USER: ContextVar[str] = ContextVar("USER", default="none")
SECRET = Tool(name="secret", input_schema={"type": "object"})
"""A tool that the server offers to the model, and does not list."""

server = Server("calculator")


@server.tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@server.tool
async def solve(problem: str, ctx: Context, required: bool = False) -> str:
    """Ask the model once, with two tools that are listed and one that is not."""
    choice: Literal["required", "auto"] = "required" if required else "auto"
    answer = await ctx.sample(problem, tools=[add, multiply, SECRET], tool_choice=choice)
    return ", ".join(f"{call.name}: {call.arguments}" for call in answer.tool_calls) or answer.text


over_pipe_and_http = pytest.mark.parametrize("how", ["in-process", "http"])


def sampling(model: ScriptedModel, **limits: Any) -> Sampling:
    return Sampling(with_tools=model, approve=always, limits=SamplingLimits(**limits))


@asynccontextmanager
async def running_tools(server: Any, model: ScriptedModel, era: Era, **options: Any) -> AsyncIterator[Client]:
    """A connected client with *model* that runs the server's own tools."""
    options = {"sampling": sampling(model), "run_own_tools": True, **options}
    async with connected(server, era=era.version, **options) as client:
        yield client


async def solved(
    model: ScriptedModel,
    era: Era,
    *,
    tool: str = "solve",
    required: bool = False,
    caller: object = None,
    **options: Any,
) -> str:
    """What the tool of the server above returns, to a client with *model* that runs own tools."""
    async with running_tools(server, model, era, **options) as client:
        return (await client.call_tool(tool, {"problem": "?", "required": required}, caller=caller)).text


def asking(*offered: str, **definition: Any) -> Server:
    """A server whose tool `ask` samples once, with tools of these names. It returns the answer, or the names that it calls."""
    server = Server("asking")
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in offered]

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.sample("?", tools=tools)
        return ", ".join([call.name for call in answer.tool_calls]) or answer.text

    return server


def noting(methods: list[str]) -> Middleware:
    """Notes the methods of the client's requests that are about tools."""

    async def note(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method.startswith("tools/"):
            methods.append(request.method)
        return await call_next(request)

    return note


def mode(request: SamplingRequest) -> str | None:
    return None if request.tool_choice is None else request.tool_choice.mode


def results(request: SamplingRequest) -> list[tuple[str, bool]]:
    """The results of tools at the end of a request: their text, and whether they are errors."""
    blocks = request.messages[-1].content
    assert all(isinstance(block, ToolResultContent) for block in blocks)
    return [(block.text, bool(block.is_error)) for block in blocks if isinstance(block, ToolResultContent)]


@everywhere
async def test_the_server_gets_the_text_after_its_tools_were_called(how: str, era: Era) -> None:
    model = ScriptedModel(
        [ToolCall("multiply", {"a": 6, "b": 7}), ToolCall("multiply", {"a": 2, "b": 4})],
        ToolCall("add", {"a": 42, "b": 8}),
        "it is 50",
    )
    async with reached(how, server, __name__) as transport, running_tools(transport, model, era) as client:
        result = await client.call_tool("solve", {"problem": "6 * 7 + 2 * 4"})

    assert result.text == "it is 50"
    first, second, third = model.requests
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]
    assert (results(second), results(third)) == ([("42.0", False), ("8.0", False)], [("50.0", False)])
    assert [tool.name for tool in third.tools] == ["add", "multiply", "secret"]
    assert first.outer is not None
    assert (first.outer.name, second.outer, third.outer) == ("solve", first.outer, first.outer)


@over_pipe_and_http
async def test_an_answer_that_names_a_tool_that_the_server_did_not_list_goes_to_it_whole(how: str, era: Era) -> None:
    alone = [ToolCall("secret")]
    beside_one_that_it_lists = [ToolCall("add", {"a": 1, "b": 2}), ToolCall("secret")]
    for calls in (alone, beside_one_that_it_lists):
        called: list[str] = []
        async with (
            reached(how, server, __name__) as transport,
            running_tools(transport, ScriptedModel(calls), era, middleware=[noting(called)]) as client,
        ):
            result = await client.call_tool("solve", {"problem": "?"})

        assert result.text == ", ".join(f"{call.name}: {call.arguments}" for call in calls)
        assert called == ["tools/call", "tools/list"]


async def test_a_required_tool_may_be_one_that_the_host_runs_and_the_last_answer_is_asked_for_without_tools(
    era: Era,
) -> None:
    calls = [ToolCall("add", {"a": 1, "b": 2})] * 2
    model = ScriptedModel(*calls, lambda request: request.reply(f"enough: {mode(request)}"))

    result = await solved(model, era, required=True, run_own_tools=OwnTools(max_turns=3))

    assert result == "enough: none"
    assert [mode(request) for request in model.requests] == ["required", "auto", "none"]


# Approval, identity, policy


async def test_the_request_is_approved_once_and_each_call_by_the_middleware(era: Era) -> None:
    approved: list[SamplingRequest] = []
    asked: list[object] = []

    async def approve(request: SamplingRequest) -> Allow:
        approved.append(request)
        return Allow()

    async def approve_call(request: ClientRequest) -> Allow | Deny:
        asked.append((request.params["name"], request.params["arguments"], request.tool is not None))
        return Deny("not that") if request.params["name"] == "multiply" else Allow()

    model = ScriptedModel(
        [ToolCall("add", {"a": 1, "b": 2}), ToolCall("multiply", {"a": 3, "b": 4})],
        lambda request: str(results(request)),
    )
    text = await solved(
        model, era, sampling=Sampling(with_tools=model, approve=approve), middleware=[approve_tool_calls(approve_call)]
    )

    assert text == str([("3.0", False), ("the call of 'multiply' was denied: not that", True)])
    assert len(approved) == 1
    assert sorted(map(str, asked)) == [
        "('add', {'a': 1, 'b': 2}, True)",
        "('multiply', {'a': 3, 'b': 4}, True)",
        "('solve', {'problem': '?', 'required': False}, False)",
    ]


async def test_calls_are_made_for_the_caller_of_the_outer_call_and_under_the_names_of_the_application(era: Era) -> None:
    calls: list[tuple[str, object, str]] = []

    async def note(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method == "tools/call":
            calls.append((request.params["name"], request.caller, USER.get()))
        return await call_next(request)

    model = ScriptedModel(ToolCall("add", {"a": 1, "b": 2}), lambda request: str(results(request)))
    policy = ToolPolicy(rename=lambda name: f"calc_{name}")
    token = USER.set("ann")
    try:
        text = await solved(model, era, caller="Ann", tools=policy, middleware=[note], tool="calc_solve")
    finally:
        USER.reset(token)

    assert text == str([("3.0", False)])
    assert [tool.name for tool in model.requests[0].tools] == ["add", "multiply", "secret"]  # the server's names
    assert calls == [("calc_solve", "Ann", "ann"), ("calc_add", "Ann", "ann")]


async def test_a_tool_that_the_policy_does_not_let_through_goes_back_to_the_server(era: Era) -> None:
    for policy in (ToolPolicy(allow={"solve", "add"}), ToolPolicy(allow=lambda tool: tool.name != "multiply")):
        called: list[str] = []
        model = ScriptedModel(ToolCall("add", {"a": 1, "b": 2}), ToolCall("multiply", {"a": 3, "b": 4}))

        text = await solved(model, era, tools=policy, middleware=[noting(called)])

        assert text == "multiply: {'a': 3, 'b': 4}"
        assert called.count("tools/call") == 2  # solve, add


async def test_a_tool_that_its_pin_blocks_goes_back_to_the_server(era: Era) -> None:
    server = asking("tool")
    server.tool(name="tool", description="as agreed")(lambda: "first")
    pins = ToolPins()
    model = ScriptedModel(ToolCall("tool"), "first", ToolCall("tool"))
    async with running_tools(server, model, era, tools=ToolPolicy(pins=pins)) as client:
        assert (await client.call_tool("ask")).text == "first"
        server.remove_tool("tool")
        server.tool(name="tool", description="changed")(lambda: "second")
        assert (await client.call_tool("ask")).text == "tool"


# Settings


async def test_it_is_off_by_default_and_can_be_changed_for_later_requests(era: Era) -> None:
    model = ScriptedModel(*[ToolCall("add", {"a": 1, "b": 2})] * 2, "3", *[ToolCall("add", {"a": 1, "b": 2})] * 2, "3")
    texts: list[str] = []
    settings: list[object] = []
    async with connected(server, era=era.version, sampling=sampling(model)) as client:
        for setting in (None, True, False, OwnTools(max_turns=2)):
            if setting is not None:
                client.run_own_tools = setting
            settings.append(client.run_own_tools)
            texts.append((await client.call_tool("solve", {"problem": "?"})).text)

    call = "add: {'a': 1, 'b': 2}"
    assert texts == [call, "3", call, "3"]
    assert settings == [False, OwnTools(), False, OwnTools(max_turns=2)]


def test_what_is_no_setting_is_refused() -> None:
    wrong: Any = {"max_turns": 3}
    with pytest.raises(TypeError, match=r"^run_own_tools is True, False, or OwnTools\("):
        Client(server, sampling=sampling(ScriptedModel()), run_own_tools=wrong)
    client = Client(server, sampling=sampling(ScriptedModel()))
    with pytest.raises(TypeError, match=r"^run_own_tools is True, False, or OwnTools\("):
        client.run_own_tools = wrong
    with pytest.raises(CallerError, match=r"^this client was made without sampling"):
        Client(server, run_own_tools=True)
    assert Client(server).run_own_tools is False


def test_a_limit_that_is_no_number_of_its_kind_is_refused() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"max_turns": 1}, ValueError, "max_turns must be at least 2, not 1"),
        ({"max_turns": 2.5}, ValueError, "max_turns must be a whole number, not 2.5"),
        ({"max_turns": math.inf}, ValueError, "max_turns must be a whole number, not inf"),
        ({"max_turns": "3"}, TypeError, "max_turns must be a number, not '3'"),
        ({"max_calls": 0}, ValueError, "max_calls must be at least 1, not 0"),
        ({"timeout": 0}, ValueError, "timeout must be more than 0, not 0"),
        ({"tool_timeout": -1}, ValueError, "tool_timeout must be more than 0, not -1"),
        ({"tool_timeout": None}, TypeError, "tool_timeout must be a number of seconds, not None"),
    ]
    refused: list[tuple[dict[str, Any], type[Exception], str]] = []
    for limits, _, _ in wrong:
        with pytest.raises((TypeError, ValueError)) as raised:
            OwnTools(**limits)
        refused.append((limits, raised.type, str(raised.value).removeprefix("OwnTools.")))

    assert refused == wrong


if __name__ == "__main__":
    server.run_stdio()
