"""One call at a time, where a server does not say which call its requests belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from anyio import Event

CallT = TypeVar("CallT")


class Turns(Generic[CallT]):
    """The server works on one call at a time. A call that waits for the answer of its host lets others go first."""

    def __init__(self) -> None:
        self._holder: CallT | None = None
        self._begun: set[CallT] = set()
        self._waiting = 0  # for the answers of their hosts
        self._given = Event()

    @property
    def asking(self) -> CallT | None:
        """The call that a request of the server is for, if it could be for one that waits for its host, too."""
        return self._holder if self._waiting else None

    @asynccontextmanager
    async def turn(self, call: CallT) -> AsyncIterator[None]:
        """Make *call*, when the others have ended or wait for an answer."""
        self._begun.add(call)
        try:
            await self._take(call)
            yield
        finally:
            self._begun.remove(call)
            self._give(call)

    @asynccontextmanager
    async def given_up(self, call: CallT) -> AsyncIterator[None]:
        """Let others go first while this is entered. A call that takes no turns does not wait."""
        self._give(call)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            await self._take(call)

    async def _take(self, call: CallT) -> None:
        while call in self._begun:  # it may end meanwhile, and calls that take no turns have not begun one
            if self._holder in (None, call):
                self._holder = call
                return
            await self._given.wait()

    def _give(self, call: CallT) -> None:
        if self._holder is call:
            self._holder = None
            self._given.set()
            self._given = Event()
