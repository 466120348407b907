"""mcp-host with one part more, and without: ``variants.py NAME CLOCK`` takes jobs, and prints the ratios of their costs.

Both clients are in one process and take turns. A part may cost a few per cent: two processes, or two minutes, differ by more.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ctypes import CDLL
from functools import partial
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.clients import ours
from benchmarks.clients.drive import Driver, Model, Open, expect
from benchmarks.clients.free_models import ADAPTERS
from benchmarks.clients.ours import Session
from benchmarks.job import Job, Server
from mcp_host import Client
from mcp_host.auth import OAuth, Registered
from mcp_host.middleware import AnyRequest, CallNext, Middleware
from mcp_host.telemetry import OpenTelemetry

TURNS = 10
CALLBACK = "http://127.0.0.1:1/callback"  # no one opens it
HOUR = 3600.0
ADDR_NO_RANDOMIZE = 0x0040000  # of personality(2), inherited by child processes


Clock = Callable[[], float]
"""Tells seconds, from any start."""

CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "time": time.perf_counter}
"""What an operation costs: the CPU of the client, or the time that passes, in which the server works, too."""


def main(base: Open, variant: Open, clock: Clock) -> None:
    """Do the jobs that come on stdin, one a line, and print the ratios for each."""
    make_servers_alike()
    for line in sys.stdin:
        print(json.dumps(asyncio.run(compare(base, variant, Job(*json.loads(line)), clock))), flush=True)


def make_servers_alike() -> None:
    """Have the stdio servers of both clients run on this processor, and at the same addresses.

    Else a pipe costs one of the clients up to a tenth more: processors predict better what has the addresses of their own code.
    """
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    CDLL(None).personality(ADDR_NO_RANDOMIZE)


async def compare(base: Open, variant: Open, job: Job, clock: Clock, turns: int = TURNS) -> list[float]:
    """What the job's operations cost with *variant*, divided by what they cost with *base*, in each turn.

    In half of the turns *base* was opened first, and *variant* in the others: the first is a little slower.
    """
    ratios = await take_turns(base, variant, job, clock, turns)
    return ratios + [1 / ratio for ratio in await take_turns(variant, base, job, clock, turns)]


async def take_turns(base: Open, variant: Open, job: Job, clock: Clock, turns: int) -> list[float]:
    """A turn is the job's operations with *variant*. Its base is the mean of the same just before and just after."""
    ratios: list[float] = []
    async with Driver(base, job).connected() as without, Driver(variant, job).connected() as with_it:
        for repeat in (without, with_it):
            await repeat(job.warm_up)
        gc.collect()
        gc.freeze()
        before = await cost(without, job, clock)
        for _ in range(turns):
            between, after = await cost(with_it, job, clock), await cost(without, job, clock)
            ratios.append(2 * between / (before + after))
            before = after
        gc.unfreeze()
    return ratios


async def cost(repeat: Callable[[int], Awaitable[None]], job: Job, clock: Clock) -> float:
    """Seconds that the job's operations take."""
    start = clock()
    await repeat(job.operations)
    return clock() - start


# Middleware


def with_middleware(make: Callable[[], Middleware]) -> Open:
    return lambda server, model: ours.open(server, model, middleware=[make()])


async def pass_on(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
    return await call_next(request)


def with_sdk() -> OpenTelemetry:
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return OpenTelemetry(tracer_provider=tracer_provider, meter_provider=MeterProvider([InMemoryMetricReader()]))


# OAuth


@asynccontextmanager
async def over_httpx(server: Server, model: Model | None, auth: OAuth | None = None) -> AsyncIterator[Session]:
    async with httpx.AsyncClient(timeout=None) as client, ours.open(server, model, client=client, auth=auth) as session:
        yield session


class Login:
    """An `OAuth` for a person who agrees at once, and its clock."""

    def __init__(self, url: str) -> None:
        self.url = urljoin(url, f"/protected{urlsplit(url).path}")
        self.oauth = OAuth(
            registration=Registered(token_hex()),  # the server counts the tokens of each client
            login=agree,
            redirect_uri=CALLBACK,
            _clock=lambda: time.time() + self._ahead,
        )
        self._ahead = 0.0

    def end_token(self) -> None:
        self._ahead += HOUR

    @property
    def number(self) -> int:
        """Of the token, as the server counts them."""
        headers = self.oauth.ready("POST", self.url)
        assert headers is not None
        return int(headers["Authorization"].removeprefix("Bearer "))


async def agree(url: str) -> str:
    [state] = parse_qs(urlsplit(url).query)["state"]
    return f"{CALLBACK}?{urlencode({'code': 'yes', 'state': state})}"


class WithRefresh(Session):
    """Its token has ended before each burst of calls, which is behind one refresh."""

    def __init__(self, client: Client, login: Login) -> None:
        super().__init__(client)
        self._login = login
        self._in_flight = 0

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        if self._in_flight == 0:
            self._refreshed = self._login.number + 1
            self._login.end_token()
        self._in_flight += 1
        text = await super().call(tool, arguments, on_progress)
        self._in_flight -= 1
        if self._in_flight == 0:
            expect(self._login.number, self._refreshed)
        return text


def with_token(connect: Callable[..., AbstractAsyncContextManager[Session]], *, ends: bool = False) -> Open:
    @asynccontextmanager
    async def open(server: Server, model: Model | None) -> AsyncIterator[Session]:
        assert isinstance(server, str)
        login = Login(server)
        async with connect(login.url, model, auth=login.oauth) as session:
            yield WithRefresh(session.client, login) if ends else session

    return open


# Each variant with its base

VARIANTS: dict[str, tuple[Open, Open]] = {
    "function": (ours.open, with_middleware(lambda: pass_on)),
    "otel-api": (ours.open, with_middleware(OpenTelemetry)),
    "otel-sdk": (ours.open, with_middleware(with_sdk)),
    **{name: (ours.open, partial(ours.open, handler=adapter)) for name, adapter in ADAPTERS.items()},
    "oauth": (ours.open, with_token(ours.open)),
    "oauth-httpx": (over_httpx, with_token(over_httpx)),
    "refresh": (with_token(ours.open), with_token(ours.open, ends=True)),
    "refresh-httpx": (with_token(over_httpx), with_token(over_httpx, ends=True)),
}


if __name__ == "__main__":
    main(*VARIANTS[sys.argv[1]], CLOCKS[sys.argv[2]])
