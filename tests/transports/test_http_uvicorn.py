"""Streamable HTTP against a real server: a session from its beginning to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from mcp_host.protocol.jsonrpc import Incoming, Request, Success
from tests.asgi import serving
from tests.transports.http_peers import (
    CALL,
    DONE,
    DONE_JSON,
    INITIALIZE,
    INITIALIZED,
    VERSION,
    WELCOME,
    Log,
    RecordedHandle,
    event,
    opened,
)

QUESTION = b'{"jsonrpc":"2.0","id":"q-1","method":"sampling/createMessage","params":{}}'
UNPROMPTED = b'{"jsonrpc":"2.0","id":"q-2","method":"roots/list","params":{}}'


class Asgi:
    """A server that asks something back during a call, and something else on its own stream."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.deleted: list[str] = []
        self.clients: set[tuple[str, int]] = set()
        self._answered: dict[str, Any] = {}

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        assert scope["type"] == "http"
        self.clients.add(tuple(scope["client"]))
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] == "DELETE":
            self.deleted.append(headers["mcp-session-id"])
            await reply(send, 200)
        elif scope["method"] == "GET":
            await begin(send, "text/event-stream")
            await more(send, event(UNPROMPTED))
            await receive()  # the empty body
            await receive()  # the client hangs up
        else:
            await self._post(json.loads((await receive())["body"]), send)

    async def _post(self, message: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if message.get("method") == "initialize":
            await reply(send, 200, WELCOME, [(b"mcp-session-id", b"s-1")])
        elif message.get("method") == "tools/call":
            answered = self._answered["q-1"] = asyncio.Event()
            await begin(send, "text/event-stream")
            await more(send, event(QUESTION))
            await answered.wait()
            await more(send, event(DONE_JSON))
            await send({"type": "http.response.body"})
        elif "method" in message:
            await reply(send, 202)
        else:
            self.answers.append(message)
            if message["id"] in self._answered:
                self._answered[message["id"]].set()
            await reply(send, 202)


async def begin(send: Callable[[Any], Awaitable[None]], kind: str, status: int = 200, headers: Any = ()) -> None:
    all_headers = [(b"content-type", kind.encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})


async def more(send: Callable[[Any], Awaitable[None]], body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def reply(send: Callable[[Any], Awaitable[None]], status: int, body: bytes = b"", headers: Any = ()) -> None:
    await begin(send, "application/json", status, [(b"content-length", str(len(body)).encode()), *headers])
    await send({"type": "http.response.body", "body": body})


async def test_a_whole_session_with_a_server_that_asks_back_takes_few_connections() -> None:
    app = Asgi()
    unprompted = Log[Incoming]()
    asked: list[list[Incoming]] = []
    with serving(app) as origin:
        async with opened(f"{origin}/mcp") as channel, anyio.create_task_group() as tasks:
            tasks.start_soon(channel.listen, unprompted.append)
            await channel.request(INITIALIZE, {}, RecordedHandle(0))
            await channel.send(INITIALIZED, VERSION)
            for _ in range(20):
                handle = RecordedHandle()

                async def answer_what_came(handle: RecordedHandle = handle) -> None:
                    if len(handle.received) == 1:
                        await channel.send(Success("q-1", {"role": "assistant"}), VERSION)

                handle.on_progress = answer_what_came
                await channel.request(CALL, VERSION, handle)
                asked.append(handle.received)
            await unprompted.reaches(lambda messages: len(messages) == 1)
            tasks.cancel_scope.cancel()

    assert asked == [[Request("q-1", "sampling/createMessage", {}), DONE]] * 20
    assert unprompted == [Request("q-2", "roots/list", {})]
    assert app.answers == [{"jsonrpc": "2.0", "id": "q-1", "result": {"role": "assistant"}}] * 20
    assert app.deleted == ["s-1"]
    assert len(app.clients) <= 4, "the server's stream, a call's, the answer within it, and the end of a stream"
