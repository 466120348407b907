"""What all requests, results and notifications have, and what both sides learn when they connect."""

from typing import Annotated, Literal, TypeAlias

from mcp_host.types.base import Array, JSONObject, Meta, Model, Number
from mcp_host.types.content import BaseMetadata, Icons
from mcp_host.types.revisions import SINCE_2025_03_26, SINCE_2025_06_18, SINCE_2025_11_25, SINCE_2026_07_28

# fmt: off
__all__ = [
    "CacheableResult", "ClientCapabilities", "Cursor", "DiscoverResult", "ElicitationCapability", "EmptyResult",
    "Implementation", "InitializeResult", "InputCall", "ListedCapability", "NotificationParams", "PaginatedResult",
    "ProgressNotificationParams", "ProgressToken", "RequestId", "RequestParams", "ResourcesCapability", "Result",
    "ResultType", "RootsCapability", "SamplingCapability", "ServerCapabilities", "TaskAugmentedRequestParams",
    "TaskMetadata", "TasksCapability", "TypedNotification", "TypedRequest",
]
# fmt: on


RequestId: TypeAlias = str | int
ProgressToken: TypeAlias = str | int
Cursor: TypeAlias = str  # opaque: "Clients MUST treat cursors as opaque tokens"
ResultType: TypeAlias = str  # "complete" and "input_required"; absent means complete


class Result(Model):
    """What every result of a server may have. A result without *result_type* is complete."""

    meta: Meta = None
    result_type: Annotated[ResultType | None, SINCE_2026_07_28] = None


EmptyResult: TypeAlias = Result


class NotificationParams(Model):
    """What every notification may have."""

    meta: Meta = None


class RequestParams(Model):
    """What every request may have; *meta* has a ``progressToken``, and a `RequestMetaObject` since 2026-07-28."""

    meta: Meta = None


class TypedRequest(Model):
    """The envelope of every client request; subclasses narrow the method and the params."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    method: str
    params: RequestParams | None = None


class InputCall(Model):
    """A server's request for input: a JSON-RPC request, or, since 2026-07-28, part of a result."""

    jsonrpc: Literal["2.0"] | None = None
    id: RequestId | None = None


class TypedNotification(Model):
    """The envelope of every notification; subclasses narrow the method and the params."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: NotificationParams | None = None


class TaskMetadata(Model, since="2025-11-25"):
    """Asks for execution as a task; its result is kept for *ttl* milliseconds."""

    ttl: int | None = None


class TaskAugmentedRequestParams(RequestParams, since="2025-11-25"):
    """Params of a request that may be executed as a task."""

    task: Annotated[TaskMetadata | None, SINCE_2025_11_25] = None


class PaginatedResult(Result):
    """One page of a list; there are more if it has a *next_cursor*."""

    next_cursor: Cursor | None = None


class CacheableResult(Result, since="2026-07-28"):
    """A result that is fresh for *ttl_ms* milliseconds, for this user or for all."""

    ttl_ms: Annotated[int | None, SINCE_2026_07_28] = None
    cache_scope: Annotated[Literal["public", "private"] | None, SINCE_2026_07_28] = None


class ProgressNotificationParams(NotificationParams):
    """Progress of the request with that token; *progress* increases, *total* may be unknown."""

    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: Annotated[str | None, SINCE_2025_03_26] = None


# Connecting


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


class TasksCapability(Model, since="2025-11-25"):
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


class InitializeResult(Result):
    """The server's name, capabilities and revision, and perhaps *instructions* for the model."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, since="2026-07-28"):
    """The server's capabilities and revisions; its name is in the `ResultMetaObject`."""

    supported_versions: Array[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
