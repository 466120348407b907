"""Initialization, capabilities, and `server/discover`, which replaces the handshake since 2026-07-28."""

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
    """The client can list roots; with *list_changed* it sends notifications of changes (until 2025-11-25)."""

    list_changed: bool | None = None


class SamplingCapability(Model):
    """The client has a model; *tools* and *context*: it supports tools and ``includeContext``."""

    context: Annotated[JSONObject | None, SINCE_2025_11_25] = None
    tools: Annotated[JSONObject | None, SINCE_2025_11_25] = None


class ElicitationCapability(Model, since="2025-06-18"):
    """The client can ask its user, with a form or with a URL to visit; neither means forms."""

    form: Annotated[JSONObject | None, SINCE_2025_11_25] = None
    url: Annotated[JSONObject | None, SINCE_2025_11_25] = None


class TasksCapability(Model, since="2025-11-25", until="2025-11-25"):
    """The requests that may be executed as tasks (by kind and method), and whether tasks can be listed and cancelled."""

    cancel: JSONObject | None = None
    requests: JSONObject | None = None
    list: JSONObject | None = None


class ClientCapabilities(Model):
    """What the client supports."""

    experimental: JSONObject | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: Annotated[ElicitationCapability | None, SINCE_2025_06_18] = None
    tasks: Annotated[TasksCapability | None, SINCE_2025_11_25] = None
    extensions: Annotated[JSONObject | None, SINCE_2026_07_28] = None


class ListedCapability(Model):
    """The server lists prompts or tools; with *list_changed* it sends notifications of changes."""

    list_changed: bool | None = None


class ResourcesCapability(ListedCapability):
    """The server lists resources; with *subscribe* it sends notifications when one of them changes."""

    subscribe: bool | None = None


class ServerCapabilities(Model):
    """What the server supports."""

    experimental: JSONObject | None = None
    logging: JSONObject | None = None
    completions: Annotated[JSONObject | None, SINCE_2025_03_26] = None
    prompts: ListedCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListedCapability | None = None
    tasks: Annotated[TasksCapability | None, SINCE_2025_11_25] = None
    extensions: Annotated[JSONObject | None, SINCE_2026_07_28] = None


class InitializeRequestParams(RequestParams, until="2025-11-25"):
    """The client's name, capabilities and preferred revision."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeRequest(TypedRequest, until="2025-11-25"):
    """The request ``initialize``."""

    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializeResult(Result, until="2025-11-25"):
    """The server's name, capabilities and revision, and perhaps *instructions* for the model."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class InitializedNotification(TypedNotification, until="2025-11-25"):
    """The client has finished the handshake."""

    method: Literal["notifications/initialized"] = "notifications/initialized"
    params: NotificationParams | None = None


class DiscoverRequest(TypedRequest, since="2026-07-28"):
    """The request ``server/discover``."""

    method: Literal["server/discover"] = "server/discover"
    params: RequestParams


class DiscoverResult(CacheableResult, since="2026-07-28"):
    """The server's capabilities and revisions; its name is in the `ResultMetaObject`."""

    supported_versions: Array[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


def _reserved_name(name: str) -> str:
    """Keys of ``_meta`` have the specification's prefix, except for ``progressToken``."""
    return wire_name(name) if name == "progress_token" else f"io.modelcontextprotocol/{wire_name(name)}"


class MetaObject(Model, since="2026-07-28"):
    """Any ``_meta``. The other types have it as a plain dict; these classes help to read and write one."""

    model_config = ConfigDict(alias_generator=_reserved_name)


class RequestMetaObject(MetaObject, since="2026-07-28"):
    """The ``_meta`` of every request since 2026-07-28."""

    progress_token: ProgressToken | None = None
    protocol_version: str
    client_info: Implementation | None = None
    client_capabilities: ClientCapabilities
    log_level: LoggingLevel | None = None


class NotificationMetaObject(MetaObject, since="2026-07-28"):
    """The ``_meta`` of a notification: the id of its subscription, if any."""

    subscription_id: RequestId | None = None


class ResultMetaObject(MetaObject, since="2026-07-28"):
    """The ``_meta`` of a result: the name of the server."""

    server_info: Implementation | None = None


class SubscriptionsListenResultMetaObject(ResultMetaObject, since="2026-07-28"):
    """The ``_meta`` of the result that ends a subscription."""

    subscription_id: RequestId
