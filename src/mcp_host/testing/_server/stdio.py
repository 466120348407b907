"""A test server as a child process: stdin and stdout for the protocol, and for nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Literal

import anyio
from anyio import Event, RunFinishedError, create_task_group, from_thread, move_on_after
from anyio.lowlevel import EventLoopToken, current_token

from mcp_host.limits import Limits
from mcp_host.protocol.framing import LineBuffer, Oversize, Raw
from mcp_host.protocol.jsonrpc import Id, Message, decode, encode, oversize
from mcp_host.testing._server.broadcaster import Serve
from mcp_host.testing._server.dispatcher import leave_open
from mcp_host.testing._server.session import Session
from mcp_host.transports.base import deliver

CHUNK = 64 * 1024  # bytes read at once: a pipe's usual capacity
MAX_LINE = Limits().max_message  # what a client takes by default, too
LAST_ANSWERS = 0.5  # seconds for calls under way once the client has hung up: what was piped in deserves its answer
LAST_WORDS = 5.0  # seconds for the client to take what was said before it is given up


def run(converse: Serve, backend: Literal["asyncio", "trio"]) -> None:
    """Serve one client over this process's stdin and stdout, until it closes our stdin."""
    reading, writing = _take_over()
    with redirect_stdout(sys.stderr), suppress(KeyboardInterrupt):
        anyio.run(_serve, converse, reading, Writer(writing), backend=backend)


def _take_over() -> tuple[int, int]:
    """Move stdin and stdout out of everybody's way: tools print, and start processes that inherit the two."""
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing


async def _serve(converse: Serve, reading: int, writer: Writer) -> None:
    def send(message: Message, origin: Id | None) -> None:
        writer.put(encode(message) + b"\n")

    async with create_task_group() as tasks:
        with converse(lambda catalog: Session(catalog, tasks, send, leave_open)) as session:
            await _read(reading, session)
            await session.end_subscriptions()
            with move_on_after(LAST_ANSWERS):
                await session.idle()
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(writer.close)


async def _read(fd: int, session: Session) -> None:
    """Hand everything that comes in to *session*, until it ends.

    A thread reads, because that works for pipes, files and terminals on every platform.
    It is a daemon: a read that nothing ends must not keep the process.
    """
    ended = Event()
    lines = LineBuffer(MAX_LINE)

    def take(chunk: bytes) -> None:
        for line in lines.feed(chunk):
            _receive(line, session)
        if not chunk:
            for rest in lines.rest():
                _receive(rest, session)
            ended.set()

    Thread(target=_pump, args=(fd, take, current_token()), name="stdin", daemon=True).start()
    await ended.wait()


def _pump(fd: int, take: Callable[[bytes], None], loop: EventLoopToken) -> None:
    with suppress(RunFinishedError):  # whoever ended the event loop wants no more
        try:
            while chunk := os.read(fd, CHUNK):
                from_thread.run_sync(take, chunk, token=loop)
        finally:
            from_thread.run_sync(take, b"", token=loop)


def _receive(line: Raw | Oversize, session: Session) -> None:
    if isinstance(line, Oversize):
        if not line.tail:  # one error is enough; the report of its end is for those who look for an id there
            session.receive(oversize(line.head, line.tail, MAX_LINE))
    elif line and not line.isspace():
        deliver(decode(line), session.receive)


class Writer:
    """Writes to a pipe in a thread, so that a client that reads nothing stops nobody."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        self._lines.put(line)

    def close(self) -> None:
        """Write what waits, within bounds."""
        self._lines.put(None)
        self._thread.join(LAST_WORDS)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                return  # nobody reads any more; our stdin will say so
