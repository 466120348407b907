"""Everything that a connected client can ask of its server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from mcp_host.client.connection import Connection
from mcp_host.client.exchange import OnReport, Patience
from mcp_host.client.session import Session
from mcp_host.client.toolbox import Toolbox
from mcp_host.errors import NotConnected, ProtocolError, ServerError, quoted
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Params
from mcp_host.types import (
    CallToolResult,
    CompleteResult,
    GetPromptResult,
    LoggingLevel,
    ProgressNotificationParams,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)
from mcp_host.types.base import Model

OnProgress: TypeAlias = Callable[[ProgressNotificationParams], Awaitable[None]]
ModelT = TypeVar("ModelT", bound=Model)


class Requests:
    """The requests of `Client`. Each may be made from any task, any number at a time.

    *timeout* is how long, in seconds, the server may be silent about the call:
    progress starts it anew, and it stands still while our side answers something
    that the server asked. *total_timeout*, where there is one, bounds the call as a whole. Both
    default to the client's `Limits`; `math.inf` means for ever.

    Every request may raise what follows, besides what its own docstring names.

    Raises:
        NotConnected, NotAdvertised: The call was not possible; nothing was sent.
        ServerError: The server answered with an error (`HttpStatusError` by HTTP status).
        RequestTimeout: It took too long; the server was told that the call is cancelled.
        ConnectionClosed: The connection ended; *may_have_run* says what that means.
        ProtocolError: The answer was not what the protocol says.
    """

    _connection: Connection | None = None  # of the class, for a client whose construction fails is finalized, too

    def __init__(self) -> None:
        self._toolbox = Toolbox(self._warn)

    # Tools

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Every tool that the server offers, across all pages.

        A malformed tool is left out, with a line in `Client.warnings`. What is
        listed is remembered: later calls are checked against it. Names,
        descriptions and annotations are a stranger's: untrusted.
        """
        tools = await self._list("tools/list", "tools", Tool, timeout)
        self._toolbox.replace(tools)
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool, answering anything the server asks along the way.

        *on_progress* is awaited for each report, in order, before this returns.
        The result is checked against the tool's `outputSchema` when `list_tools`
        has seen it; nothing is ever listed behind your back.

        Raises:
            ServerError: The server rejected the call. A tool that ran and failed
                returns a result with *is_error* set instead.
            InvalidToolOutput: The result contradicts the listed schema; the error carries it.
            CallerError: The tool was listed as one that runs only as a task.
        """
        self._toolbox.check_call(name)
        params: Params = {"name": _text(name, "a tool's name"), "arguments": _mapping(arguments, "a tool's arguments")}
        if meta is not None:
            params["_meta"] = dict(meta)
        wire = await self._request("tools/call", params, timeout, total_timeout, on_progress)
        result = CallToolResult.from_wire(wire)
        if problem := self._toolbox.check_result(name, result):
            raise problem
        return result

    # Resources

    async def list_resources(self, *, timeout: float | None = None) -> list[Resource]:
        """Every resource that the server lists, across all pages."""
        return await self._list("resources/list", "resources", Resource, timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Every resource template that the server lists, across all pages."""
        return await self._list("resources/templates/list", "resourceTemplates", ResourceTemplate, timeout)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ReadResourceResult:
        """Read the resource at *uri*.

        Raises:
            ResourceNotFound: The server has none there.
        """
        wire = await self._request("resources/read", {"uri": _text(uri, "a URI")}, timeout, total_timeout, on_progress)
        return ReadResourceResult.from_wire(wire)

    async def subscribe_resource(self, uri: str, *, timeout: float | None = None) -> None:
        """Ask to be told, through *on_change*, when the resource at *uri* changes. Survives a lost session."""
        connection = self._connected()
        await self._request("resources/subscribe", {"uri": _text(uri, "a URI")}, timeout)
        connection.subscriptions[uri] = None

    async def unsubscribe_resource(self, uri: str, *, timeout: float | None = None) -> None:
        """End a subscription."""
        self._connected().subscriptions.pop(uri, None)
        await self._request("resources/unsubscribe", {"uri": uri}, timeout)

    # Prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[Prompt]:
        """Every prompt that the server offers, across all pages."""
        return await self._list("prompts/list", "prompts", Prompt, timeout)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> GetPromptResult:
        """Get a prompt's messages. Arguments are strings (the schema's `GetPromptRequestParams`)."""
        params: Params = {"name": _text(name, "a prompt's name")}
        if arguments is not None:
            given = _mapping(arguments, "a prompt's arguments")
            params["arguments"] = {key: _text(value, "a prompt's argument") for key, value in given.items()}
        wire = await self._request("prompts/get", params, timeout, total_timeout, on_progress)
        return GetPromptResult.from_wire(wire)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CompleteResult:
        """Completions for *value* as the prompt's or template's *argument*.

        *context* holds the arguments already decided (revision 2025-06-18 and later).
        """
        params: Params = {"ref": ref.to_wire(), "argument": {"name": argument, "value": value}}
        if context is not None:
            params["context"] = {"arguments": dict(context)}
        return CompleteResult.from_wire(await self._request("completion/complete", params, timeout))

    # The rest

    async def ping(self, *, timeout: float | None = None) -> None:
        """Ask for a sign of life. A server that knows no ping but says so is alive, too."""
        try:
            await self._request("ping", {}, timeout)
        except ServerError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise

    async def set_log_level(self, level: LoggingLevel, *, timeout: float | None = None) -> None:
        """Have the server send log messages of this level and above to *on_log*. Survives a lost session."""
        connection = self._connected()
        await self._request("logging/setLevel", {"level": level}, timeout)
        connection.log_level = level

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
        return self._connected().link.require()

    async def _request(
        self,
        method: str,
        params: Params,
        timeout: float | None,
        total_timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Params:
        connection = self._connected()
        limits = connection.limits
        if (timeout is not None and timeout < 0) or (total_timeout is not None and total_timeout < 0):
            raise ValueError("a timeout is a number of seconds from now, and not negative")
        patience = Patience.of(
            limits.timeout if timeout is None else timeout,
            limits.total_timeout if total_timeout is None else total_timeout,
        )
        report = None if on_progress is None else _reporting(on_progress)
        return await connection.request(method, params, patience, report)

    async def _list(self, method: str, key: str, model: type[ModelT], timeout: float | None) -> list[ModelT]:
        """All pages of a list; what cannot be read in them, and what never ends, is left out, and said so."""
        connection = self._connected()
        items: list[ModelT] = []
        cursors: set[str] = set()
        params: Params = {}
        for _ in range(connection.limits.max_pages):
            page = await self._request(method, params, timeout)
            items += connection.read_items(method, key, model, page)
            cursor = page.get("nextCursor")
            if cursor is None:
                return items
            if not isinstance(cursor, str) or cursor in cursors:
                connection.warn(f"{method} ends early: the cursor {quoted(cursor)} leads nowhere new")
                return items
            cursors.add(cursor)
            params = {"cursor": cursor}
        connection.warn(f"{method} ends early: more than {connection.limits.max_pages} pages (Limits.max_pages)")
        return items


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}")
    return value


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{what} are a mapping, not {type(value).__name__}")
    return value or {}


def _reporting(on_progress: OnProgress) -> OnReport:
    async def report(params: Params) -> None:
        try:
            progress = ProgressNotificationParams.from_wire(params)
        except ProtocolError:
            return  # "Receivers of invalid [notifications] SHOULD ignore them": they fail no call
        await on_progress(progress)

    return report
