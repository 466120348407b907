"""Asking a person, such as to log in: not for work that no caller waits for, and timeouts pause meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeAlias

from mcp_host.concurrency.synchronization import Event

Pause: TypeAlias = Callable[[], AbstractContextManager[object]]

_unattended: ContextVar[bool] = ContextVar("mcp_host.unattended", default=False)
_pauses: ContextVar[tuple[Pause, ...]] = ContextVar("mcp_host.pauses", default=())


@contextmanager
def unattended() -> Iterator[None]:
    """Marks what runs inside, and the tasks started there, as work that no caller waits for: no person is asked to log in for it."""
    token = _unattended.set(True)
    try:
        yield
    finally:
        _unattended.reset(token)


def is_unattended() -> bool:
    return _unattended.get()


@contextmanager
def paused_by_asking(pause: Pause) -> Iterator[None]:
    """While something inside is `asking_person`, it is in the context *pause* as well."""
    token = _pauses.set((*_pauses.get(), pause))
    try:
        yield
    finally:
        _pauses.reset(token)


@contextmanager
def asking_person() -> Iterator[None]:
    """For the time in which a person is asked to do something, such as to log in. It pauses timeouts: see `paused_by_asking`."""
    with ExitStack() as paused:
        for pause in _pauses.get():
            paused.enter_context(pause())
        yield


class JobEnd:
    """The end of a job, for tasks that wait for it. While the job is `asking_person`, these tasks are, too."""

    def __init__(self) -> None:
        self._is_set = False
        self._asking = 0
        self._changed = Event()

    @contextmanager
    def of_job(self) -> Iterator[None]:
        """The job runs inside. It pauses nothing of the task that began it, which may have left."""
        token = _pauses.set((self._ask,))
        try:
            yield
        finally:
            _pauses.reset(token)

    def set(self) -> None:
        self._is_set = True
        self._changed.set()

    async def wait(self) -> None:
        while not self._is_set:
            with asking_person() if self._asking else nullcontext():
                await self._changed.wait()

    @contextmanager
    def _ask(self) -> Iterator[None]:
        self._asking += 1
        self._tell()
        try:
            yield
        finally:
            self._asking -= 1
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()
