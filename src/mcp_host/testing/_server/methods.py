"""How a test server answers the requests for what it offers, in both eras."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from pydantic_core import to_json

from mcp_host.errors import CallerError, ProtocolError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Params
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.functions import BadArguments, Function
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.tools import text_result
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
    JSONObject,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptMessage,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    ResourceContents,
    TextContent,
    TextResourceContents,
)
from mcp_host.types.base import Model

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
