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
    """A folder or file that the host lets its servers use, as a ``file://`` URI."""

    uri: str
    name: str | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ListRootsRequest(InputCall):
    """The request ``roots/list``."""

    method: Literal["roots/list"] = "roots/list"
    params: RequestParams | None = None


class ListRootsResult(Model):
    """The roots of the client."""

    roots: Array[Root]
    meta: Meta = None


class RootsListChangedNotification(TypedNotification, until="2025-11-25"):
    """The client's list of roots has changed."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"
    params: NotificationParams | None = None


# Resources


class ResourceTemplate(BaseMetadata, Icons):
    """A URI template (RFC 6570) for resources."""

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
    """The contents of a resource; one URI may have several."""

    contents: Array[TextOrBlob]


class ResourceListChangedNotification(TypedNotification):
    """The server's list of resources has changed."""

    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"
    params: NotificationParams | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """The URI of the changed resource: the one subscribed to, or a part of it."""

    uri: str


class ResourceUpdatedNotification(TypedNotification):
    """A resource that the client subscribed to has changed."""

    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams


# Prompts


class PromptArgument(BaseMetadata):
    """An argument of a prompt."""

    description: str | None = None
    required: bool | None = None


class Prompt(BaseMetadata, Icons):
    """A prompt or prompt template of the server."""

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
    """The messages of a prompt, with its arguments filled in."""

    description: str | None = None
    messages: Array[PromptMessage]


class PromptListChangedNotification(TypedNotification):
    """The server's list of prompts has changed."""

    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"
    params: NotificationParams | None = None


# Completion (the schema's "Autocomplete")


class PromptReference(BaseMetadata):
    """A prompt, by name."""

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(Model):
    """A resource or a resource template, by URI."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


ResourceReference: TypeAlias = ResourceTemplateReference  # its name before revision 2025-06-18


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


class Completion(Model):
    """At most 100 suggestions; *total* includes those that were omitted."""

    values: Array[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The result of ``completion/complete``."""

    completion: Completion


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


class RelatedTaskMetadata(Model, since="2025-11-25", until="2025-11-25"):
    """Ties a message to a task, in ``_meta`` under ``io.modelcontextprotocol/related-task``."""

    task_id: str


class Task(Model, since="2025-11-25", until="2025-11-25"):
    """The state of a task. Times are ISO 8601; *ttl* (None: unlimited) and *poll_interval* are milliseconds."""

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | None = None


class CreateTaskResult(Result, since="2025-11-25", until="2025-11-25"):
    """The request is executed as a task."""

    task: Task


class TaskIdParams(RequestParams, since="2025-11-25", until="2025-11-25"):
    """The id of a task; in the schema these params have no name."""

    task_id: str


class GetTaskRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """The request ``tasks/get``."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskIdParams


class GetTaskResult(Result, Task, since="2025-11-25", until="2025-11-25"):
    """The state of the task."""


class GetTaskPayloadRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """The request ``tasks/result``."""

    method: Literal["tasks/result"] = "tasks/result"
    params: TaskIdParams


class GetTaskPayloadResult(Result, since="2025-11-25", until="2025-11-25"):
    """The result of the request that became the task; its fields are kept as they are."""


class CancelTaskRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """The request ``tasks/cancel``."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskIdParams


class CancelTaskResult(Result, Task, since="2025-11-25", until="2025-11-25"):
    """The state of the cancelled task."""


class ListTasksRequest(TypedRequest, since="2025-11-25", until="2025-11-25"):
    """The request ``tasks/list``."""

    method: Literal["tasks/list"] = "tasks/list"
    params: PaginatedRequestParams | None = None


class ListTasksResult(PaginatedResult, since="2025-11-25", until="2025-11-25"):
    """One page of tasks."""

    tasks: Array[Task]


class TaskStatusNotificationParams(NotificationParams, Task, since="2025-11-25", until="2025-11-25"):
    """The new state of the task."""


class TaskStatusNotification(TypedNotification, since="2025-11-25", until="2025-11-25"):
    """The state of a task has changed."""

    method: Literal["notifications/tasks/status"] = "notifications/tasks/status"
    params: TaskStatusNotificationParams
