"""Subscriptions of revision 2026-07-28: streams of what has changed, each as narrow as its client asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anyio import Event

from mcp_host.protocol.eras import ACKNOWLEDGED
from mcp_host.protocol.jsonrpc import Id, Params
from mcp_host.testing._server.revision import given
from mcp_host.testing._server.suspended import Tell
from mcp_host.types import SubscriptionFilter
from mcp_host.types.lifecycle import NotificationMetaObject

UPDATED = "notifications/resources/updated"
LISTS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
"""The capability that each notification of a changed list presupposes."""


def granted(wanted: SubscriptionFilter, capabilities: Mapping[str, object]) -> SubscriptionFilter:
    """What of *wanted* a server with these capabilities tells of.

    "Only includes notification types the server actually supports" (schema).
    """
    lists = {f"{kind}_list_changed": (_asks(wanted, kind) and kind in capabilities) or None for kind in LISTS.values()}
    resources = wanted.resource_subscriptions if "resources" in capabilities else None
    return SubscriptionFilter(**given(**lists, resource_subscriptions=resources))


def hears(chosen: SubscriptionFilter, method: str, params: Params) -> bool:
    """Whether a notification is among what was chosen."""
    if method == UPDATED:
        return params["uri"] in (chosen.resource_subscriptions or ())
    return _asks(chosen, LISTS[method])


def _asks(chosen: SubscriptionFilter, kind: str) -> bool:
    return getattr(chosen, f"{kind}_list_changed") is True


@dataclass(eq=False, slots=True)
class _Listener:
    chosen: SubscriptionFilter
    meta: Params
    tell: Tell
    ended: Event = field(default_factory=Event)


class Listeners:
    """Who listens."""

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []

    async def listen(self, id: Id, chosen: SubscriptionFilter, tell: Tell) -> Params:
        """Tell of what was *chosen*, from the acknowledgment on, until the server ends it; the result's ``_meta``."""
        meta = NotificationMetaObject(subscription_id=id).to_wire()
        listener = _Listener(chosen, meta, tell)
        tell(ACKNOWLEDGED, {"notifications": chosen.to_wire(), "_meta": meta})
        self._listeners.append(listener)
        try:
            await listener.ended.wait()
        finally:
            self._listeners.remove(listener)
        return meta

    def announce(self, method: str, params: Params) -> None:
        for listener in self._listeners:
            if hears(listener.chosen, method, params):
                listener.tell(method, {**params, "_meta": listener.meta})

    def end(self) -> None:
        """Have every `listen` return."""
        for listener in self._listeners:
            listener.ended.set()
