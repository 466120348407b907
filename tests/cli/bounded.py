"""Programs in this process: interrupted if they do not end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mcp_host import cli

IN_TIME = 60.0  # seconds for processes that import everything, on a busy machine


def main(argv: Sequence[str]) -> int:
    """The exit code of the command."""
    with interrupted_late():
        return cli.main(argv)


@contextmanager
def interrupted_late(seconds: float = IN_TIME) -> Iterator[None]:
    """Interrupt what takes longer than so many seconds, and again and again if it goes on."""
    ended = threading.Event()

    def watch() -> None:
        pause = seconds
        while not ended.wait(pause):
            ctrl_c()
            pause = 1.0

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def ctrl_c() -> None:
    """Interrupt the main thread. The terminal of a test controls no process, and sends no signal."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)
