"""A server as a child process: one JSON message per line over its stdin and stdout."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, TypeAlias

from anyio import CancelScope, Event, Lock, WouldBlock, create_task_group, current_time, move_on_after

from mcp_host.errors import ConnectionClosed, quoted
from mcp_host.handlers import check_callable, is_async
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import (
    ID_WINDOW,
    Failure,
    Incoming,
    Malformed,
    Notification,
    Raw,
    Request,
    Success,
    decode,
    encode,
    recover_id,
    too_large,
)
from mcp_host.secret import ExpandedProgram, Secret, SecretValues
from mcp_host.transports._process.child import LINES_PER_TICK, PIPE_ERRORS, Child, WritablePipe
from mcp_host.transports._process.program import VARIABLE, program_of
from mcp_host.transports._process.start import start
from mcp_host.transports._process.stderr import OnStderr, Stderr
from mcp_host.transports.base import NO_MESSAGES, TURN_TIME, Headers, Receive, RequestHandle, quoting

COMMAND = 'it must be a list of a program and its arguments, like ["uvx", "some-server"]'
LSP = b"Content-Length:"  # how each message of the Language Server Protocol begins
OUTPUT_GRACE = 1.0  # seconds, after the process has exited, for the rest of its output
LINES_QUOTED = (
    3  # the first and the last of what a server that sends no message writes to stdout: an error may follow a banner
)
MAX_NOISE = 5_000  # lines on stdout before the first message: no banner, and no log of starting, is so long
QUEUED_LINE = 400  # bytes that each queued line takes beside its text: a server may have many short ones queued
MAX_WRITE = 64 * 1024  # bytes: queued lines are written together, up to a pipe's usual capacity

OnLost: TypeAlias = Callable[[ConnectionClosed], None]


@dataclass(frozen=True, slots=True, repr=False)
class Stdio:
    """Start *command* (a program and its arguments; no shell) and speak to it.

    The server inherits a short list of environment variables (PATH, HOME, the locale and
    the like), and gets those in *env*. *on_stderr* is called with each line that the server
    writes to stderr; connection errors contain the last lines anyway.

    With *restart*, a server that has exited is started again: by the next call, or at once
    where you listen to changes. Requests in flight end with `ConnectionClosed`. By
    default (None), servers of revision 2026-07-28 restart, because they have no session to
    lose. The `ConnectionClosed` of a server that stays down says how to start it again. Each restart
    waits longer than the one before. After eight consecutive failures, restarts stop until you
    call `Client.connect`.

    Raises:
        TypeError: *command* is not a list of text and paths, or its program is a whole command line, or a variable for one;
            or *env* contains something other than text; or *on_stderr* cannot be called.
        ValueError: A text in *command*, *env* or *cwd* has half of a surrogate pair.
    """

    command: Sequence[str | os.PathLike[str]]
    env: Mapping[str, str] | None = field(default=None, kw_only=True)
    cwd: str | Path | None = field(default=None, kw_only=True)
    on_stderr: OnStderr | None = field(default=None, kw_only=True)
    restart: bool | None = field(default=None, kw_only=True)

    _arguments: tuple[str, ...] = field(init=False, compare=False)
    _name: str = field(init=False, compare=False)
    _host_name: str | None = field(init=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.on_stderr is not None:
            check_callable(self.on_stderr, argument="on_stderr", shape="(line: str) -> None")
            if is_async(self.on_stderr):
                raise TypeError("on_stderr must be a plain function: it is called for each line, and not awaited")
        env: object = self.env or {}
        if not isinstance(env, Mapping) or not all(isinstance(part, str) for pair in env.items() for part in pair):
            raise TypeError('env must be a mapping of text to text, like {"PORT": "8000"}')
        for name, value in env.items():
            _check_encodable("the name of an environment variable", name)
            _check_encodable(f"the value of the environment variable {name!r}", value)
        if self.cwd is not None:
            _check_encodable("cwd", self.cwd)
        object.__setattr__(self, "_arguments", self._checked_command())
        object.__setattr__(self, "_name", program_of((self._shown_program, *self._arguments[1:]), str(self.cwd or "")))

    def _checked_command(self) -> tuple[str, ...]:
        """*command* as text. No error repeats an argument: it may be a secret."""
        command: object = self.command
        if isinstance(command, str | bytes) or not isinstance(command, Sequence):
            raise TypeError(f"command is of type {type(command).__name__}: {COMMAND}")
        if not command:
            raise TypeError(f"command is empty: {COMMAND}")
        for index, part in enumerate(command):
            if not isinstance(part, str | os.PathLike):
                raise TypeError(f"command[{index}] is of type {type(part).__name__}: {COMMAND}")
            _check_encodable(f"command[{index}]", part)
        program, *arguments = [os.fspath(part) for part in command]
        words = program.split()
        if not words:
            raise TypeError(f"command[0], the program, is empty: {COMMAND}")
        mistake = _mistake(program, words)
        if mistake is not None and not os.path.exists(os.path.join(self.cwd or "", program)):
            from shutil import which  # it imports three compression libraries

            if which(program, path=(self.env or {}).get("PATH")) is None:
                what, instead = mistake
                raise TypeError(f"command[0] {what}, and there is no such program. No shell {instead}; {COMMAND}")
        return (program, *arguments)

    @property
    def name(self) -> str:
        """The program's name, and what it runs if it is there to run others: ``python server.py``, ``npx @scope/server@1.2``.

        Of a long path the last three parts, and no other argument: it may be a secret.
        """
        return self._name

    @property
    def identity(self) -> str:
        """The program's name, and a digest of the command line and the folder: arguments may be secrets."""
        whole = "\0".join((*self._arguments, str(self.cwd or "")))
        return f"{Path(self._shown_program).name} {sha256(whole.encode(errors='surrogateescape')).hexdigest()[:16]}"

    @property
    def _shown_program(self) -> str:
        program = self._arguments[0]
        return program.written if isinstance(program, ExpandedProgram) else program

    def named(self, name: str) -> Stdio:
        """The same server, under the name that the host gave it."""
        transport = copy(self)
        object.__setattr__(transport, "_host_name", name)
        return transport

    def __repr__(self) -> str:
        if not hasattr(self, "_arguments"):  # in a report of the error that it was not made for
            return "Stdio(...)"
        return f"Stdio({self.name!r})"  # arguments and environment contain tokens

    def open(self, limits: Limits) -> AbstractAsyncContextManager[StdioChannel]:
        """Start the process; end it and its descendants on leaving."""
        return self._open(limits)

    @asynccontextmanager
    async def _open(self, limits: Limits, *, output_grace: float = OUTPUT_GRACE) -> AsyncIterator[StdioChannel]:
        command = self._arguments[0], *map(Secret, self._arguments[1:])
        child = await start(command, SecretValues(self.env or {}), self.cwd, server=self._host_name)
        async with create_task_group() as tasks:
            name, stderr = self._host_name or self.name, Stderr(self.on_stderr)
            channel = StdioChannel(name, child, stderr, limits, output_grace=output_grace)
            tasks.start_soon(channel.write_queued)
            tasks.start_soon(channel.read_stderr)
            tasks.start_soon(channel.end_when_closed, limits.close_timeout)
            try:
                yield channel
            finally:
                await channel.end(limits.close_timeout)
                tasks.cancel_scope.cancel()


def _mistake(program: str, words: Sequence[str]) -> tuple[str, str] | None:
    """What a shell would make of *program*, which has these *words*, and what to write instead; None if it would run it."""
    if variable := VARIABLE.match(program):
        name = "a variable" if isinstance(program, Secret) else f"the variable {variable['name']}"
        return f"gives {name}", "reads a command line: pass it with env="
    if len(words) > 1:
        instead = "" if isinstance(program, Secret) else f': write ["{words[0]}", ...]'
        return "has a space in it", f"splits a command line{instead}"
    return None


def _check_encodable(what: str, text: str | os.PathLike[str]) -> None:
    """Raise ValueError if the system cannot get *text*. Python's own error has it, and it may be a secret."""
    try:
        os.fsencode(text)
        return
    except UnicodeEncodeError:
        pass
    raise ValueError(f"{what} has half of a surrogate pair, which cannot be encoded")


class StdioChannel:
    """The pipes of one running server."""

    stream_per_request = False
    keeps_cache = False  # another process may be another version of the server

    def __init__(
        self,
        name: str,
        child: Child,
        stderr: Stderr,
        limits: Limits,
        *,
        output_grace: float = OUTPUT_GRACE,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._clock = clock
        self._name = name
        self._child = child
        self._stderr = stderr
        self._max_message = limits.max_message
        self._output_grace = output_grace
        self._writer = LineWriter(child.stdin, limit=limits.max_outbox, stall_timeout=limits.stall_timeout)
        self._given_up: ConnectionClosed | None = None
        """Why we have ended the server."""
        self._spoke = False
        """Whether a message has arrived."""
        self._noise: list[str] = []
        """Until then, the beginning of its stdout: lines that are no messages."""
        self._last_noise: deque[str] = deque(maxlen=LINES_QUOTED)
        """The last of these lines, without those that are in the beginning."""
        self._noise_lines = 0
        self._buffer = LineBuffer(limits.max_message)
        self._reading = CancelScope()
        self._output_started = Event()
        self._listened = Event()
        self._stderr_ended = Event()
        self._ending = Lock()
        self._ended = False

    async def wait_until_started(self) -> None:
        """Wait until the server has written anything, or read what was written to it."""
        async with create_task_group() as tasks:

            async def end_with(sign: Callable[[], Awaitable[None]]) -> None:
                await sign()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end_with, self._output_started.wait)
            tasks.start_soon(end_with, self._child.stdin.wait_until_read)

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        line = encode(request) + b"\n"
        try:
            try:
                queued = self._writer.write(line, handle.fail)
            except WouldBlock:
                handle.unsent = True  # until it is written or queued
                with handle.bounded():
                    await self._writer.wait_for_room(line)
                if handle.done:
                    return
                handle.unsent = False
                queued = self._writer.write(line, handle.fail)
        except ConnectionClosed as exc:
            raise await self._write_failed(exc) from None
        try:
            await handle.wait()
        finally:
            if queued is not None:
                handle.unsent = self._writer.withdraw(queued)

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        line = encode(message) + b"\n"
        await self._writer.wait_for_room(line)
        try:
            self._writer.write(line)
        except ConnectionClosed as exc:
            raise await self._write_failed(exc) from None

    def send_now(self, message: Notification | Success | Failure) -> bool:
        try:
            self._writer.write(encode(message) + b"\n")
        except WouldBlock:
            return False
        return True

    @property
    def other_output(self) -> str:
        return ("" if self._spoke else self._noise_shown) + quoting(self._stderr_shown)

    @property
    def _noise_shown(self) -> str:
        first, last = self._noise, [*self._last_noise]
        if begun := self._buffer.begun:
            last.append(_noise(begun))
        if not (first or last):
            return ""
        if self._noise_lines > 2 * LINES_QUOTED:
            shown = f"{', '.join(first)} and ends with {', '.join(last)} ({self._noise_lines:,} lines)"
        else:
            shown = ", ".join([*first, *last])
        return f"{NO_MESSAGES}: its stdout begins with {shown}"

    @property
    def _stderr_shown(self) -> str:
        return self._stderr.tail() if self._spoke else self._stderr.head_and_tail()

    async def listen(self, receive: Receive) -> None:
        try:
            raise await self._read_to_end(receive)
        finally:  # no await from here until the session knows that the connection is closed
            self._listened.set()

    async def _read_to_end(self, receive: Receive) -> ConnectionClosed:
        """Pass on what the server says; returns why it says no more."""

        def receive_whole(message: Incoming) -> None:
            # Half a message at the end must not fail its request as malformed: the connection has ended.
            if not isinstance(message, Malformed) or message.oversize:
                receive(message)

        async with create_task_group() as tasks:

            async def stop_after_exit() -> None:
                await self._child.process.wait()
                # a descendant may keep its output open
                tasks.cancel_scope.deadline = current_time() + self._output_grace

            tasks.start_soon(stop_after_exit)
            with self._reading:
                await self._child.stdout.read_all(partial(self._read, receive))
            if self._reading.cancel_called:
                await self._child.stop(self._child.grace)
            tasks.cancel_scope.cancel()
        list(self._read(receive_whole, b"\n"))  # the last line needs no line end
        exited = await self._child.exits_within(self._child.grace)
        if exited:  # stderr is read in turns, too, and its last lines say why
            with CancelScope(deadline=min(tasks.cancel_scope.deadline, current_time() + self._output_grace)):
                await self._stderr_ended.wait()
        return self._closed(exited=exited)

    def _read(self, receive: Receive, chunk: bytes) -> Iterator[None]:
        """Decode the lines that *chunk* completes, in steps."""
        self._output_started.set()
        turn_ends = self._clock() + TURN_TIME
        for number, line in enumerate(self._buffer.feed(chunk), 1):
            if isinstance(line, LongLine):
                report = too_large(line.head, line.tail, self._max_message)
                if not line.tail or (report.id is not None and recover_id(line.head, b"") is None):
                    receive(report)  # at the end of the line only if that shows the id
            elif line.startswith(LSP):
                self._keep_noise(line)
                receive(Malformed("a Content-Length header: the server seems to use the framing of LSP"))
            elif line and not line.isspace():
                for message in decode(line):
                    if not isinstance(message, Malformed):
                        self._spoke = True
                    elif message.id is None:
                        self._keep_noise(line)
                    receive(message)
            if not number % LINES_PER_TICK or self._clock() >= turn_ends:
                yield
                turn_ends = self._clock() + TURN_TIME

    def _keep_noise(self, line: Raw) -> None:
        if self._spoke:
            return
        self._noise_lines += 1
        kept = self._noise if self._noise_lines <= LINES_QUOTED else self._last_noise
        kept.append(_noise(line))
        if self._noise_lines == MAX_NOISE:
            self._given_up = ConnectionClosed(f"{self._name} writes to stdout, but no messages")
            self._reading.cancel()

    async def write_queued(self) -> None:
        """Write what is queued; kill the server if it reads nothing."""
        try:
            await self._writer.run()
        except ConnectionClosed as exc:
            self._given_up = exc
            await self._child.stop(0)

    async def read_stderr(self) -> None:
        with CancelScope(shield=True):  # it ends with the process, or when our end is closed
            await self._child.stderr.read_all(self._stderr.feed)
        self._stderr.end()
        self._stderr_ended.set()

    async def end_when_closed(self, limit: float) -> None:
        """End the process and its descendants as soon as the connection has ended, though the client may stay open."""
        await self._listened.wait()
        await self.end(limit)

    async def end(self, limit: float) -> None:
        """End the process and its descendants within *limit* seconds, unless that is done; even when cancelled."""
        with CancelScope(shield=True):
            async with self._ending, create_task_group() as tasks:
                if self._ended:
                    return  # another process may have its id by now
                tasks.start_soon(self._discard_output)
                await self._child.stop(limit)
                with move_on_after(self._output_grace):
                    await self._stderr_ended.wait()
                await self._child.close()
                self._ended = True

    async def _discard_output(self) -> None:
        """A server that cannot write cannot shut down."""
        await self._child.stdout.read_all(lambda chunk: None)

    async def _write_failed(self, failure: ConnectionClosed) -> ConnectionClosed:
        """The error for a line that was not written: that of the process, which explains the broken pipe."""
        exited = await self._child.exits_within(self._child.grace)
        if exited:  # the session must know before its caller does
            with move_on_after(self._output_grace + self._child.grace):
                await self._listened.wait()
        closed = self._closed(exited=exited)
        closed.may_have_run = failure.may_have_run
        return closed

    def _closed(self, *, exited: bool) -> ConnectionClosed:
        """The error for requests in flight."""
        code = self._child.exit_code
        if self._given_up is not None:
            reason = str(self._given_up)
        elif not exited:
            reason = f"{self._name} has closed its end of the connection"
        elif code is not None and code < 0:
            reason = f"{self._name} was ended by signal {-code}"
        else:
            reason = f"{self._name} exited" if code is None else f"{self._name} exited with code {code}"
        return ConnectionClosed(f"{reason}{self.other_output}", exit_code=code, stderr=self._stderr_shown)


def _noise(line: Raw) -> str:
    return quoted(line.decode(errors="replace").strip())


# The lines of a byte stream


class LongLine(NamedTuple):
    """A line longer than the limit. It is reported twice: with its *head* at once, with both ends when the line ends."""

    head: bytes
    tail: bytes


class LineBuffer:
    """Splits a byte stream at LF only: U+2028 and other line separators are legal inside JSON strings.

    The limit applies to a line, not to a chunk. A longer line is dropped as it arrives,
    and reported at once, because it may never end.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._line = bytearray()  # not a list of pieces: small ones would take more memory than they hold
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[Raw | LongLine]:
        """The lines that *chunk* completes, without line endings."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if not self._size and end - start <= self._limit:
                yield chunk[start:end]  # the usual case: one chunk has the whole line
            else:
                yield from self._keep(chunk[start:end])
                yield from self.rest()
            start = end + 1
        if start < len(chunk):
            yield from self._keep(chunk[start:])

    @property
    def begun(self) -> bytes:
        """The beginning of the line that has no end yet: a program that asks a question there waits for the answer."""
        return bytes(self._line[:ID_WINDOW]).strip()

    def rest(self) -> Iterator[Raw | LongLine]:
        """The bytes after the last LF; call it at the end of the stream."""
        if self._size:
            yield self._line if self._size <= self._limit else LongLine(self._head, self._tail)
            self._line, self._size, self._head, self._tail = bytearray(), 0, b"", b""

    def _keep(self, part: bytes) -> Iterator[LongLine]:
        fitted = self._size <= self._limit
        self._size += len(part)
        if self._size <= self._limit:
            self._line += part
            return
        if fitted:  # copy only its ends: the dropped line may be as long as the limit
            self._head = bytes(self._line[:ID_WINDOW]) + part[: max(ID_WINDOW - len(self._line), 0)]
            self._tail = bytes(self._line[-ID_WINDOW:])
            self._line = bytearray()
            yield LongLine(self._head, b"")
        self._tail = (self._tail + part[-ID_WINDOW:])[-ID_WINDOW:]


@dataclass(slots=True, eq=False)
class QueuedLine:
    """The unwritten rest of a line. *begun*: some of the line may have been written."""

    rest: memoryview
    on_lost: OnLost | None
    begun: bool


class LineWriter:
    """Writes lines in order.

    A line that fits goes into the pipe from the caller's own task. `run` writes
    the others, so that a cancelled caller never leaves half a line behind.
    """

    def __init__(self, pipe: WritablePipe, *, limit: float, stall_timeout: float) -> None:
        self._pipe = pipe
        self._limit = limit
        self._stall_timeout = stall_timeout
        self._queue: deque[QueuedLine] = deque()
        self.size = 0
        """Bytes of memory that the queue takes."""
        self._queued = Event()
        self._shrunk = Event()
        self._broken: ConnectionClosed | None = None

    def write(self, data: bytes, on_lost: OnLost | None = None) -> QueuedLine | None:
        """Write *data*, a whole line. Returns the line if it, or some of it, had to be queued.

        *on_lost* is called if the pipe breaks before the whole line is written.

        Raises:
            WouldBlock: The queue takes `limit` bytes already (see `wait_for_room`); nothing was written.
            ConnectionClosed: The pipe is broken; nothing was written.
        """
        if self._broken is not None:
            raise self._broken.again()
        written = 0
        if not self._queue:
            try:
                written = self._pipe.write(data) or 0
            except PIPE_ERRORS as exc:
                raise self._break("the server has closed its input") from exc
            if written == len(data):
                return None
        elif self.size + len(data) > self._limit:
            raise WouldBlock
        line = QueuedLine(memoryview(data)[written:], on_lost, written > 0)
        self._queue.append(line)
        self.size += len(line.rest) + QUEUED_LINE
        self._queued.set()
        return line

    async def wait_for_room(self, data: bytes) -> None:
        """Wait until `write` takes *data*, or raises because the pipe has broken."""
        while self._queue and self.size + len(data) > self._limit:
            await self._shrunk.wait()

    @property
    def lines(self) -> int:
        """How many lines are queued."""
        return len(self._queue)

    async def flushed(self) -> None:
        """Wait until no line is queued, or the pipe has broken."""
        while self._queue:
            await self._shrunk.wait()

    def withdraw(self, line: QueuedLine) -> bool:
        """Remove a line that has not begun from the queue. Returns whether that was still possible."""
        if line.begun or line not in self._queue:
            return False
        self._queue.remove(line)
        self._shrink(len(line.rest) + QUEUED_LINE)
        return True

    async def run(self) -> None:
        """Write the queued lines, until the pipe breaks.

        Raises:
            ConnectionClosed: Nothing could be written for `stall_timeout` seconds.
        """
        while self._broken is None:
            if not self._queue:
                self._queued = Event()
                await self._queued.wait()
                continue
            data = self._next_write()
            written = 0
            with move_on_after(self._stall_timeout):
                try:
                    written = await self._pipe.write_some(data)
                except PIPE_ERRORS:
                    self._break("the server has closed its input")
                    return
            if not written:
                raise self._break(f"the server has read none of its input for {self._stall_timeout:g} s")
            freed = written
            while written:
                line = self._queue[0]
                if written < len(line.rest):
                    line.rest = line.rest[written:]
                    break
                written -= len(line.rest)
                freed += QUEUED_LINE
                self._queue.popleft()
            self._shrink(freed)

    def _next_write(self) -> memoryview:
        """The next lines as one piece. Any part of it may be written, so all of them have begun."""
        size = 0
        parts: list[memoryview] = []
        for line in self._queue:
            size += len(line.rest)
            if parts and size > MAX_WRITE:
                break
            line.begun = True
            parts.append(line.rest)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _shrink(self, size: int) -> None:
        self.size -= size
        self._shrunk.set()
        self._shrunk = Event()

    def _break(self, reason: str) -> ConnectionClosed:
        self._broken = ConnectionClosed(reason, may_have_run=False)
        lines = list(self._queue)
        self._queue.clear()
        self._shrink(self.size)
        self._queued.set()
        for line in lines:
            if line.on_lost is not None:
                line.on_lost(ConnectionClosed(reason, may_have_run=line.begun))
        return self._broken.again()
