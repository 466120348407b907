"""What a test server offers, and how it answers requests for it: tools, resources, prompts and completions."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from pydantic_core import to_json

from mcp_host import types
from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import NotDeclared
from mcp_host.functions import BadArguments, Function, FunctionTool, error_result
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, Params
from mcp_host.serving.errors import RequestError, read
from mcp_host.serving.remote_client import RemoteClient
from mcp_host.serving.service import Handler, Service
from mcp_host.testing.context import Context
from mcp_host.types.base import Model, given

MAX_SUGGESTIONS = 100  # "An array of completion values. Must not exceed 100 items."

DefinitionT = TypeVar("DefinitionT")
ModelT = TypeVar("ModelT", bound=Model)

CompletionFunction: TypeAlias = Callable[[str, Mapping[str, str]], Sequence[str] | Awaitable[Sequence[str]]]
"""Takes the text typed so far and the arguments that are filled in; returns suggestions, best first."""
RequestHandler: TypeAlias = Callable[[Params, Context], Awaitable[Params]]
"""Takes the params of a request, and returns its result as JSON."""

LISTS: Mapping[str, tuple[type[Model], str]] = {
    "tools/list": (types.ListToolsResult, "tools"),
    "resources/list": (types.ListResourcesResult, "resources"),
    "resources/templates/list": (types.ListResourceTemplatesResult, "resource_templates"),
    "prompts/list": (types.ListPromptsResult, "prompts"),
}
"""The result of each list, and the name of its field, which is also the catalog's."""


@dataclass(frozen=True, slots=True)
class Offer(Generic[DefinitionT]):
    """A resource, a template or a prompt: its definition and its function."""

    definition: DefinitionT
    function: Function


@dataclass(slots=True, kw_only=True)
class Catalog(Service):
    """The settings and the offers of one server. All its connections share it."""

    page_size: int | None
    tools: dict[str, FunctionTool] = field(default_factory=dict)
    resources: dict[str, Offer[types.Resource]] = field(default_factory=dict)
    resource_templates: dict[str, Offer[types.ResourceTemplate]] = field(default_factory=dict)
    prompts: dict[str, Offer[types.Prompt]] = field(default_factory=dict)
    completions: dict[tuple[str, str], CompletionFunction] = field(default_factory=dict)
    """By the prompt's name or the template's URI, and the argument."""
    handlers: dict[str, RequestHandler] = field(default_factory=dict)
    """By method: requests that the protocol does not have."""

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

    # Requests

    def find(self, method: str, params: Params, client: RemoteClient) -> Params | Handler:
        self.check(method)
        if method in LISTS:
            return client.write(self._page(method, read(types.PaginatedRequestParams, params).cursor))
        if method in METHODS:
            handler: RequestHandler = partial(self._answer, method, client)
        elif method in self.handlers:
            handler = self.handlers[method]
        else:
            raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")
        return lambda call, ask: awaited(handler(params, Context(call, ask)), "a function of the server")

    def input_schema(self, tool: str) -> types.JSONObject | None:
        return self.tools[tool].definition.input_schema if tool in self.tools else None

    def _page(self, method: str, cursor: str | None) -> Model:
        result, name = LISTS[method]
        items = [offer.definition for offer in getattr(self, name).values()]
        start = 0
        if cursor is not None:
            if not (self.page_size and cursor.isdecimal() and 0 < int(cursor) < len(items)):
                raise RequestError(INVALID_PARAMS, f"Invalid cursor: {cursor}")
            start = int(cursor)
        end = start + (self.page_size or len(items))
        page: dict[str, Any] = {name: items[start:end], **given(next_cursor=str(end) if end < len(items) else None)}
        return result(**page)

    async def _answer(self, method: str, client: RemoteClient, params: Params, context: Context) -> Params:
        try:
            return await METHODS[method](self, params, client, context)
        except BadArguments as exc:
            raise RequestError(INVALID_PARAMS, str(exc)) from None

    async def _call_tool(self, params: Params, client: RemoteClient, context: Context) -> Params:
        call = read(types.CallToolRequestParams, params)
        if call.name not in self.tools:  # "Protocol Errors: [...] for issues like unknown tools" (server/tools)
            raise RequestError(INVALID_PARAMS, f"Unknown tool: {call.name}")
        try:
            return client.write(await self.tools[call.name].call(call.arguments or {}, context))
        except Exception as exc:  # of the tool, or about a result that this revision does not have
            if isinstance(exc, BadArguments) and not client.bad_arguments_are_results:
                raise
            if isinstance(exc, NotDeclared) and client.stateless:
                raise
            return client.write(error_result(call.name, exc))

    async def _read_resource(self, params: Params, client: RemoteClient, context: Context) -> Params:
        uri = read(types.ReadResourceRequestParams, params).uri
        if (found := self._find_resource(uri)) is None:
            # "-32002 — resource not found (2025-11-25 and earlier; replaced by -32602)" (2026-07-28, basic).
            code = INVALID_PARAMS if client.stateless else RESOURCE_NOT_FOUND
            raise RequestError(code, "Resource not found", {"uri": uri})
        offer, arguments = found
        return client.write(_contents(uri, await offer.function.call(arguments, context), offer.definition.mime_type))

    def _find_resource(
        self, uri: str
    ) -> tuple[Offer[types.Resource] | Offer[types.ResourceTemplate], types.JSONObject] | None:
        """The resource or the template that *uri* belongs to, and the arguments for its function."""
        if resource := self.resources.get(uri):
            return resource, {}
        for uri_template, template in self.resource_templates.items():
            if match := template_pattern(uri_template).fullmatch(uri):
                return template, {name: unquote(text) for name, text in match.groupdict().items()}
        return None

    async def _get_prompt(self, params: Params, client: RemoteClient, context: Context) -> Params:
        request = read(types.GetPromptRequestParams, params)
        if (prompt := self.prompts.get(request.name)) is None:
            raise RequestError(INVALID_PARAMS, f"Unknown prompt: {request.name}")
        value = await prompt.function.call(dict(request.arguments or {}), context)
        return client.write(_messages(value, prompt.definition.description))

    async def _complete(self, params: Params, client: RemoteClient, context: Context) -> Params:
        request = read(types.CompleteRequestParams, params)
        name = request.ref.name if isinstance(request.ref, types.PromptReference) else request.ref.uri
        filled_in = (request.context.arguments if request.context else None) or {}
        values: list[str] = []
        if complete := self.completions.get((name, request.argument.name)):
            found = complete(request.argument.value, filled_in)
            values = list(await found if isawaitable(found) else found)
        more = len(values) > MAX_SUGGESTIONS
        completion = types.Completion(values=values[:MAX_SUGGESTIONS], total=len(values), has_more=more)
        return client.write(types.CompleteResult(completion=completion))


METHODS = {
    "tools/call": Catalog._call_tool,
    "resources/read": Catalog._read_resource,
    "prompts/get": Catalog._get_prompt,
    "completion/complete": Catalog._complete,
}


def _contents(uri: str, value: object, mime_type: str | None) -> types.ReadResourceResult:
    """Contents as they are, text, bytes, or anything else as JSON."""
    match value:
        case types.ReadResourceResult():
            return value
        case types.TextResourceContents() | types.BlobResourceContents():
            return types.ReadResourceResult(contents=[value])
        case list() if value and all(isinstance(item, types.ResourceContents) for item in value):
            return types.ReadResourceResult(contents=list(value))
        case bytes():
            blob = b64encode(value).decode()
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=uri, blob=blob, **given(mime_type=mime_type))]
            )
        case str():
            text = value
        case _:
            text, mime_type = to_json(value).decode(), mime_type or "application/json"
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, text=text, **given(mime_type=mime_type))]
    )


def _messages(value: object, description: str | None) -> types.GetPromptResult:
    """Messages as they are, or a text as the user's message."""
    match value:
        case types.GetPromptResult():
            return value
        case str():
            messages = [types.PromptMessage(role="user", content=types.TextContent(text=value))]
        case types.PromptMessage():
            messages = [value]
        case list() if value and all(isinstance(item, types.PromptMessage) for item in value):
            messages = list(value)
        case _:
            raise TypeError(f"a prompt returns text or messages, not {type(value).__name__}")
    return types.GetPromptResult(messages=messages, **given(description=description))


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
