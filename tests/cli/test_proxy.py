"""`mcp-host proxy` as hosts start it: a child process in front of a child process of its own."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import fail_after

from mcp_host import Client, Stdio, always
from mcp_host.cli.arguments import parse
from mcp_host.cli.commands import proxy
from mcp_host.errors import ServerError
from mcp_host.proxy import ask_host
from mcp_host.sampling.terminal import ask_in_terminal
from tests.cli.bounded import IN_TIME
from tests.cli.conftest import Run
from tests.cli.terminals import ROOT
from tests.proxy.servers import text_of

CALCULATOR = ["--", sys.executable, str(ROOT / "examples" / "calculator_server.py")]


def proxied(*options: str) -> Stdio:
    return Stdio([sys.executable, "-m", "mcp_host", "proxy", *options], env=os.environ)  # coverage needs a part of it


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_of_a_host_without_a_model_gets_one(era: str) -> None:
    with fail_after(IN_TIME):
        async with Client(proxied("--model", "arithmetic", *CALCULATOR), era=era) as client:
            assert text_of(await client.call_tool("solve", {"problem": "2 * (3 + 4)"})) == "2 * (3 + 4) = 14"


async def test_without_a_model_everything_else_passes() -> None:
    with fail_after(IN_TIME):
        async with Client(proxied("-v", *CALCULATOR), era="legacy") as client:
            assert [tool.name for tool in await client.list_tools()] == ["solve"]
            with pytest.raises(ServerError, match="the client did not declare sampling"):
                await client.call_tool("solve", {"problem": "1 + 1"})


async def test_a_server_that_cannot_be_started_is_named_to_the_host_and_in_the_log(tmp_path: Path) -> None:
    stderr: list[str] = []
    transport = replace(proxied("--log-file", str(tmp_path / "log"), "--", "/no/such/program"), on_stderr=stderr.append)
    with fail_after(IN_TIME), pytest.raises(ServerError, match="/no/such/program"):
        async with Client(transport, era="legacy"):
            pass
    [line] = (tmp_path / "log").read_text().splitlines()
    assert "WARNING mcp_host.proxy.relay: program: cannot start '/no/such/program'" in line
    assert line in stderr


APPROVERS = [
    (["--model", "anthropic:x"], ask_host),
    (["--model", "anthropic:x", "--approve", "terminal"], ask_in_terminal),
    (["--model", "anthropic:x", "--approve", "always"], always),
    (["--model", "arithmetic"], always),
]


def test_who_is_asked_before_the_model_answers(subtests: pytest.Subtests) -> None:
    for words, approver in APPROVERS:
        with subtests.test(" ".join(words)):
            assert proxy.approver(parse(["proxy", *words, *CALCULATOR])) is approver


def test_options_that_are_wrong_are_named(run: Run) -> None:
    code, _, err = run("proxy", "--approve", "nobody", *CALCULATOR)
    assert code == 2
    assert "argument --approve: invalid choice: 'nobody'" in err
    code, _, err = run("proxy", "--log-file", "/no/such/folder/log", *CALCULATOR)
    assert code == 2
    assert "--log-file: [Errno 2]" in err
    assert run("proxy").code == 2
