"""What requests, notifications and results have in common, and the result of `initialize`."""

from typing import Annotated, ClassVar, TypeAlias

from mcp_host.types.base import DECIDES, JSONObject, Meta, Model, Number
from mcp_host.types.content import BaseMetadata, Icons
from mcp_host.types.revisions import SINCE_2025_03_26, SINCE_2025_11_25, SINCE_2026_07_28

# fmt: off
__all__ = [
    "Cursor", "EmptyResult", "Implementation", "InitializeResult", "ListedCapability", "NotificationParams",
    "ProgressNotificationParams", "ProgressToken", "RequestId", "RequestParams", "ResourcesCapability", "Result",
    "ResultType", "ServerCapabilities", "TaskAugmentedRequestParams", "TaskMetadata", "TasksCapability",
]
# fmt: on


RequestId: TypeAlias = str | int
ProgressToken: TypeAlias = str | int
Cursor: TypeAlias = str  # opaque: "Clients MUST treat cursors as opaque tokens"
ResultType: TypeAlias = str  # "complete" and "input_required"; absent means complete


class Result(Model, tolerant=True):
    """What every result of a server may have. A result without *result_type* is complete."""

    meta: Meta = None
    result_type: Annotated[ResultType | None, SINCE_2026_07_28, DECIDES] = None


EmptyResult: TypeAlias = Result


class NotificationParams(Model, tolerant=True):
    """What every notification may have."""

    _is_frequent: ClassVar[bool] = True
    meta: Meta = None


class RequestParams(Model):
    """What every request may have; *meta* has a ``progressToken``, and a `RequestMetaObject` since 2026-07-28."""

    meta: Meta = None


class TaskMetadata(Model, since="2025-11-25"):
    """Asks for execution as a task; its result is kept for *ttl* milliseconds."""

    ttl: int | None = None


class TaskAugmentedRequestParams(RequestParams, since="2025-11-25"):
    """Params of a request that may be executed as a task."""

    task: Annotated[TaskMetadata | None, SINCE_2025_11_25] = None


class ProgressNotificationParams(NotificationParams):
    """Progress of the request with that token; *progress* increases, *total* may be unknown."""

    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: Annotated[str | None, SINCE_2025_03_26] = None


# Connecting


class Implementation(BaseMetadata, Icons, tolerant=True):
    """The name and version of a client or a server."""

    version: str
    description: Annotated[str | None, SINCE_2025_11_25] = None
    website_url: Annotated[str | None, SINCE_2025_11_25] = None


class TasksCapability(Model, since="2025-11-25"):
    """The requests that may be executed as tasks (by kind and method), and whether tasks can be listed and cancelled."""

    cancel: JSONObject | None = None
    requests: JSONObject | None = None
    list: JSONObject | None = None


class ListedCapability(Model):
    """The server lists prompts or tools; with *list_changed* it sends notifications of changes."""

    list_changed: bool | None = None


class ResourcesCapability(ListedCapability):
    """The server lists resources; with *subscribe* it sends notifications when one of them changes."""

    subscribe: bool | None = None


class ServerCapabilities(Model, tolerant=True):
    """What the server supports."""

    experimental: Annotated[JSONObject | None, DECIDES] = None
    logging: Annotated[JSONObject | None, DECIDES] = None
    completions: Annotated[JSONObject | None, SINCE_2025_03_26, DECIDES] = None
    prompts: Annotated[ListedCapability | None, DECIDES] = None
    resources: Annotated[ResourcesCapability | None, DECIDES] = None
    tools: Annotated[ListedCapability | None, DECIDES] = None
    tasks: Annotated[TasksCapability | None, SINCE_2025_11_25, DECIDES] = None
    extensions: Annotated[JSONObject | None, SINCE_2026_07_28, DECIDES] = None

    @classmethod
    def _mended(cls, value: object) -> object:
        """Some servers write true or false, as LSP allows."""
        if not isinstance(value, dict):
            return super()._mended(value)
        said = {name: value[name] for name in cls.model_fields if isinstance(value.get(name), bool)}
        return {**value, **{name: {} if offered else None for name, offered in said.items()}}


class InitializeResult(Result):
    """The server's name, capabilities and revision, and perhaps *instructions* for the model."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
