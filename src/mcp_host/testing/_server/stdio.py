"""A test server as a child process, over stdin and stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Literal

import anyio
from anyio import Event, RunFinishedError, create_task_group, current_time, from_thread
from anyio.lowlevel import EventLoopToken, current_token

from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Id, LineBuffer, Message, Oversize, Raw, decode, encode, oversize
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.session import Session

CHUNK = 64 * 1024  # bytes read at once: a pipe's usual capacity
MAX_LINE = Limits().max_message  # as a client's default
ANSWER_TIMEOUT = 0.5  # seconds for the calls in progress when stdin ends: a server in a shell pipe still answers
FLUSH_TIMEOUT = 5.0  # seconds for the client to read what has been written


def run(catalog: Catalog, backend: Literal["asyncio", "trio"]) -> None:
    """Serve one client over this process's stdin and stdout, until stdin ends."""
    stdin, stdout = _take_over()
    with redirect_stdout(sys.stderr), suppress(KeyboardInterrupt):
        anyio.run(_serve, catalog, stdin, Writer(stdout), backend=backend)


def _take_over() -> tuple[int, int]:
    """Move stdin and stdout to other file descriptors: tools print, and start processes that inherit 0 and 1."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return stdin, stdout


async def _serve(catalog: Catalog, stdin: int, writer: Writer) -> None:
    def send(message: Message, related: Id | None) -> None:
        writer.put(encode(message) + b"\n")

    async with create_task_group() as tasks:
        session = Session(catalog, tasks, send)
        with catalog.subscribed(session.subscription):
            await _read(stdin, session)
            session.stateless.end()
        tasks.cancel_scope.deadline = current_time() + ANSWER_TIMEOUT
    await anyio.to_thread.run_sync(writer.close)


async def _read(fd: int, session: Session) -> None:
    """Pass every message to *session*, until the input ends.

    A thread reads, because that works for pipes, files and terminals on every platform.
    It is a daemon: a read that never returns must not keep the process alive.
    """
    ended = Event()
    lines = LineBuffer(MAX_LINE)

    def take(chunk: bytes) -> None:
        for line in lines.feed(chunk) if chunk else lines.rest():
            _receive(line, session)
        if not chunk:
            ended.set()

    Thread(target=_read_in_thread, args=(fd, take, current_token()), name="stdin", daemon=True).start()
    await ended.wait()


def _read_in_thread(fd: int, take: Callable[[bytes], None], loop: EventLoopToken) -> None:
    with suppress(RunFinishedError):  # the event loop has ended
        try:
            while chunk := os.read(fd, CHUNK):
                from_thread.run_sync(take, chunk, token=loop)
        finally:
            from_thread.run_sync(take, b"", token=loop)


def _receive(line: Raw | Oversize, session: Session) -> None:
    if isinstance(line, Oversize):
        if not line.tail:  # report its beginning; its end comes separately, for readers that look for an id there
            session.receive(oversize(line.head, line.tail, MAX_LINE))
    elif line and not line.isspace():
        for message in decode(line):
            session.receive(message)


class Writer:
    """Writes to a pipe in a thread, so that a client that does not read blocks nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        self._lines.put(line)

    def close(self) -> None:
        """Wait until everything is written, for `FLUSH_TIMEOUT` at most."""
        self._lines.put(None)
        self._thread.join(FLUSH_TIMEOUT)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                return  # the client has closed the pipe; our stdin ends, too
