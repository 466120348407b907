"""Trace a call with OpenTelemetry: the call, what the server asks meanwhile, and the model's answer."""

from __future__ import annotations

import anyio
from opentelemetry import trace  # pip install 'mcp-host[otel]' opentelemetry-sdk
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.telemetry import OpenTelemetry
from mcp_host.testing import Context, Server

# An application would export to a collector, with BatchSpanProcessor(OTLPSpanExporter()).
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

server = Server("geographer")


@server.tool
async def capital(country: str, context: Context) -> str:
    """Name the capital of a country. The trace has arrived in `_meta`."""
    assert "traceparent" in context.meta
    return (await context.sample(f"The capital of {country}?")).text


async def model(request: SamplingRequest) -> str:
    with trace.get_tracer("model").start_as_current_span("look it up"):  # as a provider's SDK does
        return "Paris"


async def main() -> None:
    with trace.get_tracer("agent").start_as_current_span("invoke_agent guide"):
        sampling = Sampling(basic=model, approve=always)
        async with Client(server, sampling=sampling, middleware=[OpenTelemetry()]) as client:
            print((await client.call_tool("capital", {"country": "France"})).text)
    show(None)


def show(parent: ReadableSpan | None, indent: str = "") -> None:
    """Print the spans as a tree."""
    context = None if parent is None else parent.get_span_context()
    children = [span for span in exporter.get_finished_spans() if span.parent == context]
    for span in sorted(children, key=lambda span: span.start_time or 0):
        print(f"{indent}{span.name} ({span.kind.name.lower()})")
        show(span, f"{indent}  ")


if __name__ == "__main__":
    anyio.run(main)
