"""Places in front of a model: so many at once, handed out in the order of asking."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from functools import partial
from itertools import chain
from typing import TypeVar

from anyio import Event
from anyio.lowlevel import EventLoopToken, current_token

from mcp_host.concurrency import call_soon

T = TypeVar("T")


class QueueFull(Exception):
    """Too many are waiting already."""


class FairSemaphore:
    """A number of places that several shares hand out together.

    Bound to no event loop: what waits belongs to the loop it waits in, and what
    is left over are numbers. Not for two loops at the same time.
    """

    def __init__(self, total: int) -> None:
        self._free = total  # less than zero while some had to be seized
        self._new: deque[_Waiter] = deque()
        self._returning: deque[_Waiter] = deque()
        self._pending: deque[Callable[[], None]] = deque()  # from threads that have ended
        self._loop: EventLoopToken | None = None  # the one in which a request waited last

    def share(self, *, at_once: int, waiting: float) -> SemaphoreShare:
        """A share of the places: at most *at_once* of them, with at most *waiting* in line."""
        return SemaphoreShare(self, at_once, waiting)

    def take(self, share: SemaphoreShare) -> bool:
        """Take a place if *share* may have one now. Nobody overtakes: whoever could have one has it."""
        if self._free <= 0 or share.room <= 0:
            return False
        self.seize(share)
        return True

    def seize(self, share: SemaphoreShare) -> None:
        """Take a place though there may be none. Then as many less are handed out until one is put back."""
        self._free -= 1
        share.room -= 1

    def line_up(self, share: SemaphoreShare, *, returning: bool = False) -> _Waiter:
        """Wait for a place. A handler that is *returning* has begun, and goes before all that have not."""
        waiter = _Waiter(share, self._returning if returning else self._new)
        waiter.line.append(waiter)
        self._loop = current_token()
        return waiter

    def put_back(self, share: SemaphoreShare) -> None:
        """Free a place, for the first in line whose share has room: a server at its own bound holds up no other."""
        self._free += 1
        share.room += 1
        for waiter in chain(self._returning, self._new):
            if self.take(waiter.share):
                waiter.line.remove(waiter)
                waiter.called.set()
                return

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Have *callback* called in the event loop: at once if requests wait there, else before the places are next used.

        That loop need not be the one in which the thread was started, which may have ended.
        """
        self._pending.append(callback)
        if (loop := self._loop) is not None:
            call_soon(loop, self.run_pending)

    def run_pending(self) -> None:
        """Call the callbacks from threads."""
        while self._pending:
            self._pending.popleft()()


class SemaphoreShare:
    """One server's share of the places."""

    def __init__(self, semaphore: FairSemaphore, at_once: int, waiting: float) -> None:
        self.semaphore = semaphore
        self._seats = waiting
        self.room = at_once
        """How many more places this share may have now."""

    async def enter(self) -> None:
        """Wait for a place, which then has to be left.

        Raises:
            NoPlace: Too many are waiting for one already.
        """
        self.semaphore.run_pending()
        if self.semaphore.take(self):
            return
        if self._seats <= 0:
            raise QueueFull
        waiter = self.semaphore.line_up(self)
        self._seats -= 1
        try:
            await waiter.wait()
        except BaseException:
            waiter.give_up()
            raise
        finally:
            self._seats += 1

    def leave(self) -> None:
        """Give the place to whoever is next."""
        self.semaphore.put_back(self)


class _Waiter:
    def __init__(self, share: SemaphoreShare, line: deque[_Waiter]) -> None:
        self.share = share
        self.line = line
        self.called = Event()
        """Set together with the taking of a place."""

    async def wait(self) -> None:
        self.share.semaphore.run_pending()  # from a thread that ended before it could see this loop
        await self.called.wait()

    def give_up(self) -> None:
        """Wait no longer. What was called in the same moment gives its place to the next."""
        if self.called.is_set():
            self.share.leave()
        else:
            self.line.remove(self)


class Slot:
    """The place of one request, which its handler lends while it awaits calls.

    Servers that sample within those calls would otherwise wait for the places that their own
    handlers hold. A handler has its place, or it awaits a call: with several calls at once the
    place is lent with the first, and taken again after the last.

    A thread that was left behind keeps the place until it has ended.
    """

    __slots__ = ("_ended", "_has_place", "_left", "_lent", "_share", "_threads", "_token", "_waiter")

    def __init__(self, share: SemaphoreShare) -> None:
        self._share = share
        self._has_place = False
        self._lent = 0
        self._threads = 0
        self._left = False
        self._ended = False  # left, and the last thread has ended
        self._waiter: _Waiter | None = None  # while it is in line to go on
        self._token: Token[Slot | None]

    async def enter(self) -> None:
        """Wait for a place. What runs from here on in this task, and in tasks that it starts, lends it.

        Raises:
            NoPlace: Too many are waiting for one already.
        """
        await self._share.enter()
        self._has_place = True
        self._token = _current.set(self)

    def leave(self) -> None:
        """The request is over. What its handler has left running lends nothing any more, but for its threads."""
        _current.reset(self._token)
        self._left = True
        self._share.semaphore.run_pending()
        self._end()

    def hold(self) -> Callable[[], None]:
        """Keep the place for a thread that begins now. The thread calls the returned function when it ends."""
        self._threads += 1
        return partial(self._share.semaphore.call_from_thread, self._thread_ended)

    async def lend(
        self, call: Callable[[], Awaitable[T]], *, within: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> T:
        """Await *call* without the place, and then wait for one to go on with, in the cancel scope that *within* returns.

        What is cancelled cannot wait, and seizes one: the bound is kept again when the next is put back.
        """
        self._lent += 1
        self._let_go()
        try:
            result = await call()
        except Exception:
            await self._take_back(within)
            raise
        except BaseException:
            self._lent -= 1
            self._seize()
            raise
        await self._take_back(within)
        return result

    def _thread_ended(self) -> None:
        self._threads -= 1
        self._end()

    def _end(self) -> None:
        if self._left and not self._threads:
            self._ended = True
            self._let_go()

    def _let_go(self) -> None:
        if self._has_place:
            self._has_place = False
            self._share.leave()
        if (waiter := self._waiter) is not None:
            self._waiter = None
            waiter.give_up()
            waiter.called.set()  # for the tasks of the handler that wait with it

    async def _take_back(self, within: Callable[[], AbstractContextManager[object]]) -> None:
        self._lent -= 1
        try:
            with within():
                await self._wait()
        finally:
            self._seize()

    async def _wait(self) -> None:
        while self._needs_place and not self._take():
            if self._waiter is None:
                self._waiter = self._share.semaphore.line_up(self._share, returning=True)
            waiter = self._waiter
            await waiter.wait()
            if waiter is self._waiter:  # else another task has seen to it
                self._waiter = None
                self._has_place = True

    @property
    def _needs_place(self) -> bool:
        return not (self._has_place or self._lent or self._ended)

    def _take(self) -> bool:
        self._has_place = self._waiter is None and self._share.semaphore.take(self._share)
        return self._has_place

    def _seize(self) -> None:
        """Take a place if one is needed, though there may be none."""
        if self._needs_place:
            self._let_go()
            self._share.semaphore.seize(self._share)
            self._has_place = True


_current: ContextVar[Slot | None] = ContextVar("mcp_host.slot", default=None)


def current_slot() -> Slot | None:
    """The slot of the sampling request whose handler the caller runs in, if it runs in one, or in a task of one."""
    return _current.get()


async def hold_slot() -> Callable[[], None]:
    """Keep the place of the sampling request while its handler or approver runs in a thread: see `Slot.hold`."""
    slot = _current.get()
    assert slot is not None, "handler and approver run in a slot"
    return slot.hold()
