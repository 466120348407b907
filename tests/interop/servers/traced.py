"""A server that traces with OpenTelemetry's SDK, on the official Python SDK or on FastMCP.

Runs in the environment that `run.py` installs: ``traced.py sdk|fastmcp stdio|http PORT MARK``.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import sys
from typing import Any

from mcp_types import SamplingMessage, TextContent
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

kind, transport, port = sys.argv[1], sys.argv[2], int(sys.argv[3])

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

if kind == "fastmcp":
    from fastmcp import Context, FastMCP

    mcp = FastMCP("traced")
else:
    from mcp.server.mcpserver import Context, MCPServer

    mcp = MCPServer("traced")


@mcp.tool()
async def trace_id() -> str:
    """The trace that this runs in."""
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@mcp.tool()
async def ask(ctx: Context) -> str:
    """Ask the client's model, as servers of the official SDK do until 2025-11-25."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Why?"))
    answer = await ctx.session.create_message(
        [question], max_tokens=10, related_request_id=ctx.request_context.request_id
    )
    return answer.content.text


@mcp.tool()
async def spans() -> dict[str, Any]:
    """The spans that have ended."""
    ended = [
        {
            "name": span.name,
            "kind": span.kind.name,
            "trace": f"{span.context.trace_id:032x}",
            "span": f"{span.context.span_id:016x}",
            "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        }
        for span in exporter.get_finished_spans()
    ]
    return {"spans": ended}


if __name__ == "__main__":
    if transport == "stdio":
        mcp.run()
    elif kind == "fastmcp":
        mcp.run("http", host="127.0.0.1", port=port)
    else:
        mcp.run("streamable-http", host="127.0.0.1", port=port)
