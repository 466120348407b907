"""A server written with the official Python SDK, whose tools report what this client made of their requests.

Runs in the environment that `run.py` installs: ``official_sdk.py stdio|http|json|stateless PORT MARK``.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import sys
from collections import defaultdict
from typing import Any

import anyio
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
    ToolChoice,
    ToolResultContent,
)

cancelled = defaultdict(anyio.Event)  # by the name of a call of `hang`

MAX_TURNS = 8  # of the model, before the server gives up


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

OPERATIONS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
PAIR = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
TOOLS = [Tool(name=name, description=f"{name.capitalize()} two numbers", input_schema=PAIR) for name in OPERATIONS]


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
async def calculate(question: str, ctx: Context) -> dict[str, Any]:
    """Have the client's model answer with this server's calculator; report its answers, and what was run for them."""
    messages, answers, ran = [text("user", question)], [], {}
    while len(answers) < MAX_TURNS:
        answer = await ctx.session.create_message(
            messages,
            max_tokens=500,
            system_prompt="Use the calculator.",
            tools=TOOLS,
            tool_choice=ToolChoice(mode="auto"),
            related_request_id=ctx.request_id,
        )
        answers.append(wire(answer))
        uses = [block for block in answer.content_as_list if block.type == "tool_use"]
        if (answer.stop_reason == "toolUse") != bool(uses):
            raise ValueError(f"stopReason {answer.stop_reason!r} with {len(uses)} tool calls")
        if not uses:
            return {"answers": answers, "ran": ran}
        ran |= {use.id: str(OPERATIONS[use.name](**use.input)) for use in uses}
        messages.append(SamplingMessage(role="assistant", content=answer.content))
        messages.append(SamplingMessage(role="user", content=[result_of(use.id, ran[use.id]) for use in uses]))
    raise ValueError(f"no end after {MAX_TURNS} turns")


def result_of(id, words) -> ToolResultContent:
    return ToolResultContent(type="tool_result", tool_use_id=id, content=[TextContent(type="text", text=words)])


@mcp.tool()
async def ask(question: str, ctx: Context, tools: bool = False, results: list[str] | None = None) -> dict[str, Any]:
    """Send one sampling request whatever the client declared, and report its answer or error as it came.

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
async def hang(name: str) -> None:
    """Never end by itself."""
    try:
        await anyio.sleep_forever()
    finally:
        cancelled[name].set()


@mcp.tool()
async def cancellation_of(name: str) -> str:
    """Wait until the call of `hang` under that name is cancelled."""
    await cancelled[name].wait()
    return name


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
