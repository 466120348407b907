"""A small real MCP server, for agent hosts to test against."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload
from weakref import WeakSet

from anyio import create_task_group

from mcp_host.protocol.jsonrpc import Id, Message, decode, encode
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.testing._server.broadcaster import AudienceT, Broadcaster
from mcp_host.testing._server.catalog import (
    Catalog,
    CompletionFunction,
    FunctionPrompt,
    FunctionResource,
    FunctionTemplate,
    template_pattern,
)
from mcp_host.testing._server.dispatcher import leave_open
from mcp_host.testing._server.event_loop import EventLoop
from mcp_host.testing._server.functions import AnyFunction, Function
from mcp_host.testing._server.revision import given
from mcp_host.testing._server.session import Session
from mcp_host.testing._server.tools import function_tool
from mcp_host.transports.base import deliver
from mcp_host.transports.in_process import Inbox, InProcess, Outbox
from mcp_host.types import (
    Implementation,
    JSONObject,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    ToolAnnotations,
)

if TYPE_CHECKING:
    from mcp_host.testing._http.app import HttpApp

FunctionT = TypeVar("FunctionT", bound=AnyFunction)
CompletionT = TypeVar("CompletionT", bound=CompletionFunction)


class Server:
    """A server made of typed functions, plain or async. What its users see is what the functions say.

    >>> server = Server("calculator")
    >>> @server.tool
    ... async def add(a: float, b: float) -> float:
    ...     "Add two numbers."
    ...     return a + b
    >>> async with Client(server) as client:
    ...     result = await client.call_tool("add", {"a": 1, "b": 2})

    It runs in process, as a child process over stdio and over Streamable HTTP, for any
    number of clients at a time. A parameter annotated with `Context` gets the client that
    made the call: it can be sampled, asked and told things.

    *versions* are the protocol revisions it speaks, the preferred one first: 2026-07-28 and
    those with a handshake, to whoever speaks them, on the same endpoint. *page_size* cuts its
    lists into pages. *ttl* is for how many seconds clients may keep what they have listed or
    read (since 2026-07-28).

    In 2026-07-28 a function that asks its client something is suspended until the client comes
    back with the answer: for up to *resume_timeout* seconds, after which it is cancelled, and
    up to *max_suspended* functions at a time, on each connection or HTTP endpoint.
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
        self._catalog = Catalog(
            Implementation(name=name, version=version),
            instructions,
            tuple(versions),
            page_size,
            ttl,
            resume_timeout,
            max_suspended,
        )
        self._audiences: dict[Broadcaster, EventLoop] = {}
        self._apps: WeakSet[HttpApp] = WeakSet()

    # What it offers

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
        annotations: ToolAnnotations | None = None,
        output_schema: JSONObject | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(
        self,
        function: FunctionT | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        output_schema: JSONObject | None = None,
    ) -> FunctionT | Callable[[FunctionT], FunctionT]:
        """Register a function as a tool: its signature is the input schema, its docstring the description.

        It returns text, content blocks, or anything that is JSON; a return annotation that
        is not text or content becomes the output schema (*output_schema* replaces it, true
        or not), and the value becomes structured content. What it raises is a result with
        *is_error*: a `ToolError` with its text, anything else without.

        Raises:
            TypeError: The signature has no JSON Schema, or there is no name.
        """

        def register(function: FunctionT) -> FunctionT:
            tool = function_tool(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                output_schema=output_schema,
            )
            self._catalog.tools[tool.definition.name] = tool
            return function

        return register if function is None else register(function)

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer; `notify_tools_changed` says so."""
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
        """Register a function of no arguments as the resource at *uri*.

        It returns text, bytes, `TextResourceContents` or `BlobResourceContents` (or a list
        of them), or anything else, which is written as JSON.
        """

        def register(function: FunctionT) -> FunctionT:
            read = Function(function)
            described = _described(read, title, description, mime_type)
            self._catalog.resources[uri] = FunctionResource(
                Resource(uri=uri, name=name or read.name, **described), read
            )
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
        """Register a function as all resources under a template, ``notes://{id}``; it takes the template's names.

        ``{id}`` stands for one path segment, ``{+path}`` for any number. It returns what a resource returns.
        """

        def register(function: FunctionT) -> FunctionT:
            read = Function(function, strict=False)  # everything in a URI is text; the signature may want numbers
            described = _described(read, title, description, mime_type)
            definition = ResourceTemplate(uri_template=uri_template, name=name or read.name, **described)
            self._catalog.templates[uri_template] = FunctionTemplate(definition, read, template_pattern(uri_template))
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
        """Register a function as a prompt; its parameters are the blanks. It returns text or `PromptMessage`s."""

        def register(function: FunctionT) -> FunctionT:
            fill_in = Function(function, strict=False)  # the protocol's prompt arguments are all text
            blanks = [
                PromptArgument(name=blank.name, required=blank.required, **given(description=blank.description))
                for blank in fill_in.parameters
            ]
            definition = Prompt(
                name=name or fill_in.name, arguments=blanks, **_described(fill_in, title, description, None)
            )
            self._catalog.prompts[definition.name] = FunctionPrompt(definition, fill_in)
            return function

        return register if function is None else register(function)

    def completion(self, of: str, argument: str) -> Callable[[CompletionT], CompletionT]:
        """Register what completes an argument of the prompt, or of the resource template, named *of*.

        The function takes what was typed so far and the arguments that are settled, and
        returns suggestions; the first 100 are sent.
        """

        def register(function: CompletionT) -> CompletionT:
            self._catalog.completions[of, argument] = function
            return function

        return register

    # What it says unasked

    async def notify_tools_changed(self) -> None:
        """Tell every client that the tools are others now (since 2026-07-28: that listens for it)."""
        await self._announce("notifications/tools/list_changed", {})

    async def notify_prompts_changed(self) -> None:
        """Tell every client that the prompts are others now (since 2026-07-28: that listens for it)."""
        await self._announce("notifications/prompts/list_changed", {})

    async def notify_resources_changed(self) -> None:
        """Tell every client that the resources are others now (since 2026-07-28: that listens for it)."""
        await self._announce("notifications/resources/list_changed", {})

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell every client that has subscribed to *uri* that it has changed."""
        await self._announce("notifications/resources/updated", {"uri": uri})

    async def end_subscriptions(self) -> None:
        """End every subscription of revision 2026-07-28 with its result, as a server does that shuts down."""
        for audience, event_loop in list(self._audiences.items()):
            await event_loop.run(audience.end_subscriptions)

    async def _announce(self, method: str, params: dict[str, Any]) -> None:
        for audience, event_loop in list(self._audiences.items()):
            await event_loop.run(audience.announce, method, params)

    # How it runs

    def in_process(self) -> InProcess:
        """A transport to this server in this very process. Every connection is a client of its own."""
        return InProcess(self._serve_in_process, name=self.name)

    def run_stdio(self, *, backend: Literal["asyncio", "trio"] = "asyncio") -> None:
        """Serve one client over stdin and stdout until it hangs up: for ``if __name__ == "__main__"``.

        What the tools print goes to stderr, as does the output of processes they start.
        """
        from mcp_host.testing._server.stdio import run  # here, because only a program of its own needs it

        run(self._converse, backend)

    def asgi(self, *, json_response: bool = False, path: str = "/mcp") -> HttpApp:
        """This server as a plain ASGI application, its MCP endpoint at *path*.

        With *json_response* it answers a POST in JSON, which leaves the GET stream for
        progress and for what it asks the client. There is none since 2026-07-28: what it
        reports is lost then.
        """
        from mcp_host.testing._http.app import HttpApp  # here, because most servers never see HTTP

        app = HttpApp(self._converse, json_response=json_response, path=path)
        self._apps.add(app)
        return app

    @asynccontextmanager
    async def http(self, *, json_response: bool = False) -> AsyncIterator[str]:
        """Serve over Streamable HTTP under uvicorn, on a free port of 127.0.0.1; the URL to connect to.

        uvicorn runs in a thread, and so do the functions of this server while it serves them.

        Raises:
            ImportError: uvicorn is missing; it comes with the extra ``mcp-host[testing]``.
        """
        _require_uvicorn()
        from mcp_host.testing._http.serving import serve  # here, because only this needs uvicorn

        async with serve(self.asgi(json_response=json_response)) as port:
            yield _url(port)

    def run_http(self, port: int = 0, *, json_response: bool = False) -> None:
        """Serve over Streamable HTTP on 127.0.0.1 until interrupted: for ``if __name__ == "__main__"``.

        The first line on stdout is the URL; without a *port*, any free one is taken.

        Raises:
            ImportError: uvicorn is missing; it comes with the extra ``mcp-host[testing]``.
        """
        _require_uvicorn()
        from mcp_host.testing._http.serving import run  # here, because only this needs uvicorn

        run(self.asgi(json_response=json_response), port, lambda port: print(_url(port), flush=True))

    async def expire_sessions(self) -> None:
        """Lose every HTTP session, as a restarted server does: their requests end, and the next ones get a 404.

        Functions that are suspended since 2026-07-28 are lost as well.
        """
        for app in list(self._apps):
            await app.aclose()

    async def drop_streams(self, *, retry: float | None = None) -> None:
        """Cut every HTTP response that is under way. What is said meanwhile waits for a client that resumes.

        *retry* tells the client first how many seconds to wait before that. Since 2026-07-28
        no client can resume, and the requests are cancelled.
        """
        farewell = b"" if retry is None else b"retry: %d\n\n" % round(retry * 1000)
        for app in list(self._apps):
            await app.drop_streams(farewell)

    @contextmanager
    def _converse(self, audience_for: Callable[[Catalog], AudienceT]) -> Iterator[AudienceT]:
        """One conversation, from beginning to end, in the event loop of whoever serves it."""
        audience = audience_for(self._catalog)
        self._audiences[audience] = EventLoop()
        try:
            yield audience
        finally:
            del self._audiences[audience]

    async def _serve_in_process(self, inbox: Inbox, outbox: Outbox) -> None:
        def send(message: Message, origin: Id | None) -> None:
            outbox.send_nowait(encode(message))

        async with create_task_group() as tasks:
            with self._converse(lambda catalog: Session(catalog, tasks, send, leave_open)) as session:
                async for raw in inbox:
                    deliver(decode(raw), session.receive)
            tasks.cancel_scope.cancel()


def _require_uvicorn() -> None:
    try:
        import_module("uvicorn")
    except ModuleNotFoundError as exc:
        raise ImportError("serving over HTTP needs uvicorn: pip install 'mcp-host[testing]'") from exc


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


def _described(
    function: Function, title: str | None, description: str | None, mime_type: str | None
) -> Mapping[str, Any]:
    return given(title=title, description=description or function.description, mime_type=mime_type)
