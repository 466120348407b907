"""mcp-host, as its tutorial uses it; with one middleware, if there is an argument."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.clients.drive import Model, main
from mcp_host import Client, Sampling, SamplingLimits, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.types import CreateMessageResult, ProgressNotificationParams

if TYPE_CHECKING:
    from mcp_host.middleware import AnyRequest, CallNext, Middleware

LIMITS = SamplingLimits(messages=512)  # the default is 256, and one row has more


class Session:
    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def server(self) -> str:
        return self._client.server_info.name

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        if on_progress is None:
            return (await self._client.call_tool(tool, arguments)).text

        async def report(params: ProgressNotificationParams) -> None:
            on_progress(params.progress)

        return (await self._client.call_tool(tool, arguments, on_progress=report)).text

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]


@asynccontextmanager
async def open(server: str | list[str], model: Model | None) -> AsyncIterator[Session]:
    transport = StreamableHttp(server) if isinstance(server, str) else Stdio(server)
    async with Client(transport, sampling=sampling(model), middleware=[*map(middleware, sys.argv[1:])]) as client:
        yield Session(client)


def sampling(model: Model | None) -> Sampling | None:
    if model is None:
        return None

    async def handler(request: SamplingRequest) -> CreateMessageResult:
        return request.reply(model(len(request.tools), len(request.messages)))

    return Sampling(with_tools=handler, approve=always, limits=LIMITS)


def middleware(kind: str) -> Middleware:
    if kind == "function":
        return pass_on
    from mcp_host.telemetry import OpenTelemetry

    if kind == "otel-api":
        return OpenTelemetry()
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return OpenTelemetry(tracer_provider=tracer_provider, meter_provider=MeterProvider([InMemoryMetricReader()]))


async def pass_on(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
    return await call_next(request)


if __name__ == "__main__":
    main(open)
