"""The terminal and the person in front of it: one conversation at a time, and no reader left behind."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from anyio import Lock, move_on_after, wait_readable, wait_writable
from anyio.lowlevel import RunVar, checkpoint

from mcp_host.terminal.text import NARROWEST, Layout, has_color

T = TypeVar("T")

logger = logging.getLogger(__name__)

NO_TERMINAL = "this client has no terminal to ask its user in"
TOO_NARROW = "this client's terminal is too narrow to ask its user in"
IN_BACKGROUND = "this client runs in the background, where it cannot ask its user"
WITHDRAWN = b"\n(the question was withdrawn)\n"
DROPPED = "(Lines that were typed or pasted before this question do not count.)"

MAX_UNCLEAR = 3  # answers to one question that are none of those it has
ROWS_AT_ONCE = 200  # are laid out before other tasks run,
CHARACTERS_AT_ONCE = 20_000  # or fewer, of so many characters: eight may combine with another
LONGEST_LINE = 4096  # bytes with the line end: Linux drops what is typed beyond that
MAX_WAITING = 1000  # lines of a log, or the like, that wait for the end of a question
QUIET = 0.05  # seconds without input after which a paste has ended; terminals send the next piece at once


class NoTerminal(Exception):
    """There is no person to ask; the text says why."""


class _Others:
    """What else writes to the screen of the person, and waits while they are asked something: it could look like a question."""

    def __init__(self) -> None:
        self._questions = 0
        self._waiting: dict[object, Callable[[], None]] = {}

    @contextmanager
    def wait(self) -> Iterator[None]:
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                waiting, self._waiting = self._waiting, {}
                for write in waiting.values():
                    write()

    def write(self, write: Callable[[], None], key: object) -> None:
        if not self._questions:
            write()
            return
        self._waiting.pop(key, None)
        self._waiting[key] = write
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]


_others = _Others()  # of the process: it has one terminal
question_is_open = _others.wait
"""While this context manager is entered, `write_aside` waits. `open_terminal` enters it."""


def write_aside(write: Callable[[], None], *, key: object = None) -> None:
    """Call *write*, which writes to the screen: at once, or after the questions that are open. Of several with one *key*, the
    last is called then, and of more than `MAX_WAITING` the last ones.
    """
    _others.write(write, object() if key is None else key)


class Terminal:
    """An open terminal. Made by `open_terminal`."""

    def __init__(self, fd: int, quiet: float) -> None:
        self._fd = fd
        self._quiet = quiet
        self._color = has_color()

    @property
    def layout(self) -> Layout:
        """The width as it is now, which the person may change at any time.

        Raises:
            NoTerminal: A server's text would have no margin.
        """
        columns = os.get_terminal_size(self._fd).columns or 80
        if columns < NARROWEST:
            raise NoTerminal(TOO_NARROW)
        return Layout(columns, self._color)

    async def show(self, rows: Iterable[str | None]) -> None:
        """Write `Rows` while they are laid out. Neither many of them nor a stopped terminal block the event loop."""
        batch, size = list[str](), 0
        for row in rows:
            if row is None:
                await checkpoint()
                continue
            batch.append(f"{row}\n")
            size += len(row)
            if len(batch) == ROWS_AT_ONCE or size >= CHARACTERS_AT_ONCE:
                await self._write("".join(batch))
                batch, size = [], 0
        await self._write("".join(batch))

    async def ask(self, prompt: str, *, hidden: bool = False) -> str | None:
        """Ask for one line, and return it without the spaces around it; None for Ctrl-D. If *hidden*, it is not shown.

        Input from before the question does not count, such as the other lines of a paste.
        If the wait is cancelled, the terminal says that the question was withdrawn.

        Raises:
            NoTerminal: The host runs in the background by now, or the terminal is too narrow.
        """
        _check_foreground(self._fd)
        if await self._drop_input():
            await self.show(self.layout.ours(DROPPED, "dim"))
        styled_prompt = self.layout.styled(prompt, "bold")
        line: bytes | None = None
        with _without_echo(self._fd) if hidden else nullcontext():
            await self._write(styled_prompt)
            try:
                line = await self._read_line()
            finally:
                if line is None:
                    with suppress(OSError):  # the terminal may be gone
                        os.write(self._fd, WITHDRAWN)
        if not line:
            await self._write("\n")  # the cursor is still beside the question
            return None
        return line.decode(errors="replace").strip()

    async def choose(self, question: str, keys: str, answers: Mapping[str, T]) -> T | None:
        """Ask a question that has only these *answers*, by the words for them in lower case. *keys* are shown beside it.

        Another word is asked about again, twice at most. None if that was no answer either, and for Ctrl-D.
        """
        for _ in range(MAX_UNCLEAR):
            line = await self.ask(f"{question} [{keys}] ")
            if line is None:
                return None
            if line.lower() in answers:
                return answers[line.lower()]
            default = " Enter alone means n." if "" in answers else ""
            await self.show(self.layout.ours(f"Press one of {keys.lower()} and Enter.{default}", "yellow"))
        await self.show(self.layout.ours("There was no clear answer, so nothing is allowed or sent.", "yellow"))
        return None

    async def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            await wait_writable(self._fd)
            with suppress(BlockingIOError):  # the output was stopped (Ctrl-S) in between
                data = data[os.write(self._fd, data) :]

    async def _drop_input(self) -> bool:
        """Drop input until there is none for a moment: a long paste comes in pieces. Returns whether it had a line."""
        dropped = False
        while True:
            with move_on_after(self._quiet) as pause:
                await wait_readable(self._fd)
            if pause.cancelled_caught:
                _flush(self._fd)  # a line without an end
                return dropped
            with suppress(BlockingIOError):  # another process read it
                dropped = bool(os.read(self._fd, LONGEST_LINE)) or dropped
            _flush(self._fd)

    async def _read_line(self) -> bytes:
        """A line with its end; empty for Ctrl-D and for a terminal that is gone."""
        line = b""
        while not line.endswith(b"\n"):
            await wait_readable(self._fd)
            with suppress(BlockingIOError):  # another process read it
                chunk = os.read(self._fd, LONGEST_LINE)
                if not chunk:
                    return b""
                line += chunk  # without its end after Ctrl-D in the middle of a line
        return line


def checked_line(line: str) -> str:
    """A line that `Terminal.ask` returned, if the terminal gave it to us as it was typed.

    Raises:
        ValueError: It did not.
    """
    if "\ufffd" in line:
        raise ValueError("This came in an encoding other than UTF-8.")
    if not line.isprintable():
        raise ValueError("This has a control character, such as that of an arrow key.")
    if len(line.encode()) >= LONGEST_LINE - 1:
        raise ValueError("This is too long for one line of the terminal, which has cut it.")
    return line


def _one_at_a_time() -> Lock:
    """There is one person, and a "y" must not answer the wrong question: of another server, or of another kind."""
    try:
        return _locks.get()
    except LookupError:
        lock = Lock()
        _locks.set(lock)
        return lock


_locks: RunVar[Lock] = RunVar("mcp_host.terminal")  # a lock is bound to an event loop


if sys.platform == "win32":  # a wait for a Windows console cannot be cancelled

    def _flush(fd: int) -> None: ...

    def _check_foreground(fd: int) -> None: ...

    def _without_echo(fd: int) -> AbstractContextManager[None]:
        return nullcontext()

    @asynccontextmanager
    async def open_terminal(path: str | None = None, *, quiet: float = QUIET) -> AsyncIterator[Terminal]:
        raise NoTerminal(NO_TERMINAL)
        yield Terminal(0, quiet)

else:
    import termios

    def _flush(fd: int) -> None:
        termios.tcflush(fd, termios.TCIFLUSH)

    def _check_foreground(fd: int) -> None:
        """Check that reading and writing does not stop the process, as SIGTTIN and SIGTTOU do."""
        with suppress(OSError):  # not our controlling terminal: it cannot stop our process
            if os.tcgetpgrp(fd) != os.getpgrp():
                raise NoTerminal(IN_BACKGROUND)

    @asynccontextmanager
    async def open_terminal(path: str | None = None, *, quiet: float = QUIET) -> AsyncIterator[Terminal]:
        """Wait until no other question is asked in this event loop, then open the terminal at *path*.

        By default that is the terminal of the standard streams, else the one that controls the process, like ssh and sudo.
        A paste has ended after *quiet* seconds without input.

        Raises:
            NoTerminal: There is none, it is gone before the end, or the host runs in the background.
        """
        async with _one_at_a_time():
            with question_is_open():
                try:
                    # Opened again, so that O_NONBLOCK does not change the host's own streams.
                    fd = os.open(path or terminal_path(), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
                except OSError as exc:
                    logger.debug("no terminal to ask in: %s", exc)
                    raise NoTerminal(NO_TERMINAL) from exc
                try:
                    _check_foreground(fd)
                    with _line_mode(fd):
                        yield Terminal(fd, quiet)
                except (OSError, termios.error) as exc:
                    logger.warning("asking in the terminal failed: %s", exc)
                    raise NoTerminal(NO_TERMINAL) from exc
                finally:
                    os.close(fd)

    def terminal_path() -> str:
        """The terminal to ask in."""
        for stream in (0, 2, 1):  # the device itself where it is known: macOS cannot wait for /dev/tty
            with suppress(OSError):  # this stream is no terminal, or closed
                return os.ttyname(stream)
        return os.ctermid()

    def _line_mode(fd: int) -> AbstractContextManager[None]:
        """Let the terminal edit and show a line as it is typed, also where the host has turned that off."""
        wanted = termios.tcgetattr(fd)
        wanted[0] |= termios.ICRNL
        wanted[1] |= termios.OPOST | termios.ONLCR
        wanted[3] |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ISIG | termios.IEXTEN
        return _in_mode(fd, wanted)

    def _without_echo(fd: int) -> AbstractContextManager[None]:
        """Let the terminal show nothing of a line but its end. Ctrl-Z is a character meanwhile: after it a shell leaves the echo on."""
        wanted = termios.tcgetattr(fd)
        wanted[3] = wanted[3] & ~termios.ECHO | termios.ECHONL
        wanted[6][termios.VSUSP] = bytes([os.fpathconf(fd, "PC_VDISABLE")])
        return _in_mode(fd, wanted)

    @contextmanager
    def _in_mode(fd: int, wanted: list[Any]) -> Iterator[None]:
        before = termios.tcgetattr(fd)
        if wanted == before:
            yield
            return
        termios.tcsetattr(fd, termios.TCSANOW, wanted)
        try:
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(fd, termios.TCSANOW, before)
