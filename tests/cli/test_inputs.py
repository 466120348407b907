"""Asking at the terminal for the inputs of a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from keyring.backend import KeyringBackend
from keyring.backends import chainer, fail, null

from mcp_host.auth import MemoryTokens
from mcp_host.cli.inputs import KeyringAnswers, ask_for_input
from mcp_host.config import Input
from tests.cli.terminals import needs_terminal
from tests.terminal.screens import Screen

pytestmark = needs_terminal

OF_PERSON = KeyringAnswers.of_person  # the tests of the command have none
FILE = Path("/home/ada/mcp.json")
WORD = Input(path=FILE, id="team", description="Your\x1b team", default="blue")
KEY = Input(path=FILE, id="key", password=True, default="hunter1")
PICK = Input(path=FILE, id="region", type="pickString", options=("eu", "us"))

ANSWERS: list[tuple[str, Input, list[str], str | None]] = [
    ("a line", WORD, [" red \n"], "red"),
    ("Enter takes the default", WORD, ["\n"], "blue"),
    ("Enter takes a secret default", KEY, ["\n"], "hunter1"),
    ("Ctrl-D", WORD, ["\x04"], None),
    ("one of the options", PICK, ["us\n"], "us"),
    ("others are asked about again", PICK, ["de\n", "\n", "eu\n"], "eu"),
    ("but not for ever", PICK, ["a\n", "b\n", "c\n"], None),
    ("control characters", WORD, ["\x1b[A\n", "red\n"], "red"),
]


async def test_a_person_answers_with_a_line(screen: Screen, subtests: pytest.Subtests) -> None:
    for case, wanted, keys, answer in ANSWERS:
        with subtests.test(case):
            assert await screen.outcome(partial(ask_for_input, wanted), "> ", *keys) == answer


async def test_a_password_is_not_shown_but_what_enter_takes_is(screen: Screen) -> None:
    """The file of a project could have its reader run what is hidden."""
    assert await screen.outcome(partial(ask_for_input, KEY), "> ", "hunter2\n") == "hunter2"

    assert screen.rows == [
        "",
        "A file of servers asks for a value",
        "  | key in /home/ada/mcp.json",
        "Enter takes",
        "  | hunter1",
        "What you type is not shown.",
        ">",
    ]


async def test_all_of_what_enter_takes_is_in_sight(screen: Screen, subtests: pytest.Subtests) -> None:
    """It could be a command, whose beginning is scrolled away."""
    fits = replace(WORD, default="true " + "#" * 395)
    assert await screen.outcome(partial(ask_for_input, fits), "> ", "\n") == fits.default
    for default in (f"{fits.default}#", "true\nend", "true " + "\u3164" * 300):
        with subtests.test(default):
            long = replace(WORD, default=default)
            assert await screen.outcome(partial(ask_for_input, long), "> ", "\n", "red\n") == "red"
            assert "The default, which is too long for Enter to take" in screen.rows


async def test_what_the_file_says_cannot_look_like_a_line_of_the_command(screen: Screen) -> None:
    await screen.outcome(partial(ask_for_input, WORD), "> ", "\n")
    await screen.outcome(partial(ask_for_input, PICK), "> ", "eu\n")

    assert r"  | Your\x1b team" in screen.rows
    assert screen.rows[-5:-1] == ["  | region in /home/ada/mcp.json", "one of", "  | eu", "  | us"]


async def test_without_a_terminal_there_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mcp_host.terminal.device.terminal_path", lambda: str(tmp_path / "none"))

    assert await ask_for_input(WORD) is None


async def test_the_keyring_is_used_if_its_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = MemoryTokens()
    monkeypatch.setattr("mcp_host.auth.KeyringTokens", lambda _: keyring)
    found = OF_PERSON()

    assert found is not None
    assert await found.swap("key", None, "answer")
    assert (await found.load("key"), await keyring.load("key")) == ("answer", "answer")
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert OF_PERSON() is None


def test_a_machine_without_a_keyring_is_known_although_the_library_is_there(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    def broken() -> KeyringBackend:
        raise RuntimeError("of a module that its settings name")

    for get, is_there in (
        (fail.Keyring, False),
        (null.Keyring, False),
        (broken, False),
        (chainer.ChainerBackend, True),
    ):
        with subtests.test(get.__name__):
            monkeypatch.setattr("keyring.get_keyring", get)
            assert KeyringAnswers().has_keyring() == is_there
    assert KeyringAnswers(MemoryTokens()).has_keyring()
