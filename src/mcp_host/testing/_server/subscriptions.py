"""`subscriptions/listen` of revision 2026-07-28: each client gets the notifications that it chose."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVarTuple, Unpack

from anyio import Event, RunFinishedError, from_thread, to_thread
from anyio.lowlevel import current_token

from mcp_host.protocol.eras import ACKNOWLEDGED
from mcp_host.protocol.jsonrpc import Id, Params
from mcp_host.testing._server.revision import given
from mcp_host.testing.context import Notify
from mcp_host.types import SubscriptionFilter
from mcp_host.types.requests import NotificationMetaObject

UPDATED = "notifications/resources/updated"
CHANGED = {f"notifications/{kind}/list_changed": f"{kind}_list_changed" for kind in ("tools", "prompts", "resources")}
"""The field of the filter that chooses each notification of a changed list."""


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


def matches(chosen: SubscriptionFilter, method: str, params: Params) -> bool:
    """Whether a notification is among the chosen ones."""
    if method == UPDATED:
        return params["uri"] in (chosen.resource_subscriptions or ())
    return getattr(chosen, CHANGED[method]) is True


@dataclass(eq=False, slots=True)
class Subscription:
    chosen: SubscriptionFilter
    meta: Params
    notify: Notify
    ended: Event = field(default_factory=Event)


class Subscriptions:
    """The open subscriptions of one connection or HTTP endpoint."""

    def __init__(self) -> None:
        self._open: list[Subscription] = []

    async def listen(self, id: Id, chosen: SubscriptionFilter, notify: Notify) -> Params:
        """Acknowledge, and keep the subscription open until the server ends it; return the result's ``_meta``."""
        meta = NotificationMetaObject(subscription_id=id).to_wire()
        subscription = Subscription(chosen, meta, notify)
        notify(ACKNOWLEDGED, {"notifications": chosen.to_wire(), "_meta": meta})
        self._open.append(subscription)
        try:
            await subscription.ended.wait()
        finally:
            self._open.remove(subscription)
        return meta

    def announce(self, method: str, params: Params) -> None:
        for subscription in self._open:
            if matches(subscription.chosen, method, params):
                subscription.notify(method, {**params, "_meta": subscription.meta})

    def end(self) -> None:
        """Have every `listen` return."""
        for subscription in self._open:
            subscription.ended.set()


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
