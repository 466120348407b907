"""The command in a terminal: a real pseudo-terminal, and what a person sees there."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from subprocess import DEVNULL

import pytest
from anyio import run_process
from anyio.abc import Process
from pydantic import BaseModel

from mcp_host.testing import Context, Server
from tests.cli.terminals import ROOT, running
from tests.elicitation.asking import FIELD, SEND
from tests.terminal.screens import Screen

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")

CLEAR = "\x1b[2J"  # clears a terminal

server = Server("desk")


class Order(BaseModel):
    size: int


@server.tool
async def count(context: Context) -> str:
    await context.report_progress(1, 3, f"reading{CLEAR}")
    await context.log("info", f"half{CLEAR}\nway")
    await context.report_progress(2, 3, "a message that is longer than a narrow terminal has columns for it")
    return "counted"


@server.tool
async def order(context: Context) -> str:
    answer = await context.elicit("Which size?", Order)
    return f"ordered: {answer.content and answer.content['size']}"


def command_of(*argv: str) -> list[str]:
    """The command with these arguments. Its server is this module."""
    target = ["--", sys.executable, "-c", "from tests.cli.test_in_terminal import server; server.run_stdio()"]
    return [*argv, "-e", f"PYTHONPATH={ROOT}", *target]


def calling(screen: Screen, *argv: str) -> AbstractAsyncContextManager[Process]:
    return running(screen, *command_of("call", *argv), environment={**os.environ, "TERM": "xterm"})


@pytest.mark.parametrize("columns", [40, 80])
async def test_progress_is_one_line_that_is_gone_when_the_call_ends(columns: int, screen: Screen) -> None:
    screen.resize(columns)
    async with calling(screen, "count") as process:
        name = Path(sys.executable).name
        assert await screen.shows(f"starting {name} ...") == "\r\x1b[K"
        shown = await screen.shows("counted")
        assert await process.wait() == 0

    rest = shown.replace("\r\x1b[K", "|")
    longer = "2 of 3 a message that is longer than a narrow terminal has columns for it"
    assert rest == f"||1 of 3 reading\\x1b[2J|{longer if columns == 80 else '2 of 3 a message that is longer than a'}|"
    assert screen.rows == ["counted"]


async def test_log_messages_are_lines_above_the_progress(screen: Screen) -> None:
    async with calling(screen, "count", "--verbose") as process:
        await screen.shows("counted")
        assert await process.wait() == 0

    assert screen.rows == ["  | info: half\\x1b[2J", "  | way", "counted"]


async def test_a_tool_that_asks_gets_the_form_of_the_terminal(screen: Screen) -> None:
    async with calling(screen, "order") as process:
        await screen.asks(FIELD)
        screen.press("7\n")
        await screen.asks(SEND)
        screen.press("y\n")
        await screen.shows("ordered: 7")
        assert await process.wait() == 0


async def test_without_a_terminal_servers_cannot_ask() -> None:
    done = await run_process(
        [sys.executable, "-m", "mcp_host", *command_of("call", "order")], cwd=ROOT, stdin=DEVNULL, check=False
    )

    assert (done.returncode, done.stdout) == (5, b"")
    assert done.stderr == b"mcp-host: the client did not declare elicitation.form (-32021)\n"
