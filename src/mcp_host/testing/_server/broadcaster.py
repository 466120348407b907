"""Telling all connections of a server what has changed, in whichever event loop each of them runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVarTuple, Unpack

from anyio import RunFinishedError, from_thread, to_thread
from anyio.lowlevel import current_token

from mcp_host.protocol.jsonrpc import Params

Args = TypeVarTuple("Args")


class EventLoop:
    """The event loop that created this object.

    A server over HTTP runs in a thread; the test that has it announce something does not.
    """

    def __init__(self) -> None:
        self._token = current_token()

    async def run(self, function: Callable[[Unpack[Args]], Coroutine[Any, Any, None]], *args: *Args) -> None:
        """Call *function* in that event loop and wait for it. Does nothing if the loop has ended."""
        if current_token() == self._token:
            await function(*args)
            return

        def call() -> None:
            with suppress(RunFinishedError):
                from_thread.run(function, *args, token=self._token)

        await to_thread.run_sync(call)


class Receiver(Protocol):
    """One session, or all stateless requests of one endpoint."""

    async def announce(self, method: str, params: Params) -> None:
        """Send a notification to each client that has subscribed to it."""

    async def end_subscriptions(self) -> None:
        """End every `subscriptions/listen` with its result."""


class Broadcaster:
    """The receivers of one server's announcements."""

    def __init__(self) -> None:
        self._receivers: dict[Receiver, EventLoop] = {}

    @contextmanager
    def reaching(self, receiver: Receiver) -> Iterator[None]:
        """Send announcements to *receiver* as long as this is entered."""
        self._receivers[receiver] = EventLoop()
        try:
            yield
        finally:
            del self._receivers[receiver]

    async def announce(self, method: str, params: Params) -> None:
        for receiver, event_loop in list(self._receivers.items()):
            await event_loop.run(receiver.announce, method, params)

    async def end_subscriptions(self) -> None:
        for receiver, event_loop in list(self._receivers.items()):
            await event_loop.run(receiver.end_subscriptions)
