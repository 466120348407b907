"""The client's side of the dialogue that these tests break: connect, list, a call with progress, one with sampling, close."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import open_process
from anyio.lowlevel import checkpoint

from mcp_host import Client, Limits, Sampling, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.transports.base import Transport
from mcp_host.types import (
    CallToolResult,
    CreateMessageResult,
    ProgressNotificationParams,
    TextContent,
    ToolResultContent,
)
from tests.extent import THOROUGH

LEAN = str(Path(__file__).with_name("lean.py"))
WAYS = [(over, era) for over in ("stdio", "http") for era in ("legacy", "modern")]
"""How a dialogue may go; `few_ways` has each transport and each era once."""

PATIENT = Limits(connect_timeout=30, idle_timeout=30, timeout=30, close_timeout=3)
"""For faults that show by themselves: reached only where a wait has no end."""


def few_ways() -> list[tuple[str, str]]:
    return WAYS if THOROUGH else [("stdio", "legacy"), ("http", "modern")]


def points(count: int, few: int) -> list[int]:
    """1 to *count*, as `make faults` has it; or a *few* of these, equally far apart."""
    if THOROUGH or few >= count:
        return list(range(1, count + 1))
    return [1 + int((step + 0.5) * count / few) for step in range(few)]


@dataclass(frozen=True)
class Fate:
    """How a lean server ends: at its *nth* reading or writing, while *mortal* is there."""

    end: str
    at: str
    nth: int
    mortal: Path

    def arguments(self) -> list[str]:
        return ["--end", self.end, "--at", self.at, "--nth", str(self.nth), "--while", str(self.mortal)]


def lean_stdio(era: str, fate: Fate | None = None) -> Stdio:
    return Stdio(_command("stdio", era, fate), restart=False)


@asynccontextmanager
async def lean_http(era: str, fate: Fate | None = None, *, port: int = 0) -> AsyncIterator[int]:
    """The port of a server that runs inside."""
    async with await open_process([*_command("http", era, fate), "--port", str(port)], stderr=None) as process:
        assert process.stdout is not None
        try:
            yield int(await process.stdout.receive())
        finally:
            if process.returncode is None:
                process.kill()


def http_at(port: int) -> StreamableHttp:
    return StreamableHttp(f"http://127.0.0.1:{port}/mcp")


@asynccontextmanager
async def lean_server(over: str, era: str) -> AsyncIterator[Transport]:
    """How to reach a server that has nothing but the best of intentions."""
    if over == "stdio":
        yield lean_stdio(era)
        return
    async with lean_http(era) as port:
        yield http_at(port)


def _command(over: str, era: str, fate: Fate | None) -> list[str]:
    # -S and -E: nothing of site-packages, and a start in a few milliseconds
    return [sys.executable, "-S", "-E", LEAN, over, era, *(() if fate is None else fate.arguments())]


class Model:
    """Calls the tool it is offered, then says what came of it. Knows how many are waiting for it."""

    def __init__(self) -> None:
        self.busy = 0

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.busy += 1
        try:
            await checkpoint()  # where it can be cancelled, as any model can
            return self._answer(request)
        finally:
            self.busy -= 1

    def _answer(self, request: SamplingRequest) -> CreateMessageResult:
        match request.messages[-1].content:
            case [ToolResultContent(content=[TextContent(text=result)])]:
                return request.reply(result)
        return request.call("add", {"a": 1, "b": 1})


class Dialogue:
    """One client and how far it has come. Every step asserts on what it gets."""

    def __init__(self, transport: Transport, limits: Limits = PATIENT) -> None:
        self.model = Model()
        self.client = Client(transport, sampling=Sampling(with_tools=self.model, approve=always), limits=limits)
        self.stage = "connect"

    async def run(self) -> None:
        await self.connect()
        await self.call()
        await self.close()

    async def connect(self) -> None:
        self.stage = "connect"
        await self.client.connect()

    async def call(self) -> None:
        self.stage = "call"
        assert [tool.name for tool in await self.client.list_tools()] == ["echo", "count", "ask", "wait"]
        reports: list[float] = []

        async def note(report: ProgressNotificationParams) -> None:
            reports.append(report.progress)

        assert texts(await self.client.call_tool("count", on_progress=note)) == ["counted"]
        assert reports == [1, 2]
        assert texts(await self.client.call_tool("ask")) == ["2"]

    async def close(self) -> None:
        self.stage = "close"
        await self.client.aclose()
        self.stage = "closed"

    async def works(self) -> None:
        """The same client can still be connected, used and closed."""
        await self.run()
        assert self.model.busy == 0


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]
