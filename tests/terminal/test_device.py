"""The terminal itself: one conversation at a time, input from before, cancellation, and where it is."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from anyio import CancelScope, Event, create_task_group, fail_after, wait_all_tasks_blocked, wait_readable
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from mcp_host.terminal.device import NoTerminal, open_terminal, write_aside
from mcp_host.terminal.text import NARROWEST, Layout, Rows
from tests.extent import on_both
from tests.terminal.screens import Screen

pytestmark = on_both

NO_TERMINAL = "this client has no terminal to ask its user in"
IN_BACKGROUND = "this client runs in the background, where it cannot ask its user"
WITHDRAWN = "(the question was withdrawn)"
QUESTION = "May your model answer? [y/s/v/N] "


class Person:
    """Asks one question after another, and keeps the answers. A paste has ended after *quiet* seconds."""

    def __init__(self, quiet: float = 0.01) -> None:
        self.answers: list[str | None] = []
        self.answered = Event()
        self._quiet = quiet

    async def ask(self, *prompts: str) -> None:
        async with open_terminal(quiet=self._quiet) as terminal:
            for prompt in prompts:
                self.answers.append(await terminal.ask(prompt))
                self.answered.set()


@asynccontextmanager
async def asked(screen: Screen, person: Person) -> AsyncIterator[TaskGroup]:
    """*person* is asked on *screen* by a task of the group, and has to answer in time."""
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(person.ask, "> ")
            await screen.shows("> ")
            yield tasks


LINES: dict[str, tuple[str, str | None]] = {
    "a word": ("hello\n", "hello"),
    "spaces around": ("  two words \n", "two words"),
    "Enter": ("\n", ""),
    "Ctrl-D": ("\x04", None),
    "Ctrl-D in a line": ("ab\x04c\n", "abc"),
    "Backspace": ("ab\x7fc\n", "ac"),
    "Ctrl-U": ("ab\x15c\n", "c"),
    "wide": ("\u6f22\u5b57\n", "\u6f22\u5b57"),
    "no UTF-8": ("caf\udce9\n", "caf\ufffd"),
    "the longest": ("x" * 4095 + "\n", "x" * 4095),
    "too long": ("x" * 5000 + "\n", "x" * 4095),
}


@pytest.mark.parametrize(("keys", "answer"), LINES.values(), ids=LINES)
async def test_a_line_is_read_as_the_terminal_edits_it(keys: str, answer: str | None, screen: Screen) -> None:
    person = Person()

    async with asked(screen, person):
        screen.press(keys)

    assert person.answers == [answer]


@pytest.mark.parametrize(
    "typed", ["y\n", "y\nhalf a line", "half a line", "\x04"], ids=["a line", "more", "half", "Ctrl-D"]
)
async def test_keys_pressed_before_the_question_do_not_answer_it(typed: str, screen: Screen) -> None:
    """Nor is anything else written beside the question, as the status of a call is."""
    person = Person()
    written: list[str] = []

    screen.press(typed)
    async with asked(screen, person):
        await wait_all_tasks_blocked()
        write_aside(partial(written.append, "status"))
        assert person.answers == written == []
        screen.press("n\n")

    assert (person.answers, written) == (["n"], ["status"])


@pytest.mark.adjustable_clock
@pytest.mark.parametrize(
    "pasted", ["first\nsecond\nthird", "first\n" + "another\n" * 10_000], ids=["three lines", "ten thousand lines"]
)
async def test_the_other_lines_of_a_paste_answer_no_question(pasted: str, screen: Screen) -> None:
    """The second is more than the terminal holds: it arrives in pieces."""
    person = Person(quiet=1000)

    async with create_task_group() as tasks:
        tasks.start_soon(person.ask, "1> ", "2> ")
        await screen.asks_after_paste("1> ", 1000)
        await screen.paste(pasted)
        await person.answered.wait()
        await screen.asks_after_paste("2> ", 1000)
        screen.press("fourth\n")

    assert person.answers == ["first", "fourth"]


async def test_a_deadline_ends_the_question_and_leaves_no_reader_behind(screen: Screen) -> None:
    async with asked(screen, Person()) as tasks:
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    with fail_after(25):
        await screen.shows(WITHDRAWN)
        screen.press("for the host itself\n")
        with os.fdopen(os.open(screen.path, os.O_RDONLY | os.O_NOCTTY), "rb", buffering=0) as host:
            await wait_readable(host)
            assert host.read(100) == b"for the host itself\n"


async def test_a_question_that_never_began_writes_and_reads_nothing(screen: Screen) -> None:
    with CancelScope() as scope:
        scope.cancel()
        await Person().ask("> ")

    assert screen.rest() == ""


async def test_other_tasks_run_while_rows_are_laid_out(screen: Screen) -> None:
    """Where a page pauses, and after so many rows or characters."""
    turns, seen = 0, list[int]()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    def page() -> Rows:
        for portion in ([None] * 9, ["a"] * 1000, ["x" * 20_000] * 9):
            seen.append(turns)
            yield from portion
        seen.append(turns)

    async with open_terminal() as terminal, create_task_group() as tasks:
        tasks.start_soon(take_turns)
        tasks.start_soon(screen.shows, "the end")
        await terminal.show(page())
        await terminal.show(["the end"])
        tasks.cancel_scope.cancel()

    assert min(after - before for before, after in pairwise(seen)) >= 4


async def test_a_stopped_terminal_does_not_block_the_event_loop(screen: Screen) -> None:
    """Ctrl-S stops the terminal, not the event loop."""
    person = Person()

    screen.hold()
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(person.ask, "> ")
            await wait_all_tasks_blocked()
            assert screen.rest() == ""
            screen.release()
            await screen.shows("> ")
            screen.press("y\n")

    assert person.answers == ["y"]


async def test_a_full_terminal_does_not_block_the_event_loop(screen: Screen) -> None:
    """More than the terminal takes at once is written bit by bit, and not at all after a cancellation."""

    async def show() -> None:
        async with open_terminal() as terminal:
            await terminal.show("x" * 4000 for _ in range(100))
            await terminal.show(["the end"])

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(show)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    assert "the end" not in screen.rest()


async def test_a_terminal_in_raw_mode_shows_and_edits_lines_while_it_asks(screen: Screen) -> None:
    person = Person()
    screen.make_raw()
    raw = screen.modes

    async with asked(screen, person):
        screen.press("ab\x7fc\r")
        await screen.shows("c")

    assert person.answers == ["ac"]
    assert screen.modes == raw


async def test_a_hidden_answer_is_not_shown_and_the_next_one_is(screen: Screen) -> None:
    """Ctrl-Z does not stop the command meanwhile: the shell that goes on with it would leave the echo on."""
    answers: list[str | None] = []

    async def ask() -> None:
        async with open_terminal(quiet=0.01) as terminal:
            answers.extend([await terminal.ask("Key> ", hidden=True), await terminal.ask("Name> ")])

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await screen.shows("Key> ")
            screen.press("hunter\x1a2\n")
            await screen.shows("Name> ")
            screen.press("Ada\n")
    screen.rest()

    assert (answers, screen.rows) == (["hunter\x1a2", "Ada"], ["Key>", "Name> Ada"])


async def test_the_width_is_asked_for_anew(screen: Screen) -> None:
    widths: list[Layout] = []

    async with open_terminal() as terminal:
        for columns in (80, 50, 0):
            screen.resize(columns)
            widths.append(terminal.layout)

    assert widths == [Layout(80), Layout(50), Layout(80)]


async def test_a_terminal_without_room_beside_the_margin_is_not_asked_in(screen: Screen) -> None:
    async with open_terminal() as terminal:
        screen.resize(NARROWEST)
        assert terminal.layout == Layout(NARROWEST)
        screen.resize(NARROWEST - 1)
        with fail_after(25), pytest.raises(NoTerminal, match="too narrow"):
            await terminal.ask("> ")


async def test_a_terminal_that_goes_away_looks_like_ctrl_d(screen: Screen) -> None:
    person = Person()

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask_quietly, person)
            await screen.shows("> ")
            await wait_all_tasks_blocked()
            screen.unplug()

    assert person.answers in ([None], [NO_TERMINAL])


async def ask_quietly(person: Person) -> None:
    try:
        await person.ask("> ")
    except NoTerminal as exc:
        person.answers.append(str(exc))


async def test_a_question_that_is_withdrawn_as_its_terminal_goes_away_is_withdrawn_quietly(
    screen: Screen, caplog: pytest.LogCaptureFixture
) -> None:
    """The terminal cannot be told any more, which is no answer and no failure of the question."""
    person = Person()

    async with asked(screen, person) as tasks:
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        screen.unplug()

    assert person.answers == []
    assert caplog.record_tuples == []


async def test_without_a_terminal_there_is_a_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file is none, and is not written to."""
    caplog.set_level(logging.DEBUG, "mcp_host")
    (tmp_path / "file").touch()

    for name in ("nothing", "file"):
        with pytest.raises(NoTerminal, match=NO_TERMINAL):
            async with open_terminal(str(tmp_path / name)):
                raise AssertionError("there is none")

    assert [(record.levelno, "No such file" in record.getMessage()) for record in caplog.records] == [
        (logging.DEBUG, True),
        (logging.WARNING, False),
    ]
    assert (tmp_path / "file").read_bytes() == b""


async def test_conversations_take_turns_in_the_order_in_which_they_came(screen: Screen) -> None:
    people = {name: Person() for name in ("first", "second", "third")}

    with fail_after(25):
        async with create_task_group() as tasks:
            for name, person in people.items():
                tasks.start_soon(person.ask, f"{name}? ", f"{name}?? ")
                await wait_all_tasks_blocked()
            for name in ("first", "second"):
                for prompt in (f"{name}? ", f"{name}?? "):
                    await screen.shows(prompt)
                    await wait_all_tasks_blocked()
                    assert "?" not in screen.rest()
                    screen.press(f"{name}\n")
            await screen.shows("third? ")
            tasks.cancel_scope.cancel()

    assert [person.answers for person in people.values()] == [["first"] * 2, ["second"] * 2, []]


HOST = """
import os, sys, anyio
from mcp_host.sampling import SamplingRequest, ask_in_terminal
from mcp_host.types import CreateMessageRequestParams

if len(sys.argv) > 1:
    os.open(sys.argv[1], os.O_RDWR)  # the first terminal that a session leader opens controls it
if len(sys.argv) > 2:
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setpgid(0, 0)  # as a shell does for a job in the background
params = CreateMessageRequestParams.from_wire({"messages": [], "maxTokens": 7})
decision = anyio.run(ask_in_terminal, SamplingRequest(params=params, server="calculator"))
print(decision)
"""


@contextmanager
def host(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A host as a service would start it: its standard streams are no terminal."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_host_with_redirected_streams_asks_in_the_terminal_that_controls_it(screen: Screen) -> None:
    with fail_after(30), host(screen.path) as process:
        assert "7 tokens" in await screen.shows(QUESTION)
        screen.press("y\n")
        output, errors = process.communicate(timeout=25)

    assert (output, errors) == ("Allow(scope='request')\n", "")


def test_a_host_without_a_terminal_denies() -> None:
    with host() as process:
        output, errors = process.communicate(timeout=25)

    assert (output, errors) == (f"Deny(reason='{NO_TERMINAL}')\n", "")


def test_a_host_in_the_background_denies_instead_of_being_stopped(screen: Screen) -> None:
    with host(screen.path, "in the background") as process:
        output, errors = process.communicate(timeout=25)

    assert (output, errors, process.returncode) == (f"Deny(reason='{IN_BACKGROUND}')\n", "", 0)


WHERE = "import sys; from mcp_host.terminal.device import terminal_path; open(sys.argv[1], 'w').write(terminal_path())"


@pytest.mark.parametrize(
    ("streams", "where"),
    [("abc", "a"), ("a--", "a"), ("-bc", "c"), ("-b-", "b"), ("--c", "c"), ("---", "/dev/tty")],
    ids=["the input", "it alone", "the errors", "the output", "the errors alone", "the terminal that controls it"],
)
def test_it_asks_where_the_input_is_or_else_the_errors_or_else_the_output(
    streams: str, where: str, tmp_path: Path
) -> None:
    """Each of the three standard streams is a separate terminal or none."""
    screens = {name: Screen() for name in "abc"}
    stdin, stdout, stderr = (
        os.open(os.devnull if name == "-" else screens[name].path, os.O_RDWR | os.O_NOCTTY) for name in streams
    )
    try:
        subprocess.run(
            [sys.executable, "-c", WHERE, str(tmp_path / "where")],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            check=True,
            timeout=25,
        )
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        for screen in screens.values():
            screen.close()

    assert (tmp_path / "where").read_text() == (screens[where].path if where in screens else where)
