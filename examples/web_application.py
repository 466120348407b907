"""A web application: its users share one client, and each is asked about their own calls only."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from web_questions import Questions

from mcp_host import Client, Sampling, SamplingLimits, Stdio
from mcp_host.errors import ConnectionClosed, ConnectTimeout, InputNotGiven

CALCULATOR = Stdio([sys.executable, Path(__file__).with_name("calculator_server.py")])
MANY = SamplingLimits(at_once=1000, at_once_per_server=1000)  # a user who does not answer must not block the others


@asynccontextmanager
async def until_the_browser_leaves(request: Request) -> AsyncIterator[None]:
    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield
        tasks.cancel_scope.cancel()


def make_app(server: Stdio | str = CALCULATOR) -> Starlette:
    questions = Questions(seconds=60)
    sampling = Sampling(with_tools=lambda request: "Four, I believe.", approve=questions.approve, limits=MANY)
    client = Client(server, sampling=sampling, lazy=True)

    async def ask(request: Request) -> Response:
        body = await request.json()  # the user, too: take yours from the session, which a browser cannot forge
        async with until_the_browser_leaves(request):
            try:
                result = await client.call_tool("solve", {"problem": body["problem"]}, caller=body["user"], timeout=300)
            except InputNotGiven:  # before 2026-07-28 the server is told, and its result says so
                return Response("not allowed", 403)
            except (ConnectionClosed, ConnectTimeout) as exc:  # log it: the text is not for users
                return Response("the calculator is down", 502 if exc.may_have_run else 503)
            return Response(result.text, 502 if result.is_error else 200)
        return Response(status_code=499)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return Starlette(routes=[Route("/ask", ask, methods=["POST"]), *questions.routes], lifespan=lifespan)
