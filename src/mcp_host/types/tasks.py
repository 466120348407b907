"""Tasks of revision 2025-11-25: requests that are answered later. This library reads them and declares none."""

from typing import Literal, TypeAlias

from mcp_host.types.base import Array, Model
from mcp_host.types.envelopes import PaginatedRequestParams
from mcp_host.types.messages import (
    NotificationParams,
    PaginatedResult,
    RequestParams,
    Result,
    TypedNotification,
    TypedRequest,
)

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
