"""Serving one client over stdin and stdout."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, redirect_stdout, suppress
from functools import partial
from io import FileIO
from stat import S_ISFIFO, S_ISSOCK
from time import perf_counter
from typing import Literal

from anyio import CancelScope, create_task_group, move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.concurrency import signals
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.concurrency.threads import run_in_daemon
from mcp_host.errors import ConnectionClosed
from mcp_host.protocol.jsonrpc import Id, Incoming, Message, Notification, decode, encode, unreadable
from mcp_host.serving.service import Service
from mcp_host.serving.session import Session
from mcp_host.transports._process.child import LINES_PER_TICK, OnChunk, ReadablePipe, WritablePipe
from mcp_host.transports.base import TURN_TIME
from mcp_host.transports.stdio import LineBuffer, LineWriter, LongLine

if sys.platform != "win32":
    from mcp_host.transports._process.posix import InheritedWriteEnd, ReadEnd

ANSWER_TIMEOUT = 0.5  # seconds for the calls in progress when stdin ends: a server in a shell pipe still answers
MAX_WAITING = 10_000  # lines that the client has not read; beyond that, notifications are dropped
MAX_SIZE = 16 * 1024 * 1024  # bytes of these lines
MAX_MESSAGE = 64 * 1024 * 1024  # bytes of a line, as many as a client takes of a server (`Limits.max_message`)
FLUSH_TIMEOUT = 5.0  # seconds for the client to read what has been written
READ_SIZE = 64 * 1024  # bytes that a thread reads at once


def run(service: Service, backend: Literal["asyncio", "trio"]) -> None:
    """Serve one client over this process's stdin and stdout, until stdin ends."""
    stdin, stdout = _take_over()
    with redirect_stdout(sys.stderr), suppress(KeyboardInterrupt):
        signals.run(_serve, service, stdin, stdout, backend=backend)


def _take_over() -> tuple[int, int]:
    """Move stdin and stdout to other file descriptors: tools print, and start processes that inherit 0 and 1."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return stdin, stdout


class ThreadedFile:
    """What no event loop can wait for: a file, a terminal, and on Windows also a pipe. Threads read and write it.

    They are daemons: a read or write that never returns must not keep the process alive.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file

    async def read_all(self, on_chunk: OnChunk) -> None:
        while chunk := await run_in_daemon(self._file.read, READ_SIZE):
            for _ in on_chunk(chunk) or ():
                await checkpoint()

    def write(self, data: bytes | memoryview, /) -> None:
        """Nothing fits without waiting."""

    async def write_some(self, data: memoryview) -> int:
        return await run_in_daemon(self._file.write, data)

    async def aclose(self) -> None:
        self._file.close()


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return S_ISFIFO(mode) or S_ISSOCK(mode)


def _open_input(fd: int) -> ReadablePipe:
    if sys.platform != "win32" and _is_pipe(fd):
        return ReadEnd(fd, inherited=True)
    return ThreadedFile(FileIO(fd, "rb"))


def _open_output(fd: int) -> WritablePipe:
    if sys.platform != "win32" and _is_pipe(fd):
        return InheritedWriteEnd(fd)
    return ThreadedFile(FileIO(fd, "wb"))


def read_lines(
    buffer: LineBuffer, receive: Callable[[Incoming], None], chunk: bytes, *, clock: Callable[[], float] = perf_counter
) -> Iterator[None]:
    """Decode the lines that *chunk* completes, in steps."""
    turn_ends = clock() + TURN_TIME
    for number, line in enumerate(buffer.feed(chunk), 1):
        if isinstance(line, LongLine):
            if line.tail:  # it has ended
                receive(
                    unreadable(f"a message of more than {MAX_MESSAGE:,} bytes", line.head, line.tail, oversize=True)
                )
        elif line and not line.isspace():
            for message in decode(line):
                receive(message)
        if not number % LINES_PER_TICK or clock() >= turn_ends:
            yield
            turn_ends = clock() + TURN_TIME


async def _serve(service: Service, stdin: int, stdout: int) -> None:
    """Serve one client."""
    async with (
        aclosing(_open_input(stdin)) as reader,
        aclosing(_open_output(stdout)) as output,
        create_task_group() as writing,
    ):
        writer, buffer = LineWriter(output, limit=math.inf, stall_timeout=math.inf), LineBuffer(MAX_MESSAGE)

        def send(message: Message, related: Id | None) -> None:
            is_read = writer.lines < MAX_WAITING and writer.size < MAX_SIZE
            if is_read or not isinstance(message, Notification):
                line = encode(message) + b"\n"
                with suppress(ConnectionClosed):  # the client may close the pipe; our stdin ends, too
                    writer.write(line)

        writing.start_soon(writer.run)
        try:
            async with HandlerTasks.open() as tasks:
                session = Session(service, tasks.start, send)
                receive = partial(read_lines, buffer, session.receive)
                await reader.read_all(receive)
                list(receive(b"\n"))  # the last line needs no line end
                session.stateless.end()
                with move_on_after(ANSWER_TIMEOUT):
                    await tasks.idle()
            session.close()
        finally:
            with CancelScope(shield=True):  # also after Ctrl-C: no process of the service is left
                await service.aclose()
        with move_on_after(FLUSH_TIMEOUT):
            await writer.flushed()
        writing.cancel_scope.cancel()
