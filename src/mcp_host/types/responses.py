"""Answers in their envelopes, and who may say what to whom."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from mcp_host.types.base import Model
from mcp_host.types.completion import CompleteRequest, CompleteResult
from mcp_host.types.elicitation import ElicitationCompleteNotification, ElicitRequest, ElicitResult
from mcp_host.types.envelopes import CancelledNotification, PingRequest, ProgressNotification
from mcp_host.types.inputs import InputRequiredResult
from mcp_host.types.lifecycle import (
    DiscoverRequest,
    DiscoverResult,
    InitializedNotification,
    InitializeRequest,
    InitializeResult,
)
from mcp_host.types.logging import LoggingMessageNotification, SetLevelRequest
from mcp_host.types.messages import EmptyResult, RequestId
from mcp_host.types.prompts import GetPromptResult, ListPromptsResult, PromptListChangedNotification
from mcp_host.types.requests import (
    CallToolRequest,
    GetPromptRequest,
    ListPromptsRequest,
    ListResourcesRequest,
    ListResourceTemplatesRequest,
    ListToolsRequest,
    ReadResourceRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from mcp_host.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
)
from mcp_host.types.roots import ListRootsRequest, ListRootsResult, RootsListChangedNotification
from mcp_host.types.sampling import CreateMessageRequest, CreateMessageResult
from mcp_host.types.subscriptions import (
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
)
from mcp_host.types.tasks import (
    CancelTaskRequest,
    CancelTaskResult,
    CreateTaskResult,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    ListTasksRequest,
    ListTasksResult,
    TaskStatusNotification,
)
from mcp_host.types.tools import CallToolResult, ListToolsResult, ToolListChangedNotification


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
