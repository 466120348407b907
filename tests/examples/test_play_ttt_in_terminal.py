"""The example play_ttt as a program in a pseudo-terminal: what a person sees there, and how they leave."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest
from anyio import fail_after, open_process
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_host import Client
from mcp_host.terminal import device
from tests.cli.bounded import IN_TIME, ctrl_c
from tests.cli.terminals import seated
from tests.elicitation.asking import FIELD, SEND
from tests.terminal.screens import Screen

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's"),
    pytest.mark.backends("asyncio"),  # the program chooses its own
]

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "play_ttt"

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


@pytest.fixture
def play(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`play(person, "--mark", "X")` is the program in this process, as `python examples/play_ttt` runs it."""

    def play(person: Callable[[], Awaitable[None]], *arguments: str) -> None:
        monkeypatch.setattr(sys, "path", sys.path.copy())  # the program adds to it
        monkeypatch.setattr(sys, "argv", [str(PROGRAM), *arguments])
        seated(screen, person, partial(runpy.run_path, str(PROGRAM), run_name="__main__"))
        screen.rest()

    return play


async def fill_in(screen: Screen, *squares: int) -> None:
    """Choose squares, one in each form, and send them."""
    for square in squares:
        await screen.asks(FIELD)
        screen.press(f"{square}\n")
        await screen.asks(SEND)
        screen.press("y\n")


@pytest.mark.parametrize("over", ["memory", "http"])
def test_a_person_plays_a_whole_game_and_wins(over: str, play: Callable[..., None], screen: Screen) -> None:
    play(partial(fill_in, screen, 5, 1, 4, 7), "--mark", "X", "--over", over)

    assert screen.rows[-len(WON.split("\n")) :] == WON.split("\n")


async def test_as_a_module_the_program_finds_itself_for_its_server(screen: Screen) -> None:
    end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
    command = [sys.executable, "-m", "examples.play_ttt", "--over", "stdio", "--mark", "X"]
    try:
        with fail_after(IN_TIME):
            async with await open_process(command, stdin=end, stdout=end, stderr=end, cwd=ROOT) as process:
                await fill_in(screen, 5, 1, 4, 7)
                assert await process.wait() == 0
    finally:
        os.close(end)

    screen.rest()
    assert screen.rows[-len(WON.split("\n")) :] == WON.split("\n")


@pytest.mark.parametrize(("columns", "form"), [(80, FIRST_FORM), (40, NARROW_FORM)])
def test_the_form_has_the_board_and_the_free_squares(
    columns: int, form: str, play: Callable[..., None], screen: Screen
) -> None:
    async def person() -> None:
        await screen.asks(FIELD)
        assert screen.rows == form.split("\n")
        screen.press("\x04")

    screen.resize(columns)
    play(person, "--mark", "O")

    assert screen.rows[len(form.split("\n")) :][:2] == ["", "The person has left the game."]


def test_an_interrupt_ends_the_program_with_one_line(play: Callable[..., None], screen: Screen) -> None:
    async def person() -> None:
        await screen.asks(FIELD)
        ctrl_c()

    with pytest.raises(SystemExit, match=r"^You have left the game\.$"):
        play(person, "--over", "stdio")

    screen.rest()
    assert screen.rows[-1] == "(the question was withdrawn)"


def test_without_a_terminal_the_person_has_left(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, screen: Screen
) -> None:
    async def person() -> None:
        await screen.shows("The person has left the game.")

    monkeypatch.setattr(device, "terminal_path", lambda: "/dev/no-terminal")
    play(person, "--mark", "X")

    assert screen.rows[:2] == ["", "The person has left the game."]
    assert "this client has no terminal to ask its user in" in caplog.text


async def test_the_server_is_there_for_other_hosts() -> None:
    command = [sys.executable, str(PROGRAM), "--serve", "http"]
    with fail_after(IN_TIME):
        async with await open_process(command, stdin=DEVNULL, stdout=PIPE, stderr=None) as process:
            assert process.stdout is not None
            url = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1000)
            async with Client(url.decode().strip()) as client:
                tools = await client.list_tools()
            process.terminate()

    assert [(tool.name, tool.description) for tool in tools] == [
        ("play_ttt", "Let the user play a game of tic-tac-toe against your model. Returns how it ended.")
    ]
