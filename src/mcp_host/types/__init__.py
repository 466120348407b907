"""Everything that a client and a server say to each other, under the names of the official schema."""

from importlib import import_module
from typing import TYPE_CHECKING

from mcp_host.types.base import REVISIONS, JSONArray, JSONObject, JSONValue, Model
from mcp_host.types.content import (
    Annotations,
    AudioContent,
    BaseMetadata,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    Icon,
    Icons,
    ImageContent,
    ReceivedContent,
    Resource,
    ResourceContents,
    ResourceLink,
    Role,
    TextContent,
    TextResourceContents,
    UnknownContent,
)
from mcp_host.types.conversation import (
    AssistantMessage,
    SamplingMessage,
    SamplingMessageContentBlock,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.lifecycle import (
    ClientCapabilities,
    DiscoverRequest,
    DiscoverResult,
    ElicitationCapability,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
    ListedCapability,
    MetaObject,
    NotificationMetaObject,
    RequestMetaObject,
    ResourcesCapability,
    ResultMetaObject,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    SubscriptionsListenResultMetaObject,
    TasksCapability,
)
from mcp_host.types.logging import (
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SetLevelRequest,
    SetLevelRequestParams,
)
from mcp_host.types.messages import (
    CacheableResult,
    Cursor,
    EmptyResult,
    InputCall,
    NotificationParams,
    PaginatedResult,
    ProgressNotificationParams,
    ProgressToken,
    RequestId,
    RequestParams,
    Result,
    ResultType,
    TaskAugmentedRequestParams,
    TaskMetadata,
    TypedNotification,
    TypedRequest,
)
from mcp_host.types.sampling import (
    END_TURN,
    MAX_TOKENS,
    STOP_SEQUENCE,
    TOOL_USE,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    ToolChoice,
)
from mcp_host.types.tools import (
    CallToolResult,
    ListToolsResult,
    Tool,
    ToolAnnotations,
    ToolExecution,
    ToolListChangedNotification,
)

if TYPE_CHECKING:
    from mcp_host.types.completion import (
        CompleteRequest,
        CompleteRequestParams,
        CompleteResult,
        Completion,
        CompletionArgument,
        CompletionContext,
        PromptReference,
        ResourceReference,
        ResourceTemplateReference,
    )
    from mcp_host.types.elicitation import (
        BooleanSchema,
        ElicitationCompleteNotification,
        ElicitationCompleteParams,
        ElicitationForm,
        ElicitRequest,
        ElicitRequestFormParams,
        ElicitRequestParams,
        ElicitRequestURLParams,
        ElicitResult,
        EnumOption,
        EnumSchema,
        LegacyTitledEnumSchema,
        MultiSelectEnumSchema,
        NumberSchema,
        PrimitiveSchemaDefinition,
        SingleSelectEnumSchema,
        StringSchema,
        TitledItems,
        TitledMultiSelectEnumSchema,
        TitledSingleSelectEnumSchema,
        UntitledItems,
        UntitledMultiSelectEnumSchema,
        UntitledSingleSelectEnumSchema,
    )
    from mcp_host.types.envelopes import (
        CancelledNotification,
        CancelledNotificationParams,
        Error,
        JSONRPCBatchRequest,
        JSONRPCBatchResponse,
        JSONRPCError,
        JSONRPCErrorResponse,
        JSONRPCMessage,
        JSONRPCNotification,
        JSONRPCRequest,
        JSONRPCResponse,
        JSONRPCResultResponse,
        Notification,
        PaginatedRequest,
        PaginatedRequestParams,
        PingRequest,
        ProgressNotification,
        Request,
    )
    from mcp_host.types.error_types import (
        HeaderMismatch,
        HeaderMismatchError,
        InternalError,
        InvalidParamsError,
        InvalidRequestError,
        MethodNotFoundError,
        MissingCapabilities,
        MissingRequiredClientCapability,
        MissingRequiredClientCapabilityError,
        ParseError,
        RequiredElicitations,
        UnsupportedProtocolVersion,
        UnsupportedProtocolVersionError,
        URLElicitationRequired,
        URLElicitationRequiredError,
        VersionsOffered,
    )
    from mcp_host.types.inputs import (
        InputRequest,
        InputRequests,
        InputRequiredResult,
        InputResponse,
        InputResponseRequestParams,
        InputResponses,
    )
    from mcp_host.types.prompts import (
        GetPromptResult,
        ListPromptsResult,
        Prompt,
        PromptArgument,
        PromptListChangedNotification,
        PromptMessage,
    )
    from mcp_host.types.requests import (
        CallToolRequest,
        CallToolRequestParams,
        GetPromptRequest,
        GetPromptRequestParams,
        ListPromptsRequest,
        ListResourcesRequest,
        ListResourceTemplatesRequest,
        ListToolsRequest,
        ReadResourceRequest,
        ReadResourceRequestParams,
        ResourceRequestParams,
        SubscribeRequest,
        SubscribeRequestParams,
        UnsubscribeRequest,
        UnsubscribeRequestParams,
    )
    from mcp_host.types.resources import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
        ResourceListChangedNotification,
        ResourceTemplate,
        ResourceUpdatedNotification,
        ResourceUpdatedNotificationParams,
    )
    from mcp_host.types.responses import (
        CallToolResultResponse,
        ClientNotification,
        ClientRequest,
        ClientResult,
        CompleteResultResponse,
        DiscoverResultResponse,
        GetPromptResultResponse,
        ListPromptsResultResponse,
        ListResourcesResultResponse,
        ListResourceTemplatesResultResponse,
        ListToolsResultResponse,
        ReadResourceResultResponse,
        ResultResponse,
        ServerNotification,
        ServerRequest,
        ServerResult,
        SubscriptionsListenResultResponse,
    )
    from mcp_host.types.roots import ListRootsRequest, ListRootsResult, Root, RootsListChangedNotification
    from mcp_host.types.subscriptions import (
        SubscriptionFilter,
        SubscriptionsAcknowledgedNotification,
        SubscriptionsAcknowledgedNotificationParams,
        SubscriptionsListenRequest,
        SubscriptionsListenRequestParams,
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
        RelatedTaskMetadata,
        Task,
        TaskIdParams,
        TaskStatus,
        TaskStatusNotification,
        TaskStatusNotificationParams,
    )
else:  # hidden, for a type checker would take any misspelt name for an object
    # Half of the classes, which few hosts touch: not worth their start. What is wanted most is looked for first.
    _ON_DEMAND = (
        *("resources", "prompts", "roots", "completion", "elicitation", "inputs", "envelopes", "error_types"),
        *("requests", "subscriptions", "tasks", "responses"),
    )

    def __getattr__(name: str) -> object:
        if name in __all__:
            modules = (import_module(f"{__name__}.{stem}") for stem in _ON_DEMAND)
            found = next(vars(module)[name] for module in modules if name in vars(module))
            globals()[name] = found  # so that this is not asked again
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# One name to a line would take two hundred lines.
# fmt: off
__all__ = [
    "END_TURN", "MAX_TOKENS", "REVISIONS", "STOP_SEQUENCE", "TOOL_USE", "Annotations", "AssistantMessage", "AudioContent",
    "BaseMetadata", "BlobResourceContents", "BooleanSchema", "CacheableResult", "CallToolRequest",
    "CallToolRequestParams", "CallToolResult", "CallToolResultResponse", "CancelTaskRequest", "CancelTaskResult",
    "CancelledNotification", "CancelledNotificationParams", "ClientCapabilities", "ClientNotification",
    "ClientRequest", "ClientResult", "CompleteRequest", "CompleteRequestParams", "CompleteResult",
    "CompleteResultResponse", "Completion", "CompletionArgument", "CompletionContext", "ContentBlock",
    "CreateMessageRequest", "CreateMessageRequestParams", "CreateMessageResult", "CreateTaskResult", "Cursor",
    "DiscoverRequest", "DiscoverResult", "DiscoverResultResponse", "ElicitRequest", "ElicitRequestFormParams",
    "ElicitRequestParams", "ElicitRequestURLParams", "ElicitResult", "ElicitationCapability",
    "ElicitationCompleteNotification", "ElicitationCompleteParams", "ElicitationForm", "EmbeddedResource",
    "EmptyResult", "EnumOption", "EnumSchema", "Error", "GetPromptRequest", "GetPromptRequestParams",
    "GetPromptResult", "GetPromptResultResponse", "GetTaskPayloadRequest", "GetTaskPayloadResult", "GetTaskRequest",
    "GetTaskResult", "HeaderMismatch", "HeaderMismatchError", "Icon", "Icons", "ImageContent", "Implementation",
    "InitializeRequest", "InitializeRequestParams", "InitializeResult", "InitializedNotification", "InputCall",
    "InputRequest", "InputRequests", "InputRequiredResult", "InputResponse", "InputResponseRequestParams",
    "InputResponses", "InternalError", "InvalidParamsError", "InvalidRequestError", "JSONArray", "JSONObject",
    "JSONRPCBatchRequest", "JSONRPCBatchResponse", "JSONRPCError", "JSONRPCErrorResponse", "JSONRPCMessage",
    "JSONRPCNotification", "JSONRPCRequest", "JSONRPCResponse", "JSONRPCResultResponse", "JSONValue",
    "LegacyTitledEnumSchema", "ListPromptsRequest", "ListPromptsResult", "ListPromptsResultResponse",
    "ListResourceTemplatesRequest", "ListResourceTemplatesResult", "ListResourceTemplatesResultResponse",
    "ListResourcesRequest", "ListResourcesResult", "ListResourcesResultResponse", "ListRootsRequest",
    "ListRootsResult", "ListTasksRequest", "ListTasksResult", "ListToolsRequest", "ListToolsResult",
    "ListToolsResultResponse", "ListedCapability", "LoggingLevel", "LoggingMessageNotification",
    "LoggingMessageNotificationParams", "MetaObject", "MethodNotFoundError", "MissingCapabilities",
    "MissingRequiredClientCapability", "MissingRequiredClientCapabilityError", "Model", "ModelHint",
    "ModelPreferences", "MultiSelectEnumSchema", "Notification", "NotificationMetaObject", "NotificationParams",
    "NumberSchema", "PaginatedRequest", "PaginatedRequestParams", "PaginatedResult", "ParseError", "PingRequest",
    "PrimitiveSchemaDefinition", "ProgressNotification", "ProgressNotificationParams", "ProgressToken", "Prompt",
    "PromptArgument", "PromptListChangedNotification", "PromptMessage", "PromptReference", "ReadResourceRequest",
    "ReadResourceRequestParams", "ReadResourceResult", "ReadResourceResultResponse", "ReceivedContent",
    "RelatedTaskMetadata", "Request", "RequestId", "RequestMetaObject", "RequestParams", "RequiredElicitations",
    "Resource", "ResourceContents", "ResourceLink", "ResourceListChangedNotification", "ResourceReference",
    "ResourceRequestParams", "ResourceTemplate", "ResourceTemplateReference", "ResourceUpdatedNotification",
    "ResourceUpdatedNotificationParams", "ResourcesCapability", "Result", "ResultMetaObject", "ResultResponse",
    "ResultType", "Role", "Root", "RootsCapability", "RootsListChangedNotification", "SamplingCapability",
    "SamplingMessage", "SamplingMessageContentBlock", "ServerCapabilities", "ServerNotification", "ServerRequest",
    "ServerResult", "SetLevelRequest", "SetLevelRequestParams", "SingleSelectEnumSchema", "StringSchema",
    "SubscribeRequest", "SubscribeRequestParams", "SubscriptionFilter", "SubscriptionsAcknowledgedNotification",
    "SubscriptionsAcknowledgedNotificationParams", "SubscriptionsListenRequest", "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult", "SubscriptionsListenResultMetaObject", "SubscriptionsListenResultResponse", "Task",
    "TaskAugmentedRequestParams", "TaskIdParams", "TaskMetadata", "TaskStatus", "TaskStatusNotification",
    "TaskStatusNotificationParams", "TasksCapability", "TextContent", "TextResourceContents", "TitledItems",
    "TitledMultiSelectEnumSchema", "TitledSingleSelectEnumSchema", "Tool", "ToolAnnotations", "ToolChoice",
    "ToolExecution", "ToolListChangedNotification", "ToolResultContent", "ToolUseContent", "TypedNotification",
    "TypedRequest", "URLElicitationRequired", "URLElicitationRequiredError", "UnknownContent", "UnsubscribeRequest",
    "UnsubscribeRequestParams", "UnsupportedProtocolVersion", "UnsupportedProtocolVersionError", "UntitledItems",
    "UntitledMultiSelectEnumSchema", "UntitledSingleSelectEnumSchema", "UserMessage", "VersionsOffered",
]
# fmt: on


def __dir__() -> list[str]:
    return __all__
