"""The command in a terminal: a real pseudo-terminal, and what a person sees there."""

from __future__ import annotations

import pytest

from tests.cli import desk
from tests.cli.conftest import Run
from tests.cli.terminals import Sitting, needs_terminal
from tests.elicitation.asking import FIELD, SEND
from tests.terminal.screens import Screen

pytestmark = needs_terminal

server = desk.server  # at `url`


@pytest.mark.parametrize("columns", [40, 80])
def test_progress_is_one_line_that_is_gone_when_the_call_ends(
    columns: int, url: str, screen: Screen, sit: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen.resize(columns)
    shown: list[str] = []

    async def person() -> None:
        shown.append(await screen.shows("counted"))

    assert sit(person, "call", url, "count") == 0

    longer = "  | 2 of 3 a message that is longer than a narrow terminal has columns for it"
    assert shown[0].split("\r\x1b[K") == [
        "",
        f"connecting to {url} ..." if columns == 80 else "connecting to",
        "",
        "  | 1 of 3 reading\\x1b[2J",
        longer if columns == 80 else "  | 2 of 3 a message that is longer",
        "    ",
    ]
    assert screen.rows == ["    counted"]


def test_log_messages_are_lines_above_the_progress(
    url: str, screen: Screen, sit: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")

    async def person() -> None:
        await screen.shows("counted")

    assert sit(person, "call", url, "count", "--verbose") == 0

    assert screen.rows == ["  | info: half\\x1b[2J", "  | way", "    counted"]


def test_a_tool_that_asks_gets_the_form_of_the_terminal(url: str, screen: Screen, sit: Sitting) -> None:
    async def person() -> None:
        await screen.asks(FIELD)
        screen.press("7\n")
        await screen.asks(SEND)
        screen.press("y\n")
        await screen.shows("ordered: 7")

    assert sit(person, "call", url, "order") == 0


def test_without_a_terminal_servers_cannot_ask(url: str, run: Run) -> None:
    assert run("call", url, "order") == (
        5,
        "",
        "mcp-host: the server says: the client did not declare elicitation.form (-32021)\n",
    )
