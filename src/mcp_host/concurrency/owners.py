"""Owners of work that goes on without a caller, such as open channels. Without an owner either, it ends soon."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol, Self

from mcp_host.concurrency.tasks import first
from mcp_host.errors import McpTimeout

_owners: ContextVar[Set[WorkOwner]] = ContextVar("mcp_host.owners", default=frozenset())


class OwnedWork(Protocol):
    """Work that goes on while one of its owners is there."""

    def owner_left(self) -> None:
        """One of its owners has left: without another, and without a caller, it is to end soon."""

    async def wait_briefly(self) -> None:
        """If no owner is there any more, wait for its end, but not for long, and even if the task is cancelled."""


class WorkOwner:
    """An owner of the work that was begun, or waited for, while it was in `owned_by`. It is there until it leaves.

    Leaving the context waits briefly for the work, whose result may be lost otherwise; but not if time is up.
    """

    def __init__(self) -> None:
        self.has_left = False
        self.work: set[OwnedWork] = set()
        """What has not ended yet. The work itself adds and removes itself."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.has_left = True
        left = tuple(self.work)
        for work in left:
            work.owner_left()
        if exc is None or not isinstance(first(exc), McpTimeout):
            for work in left:
                await work.wait_briefly()


@contextmanager
def owned_by(owners: Set[WorkOwner]) -> Iterator[None]:
    """Work that begins inside, or is waited for, has these *owners*, and those that are added to the set later."""
    token = _owners.set(owners)
    try:
        yield
    finally:
        _owners.reset(token)


def current_owners() -> Set[WorkOwner]:
    return _owners.get()
