"""Resources: what a server lists for reading, and what it says when they change."""

from typing import Annotated, Literal

from mcp_host.types.base import SINCE_2025_06_18, Array, Meta
from mcp_host.types.content import Annotations, BaseMetadata, Icons, Resource, TextOrBlob
from mcp_host.types.messages import CacheableResult, NotificationParams, PaginatedResult, TypedNotification


class ResourceTemplate(BaseMetadata, Icons):
    """Many resources under one URI template (RFC 6570)."""

    uri_template: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ListResourcesResult(PaginatedResult, CacheableResult):
    """One page of resources."""

    resources: Array[Resource]


class ListResourceTemplatesResult(PaginatedResult, CacheableResult):
    """One page of resource templates."""

    resource_templates: Array[ResourceTemplate]


class ReadResourceResult(CacheableResult):
    """What was read; one URI may yield several contents."""

    contents: Array[TextOrBlob]


class ResourceListChangedNotification(TypedNotification):
    """The server lists other resources now."""

    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"
    params: NotificationParams | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """Which resource has changed: the one subscribed to, or a part of it."""

    uri: str


class ResourceUpdatedNotification(TypedNotification):
    """A resource that the client subscribed to has changed."""

    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams
