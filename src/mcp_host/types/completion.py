"""Completion: what a server suggests while an argument is being typed."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from mcp_host.types.base import SINCE_2025_06_18, Array, Model
from mcp_host.types.content import BaseMetadata
from mcp_host.types.messages import RequestParams, Result, TypedRequest


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
