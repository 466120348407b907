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
    """The server wants these answered, each under its name, before it will finish the request.

    *request_state* is opaque, and goes back unchanged with the answers.
    """

    result_type: Annotated[Literal["input_required"], SINCE_2026_07_28] = "input_required"
    input_requests: InputRequests | None = None
    request_state: str | None = None


class InputResponseRequestParams(RequestParams, since="2026-07-28"):
    """Params of a request that may be a retry: the answers, and the server's own state."""

    input_responses: Annotated[InputResponses | None, SINCE_2026_07_28] = None
    request_state: Annotated[str | None, SINCE_2026_07_28] = None


# Requests of clients


class ListToolsRequest(PaginatedRequest):
    """Which tools are there?"""

    method: Literal["tools/list"] = "tools/list"


class ListPromptsRequest(PaginatedRequest):
    """Which prompts are there?"""

    method: Literal["prompts/list"] = "prompts/list"


class ListResourcesRequest(PaginatedRequest):
    """Which resources are there?"""

    method: Literal["resources/list"] = "resources/list"


class ListResourceTemplatesRequest(PaginatedRequest):
    """Which resource templates are there?"""

    method: Literal["resources/templates/list"] = "resources/templates/list"


class CallToolRequestParams(TaskAugmentedRequestParams, InputResponseRequestParams):
    """A tool's name and its arguments."""

    name: str
    arguments: JSONObject | None = None


class CallToolRequest(TypedRequest):
    """Run a tool."""

    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class GetPromptRequestParams(InputResponseRequestParams):
    """A prompt's name, and what to put into its blanks."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptRequest(TypedRequest):
    """Fill in a prompt."""

    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class ResourceRequestParams(RequestParams):
    """Names a resource."""

    uri: str


class ReadResourceRequestParams(ResourceRequestParams, InputResponseRequestParams):
    """The resource to read."""


class ReadResourceRequest(TypedRequest):
    """Read a resource."""

    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class SubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The resource to hear of."""


class SubscribeRequest(TypedRequest, until="2025-11-25"):
    """Tell me when this resource changes."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The resource to hear no more of."""


class UnsubscribeRequest(TypedRequest, until="2025-11-25"):
    """Tell me no more of this resource."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams


# Responses in their envelopes


class ResultResponse(Model):
    """The envelope that every typed response shares; its class adds the result."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId


class DiscoverResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``server/discover``."""

    result: DiscoverResult


class ListToolsResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``tools/list``."""

    result: ListToolsResult


class CallToolResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``tools/call``."""

    result: Annotated[InputRequiredResult | CallToolResult, Field(union_mode="left_to_right")]


class ListPromptsResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``prompts/list``."""

    result: ListPromptsResult


class GetPromptResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``prompts/get``."""

    result: Annotated[InputRequiredResult | GetPromptResult, Field(union_mode="left_to_right")]


class ListResourcesResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``resources/list``."""

    result: ListResourcesResult


class ListResourceTemplatesResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``resources/templates/list``."""

    result: ListResourceTemplatesResult


class ReadResourceResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``resources/read``."""

    result: Annotated[InputRequiredResult | ReadResourceResult, Field(union_mode="left_to_right")]


class CompleteResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``completion/complete``."""

    result: CompleteResult


class SubscriptionsListenResultResponse(ResultResponse, since="2026-07-28"):
    """The answer to ``subscriptions/listen``, which comes when the subscription ends."""

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
# Results carry no name of their own: which one it is, the request says. These unions are for annotations.
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
