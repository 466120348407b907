"""The far end of a terminal, where a person sits: real pseudo-terminals, and what is to be seen on them."""

from __future__ import annotations

import fcntl
import os
import pty
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pyte
import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked, wait_readable, wait_writable
from anyio.lowlevel import checkpoint

from mcp_host.terminal import device
from tests.clock import advance

T = TypeVar("T")

ROWS = 2000


class Screen:
    """A pseudo-terminal: its keyboard, what was written to it, and what a person sees."""

    def __init__(self, columns: int = 80) -> None:
        self.keyboard, self._near = pty.openpty()
        os.set_blocking(self.keyboard, False)
        self.path = os.ttyname(self._near)
        self.seen = ""
        self._emulator = pyte.Screen(columns, ROWS)
        self._stream = pyte.ByteStream(self._emulator)
        self.resize(columns)

    async def shows(self, words: str) -> str:
        """Wait until *words* are written, and return everything up to them. They are not found again."""
        while words not in self.seen:
            await wait_readable(self.keyboard)
            self._read()
        shown, _, self.seen = self.seen.partition(words)
        return shown

    async def asks(self, *prompts: str) -> str:
        """Wait until one of *prompts* begins a row and nothing comes after it, and return what was written before."""
        while not self.seen.endswith(tuple(f"\n{prompt}" for prompt in prompts)):
            await wait_readable(self.keyboard)
            self._read()
        shown, self.seen = self.seen, ""
        return shown

    async def asks_after_paste(self, prompt: str, quiet: float) -> str:
        """As `shows`, for a terminal for which a paste has ended after *quiet* seconds: the adjustable clock is put forward."""
        while prompt not in self.rest():  # the pause begins again if the kernel hands over the end of a paste late
            await self.is_read()
            await wait_all_tasks_blocked()
            advance(quiet)
        return await self.shows(prompt)

    def rest(self) -> str:
        """What else is written by now."""
        with suppress(BlockingIOError):  # that is all
            while True:
                self._read()
        return self.seen

    def _read(self) -> None:
        data = os.read(self.keyboard, 65_536)
        self._stream.feed(data)
        self.seen += data.decode()

    @property
    def rows(self) -> list[str]:
        """The rows that a person sees, without empty ones at the end."""
        self._emulator.lines = max(self._emulator.buffer, default=-1) + 1  # the others were never written to
        rows = [row.rstrip() for row in self._emulator.display]
        self._emulator.lines = ROWS
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def press(self, keys: str) -> None:
        """In *keys*, ``\\udce9`` is the byte E9, which is no UTF-8."""
        os.write(self.keyboard, keys.encode(errors="surrogateescape"))

    async def paste(self, text: str) -> None:
        """Press keys as fast as the terminal takes them."""
        data = text.encode()
        while data:
            await wait_writable(self.keyboard)
            with suppress(BlockingIOError):
                data = data[os.write(self.keyboard, data) :]

    async def is_read(self) -> None:
        """Wait until the program has read every line that was typed."""
        while any(fcntl.ioctl(self._near, termios.FIONREAD, bytes(4))):
            await checkpoint()  # no event tells

    async def outcome(self, ask: Callable[[], Awaitable[T]], question: str, *keys: str) -> T:
        """What *ask* returns if the person presses *keys*, one each time that it asks the *question*."""
        outcomes: list[T] = []

        async def wait() -> None:
            outcomes.append(await ask())

        with fail_after(25):
            async with create_task_group() as tasks:
                tasks.start_soon(wait)
                for key in keys:
                    await self.shows(question)
                    self.press(key)
        self.rest()
        (outcome,) = outcomes
        return outcome

    def hold(self) -> None:
        termios.tcflow(self._near, termios.TCOOFF)

    def release(self) -> None:
        termios.tcflow(self._near, termios.TCOON)

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self._near, (24, columns))
        self._emulator.resize(columns=columns or 80)

    def make_raw(self) -> None:
        tty.setraw(self._near)

    @property
    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self._near))

    def unplug(self) -> None:
        os.close(self.keyboard)
        self.keyboard = -1

    def close(self) -> None:
        os.close(self._near)
        if self.keyboard >= 0:
            os.close(self.keyboard)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A terminal without colors. Questions of this process are asked there."""
    screen = Screen()
    monkeypatch.setattr(device, "terminal_path", lambda: screen.path)
    monkeypatch.setenv("NO_COLOR", "1")
    yield screen
    screen.close()
