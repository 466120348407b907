"""Features beside tools and sampling: roots, resources, prompts, completion, subscriptions and tasks."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from mcp_host.types.base import Array, JSONObject, Meta, Model
from mcp_host.types.content import Annotations, BaseMetadata, Icons, ReceivedContent, Resource, Role, TextOrBlob
from mcp_host.types.messages import (
    CacheableResult,
    InputCall,
    NotificationParams,
    PaginatedRequestParams,
    PaginatedResult,
    RequestParams,
    Result,
    TypedNotification,
    TypedRequest,
)
from mcp_host.types.revisions import SINCE_2025_06_18

# fmt: off
__all__ = [
    "CancelTaskRequest", "CancelTaskResult", "CompleteRequest", "CompleteRequestParams", "CompleteResult",
    "Completion", "CompletionArgument", "CompletionContext", "CreateTaskResult", "GetPromptResult",
    "GetTaskPayloadRequest", "GetTaskPayloadResult", "GetTaskRequest", "GetTaskResult", "ListPromptsResult",
    "ListResourceTemplatesResult", "ListResourcesResult", "ListRootsRequest", "ListRootsResult", "ListTasksRequest",
    "ListTasksResult", "Prompt", "PromptArgument", "PromptListChangedNotification", "PromptMessage",
    "PromptReference", "ReadResourceResult", "RelatedTaskMetadata", "ResourceListChangedNotification",
    "ResourceReference", "ResourceTemplate", "ResourceTemplateReference", "ResourceUpdatedNotification",
    "ResourceUpdatedNotificationParams", "Root", "RootsListChangedNotification", "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotification", "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequest", "SubscriptionsListenRequestParams", "SubscriptionsListenResult", "Task",
    "TaskIdParams", "TaskStatus", "TaskStatusNotification", "TaskStatusNotificationParams",
]
# fmt: on


# Roots. Deprecated by the specification from revision 2026-07-28.


class Root(Model):
    """A folder or file, as a ``file://`` URI."""

    uri: str
    name: str | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ListRootsRequest(InputCall):
    """The request ``roots/list``."""

    method: Literal["roots/list"] = "roots/list"
    params: RequestParams | None = None


class ListRootsResult(Model):
    """The roots."""

    roots: Array[Root]
    meta: Meta = None


class RootsListChangedNotification(TypedNotification, until="2025-11-25"):
    """The host has other roots now."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"
    params: NotificationParams | None = None


# Resources


class ResourceTemplate(BaseMetadata, Icons):
    """Many resources under one URI template (RFC 6570)."""

    uri_template: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ListResourcesResult(PaginatedResult, CacheableResult):
    """One page of resources."""

    resources: Array[Resource]


class ListResourceTemplatesResult(PaginatedResult, CacheableResult):
    """One page of resource templates."""

    resource_templates: Array[ResourceTemplate]


class ReadResourceResult(CacheableResult):
    """What was read; one URI may yield several contents."""

    contents: Array[TextOrBlob]


class ResourceListChangedNotification(TypedNotification):
    """The server lists other resources now."""

    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"
    params: NotificationParams | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """Which resource has changed: the one subscribed to, or a part of it."""

    uri: str


class ResourceUpdatedNotification(TypedNotification):
    """A resource that the client subscribed to has changed."""

    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams


# Prompts


class PromptArgument(BaseMetadata):
    """A blank to fill in."""

    description: str | None = None
    required: bool | None = None


class Prompt(BaseMetadata, Icons):
    """A prompt that can be asked for by name."""

    description: str | None = None
    arguments: Array[PromptArgument] | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class PromptMessage(Model):
    """One message of a prompt."""

    role: Role
    content: ReceivedContent


class ListPromptsResult(PaginatedResult, CacheableResult):
    """One page of prompts."""

    prompts: Array[Prompt]


class GetPromptResult(Result):
    """A prompt with its blanks filled in."""

    description: str | None = None
    messages: Array[PromptMessage]


class PromptListChangedNotification(TypedNotification):
    """The server offers other prompts now."""

    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"
    params: NotificationParams | None = None


# Completion (the schema's "Autocomplete")


class PromptReference(BaseMetadata):
    """The prompt whose argument is being typed."""

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(Model):
    """The resource template, or the resource, whose URI is being typed."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


ResourceReference: TypeAlias = ResourceTemplateReference  # its name before revision 2025-06-18


class CompletionArgument(Model):
    """The argument's name, and what has been typed so far."""

    name: str
    value: str


class CompletionContext(Model, since="2025-06-18"):
    """The arguments that are already settled."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """What to complete."""

    ref: Annotated[PromptReference | ResourceTemplateReference, Field(discriminator="type")]
    argument: CompletionArgument
    context: Annotated[CompletionContext | None, SINCE_2025_06_18] = None


class CompleteRequest(TypedRequest):
    """How might this argument go on?"""

    method: Literal["completion/complete"] = "completion/complete"
    params: CompleteRequestParams


class Completion(Model):
    """At most 100 suggestions; *total* counts those that were left out too."""

    values: Array[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The suggestions."""

    completion: Completion


# Subscriptions


class SubscriptionFilter(Model, since="2026-07-28"):
    """What to hear of: three kinds of list, and single resources by URI."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: Array[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, since="2026-07-28"):
    """What the client would like to hear of."""

    notifications: SubscriptionFilter


class SubscriptionsListenRequest(TypedRequest, since="2026-07-28"):
    """Tell me of changes, until one of us ends the stream."""

    method: Literal["subscriptions/listen"] = "subscriptions/listen"
    params: SubscriptionsListenRequestParams


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, since="2026-07-28"):
    """What the server will tell of: no more than was asked for."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotification(TypedNotification, since="2026-07-28"):
    """The subscription stands."""

    method: Literal["notifications/subscriptions/acknowledged"] = "notifications/subscriptions/acknowledged"
    params: SubscriptionsAcknowledgedNotificationParams


class SubscriptionsListenResult(Result, since="2026-07-28"):
    """The server has ended the subscription; *meta* is a `SubscriptionsListenResultMetaObject` that says which."""

    meta: JSONObject


# Tasks (experimental in revision 2025-11-25). This library reads them and declares none.


TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class RelatedTaskMetadata(Model, since="2025-11-25", until="2025-11-25"):
    """Ties a message to a task, in ``_meta`` under ``io.modelcontextprotocol/related-task``."""

    task_id: str


class Task(Model, since="2025-11-25", until="2025-11-25"):
    """Where a task stands; times are ISO 8601, *ttl* (None: for ever) and *poll_interval* milliseconds."""

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | None = None


class CreateTaskResult(Result, since="2025-11-25", until="2025-11-25"):
    """The request has become a task."""

    task: Task


class TaskIdParams(RequestParams, since="2025-11-25", until="2025-11-25"):
    """Names a task; the schema spells these params out in each request."""

    task_id: str


class GetTaskRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """Where does the task stand?"""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskIdParams


class GetTaskResult(Result, Task, since="2025-11-25", until="2025-11-25"):
    """Where the task stands."""


class GetTaskPayloadRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """What came out of the task?"""

    method: Literal["tasks/result"] = "tasks/result"
    params: TaskIdParams


class GetTaskPayloadResult(Result, since="2025-11-25", until="2025-11-25"):
    """The result of the request that became the task; its fields are unknown here and kept."""


class CancelTaskRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """Give the task up."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskIdParams


class CancelTaskResult(Result, Task, since="2025-11-25", until="2025-11-25"):
    """The task, cancelled."""


class ListTasksRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """Which tasks are there?"""

    method: Literal["tasks/list"] = "tasks/list"
    params: PaginatedRequestParams | None = None


class ListTasksResult(PaginatedResult, since="2025-11-25", until="2025-11-25"):
    """One page of tasks."""

    tasks: Array[Task]


class TaskStatusNotificationParams(NotificationParams, Task, since="2025-11-25", until="2025-11-25"):
    """Where the task stands now."""


class TaskStatusNotification(TypedNotification, since="2025-11-25", until="2025-11-25"):
    """A task has moved."""

    method: Literal["notifications/tasks/status"] = "notifications/tasks/status"
    params: TaskStatusNotificationParams
