"""A host's loop: its model, the tools of its servers and its own functions."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pytest
from anyio import Event, fail_after, from_thread, sleep, sleep_forever

from mcp_host import (
    Allow,
    Client,
    Deny,
    Elicitation,
    FormRequest,
    Handler,
    Limits,
    LoopResult,
    ProposedCall,
    Sampling,
    SamplingRequest,
    ToolCall,
    ToolPolicy,
    always,
    ask_in_terminal,
    run_tool_loop,
)
from mcp_host.errors import HttpStatusError, NotConnected, RequestTimeout, SamplingError, ServerError
from mcp_host.functions import FunctionTool
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.protocol import conversation
from mcp_host.sampling import Step
from mcp_host.testing import Context, ScriptedModel, Server, ToolError
from mcp_host.types import (
    AssistantMessage,
    AudioContent,
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    ReceivedContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolResultContent,
    UserMessage,
)
from tests.clock import advance
from tests.extent import on_both
from tests.sampling.asking import Approver, Wire, text
from tests.terminal.screens import Screen

ONE_AND_TWO = {"a": 1, "b": 2}

in_both_eras = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


def calculator() -> Server:
    server = Server("calculator")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def divide(a: float, b: float) -> float:
        if b == 0:
            raise ToolError("b must not be 0")
        return a / b

    return server


def serving(tool: Callable[..., object], name: str = "server") -> Server:
    server = Server(name)
    server.tool(tool)
    return server


def refuse() -> None:
    raise ToolError("not on Sundays")


async def late_cut(result: CallToolResult, max_bytes: int) -> CallToolResult:
    return result


def results(done: LoopResult) -> list[ToolResultContent]:
    """What the model got, of all calls."""
    conversation.check(done.messages)
    return [block for message in done.messages for block in message.content if isinstance(block, ToolResultContent)]


def texts(done: LoopResult) -> list[str]:
    return [("error: " if result.is_error else "") + result.text for result in results(done)]


async def loop(model: Handler, *tools: Any, **options: Any) -> LoopResult:
    with fail_after(10_000):  # some have a clock that jumps
        return await run_tool_loop(model, "What is 1 + 2?", tools=tools, **options)


@in_both_eras
async def test_the_tools_of_servers_and_functions_run_until_the_model_answers(era: str) -> None:
    def shout(text: str) -> str:
        """Write in capitals."""
        return text.upper()

    model = ScriptedModel([ToolCall("add", ONE_AND_TWO), ToolCall("shout", {"text": "three"})], "It is THREE.")
    async with Client(calculator(), era=era) as client:
        done = await loop(model, client, shout, tool_choice="add")

    assert (done.ended, done.text, done.model, texts(done)) == ("answered", "It is THREE.", "scripted", ["3", "THREE"])
    [first, last] = model.requests
    assert [(tool.name, tool.description) for tool in first.tools] == [
        ("add", "Add two numbers."),
        ("divide", None),
        ("shout", "Write in capitals."),
    ]
    assert first.messages == [UserMessage("What is 1 + 2?")]
    assert last.messages == done.messages[:-1]
    assert (first.required_tool, last.required_tool) == ("add", None)


@in_both_eras
async def test_all_content_of_a_result_reaches_the_model(era: str) -> None:
    blocks: list[ReceivedContent] = [
        TextContent(text="a chart"),
        ImageContent(data="aGk=", mime_type="image/png"),
        AudioContent(data="aGk=", mime_type="audio/wav"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="contents")),
        ResourceLink(name="more", uri="file:///b.txt"),
    ]

    def draw() -> CallToolResult:
        return CallToolResult(content=blocks, structured_content={"points": [1, 2]})

    async with Client(serving(draw), era=era) as client:
        done = await loop(ScriptedModel(ToolCall("draw"), "done"), client)

    [result] = results(done)
    assert (result.content, result.structured_content, result.is_error) == (blocks, {"points": [1, 2]}, None)


async def test_arguments_that_do_not_fit_never_leave() -> None:
    calls: list[str] = []

    def order(count: int) -> str:
        calls.append("order")
        return "ordered"

    def approve(call: ProposedCall) -> Allow:
        calls.append("asked")
        return Allow()

    model = ScriptedModel(ToolCall("order", {"count": "many"}), ToolCall("order", {"count": 2}), "done")
    async with Client(serving(order)) as client:
        done = await loop(model, client, approve=approve)

    problem = "error: The arguments do not match the tool's inputSchema: $.count: not of type 'integer'"
    assert (texts(done), calls) == ([problem, "ordered"], ["asked", "order"])


async def test_arguments_may_go_unchecked() -> None:
    model = ScriptedModel(ToolCall("add", {"a": "one"}), "done")
    async with Client(calculator()) as client:
        done = await loop(model, client, check_arguments=False)

    [text] = texts(done)
    assert text.startswith("error: Invalid arguments: a: Input should be a valid integer")


# Functions


@on_both
async def test_a_plain_function_runs_in_a_thread_and_an_async_one_in_the_event_loop() -> None:
    here = threading.get_ident()

    def plain() -> bool:
        return threading.get_ident() == here

    async def in_loop() -> bool:
        return threading.get_ident() == here

    model = ScriptedModel([ToolCall("plain"), ToolCall("in_loop"), ToolCall("tool")], "done")
    done = await loop(model, plain, in_loop, FunctionTool(plain, name="tool"))

    assert texts(done) == ["false", "true", "false"]


@on_both
@pytest.mark.adjustable_clock
async def test_a_plain_function_that_hangs_is_late_and_left_behind() -> None:
    release = threading.Event()

    def hang() -> None:
        from_thread.run_sync(advance, 30)
        release.wait(60)

    try:
        done = await loop(ScriptedModel(ToolCall("hang"), "done"), hang, tool_timeout=30)
    finally:
        release.set()

    assert (done.ended, texts(done)) == ("answered", ["error: 'hang' did not finish within 30 seconds"])


# The arguments of the loop


async def test_tools_with_the_same_name_are_refused_before_the_model_is_asked(subtests: pytest.Subtests) -> None:
    """Servers with one name are told apart by their place in the list."""

    def add(a: int, b: int) -> int:
        return a + b

    async with Client(calculator()) as first, Client(calculator()) as second:
        rename = "with Client(..., tools=ToolPolicy(rename=...))"
        cases: list[tuple[list[Any], list[str]]] = [
            (
                [first, add],
                [
                    "two tools have the name 'add', of 'calculator' (tools[0]) and of 'this program' (tools[1]):"
                    f" rename one, {rename} or FunctionTool(function, name=...)"
                ],
            ),
            (
                [refuse, first, second, add],
                [
                    "two tools have the same names 'add', 'divide', of 'calculator' (tools[1]) and of 'calculator' (tools[2]):"
                    f" rename one of each, {rename}",
                    "two tools have the name 'add', of 'calculator' (tools[1]) and of 'this program' (tools[3]):"
                    f" rename one, {rename} or FunctionTool(function, name=...)",
                ],
            ),
        ]
        for tools, described in cases:
            with subtests.test(described[0]):
                model = ScriptedModel()

                with pytest.raises(ValueError, match="two tools") as caught:
                    await loop(model, *tools)

                assert str(caught.value).split("; ") == described
                assert model.requests == []


@in_both_eras
async def test_a_server_that_declares_no_tools_has_none(era: str) -> None:
    server = Server("library")
    server.resource("file:///a.txt")(lambda: "text")
    model = ScriptedModel(ToolCall("add", ONE_AND_TWO), "done")
    async with Client(server, era=era) as library, Client(calculator(), era=era) as client:
        assert library.server_capabilities.tools is None
        done = await loop(model, library, client)

    assert texts(done) == ["3"]


async def test_a_server_that_cannot_list_its_tools_is_named() -> None:
    for error in (
        ServerError(-32000, "no index"),
        RequestTimeout("tools/list: took longer than 7 s (timeout)"),
        HttpStatusError(502, "https://example.com: 502"),
    ):
        text = str(error)
        with pytest.raises(type(error)) as raised:
            await loop(ScriptedModel(), refuse, RecordingClient(error=error))

        assert raised.value is error
        assert str(error) == f"the tools of 'recorder' (tools[1]) cannot be listed: {text}"


@on_both
async def test_an_error_that_ends_a_loop_keeps_what_has_caused_it() -> None:
    """Of listings side by side, and of an approver between two calls that may run side by side."""
    defect, unlisted, undecided = KeyError("defect"), ServerError(-32000, "no index"), ValueError("no policy")
    unlisted.__cause__ = undecided.__cause__ = defect

    def approve(call: ProposedCall) -> Allow:
        raise undecided

    two = [ToolCall("refuse"), ToolCall("refuse")]
    for error, run in (
        (unlisted, partial(loop, ScriptedModel(), RecordingClient(error=unlisted))),
        (undecided, partial(run_tool_loop, ScriptedModel(two), "hello", tools=[refuse], approve=approve)),
    ):
        with pytest.raises(type(error)) as raised:
            await run()

        assert (raised.value, raised.value.__cause__, raised.value.__context__) == (error, defect, None)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "'' is left out: it is empty or cannot be printed"),
        ("line\nbreak", "'line\\nbreak' is left out: it is empty or cannot be printed"),
        ("echo", "'echo' is left out: another tool of that name stands before it"),
        ("a task", "'a task' is left out: it runs only as a task, and this client has none"),
    ],
)
async def test_one_bad_tool_of_a_server_is_left_out_with_a_warning(
    name: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = RecordingClient(also=name)
    model = ScriptedModel(ToolCall("echo", {"a": 1}), "done")

    done = await loop(model, client)

    assert ([tool.name for tool in model.requests[0].tools], texts(done)) == (["echo"], ["echo {'a': 1} None"])
    assert caplog.messages == [f"recorder: the tool {problem}"]


async def test_a_client_that_renames_its_tools_can_be_used_with_another() -> None:
    policy = ToolPolicy(rename=lambda name: f"second_{name}")
    model = ScriptedModel([ToolCall("add", ONE_AND_TWO), ToolCall("second_add", ONE_AND_TWO)], "done")
    async with Client(calculator()) as first, Client(calculator(), tools=policy) as second:
        done = await loop(model, first, second)

    assert texts(done) == ["3", "3"]


WRONG_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"messages": [UserMessage("hello")]}, TypeError, "not both"),
    (
        {
            "prompt": None,
            "messages": [{"role": "system", "content": "Be brief."}, UserMessage("hello")],
            "system_prompt": "Be kind.",
        },
        ValueError,
        "the system prompt is given twice: as an argument, and in the messages",
    ),
    ({"stop_sequences": "."}, TypeError, "stop_sequences must be a list of str, not a str"),
    ({"tools": calculator}, TypeError, r"tools=\[client, function\]"),
    ({"tools": [3]}, TypeError, r"tools\[0\] is an object of int, neither a client nor a function"),
    ({"tools": [refuse, calculator()]}, TypeError, r"tools\[1\].*async with Client\(server\) as client"),
    ({"tools": [refuse, refuse]}, ValueError, r"tools\[0\] and tools\[1\] are the same: leave one out$"),
    ({"tools": [refuse, FunctionTool(refuse)]}, ValueError, r"rename one, with FunctionTool\(function, name=...\)$"),
    ({"tools": [Client]}, TypeError, "is the class Client"),
    ({"tools": [lambda: 3]}, TypeError, r"has no name: give one with name=, as in FunctionTool\(function, name=...\)"),
    ({"check_arguments": None}, TypeError, "check_arguments is True or False, not NoneType"),
    ({"tool_choice": "add", "tools": [refuse]}, ValueError, "'add' is required, and the request does not offer it"),
    ({"tool_choice": "required"}, ValueError, "a tool is required, and the request offers none"),
    ({"approve": 3}, TypeError, "approve has to be a function"),
    ({"approve": lambda: Allow()}, TypeError, r"approve is called with one argument"),
    ({"on_turn": 3}, TypeError, "on_turn has to be a function"),
    ({"cut": 3}, TypeError, "cut has to be a plain function"),
    ({"cut": late_cut}, TypeError, "cut must be a plain function: it is not awaited"),
    (
        {"tools": [refuse, FunctionTool(refuse, name="other")], "max_tools": 1},
        ValueError,
        r"^there are 2 tools, 2 of 'this program', and max_tools is 1: .*ToolPolicy\(allow=.*, or raise max_tools",
    ),
    ({"max_tools": -1}, ValueError, "max_tools must be at least 0"),
    ({"max_turns": 0}, ValueError, "max_turns must be at least 1"),
    ({"timeout": 0}, ValueError, "timeout must be more than 0"),
    ({"tool_timeout": 0}, ValueError, "tool_timeout must be more than 0"),
    ({"max_result_bytes": 0}, ValueError, "max_result_bytes must be at least 1"),
]


async def test_the_log_has_the_size_of_the_tools(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    await run_tool_loop(ScriptedModel("done"), "hello", tools=[refuse], max_tools=math.inf)

    [line] = [message for message in caplog.messages if message.startswith("tool loop: ")]
    assert re.fullmatch(
        r"tool loop: 1 tools are offered, in \d\d+ bytes of JSON: about \d\d+ tokens in each turn", line
    )


async def test_wrong_arguments_are_refused_before_the_model_is_asked(subtests: pytest.Subtests) -> None:
    for arguments, error, problem in WRONG_ARGUMENTS:
        with subtests.test(arguments=arguments):
            model = ScriptedModel()

            with pytest.raises(error, match=problem):
                await run_tool_loop(model, **{"prompt": "hello", **arguments})

            assert model.requests == []


async def test_a_client_that_is_not_connected_is_an_error_of_the_caller() -> None:
    with pytest.raises(
        NotConnected, match=r"^the tools of 'calculator' \(tools\[0\]\) cannot be listed: the client is not connected"
    ):
        await loop(ScriptedModel(), Client(calculator()))


async def test_what_the_model_is_asked_has_the_options() -> None:
    model = ScriptedModel("hi")

    done = await run_tool_loop(
        model,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        max_tokens=7,
        temperature=0.5,
        stop_sequences=("STOP",),
        metadata={"user": "u"},
    )

    [request] = model.requests
    assert request.params.to_wire() == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        "systemPrompt": "Be brief.",
        "maxTokens": 7,
        "temperature": 0.5,
        "stopSequences": ["STOP"],
        "metadata": {"user": "u"},
    }
    assert done.messages == [UserMessage("hello"), AssistantMessage("hi")]


async def test_the_messages_of_one_loop_go_into_the_next() -> None:
    model = ScriptedModel(ToolCall("add", ONE_AND_TWO), "It is 3.", "You asked for 1 + 2.")
    async with Client(calculator()) as client:
        first = await loop(model, client)
        second = await run_tool_loop(model, messages=[*first.messages, UserMessage("What did I ask?")], tools=[client])

    assert second.text == "You asked for 1 + 2."
    assert second.messages[:-2] == first.messages


async def test_a_plain_model_runs_in_a_thread_and_may_return_text() -> None:
    here = threading.get_ident()

    def model(request: SamplingRequest) -> str:
        return str(threading.get_ident() == here)

    done = await run_tool_loop(model, "hello")

    assert (done.text, done.model, done.stop_reason) == ("False", "unknown", "endTurn")


async def test_a_model_that_returns_no_answer_is_an_error() -> None:
    def model(request: SamplingRequest) -> Any:
        return None

    with pytest.raises(
        SamplingError, match="the type of the model's answer is NoneType, not CreateMessageResult or str"
    ):
        await run_tool_loop(model, "hello")


async def test_a_plain_on_turn_gets_each_step() -> None:
    steps: list[Step] = []

    done = await loop(ScriptedModel(ToolCall("refuse"), "done"), refuse, on_turn=steps.append)

    assert tuple(steps) == done.steps
    assert len(steps) == 2


async def test_the_caller_of_the_loop_is_that_of_its_calls() -> None:
    user, approve = object(), Approver(Allow())
    callers: list[object] = []

    async def note(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method == "tools/call":
            callers.append(request.caller)
        return await call_next(request)

    async with Client(calculator(), middleware=[note]) as client:
        await loop(ScriptedModel(ToolCall("add", ONE_AND_TWO), "done"), client, caller=user, approve=approve)

    assert callers == [call.caller for call in approve.asked] == [user]


def test_the_repr_of_a_proposed_call_has_neither_arguments_nor_caller() -> None:
    tool = Tool(name="login", input_schema={})
    call = ProposedCall(server="shop", tool=tool, arguments={"password": "secret"}, caller="Ada")

    assert repr(call) == f"ProposedCall(server='shop', tool={tool!r})"


class RecordingClient:
    """A client of another kind, with one tool, or *also* another, or an *error*. It records the timeouts that it is given."""

    name = "recorder"

    def __init__(self, *, also: str | None = None, error: Exception | None = None) -> None:
        self.timeouts: list[float | None] = []
        self.error = error
        self.names = ["echo"] if also is None else ["echo", also]

    async def list_tools(self, *, timeout: float | None) -> list[Tool]:
        self.timeouts.append(timeout)
        if self.error is not None:
            raise self.error
        support = {"a task": "required", "echo": "optional"}
        wires = [{"name": name, "execution": {"taskSupport": support.get(name, "forbidden")}} for name in self.names]
        return [Tool.from_wire({**wire, "inputSchema": {"type": "object"}}) for wire in wires]

    async def call_tool(self, name: str, arguments: object, *, timeout: float | None, caller: object) -> CallToolResult:
        self.timeouts.append(timeout)
        return CallToolResult(content=[TextContent(text=f"{name} {arguments} {caller}")])


async def test_any_object_with_the_methods_of_a_client_will_do() -> None:
    client = RecordingClient()

    done = await loop(ScriptedModel(ToolCall("echo", {"a": 1}), "done"), client, tool_timeout=7, caller="Ada")

    assert (texts(done), client.timeouts) == (["echo {'a': 1} Ada"], [7, 7])


# Approval


async def test_each_call_is_approved_with_its_tool_and_arguments_in_sight() -> None:
    seen: list[ProposedCall] = []
    server = Server("shop")

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def order(items: list[str]) -> str:
        return f"ordered {items}"

    async def approve(call: ProposedCall) -> Allow | Deny:
        seen.append(deepcopy(call))
        call.arguments["items"].clear()
        few["items"].append("which the model adds while a person decides")
        return Deny("too many") if len(seen[-1].arguments["items"]) > 2 else Allow()

    few: dict[str, Any] = {"items": ["tea", "milk"]}
    many = {"items": ["tea", "milk", "rum"]}
    model = ScriptedModel([ToolCall("order", few), ToolCall("order", many)], "done")
    async with Client(server) as client:
        done = await loop(model, client, approve=approve)

    assert texts(done) == ["ordered ['tea', 'milk']", "error: This call was denied: too many"]
    assert [(call.server, call.name, call.arguments) for call in seen] == [
        ("shop", "order", {"items": ["tea", "milk"]}),
        ("shop", "order", many),
    ]
    assert seen[0].tool.annotations == ToolAnnotations(destructive_hint=True)


async def test_a_tool_allowed_for_the_session_is_not_asked_about_again_in_this_loop() -> None:
    approve = Approver(Allow("session"))
    turns = [ToolCall("add", ONE_AND_TWO), ToolCall("divide", ONE_AND_TWO)]
    async with Client(calculator()) as client:
        await loop(ScriptedModel(turns, turns, turns, "done"), client, approve=approve)
        await loop(ScriptedModel(turns[:1], "done"), client, approve=approve)

    assert [call.name for call in approve.asked] == ["add", "divide", "add"]


async def test_the_terminal_approves_calls_of_the_loop(screen: Screen) -> None:
    call = ToolCall("add", ONE_AND_TWO)
    async with Client(calculator()) as client:
        ask = partial(loop, ScriptedModel(call, call, "done"), client, approve=ask_in_terminal)
        done = await screen.outcome(ask, "May your client call it? [y/s/v/N] ", "s\n")

    assert texts(done) == ["3", "3"]


# Bounds and endings


@on_both
@in_both_eras
@pytest.mark.fake_clock
async def test_a_late_tool_of_a_server_is_a_result_and_the_server_is_told(era: str) -> None:
    cancelled = Event()

    async def hang() -> None:
        try:
            await sleep_forever()
        finally:
            cancelled.set()

    async with Client(serving(hang), era=era) as client:
        done = await loop(ScriptedModel(ToolCall("hang"), "done"), client)
        with fail_after(5):
            await cancelled.wait()

    assert (done.ended, done.steps[0].calls[0].seconds) == ("answered", 30)
    assert texts(done) == ["error: the tool hang failed: it did not finish in time"]


@in_both_eras
@pytest.mark.fake_clock
async def test_the_time_in_which_the_user_fills_in_a_form_does_not_count_for_the_tool(era: str) -> None:
    async def order(context: Context) -> str:
        answer = await context.elicit("How many?", {"type": "object", "properties": {"count": {"type": "integer"}}})
        return f"{answer.content}"

    async def fill_in(request: FormRequest) -> ElicitResult:
        await sleep(200)
        return request.accept({"count": 3})

    async with Client(serving(order), era=era, elicitation=Elicitation(form=fill_in)) as client:
        done = await loop(ScriptedModel(ToolCall("order"), "done"), client)

    assert (done.ended, texts(done)) == ("answered", ["{'count': 3}"])


async def test_the_model_gets_a_part_of_a_long_result_and_the_steps_have_the_whole() -> None:
    def read() -> str:
        return "é" * 50_000

    def first_characters(result: CallToolResult, max_bytes: int) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=result.text[:3])])

    async with Client(serving(read)) as client:
        done = await loop(ScriptedModel(ToolCall("read"), "done"), client, max_result_bytes=1000)
        whole = await loop(ScriptedModel(ToolCall("read"), "done"), client, max_result_bytes=100_000)
        replaced = await loop(ScriptedModel(ToolCall("read"), "done"), client, cut=first_characters)

    [result] = results(done)
    assert "é\n[99044 of 100000 bytes are left out here]\né" in result.text
    assert done.steps[0].calls[0].result.text == "é" * 50_000
    assert texts(whole) == ["é" * 50_000]
    assert texts(replaced) == ["ééé"]


async def test_a_policy_for_long_results_that_raises_or_returns_something_else_ends_the_loop() -> None:
    def returns_text(result: CallToolResult, max_bytes: int) -> Any:
        return result.text

    def fails(result: CallToolResult, max_bytes: int) -> CallToolResult:
        raise KeyError(max_bytes)

    with pytest.raises(TypeError, match="cut has to return a CallToolResult, not str"):
        await loop(ScriptedModel(ToolCall("refuse")), refuse, cut=returns_text)
    with pytest.raises(KeyError, match="65536"):
        await loop(ScriptedModel(ToolCall("refuse")), refuse, cut=fails)


@in_both_eras
@on_both
async def test_loops_within_each_other_are_bounded_in_depth(era: str, caplog: pytest.LogCaptureFixture) -> None:
    """The model's tool samples the same model, which runs a loop with the same tool, and so on."""
    depth = 0

    async def dig(context: Context) -> str:
        return (await context.sample("dig")).text

    async def model(request: SamplingRequest) -> CreateMessageResult | str:
        nonlocal depth
        if isinstance(request.messages[-1].content[0], ToolResultContent):
            return request.messages[-1].content[0].text
        if request.tools:
            return request.call("dig")
        depth += 1
        return (await loop(model, client)).text

    sampling = Sampling(with_tools=model, approve=always)
    with fail_after(60):
        async with Client(serving(dig), era=era, sampling=sampling, limits=Limits(max_nesting=3)) as client:
            done = await loop(model, client)

    assert (done.ended, depth) == ("answered", 3)
    assert "max_nesting" in (done.text if era == "2025-11-25" else caplog.text)  # there the server passes it on


FILE = "caf\udce9.txt"  # as `os.listdir` gives a name that is no UTF-8

SHOWN = "caf\ufffd.txt"


@dataclass
class Sizes:
    bytes: dict[str, int]


HALF_CHARACTERS: list[tuple[object, Any, Wire]] = [
    (FILE, str, {"content": [text(SHOWN)]}),
    ([FILE], list[str], {"content": [text(f'["{SHOWN}"]')], "structuredContent": {"result": [SHOWN]}}),
    ({FILE: 1}, object, {"content": [text(f'{{"{SHOWN}":1}}')], "structuredContent": {SHOWN: 1}}),
    ((Sizes({FILE: 1}),), object, {"content": [text(f'[{{"bytes":{{"{SHOWN}":1}}}}]')], "structuredContent": {"result": [{"bytes": {SHOWN: 1}}]}}),
    (PurePosixPath(FILE), PurePosixPath, {"content": [text(SHOWN)], "structuredContent": {"result": SHOWN}}),
    (ResourceLink(name=FILE, uri="file:///caf%E9.txt"), ResourceLink, {"content": [{"type": "resource_link", "name": SHOWN, "uri": "file:///caf%E9.txt"}]}),
    (CallToolResult(content=[TextContent(text=FILE)], structured_content={"files": [FILE]}), CallToolResult, {"content": [text(SHOWN)], "structuredContent": {"files": [SHOWN]}}),
    (ToolError(f"no {FILE}"), str, {"content": [text(f"no {SHOWN}")], "isError": True}),
]  # fmt: skip


def returning(value: object, kind: Any) -> Callable[[], object]:
    """A function that is annotated with the type *kind*, and returns *value* or raises it."""

    def listing() -> object:
        if isinstance(value, Exception):
            raise value
        return value

    listing.__annotations__["return"] = kind
    return listing


async def test_half_of_a_character_in_what_a_function_returns_is_replaced(subtests: pytest.Subtests) -> None:
    for value, kind, expected in HALF_CHARACTERS:
        with subtests.test(type(value).__name__):
            done = await loop(ScriptedModel(ToolCall("listing"), "Done."), returning(value, kind))

            assert [call.result.to_wire() for call in done.steps[0].calls] == [expected]


async def test_half_of_a_character_in_a_prompt_is_replaced() -> None:
    model = ScriptedModel("1", "2")
    await run_tool_loop(model, "a\ud83d b", system_prompt="c\ud83d")
    await run_tool_loop(
        model, messages=[{"role": "system", "content": "c\ud83d"}, UserMessage("\ud83d\ude00 a\ud83d b")]
    )

    assert [[message.text for message in request.messages] for request in model.requests] == [
        ["a\ufffd b"],
        ["😀 a\ufffd b"],
    ]
    assert [request.system_prompt for request in model.requests] == ["c\ufffd", "c\ufffd"]


async def test_ordinary_messages_stay_the_same_objects() -> None:
    message = UserMessage("é")
    model = ScriptedModel("1")
    await run_tool_loop(model, messages=[message])

    assert model.requests[0].messages[0] is message
