"""Who is speaking, and what each side can do: the handshake, and `server/discover` in its place since 2026-07-28."""

from typing import Annotated, Literal

from pydantic import ConfigDict

from mcp_host.types.base import Array, JSONObject, Model, wire_name
from mcp_host.types.content import BaseMetadata, Icons
from mcp_host.types.messages import (
    CacheableResult,
    LoggingLevel,
    NotificationParams,
    ProgressToken,
    RequestId,
    RequestParams,
    Result,
    TypedNotification,
    TypedRequest,
)
from mcp_host.types.revisions import SINCE_2025_03_26, SINCE_2025_06_18, SINCE_2025_11_25, SINCE_2026_07_28

# fmt: off
__all__ = [
    "ClientCapabilities", "DiscoverRequest", "DiscoverResult", "ElicitationCapability", "Implementation",
    "InitializeRequest", "InitializeRequestParams", "InitializeResult", "InitializedNotification", "ListedCapability",
    "MetaObject", "NotificationMetaObject", "RequestMetaObject", "ResourcesCapability", "ResultMetaObject",
    "RootsCapability", "SamplingCapability", "ServerCapabilities", "SubscriptionsListenResultMetaObject",
    "TasksCapability",
]
# fmt: on


class Implementation(BaseMetadata, Icons):
    """The name and version of a client or a server."""

    version: str
    description: Annotated[str | None, SINCE_2025_11_25] = None
    website_url: Annotated[str | None, SINCE_2025_11_25] = None


class RootsCapability(Model):
    """The client can list roots; with *list_changed* it says when they change (until 2025-11-25)."""

    list_changed: bool | None = None


class SamplingCapability(Model):
    """The client has a model; *tools* and *context* say that it takes tools and ``includeContext``."""

    context: Annotated[JSONObject | None, SINCE_2025_11_25] = None
    tools: Annotated[JSONObject | None, SINCE_2025_11_25] = None


class ElicitationCapability(Model, since="2025-06-18"):
    """The client can ask its user, by a form or by sending them to a URL; neither named means by a form."""

    form: Annotated[JSONObject | None, SINCE_2025_11_25] = None
    url: Annotated[JSONObject | None, SINCE_2025_11_25] = None


class TasksCapability(Model, since="2025-11-25", until="2025-11-25"):
    """Which requests may be made tasks (*requests*, by kind and method), and whether tasks can be listed and cancelled."""

    cancel: JSONObject | None = None
    requests: JSONObject | None = None
    list: JSONObject | None = None


class ClientCapabilities(Model):
    """What the client can do for a server."""

    experimental: JSONObject | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: Annotated[ElicitationCapability | None, SINCE_2025_06_18] = None
    tasks: Annotated[TasksCapability | None, SINCE_2025_11_25] = None
    extensions: Annotated[JSONObject | None, SINCE_2026_07_28] = None


class ListedCapability(Model):
    """The server lists prompts or tools; with *list_changed* it says when they change."""

    list_changed: bool | None = None


class ResourcesCapability(ListedCapability):
    """The server lists resources; with *subscribe* it says when one of them changes."""

    subscribe: bool | None = None


class ServerCapabilities(Model):
    """What the server offers."""

    experimental: JSONObject | None = None
    logging: JSONObject | None = None
    completions: Annotated[JSONObject | None, SINCE_2025_03_26] = None
    prompts: ListedCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListedCapability | None = None
    tasks: Annotated[TasksCapability | None, SINCE_2025_11_25] = None
    extensions: Annotated[JSONObject | None, SINCE_2026_07_28] = None


class InitializeRequestParams(RequestParams, until="2025-11-25"):
    """Who the client is, what it can do, and the newest revision it speaks."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeRequest(TypedRequest, until="2025-11-25"):
    """The first message of a client."""

    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializeResult(Result, until="2025-11-25"):
    """Who the server is, what it can do, the revision it chose, and perhaps *instructions* for the model."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class InitializedNotification(TypedNotification, until="2025-11-25"):
    """The handshake is done."""

    method: Literal["notifications/initialized"] = "notifications/initialized"
    params: NotificationParams | None = None


class DiscoverRequest(TypedRequest, since="2026-07-28"):
    """Which revisions do you speak, and what can you do?"""

    method: Literal["server/discover"] = "server/discover"
    params: RequestParams


class DiscoverResult(CacheableResult, since="2026-07-28"):
    """What the server can do, without a handshake; its name is in the `ResultMetaObject`."""

    supported_versions: Array[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


def _reserved_name(name: str) -> str:
    """Keys of ``_meta`` carry the specification's prefix, but for the one that is older than the prefix."""
    return wire_name(name) if name == "progress_token" else f"io.modelcontextprotocol/{wire_name(name)}"


class MetaObject(Model, since="2026-07-28"):
    """Any ``_meta``. The types hold theirs as plain dicts; these classes read one, or help to write it."""

    model_config = ConfigDict(alias_generator=_reserved_name)


class RequestMetaObject(MetaObject, since="2026-07-28"):
    """The ``_meta`` that every request carries since 2026-07-28, there being no handshake."""

    progress_token: ProgressToken | None = None
    protocol_version: str
    client_info: Implementation | None = None
    client_capabilities: ClientCapabilities
    log_level: LoggingLevel | None = None


class NotificationMetaObject(MetaObject, since="2026-07-28"):
    """The ``_meta`` of a notification: which subscription it belongs to, if any."""

    subscription_id: RequestId | None = None


class ResultMetaObject(MetaObject, since="2026-07-28"):
    """The ``_meta`` of a result: who the server is."""

    server_info: Implementation | None = None


class SubscriptionsListenResultMetaObject(ResultMetaObject, since="2026-07-28"):
    """The ``_meta`` of the result that ends a subscription."""

    subscription_id: RequestId
