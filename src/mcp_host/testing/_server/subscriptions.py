"""`subscriptions/listen` of revision 2026-07-28: each client gets the notifications that it chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anyio import Event

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
