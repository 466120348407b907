"""Streams that say they are terminals, and the command in a real terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from io import StringIO
from pathlib import Path

import pytest
from anyio import fail_after, open_process
from anyio.abc import Process

from tests.terminal.screens import Screen

IN_TIME = 60.0  # seconds for processes that import everything, on a busy machine
ROOT = Path(__file__).parents[2]
IN_SESSION = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "from mcp_host.cli import main; sys.exit(main(sys.argv[1:]))"
)
"""The command, in a session whose terminal is its stdin: Ctrl-C is sent to it."""


class Terminal(StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@asynccontextmanager
async def running(
    screen: Screen, *argv: str, environment: Mapping[str, str], stdout: int | None = None
) -> AsyncIterator[Process]:
    """The command on *screen*, which is the terminal that controls it. *stdout* may be elsewhere."""
    end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
    try:
        with fail_after(IN_TIME):
            async with await open_process(
                [sys.executable, "-c", IN_SESSION, *argv],
                stdin=end,
                stdout=end if stdout is None else stdout,
                stderr=end,
                cwd=ROOT,
                env=environment,
            ) as process:
                yield process
    finally:
        os.close(end)


@contextmanager
def standard_streams(screen: Screen) -> Iterator[None]:
    """The standard streams of this process are *screen*."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
            patched.setattr(sys, name, stack.enter_context(open(end, mode)))
        yield
