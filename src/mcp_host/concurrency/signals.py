"""Signals that end a program: it ends what it has begun first, such as its servers."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any, Literal, NoReturn, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio import CancelScope

from mcp_host.concurrency.backends import Loop

T = TypeVar("T")
Args = TypeVarTuple("Args")

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP
"""Ctrl-C, a service manager ends the command, or its terminal is closed."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP raise SystemExit with the exit code of shells, 128 and their number.

    Others are ignored while what was begun is being ended, which is bounded. One that is ignored already stays so (nohup).
    """
    taken = _with_handlers(signal.SIG_DFL, signal.default_int_handler)
    for each in taken.keys() - {signal.SIGINT}:
        signal.signal(each, _exit)
    try:
        yield
    finally:
        _restore(taken)


def run(
    function: Callable[[Unpack[Args]], Awaitable[T]],
    *args: *Args,
    backend: Literal["asyncio", "trio"] = "asyncio",
) -> T:
    """As `anyio.run`, but the first signal that would raise an exception cancels *function*, and raises it in the end.

    Raised at any point of the event loop, it would cut off what the loop does to end. Others are ignored meanwhile.
    A step of the loop that waits for something holds it up.
    """
    received: list[int] = []
    cancels: list[Callable[[], None]] = []
    returned: list[T] = []

    def cancel(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each in cancels:
            each()

    async def main() -> None:
        with CancelScope() as scope, _waking() if taken else nullcontext():
            cancels.append(partial(Loop.running().call_soon, scope.cancel))
            if not received:  # before the loop ran
                returned.append(await function(*args))

    taken = _with_handlers(_exit, signal.default_int_handler)
    try:
        for each in taken:
            signal.signal(each, cancel)
        anyio.run(main, backend=backend)
    finally:
        _restore(taken)
        list(map(signal.raise_signal, received[:1]))
    return returned[0]


def _with_handlers(*handlers: object) -> dict[int, Any]:
    """Which signals have one of *handlers*, and which. In another thread than the main thread, which can set none, it is empty."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {each: before for each in ENDING if (before := signal.getsignal(each)) in handlers}


def _restore(taken: dict[int, Any]) -> None:
    for each, before in taken.items():
        signal.signal(each, before)


@contextmanager
def _waking() -> Iterator[None]:
    """In the block, signals wake the event loop. One that comes just before asyncio waits, or to another thread, would not."""
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        if before != -1:  # trio has one, and so has asyncio on Windows
            signal.set_wakeup_fd(before)
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(reading, reading.recv, 1024)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            loop.remove_reader(reading)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    for each in _with_handlers(_exit, signal.default_int_handler):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)
