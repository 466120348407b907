"""Roots: the folders that a host lets its servers work in. Deprecated by the specification from 2026-07-28."""

from typing import Annotated, Literal

from mcp_host.types.base import SINCE_2025_06_18, Array, Meta, Model
from mcp_host.types.messages import InputCall, NotificationParams, RequestParams, TypedNotification


class Root(Model):
    """A folder or file, as a ``file://`` URI."""

    uri: str
    name: str | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ListRootsRequest(InputCall):
    """The request ``roots/list``."""

    method: Literal["roots/list"] = "roots/list"
    params: RequestParams | None = None


class ListRootsResult(Model):
    """The roots."""

    roots: Array[Root]
    meta: Meta = None


class RootsListChangedNotification(TypedNotification, until="2025-11-25"):
    """The host has other roots now."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"
    params: NotificationParams | None = None
