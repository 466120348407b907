"""A client of no rules, for what a test server says to the very letter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import create_memory_object_stream, create_task_group
from pydantic_core import from_json, to_json

from mcp_host.testing import Server
from mcp_host.transports.memory import Inbox, Outbox

Wire = dict[str, Any]

INFO = {"name": "raw", "version": "0"}
EVERYTHING: Wire = {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}


class Raw:
    """One connection, message by message."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._last_id = 0

    async def receive(self) -> Wire:
        message: Wire = from_json(await self._inbox.receive())
        return message

    def nothing_more(self) -> bool:
        return self._inbox.statistics().current_buffer_used == 0

    async def send(self, message: object) -> None:
        await self._outbox.send(to_json(message))

    async def send_raw(self, raw: bytes) -> None:
        await self._outbox.send(raw)

    async def request(self, method: str, params: Wire | None = None) -> int:
        self._last_id += 1
        await self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}})
        return self._last_id

    async def ask(self, method: str, params: Wire | None = None) -> Wire:
        """The response to a request that is expected to be the next message."""
        id = await self.request(method, params)
        answer = await self.receive()
        assert answer["id"] == id, answer
        return answer

    async def result(self, method: str, params: Wire | None = None) -> Wire:
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        result: Wire = answer["result"]
        return result

    async def error(self, method: str, params: Wire | None = None) -> Wire:
        answer = await self.ask(method, params)
        assert "error" in answer, answer
        error: Wire = answer["error"]
        return error

    async def call(self, name: str, **arguments: object) -> Wire:
        return await self.result("tools/call", {"name": name, "arguments": arguments})

    async def reply(self, request: Wire, result: Wire) -> None:
        await self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def tell(self, method: str, params: Wire | None = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def shake_hands(self, *, version: str = "2025-11-25", capabilities: Wire | None = None) -> Wire:
        declared = EVERYTHING if capabilities is None else capabilities
        params = {"protocolVersion": version, "capabilities": declared, "clientInfo": INFO}
        result = await self.result("initialize", params)
        await self.tell("notifications/initialized")
        return result


@asynccontextmanager
async def strangers(server: Server) -> AsyncIterator[Raw]:
    """A connection that has not shaken hands."""
    to_server, server_inbox = create_memory_object_stream[bytes](100)
    server_outbox, from_server = create_memory_object_stream[bytes](1000)

    async def serve() -> None:
        with server_inbox, server_outbox:
            await server.in_process().serve(server_inbox, server_outbox)

    with to_server, from_server:
        async with create_task_group() as tasks:
            tasks.start_soon(serve)
            try:
                yield Raw(from_server, to_server)
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def talk(server: Server, *, version: str = "2025-11-25", capabilities: Wire | None = None) -> AsyncIterator[Raw]:
    """A connection after the handshake."""
    async with strangers(server) as raw:
        await raw.shake_hands(version=version, capabilities=capabilities)
        yield raw
