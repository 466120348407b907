"""Lists, resources, prompts, completion and logging of servers, with their notifications; roots of clients."""

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator

from mcp_host.types.base import DECIDES, Array, Meta, Model
from mcp_host.types.content import (
    Annotations,
    BaseMetadata,
    Icons,
    ReceivedContent,
    Resource,
    Role,
    TextOrBlob,
    all_malformed,
    mended_block,
)
from mcp_host.types.messages import Cursor, NotificationParams, Result
from mcp_host.types.revisions import SINCE_2025_06_18, SINCE_2026_07_28
from mcp_host.types.tools import Tool

# fmt: off
__all__ = [
    "CacheableResult", "CompleteResult", "Completion", "ElicitationCompleteNotification", "ElicitationCompleteParams",
    "GetPromptResult", "ListPromptsResult", "ListResourceTemplatesResult", "ListResourcesResult", "ListRootsResult",
    "ListToolsResult", "LoggingLevel", "LoggingMessageNotification", "LoggingMessageNotificationParams",
    "PaginatedResult", "Prompt", "PromptArgument", "PromptListChangedNotification", "PromptMessage", "PromptReference",
    "ReadResourceResult", "ResourceListChangedNotification", "ResourceReference", "ResourceTemplate",
    "ResourceTemplateReference", "ResourceUpdatedNotification", "ResourceUpdatedNotificationParams", "Root",
    "ToolListChangedNotification", "TypedNotification",
]
# fmt: on


class TypedNotification(Model, tolerant=True):
    """The envelope of every notification; subclasses narrow the method and the params."""

    _is_frequent: ClassVar[bool] = True
    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: NotificationParams | None = None


class PaginatedResult(Result):
    """One page of a list; there are more if it has a *next_cursor*."""

    next_cursor: Annotated[Cursor | None, DECIDES] = None


class CacheableResult(Result, since="2026-07-28"):
    """A result that is fresh for *ttl_ms* milliseconds, for this user or for all."""

    ttl_ms: Annotated[int | None, SINCE_2026_07_28] = None
    cache_scope: Annotated[Literal["public", "private"] | None, SINCE_2026_07_28] = None


class ListToolsResult(PaginatedResult, CacheableResult):
    """One page of tools."""

    tools: Array[Tool]


class ToolListChangedNotification(TypedNotification):
    """The server's list of tools has changed."""

    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"


class ElicitationCompleteParams(NotificationParams, since="2025-11-25"):
    """The id of an elicitation; in the schema these params have no name."""

    elicitation_id: str


class ElicitationCompleteNotification(TypedNotification, since="2025-11-25"):
    """The user has finished at the URL."""

    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitationCompleteParams


# Roots. Deprecated by the specification from revision 2026-07-28.


class Root(Model):
    """A folder or file that the host lets its servers use, as a ``file://`` URI."""

    uri: str
    name: str | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ListRootsResult(Model):
    """The roots of the client."""

    roots: Array[Root]
    meta: Meta = None


# Resources


class ResourceTemplate(BaseMetadata, Icons, tolerant=True):
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


class Prompt(BaseMetadata, Icons, tolerant=True):
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

    @classmethod
    def _mended(cls, value: object) -> object:
        """Some servers write messages as models' APIs take them: with a text, or a list of blocks."""
        match value:
            case {"messages": list(messages), **fields}:
                return {**fields, "messages": [part for message in messages for part in _of_one_block(message)]}
        return super()._mended(value)

    def _is_unread(self) -> bool:
        return all_malformed([message.content for message in self.messages])


def _of_one_block(message: object) -> list[object]:
    """Only the first of several has the other members: a copy of them for each block would be a million of a thousand."""
    match message:
        case {"content": [block, *more], **fields}:
            role = {name: fields[name] for name in fields if name == "role"}
            return [
                {**fields, "content": mended_block(block)},
                *[{**role, "content": mended_block(each)} for each in more],
            ]
        case {"content": content, **fields}:
            return [{**fields, "content": mended_block(content)}]
    return [message]


class PromptReference(BaseMetadata):
    """A prompt, by name."""

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(Model):
    """A resource or a resource template, by URI."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


ResourceReference: TypeAlias = ResourceTemplateReference  # its name before revision 2025-06-18


class PromptListChangedNotification(TypedNotification):
    """The server's list of prompts has changed."""

    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"


# Completion (the schema's "Autocomplete")


class Completion(Model):
    """At most 100 suggestions; *total* includes those that were omitted."""

    values: Array[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The result of ``completion/complete``."""

    completion: Completion


# Logging. Deprecated by the specification from revision 2026-07-28.


LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


OTHER_LEVELS = {"trace": "debug", "information": "info", "warn": "warning", "err": "error", "fatal": "critical"}
"""As logging libraries write them, and so some servers."""


def _level(level: object) -> object:
    return OTHER_LEVELS.get(level.lower(), level.lower()) if isinstance(level, str) else level


class LoggingMessageNotificationParams(NotificationParams):
    """One log message; *data* is any JSON value, often a string."""

    level: Annotated[LoggingLevel, BeforeValidator(_level)]
    logger: str | None = None
    data: object


class LoggingMessageNotification(TypedNotification):
    """A log message of the server."""

    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams
