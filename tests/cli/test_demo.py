"""`mcp-host demo`, from end to end: real child processes, a real socket, every step on the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from io import StringIO
from pathlib import Path

import pytest

from mcp_host import SamplingRequest
from mcp_host.cli.commands import demo
from mcp_host.cli.commands.demo import PrintingModel, server_script
from mcp_host.cli.output import Printer
from mcp_host.errors import ConnectFailed
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from tests.cli.bounded import IN_TIME
from tests.cli.conftest import Run
from tests.cli.terminals import ROOT

DIALOGUE = """\
{connect}
    capabilities  {{"sampling": {{"tools": {{}}}}}}

{connected}
    server        calculator 1.0.0
    revision      {revision}
    capabilities  {{"logging": {{}}, "tools": {{"listChanged": true}}}}

host -> server: tools/call
    tool          solve
    arguments     {{"problem": "What is (3 + 4) * (10 - 4) / 2?"}}

{request}
    user          What is (3 + 4) * (10 - 4) / 2?
    tools         add, subtract, multiply, divide

{answer}
    tool_use      add {{"a": 3, "b": 4}} (call 1)
    tool_use      subtract {{"a": 10, "b": 4}} (call 2)
    model         arithmetic planner (no language model)
    stopReason    toolUse

{request}
    messages      2 as before, and
    tool_result   7.0 (call 1)
    tool_result   6.0 (call 2)
    tools         add, subtract, multiply, divide

{answer}
    tool_use      multiply {{"a": 7, "b": 6}} (call 3)
    model         arithmetic planner (no language model)
    stopReason    toolUse

{request}
    messages      4 as before, and
    tool_result   42.0 (call 3)
    tools         add, subtract, multiply, divide

{answer}
    tool_use      divide {{"a": 42, "b": 2}} (call 4)
    model         arithmetic planner (no language model)
    stopReason    toolUse

{request}
    messages      6 as before, and
    tool_result   21.0 (call 4)
    tools         add, subtract, multiply, divide

{answer}
    assistant     (3 + 4) * (10 - 4) / 2 = 21
    model         arithmetic planner (no language model)
    stopReason    endTurn

server -> host: the tool's result
    content       (3 + 4) * (10 - 4) / 2 = 21
    isError       false
"""


HANDSHAKE = DIALOGUE.format(
    connect="host -> server: initialize",
    connected="server -> host: the result of initialize",
    revision="2025-11-25",
    request="server -> host: sampling/createMessage, a request for our model",
    answer="host -> server: our model's answer",
)
STATELESS = DIALOGUE.format(
    connect="host -> server: server/discover",
    connected="server -> host: the result of server/discover",
    revision="2026-07-28",
    request="server -> host: a result that asks for sampling/createMessage, a request for our model",
    answer="host -> server: tools/call once more, with our model's answer",
)


def plain(page: str) -> str:
    """A dialogue with its random ids as numbers, in order of appearance: equal ids stay equal."""
    numbers: dict[str, int] = {}
    return re.sub(r"call_[0-9a-f]{16}", lambda id: f"call {numbers.setdefault(id[0], len(numbers) + 1)}", page)


def test_the_demo_shows_every_step_over_stdio_and_then_over_http(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mcp_host", "demo"]
    environment = {**os.environ, "HOME": str(tmp_path), "COLUMNS": "100"}

    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=IN_TIME, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    over_stdio, over_http = done.stdout.split("2. Over HTTP, without one: the same server, as a service\n")
    beginning, _, dialogue = over_stdio.removesuffix("\n").partition("\n\n")
    assert beginning.splitlines()[0] == "1. Over stdio, with a handshake: the server is a child process"
    assert plain(dialogue) == HANDSHAKE
    beginning, _, dialogue = over_http.partition("\n\n")
    assert re.fullmatch(r"   http://127\.0\.0\.1:\d+/mcp", beginning.splitlines()[-1])
    assert plain(dialogue) == STATELESS


def test_without_uvicorn_the_demo_names_the_missing_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    code, out, err = run("demo")

    assert (code, err) == (0, "")
    assert out.endswith(
        "2. Over HTTP, without one: the same server, as a service\n"
        "   needs uvicorn, which is not installed: pip install 'mcp-host[testing]'\n"
    )


def test_a_server_that_does_not_start_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "calculator_server.py"
    script.write_text(
        f"import runpy, sys\nif '--http' in sys.argv: sys.exit(1)\n"
        f"runpy.run_path({str(server_script())!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(demo, "server_script", lambda: script)

    done = run("demo")

    assert (done.code, done.err) == (3, "mcp-host: calculator_server.py --http ended before it served\n")


async def test_a_server_that_does_not_listen_in_time_is_an_error() -> None:
    with pytest.raises(ConnectFailed, match=r"^calculator_server.py --http did not start within 0 s$"):
        async with demo._http_server(demo.server_script(), startup_timeout=0):
            pass


def test_the_wheel_contains_the_example_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"examples/calculator_server.py": "mcp_host/cli/commands/calculator_server.py"}
    assert server_script() == ROOT / "examples" / "calculator_server.py"

    installed = tmp_path / "calculator_server.py"
    installed.touch()
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "demo.py"))
    assert server_script() == installed


# Printing a conversation, in the cases that the demo's own does not show


@pytest.fixture
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


async def printed(model: ScriptedModel, *requests: CreateMessageRequestParams) -> list[str]:
    stream = StringIO()
    printing = PrintingModel(model, Printer(stream), demo.HANDSHAKE)
    for params in requests:
        await printing(SamplingRequest(params=params, server="test"))
    return [line for line in stream.getvalue().splitlines() if line]


def user(*content: TextContent | ImageContent | ToolResultContent) -> SamplingMessage:
    return SamplingMessage(role="user", content=content)


@pytest.mark.usefixtures("width")
async def test_a_request_without_tools_is_printed_with_all_content() -> None:
    model = ScriptedModel(CreateMessageResult(content=TextContent(text="Yes.\x1b[2J"), model="m"))
    image = ImageContent(data="AAAA", mime_type="image/png")
    asked = [user(TextContent(text="Is this\nthe truth?"), image)]

    lines = await printed(model, CreateMessageRequestParams(messages=asked, max_tokens=9))

    assert lines == [
        "server -> host: sampling/createMessage, a request for our model",
        "    user          Is this",
        "                  the truth?",
        "    user          [image/png, 4 characters of base64]",
        "    tools         none",
        "host -> server: our model's answer",
        "    assistant     Yes.\\x1b[2J",
        "    model         m",
        "    stopReason    none",
    ]


@pytest.mark.usefixtures("width")
async def test_the_result_of_a_failed_tool_is_marked() -> None:
    use = ToolUseContent(id="1", name="look", input={})
    failed = ToolResultContent(tool_use_id="1", content=[TextContent(text="too dark")], is_error=True)
    asked = [user(TextContent(text="?")), SamplingMessage(role="assistant", content=use), user(failed)]
    tool = Tool(name="look", input_schema={})

    lines = await printed(ScriptedModel("ok"), CreateMessageRequestParams(messages=asked, max_tokens=9, tools=[tool]))

    assert lines[1:5] == [
        "    user          ?",
        "    tool_use      look {} (1)",
        "    tool_result   error: too dark (1)",
        "    tools         look",
    ]
