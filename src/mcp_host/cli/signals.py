"""Signals that end the command: it ends its servers first, as it does for Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP
"""A service manager ends the command, or its terminal is closed."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """In the block, the first of these signals raises SystemExit with the exit code of shells, 128 and its number. Where an
    event loop runs, it does so between two steps of the loop: a step that waits for something holds it up.

    Others are ignored while what was begun is being ended, which is bounded. One that is ignored already stays so (nohup).
    """
    taken: dict[int, object] = {}

    def end(number: int, frame: FrameType | None) -> None:
        for each in taken:
            signal.signal(each, signal.SIG_IGN)
        with suppress(RuntimeError):  # no event loop runs in this thread
            # Raised in a handler of a server's request, it would be a failure of the handler.
            asyncio.get_running_loop().call_soon_threadsafe(_exit, number)
            return
        _exit(number)

    if threading.current_thread() is threading.main_thread():  # others can set no handler
        taken.update({each: before for each in ENDING if (before := signal.getsignal(each)) is signal.SIG_DFL})
    for each in taken:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def _exit(number: int) -> NoReturn:
    raise SystemExit(128 + number)
