"""Places in front of a model: so many at once, handed out in the order of asking."""

from __future__ import annotations

from collections import deque

from anyio import Event


class NoPlace(Exception):
    """Too many are waiting already."""


class Places:
    """A number of places that several shares hand out together.

    Bound to no event loop: what waits belongs to the loop it waits in, and what
    is left over are numbers. Not for two loops at the same time.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting: deque[_Waiter] = deque()

    def share(self, *, at_once: int, waiting: float) -> Share:
        """A share of the places: at most *at_once* of them, with at most *waiting* in line."""
        return Share(self, at_once, waiting)

    def take(self, share: Share) -> bool:
        """Take a place if *share* may have one now. Nobody overtakes: whoever could have one has it."""
        if not self._free or not share.room:
            return False
        self._free -= 1
        share.room -= 1
        return True

    def line_up(self, waiter: _Waiter) -> None:
        self._waiting.append(waiter)

    def give_up(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)

    def put_back(self, share: Share) -> None:
        """Free a place, for the first in line whose share has room: a server at its own bound holds up no other."""
        self._free += 1
        share.room += 1
        for waiter in self._waiting:
            if self.take(waiter.share):
                self._waiting.remove(waiter)
                waiter.called.set()
                return


class Share:
    """One server's share of the places."""

    def __init__(self, places: Places, at_once: int, waiting: float) -> None:
        self._places = places
        self._seats = waiting
        self.room = at_once
        """How many more places this share may have now."""

    async def enter(self) -> None:
        """Wait for a place, which then has to be left.

        Raises:
            NoPlace: Too many are waiting for one already.
        """
        if self._places.take(self):
            return
        if self._seats <= 0:
            raise NoPlace
        waiter = _Waiter(self)
        self._places.line_up(waiter)
        self._seats -= 1
        try:
            await waiter.called.wait()
        except BaseException:
            if waiter.called.is_set():  # called and cancelled at the same moment
                self.leave()
            else:
                self._places.give_up(waiter)
            raise
        finally:
            self._seats += 1

    def leave(self) -> None:
        """Give the place to whoever is next."""
        self._places.put_back(self)


class _Waiter:
    def __init__(self, share: Share) -> None:
        self.share = share
        self.called = Event()
