"""mcp-host, as its tutorial uses it; with one middleware, or with an adapter of models, if there is an argument."""

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

ADAPTER = "adapter"
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
    kinds = [kind for kind in sys.argv[1:] if kind != ADAPTER]
    async with Client(transport, sampling=sampling(model), middleware=[*map(middleware, kinds)]) as client:
        yield Session(client)


def sampling(model: Model | None) -> Sampling | None:
    if model is None:
        return None

    if ADAPTER in sys.argv:
        from mcp_host.providers.anthropic import AnthropicModel

        return Sampling(with_tools=AnthropicModel(FreeSdk(model), "free"), approve=always, limits=LIMITS)

    async def handler(request: SamplingRequest) -> CreateMessageResult:
        return request.reply(model(len(request.tools), len(request.messages)))

    return Sampling(with_tools=handler, approve=always, limits=LIMITS)


class FreeSdk:
    """Stands for the client of an SDK: the model costs nothing, so what is measured is the adapter."""

    def __init__(self, model: Model) -> None:
        self.messages = self
        self._model = model

    async def create(self, **body: Any) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": self._model(len(body.get("tools", ())), len(body["messages"]))}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7},
        }


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
