"""A small provider of models at a local URL, for tests of cassettes: its answers are new in each run but mean the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from secrets import token_hex
from typing import Any, Literal, TypeAlias

Scope = MutableMapping[str, Any]
Send = Callable[[Scope], Awaitable[None]]
Receive = Callable[[], Awaitable[Scope]]

Library: TypeAlias = Literal["httpx", "httpx2"]

JSON = "application/json"
EVENTS = "text/event-stream"


class Provider:
    """Answers POSTs by their path, and counts them."""

    def __init__(self) -> None:
        self.requests = 0
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += 1
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        match scope["path"]:
            case "/messages":
                await self._answer(send, 200, JSON, json.dumps(answer(json.loads(body))).encode())
            case "/limited":
                await self._answer(send, 429, JSON, b'{"error": {"type": "rate_limit"}}', ("retry-after", "7"))
            case "/echo":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                said = {"headers": headers, "query": scope["query_string"].decode(), "body": body.decode()}
                await self._answer(
                    send, 401, JSON, json.dumps(said).encode(), ("set-cookie", "session=abcdefgh; Secure")
                )
            case "/lines":
                await self._answer(send, 200, "application/x-ndjson", b'{"text": "3 "}\n{"text": "4", "done": true}\n')
            case "/bytes":
                await self._answer(send, 200, "audio/wav", b"RIFF\xff\x00")
            case "/stream" | "/broken" | "/endless" as path:
                await self._stream(send, path)

    async def _answer(self, send: Send, status: int, kind: str, body: bytes, *headers: tuple[str, str]) -> None:
        both = [("content-type", kind), ("date", token_hex(4)), ("request-id", token_hex(4)), *headers]
        raw = [(name.encode(), value.encode()) for name, value in both]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Send, path: str) -> None:
        headers = [(b"content-type", EVENTS.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for text in ("Hel", "lo\n"):
            event = f"event: delta\ndata: {json.dumps({'type': 'delta', 'text': text})}\n\n"
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        if path == "/broken":
            await send({"type": "http.response.body", "body": b"event: del", "more_body": True})
            raise ConnectionError("the provider breaks off")  # uvicorn closes the connection
        if path == "/endless":
            await asyncio.Event().wait()  # until the client leaves, which cancels this
        await send({"type": "http.response.body", "body": b": ping\n\nid: 1\nretry: 5\ndata: [DONE]\n\n"})


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Call `multiply` first, then tell what it gave. The ids are random, as a provider's are."""
    last = asked["messages"][-1]["content"]
    if isinstance(last, list) and last[0]["type"] == "tool_result":
        content = [{"type": "text", "text": last[0]["content"]}]
    else:
        left, right = [int(word) for word in last.split() if word.isdigit()]
        call = {"type": "tool_use", "id": f"toolu_{token_hex(6)}", "name": "multiply", "input": {"a": left, "b": right}}
        content = [call]
    return {"id": f"msg_{token_hex(6)}", "type": "message", "content": content}
