"""What the adapter of Chat Completions uses of OpenAI's SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any


class ChatClient:
    """A client whose server answers each request with the next of *bodies*. `asked` has the requests."""

    def __init__(self, *bodies: str, kind: str = "text/event-stream", base_url: str = "http://localhost/v1") -> None:
        self.base_url = base_url
        self.asked: list[dict[str, Any]] = []
        self.chat = SimpleNamespace(completions=self)
        self.with_streaming_response = SimpleNamespace(create=self._stream)
        self._bodies = iter(bodies)
        self._kind = kind

    async def create(self, *, extra_body: dict[str, Any], **arguments: Any) -> Any:
        self.asked.append({**arguments, **extra_body})
        return json.loads(next(self._bodies))

    @asynccontextmanager
    async def _stream(self, *, extra_body: dict[str, Any], **arguments: Any) -> AsyncIterator[Any]:
        self.asked.append({**arguments, **extra_body})
        yield Response(next(self._bodies), self._kind)


class Response:
    """The response of a stream."""

    def __init__(self, body: str, kind: str) -> None:
        self.headers = {"content-type": kind}
        self._body = body

    async def iter_bytes(self) -> AsyncGenerator[bytes]:
        body = self._body.encode()
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]

    async def close(self) -> None:
        pass
