"""The command in a terminal: a real pseudo-terminal, and what a person sees there."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL

import pytest
from anyio import fail_after, open_process, run_process
from anyio.abc import Process
from pydantic import BaseModel

from mcp_host.testing import Context, Server
from tests.elicitation.asking import FIELD, SEND
from tests.terminal.screens import Screen

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")

IN_TIME = 30.0  # seconds for processes that import everything, on a busy machine
ROOT = Path(__file__).parents[2]
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
    return [sys.executable, "-m", "mcp_host", *argv, "-e", f"PYTHONPATH={ROOT}", *target]


@asynccontextmanager
async def running(screen: Screen, *argv: str) -> AsyncIterator[Process]:
    """The command on *screen*."""
    environment = {**os.environ, "TERM": "xterm"}
    end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
    try:
        async with await open_process(
            command_of(*argv), stdin=end, stdout=end, stderr=end, cwd=ROOT, env=environment
        ) as process:
            yield process
    finally:
        os.close(end)


@pytest.mark.parametrize("columns", [40, 80])
async def test_progress_is_one_line_that_is_gone_when_the_call_ends(columns: int, screen: Screen) -> None:
    screen.resize(columns)
    with fail_after(IN_TIME):
        async with running(screen, "call", "count") as process:
            name = Path(sys.executable).name
            assert await screen.shows(f"starting {name} ...") == "\r\x1b[K"
            shown = await screen.shows("counted")
            assert await process.wait() == 0

    rest = shown.replace("\r\x1b[K", "|")
    longer = "2 of 3 a message that is longer than a narrow terminal has columns for it"
    assert rest == f"||1 of 3 reading\\x1b[2J|{longer if columns == 80 else '2 of 3 a message that is longer than a'}|"
    assert screen.rows == ["counted"]


async def test_log_messages_are_lines_above_the_progress(screen: Screen) -> None:
    with fail_after(IN_TIME):
        async with running(screen, "call", "count", "--verbose") as process:
            await screen.shows("counted")
            assert await process.wait() == 0

    assert screen.rows == ["  | info: half\\x1b[2J", "  | way", "counted"]


async def test_a_tool_that_asks_gets_the_form_of_the_terminal(screen: Screen) -> None:
    with fail_after(IN_TIME):
        async with running(screen, "call", "order") as process:
            await screen.asks(FIELD)
            screen.press("7\n")
            await screen.asks(SEND)
            screen.press("y\n")
            await screen.shows("ordered: 7")
            assert await process.wait() == 0


async def test_without_a_terminal_servers_cannot_ask() -> None:
    done = await run_process(command_of("call", "order"), cwd=ROOT, stdin=DEVNULL, check=False)

    assert (done.returncode, done.stdout) == (5, b"")
    assert done.stderr == b"mcp-host: the client did not declare elicitation.form (-32021)\n"
