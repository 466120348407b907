"""The names that snippets of the docs may use: a server, its URL, a model and a few stand-ins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

import mcp_host
import mcp_host.types
from mcp_host import SamplingRequest, ServerSampling, ToolCall
from mcp_host.testing import Context, Server
from mcp_host.types import CreateMessageResult, ToolResultContent

server = Server("tides", instructions="Ask about tides.")


def height(port: str) -> float:
    """The height of the next high water in metres."""
    return {"Brest": 6.1, "Dover": 6.8}.get(port, 1.0)


@server.tool
async def research(topic: str, context: Context) -> str:
    """Research a topic with the host's model, which may ask for heights of the tide."""
    return (await context.sample_loop(f"What about {topic}?", tools=[height])).text


@server.tool
async def summarize(text: str, context: Context) -> str:
    """Summarize a text with the host's model."""
    return (await context.sample(f"Summarize: {text}")).text


@server.tool
async def book(context: Context) -> str:
    """Book a berth: asks the user which, and for how many nights."""
    fields = {"port": {"type": "string"}, "nights": {"type": "integer", "default": 1}}
    form = {"type": "object", "properties": fields, "required": ["port"]}
    result = await context.elicit("Where to?", form)
    return f"booked: {result.content}" if result.action == "accept" else f"the user chose: {result.action}"


@server.tool
async def sign_in(context: Context) -> str:
    """Sign in, in the user's browser."""
    result = await context.elicit_url("Sign in to the harbour.", "https://harbour.example/sign-in", "e-1")
    return result.action


@server.tool
async def folders(context: Context) -> list[str]:
    """The folders that the host lets us work in."""
    return [root.uri for root in await context.list_roots()]


@server.tool
async def measure(context: Context) -> str:
    """Measure for a while, and report progress."""
    for done in range(1, 4):
        await context.report_progress(done, 3, f"buoy {done}")
    return "3 buoys"


@server.resource("tides://today")
def today() -> str:
    """Today's tides."""
    return "high at noon"


async def model(request: SamplingRequest) -> CreateMessageResult:
    """Calls a tool for two ports at once if it may use tools, then answers."""
    if request.may_use_tools and not isinstance(request.messages[-1].content[0], ToolResultContent):
        return request.calls(ToolCall("height", {"port": "Brest"}), ToolCall("height", {"port": "Dover"}))
    return request.reply("Dover is higher.", model="a model")


def host_says(*turns: str | ToolCall, with_tools: bool = True) -> ServerSampling:
    """Stands for `context`, or for the `sampling` of another server: its host's model gives these answers, in order."""
    left = iter(turns)

    async def create_message(params: dict[str, Any]) -> dict[str, Any]:
        turn, id = next(left), f"call_{len(params['messages'])}"
        if isinstance(turn, str):
            return {
                "role": "assistant",
                "content": {"type": "text", "text": turn},
                "model": "m",
                "stopReason": "endTurn",
            }
        use = {"type": "tool_use", "id": id, "name": turn.name, "input": turn.arguments}
        return {"role": "assistant", "content": use, "model": "m", "stopReason": "toolUse"}

    return ServerSampling(create_message, with_tools=with_tools)


@dataclass
class Answer:
    """A response of the stand-in for a provider's SDK, in the shape of Anthropic's Messages API."""

    content: Sequence[Any]
    stop_reason: str
    model: str = "claude-of-the-docs"


@dataclass
class Part:
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)


class Messages:
    """Answers like the API: calls a tool first, and gives a text after its result."""

    async def create(self, *, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **rest: Any) -> Answer:
        seen = [block["type"] for message in messages for block in message["content"]]
        if tools and "tool_result" not in seen:
            return Answer([Part("tool_use", id="toolu_1", name=tools[0]["name"], input={"port": "Brest"})], "tool_use")
        return Answer([Part("text", text="6.1 metres.")], "end_turn")


class Anthropic:
    """Stands for `anthropic.AsyncAnthropic()`: no key, no network."""

    messages = Messages()


@asynccontextmanager
async def given() -> AsyncIterator[dict[str, object]]:
    """The names that every snippet may use, while the server runs."""
    async with server.http() as url, httpx.AsyncClient(trust_env=False) as http_client:
        yield {
            **{name: getattr(mcp_host, name) for name in mcp_host.__all__},
            **{name: getattr(mcp_host.types, name) for name in ("CreateMessageResult", "TextContent", "UserMessage")},
            "anthropic": Anthropic(),
            "height": height,
            "host_says": host_says,
            "http_client": http_client,
            "model": model,
            "server": server,
            "transport": server.in_process(),
            "url": url,
        }
