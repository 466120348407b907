"""The requests of a client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, TypeAlias, TypeVar, get_args

from anyio.lowlevel import checkpoint

from mcp_host import types
from mcp_host.client.tools import ToolCache
from mcp_host.errors import (
    HeaderMismatch,
    InvalidToolOutput,
    McpError,
    NotConnected,
    ProtocolError,
    ServerError,
    quoted,
)
from mcp_host.handlers import as_async
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Params
from mcp_host.session.call import Call, CallTimeouts, OnReport
from mcp_host.session.config import Session
from mcp_host.session.connection import Connection
from mcp_host.types.base import Model

OnProgress: TypeAlias = Callable[[types.ProgressNotificationParams], Awaitable[None] | None]
ModelT = TypeVar("ModelT", bound=Model)

ITEMS_PER_TICK = 256  # list items that are parsed before other tasks run


class Requests(ABC):
    """The requests of `Client`. Each may be made from any task, any number at a time.

    *timeout* bounds the call in seconds, progress or not. *idle_timeout* is how long the server
    may be silent: each progress report and each request of the server within the call restarts it.
    Both are paused while your handlers answer what the server asks within the call, for
    `Limits.input_timeout` in total. Both default to the client's `Limits`; `math.inf` means no bound.
    Anything else than a number of seconds, 0 or more, raises `TypeError` or `ValueError`.

    Besides the errors in its own docstring, every request may raise these.

    Raises:
        NotConnected, NotAdvertised: The call was not possible; nothing was sent.
        CallerError: The same: the client is connected in another event loop.
        ServerError: The server answered with an error (`HttpStatusError` by HTTP status).
        RequestTimeout: It took too long; the server was told that the call is cancelled.
        ConnectionClosed: The connection ended; *may_have_run* says what that means.
        ProtocolError: The answer was not what the protocol says.
    """

    _limits: Limits
    _connection: Connection | None = None  # of the class, for a client whose construction fails is finalized, too

    def __init__(self) -> None:
        self._tool_cache = ToolCache(self._warn)

    # Tools

    async def list_tools(self, *, timeout: float | None = None, idle_timeout: float | None = None) -> list[types.Tool]:
        """Every tool that the server offers, across all pages.

        Malformed tools are left out, with a line in `Client.warnings`; so is a second tool of the same
        name, and over HTTP from revision 2026-07-28 on a tool with invalid `x-mcp-header` annotations.
        Later calls are checked against the listing. Names, descriptions and annotations come from the
        server: do not trust them. They may change after you have approved them, which `Tool.fingerprint` shows.
        """
        return await self._list_tools(self._timeouts(timeout, idle_timeout))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        caller: object = None,
    ) -> types.CallToolResult:
        """Call a tool; your handlers answer what the server asks meanwhile.

        *on_progress* is awaited for each report, in order, before this returns.
        *caller* says who makes the call; your handlers find it in `OuterCall.caller`.
        It may be any object, and is never sent, logged or shown.
        If `list_tools` has seen the tool, the result is checked against its `outputSchema`.
        The client lists tools by itself only if the server rejects the call because headers
        are missing (`HeaderMismatch`), and then once.

        Raises:
            ServerError: The server rejected the call. A tool that ran and failed
                returns a result with *is_error* set instead.
            InputNotGiven: The server required input (2026-07-28), and your side refused or failed.
            RoundsExceeded: The server asked for more input than `Limits` allow.
            InvalidToolOutput: The result contradicts the listed schema; the error carries it.
            CallerError: The tool was listed as one that runs only as a task.
        """
        self._tool_cache.check_call(name)
        params: Params = {"name": _text(name, "name"), "arguments": _mapping(arguments, "arguments")}
        if meta is not None:
            params["_meta"] = dict(_mapping(meta, "meta"))
        call = self._call("tools/call", params, timeout, idle_timeout, on_progress, caller)
        result = types.CallToolResult.from_wire(await self._call_tool(call))
        if self._tool_cache.has_output_schema(name):
            with call.timeouts.scope() as scope:
                if problem := await self._tool_cache.check_result(name, result):
                    raise problem
            if scope.cancelled_caught:
                raise InvalidToolOutput(
                    f"the result of {name!r} could not be checked within the call's timeout", result
                )
        return result

    # Resources

    async def list_resources(
        self, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> list[types.Resource]:
        """Every resource that the server lists, across all pages."""
        return await self._list("resources/list", "resources", types.Resource, self._timeouts(timeout, idle_timeout))

    async def list_resource_templates(
        self, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> list[types.ResourceTemplate]:
        """Every resource template that the server lists, across all pages."""
        return await self._list(
            "resources/templates/list",
            "resourceTemplates",
            types.ResourceTemplate,
            self._timeouts(timeout, idle_timeout),
        )

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> types.ReadResourceResult:
        """Read the resource at *uri*. *caller* is as for `call_tool`.

        Raises:
            ResourceNotFound: The server has none there.
        """
        params: Params = {"uri": _text(uri, "uri")}
        wire = await self._request(self._call("resources/read", params, timeout, idle_timeout, on_progress, caller))
        return types.ReadResourceResult.from_wire(wire)

    async def subscribe_resource(
        self, uri: str, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> None:
        """Subscribe to changes of the resource at *uri*, which *on_change* receives.

        The subscription survives a lost session, a broken stream and a restarted server, but not `aclose`.
        """
        timeouts = self._timeouts(timeout, idle_timeout)
        connection = await self._live(timeouts)
        await connection.subscribe(_text(uri, "uri"), timeouts)

    async def unsubscribe_resource(
        self, uri: str, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> None:
        """End a subscription."""
        timeouts = self._timeouts(timeout, idle_timeout)
        connection = await self._live(timeouts)
        await connection.unsubscribe(_text(uri, "uri"), timeouts)

    # Prompts and completion

    async def list_prompts(
        self, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> list[types.Prompt]:
        """Every prompt that the server offers, across all pages."""
        return await self._list("prompts/list", "prompts", types.Prompt, self._timeouts(timeout, idle_timeout))

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> types.GetPromptResult:
        """Get a prompt's messages. Arguments are strings (the schema's `GetPromptRequestParams`).

        *caller* is as for `call_tool`.
        """
        params: Params = {"name": _text(name, "name")}
        if arguments is not None:
            params["arguments"] = _texts(arguments, "arguments")
        wire = await self._request(self._call("prompts/get", params, timeout, idle_timeout, on_progress, caller))
        return types.GetPromptResult.from_wire(wire)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
    ) -> types.CompleteResult:
        """Completions for *value* as the prompt's or template's *argument*.

        *context* holds the arguments already decided (revision 2025-06-18 and later).
        """
        if not isinstance(ref, types.PromptReference | types.ResourceTemplateReference):
            raise TypeError(f"ref must be a PromptReference or a ResourceTemplateReference, not {type(ref).__name__}")
        given = {"name": _text(argument, "argument"), "value": _text(value, "value")}
        params: Params = {"ref": ref.to_wire(), "argument": given}
        if context is not None:
            params["context"] = {"arguments": _texts(context, "context")}
        wire = await self._request(self._call("completion/complete", params, timeout, idle_timeout))
        return types.CompleteResult.from_wire(wire)

    # The rest

    async def ping(self, *, timeout: float | None = None, idle_timeout: float | None = None) -> None:
        """Check that the server is alive. A server that answers that it knows no ping is alive, too.

        Raises:
            CallerError: The revision has no ping (2026-07-28).
        """
        try:
            await self._request(self._call("ping", {}, timeout, idle_timeout))
        except ServerError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise

    async def set_log_level(
        self, level: types.LoggingLevel, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> None:
        """Have the server send log messages of this level and above to *on_log*.

        The level survives a lost session and a restarted server, but not `aclose`. From revision 2026-07-28
        on each request names the level, by default "info"; a request's *meta* may name another.
        """
        if level not in get_args(types.LoggingLevel):
            raise ValueError(f"level must be one of {', '.join(get_args(types.LoggingLevel))}, not {level!r}")
        timeouts = self._timeouts(timeout, idle_timeout)
        connection = await self._live(timeouts)
        await connection.set_log_level(level, timeouts)

    # How a request is made

    def _connected(self) -> Connection:
        if self._connection is None:
            raise NotConnected("the client is not connected: use `async with`, or call connect() first")
        return self._connection

    def _warn(self, text: str) -> None:
        if self._connection is not None:
            self._connection.warn(text)

    @property
    def _session(self) -> Session:
        """What connecting settled. It stays readable when the server has ended, until the next connection or `aclose`."""
        session = self._connected().dispatcher.session
        assert session is not None, "a client gets a connection once it has begun"
        return session

    @abstractmethod
    async def _live(self, timeouts: CallTimeouts) -> Connection:
        """The connection, which `Client` may have to restart first."""

    @abstractmethod
    def _timeouts(self, timeout: float | None, idle_timeout: float | None) -> CallTimeouts:
        """The timeouts of a call that begins now; None means those of the client's limits.

        Raises:
            TypeError, ValueError: One of them is not a number of seconds.
        """

    def _call(
        self,
        method: str,
        params: Params,
        timeout: float | None,
        idle_timeout: float | None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> Call:
        timeouts = self._timeouts(timeout, idle_timeout)
        on_report = None if on_progress is None else _report(on_progress)
        return Call(method=method, params=params, timeouts=timeouts, on_report=on_report, caller=caller)

    async def _request(self, call: Call) -> Params:
        connection = await self._live(call.timeouts)
        return await connection.request(call)

    async def _call_tool(self, call: Call) -> Params:
        """Call a tool; once more if the server requires headers that the client did not know of.

        "If the server rejects a request with a `HeaderMismatch` error [...] the client SHOULD
        call `tools/list`" (2026-07-28, basic/transports/streamable-http).
        """
        connection = await self._live(call.timeouts)
        mirror = connection.mirrors_parameters
        try:
            return await connection.request(self._tool_cache.annotated(call, mirror=mirror))
        except HeaderMismatch as exc:
            if not mirror or exc.may_have_run:
                raise
            mismatch = exc
        connection.forget("tools/list")
        try:
            await self._list_tools(call.timeouts)
        except McpError as exc:
            raise mismatch from exc
        return await connection.request(self._tool_cache.annotated(call, mirror=True))

    async def _list_tools(self, timeouts: CallTimeouts) -> list[types.Tool]:
        connection = await self._live(timeouts)
        tools = await self._list("tools/list", "tools", types.Tool, timeouts)
        return self._tool_cache.replace(tools, mirrored=connection.mirrors_parameters)

    async def _list(
        self, method: str, key: str, model: type[ModelT], timeouts: CallTimeouts, *, again: bool = True
    ) -> list[ModelT]:
        """All pages of a list. A warning says if items are malformed or the list does not end.

        "If a cursor becomes invalid [...] the client SHOULD discard all cached pages and re-fetch
        from the beginning" (2026-07-28, server/utilities/caching): with *again*, once.
        """
        items: list[ModelT] = []
        cursors: set[str] = set()
        params: Params = {}
        kept = False
        connection = await self._live(timeouts)
        for number in count(1):
            if number > self._limits.max_pages:
                self._warn(f"{method} ends early: more than {self._limits.max_pages} pages (Limits.max_pages)")
                break
            try:
                page = await self._request(Call(method=method, params=params, timeouts=timeouts))
            except ServerError as exc:
                if not (again and kept) or exc.code is None:  # an HTTP status alone is not about the cursor
                    raise
                connection.forget(method)
                return await self._list(method, key, model, timeouts, again=False)
            items += await _read_items(method, key, model, page, self._warn)
            kept = kept or bool(page.get("ttlMs"))  # this page may come from the cache
            cursor = page.get("nextCursor")
            if cursor is None:
                return items
            if not isinstance(cursor, str) or cursor in cursors:
                self._warn(f"{method} ends early: the cursor {quoted(cursor)} leads nowhere new")
                return items
            cursors.add(cursor)
            params = {"cursor": cursor}
        return items


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    return value


def _texts(value: object, name: str) -> dict[str, str]:
    return {key: _text(item, f"{name}[{key!r}]") for key, item in _mapping(value, name).items()}


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return value or {}


def _report(on_progress: OnProgress) -> OnReport:
    callback = as_async(on_progress, argument="on_progress", shape="(progress: ProgressNotificationParams) -> None")

    async def report(params: Params) -> None:
        try:
            progress = types.ProgressNotificationParams.from_wire(params)
        except ProtocolError:
            return  # "Receivers of invalid [notifications] SHOULD ignore them"
        await callback(progress)

    return report


async def _read_items(
    method: str, key: str, model: type[ModelT], page: Params, warn: Callable[[str], None]
) -> list[ModelT]:
    """The items of one page. Malformed ones are left out, with a warning.

    Raises:
        ProtocolError: The page has no list.
    """
    wire = page.get(key)
    if not isinstance(wire, list):
        raise ProtocolError(f"the result of {method} has no list {key!r}")
    items: list[ModelT] = []
    for start in range(0, len(wire), ITEMS_PER_TICK):
        if start:
            await checkpoint()  # a page may have a hundred thousand items
        some = wire[start : start + ITEMS_PER_TICK]
        try:
            items += model.list_from_wire(some)
        except ProtocolError:
            for position, item in enumerate(some, start):
                try:
                    items.append(model.from_wire(item))
                except ProtocolError as exc:
                    warn(f"left out of {method}, position {position}: {exc}")
    return items
