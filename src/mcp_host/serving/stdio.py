"""Serving one client over stdin and stdout."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Literal

import anyio
from anyio import CancelScope, Event, RunFinishedError, create_task_group, current_time, from_thread, to_thread
from anyio.lowlevel import current_token

from mcp_host.protocol.jsonrpc import Id, Message, Notification, decode, encode
from mcp_host.serving.service import Service
from mcp_host.serving.session import Session

ANSWER_TIMEOUT = 0.5  # seconds for the calls in progress when stdin ends: a server in a shell pipe still answers
MAX_WAITING = 10_000  # lines that the client has not read; beyond that, notifications are dropped
FLUSH_TIMEOUT = 5.0  # seconds for the client to read what has been written


def run(service: Service, backend: Literal["asyncio", "trio"]) -> None:
    """Serve one client over this process's stdin and stdout, until stdin ends."""
    stdin, stdout = _take_over()
    with redirect_stdout(sys.stderr):
        try:
            anyio.run(_serve, service, stdin, stdout, backend=backend)
        except* KeyboardInterrupt:  # on trio it comes in a group
            pass


def _take_over() -> tuple[int, int]:
    """Move stdin and stdout to other file descriptors: tools print, and start processes that inherit 0 and 1."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return stdin, stdout


async def _serve(service: Service, stdin: int, stdout: int) -> None:
    """Serve one client. Threads read and write, because that works for pipes, files and terminals on every platform.

    They are daemons: a read or write that never returns must not keep the process alive.
    """
    lines: SimpleQueue[bytes | None] = SimpleQueue()
    ended, token = Event(), current_token()

    def send(message: Message, related: Id | None) -> None:
        if lines.qsize() < MAX_WAITING or not isinstance(message, Notification):
            lines.put(encode(message) + b"\n")

    def receive(line: bytes) -> None:
        for message in decode(line):
            session.receive(message)

    def read() -> None:
        with suppress(RunFinishedError), open(stdin, "rb") as pipe:  # the event loop may end first
            try:
                with suppress(KeyboardInterrupt):  # trio raises here what interrupts `receive` in the main thread
                    for line in pipe:
                        if not line.isspace():
                            from_thread.run_sync(receive, line, token=token)
            finally:
                from_thread.run_sync(ended.set, token=token)

    def write() -> None:
        with suppress(OSError), open(stdout, "wb") as pipe:  # the client may close the pipe; our stdin ends, too
            while (line := lines.get()) is not None:
                pipe.write(line)
                pipe.flush()

    writer = Thread(target=write, name="stdout", daemon=True)
    writer.start()
    try:
        async with create_task_group() as tasks:
            session = Session(service, tasks.start_soon, send)
            Thread(target=read, name="stdin", daemon=True).start()
            await ended.wait()
            session.stateless.end()
            tasks.cancel_scope.deadline = current_time() + ANSWER_TIMEOUT
        session.close()
    finally:
        with CancelScope(shield=True):  # also after Ctrl-C: no process of the service is left
            await service.aclose()
    lines.put(None)
    await to_thread.run_sync(writer.join, FLUSH_TIMEOUT)
