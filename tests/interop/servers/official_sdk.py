"""A server written with the official Python SDK, whose tools send requests and report what this client made of them.

Runs in the environment that `run.py` installs: ``official_sdk.py stdio|http|json|stateless PORT MARK``.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
)


class Events(EventStore):
    """What was sent, so that a stream that was closed can be resumed."""

    def __init__(self):
        self._events = []

    async def store_event(self, stream_id, message):
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id, send_callback):
        position = int(last_event_id)
        stream_id = self._events[position - 1][0]
        for index, (stream, message) in enumerate(self._events[position:], start=position + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(index)))
        return stream_id


mcp = MCPServer("official-sdk", version="1.0.0", instructions="For interoperability tests.")

TOOLS = [Tool(name="add", description="Add two numbers", input_schema={"type": "object"})]


def wire(model) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def text(role, words) -> SamplingMessage:
    return SamplingMessage(role=role, content=TextContent(type="text", text=words))


@mcp.tool()
async def handshake(ctx: Context) -> dict[str, Any]:
    """What the client said of itself."""
    params = ctx.session.client_params
    return {"negotiated": ctx.protocol_version, "initialize": wire(params)}


@mcp.tool()
async def ask(question: str, ctx: Context, tools: bool = False, results: list[str] | None = None) -> dict[str, Any]:
    """Send one sampling request, even to a client that declared no sampling, and return its answer or error unchanged.

    With *results* a user message of tool results under these ids follows the question.
    """
    messages = [text("user", question)]
    if results is not None:
        blocks = [ToolResultContent(type="tool_result", tool_use_id=id, content=[]) for id in results]
        messages.append(SamplingMessage(role="user", content=blocks))
    params = CreateMessageRequestParams(messages=messages, max_tokens=500, tools=TOOLS if tools else None)
    try:
        answer = await ctx.session.send_request(
            CreateMessageRequest(params=params),
            CreateMessageResultWithTools,
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
    except MCPError as refusal:
        return {"error": wire(refusal.error)}
    return {"result": wire(answer)}


@mcp.tool()
async def unprompted(question: str, ctx: Context) -> dict[str, Any]:
    """Ask on the connection's own stream instead of this call's."""
    answer = await ctx.session.create_message([text("user", question)], max_tokens=500)
    return wire(answer)


@mcp.tool()
async def count(to: int, ctx: Context, pause_at: int | None = None) -> int:
    """Report progress from 1 to *to*; over HTTP this call's stream is closed at *pause_at*, to be resumed."""
    for step in range(1, to + 1):
        if step == pause_at:
            await ctx.close_sse_stream()
        await ctx.report_progress(step, to, f"step {step}")
    return to


@mcp.tool()
async def lose_patience(ctx: Context) -> list[str]:
    """Ask the client's model, give that up before it answers, and ask again."""
    heard = []
    for timeout in (0.2, None):
        try:
            answer = await ctx.session.send_request(
                CreateMessageRequest(params=CreateMessageRequestParams(messages=[text("user", "?")], max_tokens=500)),
                CreateMessageResultWithTools,
                request_read_timeout_seconds=timeout,
                metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
            )
            heard.append(answer.content.text)
        except MCPError as error:
            heard.append(error.message)
    return heard


HTTP = {
    "http": {"event_store": Events(), "retry_interval": 50},
    "json": {"json_response": True},
    "stateless": {"stateless_http": True},
}

if __name__ == "__main__":
    transport, port = sys.argv[1], int(sys.argv[2])
    if transport == "stdio":
        mcp.run()
    else:
        mcp.run("streamable-http", host="127.0.0.1", port=port, **HTTP[transport])
