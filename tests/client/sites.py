"""Stateless servers over HTTP, each as one function, for the client's tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

from mcp_host import Client, StreamableHttp
from tests.client.support import INITIALIZED
from tests.transports.http_peers import EVENTS, event

DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}},
}
MIRRORED = {
    "name": "query",
    "inputSchema": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        },
    },
}
BROKEN = {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"x-mcp-header": "bad name"}}}}
PLAIN = {"name": "plain", "inputSchema": {"type": "object"}}
SAFE = {"name": "safe", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}}


class Site:
    """A stateless server as one function: *answers* by method, each a result, an error, or something to call."""

    def __init__(self, **answers: Any) -> None:
        self.posts: list[httpx.Request] = []
        self._answers = {"server/discover": DISCOVERED} | {
            name.replace("_", "/"): answer for name, answer in answers.items()
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        self.posts.append(request)
        message = json.loads(request.content)
        answer = self._answers[message["method"]]
        answer = answer(message) if callable(answer) else answer
        if isinstance(answer, httpx.Response):
            return answer
        return response(message, answer)

    def client(self, *, auth: httpx.Auth | None = None, **options: Any) -> Client:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        return Client(StreamableHttp("http://server.test/mcp", client=http, auth=auth), **options)

    @asynccontextmanager
    async def connected(self, *, within: float = 25, **options: Any) -> AsyncIterator[Client]:
        """A connected client. It fails if what is done with it takes longer than *within* seconds."""
        with anyio.fail_after(within):
            async with self.client(**options) as client:
                yield client

    def methods(self) -> list[str]:
        return [json.loads(post.content)["method"] for post in self.posts]


def response(message: Mapping[str, Any], result: object) -> httpx.Response:
    return httpx.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": result})


class EventStream(httpx.AsyncByteStream):
    """The body of a response: these messages and bytes, and a wait for each event of anyio."""

    def __init__(self, *pieces: Mapping[str, Any] | bytes | anyio.Event) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, anyio.Event):
                await piece.wait()
            else:
                yield piece if isinstance(piece, bytes) else event(json.dumps({"jsonrpc": "2.0", **piece}).encode())


def streamed(*pieces: Mapping[str, Any] | bytes | anyio.Event) -> httpx.Response:
    return httpx.Response(200, headers=EVENTS, stream=EventStream(*pieces))


def refused(status: int, code: int, data: object = None) -> Callable[[dict[str, Any]], httpx.Response]:
    def answer(message: dict[str, Any]) -> httpx.Response:
        error = {"code": code, "message": "no"} | ({} if data is None else {"data": data})
        return httpx.Response(status, json={"jsonrpc": "2.0", "id": message["id"], "error": error})

    return answer


def mirrored_headers(post: httpx.Request) -> dict[str, str]:
    return {name: value for name, value in post.headers.items() if name.startswith("mcp-")}


def handshake(message: dict[str, Any]) -> httpx.Response:
    """A server of the handshake era, with unusual answers to unknown requests."""
    return response(message, INITIALIZED)
