"""A server as a child process: one JSON message per line over its stdin and stdout."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import which

from anyio import CancelScope, Event, create_task_group, current_time, move_on_after

from mcp_host.errors import ConnectionClosed
from mcp_host.handlers import check_callable, is_async
from mcp_host.limits import Limits
from mcp_host.protocol.framing import LineBuffer, Oversize, Raw
from mcp_host.protocol.jsonrpc import (
    Failure,
    Malformed,
    Notification,
    Request,
    Success,
    decode,
    encode,
    oversize,
    recover_id,
)
from mcp_host.transports._process.child import LINES_PER_TICK, Child, start
from mcp_host.transports._process.outbox import Line, OnLost, Outbox
from mcp_host.transports._process.stderr import OnStderr, Stderr
from mcp_host.transports.base import Headers, Receive, RequestHandle, deliver, quoting

COMMAND = 'it is a list of a program and its arguments, like ["uvx", "some-server"]'
LSP = b"Content-Length:"  # how each message of the Language Server Protocol begins
LAST_WORDS = 1.0  # seconds, after the process has ended, for what it wrote before; a grandchild may hold the pipe open
EXIT_CODE = 0.5  # seconds, after its output has ended, to learn how the process did


@dataclass(frozen=True, slots=True, repr=False)
class Stdio:
    """Start *command* (a program and its arguments; no shell) and speak to it.

    The server's environment is a short safe list of ours (`_process.child.INHERITED`: PATH,
    HOME, the locale and the like) and *env*. *on_stderr* gets each line that it
    writes to stderr; the last lines are attached to connection errors anyway.

    A server that has ended is started again by the next call, or at once where changes
    are listened to; what was in flight ends with `ConnectionClosed`. With *restart* None
    that is so in revision 2026-07-28, which knows no session that could be lost; true and
    false mean always and never. Each time takes longer, and after eight in a row that
    were good for nothing the server stays down until `Client.connect`.

    Raises:
        TypeError: *command* is no list of text and paths, or its program is a whole command line;
            or *env* holds something else than text; or *on_stderr* cannot be called.
    """

    command: Sequence[str | os.PathLike[str]]
    env: Mapping[str, str] | None = field(default=None, kw_only=True)
    cwd: str | Path | None = field(default=None, kw_only=True)
    on_stderr: OnStderr | None = field(default=None, kw_only=True)
    restart: bool | None = field(default=None, kw_only=True)

    _arguments: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.on_stderr is not None:
            check_callable(self.on_stderr, argument="on_stderr", shape="(line: str) -> None")
            if is_async(self.on_stderr):
                raise TypeError("on_stderr has to be a plain function: it is called for each line, and not awaited")
        if self.env is not None and not _is_environment(self.env):
            raise TypeError('env is a mapping of text to text, like {"PORT": "8000"}')
        object.__setattr__(self, "_arguments", _checked(self.command, self.env, self.cwd))

    @property
    def name(self) -> str:
        """The program's name, without its directory and arguments."""
        return Path(self._arguments[0]).name

    @property
    def identity(self) -> str:
        """The program's name, and a digest of the command line and the folder: arguments may be secrets."""
        whole = "\0".join((*self._arguments, str(self.cwd or "")))
        return f"{self.name} {sha256(whole.encode(errors='surrogateescape')).hexdigest()[:16]}"

    def __repr__(self) -> str:
        return f"Stdio({self.name!r})"  # tokens are passed in the environment, and in arguments

    @asynccontextmanager
    async def open(self, limits: Limits) -> AsyncIterator[StdioChannel]:
        """Start the process; end it and all of its descendants on leaving."""
        child = await start(self._arguments, self.env, self.cwd)
        async with create_task_group() as tasks:
            channel = StdioChannel(self.name, child, Stderr(self.on_stderr), limits)
            tasks.start_soon(channel.write)
            tasks.start_soon(channel.read_stderr)
            try:
                yield channel
            finally:
                tasks.start_soon(channel.drain)  # a server that cannot write cannot shut down
                await child.stop(limits.close_timeout)
                with move_on_after(LAST_WORDS, shield=True):
                    await channel.stderr_ended.wait()
                await child.close()
                tasks.cancel_scope.cancel()


def _checked(
    command: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None, cwd: str | Path | None
) -> tuple[str, ...]:
    """*command* as text. No error repeats an argument: it may be a secret.

    Raises:
        TypeError: It is not the command of a server; the text shows how one is written.
    """
    if isinstance(command, str | bytes) or not isinstance(command, Sequence):
        raise TypeError(f"command is of type {type(command).__name__}: {COMMAND}")
    if not command:
        raise TypeError(f"command is empty: {COMMAND}")
    for index, part in enumerate(command):
        if not isinstance(part, str | os.PathLike):
            raise TypeError(f"command[{index}] is of type {type(part).__name__}: {COMMAND}")
    arguments = tuple([os.fspath(part) for part in command])
    words = arguments[0].split()
    if not words:
        raise TypeError(f"command[0], the program, is empty: {COMMAND}")
    if len(words) > 1 and not _exists(arguments[0], env, cwd):
        raise TypeError(
            f"command[0] has a space in it, and there is no such program. No shell splits a command line:"
            f' write ["{words[0]}", ...]; {COMMAND}'
        )
    return arguments


def _exists(program: str, env: Mapping[str, str] | None, cwd: str | Path | None) -> bool:
    return os.path.exists(os.path.join(cwd or "", program)) or which(program, path=(env or {}).get("PATH")) is not None


def _is_environment(env: object) -> bool:
    return isinstance(env, Mapping) and all(isinstance(part, str) for pair in env.items() for part in pair)


class StdioChannel:
    """The pipes of one running server."""

    stream_per_request = False
    continuous = False  # another process may be another version of the server

    def __init__(self, name: str, child: Child, stderr: Stderr, limits: Limits) -> None:
        self._name = name
        self._child = child
        self._stderr = stderr
        self._limits = limits
        self._outbox = Outbox(child.stdin, limit=limits.max_outbox, stall_timeout=limits.stall_timeout)
        self._stalled: ConnectionClosed | None = None
        self.stderr_ended = Event()
        self._spoken = Event()
        self._heard_out = Event()

    async def awake(self) -> None:
        """Until it has written anything, or read what was written to it."""
        async with create_task_group() as tasks:

            async def end_with(sign: Callable[[], Awaitable[None]]) -> None:
                await sign()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end_with, self._spoken.wait)
            tasks.start_soon(end_with, self._child.stdin.taken)

    async def request(self, request: Request, headers: Headers, exchange: RequestHandle) -> None:
        line = encode(request) + b"\n"
        if not self._outbox.has_room(line):
            exchange.withdrawn = True  # until it is on its way
            with exchange.bounded():
                await self._outbox.wait_for_room(line)
            if exchange.over:
                return
            exchange.withdrawn = False
        waiting = await self._put(line, exchange.fail)
        try:
            await exchange.response()
        finally:
            if waiting is not None:
                exchange.withdrawn = self._outbox.withdraw(waiting)

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        line = encode(message) + b"\n"
        await self._outbox.wait_for_room(line)
        await self._put(line)

    def send_now(self, message: Notification | Success | Failure) -> bool:
        line = encode(message) + b"\n"
        if not self._outbox.has_room(line):
            return False
        self._outbox.put(line)
        return True

    @property
    def last_words(self) -> str:
        return self._stderr.tail()

    async def listen(self, receive: Receive) -> None:
        lines = LineBuffer(self._limits.max_message)
        async with create_task_group() as tasks:
            tasks.start_soon(self._watch, tasks.cancel_scope)
            await self._child.stdout.pump(partial(self._read, lines, receive))
            tasks.cancel_scope.cancel()
        self._spoken.set()
        for rest in lines.rest():
            self._take_last(rest, receive)
        end = await self._end()
        self._heard_out.set()  # no await from here until the link is closed
        raise end

    async def write(self) -> None:
        """Write what waits; end the process when it takes nothing."""
        try:
            await self._outbox.run()
        except ConnectionClosed as exc:
            self._stalled = exc
            await self._child.stop(0)

    async def read_stderr(self) -> None:
        with CancelScope(shield=True):  # it ends with the process, or when our end is closed
            await self._child.stderr.pump(self._stderr.feed)
        self._stderr.end()
        self.stderr_ended.set()

    def _read(self, lines: LineBuffer, receive: Receive, chunk: bytes) -> Iterator[None]:
        self._spoken.set()
        for number, line in enumerate(lines.feed(chunk), 1):
            self._take(line, receive)
            if not number % LINES_PER_TICK:
                yield

    def _take(self, line: Raw | Oversize, receive: Receive) -> None:
        if isinstance(line, Oversize):
            report = oversize(line.head, line.tail, self._limits.max_message)
            if not line.tail or (report.id is not None and recover_id(line.head, b"") is None):
                receive(report)  # the end of such a line is news only if the id stands there
        elif line.startswith(LSP):
            receive(Malformed("a Content-Length header: the server seems to speak the framing of LSP"))
        elif line and not line.isspace():
            deliver(decode(line), receive)

    def _take_last(self, rest: Raw | Oversize, receive: Receive) -> None:
        """A last line needs no line end; but half a message is none, and no reason to fail a request as malformed."""
        if isinstance(rest, Oversize) or not any(isinstance(message, Malformed) for message in decode(rest)):
            self._take(rest, receive)

    async def _put(self, line: bytes, on_lost: OnLost | None = None) -> Line | None:
        try:
            return self._outbox.put(line, on_lost)
        except ConnectionClosed as broken:
            end = await self._end()  # a pipe breaks because the process has ended, which says more
            end.may_have_run = broken.may_have_run
            if end.exit_code is not None:  # who is told that it has must not find the link alive
                with move_on_after(LAST_WORDS):
                    await self._heard_out.wait()
            raise end from None

    async def drain(self) -> None:
        """Let go of whatever the server still writes."""
        with CancelScope(shield=True):  # as above
            await self._child.stdout.pump(lambda chunk: None)

    async def _watch(self, reading: CancelScope) -> None:
        """Bound the reading once the process has ended, for something else may keep its output open."""
        await self._child.process.wait()
        reading.deadline = current_time() + LAST_WORDS

    async def _end(self) -> ConnectionClosed:
        """What to tell everyone who waits."""
        exited = await self._child.exits_within(EXIT_CODE)
        tail = self._stderr.tail()
        code = self._child.process.returncode
        if self._stalled is not None:
            what = str(self._stalled)
        elif not exited:
            what = f"{self._name} has closed its end of the connection"
        else:
            what = f"{self._name} {_ended(code)}"
        return ConnectionClosed(f"{what}{quoting(tail)}", exit_code=code, stderr=tail)


def _ended(code: int | None) -> str:
    return f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
