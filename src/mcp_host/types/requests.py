"""Requests, their responses in envelopes, and the unions of all messages by direction."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from mcp_host.types.base import JSONObject, Model
from mcp_host.types.elicitation import ElicitationCompleteNotification, ElicitRequest, ElicitResult
from mcp_host.types.features import (
    CancelTaskRequest,
    CancelTaskResult,
    CompleteRequest,
    CompleteResult,
    CreateTaskResult,
    GetPromptResult,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsRequest,
    ListRootsResult,
    ListTasksRequest,
    ListTasksResult,
    PromptListChangedNotification,
    ReadResourceResult,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    RootsListChangedNotification,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
    TaskStatusNotification,
)
from mcp_host.types.jsonrpc import CancelledNotification, PingRequest, ProgressNotification
from mcp_host.types.lifecycle import (
    DiscoverRequest,
    DiscoverResult,
    InitializedNotification,
    InitializeRequest,
    InitializeResult,
)
from mcp_host.types.messages import (
    EmptyResult,
    LoggingMessageNotification,
    PaginatedRequest,
    RequestId,
    RequestParams,
    Result,
    SetLevelRequest,
    TaskAugmentedRequestParams,
    TypedRequest,
)
from mcp_host.types.revisions import SINCE_2026_07_28
from mcp_host.types.sampling import CreateMessageRequest, CreateMessageResult
from mcp_host.types.tools import CallToolResult, ListToolsResult, ToolListChangedNotification

# fmt: off
__all__ = [
    "CallToolRequest", "CallToolRequestParams", "CallToolResultResponse", "ClientNotification", "ClientRequest",
    "ClientResult", "CompleteResultResponse", "DiscoverResultResponse", "GetPromptRequest", "GetPromptRequestParams",
    "GetPromptResultResponse", "InputRequest", "InputRequests", "InputRequiredResult", "InputResponse",
    "InputResponseRequestParams", "InputResponses", "ListPromptsRequest", "ListPromptsResultResponse",
    "ListResourceTemplatesRequest", "ListResourceTemplatesResultResponse", "ListResourcesRequest",
    "ListResourcesResultResponse", "ListToolsRequest", "ListToolsResultResponse", "ReadResourceRequest",
    "ReadResourceRequestParams", "ReadResourceResultResponse", "ResourceRequestParams", "ResultResponse",
    "ServerNotification", "ServerRequest", "ServerResult", "SubscribeRequest", "SubscribeRequestParams",
    "SubscriptionsListenResultResponse", "UnsubscribeRequest", "UnsubscribeRequestParams",
]
# fmt: on


# Multi round-trip requests


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
    input_requests: InputRequests | None = None
    request_state: str | None = None


class InputResponseRequestParams(RequestParams, since="2026-07-28"):
    """Params of a request that may be a retry: the answers, and the server's state."""

    input_responses: Annotated[InputResponses | None, SINCE_2026_07_28] = None
    request_state: Annotated[str | None, SINCE_2026_07_28] = None


# Requests of clients


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


class SubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The resource to subscribe to."""


class SubscribeRequest(TypedRequest, until="2025-11-25"):
    """The request ``resources/subscribe``."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The resource to unsubscribe from."""


class UnsubscribeRequest(TypedRequest, until="2025-11-25"):
    """The request ``resources/unsubscribe``."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams


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
