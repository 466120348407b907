"""Threads that must not keep the process alive. On asyncio, it waits for anyio's worker threads when it ends."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar, TypeVarTuple, Unpack

from anyio import Event

from mcp_host.concurrency.backends import Loop

T = TypeVar("T")
Args = TypeVarTuple("Args")


async def run_in_daemon(function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """Call *function* in a daemon thread, and return or raise what it does. If the caller is cancelled, it goes on."""
    loop, ended = Loop.running(), Event()
    returned: list[T] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            returned.append(function(*args))
        except Exception as exc:
            raised.append(exc)
        finally:
            loop.call_soon(ended.set)

    Thread(target=run, name=function.__name__, daemon=True).start()
    await ended.wait()
    if raised:
        raise raised[0]
    return returned[0]
