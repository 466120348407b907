"""The floor: asyncio and json. No checks, no limits, no deadlines, no cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from benchmarks.clients.drive import Model, main
from benchmarks.job import Server

Message = dict[str, Any]
UNBOUNDED = 1 << 30
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
)


INFO: Message = {"name": "bare", "version": "1"}


class Session:
    """Requests and responses by id. The subclasses are the transports."""

    server: str

    def __init__(self, model: Model | None, *, stateless: bool) -> None:
        self._model = model
        self._capabilities: Message = {} if model is None else {"sampling": {"tools": {}}}
        self._meta: Message = {}
        if stateless:
            values = {"protocolVersion": "2026-07-28", "clientInfo": INFO, "clientCapabilities": self._capabilities}
            self._meta = {f"io.modelcontextprotocol/{name}": value for name, value in values.items()}
        self._ids = count(1)
        self._on_progress: dict[int, Callable[[float], None]] = {}

    async def connect(self) -> None:
        if self._meta:
            discovered = await self._request("server/discover", {})
            self.server = discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"]
            return
        params = {"protocolVersion": "2025-11-25", "capabilities": self._capabilities, "clientInfo": INFO}
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
            self._on_progress[token] = on_progress
        result = await self._request("tools/call", params)
        while "inputRequests" in result:
            answers = {name: self._sample(request["params"]) for name, request in result["inputRequests"].items()}
            retry = {**params, "inputResponses": answers, "requestState": result["requestState"]}
            result = await self._request("tools/call", retry)
        text: str = result["content"][0]["text"]
        return text

    async def list_tools(self) -> list[str]:
        return [tool["name"] for tool in (await self._request("tools/list", {}))["tools"]]

    async def _request(self, method: str, params: Message) -> Message:
        if self._meta:
            params = {**params, "_meta": {**self._meta, **params.get("_meta", {})}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        result: Message = (await self._exchange(message))["result"]
        return result

    def _notified(self, message: Message) -> None:
        if message["method"] == "notifications/progress":
            self._on_progress[message["params"]["progressToken"]](message["params"]["progress"])

    def _response(self, request: Message) -> Message:
        return {"jsonrpc": "2.0", "id": request["id"], "result": self._sample(request["params"])}

    def _sample(self, params: Message) -> Message:
        assert self._model is not None
        text = self._model(len(params.get("tools", [])), len(params["messages"]))
        content = {"type": "text", "text": text}
        return {"role": "assistant", "model": "a-model", "content": content, "stopReason": "endTurn"}

    async def _exchange(self, message: Message) -> Message:
        raise NotImplementedError

    async def _send(self, message: Message) -> None:
        raise NotImplementedError


class StdioSession(Session):
    def __init__(self, process: asyncio.subprocess.Process, model: Model | None, *, stateless: bool) -> None:
        super().__init__(model, stateless=stateless)
        assert process.stdin is not None
        self._input = process.stdin
        self._waiting: dict[object, asyncio.Future[Message]] = {}

    async def listen(self, output: asyncio.StreamReader) -> None:
        while line := await output.readline():
            message = json.loads(line)
            if "method" not in message:
                self._waiting.pop(message["id"]).set_result(message)
            elif "id" in message:
                await self._send(self._response(message))
            else:
                self._notified(message)

    async def _exchange(self, message: Message) -> Message:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message["id"]] = answer
        await self._send(message)
        return await answer

    async def _send(self, message: Message) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")


class HttpSession(Session):
    """A connection for each request in flight; the idle ones are kept."""

    def __init__(self, url: str, model: Model | None, *, stateless: bool) -> None:
        super().__init__(model, stateless=stateless)
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
        """The response in an event stream, and all messages before it. The server sends each event as one chunk."""
        answer: Message = {}
        while size := int(await reader.readline(), 16):
            event = await reader.readexactly(size + 2)
            message = json.loads(event[event.index(b"data:") + 5 :])
            if "method" not in message:
                answer = message
            elif "id" in message:
                await self._send(self._response(message))
            else:
                self._notified(message)
        await reader.readline()
        return answer


@asynccontextmanager
async def open(server: Server, model: Model | None) -> AsyncIterator[Session]:
    stateless = "/stateless/" in server if isinstance(server, str) else server[-1] == "stateless"
    if isinstance(server, str):
        over_http = HttpSession(server, model, stateless=stateless)
        await over_http.connect()
        yield over_http
        await over_http.close()
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*server, stdin=pipe, stdout=pipe, limit=UNBOUNDED)
    assert process.stdin is not None
    assert process.stdout is not None
    session = StdioSession(process, model, stateless=stateless)
    listening = asyncio.create_task(session.listen(process.stdout))
    await session.connect()
    yield session
    process.stdin.close()
    await listening
    await process.wait()


class Group:
    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions

    async def call(self, tool: str, arguments: dict[str, object]) -> str:
        server, _, own = tool.partition("_")
        return await self._sessions[server].call(own, arguments)

    async def list_tools(self) -> list[str]:
        listed = await asyncio.gather(*(session.list_tools() for session in self._sessions.values()))
        return [f"{server}_{tool}" for server, tools in zip(self._sessions, listed, strict=True) for tool in tools]


@asynccontextmanager
async def open_group(servers: Mapping[str, Server]) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        contexts = [stack.enter_async_context(open(server, None)) for server in servers.values()]
        sessions = await asyncio.gather(*contexts)
        yield Group(dict(zip(servers, sessions, strict=True)))


if __name__ == "__main__":
    main(open, open_group)
