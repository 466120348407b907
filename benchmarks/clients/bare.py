"""The floor: asyncio and json, and nothing that a client is for. No checks, no limits, no deadlines, no cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from benchmarks.clients.drive import Think, main

Message = dict[str, Any]
UNBOUNDED = 1 << 30
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
)


class Session:
    """Requests and their answers by id; how they travel is for the subclasses."""

    server: str

    def __init__(self, think: Think | None) -> None:
        self._think = think
        self._ids = count(1)
        self._reports: dict[int, Callable[[float], None]] = {}

    async def begin(self) -> None:
        info = {"name": "bare", "version": "1"}
        capabilities: Message = {} if self._think is None else {"sampling": {"tools": {}}}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        result = await self._request("initialize", params)
        self.server = result["serverInfo"]["name"]
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        params: Message = {"name": tool, "arguments": arguments}
        if on_progress is not None:
            token = next(self._ids)
            params["_meta"] = {"progressToken": token}
            self._reports[token] = on_progress
        text: str = (await self._request("tools/call", params))["content"][0]["text"]
        return text

    async def list_tools(self) -> list[str]:
        return [tool["name"] for tool in (await self._request("tools/list", {}))["tools"]]

    async def _request(self, method: str, params: Message) -> Message:
        result: Message = (
            await self._exchange({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params})
        )["result"]
        return result

    def _notice(self, message: Message) -> None:
        if message["method"] == "notifications/progress":
            self._reports[message["params"]["progressToken"]](message["params"]["progress"])

    def _answer(self, question: Message) -> Message:
        assert self._think is not None
        said = {"type": "text", "text": self._think(len(question["params"].get("tools", [])))}
        result = {"role": "assistant", "model": "a-model", "content": said, "stopReason": "endTurn"}
        return {"jsonrpc": "2.0", "id": question["id"], "result": result}

    async def _exchange(self, message: Message) -> Message:
        raise NotImplementedError

    async def _send(self, message: Message) -> None:
        raise NotImplementedError


class StdioSession(Session):
    def __init__(self, process: asyncio.subprocess.Process, think: Think | None) -> None:
        super().__init__(think)
        assert process.stdin is not None
        self._input = process.stdin
        self._waiting: dict[object, asyncio.Future[Message]] = {}

    async def listen(self, output: asyncio.StreamReader) -> None:
        while line := await output.readline():
            message = json.loads(line)
            if "method" not in message:
                self._waiting.pop(message["id"]).set_result(message)
            elif "id" in message:
                await self._send(self._answer(message))
            else:
                self._notice(message)

    async def _exchange(self, message: Message) -> Message:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message["id"]] = answer
        await self._send(message)
        return await answer

    async def _send(self, message: Message) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")


class HttpSession(Session):
    """A connection for each request in flight; the idle ones are kept."""

    def __init__(self, url: str, think: Think | None) -> None:
        super().__init__(think)
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._head = HEAD % (parts.path.encode(), parts.netloc.encode())
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()

    async def _send(self, message: Message) -> None:
        await self._exchange(message)

    async def _exchange(self, message: Message) -> Message:
        connection = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address, limit=UNBOUNDED)
        reader, writer = connection
        body = json.dumps(message).encode()
        writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer: Message = {}
        if b"chunked" in head:
            answer = await self._stream(reader)
        elif length := int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]):
            answer = json.loads(await reader.readexactly(length))
        self._idle.append(connection)
        return answer

    async def _stream(self, reader: asyncio.StreamReader) -> Message:
        """The answer in an event stream; what comes before it is heard. The server sends an event as one chunk."""
        answer: Message = {}
        while size := int(await reader.readline(), 16):
            event = await reader.readexactly(size + 2)
            message = json.loads(event[event.index(b"data:") + 5 :])
            if "method" not in message:
                answer = message
            elif "id" in message:
                await self._send(self._answer(message))
            else:
                self._notice(message)
        await reader.readline()
        return answer


@asynccontextmanager
async def open(server: str | list[str], think: Think | None) -> AsyncIterator[Session]:
    if isinstance(server, str):
        over_http = HttpSession(server, think)
        await over_http.begin()
        yield over_http
        await over_http.close()
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*server, stdin=pipe, stdout=pipe, limit=UNBOUNDED)
    assert process.stdin is not None
    assert process.stdout is not None
    session = StdioSession(process, think)
    listening = asyncio.create_task(session.listen(process.stdout))
    await session.begin()
    yield session
    process.stdin.close()
    await listening
    await process.wait()


if __name__ == "__main__":
    main(open)
