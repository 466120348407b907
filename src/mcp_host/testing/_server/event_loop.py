"""The event loop that a conversation lives in, for those who speak to it from another one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVarTuple, Unpack

from anyio import RunFinishedError, from_thread, to_thread
from anyio.lowlevel import current_token

Args = TypeVarTuple("Args")


class EventLoop:
    """The event loop that made this object.

    A server over HTTP has a thread of its own, while the test that tells it to
    announce something runs in the host's.
    """

    def __init__(self) -> None:
        self._token = current_token()

    async def run(self, function: Callable[[Unpack[Args]], Coroutine[Any, Any, None]], *args: *Args) -> None:
        """Call *function* there, and wait until it is done. Does nothing if the event loop has ended."""
        if current_token() == self._token:
            await function(*args)
            return

        def call() -> None:
            with suppress(RunFinishedError):
                from_thread.run(function, *args, token=self._token)

        await to_thread.run_sync(call)
