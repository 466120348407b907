"""What a test server offers: tools, resources, prompts and completions, by name."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from pydantic_core import to_json

from mcp_host.errors import CallerError, ProtocolError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Params
from mcp_host.protocol.negotiation import LEGACY_VERSIONS, MODERN_VERSIONS
from mcp_host.testing._server.functions import BadArguments, Function, FunctionTool, text_result
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.subscriptions import Broadcaster
from mcp_host.testing.context import Context
from mcp_host.testing.errors import NotDeclared, RequestError
from mcp_host.types import (
    BlobResourceContents,
    CallToolRequestParams,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    JSONObject,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)
from mcp_host.types.base import Model

D = TypeVar("D")

CompletionFunction: TypeAlias = Callable[[str, Mapping[str, str]], Sequence[str] | Awaitable[Sequence[str]]]
"""Takes the text typed so far and the arguments that are filled in; returns suggestions, best first."""


@dataclass(frozen=True, slots=True)
class Offer(Generic[D]):
    """A resource, a template or a prompt: its definition and its function."""

    definition: D
    function: Function


@dataclass(slots=True)
class Catalog:
    """The settings and the offers of one server. All its connections share it."""

    info: Implementation
    instructions: str | None
    versions: tuple[str, ...]
    page_size: int | None
    ttl: float
    resume_timeout: float
    max_suspended: int
    tools: dict[str, FunctionTool] = field(default_factory=dict)
    resources: dict[str, Offer[Resource]] = field(default_factory=dict)
    resource_templates: dict[str, Offer[ResourceTemplate]] = field(default_factory=dict)
    prompts: dict[str, Offer[Prompt]] = field(default_factory=dict)
    completions: dict[tuple[str, str], CompletionFunction] = field(default_factory=dict)
    """By the prompt's name or the template's URI, and the argument."""
    broadcaster: Broadcaster = field(default_factory=Broadcaster)

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The revisions that begin with a handshake, the preferred one first."""
        return tuple(version for version in self.versions if version in LEGACY_VERSIONS)

    @property
    def modern_versions(self) -> tuple[str, ...]:
        """The stateless revisions."""
        return tuple(version for version in self.versions if version in MODERN_VERSIONS)

    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare: logging, and each kind of which there is at least one."""
        capabilities: dict[str, Any] = {"logging": {}}
        if self.tools:
            capabilities["tools"] = {"listChanged": True}
        if self.resources or self.resource_templates:
            capabilities["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if self.completions:
            capabilities["completions"] = {}
        return capabilities

    def find(self, uri: str) -> tuple[Offer[Resource] | Offer[ResourceTemplate], JSONObject] | None:
        """The resource or the template that *uri* belongs to, and the arguments for its function."""
        if resource := self.resources.get(uri):
            return resource, {}
        for uri_template, template in self.resource_templates.items():
            if match := template_pattern(uri_template).fullmatch(uri):
                return template, {name: unquote(text) for name, text in match.groupdict().items()}
        return None


def template_pattern(template: str) -> re.Pattern[str]:
    """The URIs of *template*. ``{name}`` matches one segment, ``{+name}`` any number (RFC 6570).

    Raises:
        ValueError: It has another kind of expression, or the same name twice.
    """

    def pattern(part: str) -> str:
        if not part.startswith("{"):
            return re.escape(part)
        if not (found := re.fullmatch(r"\{(\+?)([A-Za-z_]\w*)\}", part)):
            raise ValueError(f"{part}: only {{name}} and {{+name}} are supported")
        return f"(?P<{found[2]}>{'.+' if found[1] else '[^/]+'})"

    try:
        return re.compile("".join(map(pattern, re.split(r"(\{[^}]*\})", template))))
    except re.error as exc:
        raise ValueError(f"{template}: {exc}") from exc


MAX_SUGGESTIONS = 100  # "An array of completion values. Must not exceed 100 items."

ModelT = TypeVar("ModelT", bound=Model)

Method: TypeAlias = Callable[[Catalog, Params, Context, RevisionWriter], Awaitable[Params]]
"""Answers one method by calling a function of the server's author."""

LISTS: Mapping[str, tuple[type[Model], str]] = {
    "tools/list": (ListToolsResult, "tools"),
    "resources/list": (ListResourcesResult, "resources"),
    "resources/templates/list": (ListResourceTemplatesResult, "resource_templates"),
    "prompts/list": (ListPromptsResult, "prompts"),
}
"""The result of each list, and the name of its field, which is also the catalog's."""


def read(model: type[ModelT], params: Params) -> ModelT:
    """Parse the client's params.

    Raises:
        RequestError: They are malformed.
    """
    try:
        return model.from_wire(params)
    except ProtocolError as exc:
        raise RequestError(INVALID_PARAMS, str(exc)) from None


def find(catalog: Catalog, method: str, params: Params, writer: RevisionWriter) -> Params | Method:
    """The page of a list, or the `Method` that answers.

    Raises:
        RequestError: There is no such method, or no such page.
    """
    if method in LISTS:
        return writer.write(_list(catalog, method, params))
    if method in METHODS:
        return METHODS[method]
    raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")


def _list(catalog: Catalog, method: str, params: Params) -> Model:
    result, field = LISTS[method]
    items = [offer.definition for offer in getattr(catalog, field).values()]
    cursor, size, start = read(PaginatedRequestParams, params).cursor, catalog.page_size, 0
    if cursor is not None:
        if size is None or not cursor.isdecimal() or not 0 < int(cursor) < len(items):
            raise RequestError(INVALID_PARAMS, f"Invalid cursor: {cursor}")
        start = int(cursor)
    end = len(items) if size is None else start + size
    page: dict[str, Any] = {field: items[start:end], **given(next_cursor=str(end) if end < len(items) else None)}
    return result(**page)


async def _call_tool(catalog: Catalog, params: Params, context: Context, writer: RevisionWriter) -> Params:
    call = read(CallToolRequestParams, params)
    if call.name not in catalog.tools:  # "Protocol Errors: [...] for issues like unknown tools" (server/tools)
        raise RequestError(INVALID_PARAMS, f"Unknown tool: {call.name}")
    try:
        result = await catalog.tools[call.name].run(call.arguments or {}, context)
    except BadArguments as exc:
        if not writer.bad_arguments_are_results:
            raise RequestError(INVALID_PARAMS, str(exc)) from None
        result = text_result(str(exc), is_error=True)
    except NotDeclared as exc:
        if writer.asks_in_results:
            raise
        result = text_result(str(exc), is_error=True)
    try:
        return writer.write(result)
    except CallerError as exc:  # the result holds something that this revision does not have
        return writer.write(text_result(str(exc), is_error=True))


async def _read_resource(catalog: Catalog, params: Params, context: Context, writer: RevisionWriter) -> Params:
    uri = read(ReadResourceRequestParams, params).uri
    found = catalog.find(uri)
    if found is None:
        raise RequestError(writer.resource_not_found, "Resource not found", {"uri": uri})
    offer, arguments = found
    return writer.write(_contents(uri, await _call(offer.function, arguments, context), offer.definition.mime_type))


def _contents(uri: str, value: object, mime_type: str | None) -> ReadResourceResult:
    """Contents as they are, text, bytes, or anything else as JSON."""
    match value:
        case ReadResourceResult():
            return value
        case TextResourceContents() | BlobResourceContents():
            return ReadResourceResult(contents=[value])
        case list() if value and all(isinstance(item, ResourceContents) for item in value):
            return ReadResourceResult(contents=list(value))
        case bytes():
            blob = b64encode(value).decode()
            return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob=blob, **given(mime_type=mime_type))])
        case str():
            text = value
        case _:
            text, mime_type = to_json(value).decode(), mime_type or "application/json"
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=text, **given(mime_type=mime_type))])


async def _get_prompt(catalog: Catalog, params: Params, context: Context, writer: RevisionWriter) -> Params:
    request = read(GetPromptRequestParams, params)
    prompt = catalog.prompts.get(request.name)
    if prompt is None:
        raise RequestError(INVALID_PARAMS, f"Unknown prompt: {request.name}")
    value = await _call(prompt.function, dict(request.arguments or {}), context)
    return writer.write(_messages(value, prompt.definition.description))


def _messages(value: object, description: str | None) -> GetPromptResult:
    """Messages as they are, or a text as the user's message."""
    match value:
        case GetPromptResult():
            return value
        case str():
            messages = [PromptMessage(role="user", content=TextContent(text=value))]
        case PromptMessage():
            messages = [value]
        case list() if value and all(isinstance(item, PromptMessage) for item in value):
            messages = list(value)
        case _:
            raise TypeError(f"a prompt returns text or messages, not {type(value).__name__}")
    return GetPromptResult(messages=messages, **given(description=description))


async def _complete(catalog: Catalog, params: Params, context: Context, writer: RevisionWriter) -> Params:
    request = read(CompleteRequestParams, params)
    name = request.ref.name if isinstance(request.ref, PromptReference) else request.ref.uri
    filled_in = (request.context.arguments if request.context else None) or {}
    values: list[str] = []
    if complete := catalog.completions.get((name, request.argument.name)):
        found = complete(request.argument.value, filled_in)
        values = list(await found if isawaitable(found) else found)
    completion = Completion(values=values[:MAX_SUGGESTIONS], total=len(values), has_more=len(values) > MAX_SUGGESTIONS)
    return writer.write(CompleteResult(completion=completion))


async def _call(function: Function, arguments: JSONObject, context: Context) -> object:
    try:
        return await function.call(arguments, context)
    except BadArguments as exc:
        raise RequestError(INVALID_PARAMS, str(exc)) from None


METHODS: Mapping[str, Method] = {
    "tools/call": _call_tool,
    "resources/read": _read_resource,
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}
