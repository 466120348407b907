"""Where the schema of a revision defines each of our classes: under its name, an older name, or inline."""

from __future__ import annotations

from typing import Any

from mcp_host.types import InputCall, NotificationParams, RequestParams, TypedNotification, TypedRequest
from mcp_host.types.base import Model
from tests import spec

# Before 2025-11-25 the params had no names, and some things were renamed.
# Objects that have no name in any schema have one here, for people to write.
OTHER_PLACES = {
    "Annotations": ["Annotated.annotations"],
    "AssistantMessage": ["SamplingMessage"],
    "Completion": ["CompleteResult.completion"],
    "CompletionArgument": ["CompleteRequestParams.argument", "CompleteRequest.params.argument"],
    "CompletionContext": ["CompleteRequestParams.context", "CompleteRequest.params.context"],
    "ElicitRequestFormParams": ["ElicitRequest.params"],
    "ElicitationCapability": ["ClientCapabilities.elicitation"],
    "ElicitationCompleteParams": ["ElicitationCompleteNotification.params"],
    "ElicitationForm": ["ElicitRequestFormParams.requestedSchema", "ElicitRequest.params.requestedSchema"],
    "EnumOption": ["TitledSingleSelectEnumSchema.oneOf"],
    "Error": ["JSONRPCError.error"],
    "HeaderMismatch": ["HeaderMismatchError.error"],
    "JSONRPCErrorResponse": ["JSONRPCError"],
    "JSONRPCResultResponse": ["JSONRPCResponse"],
    "LegacyTitledEnumSchema": ["EnumSchema"],
    "ListedCapability": ["ServerCapabilities.tools", "ServerCapabilities.prompts"],
    "MissingCapabilities": ["MissingRequiredClientCapabilityError.error.data"],
    "MissingRequiredClientCapability": ["MissingRequiredClientCapabilityError.error"],
    "RequiredElicitations": ["URLElicitationRequiredError.error.data"],
    "ResourceRequestParams": ["ReadResourceRequest.params"],
    "ResourceTemplateReference": ["ResourceReference"],
    "ResourcesCapability": ["ServerCapabilities.resources"],
    "RootsCapability": ["ClientCapabilities.roots"],
    "SamplingCapability": ["ClientCapabilities.sampling"],
    "TaskIdParams": ["GetTaskRequest.params", "CancelTaskRequest.params", "GetTaskPayloadRequest.params"],
    "TasksCapability": ["ClientCapabilities.tasks", "ServerCapabilities.tasks"],
    "TitledItems": ["TitledMultiSelectEnumSchema.items"],
    "URLElicitationRequired": ["URLElicitationRequiredError.error"],
    "UnsupportedProtocolVersion": ["UnsupportedProtocolVersionError.error"],
    "UntitledItems": ["UntitledMultiSelectEnumSchema.items"],
    "UserMessage": ["SamplingMessage"],
    "VersionsOffered": ["UnsupportedProtocolVersionError.error.data"],
}

# What a typed message shares with any message, where its own definition leaves it out.
SHARED = [
    ((TypedRequest, InputCall), "JSONRPCRequest"),
    ((TypedNotification,), "JSONRPCNotification"),
    ((RequestParams,), "Request.params"),
    ((RequestParams,), "RequestParams"),
    ((NotificationParams,), "Notification.params"),
    ((NotificationParams,), "NotificationParams"),
]


def place_of(cls: type[Model], revision: str) -> dict[str, Any] | None:
    """The subschema that describes *cls* in *revision*, or None where there is none."""
    name = cls.__name__
    params = [f"{name.removesuffix('Params')}.params"] if name.endswith("Params") else []
    found = (_follow(place, revision) for place in [name, *OTHER_PLACES.get(name, params)])
    return next((place for place in found if place is not None and "anyOf" not in place), None)


def properties_of(cls: type[Model], revision: str) -> set[str] | None:
    """The wire names of the fields that *revision* gives *cls*."""
    place = place_of(cls, revision)
    if place is None:
        return None
    shared = [_follow(path, revision) for bases, path in SHARED if issubclass(cls, bases)]
    return set().union(*(_properties(part, revision) for part in [place, *filter(None, shared)]))


def _follow(path: str, revision: str) -> dict[str, Any] | None:
    name, *steps = path.split(".")
    here: dict[str, Any] | None = spec.definitions(revision).get(name)
    for step in steps:
        here = _properties(_resolve(here, revision), revision).get(step) if here else None
    return _resolve(here, revision) if here else None


def _resolve(place: dict[str, Any], revision: str) -> dict[str, Any]:
    if "$ref" in place:
        target: dict[str, Any] = spec.definitions(revision)[place["$ref"].split("/")[-1]]
        return _resolve(target, revision)
    return _resolve(place["items"], revision) if place.get("type") == "array" else place


def _properties(place: dict[str, Any], revision: str) -> dict[str, Any]:
    """An object's properties, its own and those of the parts that it is put together from."""
    parts = [_resolve(part, revision) for part in place.get("allOf", [])]
    merged = {name: value for part in parts for name, value in _properties(part, revision).items()}
    for name, value in place.get("properties", {}).items():
        merged[name] = {"allOf": [merged[name], value]} if name in merged and "$ref" not in value else value
    return merged
