"""Which clients get which notifications, in whichever event loop each of them runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVarTuple, Unpack

from anyio import Event, RunFinishedError, from_thread, to_thread
from anyio.lowlevel import current_token

from mcp_host.protocol.jsonrpc import Params
from mcp_host.testing._server.remote_client import Notify, given
from mcp_host.types import SubscriptionFilter

Args = TypeVarTuple("Args")

UPDATED = "notifications/resources/updated"
CHANGED = {f"notifications/{kind}/list_changed": f"{kind}_list_changed" for kind in ("tools", "prompts", "resources")}
"""The field of the filter that chooses each notification of a changed list."""


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


@dataclass(eq=False, slots=True)
class Subscription:
    """The notifications that one client gets.

    Since 2026-07-28 it chooses them with `subscriptions/listen`. Before, it gets those of
    lists after the handshake, and those of resources after `resources/subscribe`.
    """

    notify: Notify
    changed: set[str] = field(default_factory=set)
    """The notifications of changed lists."""
    uris: set[str] = field(default_factory=set)
    extra: Params = field(default_factory=dict)
    """Added to the params of every notification."""
    ended: Event = field(default_factory=Event)
    event_loop: EventLoop = field(default_factory=EventLoop)

    async def announce(self, method: str, params: Params) -> None:
        """Send a notification if the client has chosen it."""
        if params["uri"] in self.uris if method == UPDATED else method in self.changed:
            self.notify(method, params | self.extra)

    async def end(self) -> None:
        """End a `subscriptions/listen` with its result."""
        self.ended.set()


def granted(wanted: SubscriptionFilter, capabilities: Mapping[str, object]) -> SubscriptionFilter:
    """The part of *wanted* that a server with these capabilities sends.

    "Only includes notification types the server actually supports" (schema).
    """
    lists = {
        chosen: (getattr(wanted, chosen) and chosen.partition("_")[0] in capabilities) or None
        for chosen in CHANGED.values()
    }
    resources = wanted.resource_subscriptions if "resources" in capabilities else None
    return SubscriptionFilter(**given(**lists, resource_subscriptions=resources))
