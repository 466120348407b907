"""JSON-RPC messages as they travel, and the errors that have a code and a shape. (The exceptions are in `mcp_host.errors`.)"""

from typing import Literal, TypeAlias

from mcp_host.types.base import Array, JSONObject, Model
from mcp_host.types.elicitation import ElicitRequestURLParams
from mcp_host.types.lifecycle import ClientCapabilities
from mcp_host.types.messages import (
    NotificationParams,
    ProgressNotificationParams,
    RequestId,
    RequestParams,
    Result,
    TypedNotification,
    TypedRequest,
)

# fmt: off
__all__ = [
    "CancelledNotification", "CancelledNotificationParams", "Error", "HeaderMismatch", "HeaderMismatchError",
    "InternalError", "InvalidParamsError", "InvalidRequestError", "JSONRPCBatchRequest", "JSONRPCBatchResponse",
    "JSONRPCError", "JSONRPCErrorResponse", "JSONRPCMessage", "JSONRPCNotification", "JSONRPCRequest",
    "JSONRPCResponse", "JSONRPCResultResponse", "MethodNotFoundError", "MissingCapabilities",
    "MissingRequiredClientCapability", "MissingRequiredClientCapabilityError", "Notification", "ParseError",
    "PingRequest", "ProgressNotification", "Request", "RequiredElicitations", "URLElicitationRequired",
    "URLElicitationRequiredError", "UnsupportedProtocolVersion", "UnsupportedProtocolVersionError", "VersionsOffered",
]
# fmt: on


# Messages


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
    """A successful response."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: Result


class Error(Model):
    """A JSON-RPC error: a code, a short message, and data that depends on the code."""

    code: int
    message: str
    data: object = None


class JSONRPCErrorResponse(Model):
    """An error response; without an id if the request could not be read."""

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


class PingRequest(TypedRequest, until="2025-11-25"):
    """The request ``ping``."""

    method: Literal["ping"] = "ping"
    params: RequestParams | None = None


class ProgressNotification(TypedNotification):
    """Progress of a request."""

    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams


class CancelledNotificationParams(NotificationParams):
    """The id of the cancelled request; it is omitted only for tasks of 2025-11-25."""

    request_id: RequestId | None = None
    reason: str | None = None


class CancelledNotification(TypedNotification):
    """The sender has cancelled its request."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams


# Errors


class ParseError(Error, since="2026-07-28"):
    """The message was not valid JSON."""

    code: Literal[-32700] = -32700


class InvalidRequestError(Error, since="2026-07-28"):
    """The message was not a valid request."""

    code: Literal[-32600] = -32600


class MethodNotFoundError(Error, since="2026-07-28"):
    """The method does not exist, or was not advertised."""

    code: Literal[-32601] = -32601


class InvalidParamsError(Error, since="2026-07-28"):
    """The params are invalid; in 2026-07-28 also: the resource does not exist."""

    code: Literal[-32602] = -32602


class InternalError(Error, since="2026-07-28"):
    """An internal error of the receiver."""

    code: Literal[-32603] = -32603


class HeaderMismatch(Error, since="2026-07-28"):
    """The error in a `HeaderMismatchError`."""

    code: Literal[-32020] = -32020


class HeaderMismatchError(JSONRPCErrorResponse, since="2026-07-28"):
    """An HTTP header contradicts the body of its request."""

    error: HeaderMismatch


class MissingCapabilities(Model, since="2026-07-28"):
    """The capabilities that the client has to declare."""

    required_capabilities: ClientCapabilities


class MissingRequiredClientCapability(Error, since="2026-07-28"):
    """The error in a `MissingRequiredClientCapabilityError`."""

    code: Literal[-32021] = -32021
    data: MissingCapabilities


class MissingRequiredClientCapabilityError(JSONRPCErrorResponse, since="2026-07-28"):
    """The request requires a capability that the client did not declare."""

    error: MissingRequiredClientCapability


class VersionsOffered(Model, since="2026-07-28"):
    """The requested revision, and those that the server supports."""

    requested: str
    supported: Array[str]


class UnsupportedProtocolVersion(Error, since="2026-07-28"):
    """The error in an `UnsupportedProtocolVersionError`."""

    code: Literal[-32022] = -32022
    data: VersionsOffered


class UnsupportedProtocolVersionError(JSONRPCErrorResponse, since="2026-07-28"):
    """The server does not support the revision of the request."""

    error: UnsupportedProtocolVersion


class RequiredElicitations(Model, since="2025-11-25", until="2025-11-25"):
    """The URLs that the user has to visit first."""

    elicitations: Array[ElicitRequestURLParams]


class URLElicitationRequired(Error, since="2025-11-25", until="2025-11-25"):
    """The error in a `URLElicitationRequiredError`."""

    code: Literal[-32042] = -32042
    data: RequiredElicitations


class URLElicitationRequiredError(JSONRPCErrorResponse, since="2025-11-25", until="2025-11-25"):
    """The user has to visit URLs before the request can be processed."""

    error: URLElicitationRequired
