"""A web application: its users share one client, and each is asked about their own calls only."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from web_questions import Questions
from web_requests import http_status, until_the_browser_leaves

from mcp_host import Client, Sampling, SamplingLimits, Stdio
from mcp_host.errors import McpError

CALCULATOR = Stdio([sys.executable, Path(__file__).with_name("calculator_server.py")])
MANY = SamplingLimits(at_once=1000, at_once_per_server=1000)  # a user who does not answer must not block the others


def make_app(server: Stdio | str = CALCULATOR) -> Starlette:
    questions = Questions(seconds=60)
    sampling = Sampling(with_tools=lambda request: "Four, I believe.", approve=questions.approve, limits=MANY)
    client = Client(server, name="calculator", sampling=sampling, lazy=True)

    async def ask(request: Request) -> Response:
        body = await request.json()  # the user, too: take yours from the session, which a browser cannot forge
        async with until_the_browser_leaves(request):
            try:
                result = await client.call_tool("solve", {"problem": body["problem"]}, caller=body["user"], timeout=300)
            except McpError as exc:  # log it: the text is not for users
                return Response("the calculator cannot answer", http_status(exc))
            return Response(result.text, 502 if result.is_error else 200)
        return Response(status_code=499)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return Starlette(routes=[Route("/ask", ask, methods=["POST"]), *questions.routes], lifespan=lifespan)
