"""Asking in a real (pseudo-)terminal: the answer, the deadline, and the state of the terminal afterwards."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from anyio import CancelScope, create_task_group, fail_after, wait_all_tasks_blocked, wait_readable

from mcp_host.sampling import Allow, Deny, OuterCall, ask_in_terminal
from mcp_host.sampling import terminal as asking
from mcp_host.sampling.approval import Approvals
from mcp_host.sampling.terminal import ask
from tests.sampling.asking import ADD, request, text, user

NO_TERMINAL = "this client has no terminal to ask its user in"
IN_BACKGROUND = "this client runs in the background, where it cannot ask its user"
WITHDRAWN = "(the question was withdrawn)"
QUESTION = "May your model answer this? [y/s/N] "
OF_A_CALL = "May your model answer this? [y/a/s/N] "
CALL = OuterCall("tools/call", "solve", 7, call_id=1)


class Screen:
    """The far end of a terminal, where a person sits."""

    def __init__(self) -> None:
        self.keyboard, self._near = pty.openpty()
        os.set_blocking(self.keyboard, False)
        self.path = os.ttyname(self._near)
        self.seen = ""

    async def shows(self, words: str) -> str:
        """Wait until *words* are on the screen, and return everything up to them."""
        while words not in self.seen:
            await wait_readable(self.keyboard)
            self.seen += os.read(self.keyboard, 65_536).decode()
        shown, _, self.seen = self.seen.partition(words)
        return shown

    def rest(self) -> str:
        """What else is on the screen by now."""
        with suppress(BlockingIOError):  # that is all
            while True:
                self.seen += os.read(self.keyboard, 65_536).decode()
        return self.seen

    def press(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def hold(self) -> None:
        termios.tcflow(self._near, termios.TCOOFF)

    def release(self) -> None:
        termios.tcflow(self._near, termios.TCOON)

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self._near, (24, columns))

    def make_raw(self) -> None:
        tty.setraw(self._near)

    def unplug(self) -> None:
        os.close(self.keyboard)
        self.keyboard = -1

    def close(self) -> None:
        os.close(self._near)
        if self.keyboard >= 0:
            os.close(self.keyboard)


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    yield screen
    screen.close()


@pytest.mark.parametrize(
    ("keys", "decision"),
    [
        pytest.param("y\n", Allow(), id="y"),
        pytest.param("Yes\n", Allow(), id="Yes"),
        pytest.param("  y \n", Allow(), id="y with spaces"),
        pytest.param("s\n", Allow("session"), id="s"),
        pytest.param("Session\n", Allow("session"), id="Session"),
        pytest.param("a\n", Deny(), id="a, which was not offered"),
        pytest.param("all\n", Deny(), id="all, which was not offered"),
        pytest.param("n\n", Deny(), id="n"),
        pytest.param("\n", Deny(), id="Enter"),
        pytest.param("yep\n", Deny(), id="another word"),
        pytest.param("\x04", Deny(), id="Ctrl-D"),
        pytest.param("y" * 2000 + "\n", Deny(), id="a pasted page"),
    ],
)
async def test_only_a_yes_allows(keys: str, decision: Allow | Deny, screen: Screen) -> None:
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(), screen.path))

    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            shown = await screen.shows(QUESTION)
            screen.press(keys)

    assert answers == [decision]
    assert shown == (
        "\r\nA server asks for your model, to answer\r\nin up to 100 tokens\r\n  | calculator\r\nuser\r\n  | hello\r\n"
        "y: yes, this once\r\n"
        "s: yes, and all on this connection\r\n"
        "Other tools are asked about again.\r\n"
    )


@pytest.mark.parametrize(
    ("keys", "decision"),
    [
        ("y\n", Allow()),
        ("a\n", Allow("call")),
        ("ALL\n", Allow("call")),
        ("s\n", Allow("session")),
        ("n\n", Deny()),
        ("\n", Deny()),
        ("call\n", Deny()),
    ],
    ids=["y", "a", "ALL", "s", "n", "Enter", "another word"],
)
async def test_a_whole_call_can_be_allowed_at_once_if_it_is_known(
    keys: str, decision: Allow | Deny, screen: Screen
) -> None:
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(outer=CALL), screen.path))

    screen.resize(40)
    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            shown = await screen.shows(OF_A_CALL)
            screen.press(keys)

    assert answers == [decision]
    assert shown.endswith(
        "y: yes, this once\r\n"
        "a: yes, and all else of this call\r\n"
        "s: yes, and all on this connection\r\n"
        "Other tools are asked about again.\r\n"
    )
    assert max(map(len, [*shown.split("\r\n")[2:], OF_A_CALL])) <= 40


async def test_a_loop_of_twelve_turns_is_asked_about_once(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are two questions at the same time: the second is withdrawn before it is on the screen."""
    monkeypatch.setattr(asking, "terminal_path", lambda: screen.path)
    approvals = Approvals(ask_in_terminal, subject="sampling for x")
    asked = request(outer=CALL, tools=[ADD])

    with fail_after(10):
        async with create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(approvals.require, asked)
            await screen.shows(OF_A_CALL)
            screen.press("a\n")
        for _ in range(10):
            await approvals.require(asked)

    assert screen.rest() == "a\r\n"


@pytest.mark.parametrize(("columns", "fit"), [(50, 46), (0, 76)], ids=["50 columns", "a terminal that does not say"])
async def test_the_question_is_as_wide_as_the_terminal(columns: int, fit: int, screen: Screen) -> None:
    screen.resize(columns)

    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(ask, request(user(text("x" * (fit + 14)))), screen.path)
            shown = await screen.shows(QUESTION)
            screen.press("n\n")

    assert f"  | {'x' * fit}\r\n  | {'x' * 14}\r\ny: yes" in shown


async def test_keys_pressed_before_the_question_do_not_answer_it(screen: Screen) -> None:
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(), screen.path))

    screen.press("y\n")
    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            await screen.shows(QUESTION)
            await wait_all_tasks_blocked()
            assert answers == []
            screen.press("n\n")

    assert answers == [Deny()]


async def test_a_deadline_ends_the_question_and_leaves_no_reader_behind(screen: Screen) -> None:
    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(ask, request(), screen.path)
            await screen.shows(QUESTION)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await screen.shows(WITHDRAWN)
        screen.press("for the host itself\n")
        with os.fdopen(os.open(screen.path, os.O_RDONLY | os.O_NOCTTY), "rb", buffering=0) as host:
            await wait_readable(host)
            assert host.read(100) == b"for the host itself\n"


async def test_a_question_that_never_began_writes_and_reads_nothing(screen: Screen) -> None:
    with CancelScope() as scope:
        scope.cancel()
        await ask(request(), screen.path)

    assert screen.rest() == ""


async def test_a_stopped_terminal_does_not_block_the_event_loop(screen: Screen) -> None:
    """Ctrl-S stops the terminal, not the event loop."""
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(), screen.path))

    screen.hold()
    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            await wait_all_tasks_blocked()
            assert screen.rest() == ""
            screen.release()
            await screen.shows(QUESTION)
            screen.press("y\n")

    assert answers == [Allow()]


async def test_a_full_terminal_does_not_block_the_event_loop(screen: Screen) -> None:
    """More than the terminal takes at once is written bit by bit, and not at all after a cancellation."""
    screen.resize(5000)
    page = "\n".join(["x" * 4000] * 12)

    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(ask, request(*[user(*[text("x" * 4000)] * 12)] * 6, systemPrompt=page), screen.path)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    assert QUESTION not in screen.rest()


@pytest.mark.parametrize(
    ("keys", "decision"),
    [("y\r", Allow()), ("y" * 2000, Deny()), ("y" * 1024, Deny())],
    ids=["y and Enter", "a page without Enter", "no more than is read"],
)
async def test_a_terminal_in_raw_mode_is_understood(keys: str, decision: Allow | Deny, screen: Screen) -> None:
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(), screen.path))

    screen.make_raw()
    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            await screen.shows(QUESTION)
            screen.press(keys)

    assert answers == [decision]


async def test_a_terminal_that_goes_away_denies(screen: Screen) -> None:
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(), screen.path))

    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            await screen.shows(QUESTION)
            await wait_all_tasks_blocked()
            screen.unplug()  # looks like Ctrl-D from here

    assert answers == [Deny()]


async def test_a_question_that_is_withdrawn_as_its_terminal_goes_away_is_withdrawn_quietly(
    screen: Screen, caplog: pytest.LogCaptureFixture
) -> None:
    """The terminal cannot be told any more, which is no answer and no failure of the question."""
    answers: list[Allow | Deny] = []

    async def question() -> None:
        answers.append(await ask(request(), screen.path))

    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(question)
            await screen.shows(QUESTION)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            screen.unplug()

    assert answers == []
    assert caplog.record_tuples == []


async def test_without_a_terminal_the_answer_is_no(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcp_host")

    assert await ask(request(), str(tmp_path / "nothing")) == Deny(NO_TERMINAL)
    assert [(record.levelno, "No such file" in record.getMessage()) for record in caplog.records] == [
        (logging.DEBUG, True)
    ]


async def test_a_file_that_is_not_a_terminal_is_not_asked_in(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert await ask(request(), str(tmp_path / "file")) == Deny(NO_TERMINAL)
    assert (tmp_path / "file").read_bytes() == b""


async def test_questions_are_asked_one_at_a_time(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "terminal_path", lambda: screen.path)
    answers: dict[str, Allow | Deny] = {}

    async def question(server: str) -> None:
        answers[server] = await ask_in_terminal(request(server=server))

    with fail_after(10):
        async with create_task_group() as tasks:
            for server in ("first", "second", "third"):
                tasks.start_soon(question, server)
                await wait_all_tasks_blocked()
            for server, key in [("first", "n"), ("second", "y")]:
                assert f"| {server}\r\n" in await screen.shows(QUESTION)
                await wait_all_tasks_blocked()
                assert QUESTION not in screen.seen
                screen.press(f"{key}\n")
            await screen.shows(QUESTION)
            tasks.cancel_scope.cancel()

    assert answers == {"first": Deny(), "second": Allow()}


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
        output, errors = process.communicate(timeout=20)

    assert (output, errors) == ("Allow(scope='request')\n", "")


def test_a_host_without_a_terminal_denies() -> None:
    with host() as process:
        output, errors = process.communicate(timeout=20)

    assert (output, errors) == (f"Deny(reason='{NO_TERMINAL}')\n", "")


def test_a_host_in_the_background_denies_instead_of_being_stopped(screen: Screen) -> None:
    with host(screen.path, "in the background") as process:
        output, errors = process.communicate(timeout=20)

    assert (output, errors, process.returncode) == (f"Deny(reason='{IN_BACKGROUND}')\n", "", 0)


WHERE = (
    "import sys; from mcp_host.sampling.terminal import terminal_path; open(sys.argv[1], 'w').write(terminal_path())"
)


@pytest.mark.parametrize(
    ("streams", "where"),
    [("abc", "a"), ("-bc", "c"), ("-b-", "b"), ("--c", "c"), ("---", "/dev/tty")],
    ids=["the input", "the errors", "the output", "the errors alone", "the terminal that controls it"],
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
            timeout=20,
        )
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        for screen in screens.values():
            screen.close()

    assert (tmp_path / "where").read_text() == (screens[where].path if where in screens else where)


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_the_terminal_is_known_where_one_standard_stream_is_it(stream: str, screen: Screen) -> None:
    program = "import os, sys\nfrom mcp_host.sampling.terminal import terminal_path\n"
    program += "os.write(int(sys.argv[1]), terminal_path().encode())"
    out, into = os.pipe()
    terminal = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)

    subprocess.run(
        [sys.executable, "-c", program, str(into)],
        stdin=terminal if stream == "stdin" else subprocess.DEVNULL,
        stdout=terminal if stream == "stdout" else subprocess.DEVNULL,
        stderr=terminal if stream == "stderr" else subprocess.DEVNULL,
        pass_fds=[into],
        start_new_session=True,
        timeout=30,
        check=True,
    )
    for descriptor in (terminal, into):
        os.close(descriptor)
    with open(out, encoding="utf-8") as said:
        assert said.read() == screen.path
