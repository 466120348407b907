"""mcp-host, as its tutorial uses it; with one middleware, an adapter of models, httpx or OAuth, if there are arguments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.clients.drive import Model, main
from mcp_host import Client, Sampling, SamplingLimits, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.types import CreateMessageResult, ProgressNotificationParams

if TYPE_CHECKING:
    from mcp_host.auth import OAuth
    from mcp_host.middleware import AnyRequest, CallNext, Middleware

ADAPTER, HTTPX, OAUTH, NO_OAUTH = "adapter", "httpx", "oauth", "no-oauth"
HOUR = 3600.0
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
    kinds = [kind for kind in sys.argv[1:] if kind not in (ADAPTER, HTTPX, OAUTH, NO_OAUTH)]
    async with AsyncExitStack() as stack:
        transport = await over_http(server, stack) if isinstance(server, str) else Stdio(server)
        client = Client(transport, sampling=sampling(model), middleware=[*map(middleware, kinds)])
        yield Session(await stack.enter_async_context(client))


async def over_http(url: str, stack: AsyncExitStack) -> StreamableHttp:
    auth = await authorization(url) if {OAUTH, NO_OAUTH} & {*sys.argv} else None
    if NO_OAUTH in sys.argv:  # the same objects are in memory, which changes what the garbage collector costs
        auth = None
    if HTTPX not in sys.argv:
        return StreamableHttp(url, auth=auth)
    import httpx

    client = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
    return StreamableHttp(url, client=client, auth=auth)


async def authorization(url: str) -> OAuth:
    """An `OAuth` that has a token for *url*, as after a login."""
    from mcp_host.auth import MemoryTokens, OAuth

    server = {"issuer": url, "authorization_endpoint": url, "token_endpoint": url}
    now = time.time()
    token = {"access_token": 40 * "a", "refresh_token": "r", "expires_at": now + HOUR, "refresh_at": now + HOUR}
    saved = {
        "resource": {"identifier": url, "authorization_servers": [url], "scopes": None},
        "server": server,
        "client": {"id": "bench"},
        "token": token,
    }
    tokens = MemoryTokens()
    await tokens.swap(f"server {url}", None, json.dumps(saved))
    return OAuth(tokens=tokens)


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
