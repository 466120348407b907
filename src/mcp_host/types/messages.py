"""What all requests, results and notifications have; progress, and logging."""

from typing import Annotated, Literal, TypeAlias

from mcp_host.types.base import Meta, Model, Number
from mcp_host.types.revisions import SINCE_2025_03_26, SINCE_2025_11_25, SINCE_2026_07_28

# fmt: off
__all__ = [
    "CacheableResult", "Cursor", "EmptyResult", "InputCall", "LoggingLevel", "LoggingMessageNotification",
    "LoggingMessageNotificationParams", "NotificationParams", "PaginatedRequest", "PaginatedRequestParams",
    "PaginatedResult", "ProgressNotificationParams", "ProgressToken", "RequestId", "RequestParams", "Result",
    "ResultType", "SetLevelRequest", "SetLevelRequestParams", "TaskAugmentedRequestParams", "TaskMetadata",
    "TypedNotification", "TypedRequest",
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


class TypedRequest(Model):
    """The envelope of every client request; subclasses add the method and the params."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId


class InputCall(Model):
    """A server's request for input: a JSON-RPC request, or, since 2026-07-28, part of a result."""

    jsonrpc: Literal["2.0"] | None = None
    id: RequestId | None = None


class TypedNotification(Model):
    """The envelope of every notification; subclasses add the method and the params."""

    jsonrpc: Literal["2.0"] = "2.0"


class RequestParams(Model):
    """What every request may have; *meta* has a ``progressToken``, and a `RequestMetaObject` since 2026-07-28."""

    meta: Meta = None


class TaskMetadata(Model, since="2025-11-25", until="2025-11-25"):
    """Asks for execution as a task; its result is kept for *ttl* milliseconds."""

    ttl: int | None = None


class TaskAugmentedRequestParams(RequestParams, since="2025-11-25", until="2025-11-25"):
    """Params of a request that may be executed as a task."""

    task: Annotated[TaskMetadata | None, SINCE_2025_11_25] = None


class NotificationParams(Model):
    """What every notification may have."""

    meta: Meta = None


class PaginatedRequestParams(RequestParams):
    """The page to list: the *next_cursor* of the previous page, or none for the first."""

    cursor: Cursor | None = None


class PaginatedRequest(TypedRequest):
    """Any request for one page of a listing."""

    method: str
    params: PaginatedRequestParams | None = None


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


# Logging. Deprecated by the specification from revision 2026-07-28.


LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class LoggingMessageNotificationParams(NotificationParams):
    """One log message; *data* is any JSON value, often a string."""

    level: LoggingLevel
    logger: str | None = None
    data: object


class LoggingMessageNotification(TypedNotification):
    """A log message of the server."""

    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams


class SetLevelRequestParams(RequestParams, until="2025-11-25"):
    """The least severe level to send."""

    level: LoggingLevel


class SetLevelRequest(TypedRequest, until="2025-11-25"):
    """The request ``logging/setLevel``. Since 2026-07-28 each request has the level in its ``_meta``."""

    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams
