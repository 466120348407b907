"""The client: what applications hold."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar, get_args
from weakref import WeakMethod

from anyio import CancelScope
from anyio.lowlevel import checkpoint

from mcp_host import types
from mcp_host.client.lifetime import Lifetime
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    HeaderMismatch,
    McpError,
    ProtocolError,
    RequestTimeout,
    ServerError,
    SessionLost,
    quoted,
)
from mcp_host.handlers import as_async
from mcp_host.limits import Limits
from mcp_host.protocol.cache import Cache
from mcp_host.protocol.eras import (
    DISCOVER,
    INITIALIZE,
    INITIALIZED,
    LISTEN,
    NAME_PARAMETER,
    ROOTS_CHANGED,
    InputRequired,
)
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Params, snapshot
from mcp_host.protocol.negotiation import AllowedVersions, EraCache
from mcp_host.protocol.server_names import check_server_name
from mcp_host.protocol.values import portions
from mcp_host.session.call import Call, CallbackRaised, CallTimeouts, OnReports
from mcp_host.session.connection import Connection
from mcp_host.session.session import ClientFeatures
from mcp_host.session.state import ClientState, OnChange, OnLog, OnNotification
from mcp_host.transports.infer import Connectable, infer_transport
from mcp_host.types import Implementation, ServerCapabilities
from mcp_host.types.base import Model
from mcp_host.version import __version__

if TYPE_CHECKING:
    from mcp_host.client.filtered_tools import FilteredTools
    from mcp_host.client.tool_policy import ToolPolicy
    from mcp_host.client.tools import ListedTool, ListingVersion
    from mcp_host.elicitation import Elicitation
    from mcp_host.middleware import ClientRequest, Middleware, MiddlewareStack
    from mcp_host.roots import RootLike, RootsHandler
    from mcp_host.sampling import Sampling, SamplingMode, SamplingRequest
    from mcp_host.sampling.limits import OwnTools
    from mcp_host.sampling.own_tools import ServerTools
    from mcp_host.session.list_changed import ListChanged, ListWatcher, WeakList
    from mcp_host.transports.base import Transport

OnProgress: TypeAlias = Callable[[types.ProgressNotificationParams], Awaitable[None] | None]
P = ParamSpec("P")
T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=Model)
RootsArgument: TypeAlias = "Sequence[RootLike] | RootsHandler | None"

BY_CLIENT = frozenset(
    {INITIALIZE, INITIALIZED, DISCOVER, LISTEN, ROOTS_CHANGED, "notifications/cancelled", "notifications/progress"}
)
"""What the client sends by itself, with what belongs to it."""

LIMITS = Limits()

MAX_CURSOR = 64 * 1024  # characters; it is sent back, and kept until the list has ended
ITEMS_PER_TICK = 256  # list items that are parsed before other tasks run

ON_LOG = "(message: LoggingMessageNotificationParams) -> None"
ON_NOTIFICATION = "(notification: Notification) -> None"
ON_CHANGE = "(change: Change) -> None"
NO_SAMPLING = (
    "sampling is Sampling(with_tools=handler, approve=...), or basic=handler for requests without tools:"
    " approve decides on each request, such as ask_in_terminal, always, or a function of yours"
)


class Client:
    """A connection to one MCP server.

    >>> async with Client(["uvx", "weather-server"], sampling=Sampling(with_tools=model, approve=always)) as client:
    ...     result = await client.call_tool("forecast", {"city": "Oslo"})

    *server* is a URL, a command line as a list, a transport (`StreamableHttp`, `Stdio`, `InProcess`),
    or a server object to run in this process: a `mcp_host.testing.Server`, a `Server`, `MCPServer` or
    `FastMCP` of the official SDK, or a `FastMCP` of fastmcp.

    *name* is what you call the server, 1 to 64 visible characters: approvals, questions to the user, errors, log lines
    and spans say it, and pins and eras are kept under it, so that they survive a new version in the command line or
    another URL. By default it is the program or the URL. What the server calls itself is `server_info`.

    Any task may connect, call and close, in any order. *sampling*, *elicitation* and *roots* are the
    capabilities that the client advertises; they and the callbacks serve every session of this client. So are
    *extensions*, such as ``{"io.modelcontextprotocol/ui": {...}}``; their methods are for `request` and *on_notification*.
    *tools* says which tools of the server to let through, under which names, how results are checked, and
    whether a tool that changes is blocked.

    *on_log* and *on_change* are awaited one at a time, in order, in a task of the client; they may
    call the client. So is *on_notification*, which gets the notifications that the client does not know,
    such as those of an extension, as `Notification`. *list_changed* hands over a whole list after a change.
    Progress goes to each call's *on_progress*.

    The client probes with `server/discover` for the era of the server: stateless (2026-07-28), or with
    a handshake. *era* is "auto"; "modern" and "legacy" allow only one kind, and a version like
    "2025-06-18" only itself. *era_cache* remembers the era; you can share and save it. Results that
    the server calls fresh are cached, unless *cache* is false.

    *middleware* are functions around each request, in both directions, the first of them outermost:
    see `mcp_host.middleware`.

    A *lazy* client connects with its first request, so your application starts while the server is down.
    `async with` and making the client do not touch the server; `connect` connects at once. Requests that come
    while it connects wait for the same attempt, up to their own timeouts. If that fails, they raise why
    (*may_have_run* is False), and the next request tries again, with a pause of at most 3 seconds between attempts.
    If the connection is lost, the next request connects again, over every transport and in every revision.
    Callbacks such as *on_change* hear nothing before the first request.

    With a *ping_interval* the client pings the server after so many seconds in which nothing was in flight and no
    message came, so that neither a proxy nor the server ends the session because it is idle. If no answer comes within
    `Limits.idle_timeout`, the connection counts as lost: it ends with `ConnectionClosed`, and a server that is
    restarted otherwise is restarted; over HTTP the client initializes again. Revision 2026-07-28 has no ping and
    needs none: there this does nothing.

    With *run_own_tools* the server's tools are run inside its sampling requests: if the model calls tools that
    the server lists, the client calls them, with the `caller` of the call that the request belongs to, and gives the
    results to the model, until that answers; this answer goes to the server. An answer that calls another tool of
    those that the request offers, or one that the `ToolPolicy` does not let through, goes to the server as it is, and
    nothing is run. One that calls a tool that is not on offer is refused, as always. *approve* of `Sampling` is asked
    once for the request, and `approve_tool_calls` about each call. `OwnTools` has the limits.

    What connecting settled, such as `protocol_version`, stays readable when the server has ended.
    Before the first connection and after `aclose` it raises `NotConnected`.

    Any task may make any number of requests at a time. *timeout* bounds a request in seconds, progress or
    not. *idle_timeout* is how long the server may be silent: each progress report and each request of the
    server within the call restarts it, and over HTTP all that comes on the call's own stream. Both are paused while your handlers answer what the server asks
    within the call, for `Limits.input_timeout` in total. Both default to the client's `Limits`; `math.inf`
    means no bound. Anything else than a number of seconds, 0 or more, raises `TypeError` or `ValueError`.

    Raises:
        TypeError: *server*, *name* or *sampling* is something else; the message shows what to write.
        ValueError: *server* is an invalid URL, *name* cannot be shown in one line, or *era* is unknown.

    Besides the errors in its own docstring, every request may raise these.

    Raises:
        NotConnected, NotAdvertised: The call was not possible; nothing was sent.
        CallerError: The same: the client is connected in another event loop.
        ServerError: The server answered with an error (`HttpStatusError` by HTTP status).
        RequestTimeout: It took too long; the server was told that the call is cancelled.
        ConnectionClosed: The connection ended; *may_have_run* says what that means.
        ProtocolError: The answer was not what the protocol says.
    """

    def __init__(
        self,
        server: Connectable,
        *,
        name: str | None = None,
        sampling: Sampling | None = None,
        elicitation: Elicitation | None = None,
        roots: RootsArgument = None,
        tools: ToolPolicy | None = None,
        on_log: OnLog | None = None,
        on_change: OnChange | None = None,
        on_notification: OnNotification | None = None,
        list_changed: ListChanged | None = None,
        client_info: Implementation | None = None,
        limits: Limits | None = None,
        era: str = "auto",
        era_cache: EraCache | None = None,
        cache: bool = True,
        middleware: Sequence[Middleware] = (),
        lazy: bool = False,
        ping_interval: float | None = None,
        run_own_tools: bool | OwnTools = False,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        server_tools = None if sampling is None else self._server_tools(sampling)
        on_complete = None
        if elicitation is not None:
            from mcp_host.elicitation import Elicitation

            if not isinstance(elicitation, Elicitation):
                raise TypeError("elicitation is Elicitation(form=handler), or url=handler, or both")
            on_complete = elicitation.on_complete
        if tools is not None:
            from mcp_host.client.tool_policy import ToolPolicy

            if not isinstance(tools, ToolPolicy):
                raise TypeError("tools is ToolPolicy(allow=..., rename=..., output=..., pins=...)")
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits is Limits(timeout=..., ...), not {type(limits).__name__}")
        limits = limits or LIMITS
        self._era = era
        self._roots: Roots | None = None
        transport = infer_transport(server)
        given = None if name is None else check_server_name(name)
        name = given or transport.name
        if roots is not None:
            from mcp_host.roots import Roots

            self._roots = Roots(roots)
        self._state = ClientState(
            transport=transport,
            name=name,
            key=given or transport.identity,
            client_info=client_info or _this_package(),
            features=ClientFeatures(
                sampling, elicitation, self._roots, server_tools, _mapping(extensions or {}, "extensions")
            ),
            limits=limits,
            allowed_versions=AllowedVersions.of(era),
            era_cache=EraCache() if era_cache is None else era_cache,
            cache=Cache(limits.max_cache if cache else 0, time.monotonic),
            middleware=_stack(middleware, transport, name),
            lazy=lazy,
            ping_interval=ping_interval,
            watches_tools=tools is not None and tools.lists_first,
            on_log=_callback(on_log, argument="on_log", shape=ON_LOG),
            on_change=_callback(on_change, argument="on_change", shape=ON_CHANGE),
            on_notification=_callback(on_notification, argument="on_notification", shape=ON_NOTIFICATION),
            on_elicitation_complete=_callback(on_complete, argument="on_complete"),
        )
        if run_own_tools is not False:
            self.run_own_tools = run_own_tools
        if list_changed is not None:
            self._state.list_watcher = self._watcher(list_changed)
        self._lifetime = Lifetime(self._state, tools)

    def _server_tools(self, sampling: Sampling) -> ServerTools:
        from mcp_host.sampling import Sampling  # here, because few clients offer all features
        from mcp_host.sampling.own_tools import ServerTools

        if not isinstance(sampling, Sampling):
            raise TypeError(NO_SAMPLING)
        return ServerTools(_weak(self._list_own_tools), _weak(self._call_own_tool), None)

    def _watcher(self, wanted: ListChanged) -> ListWatcher:
        from mcp_host.session.list_changed import ListChanged, ListWatcher  # few clients use it

        if not isinstance(wanted, ListChanged):
            raise TypeError("list_changed is ListChanged(tools=callback), or of prompts, resources, resource_templates")
        lists: dict[str, WeakList] = {
            "tools": WeakMethod(self.list_tools),
            "prompts": WeakMethod(self.list_prompts),
            "resources": WeakMethod(self.list_resources),
            "resource_templates": WeakMethod(self.list_resource_templates),
        }
        return ListWatcher(wanted, lists, self._state.warn_about_server)

    def __repr__(self) -> str:
        if not hasattr(self, "_lifetime"):  # in a report of the error that it was not made for
            return "<Client that was not made>"
        server, connection = quoted(self._state.name), self._lifetime.connection
        if connection is None:
            return f"<Client of {server}, {self._era}, not connected>"
        state = "connected" if self.connected else "disconnected"
        return f"<Client of {server}, {connection.session.era.version}, {state}>"

    # Connecting and closing

    async def __aenter__(self) -> Self:
        await self._lifetime.begin()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        with CancelScope(shield=True):  # bounded by `close_timeout`
            await self.aclose()

    async def connect(self) -> None:
        """Connect and negotiate the version. Does nothing if connected already.

        You can connect again after closing, or when the connection was lost. A lazy client connects, too.

        Raises:
            ConnectFailed: The server cannot be reached or started, or ended before it answered.
            ConnectTimeout: Connecting took longer than `Limits.connect_timeout`.
            ServerError: The server refused; `HttpStatusError` where it did so by HTTP status.
            ProtocolError: The server does not speak MCP, or no revision that the client speaks.
        """
        await self._lifetime.connect()

    async def aclose(self) -> None:
        """Close the connection: calls in flight end with `ConnectionClosed`, the server is shut down.

        Any task may close, more than once, and while another task connects. A callback or handler
        of this client may close it too, which cancels the callback. Closing takes at most
        `Limits.close_timeout`, and raises no error of the server. If you cancel it, it goes on in the background.

        Raises:
            CallerError: The client is connected in another event loop.
        """
        await self._lifetime.close()

    async def wait_closed(self) -> ConnectionClosed:
        """Wait until the connection has ended, on either side. Returns why; a later one may be open by then.

        Raises:
            NotConnected: There is none.
        """
        dispatcher = self._lifetime.require().dispatcher
        await dispatcher.ended.wait()
        assert dispatcher.closed is not None, "it has ended"
        return dispatcher.closed

    # Tools

    async def list_tools(self, *, timeout: float | None = None, idle_timeout: float | None = None) -> list[types.Tool]:
        """Every tool that the server offers, across all pages.

        Those that the client's `ToolPolicy` does not let through are left out.
        Malformed tools are left out, with a line in `Client.warnings`; so is a second tool of the same
        name, and over HTTP from revision 2026-07-28 on a tool with invalid `x-mcp-header` annotations.
        Later calls are checked against the listing. Names, descriptions and annotations come from the
        server: do not trust them. They may change after you have approved them: see `ToolPins`.
        """
        _, timeouts = await self._lifetime.live(timeout, idle_timeout)
        return await self._list_tools(timeouts)

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
        If `list_tools` has seen the tool, the result is checked against its `outputSchema`,
        or as `ToolPolicy.output` says. The client lists tools by itself only if a `ToolPolicy` needs the
        definition, if the server rejects the call because headers are missing (`HeaderMismatch`), or if the result
        does not match a listing that may be out of date; each once.

        Raises:
            ServerError: The server rejected the call. A tool that ran and failed
                returns a result with *is_error* set instead.
            InputNotGiven: The server required input (2026-07-28), and your side refused or failed.
            RoundsExceeded: The server asked for more input than `Limits` allow.
            InvalidToolOutput: The result contradicts the listed schema; the error carries it.
            ToolChanged: The tool is not as its pin has it (`ToolPins`).
            CallerError: The `ToolPolicy` does not let the tool through, or it was listed as one
                that runs only as a task.
        """
        params: Params = {"name": _text(name, "name"), "arguments": _mapping(arguments, "arguments")}
        if meta is not None:
            params["_meta"] = dict(_mapping(meta, "meta"))
        connection, timeouts = await self._lifetime.live(timeout, idle_timeout)
        on_reports = None if on_progress is None else _reporting(on_progress)
        call = Call(method="tools/call", params=params, timeouts=timeouts, on_reports=on_reports, caller=caller)
        try:
            if self._state.around_ours is None:
                _, result = await self._call_tool(connection, call)
                assert result is not None, "it is not relayed"
                return result
            if self._lifetime.filtered is not None:
                await self._check_policy(call)  # before middleware asks a person to approve
            return types.CallToolResult.from_wire(await self._through_middleware(connection, call, self._perform))
        except CallbackRaised as raised:
            raised.unwrap()

    # Resources

    async def list_resources(
        self, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> list[types.Resource]:
        """Every resource that the server lists, across all pages."""
        return await self._list("resources/list", "resources", types.Resource, timeout, idle_timeout)

    async def list_resource_templates(
        self, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> list[types.ResourceTemplate]:
        """Every resource template that the server lists, across all pages."""
        return await self._list(
            "resources/templates/list", "resourceTemplates", types.ResourceTemplate, timeout, idle_timeout
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
        wire = await self._request("resources/read", params, timeout, idle_timeout, on_progress, caller)
        return types.ReadResourceResult.from_wire(wire)

    async def subscribe_resource(
        self, uri: str, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> None:
        """Subscribe to changes of the resource at *uri*, which *on_change* receives.

        The subscription survives a lost session, a broken stream and a restarted server, but not `aclose`.
        """
        connection, timeouts = await self._lifetime.live(timeout, idle_timeout)
        if connection.dispatcher.require().era.listens:
            await connection.subscriptions.add(_text(uri, "uri"), timeouts)
            return
        await self._send(
            connection, Call(method="resources/subscribe", params={"uri": _text(uri, "uri")}, timeouts=timeouts)
        )
        self._state.subscriptions[uri] = None

    async def unsubscribe_resource(
        self, uri: str, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> None:
        """End a subscription."""
        connection, timeouts = await self._lifetime.live(timeout, idle_timeout)
        if connection.dispatcher.require().era.listens:
            await connection.subscriptions.remove(_text(uri, "uri"), timeouts)
            return
        self._state.subscriptions.pop(uri, None)
        await self._send(
            connection, Call(method="resources/unsubscribe", params={"uri": _text(uri, "uri")}, timeouts=timeouts)
        )

    # Prompts and completion

    async def list_prompts(
        self, *, timeout: float | None = None, idle_timeout: float | None = None
    ) -> list[types.Prompt]:
        """Every prompt that the server offers, across all pages."""
        return await self._list("prompts/list", "prompts", types.Prompt, timeout, idle_timeout)

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
        wire = await self._request("prompts/get", params, timeout, idle_timeout, on_progress, caller)
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
        wire = await self._request("completion/complete", params, timeout, idle_timeout)
        return types.CompleteResult.from_wire(wire)

    # The rest

    async def ping(self, *, timeout: float | None = None, idle_timeout: float | None = None) -> None:
        """Check that the server is alive. A server that answers that it knows no ping is alive, too.

        Raises:
            CallerError: The revision has no ping (2026-07-28).
        """
        try:
            await self._request("ping", {}, timeout, idle_timeout)
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
        connection, timeouts = await self._lifetime.live(timeout, idle_timeout)
        if not connection.dispatcher.require().era.log_level_per_request:
            await self._send(connection, Call(method="logging/setLevel", params={"level": level}, timeouts=timeouts))
        self._state.log_level = level

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> dict[str, Any]:
        """Make any request, such as one of an extension, and return its result as the JSON that came.

        What the library knows of a method holds here, too: `tools/call` obeys the listing and the
        `ToolPolicy`, reads are cached, and input that a result requires is given. The result is not parsed.
        *on_progress* and *caller* are as for `call_tool`.

        Raises:
            CallerError: The client makes this request by itself: `initialize`, `server/discover`, `subscriptions/listen`.
        """
        if _text(method, "method") in BY_CLIENT:
            raise CallerError(f"the client sends {method} by itself")
        return await self._request(method, {**_mapping(params, "params")}, timeout, idle_timeout, on_progress, caller)

    async def relay(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_report: Callable[[Params], None] | None = None,
        headers: Mapping[str, str] | None = None,
        caller: object = None,
        leaves_input: Callable[[InputRequired], bool] | None = None,
    ) -> Params:
        """As `request`, for a proxy: *on_report* gets the params of each progress notification, as they came.

        *headers* are those of parameters. If the first result requires input and *leaves_input*, it is returned: the host provides that.
        With it, the error -32042 requires the input of a tool, prompt or resource, too.

        When it ends, the callbacks have had all notifications that came before.
        """
        connection, timeouts = await self._lifetime.live(None, None)
        on_reports = None if on_report is None else _passing_on(on_report)
        call = Call(
            method=method,
            params=dict(params),
            timeouts=timeouts,
            on_reports=on_reports,
            headers=headers or {},
            caller=caller,
            relayed=True,
            leaves_input=leaves_input,
            sent_ids=[],
        )
        try:
            return await self._send(connection, call)
        finally:
            await connection.notifications.delivered()

    async def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> None:
        """Send a notification, such as one of an extension.

        Middleware sees it as a request whose result is empty.

        Raises:
            CallerError: The client sends this notification by itself, or the revision has none of that name.
        """
        if _text(method, "method") in BY_CLIENT:
            raise CallerError(f"the client sends {method} by itself")
        await self._send_notification(method, {**_mapping(params, "params")}, timeout)

    async def relay_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """As `notify`, for a proxy: also of what else the client sends by itself, such as progress of a request of the server."""
        await self._send_notification(method, dict(params), None)

    async def _send_notification(self, method: str, params: Params, timeout: float | None) -> None:
        connection, timeouts = await self._lifetime.live(timeout, None)
        call = Call(method=method, params=params, timeouts=timeouts)
        if self._state.around_ours is None:
            await connection.notify(call)
        else:
            await self._through_middleware(connection, call, self._notify)

    async def set_roots(self, roots: Sequence[RootLike]) -> None:
        """Offer other roots from now on, and notify a connected server if its revision allows that.

        Raises:
            CallerError: The client was made without *roots*, or is connected in another event loop.
        """
        if self._roots is None:
            raise CallerError("this client was made without roots: pass roots=[] to offer some later")
        self._roots.replace(roots)
        if self.connected:
            connection, timeouts = await self._lifetime.live(None, None)
            if ROOTS_CHANGED not in connection.session.era.removed:
                await connection.notify(Call(method=ROOTS_CHANGED, params={}, timeouts=timeouts))

    @property
    def run_own_tools(self) -> bool | OwnTools:
        """Whether, and how far, the server's own tools are run inside its sampling requests. Set it for later requests.

        Setting it raises `TypeError` if it is something else, and `CallerError` if the client was made without *sampling*.
        """
        tools = self._state.features.server_tools
        return False if tools is None or tools.limits is None else tools.limits

    @run_own_tools.setter
    def run_own_tools(self, value: bool | OwnTools) -> None:
        from mcp_host.sampling.limits import OwnTools

        limits = OwnTools.chosen(value, argument="run_own_tools")
        if (tools := self._state.features.server_tools) is None:
            raise CallerError("this client was made without sampling: there is nothing to run tools in")
        tools.limits = limits

    def clear_cache(self) -> None:
        """Forget the results that are kept because the server called them fresh."""
        self._state.cache.drop()

    # What is known about the connection

    @property
    def name(self) -> str:
        """The name of the server in approvals, errors and log lines: yours, or else that of its transport. The server cannot choose it."""
        return self._state.name

    @property
    def key(self) -> str:
        """What pins, eras and approvals of the server are kept under: your name for it, or else its command line or URL."""
        return self._state.key

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._lifetime.connected

    @property
    def protocol_version(self) -> str:
        """The negotiated revision, like "2025-11-25"."""
        return self._lifetime.session.era.version

    @property
    def server_info(self) -> Implementation:
        """What the server calls itself; unverified. If it says nothing (2026-07-28), `name`."""
        return self._lifetime.session.server_info or Implementation(name=self.name, version="")

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server advertised."""
        return self._lifetime.session.server_capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its users. Treat them as untrusted."""
        return self._lifetime.session.instructions

    @property
    def sampling_mode(self) -> SamplingMode:
        """Which handler answers this session's sampling requests: "with_tools", "basic" or "none"."""
        sampling = self._lifetime.session.sampling
        return "none" if sampling is None else sampling.mode

    @property
    def warnings(self) -> list[str]:
        """What went wrong without failing anything, one sentence each, oldest first."""
        return list(self._state.warnings)

    @property
    def counters(self) -> Mapping[str, int]:
        """How many messages of the server were ignored, by reason."""
        return Counter(self._state.counters)

    # How a request is made

    async def _request(
        self,
        method: str,
        params: Params,
        timeout: float | None,
        idle_timeout: float | None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> Params:
        connection, timeouts = await self._lifetime.live(timeout, idle_timeout)
        on_reports = None if on_progress is None else _reporting(on_progress)
        call = Call(method=method, params=params, timeouts=timeouts, on_reports=on_reports, caller=caller)
        return await self._send(connection, call)

    async def _send(self, connection: Connection, call: Call) -> Params:
        """Make one request of the application, through the middleware."""
        try:
            if self._state.around_ours is None:
                return await self._perform(connection, call)
            return await self._through_middleware(connection, call, self._perform)
        except CallbackRaised as raised:
            raised.unwrap()

    async def _perform(self, connection: Connection, call: Call) -> Params:
        """Make any request, without the middleware. Its params may be what the application has written."""
        if (key := NAME_PARAMETER.get(call.method)) is not None:
            _text(call.params.get(key), key)
        if not isinstance(call.params.get("_meta", {}), dict):
            raise TypeError("_meta must be a mapping")
        if call.method == "tools/call":
            return (await self._call_tool(connection, call))[0]
        return await connection.request(call)

    async def _notify(self, connection: Connection, call: Call) -> Params:
        await connection.notify(call)
        return {}

    async def _call_tool(self, connection: Connection, call: Call) -> tuple[Params, types.CallToolResult | None]:
        """Call a tool, without the middleware: as listed, and with its result checked. Returns it in both forms.

        What is relayed for a host is not parsed, unless its `ToolPolicy` has it checked.
        """
        name, timeouts = call.params["name"], call.timeouts
        tool = self._lifetime.tools.listed.get(name)
        if self._lifetime.filtered is not None:
            connection, tool = await self._check_policy(call)
        try:
            wire = await connection.request(call if tool is None else tool.prepare(call))
        except (HeaderMismatch, SessionLost) as refusal:
            if isinstance(refusal, HeaderMismatch):
                await self._list_missing_headers(timeouts, refusal)
                tool = self._lifetime.tools.listed.get(name)
            elif call.epoch is None or call.settled or refusal.may_have_run:
                raise  # else the server may be another version now, and has run nothing
            if self._lifetime.filtered is not None:
                connection, tool = await self._check_policy(call)
            wire = await connection.request(call if tool is None else tool.prepare(call))
        tool = self._lifetime.tools.listed.get(name)  # it may have been listed meanwhile
        policy = self._lifetime.tools.policy
        unchecked = tool is None or policy is None or policy.output in ("auto", "off")
        if call.relayed and (unchecked or wire.get("resultType") == "input_required"):
            return wire, None
        result = types.CallToolResult.from_wire(wire)
        if tool is not None and (problem := await tool.mismatch(result, timeouts)) is not None:
            await self._report_mismatch(name, result, problem, timeouts)
        return wire, result

    async def _report_mismatch(
        self, name: str, result: types.CallToolResult, problem: str, timeouts: CallTimeouts
    ) -> None:
        """Raise or warn that *result* is not as the tool *name* was listed, unless it is as the tool is listed now.

        Raises:
            InvalidToolOutput: As `ToolPolicy.output` says.
        """
        try:
            # A server that is not asked to tell of changes tells of none: then the listing is what its `ttlMs` says.
            untold = self._lifetime.session.era.listens and not self._state.wants_list("tools")
            if old := untold or self._lifetime.tools.as_of != self._listing_version():
                await self._list_tools(timeouts)
        except McpError as exc:
            self._lifetime.tools.warn(f"{problem}; it passes, because the listing may be out of date: {exc}")
            return
        if old:
            tool = self._lifetime.tools.listed.get(name)
            if tool is None or (now := await tool.mismatch(result, timeouts)) is None:
                return
            problem = now
        self._lifetime.tools.report_mismatch(problem, result)

    async def _through_middleware(
        self, connection: Connection, call: Call, perform: Callable[[Connection, Call], Awaitable[Params]]
    ) -> Params:
        """Pass *call* through the middleware, which may *perform* it any number of times.

        The time until it does so first does not count in *timeout*, nor after a session was lost in which nothing ran. Each time it goes to the
        connection of that moment: the server may have ended meanwhile.
        """
        stack, timeouts, now = self._state.around_ours, call.timeouts, connection.dispatcher.now
        assert stack is not None, "the caller has looked"
        began = now()
        first, may_have_run = True, False

        async def send(request: ClientRequest) -> Params:
            nonlocal began, first, may_have_run
            if first:
                timeouts.postpone(now() - began)
                first = False
            attempt = Call(  # not by `replace`, which takes three times as long
                method=request.method,
                params=dict(request.params),
                timeouts=timeouts,
                on_reports=call.on_reports,
                headers={**call.headers, **request.headers},
                caller=call.caller,
                relayed=call.relayed,
                leaves_input=call.leaves_input,
                call_id=call.call_id,
                sent_ids=request.sent_ids,
            )  # its context has what middleware has set, such as the current span
            try:
                live = await self._lifetime.reconnected(self._lifetime.require(), timeouts)
                if request.only_session is not None:
                    if live.session is not request.only_session:
                        raise SessionLost(f"{self._state.name}: the session of the call has ended", may_have_run=False)
                    attempt.epoch, attempt.settled = live.session.epoch, True
                return await perform(live, attempt)
            except (ConnectionClosed, RequestTimeout, HeaderMismatch) as exc:
                exc.may_have_run |= may_have_run
                may_have_run = exc.may_have_run
                if isinstance(exc, SessionLost) and not may_have_run:
                    began, first = now(), True
                raise
            except ServerError:
                may_have_run = True
                raise

        request = stack.client_request(
            call.method,
            snapshot(call.params),  # middleware looks at it and may wait: what it has seen is sent
            protocol_version=connection.session.era.version,
            caller=call.caller,
            call_id=call.call_id,
            relayed=call.relayed,
            find_tool=self._listed_tool,
            find_session=lambda: self._lifetime.session,
        )
        return await stack.run(request, send)

    def _listed_tool(self, name: str) -> types.Tool | None:
        tools = self._lifetime.tools
        if self._lifetime.connection is not None and tools.as_of != self._listing_version():
            return None
        listed = tools.listed.get(name)
        return None if listed is None else listed.tool

    async def _list_tools(self, timeouts: CallTimeouts) -> list[types.Tool]:
        filtered, as_of = self._lifetime.filtered, self._listing_version()
        tools = await self._pages("tools/list", "tools", types.Tool, timeouts)
        return (
            await self._lifetime.tools.replace(tools, as_of)
            if filtered is None
            else await filtered.update(tools, as_of, timeouts)
        )

    def _listing_version(self) -> ListingVersion:
        return self._lifetime.session.epoch, self._state.cache.tool_changes

    async def _check_policy(self, call: Call) -> tuple[Connection, ListedTool | None]:
        """Check the `tools/call` *call* with the policy, which may need a listing first.

        Returns its connection, and its tool if that is listed.

        Raises:
            CallerError: The policy does not let the tool through.
        """
        timeouts = call.timeouts
        listed: FilteredTools | None = None
        while True:
            connection, filtered = self._lifetime.require(), self._lifetime.filtered
            if connection.dispatcher.has_logins:
                connection.dispatcher.notice_login()
            assert filtered is not None, "the caller has looked"
            if not filtered.policy.lists_first:
                break
            as_of = filtered.as_of
            # Once for each connection: a server may announce changes without end.
            if as_of is not None and (as_of == self._listing_version() or filtered is listed):
                if not call.settled:
                    call.epoch, _ = as_of
                break
            with timeouts.bound("tools/call: another call lists the tools"):
                await filtered.listing.acquire()
            try:
                if filtered.as_of != self._listing_version():
                    await self._list_tools(timeouts)
            finally:
                filtered.listing.release()
            listed = filtered  # if another one has replaced it, the server was restarted meanwhile
        return connection, await filtered.find(call.params["name"], timeouts)

    async def _list_own_tools(self, request: SamplingRequest, timeout: float) -> dict[str, str]:
        """The names of the tools to run inside a sampling request, by the names that the server gives them."""
        await self.list_tools(timeout=timeout)
        listed = self._lifetime.tools.listed.items()
        return {each.definition.name: name for name, each in listed if not each.runs_only_as_task}

    async def _call_own_tool(
        self, request: SamplingRequest, name: str, arguments: dict[str, object], timeout: float
    ) -> types.CallToolResult:
        """Call a tool for the user whose call the sampling request belongs to."""
        caller = None if request.outer is None else request.outer.caller
        return await self.call_tool(name, arguments, timeout=timeout, caller=caller)

    async def _list_missing_headers(self, timeouts: CallTimeouts, mismatch: HeaderMismatch) -> None:
        """List the tools, because the server requires headers that the client does not know of.

        "If the server rejects a request with a `HeaderMismatch` error [...] the client SHOULD
        call `tools/list`" (2026-07-28, basic/transports/streamable-http).

        Raises:
            HeaderMismatch: *mismatch*: listing fails, or calling again would not help or do harm.
        """
        if not self._lifetime.tools.mirrored or mismatch.may_have_run:
            raise mismatch
        self._state.cache.drop("tools/list")
        try:
            await self._list_tools(timeouts)
        except McpError as exc:
            raise mismatch from exc

    async def _list(
        self, method: str, key: str, model: type[ModelT], timeout: float | None, idle_timeout: float | None
    ) -> list[ModelT]:
        _, timeouts = await self._lifetime.live(timeout, idle_timeout)
        return await self._pages(method, key, model, timeouts)

    async def _pages(
        self, method: str, key: str, model: type[ModelT], timeouts: CallTimeouts, *, again: bool = True
    ) -> list[ModelT]:
        """All pages of a list. A warning says if items are malformed or the list does not end.

        "If a cursor becomes invalid [...] the client SHOULD discard all cached pages and re-fetch
        from the beginning" (2026-07-28, server/utilities/caching): with *again*, once.
        """
        items: list[ModelT] = []
        cursors: set[str] = set()
        params: Params = {}
        kept = is_number = False
        last: Params | None = None
        warn, max_pages = self._state.warn_about_server, self._state.limits.max_pages
        while len(cursors) < max_pages:
            connection = await self._lifetime.reconnected(self._lifetime.require(), timeouts)
            try:
                page = await self._send(connection, Call(method=method, params=params, timeouts=timeouts))
            except ServerError as exc:
                if exc.code is None or not (is_number or (again and kept)):  # an HTTP status is not about the cursor
                    raise
                if is_number:
                    refused = quoted(params["cursor"])
                    warn(f"{method} ends early: the cursor {refused} came as a number, and is refused as text: {exc}")
                    return items
                self._state.cache.drop(method)
                return await self._pages(method, key, model, timeouts, again=False)
            if page != last:  # else the server takes its cursor for none: this is its first page again
                with timeouts.bound(method):
                    items += await _read_items(method, key, model, page, warn, self._state.limits.max_values)
            last = page
            kept = kept or bool(page.get("ttlMs"))  # this page may come from the cache
            cursor = page.get("nextCursor")
            if cursor is None or (cursor == "" and connection.session.era.empty_cursor_ends):
                return items
            if is_number := type(cursor) is int:
                cursor = str(cursor)  # "Cursor: string", in the schema of each revision
            if not isinstance(cursor, str) or len(cursor) > MAX_CURSOR:
                problem = f"has more than {MAX_CURSOR:,} characters" if isinstance(cursor, str) else "is not text"
                warn(f"{method} ends early: the cursor {quoted(cursor)} {problem}")
                return items
            if cursor in cursors:
                warn(f"{method} ends early: the cursor {quoted(cursor)} leads nowhere new")
                return items
            cursors.add(cursor)
            params = {"cursor": cursor}
        warn(f"{method} ends early: more than {max_pages} pages (Limits.max_pages)")
        return items


def _stack(middleware: Sequence[Middleware], transport: Transport, server: str) -> MiddlewareStack | None:
    if not middleware:
        return None
    from mcp_host.middleware import MiddlewareStack

    return MiddlewareStack(middleware, transport, server)


@lru_cache(maxsize=1)
def _this_package() -> Implementation:
    """What clients say that they are. It is not made by the import: pydantic builds the model for it."""
    return Implementation(name="mcp-host", version=__version__)


def _weak(method: Callable[P, Coroutine[object, object, T]]) -> Callable[P, Awaitable[T]]:
    """*method*, without keeping its object: a client that is dropped is closed."""
    reference = WeakMethod(method)

    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if (bound := reference()) is None:
            raise ConnectionClosed("the client was dropped", may_have_run=False)
        return await bound(*args, **kwargs)

    return call


def _callback(
    function: Callable[P, Awaitable[None] | None] | None, *, argument: str, shape: str | None = None
) -> Callable[P, Awaitable[None]] | None:
    return None if function is None else as_async(function, argument=argument, shape=shape)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    return value


def _texts(value: object, name: str) -> dict[str, str]:
    return {key: _text(item, f"{name}[{key!r}]") for key, item in _mapping(value, name).items()}


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, dict | Mapping):  # a dict is told at once
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return value or {}


def _reporting(on_progress: OnProgress) -> OnReports:
    """Calls *on_progress* for reports: in the event loop, or in a thread for all that have arrived."""
    shape = "(progress: ProgressNotificationParams) -> None"
    callback = as_async(on_progress, argument="on_progress", shape=shape)
    if callback is not on_progress:
        return _in_one_thread(on_progress)

    async def report(reports: deque[Params]) -> None:
        await callback(types.ProgressNotificationParams.from_wire(reports.popleft()))

    return report


def _passing_on(on_report: Callable[[Params], None]) -> OnReports:
    async def report(reports: deque[Params]) -> None:
        while reports:
            on_report(reports.popleft())

    return report


def _in_one_thread(on_progress: OnProgress) -> OnReports:
    def call(reports: deque[Params]) -> Awaitable[None] | None:
        """Call it for one after the other, until it returns an awaitable."""
        while True:
            try:
                params = reports.popleft()
            except IndexError:  # also if the call has ended meanwhile, and left this thread behind
                return None
            if isawaitable(returned := on_progress(types.ProgressNotificationParams.from_wire(params))):
                return returned

    call_in_thread = as_async(call, argument="on_progress")

    async def report(reports: deque[Params]) -> None:
        arrived = deque(reports)
        reports.clear()
        try:
            while arrived:
                await call_in_thread(arrived)
        finally:
            arrived.clear()

    return report


async def _read_items(
    method: str, key: str, model: type[ModelT], page: Params, warn: Callable[[str], None], max_values: float
) -> list[ModelT]:
    """The items of one page. Those that are malformed or have more than *max_values* values are left out, with a warning.

    Raises:
        ProtocolError: The page has no list.
    """
    wire = page.get(key)
    if key in page and wire in (None, {}):  # as Go and Lua write an empty list
        warn(f"the result of {method} has {'null' if wire is None else wire} for the list {key!r}")
        return []
    if not isinstance(wire, list):
        raise ProtocolError(f"the result of {method} has no list {key!r}")
    items: list[ModelT] = []
    for start, some, values in portions(wire, ITEMS_PER_TICK, max_values):
        if start:
            await checkpoint()  # a page may have a hundred thousand items
        if values > max_values:
            place = _place(start, some[0])
            warn(f"left out of {method}, {place}: more than {max_values:,} values (Limits.max_values)")
            continue
        try:
            items += model.list_from_wire(some)
        except ProtocolError:
            for position, item in enumerate(some, start):
                await checkpoint()  # each may be long, and is read once more if it is malformed
                try:
                    items.append(model.from_wire(item))
                except ProtocolError as exc:
                    warn(f"left out of {method}, {_place(position, item)}: {exc}")
    return items


def _place(position: int, item: object) -> str:
    """Which item of a list it is, for a user who misses it."""
    match item:
        case {"name": str(name)} | {"uri": str(name)}:
            return f"position {position}, {quoted(name)}"
    return f"position {position}"
