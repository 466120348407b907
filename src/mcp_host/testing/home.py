"""The event loop that a conversation lives in, for those who speak to it from another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from anyio import from_thread, to_thread
from anyio.lowlevel import current_token

P = ParamSpec("P")
T = TypeVar("T")


class Home:
    """The event loop that made this object.

    A server over HTTP has a thread of its own, while the test that tells it to
    announce something runs in the host's.
    """

    def __init__(self) -> None:
        self._token = current_token()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *function* there, and return what it returns."""
        if current_token() == self._token:
            return function(*args, **kwargs)

        def call() -> T:
            return from_thread.run_sync(lambda: function(*args, **kwargs), token=self._token)

        return await to_thread.run_sync(call)
