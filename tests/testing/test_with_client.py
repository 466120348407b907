"""`Client` and a test server over every transport, in both eras."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest
from anyio import create_task_group, fail_after

from mcp_host import Client, Elicitation, FormRequest, Sampling, Stdio, StreamableHttp, ToolCall, always
from mcp_host.errors import MissingRequiredClientCapability
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.transports.base import Transport
from mcp_host.types import CallToolResult, ElicitResult, ProgressNotificationParams, TextContent, ToolResultContent
from tests.extent import on_both

ConnectBy: TypeAlias = Callable[[Server], AbstractAsyncContextManager[Transport]]


def add(a: float, b: float) -> float:
    return a + b


def divide(a: float, b: float) -> float:
    return a / b


MODERN = ("2026-07-28",)
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


def calculator(versions: Sequence[str] = MODERN + HANDSHAKE) -> Server:
    server = Server("calculator", versions=versions)

    @server.tool
    async def solve(ctx: Context, problem: str) -> str:
        """Solve a problem in words."""
        await ctx.report_progress(0, message="asking")
        return (await ctx.sample_loop(problem, tools=[add, divide], max_turns=64)).text

    @server.tool
    async def confirm(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
        return (await ctx.elicit("Sure?", schema)).action

    @server.tool
    async def folders(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    return server


@asynccontextmanager
async def in_process(server: Server) -> AsyncIterator[Transport]:
    yield server.in_process()


@asynccontextmanager
async def over_http(server: Server, *, json_response: bool = False) -> AsyncIterator[Transport]:
    async with server.http(json_response=json_response) as url:
        yield StreamableHttp(url)


def over_http_in_json(server: Server) -> AbstractAsyncContextManager[Transport]:
    return over_http(server, json_response=True)


@asynccontextmanager
async def connected(connect_by: ConnectBy, server: Server, **options: Any) -> AsyncIterator[Client]:
    with fail_after(25):
        async with connect_by(server) as transport, Client(transport, **options) as client:
            yield client


@pytest.fixture(params=[in_process, over_http, over_http_in_json], ids=lambda connect_by: connect_by.__name__)
def connect_by(request: pytest.FixtureRequest) -> ConnectBy:
    chosen: ConnectBy = request.param
    return chosen


@pytest.fixture(params=[MODERN, HANDSHAKE], ids=["2026", "2025"])
def versions(request: pytest.FixtureRequest) -> Sequence[str]:
    chosen: Sequence[str] = request.param
    return chosen


def planner() -> ScriptedModel:
    return ScriptedModel(
        [ToolCall("add", {"a": 1, "b": 2}), ToolCall("divide", {"a": 1, "b": 0})], "It is 3, and the other is endless."
    )


def said(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


@on_both
async def test_a_tool_loop_works_over_every_transport(connect_by: ConnectBy, versions: Sequence[str]) -> None:
    model = planner()
    reports: list[str | None] = []

    async def on_progress(report: ProgressNotificationParams) -> None:
        reports.append(report.message)

    sampling = Sampling(with_tools=model, approve=always)
    async with connected(connect_by, calculator(versions), sampling=sampling) as client:
        mode = client.sampling_mode
        result = await client.call_tool("solve", {"problem": "1 + 2, 1 / 0"}, on_progress=on_progress)

    results = [block for block in model.requests[1].params.messages[2].content if isinstance(block, ToolResultContent)]
    assert mode == "with_tools"
    # Since 2026-07-28 a JSON answer leaves no way for reports: there is no other stream.
    assert reports == ([] if (connect_by, versions) == (over_http_in_json, MODERN) else ["asking"])
    assert [tool.name for tool in model.requests[0].params.tools or []] == ["add", "divide"]
    assert [(one.text, one.is_error) for one in results] == [("3.0", None), ("the tool divide failed", True)]
    assert said(result) == ["It is 3, and the other is endless."]


async def test_elicitation_and_roots_work_over_every_transport(connect_by: ConnectBy, versions: Sequence[str]) -> None:
    async def accept(request: FormRequest) -> ElicitResult:
        return ElicitResult(action="accept", content={"sure": True})

    options = {"elicitation": Elicitation(form=accept), "roots": ["file:///a"]}
    async with connected(connect_by, calculator(versions), **options) as client:
        confirmed = await client.call_tool("confirm")
        folders = await client.call_tool("folders")

    assert (said(confirmed), folders.structured_content) == (["accept"], {"result": ["file:///a"]})


async def test_a_host_without_a_model_is_not_asked_for_one(connect_by: ConnectBy) -> None:
    async with connected(connect_by, calculator(HANDSHAKE)) as client:
        result = await client.call_tool("solve", {"problem": "?"})

    assert (said(result), result.is_error) == (["the client did not declare sampling"], True)


async def test_since_2026_a_host_without_a_model_gets_the_missing_capability(connect_by: ConnectBy) -> None:
    async with connected(connect_by, calculator(MODERN)) as client:
        with pytest.raises(MissingRequiredClientCapability) as caught:
            await client.call_tool("solve", {"problem": "?"})

    assert caught.value.required_capabilities == {"sampling": {}}


@on_both
async def test_many_clients_share_a_server(connect_by: ConnectBy, versions: Sequence[str]) -> None:
    answers: list[list[str]] = []

    async def one(transport: Transport, name: str) -> None:
        sampling = Sampling(with_tools=ScriptedModel(name), approve=always)
        async with Client(transport, sampling=sampling) as client:
            answers.append(said(await client.call_tool("solve", {"problem": "who?"})))

    with fail_after(25):
        async with connect_by(calculator(versions)) as transport, create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(one, transport, name)

    assert sorted(answers) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_child_process_works_in_both_eras(era: str) -> None:
    transport = Stdio([sys.executable, "-m", "tests.testing.stdio_server"])
    sampling = Sampling(with_tools=ScriptedModel("Because."), approve=always)
    with fail_after(30):
        async with Client(transport, sampling=sampling, era=era) as client:
            assert said(await client.call_tool("ask", {"question": "Why?"})) == ["Because."]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_sampling_call_works_in_every_older_revision(version: str) -> None:
    server = Server("old", versions=(version,))

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Why?")).text

    sampling = Sampling(with_tools=ScriptedModel("Because."), approve=always)
    with fail_after(25):
        async with Client(server.in_process(), sampling=sampling) as client:
            assert (client.protocol_version, client.sampling_mode) == (version, "with_tools")
            assert said(await client.call_tool("ask")) == ["Because."]


@on_both
async def test_an_expired_session_is_reinitialized() -> None:
    server = calculator(HANDSHAKE)
    with fail_after(25):
        async with server.http() as url, Client(StreamableHttp(url)) as client:
            before = await client.list_tools()
            await server.expire_sessions()
            after = await client.list_tools()

    assert [tool.name for tool in after] == [tool.name for tool in before]


@on_both
async def test_a_cut_stream_is_resumed_by_the_client() -> None:
    server = Server("s", versions=HANDSHAKE)
    runs: list[int] = []

    @server.tool
    async def cut(ctx: Context) -> str:
        runs.append(1)
        await server.drop_streams(retry=0.01)
        return (await ctx.sample("Still there?")).text

    sampling = Sampling(with_tools=ScriptedModel("Yes."), approve=always)
    with fail_after(25):
        async with server.http() as url, Client(StreamableHttp(url), sampling=sampling) as client:
            result = await client.call_tool("cut")

    assert (said(result), runs) == (["Yes."], [1])


def test_importing_the_package_does_not_import_its_testing_part() -> None:
    code = "import sys, mcp_host; sys.exit(any(name.startswith('mcp_host.testing') for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
