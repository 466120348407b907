"""What a server announces to have changed: imported where somebody wants to be told."""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp_host.types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)

Change: TypeAlias = (
    ToolListChangedNotification
    | PromptListChangedNotification
    | ResourceListChangedNotification
    | ResourceUpdatedNotification
)
"""What *on_change* is told: that a list has changed, or a resource that was subscribed to."""

KINDS: dict[str, type[Change]] = {
    "notifications/tools/list_changed": ToolListChangedNotification,
    "notifications/prompts/list_changed": PromptListChangedNotification,
    "notifications/resources/list_changed": ResourceListChangedNotification,
    "notifications/resources/updated": ResourceUpdatedNotification,
}


def read_change(wire: dict[str, Any]) -> Change:
    """The announcement that *wire* holds.

    Raises:
        ProtocolError: It is malformed.
    """
    return KINDS[wire["method"]].from_wire(wire)
