"""Whole messages as they travel: JSON-RPC's own, pages, pings, progress and cancellation."""

from typing import Literal, TypeAlias

from mcp_host.types.base import JSONObject, Model
from mcp_host.types.messages import (
    Cursor,
    NotificationParams,
    ProgressNotificationParams,
    RequestId,
    RequestParams,
    Result,
    TypedNotification,
    TypedRequest,
)


class Request(Model):
    """Any request, without its envelope."""

    method: str
    params: JSONObject | None = None


class Notification(Model):
    """Any notification, without its envelope."""

    method: str
    params: JSONObject | None = None


class JSONRPCRequest(Request):
    """Any request, as it travels."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId


class JSONRPCNotification(Notification):
    """Any notification, as it travels."""

    jsonrpc: Literal["2.0"] = "2.0"


class JSONRPCResultResponse(Model):
    """The answer to a request that went well."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: Result


class Error(Model):
    """What went wrong: a JSON-RPC code, a short sentence, and whatever the code defines as data."""

    code: int
    message: str
    data: object = None


class JSONRPCErrorResponse(Model):
    """The answer to a request that failed; without an id where the request could not be read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None = None
    error: Error


JSONRPCError: TypeAlias = JSONRPCErrorResponse  # its name before revision 2025-11-25
JSONRPCResponse: TypeAlias = JSONRPCResultResponse | JSONRPCErrorResponse
JSONRPCBatchRequest: TypeAlias = list[JSONRPCRequest | JSONRPCNotification]
JSONRPCBatchResponse: TypeAlias = list[JSONRPCResponse]
JSONRPCMessage: TypeAlias = (
    JSONRPCRequest
    | JSONRPCNotification
    | JSONRPCResponse
    | JSONRPCBatchRequest  # batches: revision 2025-03-26 only
    | JSONRPCBatchResponse
)


class PaginatedRequestParams(RequestParams):
    """Which page to list: the *next_cursor* of the page before, or none for the first."""

    cursor: Cursor | None = None


class PaginatedRequest(TypedRequest):
    """Any request for one page of a listing."""

    method: str
    params: PaginatedRequestParams | None = None


class PingRequest(TypedRequest, until="2025-11-25"):
    """Are you there?"""

    method: Literal["ping"] = "ping"
    params: RequestParams | None = None


class ProgressNotification(TypedNotification):
    """Progress of a request, from whoever is working on it."""

    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams


class CancelledNotificationParams(NotificationParams):
    """Which request nobody waits for any longer; the id is left out only for tasks of 2025-11-25."""

    request_id: RequestId | None = None
    reason: str | None = None


class CancelledNotification(TypedNotification):
    """A request was given up."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams
