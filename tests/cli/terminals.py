"""The command in a terminal: in this process, and in one of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TextIO, TypeVar

import pytest
from anyio import fail_after, open_process
from anyio.abc import Process
from anyio.from_thread import start_blocking_portal

from tests.cli.bounded import IN_TIME, ctrl_c, interrupted_late, main
from tests.terminal.screens import Screen

ROOT = Path(__file__).parents[2]
DESK = ["-e", f"PYTHONPATH={ROOT}", "--", sys.executable, "-c", "from tests.cli.desk import server; server.run_stdio()"]
"""Arguments of the command for the server of desk.py, as a program."""
needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
T = TypeVar("T")

IN_SESSION = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "from mcp_host.cli import main; sys.exit(main(sys.argv[1:]))"
)
"""The command, in a session whose terminal is its stdin: Ctrl-C is sent to it."""


class Terminal(StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


class Sitting:
    """A person at *screen*, and the command in this process."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, person: Callable[[], Awaitable[None]], *argv: str, stdout: TextIO | None = None) -> int:
        """The exit code of the command. *person* looks at the screen and presses keys. *stdout* may be elsewhere."""
        return seated(self._screen, person, partial(main, argv), stdout=stdout)


def seated(
    screen: Screen, person: Callable[[], Awaitable[None]], program: Callable[[], T], *, stdout: TextIO | None = None
) -> T:
    """What *program* returns, for which the screen is the terminal. *person* looks at it and presses keys."""
    is_running = True

    async def sit() -> None:
        try:
            with fail_after(IN_TIME):
                await person()
        except BaseException:
            if is_running:  # and would wait for keys, or for its server
                screen.unplug()
                ctrl_c()
            raise

    with standard_streams(screen, stdout), start_blocking_portal() as portal:
        sitting = portal.start_task_soon(sit)
        try:
            with interrupted_late(2 * IN_TIME):
                result = program()
        finally:
            is_running = False
        sitting.result()
    return result


@asynccontextmanager
async def running(screen: Screen, *argv: str, environment: Mapping[str, str]) -> AsyncIterator[Process]:
    """The command in a process of its own on *screen*, which is the terminal that controls it."""
    end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
    try:
        with fail_after(IN_TIME):
            async with await open_process(
                [sys.executable, "-c", IN_SESSION, *argv], stdin=end, stdout=end, stderr=end, cwd=ROOT, env=environment
            ) as process:
                yield process
    finally:
        os.close(end)


@contextmanager
def standard_streams(screen: Screen, stdout: TextIO | None = None) -> Iterator[None]:
    """The standard streams of this process are *screen*, but for another *stdout*."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
            patched.setattr(sys, name, stack.enter_context(open(end, mode)))
        if stdout is not None:
            patched.setattr(sys, "stdout", stdout)
        yield
