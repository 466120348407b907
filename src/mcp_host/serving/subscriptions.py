"""Which clients get which notifications, each in the event loop of its connection."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVarTuple, Unpack

from anyio import RunFinishedError, from_thread, to_thread
from anyio.lowlevel import current_token

from mcp_host.concurrency.synchronization import Event
from mcp_host.protocol.jsonrpc import Params
from mcp_host.serving.remote_client import Notify, meta_of

Args = TypeVarTuple("Args")

UPDATED = "notifications/resources/updated"
LISTED = frozenset({"tools", "prompts", "resources"})
"""The kinds of lists whose changes a server announces."""


class EventLoop:
    """The event loop that created this object.

    `Server.http` serves in another thread than the test that calls `Server.notify_tools_changed`.
    """

    def __init__(self) -> None:
        self._token = current_token()

    async def run(self, function: Callable[[Unpack[Args]], None], *args: *Args) -> None:
        """Call *function* in that event loop and wait for it. Does nothing if the loop has ended."""
        if current_token() == self._token:
            function(*args)
        else:
            with suppress(RunFinishedError):
                await to_thread.run_sync(partial(from_thread.run_sync, function, *args, token=self._token))


@dataclass(eq=False, slots=True)
class Subscription:
    """The notifications that one client gets.

    Since 2026-07-28 it chooses them with `subscriptions/listen`. Before, it gets those of
    lists after the handshake, and those of resources after `resources/subscribe`.
    """

    notify: Notify
    lists: Set[str] = frozenset()
    """Those of `LISTED` whose changes the client has chosen."""
    uris: set[str] = field(default_factory=set)
    meta: Params = field(default_factory=dict)
    """Added to the ``_meta`` of every notification."""
    owner: object = None
    """The `Stateless` that it belongs to, if any."""
    ended: Event = field(default_factory=Event)
    event_loop: EventLoop = field(default_factory=EventLoop)

    def announce(self, method: str, params: Params) -> None:
        """Send a notification if the client has chosen it."""
        if params["uri"] in self.uris if method == UPDATED else method.split("/")[1] in self.lists:
            self.notify(method, params | {"_meta": meta_of(params) | self.meta} if self.meta else params)
