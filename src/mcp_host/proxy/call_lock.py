"""One call at a time, where a server does not say which call its requests belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

from mcp_host.concurrency.synchronization import Event

CallT = TypeVar("CallT")


class CallLock(Generic[CallT]):
    """A call holds it while the server works on it, and releases it while it waits for its host.

    A call whose host has answered waits for no other: a server that works on one call after the other needs that answer
    before it begins the next.
    """

    def __init__(self) -> None:
        self._calls: dict[CallT, int] = {}
        """For how many answers of its host each call waits; the one that was asked or answered last is last."""
        self._changed = Event()

    @property
    def current(self) -> CallT | None:
        """The call that a request of the server is most likely for."""
        working = [call for call, waiting in self._calls.items() if not waiting]
        return next(reversed(working or [*self._calls]), None)

    @asynccontextmanager
    async def held(self, call: CallT) -> AsyncIterator[None]:
        """Hold it for *call*, once each of the others has ended or waits for its host."""
        while not all(self._calls.values()):
            await self._changed.wait()
        self._calls[call] = 0
        try:
            yield
        finally:
            del self._calls[call]
            self._wake()

    @contextmanager
    def released(self, call: CallT) -> Iterator[None]:
        """While *call* waits for an answer of its host. Nothing happens if it has never held it."""
        self._count(call, 1)
        try:
            yield
        finally:
            self._count(call, -1)

    def _count(self, call: CallT, change: int) -> None:
        if call in self._calls:
            self._calls[call] = self._calls.pop(call) + change
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = Event()
