"""The notifications of changes as *on_change* receives them. Imported only if there is a callback."""

from __future__ import annotations

from typing import TypeAlias, get_args

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
"""What *on_change* receives: a list has changed, or a resource that you subscribed to."""

TYPES: dict[str, type[Change]] = {
    method: kind for kind in get_args(Change) for method in get_args(kind.model_fields["method"].annotation)
}
"""The classes by method."""
