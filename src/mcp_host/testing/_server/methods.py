"""What a test server answers to each request for what it offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TypeAlias, TypeVar

from mcp_host.errors import CallerError, ProtocolError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, Params
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.contents import as_contents, as_prompt
from mcp_host.testing._server.functions import BadArguments, Function
from mcp_host.testing._server.revision import RevisionWriter
from mcp_host.testing._server.tools import text_result, unknown_tool
from mcp_host.testing.context import Context
from mcp_host.testing.errors import NotDeclared, RequestError
from mcp_host.types import (
    CallToolRequestParams,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
)
from mcp_host.types.base import Model

MAX_SUGGESTIONS = 100  # "An array of completion values. Must not exceed 100 items."

ModelT = TypeVar("ModelT", bound=Model)

Page: TypeAlias = Callable[[Catalog, Params], Model]
Work: TypeAlias = Callable[[Catalog, Params, Context, RevisionWriter], Awaitable[Params]]


def read(model: type[ModelT], params: Params) -> ModelT:
    """The client's params, or the error that says what is wrong with them."""
    try:
        return model.from_wire(params)
    except ProtocolError as exc:
        raise RequestError(INVALID_PARAMS, str(exc)) from None


def _list_tools(catalog: Catalog, params: Params) -> ListToolsResult:
    tools, more = catalog.page([tool.definition for tool in catalog.tools.values()], _cursor(params))
    return ListToolsResult(tools=tools, **more)


def _list_resources(catalog: Catalog, params: Params) -> ListResourcesResult:
    found, more = catalog.page([resource.definition for resource in catalog.resources.values()], _cursor(params))
    return ListResourcesResult(resources=found, **more)


def _list_templates(catalog: Catalog, params: Params) -> ListResourceTemplatesResult:
    found, more = catalog.page([template.definition for template in catalog.templates.values()], _cursor(params))
    return ListResourceTemplatesResult(resource_templates=found, **more)


def _list_prompts(catalog: Catalog, params: Params) -> ListPromptsResult:
    found, more = catalog.page([prompt.definition for prompt in catalog.prompts.values()], _cursor(params))
    return ListPromptsResult(prompts=found, **more)


async def _call_tool(catalog: Catalog, params: Params, context: Context, dialect: RevisionWriter) -> Params:
    call = read(CallToolRequestParams, params)
    tool = catalog.tools.get(call.name)
    if tool is None:
        raise unknown_tool(call.name)
    try:
        result = await tool.run(call.arguments or {}, context)
    except BadArguments as exc:
        if not dialect.bad_arguments_are_results:
            raise _invalid(exc) from None
        result = text_result(f"Invalid arguments: {exc}", is_error=True)
    except NotDeclared as exc:
        if dialect.asks_in_results:
            raise
        result = text_result(str(exc), is_error=True)
    try:
        return dialect.write(result)
    except CallerError as exc:  # an older client could not read it
        return dialect.write(text_result(str(exc), is_error=True))


async def _read_resource(catalog: Catalog, params: Params, context: Context, dialect: RevisionWriter) -> Params:
    uri = read(ReadResourceRequestParams, params).uri
    found = catalog.find(uri)
    if found is None:
        raise RequestError(dialect.resource_not_found, "Resource not found", {"uri": uri})
    function, values, mime_type = found
    return dialect.write(as_contents(uri, await _call(function, values, context), mime_type))


async def _get_prompt(catalog: Catalog, params: Params, context: Context, dialect: RevisionWriter) -> Params:
    wanted = read(GetPromptRequestParams, params)
    prompt = catalog.prompts.get(wanted.name)
    if prompt is None:
        raise RequestError(INVALID_PARAMS, f"Unknown prompt: {wanted.name}")
    arguments: dict[str, object] = dict(wanted.arguments or {})
    value = await _call(prompt.function, arguments, context)
    return dialect.write(as_prompt(value, prompt.definition.description))


async def _complete(catalog: Catalog, params: Params, context: Context, dialect: RevisionWriter) -> Params:
    wanted = read(CompleteRequestParams, params)
    ref = wanted.ref.name if isinstance(wanted.ref, PromptReference) else wanted.ref.uri
    settled = wanted.context.arguments if wanted.context else None
    complete = catalog.completions.get((ref, wanted.argument.name), _nothing)
    found = complete(wanted.argument.value, settled or {})
    values = list(await found if isawaitable(found) else found)
    completion = Completion(values=values[:MAX_SUGGESTIONS], total=len(values), has_more=len(values) > MAX_SUGGESTIONS)
    return dialect.write(CompleteResult(completion=completion))


def _nothing(value: str, settled: Mapping[str, str]) -> list[str]:
    return []


async def _call(function: Function, arguments: dict[str, object], context: Context) -> object:
    try:
        values = function.read(arguments)
    except BadArguments as exc:
        raise _invalid(exc) from None
    return await function.call(values, context)


def _cursor(params: Params) -> str | None:
    return read(PaginatedRequestParams, params).cursor


def _invalid(exc: BadArguments) -> RequestError:
    return RequestError(INVALID_PARAMS, f"Invalid arguments: {exc}")


PAGES: Mapping[str, Page] = {
    "tools/list": _list_tools,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "prompts/list": _list_prompts,
}
"""Answered at once, from what is registered."""

WORK: Mapping[str, Work] = {
    "tools/call": _call_tool,
    "resources/read": _read_resource,
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}
"""Answered by somebody's function, in a task."""
