"""A small real MCP server, for agent hosts to test against."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, TypeVar, overload
from weakref import WeakSet

from mcp_host import types
from mcp_host.functions import AnyFunction, Function, FunctionTool
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.serving import in_process
from mcp_host.testing._catalog import Catalog, CompletionFunction, Offer, RequestHandler, template_pattern
from mcp_host.transports.in_process import Inbox, InProcess, Outbox
from mcp_host.types.base import given

if TYPE_CHECKING:
    from mcp_host.serving.http.app import HttpApp

FunctionT = TypeVar("FunctionT", bound=AnyFunction)
CompletionT = TypeVar("CompletionT", bound=CompletionFunction)
HandlerT = TypeVar("HandlerT", bound=RequestHandler)


class Server:
    """A server made of typed functions, plain or async. Their signatures and docstrings describe what it offers.

    >>> server = Server("calculator")
    >>> @server.tool
    ... async def add(a: float, b: float) -> float:
    ...     "Add two numbers."
    ...     return a + b
    >>> async with Client(server) as client:
    ...     result = await client.call_tool("add", {"a": 1, "b": 2})

    It runs in process, as a child process over stdio, and over Streamable HTTP, for any
    number of clients at a time. A parameter annotated with `Context` gets the client that
    made the call, to sample, to elicit, and to send notifications.

    *versions* are the protocol revisions it supports, the preferred one first: 2026-07-28 and
    those with a handshake are served on the same endpoint. *page_size* is the length of
    the pages of lists (default: one page). *ttl* is for how many seconds clients may cache lists
    and resources (since 2026-07-28).

    In 2026-07-28 a function that requests input is suspended until the client retries with
    the answer: for up to *resume_timeout* seconds, after which it is cancelled, and up to
    *max_suspended* functions at a time, on each connection or HTTP endpoint.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "1.0.0",
        instructions: str | None = None,
        versions: Sequence[str] = VERSIONS,
        page_size: int | None = None,
        ttl: float = 0.0,
        resume_timeout: float = 600.0,
        max_suspended: int = 1024,
    ) -> None:
        if not versions or not set(versions) <= set(VERSIONS):
            raise ValueError(f"versions are among {', '.join(VERSIONS)}")
        if not 0 <= ttl < math.inf:
            raise ValueError(f"ttl is a number of seconds, 0 or more, not {ttl}")
        self.name = name
        info = types.Implementation(name=name, version=version)
        self._catalog = Catalog(
            info=info,
            instructions=instructions,
            versions=tuple(versions),
            page_size=page_size,
            ttl=ttl,
            resume_timeout=resume_timeout,
            max_suspended=max_suspended,
        )
        self._apps: WeakSet[HttpApp] = WeakSet()

    # Registering

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: types.ToolAnnotations | None = None,
        output_schema: types.JSONObject | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(
        self,
        function: FunctionT | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: types.ToolAnnotations | None = None,
        output_schema: types.JSONObject | None = None,
    ) -> FunctionT | Callable[[FunctionT], FunctionT]:
        """Register a function as a tool: its signature is the input schema, its docstring the description.

        It returns text, content blocks, or anything that is JSON. A return annotation that
        is not text or content becomes the output schema, and the value becomes structured
        content. *output_schema* replaces that schema; it is not checked. A `ToolError` becomes
        a result with its text and *is_error*; any other exception a result without its text.

        Raises:
            TypeError: The signature has no JSON Schema, or the function has no name.
        """

        def register(function: FunctionT) -> FunctionT:
            tool = FunctionTool(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                output_schema=output_schema,
            )
            self._catalog.tools[tool.name] = tool
            return function

        return register if function is None else register(function)

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Call `notify_tools_changed` to tell the clients."""
        del self._catalog.tools[name]

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[FunctionT], FunctionT]:
        """Register a function without parameters as the resource at *uri*.

        It returns text, bytes, `TextResourceContents` or `BlobResourceContents` (or a list
        of them), or anything else, which is written as JSON.
        """

        def register(function: FunctionT) -> FunctionT:
            read = Function(function)
            optional = given(title=title, description=description or read.description, mime_type=mime_type)
            self._catalog.resources[uri] = Offer(types.Resource(uri=uri, name=name or read.name, **optional), read)
            return function

        return register

    def resource_template(
        self,
        uri_template: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[FunctionT], FunctionT]:
        """Register a function as all resources under a template, ``notes://{id}``. Its parameters are the template's names.

        ``{id}`` matches one path segment, ``{+path}`` any number. It returns what a resource returns.
        """
        template_pattern(uri_template)  # refuses what it cannot match

        def register(function: FunctionT) -> FunctionT:
            read = Function(function, strict=False)  # everything in a URI is text; the signature may have numbers
            optional = given(title=title, description=description or read.description, mime_type=mime_type)
            template = types.ResourceTemplate(uri_template=uri_template, name=name or read.name, **optional)
            self._catalog.resource_templates[uri_template] = Offer(template, read)
            return function

        return register

    @overload
    def prompt(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def prompt(
        self, /, *, name: str | None = None, title: str | None = None, description: str | None = None
    ) -> Callable[[FunctionT], FunctionT]: ...

    def prompt(
        self,
        function: FunctionT | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> FunctionT | Callable[[FunctionT], FunctionT]:
        """Register a function as a prompt; its parameters are the arguments. It returns text or `PromptMessage`s."""

        def register(function: FunctionT) -> FunctionT:
            read = Function(function, strict=False)  # prompt arguments are text; the signature may have numbers
            arguments = [
                types.PromptArgument(name=argument, required=required, **given(description=text))
                for argument, text, required in read.parameters
            ]
            optional = given(title=title, description=description or read.description)
            prompt = types.Prompt(name=name or read.name, arguments=arguments, **optional)
            self._catalog.prompts[prompt.name] = Offer(prompt, read)
            return function

        return register if function is None else register(function)

    def completion(self, of: str, argument: str) -> Callable[[CompletionT], CompletionT]:
        """Register the suggestions for an argument of the prompt or resource template named *of*.

        The function takes the text typed so far and the arguments that are filled in, and
        returns suggestions; the first 100 are sent.
        """

        def register(function: CompletionT) -> CompletionT:
            self._catalog.completions[of, argument] = function
            return function

        return register

    def request_handler(self, method: str) -> Callable[[HandlerT], HandlerT]:
        """Register an async function for requests of another *method*, as extensions have.

        The function takes the params and the `Context`, and returns the result, both as JSON.
        """

        def register(function: HandlerT) -> HandlerT:
            self._catalog.handlers[method] = function
            return function

        return register

    # Notifications

    async def notify_tools_changed(self) -> None:
        """Tell every client that the list of tools has changed (since 2026-07-28: every client that subscribed)."""
        await self._catalog.announce("notifications/tools/list_changed", {})

    async def notify_prompts_changed(self) -> None:
        """Tell every client that the list of prompts has changed (since 2026-07-28: every client that subscribed)."""
        await self._catalog.announce("notifications/prompts/list_changed", {})

    async def notify_resources_changed(self) -> None:
        """Tell every client that the list of resources has changed (since 2026-07-28: every client that subscribed)."""
        await self._catalog.announce("notifications/resources/list_changed", {})

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell every client that has subscribed to *uri* that it has changed."""
        await self._catalog.announce("notifications/resources/updated", {"uri": uri})

    async def end_subscriptions(self) -> None:
        """End every subscription of revision 2026-07-28 with its result, as a server does that shuts down."""
        for subscription in list(self._catalog.subscriptions):
            await subscription.event_loop.run(subscription.ended.set)

    # Serving

    def in_process(self) -> InProcess:
        """A transport to this server in this process. Every connection is a separate client."""
        return InProcess(self._serve_in_process, name=self.name)

    async def _serve_in_process(self, inbox: Inbox, outbox: Outbox) -> None:
        await in_process.serve(self._catalog, inbox, outbox.send_nowait)

    def run_stdio(self, *, backend: Literal["asyncio", "trio"] = "asyncio") -> None:
        """Serve one client over stdin and stdout until stdin ends: for ``if __name__ == "__main__"``.

        The output of tools, and of processes that they start, goes to stderr.
        """
        from mcp_host.serving.stdio import run  # here, because only a program needs it

        run(self._catalog, backend)

    def asgi(self, *, json_response: bool = False, path: str = "/mcp") -> HttpApp:
        """This server as a plain ASGI application, with its MCP endpoint at *path*.

        With *json_response* a POST is answered in JSON; progress and requests to the client
        then use the GET stream. Since 2026-07-28 there is none, and progress is lost.
        """
        from mcp_host.serving.http.app import HttpApp  # here, because most servers do not use HTTP

        app = HttpApp(self._catalog, json_response=json_response, path=path)
        self._apps.add(app)
        return app

    @asynccontextmanager
    async def http(
        self, *, json_response: bool = False, uds: str | os.PathLike[str] | None = None
    ) -> AsyncIterator[str]:
        """Serve over Streamable HTTP under uvicorn, on a free port of 127.0.0.1; the value is the URL.

        *uds* is the path of a unix socket to serve at instead: connect with ``StreamableHttp(url, uds=...)``.
        A socket that a killed server has left there is replaced.
        uvicorn and the functions of this server run in another thread.

        Raises:
            ImportError: uvicorn is missing; it comes with the extra ``mcp-host[testing]``.
            OSError: There is another file at *uds*, or a server that listens.
        """
        from mcp_host.serving.http.uvicorn_server import serve  # here, because only this needs uvicorn

        path = None if uds is None else os.fspath(uds)
        async with serve(self.asgi(json_response=json_response), path) as url:
            yield url

    def run_http(self, port: int = 0, *, json_response: bool = False) -> None:
        """Serve over Streamable HTTP on 127.0.0.1 until interrupted: for ``if __name__ == "__main__"``.

        The first line on stdout is the URL; without a *port*, any free one is taken.

        Raises:
            ImportError: uvicorn is missing; it comes with the extra ``mcp-host[testing]``.
        """
        from mcp_host.serving.http.uvicorn_server import listen, run  # here, because only this needs uvicorn

        with listen(port) as listener:
            run(self.asgi(json_response=json_response), listener)

    async def expire_sessions(self) -> None:
        """Lose every HTTP session, as a restarted server does: open requests end, and later ones get a 404.

        Functions that are suspended (since 2026-07-28) are cancelled as well.
        """
        for app in list(self._apps):
            await app.lose_sessions()

    async def drop_streams(self, *, retry: float | None = None) -> None:
        """Cut every open HTTP response. What is sent meanwhile waits for a client that resumes.

        *retry* first tells the client for how many seconds to wait before that. Since 2026-07-28
        no client can resume, and the requests are cancelled.
        """
        field = b"" if retry is None else b"retry: %d\n\n" % round(retry * 1000)
        for app in list(self._apps):
            await app.drop_streams(field)
