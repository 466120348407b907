"""A fair semaphore in front of handlers, for a model or a person: so many requests at once, in total and for each server, which take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from anyio import Event

from mcp_host.concurrency.backends import Loop
from mcp_host.handlers import current_handler, wait_for_thread

T = TypeVar("T")


class QueueFull(Exception):
    """Too many requests are waiting already."""


class FairSemaphore:
    """Slots for a *total* number of requests at once. Shares that wait take turns, each in the order of asking.

    A free slot is given to a waiting one at once, so that a new one of the same share overtakes none.
    It can serve one event loop after another, but not two at the same time.
    """

    def __init__(self, total: float) -> None:
        self.free = total  # negative after a slot was taken although none was free
        self.taken = 0
        """How many slots were taken so far."""
        self.new: deque[Slot] = deque()
        self.resuming: deque[Slot] = deque()  # these have begun, so they go first
        self.ended_threads: deque[Slot] = deque()
        """For `release_ended_threads`."""
        self._loop: Loop | None = None  # the last one in which a slot waited

    def enqueue(self, slot: Slot, queue: deque[Slot]) -> None:
        """Have *slot* acquired as soon as possible, perhaps at once."""
        queue.append(slot)
        slot.queue, slot.turn = queue, Event()
        self._loop = Loop.running()
        self.release_ended_threads()  # those that ended before they could know this loop
        self.acquire_next()

    def acquire_next(self) -> None:
        """Give what is free to a share that may have it, that which was given one longest ago: no server's requests delay all of another's."""
        for queue in (self.resuming, self.new) if self.free > 0 else ():
            if waiting := queue and [slot for slot in queue if slot.share.free > 0]:
                slot = min(waiting, key=lambda slot: slot.share.taken_last)
                slot.take()
                slot.dequeue()
                return

    def thread_ended(self, slot: Slot) -> None:
        """Called in any thread when a thread of *slot* has ended.

        The event loop in which the thread was started may have ended, too: then the next one notices.
        """
        self.ended_threads.append(slot)
        if (loop := self._loop) is not None:
            loop.call_soon(self.release_ended_threads)

    def release_ended_threads(self) -> None:
        while self.ended_threads:
            self.ended_threads.popleft().thread_ended()


@dataclass(slots=True, eq=False)
class SemaphoreShare:
    """One server's share of a *semaphore*."""

    semaphore: FairSemaphore
    free: float
    """How many more slots this share may have now."""
    queue_space: float
    """How many more new slots may wait. Negative if some waited although there was no space."""
    taken_last: int = 0
    """`FairSemaphore.taken` when it took one last."""


@dataclass(slots=True, eq=False)
class Slot:
    """The right of one request to run. Its handler lends it while it awaits a call.

    Otherwise, a server that samples within that call would wait for slots that its own handlers hold.
    If a handler awaits several calls at once, it lends the slot with the first and takes it back after the last.

    A thread that was left behind keeps the slot until it ends.
    """

    share: SemaphoreShare
    acquired: bool = False
    queue: deque[Slot] | None = None
    """Where it waits, if it does."""
    turn: Event = field(init=False)
    """Set when it stops waiting."""
    _lent: int = 0
    _threads: int = 0
    _left: bool = False

    async def acquire(self, *, always_wait: bool = False) -> None:
        """Wait for a slot. Release it after use.

        Raises:
            QueueFull: Too many are waiting already; never with *always_wait*.
        """
        share, semaphore = self.share, self.share.semaphore
        if semaphore.ended_threads:
            semaphore.release_ended_threads()
        if semaphore.free > 0 and share.free > 0:
            self.take()
            return
        if share.queue_space <= 0 and not always_wait:
            raise QueueFull
        share.queue_space -= 1
        try:
            await self._wait_in(semaphore.new)
        except BaseException:
            self.release()
            raise
        finally:
            share.queue_space += 1

    def take(self) -> None:
        """Acquire the slot although none may be free. Then one fewer is given out until one is released."""
        semaphore = self.share.semaphore
        semaphore.free -= 1
        semaphore.taken += 1
        self.share.free -= 1
        self.share.taken_last = semaphore.taken
        self.acquired = True

    def release(self) -> None:
        """The request has ended. What its handler left running no longer lends the slot; threads keep it."""
        self._left = True
        if (semaphore := self.share.semaphore).ended_threads:
            semaphore.release_ended_threads()
        self._release_unneeded()

    def keep_for_thread(self) -> Callable[[], None]:
        """Keep the slot for a thread that begins now. Call the returned function in that thread when it ends."""
        self._threads += 1
        return partial(self.share.semaphore.thread_ended, self)

    def thread_ended(self) -> None:
        self._threads -= 1
        self._release_unneeded()

    async def lend(
        self, call: Callable[[], Awaitable[T]], *, within: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> T:
        """Await *call* without the slot, then wait for a slot in the cancel scope that *within* returns.

        If it is cancelled, it cannot wait: then it goes on with a slot by `take`.
        """
        self._lent += 1
        self._release_unneeded()
        may_wait = True
        try:
            return await call()
        except BaseException as exc:
            may_wait = isinstance(exc, Exception)
            raise
        finally:
            self._lent -= 1
            try:
                if may_wait:
                    with within():
                        await self._wait_in(self.share.semaphore.resuming)
            finally:
                if self._is_needed and not self.acquired:
                    if self.queue is not None:
                        self.dequeue()
                    self.take()

    @property
    def _is_needed(self) -> bool:
        return not self._lent and (not self._left or self._threads > 0)

    def _release_unneeded(self) -> None:
        """Release it, or stop waiting for it, while it is lent and after the request."""
        if self._is_needed:
            return
        if self.acquired:
            self.acquired = False
            self.share.free += 1
            self.share.semaphore.free += 1
            self.share.semaphore.acquire_next()
        elif self.queue is not None:
            self.dequeue()

    async def _wait_in(self, queue: deque[Slot]) -> None:
        """Wait until it is acquired or no longer needed. Several tasks of a handler may wait for the same slot."""
        while self._is_needed and not self.acquired:
            if self.queue is None:
                self.share.semaphore.enqueue(self, queue)
            else:
                await self.turn.wait()

    def dequeue(self) -> None:
        assert self.queue is not None, "it waits"
        self.queue.remove(self)
        self.queue = None
        self.turn.set()


async def keep_slot_for_thread() -> Callable[[], None]:
    """Keep the current slot while a plain function runs in a thread: see `Slot.keep_for_thread`.

    A handler may also be called without a slot, by a tool loop of the host. Then this is `wait_for_thread`.
    """
    slot = current_slot()
    return await wait_for_thread() if slot is None else slot.keep_for_thread()


async def keep_slot_and_wait_for_thread() -> Callable[[], None]:
    """Keep the current slot, and wait for one of `MAX_THREADS`: for handlers whose slots are not bounded in total."""
    slot, ended = current_slot(), await wait_for_thread()
    assert slot is not None, "such handlers run in a slot"
    left = slot.keep_for_thread()

    def end() -> None:
        left()
        ended()

    return end


def current_slot() -> Slot | None:
    """That of the handler or approver that runs now."""
    scope = current_handler.get()
    slot = None if scope is None or scope.ended else scope.slot
    return slot if isinstance(slot, Slot) else None
