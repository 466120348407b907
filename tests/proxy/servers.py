"""A server that asks its host for everything, and a host that can do everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anyio import Event, fail_after

from mcp_host import Client, Elicitation, Sampling, always
from mcp_host.protocol.negotiation import LEGACY_VERSIONS, MODERN_VERSIONS, VERSIONS
from mcp_host.proxy import Proxy
from mcp_host.proxy.relay import Relay
from mcp_host.sampling import Approve, SamplingRequest
from mcp_host.testing import Context, RequestError, Server
from mcp_host.types import (
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    ImageContent,
    LoggingLevel,
    TextContent,
    ToolUseContent,
)

ERAS: dict[str, Sequence[str]] = {"legacy": LEGACY_VERSIONS, "modern": MODERN_VERSIONS, "both": VERSIONS}
"""The revisions of a server."""

PICTURE = "iVBORw0KGgo="


def add(a: int, b: int) -> int:
    return a + b


class Planner(Server):
    """`started` is set when `wait` is called, and `cancelled` when that call is cancelled."""

    def __init__(self, versions: Sequence[str] = VERSIONS) -> None:
        super().__init__("planner", versions=versions, instructions="Plan well.")
        self.started, self.cancelled = Event(), Event()
        self._add_tools_that_ask()
        self._add_others()

    def _add_tools_that_ask(self) -> None:
        @self.tool
        async def plan(context: Context, dinner: str) -> str:
            """Three turns with tools."""
            return (await context.sample_loop(dinner, tools=[add])).text

        @self.tool
        async def write(context: Context) -> str:
            return (await context.sample("write")).text

        @self.tool
        async def book(context: Context) -> str:
            await context.report_progress(1, 2, "half")
            await context.log("warning", "careful")
            form = await context.elicit("name?", {"type": "object", "properties": {"name": {"type": "string"}}})
            await context.report_progress(2, 2, "whole")
            return f"{form.action} {(form.content or {}).get('name')}"

        @self.tool
        async def pay(context: Context) -> str:
            paid = await context.elicit_url("Pay", "https://pay.test/", "e1")
            await context.elicit_complete("e1")
            return paid.action

        @self.tool
        async def folders(context: Context) -> list[str]:
            return [root.uri for root in await context.list_roots()]

    def _add_others(self) -> None:
        @self.tool
        async def picture() -> ImageContent:
            return ImageContent(data=PICTURE, mime_type="image/png")

        @self.tool
        async def refuse() -> None:
            raise RequestError(-31999, "no", {"why": ["because"]})

        @self.tool
        async def wait(context: Context) -> None:
            self.started.set()
            try:
                await Event().wait()
            finally:
                self.cancelled.set()

        @self.tool
        async def note(context: Context, level: LoggingLevel) -> None:
            await context.log(level, level)

        @self.resource("mem://menu", mime_type="text/plain")
        async def menu() -> str:
            return "soup"

        @self.prompt
        async def invite(guest: str) -> str:
            return f"Dear {guest}"

        @self.completion("invite", "guest")
        async def guests(typed: str, chosen: object) -> list[str]:
            return [name for name in ("Ada", "Alan") if name.startswith(typed)]

        @self.request_handler("x/echo")
        async def echo(params: dict[str, Any], context: Context) -> dict[str, Any]:
            return {"unknown": params.get("unknown"), "meta": dict(context.meta)}


def model_of(name: str, *, seen: list[SamplingRequest] | None = None, approve: Approve = always) -> Sampling:
    """A model that calls `add` twice if it is on offer, and then says its *name*."""

    async def answer(request: SamplingRequest) -> CreateMessageResult:
        if seen is not None:
            seen.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        if request.tools and turn < 2:
            use = ToolUseContent(id=f"c{turn}", name="add", input={"a": turn, "b": 1})
            return CreateMessageResult(role="assistant", content=[use], model=name, stop_reason="toolUse")
        said = TextContent(text=f"{name} after {turn}")
        return CreateMessageResult(role="assistant", content=[said], model=name, stop_reason="endTurn")

    return Sampling(with_tools=answer, approve=approve)


async def fill_in(request: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


async def visit(request: object) -> ElicitResult:
    return ElicitResult(action="accept")


def user() -> Elicitation:
    return Elicitation(form=fill_in, url=visit)


@asynccontextmanager
async def through(proxy: Proxy, host: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """A host of the revision *host*, connected to *proxy*."""
    with fail_after(25):
        async with Client(proxy, era=host, **options) as client:
            yield client
        await proxy.aclose()


def relay_of(proxy: Proxy) -> Relay:
    """The relay of a proxy of one server."""
    assert isinstance(proxy._service, Relay)
    return proxy._service


def text_of(result: CallToolResult) -> str:
    assert not result.is_error, result
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text
