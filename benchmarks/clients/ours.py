"""mcp-host, as its tutorial uses it; with one middleware, an adapter of models, httpx or OAuth, if there are arguments."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from benchmarks.clients.drive import Model, expect, main
from mcp_host import Client, Sampling, SamplingLimits, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.types import CreateMessageResult, ProgressNotificationParams

if TYPE_CHECKING:
    from mcp_host.middleware import AnyRequest, CallNext, Middleware

ADAPTER, HTTPX, OAUTH, NO_OAUTH, REFRESH = OTHERS = ("adapter", "httpx", "oauth", "no-oauth", "refresh")
CALLBACK = "http://127.0.0.1:1/callback"  # no one opens it
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


class WithRefresh(Session):
    """Its token has ended before each burst of calls, which is behind one refresh."""

    def __init__(self, client: Client, authorization: Authorization) -> None:
        super().__init__(client)
        self._authorization = authorization
        self._expected = authorization.number
        self._in_flight = 0

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        if self._in_flight == 0:
            self._authorization.end_token()
            self._expected += 1
        self._in_flight += 1
        text = await super().call(tool, arguments, on_progress)
        self._in_flight -= 1
        expect(self._authorization.number, self._expected)
        return text


@asynccontextmanager
async def open(server: str | list[str], model: Model | None) -> AsyncIterator[Session]:
    kinds = [kind for kind in sys.argv[1:] if kind not in OTHERS]
    async with AsyncExitStack() as stack:
        if NO_OAUTH in sys.argv:
            Authorization()  # the same modules are in memory, which changes what the garbage collector costs
        authorization = Authorization() if OAUTH in sys.argv else None
        transport = await over_http(server, authorization, stack) if isinstance(server, str) else Stdio(server)
        client = Client(transport, sampling=sampling(model), middleware=[*map(middleware, kinds)])
        await stack.enter_async_context(client)
        yield (
            Session(client) if REFRESH not in sys.argv or authorization is None else WithRefresh(client, authorization)
        )


async def over_http(url: str, authorization: Authorization | None, stack: AsyncExitStack) -> StreamableHttp:
    auth = None
    if authorization is not None:
        authorization.url = url = urljoin(url, f"/protected{urlsplit(url).path}")
        auth = authorization.oauth
    if HTTPX not in sys.argv:
        return StreamableHttp(url, auth=auth)
    import httpx

    client = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
    return StreamableHttp(url, client=client, auth=auth)


class Authorization:
    """An `OAuth` for a person who agrees at once, and its clock."""

    def __init__(self) -> None:
        from mcp_host.auth import OAuth, Registered

        self.url = ""
        self._ahead = 0.0
        self.oauth = OAuth(
            registration=Registered("bench"),
            login=agree,
            redirect_uri=CALLBACK,
            _clock=lambda: time.time() + self._ahead,
        )

    def end_token(self) -> None:
        self._ahead += HOUR

    @property
    def number(self) -> int:
        """Of the token, as the server counts its token requests."""
        headers = self.oauth.ready("POST", self.url)
        assert headers is not None
        return int(headers["Authorization"].removeprefix("Bearer "))


async def agree(url: str) -> str:
    [state] = parse_qs(urlsplit(url).query)["state"]
    return f"{CALLBACK}?{urlencode({'code': 'yes', 'state': state})}"


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
