"""Requests with their params, envelopes and errors; subscriptions, tasks, and the unions of all messages.

This library reads and writes these as plain dicts. The classes are for applications and for `mcp_host.testing`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field

from mcp_host.types.base import DECIDES, Array, JSONObject, Model, wire_name
from mcp_host.types.elicitation import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from mcp_host.types.features import (
    CacheableResult,
    CompleteResult,
    ElicitationCompleteNotification,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsResult,
    ListToolsResult,
    LoggingLevel,
    LoggingMessageNotification,
    PaginatedResult,
    PromptListChangedNotification,
    PromptReference,
    ReadResourceResult,
    ResourceListChangedNotification,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
    TypedNotification,
)
from mcp_host.types.messages import (
    Cursor,
    EmptyResult,
    Implementation,
    InitializeResult,
    NotificationParams,
    ProgressNotificationParams,
    ProgressToken,
    RequestId,
    RequestParams,
    Result,
    ServerCapabilities,
    TaskAugmentedRequestParams,
    TasksCapability,
)
from mcp_host.types.revisions import SINCE_2025_06_18, SINCE_2025_11_25, SINCE_2026_07_28
from mcp_host.types.sampling import CreateMessageRequestParams, CreateMessageResult
from mcp_host.types.tools import CallToolResult

# fmt: off
__all__ = [
    "CallToolRequest", "CallToolRequestParams", "CallToolResultResponse", "CancelTaskRequest", "CancelTaskResult",
    "CancelledNotification", "CancelledNotificationParams", "ClientCapabilities", "ClientNotification", "ClientRequest",
    "ClientResult", "CompleteRequest", "CompleteRequestParams", "CompleteResultResponse", "CompletionArgument",
    "CompletionContext", "CreateMessageRequest", "CreateTaskResult", "DiscoverRequest", "DiscoverResult",
    "DiscoverResultResponse", "ElicitRequest", "ElicitationCapability", "Error", "GetPromptRequest",
    "GetPromptRequestParams", "GetPromptResultResponse", "GetTaskPayloadRequest", "GetTaskPayloadResult",
    "GetTaskRequest", "GetTaskResult", "HeaderMismatch", "HeaderMismatchError", "InitializeRequest",
    "InitializeRequestParams", "InitializedNotification", "InputCall", "InputRequest", "InputRequests",
    "InputRequiredResult", "InputResponse", "InputResponseRequestParams", "InputResponses", "InternalError",
    "InvalidParamsError", "InvalidRequestError", "JSONRPCBatchRequest", "JSONRPCBatchResponse", "JSONRPCError",
    "JSONRPCErrorResponse", "JSONRPCMessage", "JSONRPCNotification", "JSONRPCRequest", "JSONRPCResponse",
    "JSONRPCResultResponse", "ListPromptsRequest", "ListPromptsResultResponse", "ListResourceTemplatesRequest",
    "ListResourceTemplatesResultResponse", "ListResourcesRequest", "ListResourcesResultResponse", "ListRootsRequest",
    "ListTasksRequest", "ListTasksResult", "ListToolsRequest", "ListToolsResultResponse", "MetaObject",
    "MethodNotFoundError", "MissingCapabilities", "MissingRequiredClientCapability",
    "MissingRequiredClientCapabilityError", "Notification", "NotificationMetaObject", "PaginatedRequest",
    "PaginatedRequestParams", "ParseError", "PingRequest", "ProgressNotification", "ReadResourceRequest",
    "ReadResourceRequestParams", "ReadResourceResultResponse", "RelatedTaskMetadata", "Request", "RequestMetaObject",
    "RequiredElicitations", "ResourceRequestParams", "ResultMetaObject", "ResultResponse", "RootsCapability",
    "RootsListChangedNotification", "SamplingCapability", "ServerNotification", "ServerRequest", "ServerResult",
    "SetLevelRequest", "SetLevelRequestParams", "SubscribeRequest", "SubscribeRequestParams", "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotification", "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequest", "SubscriptionsListenRequestParams", "SubscriptionsListenResult",
    "SubscriptionsListenResultMetaObject", "SubscriptionsListenResultResponse", "Task", "TaskIdParams", "TaskStatus",
    "TaskStatusNotification", "TaskStatusNotificationParams", "TypedRequest", "URLElicitationRequired",
    "URLElicitationRequiredError", "UnsubscribeRequest", "UnsubscribeRequestParams", "UnsupportedProtocolVersion",
    "UnsupportedProtocolVersionError", "VersionsOffered",
]
# fmt: on


# JSON-RPC


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


class CancelledNotificationParams(NotificationParams):
    """The id of the cancelled request; it is omitted only for tasks of 2025-11-25."""

    request_id: RequestId | None = None
    reason: str | None = None


class CancelledNotification(TypedNotification):
    """The sender has cancelled its request."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams


class ProgressNotification(TypedNotification):
    """Progress of a request."""

    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams


class PingRequest(TypedRequest):
    """The request ``ping``."""

    method: Literal["ping"] = "ping"


# Connecting


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


class ClientCapabilities(Model):
    """What the client supports."""

    experimental: JSONObject | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: Annotated[ElicitationCapability | None, SINCE_2025_06_18] = None
    tasks: Annotated[TasksCapability | None, SINCE_2025_11_25] = None
    extensions: Annotated[JSONObject | None, SINCE_2026_07_28] = None


class InitializeRequestParams(RequestParams):
    """The client's name, capabilities and preferred revision."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeRequest(TypedRequest):
    """The request ``initialize``."""

    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializedNotification(TypedNotification):
    """The client has finished the handshake."""

    method: Literal["notifications/initialized"] = "notifications/initialized"


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


# Input from the client


class ListRootsRequest(InputCall):
    """The request ``roots/list``."""

    method: Literal["roots/list"] = "roots/list"
    params: RequestParams | None = None


class CreateMessageRequest(InputCall):
    """The request ``sampling/createMessage``."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class ElicitRequest(InputCall, since="2025-06-18"):
    """The request ``elicitation/create``."""

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class RootsListChangedNotification(TypedNotification):
    """The client's list of roots has changed."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"


InputRequest: TypeAlias = Annotated[
    CreateMessageRequest | ListRootsRequest | ElicitRequest, Field(discriminator="method")
]
InputResponse: TypeAlias = Annotated[
    CreateMessageResult | ListRootsResult | ElicitResult, Field(union_mode="left_to_right")
]
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponses: TypeAlias = dict[str, InputResponse]


class InputRequiredResult(Result, since="2026-07-28"):
    """The server needs answers to *input_requests*, each under its key, to finish the request.

    *request_state* is opaque, and is returned unchanged with the answers.
    """

    result_type: Annotated[Literal["input_required"], SINCE_2026_07_28] = "input_required"
    input_requests: Annotated[InputRequests | None, DECIDES] = None
    request_state: Annotated[str | None, DECIDES] = None


class InputResponseRequestParams(RequestParams, since="2026-07-28"):
    """Params of a request that may be a retry: the answers, and the server's state."""

    input_responses: Annotated[InputResponses | None, SINCE_2026_07_28] = None
    request_state: Annotated[str | None, SINCE_2026_07_28] = None


# Tools, resources, prompts, completion, logging


class PaginatedRequestParams(RequestParams):
    """The page to list: the *next_cursor* of the previous page, or none for the first."""

    cursor: Cursor | None = None


class PaginatedRequest(TypedRequest):
    """Any request for one page of a listing."""

    params: PaginatedRequestParams | None = None


class ListToolsRequest(PaginatedRequest):
    """The request ``tools/list``."""

    method: Literal["tools/list"] = "tools/list"


class ListPromptsRequest(PaginatedRequest):
    """The request ``prompts/list``."""

    method: Literal["prompts/list"] = "prompts/list"


class ListResourcesRequest(PaginatedRequest):
    """The request ``resources/list``."""

    method: Literal["resources/list"] = "resources/list"


class ListResourceTemplatesRequest(PaginatedRequest):
    """The request ``resources/templates/list``."""

    method: Literal["resources/templates/list"] = "resources/templates/list"


class CallToolRequestParams(TaskAugmentedRequestParams, InputResponseRequestParams):
    """A tool's name and its arguments."""

    name: str
    arguments: JSONObject | None = None


class CallToolRequest(TypedRequest):
    """The request ``tools/call``."""

    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class GetPromptRequestParams(InputResponseRequestParams):
    """The name of a prompt, and its arguments."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptRequest(TypedRequest):
    """The request ``prompts/get``."""

    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class ResourceRequestParams(RequestParams):
    """The URI of a resource."""

    uri: str


class ReadResourceRequestParams(ResourceRequestParams, InputResponseRequestParams):
    """The resource to read."""


class ReadResourceRequest(TypedRequest):
    """The request ``resources/read``."""

    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class SubscribeRequestParams(ResourceRequestParams):
    """The resource to subscribe to."""


class SubscribeRequest(TypedRequest):
    """The request ``resources/subscribe``."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(ResourceRequestParams):
    """The resource to unsubscribe from."""


class UnsubscribeRequest(TypedRequest):
    """The request ``resources/unsubscribe``."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams


class CompletionArgument(Model):
    """The argument to complete, and its value so far."""

    name: str
    value: str


class CompletionContext(Model, since="2025-06-18"):
    """The arguments that already have a value."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """The argument to complete, and what it belongs to."""

    ref: Annotated[PromptReference | ResourceTemplateReference, Field(discriminator="type")]
    argument: CompletionArgument
    context: Annotated[CompletionContext | None, SINCE_2025_06_18] = None


class CompleteRequest(TypedRequest):
    """The request ``completion/complete``."""

    method: Literal["completion/complete"] = "completion/complete"
    params: CompleteRequestParams


class SetLevelRequestParams(RequestParams):
    """The least severe level to send."""

    level: LoggingLevel


class SetLevelRequest(TypedRequest):
    """The request ``logging/setLevel``. Since 2026-07-28 each request has the level in its ``_meta``."""

    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams


# Subscriptions


class SubscriptionFilter(Model, since="2026-07-28"):
    """The notifications to receive: changes of three lists, and of single resources by URI."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: Array[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, since="2026-07-28"):
    """The notifications that the client asks for."""

    notifications: SubscriptionFilter


class SubscriptionsListenRequest(TypedRequest, since="2026-07-28"):
    """The request ``subscriptions/listen``, which lasts until either side ends it."""

    method: Literal["subscriptions/listen"] = "subscriptions/listen"
    params: SubscriptionsListenRequestParams


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, since="2026-07-28"):
    """The notifications that the server will send: those requested, or fewer."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotification(TypedNotification, since="2026-07-28"):
    """The server has accepted the subscription."""

    method: Literal["notifications/subscriptions/acknowledged"] = "notifications/subscriptions/acknowledged"
    params: SubscriptionsAcknowledgedNotificationParams


class SubscriptionsListenResult(Result, since="2026-07-28"):
    """The server has ended the subscription; *meta* is a `SubscriptionsListenResultMetaObject` with its id."""

    meta: JSONObject


# Tasks (experimental in revision 2025-11-25). This library reads them and declares none.


TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class RelatedTaskMetadata(Model, since="2025-11-25"):
    """Ties a message to a task, in ``_meta`` under ``io.modelcontextprotocol/related-task``."""

    task_id: str


class Task(Model, since="2025-11-25"):
    """The state of a task. Times are ISO 8601; *ttl* (None: unlimited) and *poll_interval* are milliseconds."""

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | None = None


class CreateTaskResult(Result, since="2025-11-25"):
    """The request is executed as a task."""

    task: Task


class TaskIdParams(RequestParams, since="2025-11-25"):
    """The id of a task; in the schema these params have no name."""

    task_id: str


class GetTaskRequest(TypedRequest, since="2025-11-25"):
    """The request ``tasks/get``."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskIdParams


class GetTaskResult(Result, Task, since="2025-11-25"):
    """The state of the task."""


class GetTaskPayloadRequest(TypedRequest, since="2025-11-25"):
    """The request ``tasks/result``."""

    method: Literal["tasks/result"] = "tasks/result"
    params: TaskIdParams


class GetTaskPayloadResult(Result, since="2025-11-25"):
    """The result of the request that became the task; its fields are kept as they are."""


class CancelTaskRequest(TypedRequest, since="2025-11-25"):
    """The request ``tasks/cancel``."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskIdParams


class CancelTaskResult(Result, Task, since="2025-11-25"):
    """The state of the cancelled task."""


class ListTasksRequest(TypedRequest, since="2025-11-25"):
    """The request ``tasks/list``."""

    method: Literal["tasks/list"] = "tasks/list"
    params: PaginatedRequestParams | None = None


class ListTasksResult(PaginatedResult, since="2025-11-25"):
    """One page of tasks."""

    tasks: Array[Task]


class TaskStatusNotificationParams(NotificationParams, Task, since="2025-11-25"):
    """The new state of the task."""


class TaskStatusNotification(TypedNotification, since="2025-11-25"):
    """The state of a task has changed."""

    method: Literal["notifications/tasks/status"] = "notifications/tasks/status"
    params: TaskStatusNotificationParams


# Responses in their envelopes


class ResultResponse(Model):
    """The envelope of every typed response; subclasses add the result."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId


class DiscoverResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``server/discover``."""

    result: DiscoverResult


class ListToolsResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``tools/list``."""

    result: ListToolsResult


class CallToolResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``tools/call``."""

    result: Annotated[InputRequiredResult | CallToolResult, Field(union_mode="left_to_right")]


class ListPromptsResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``prompts/list``."""

    result: ListPromptsResult


class GetPromptResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``prompts/get``."""

    result: Annotated[InputRequiredResult | GetPromptResult, Field(union_mode="left_to_right")]


class ListResourcesResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``resources/list``."""

    result: ListResourcesResult


class ListResourceTemplatesResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``resources/templates/list``."""

    result: ListResourceTemplatesResult


class ReadResourceResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``resources/read``."""

    result: Annotated[InputRequiredResult | ReadResourceResult, Field(union_mode="left_to_right")]


class CompleteResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``completion/complete``."""

    result: CompleteResult


class SubscriptionsListenResultResponse(ResultResponse, since="2026-07-28"):
    """The response to ``subscriptions/listen``, sent when the subscription ends."""

    result: SubscriptionsListenResult


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


class RequiredElicitations(Model, since="2025-11-25"):
    """The URLs that the user has to visit first."""

    elicitations: Array[ElicitRequestURLParams]


class URLElicitationRequired(Error, since="2025-11-25"):
    """The error in a `URLElicitationRequiredError`."""

    code: Literal[-32042] = -32042
    data: RequiredElicitations


class URLElicitationRequiredError(JSONRPCErrorResponse, since="2025-11-25"):
    """The user has to visit URLs before the request can be processed."""

    error: URLElicitationRequired


# All messages


ClientRequest: TypeAlias = Annotated[
    InitializeRequest
    | PingRequest
    | DiscoverRequest
    | ListResourcesRequest
    | ListResourceTemplatesRequest
    | ReadResourceRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | SubscriptionsListenRequest
    | ListPromptsRequest
    | GetPromptRequest
    | ListToolsRequest
    | CallToolRequest
    | GetTaskRequest
    | GetTaskPayloadRequest
    | CancelTaskRequest
    | ListTasksRequest
    | SetLevelRequest
    | CompleteRequest,
    Field(discriminator="method"),
]
ServerRequest: TypeAlias = Annotated[
    PingRequest
    | GetTaskRequest
    | GetTaskPayloadRequest
    | CancelTaskRequest
    | ListTasksRequest
    | CreateMessageRequest
    | ListRootsRequest
    | ElicitRequest,
    Field(discriminator="method"),
]
ClientNotification: TypeAlias = Annotated[
    CancelledNotification
    | InitializedNotification
    | ProgressNotification
    | TaskStatusNotification
    | RootsListChangedNotification,
    Field(discriminator="method"),
]
ServerNotification: TypeAlias = Annotated[
    CancelledNotification
    | ProgressNotification
    | ResourceListChangedNotification
    | ResourceUpdatedNotification
    | PromptListChangedNotification
    | ToolListChangedNotification
    | SubscriptionsAcknowledgedNotification
    | TaskStatusNotification
    | LoggingMessageNotification
    | ElicitationCompleteNotification,
    Field(discriminator="method"),
]
# A result does not name its type: that depends on the request. These unions are for annotations.
ClientResult: TypeAlias = (
    CreateMessageResult
    | ListRootsResult
    | ElicitResult
    | GetTaskResult
    | GetTaskPayloadResult
    | CancelTaskResult
    | ListTasksResult
    | EmptyResult
)
ServerResult: TypeAlias = (
    InitializeResult
    | DiscoverResult
    | InputRequiredResult
    | ListResourcesResult
    | ListResourceTemplatesResult
    | ReadResourceResult
    | ListPromptsResult
    | GetPromptResult
    | ListToolsResult
    | CallToolResult
    | CreateTaskResult
    | GetTaskResult
    | GetTaskPayloadResult
    | CancelTaskResult
    | ListTasksResult
    | CompleteResult
    | SubscriptionsListenResult
    | EmptyResult
)
