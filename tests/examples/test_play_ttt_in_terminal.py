"""The example play_ttt as a program in a real pseudo-terminal: what a person sees there, and how they leave."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest
from anyio import fail_after, open_process, run_process
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_host import Client
from tests.elicitation.asking import FIELD, SEND
from tests.terminal.screens import Screen, screen

__all__ = ["screen"]  # a fixture

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's"),
    pytest.mark.backends("asyncio"),  # the program chooses its own
]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
IN_TIME = 60.0  # seconds for processes that import everything, on a busy machine

FIRST_FORM = """
A server asks you to fill in a form, and gets what you enter
  | tic-tac-toe
while it works on
  | tools/call play_ttt
message
  | You are O. The model took 5 and says: Your move.
  |
  |  1 | 2 | 3
  | ---+---+---
  |  4 | X | 6
  | ---+---+---
  |  7 | 8 | 9

1 field.
Type no passwords or keys: a server must not ask for them here.
Commands: /back /skip /view /decline /cancel

1 of 1: one of these
  | Your square
  |   1, 2, 3, 4, 6, 7, 8, 9
>"""

NARROW_FORM = """
A server asks you to fill in a form, and
gets what you enter
  | tic-tac-toe
while it works on
  | tools/call play_ttt
message
  | You are O. The model took 5 and
  | says: Your move.
  |
  |  1 | 2 | 3
  | ---+---+---
  |  4 | X | 6
  | ---+---+---
  |  7 | 8 | 9

1 field.
Type no passwords or keys: a server must
not ask for them here.
Commands: /back /skip /view /decline
/cancel

1 of 1: one of these
  | Your square
  |   1, 2, 3, 4, 6, 7, 8, 9
>"""

WON = """
The person wins with X.

 X | O | 3
---+---+---
 X | X | O
---+---+---
 X | 8 | O"""


@asynccontextmanager
async def running(screen: Screen, *arguments: object, cwd: Path = ROOT) -> AsyncIterator[Process]:
    """The program on *screen*."""
    end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
    command = [sys.executable, *map(str, arguments)]
    try:
        async with await open_process(command, stdin=end, stdout=end, stderr=end, cwd=cwd) as process:
            yield process
    finally:
        os.close(end)


async def fill_in(screen: Screen, *squares: int) -> None:
    """Choose squares, one in each form, and send them."""
    for square in squares:
        await screen.asks(FIELD)
        screen.press(f"{square}\n")
        await screen.asks(SEND)
        screen.press("y\n")


@pytest.mark.parametrize(
    ("arguments", "cwd"),
    [
        (["examples/play_ttt", "--over", "memory"], ROOT),
        (["-m", "examples.play_ttt", "--over", "stdio"], ROOT),
        (["-m", "play_ttt", "--over", "http"], EXAMPLES),
    ],
    ids=["memory", "stdio", "http"],
)
async def test_a_person_plays_a_whole_game_and_wins(arguments: Sequence[str], cwd: Path, screen: Screen) -> None:
    with fail_after(IN_TIME):
        async with running(screen, *arguments, "--mark", "X", cwd=cwd) as process:
            await fill_in(screen, 5, 1, 4, 7)
            assert await process.wait() == 0

    screen.rest()
    assert screen.rows[-len(WON.split("\n")) :] == WON.split("\n")


@pytest.mark.parametrize(("columns", "form"), [(80, FIRST_FORM), (40, NARROW_FORM)])
async def test_the_form_has_the_board_and_the_free_squares(columns: int, form: str, screen: Screen) -> None:
    screen.resize(columns)
    with fail_after(IN_TIME):
        async with running(screen, "examples/play_ttt", "--mark", "O") as process:
            await screen.asks(FIELD)
            assert screen.rows == form.split("\n")
            screen.press("\x04")
            assert await process.wait() == 0

    screen.rest()
    assert screen.rows[len(form.split("\n")) :][:2] == ["", "The person has left the game."]


async def test_an_interrupt_ends_the_program_with_one_line(screen: Screen) -> None:
    with fail_after(IN_TIME):
        async with running(screen, "examples/play_ttt", "--over", "stdio") as process:
            await screen.asks(FIELD)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 1

    screen.rest()
    assert screen.rows[-2:] == ["(the question was withdrawn)", "You have left the game."]


async def test_without_a_terminal_the_person_has_left() -> None:
    command = [sys.executable, "examples/play_ttt", "--mark", "X"]
    with fail_after(IN_TIME):
        done = await run_process(command, stdin=DEVNULL, cwd=ROOT, start_new_session=True)

    assert done.stdout.decode().splitlines()[:2] == ["", "The person has left the game."]
    assert b"this client has no terminal to ask its user in" in done.stderr


async def test_the_server_is_there_for_other_hosts() -> None:
    command = [sys.executable, "examples/play_ttt", "--serve", "http"]
    with fail_after(IN_TIME):
        async with await open_process(command, stdin=DEVNULL, stdout=PIPE, stderr=None, cwd=ROOT) as process:
            assert process.stdout is not None
            url = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1000)
            async with Client(url.decode().strip()) as client:
                tools = await client.list_tools()
            process.terminate()

    assert [(tool.name, tool.description) for tool in tools] == [
        ("play_ttt", "Let the user play a game of tic-tac-toe against your model. Returns how it ended.")
    ]
