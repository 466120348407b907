"""Prompts: the messages that a server keeps ready for its users."""

from typing import Annotated, Literal

from mcp_host.types.base import SINCE_2025_06_18, Array, Meta, Model
from mcp_host.types.content import BaseMetadata, Icons, ReceivedContent, Role
from mcp_host.types.messages import CacheableResult, NotificationParams, PaginatedResult, Result, TypedNotification


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
