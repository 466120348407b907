"""A server in the same process: two queues in memory, with the same messages as on the wire."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    WouldBlock,
    create_memory_object_stream,
    create_task_group,
)
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import ConnectionClosed
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Message, Request, decode, encode, too_large
from mcp_host.transports.base import Headers, Receive, RequestHandle

CAPACITY = 1024  # messages in the server's queue; then writers wait

Inbox: TypeAlias = MemoryObjectReceiveStream[bytes]
Outbox: TypeAlias = MemoryObjectSendStream[bytes]
Serve: TypeAlias = Callable[[Inbox, Outbox], Awaitable[None]]
"""A server: reads messages (as bytes, without line ends) and writes messages, until its inbox ends."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """Connect to *serve*, an async function that runs as long as the connection."""

    serve: Serve
    name: str = field(default="the in-process server", kw_only=True)

    restart = False  # the application sees the server end

    @property
    def identity(self) -> str:
        return self.name

    def named(self, name: str) -> InProcess:
        """The same, under the name that the host gave the server."""
        return replace(self, name=name)

    @asynccontextmanager
    async def open(self, limits: Limits) -> AsyncIterator[MemoryChannel]:
        """Run *serve* in a task; cancel it on leaving."""
        to_server, server_inbox = create_memory_object_stream[bytes](CAPACITY)
        # Unbounded: the server is part of the same program.
        server_outbox, from_server = create_memory_object_stream[bytes](math.inf)
        channel = MemoryChannel(self.name, to_server, from_server, limits.max_message)

        async def run() -> None:
            with server_inbox, server_outbox:
                try:
                    await awaited(self.serve(server_inbox, server_outbox), "it")
                except Exception as exc:  # read by no one once the client has closed, which most servers raise for
                    channel.reason = f"{self.name} failed: {type(exc).__name__}: {exc}"

        with to_server, from_server:
            async with create_task_group() as tasks:
                tasks.start_soon(run)
                try:
                    yield channel
                finally:
                    to_server.close()  # the server sees the end of its inbox, and may shield its clean-up
                    tasks.cancel_scope.cancel()


class MemoryChannel:
    """The client's end."""

    stream_per_request = False
    keeps_cache = False
    other_output = ""

    def __init__(self, name: str, to_server: Outbox, from_server: Inbox, max_message: int) -> None:
        self.reason = f"{name} has ended"
        self._to_server = to_server
        self._from_server = from_server
        self._max_message = max_message

    async def wait_until_started(self) -> None:
        await checkpoint()

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        raw = encode(request)
        if not self._put(raw):
            handle.unsent = True  # until it is in the queue
            with handle.bounded():
                await self._wait_to_put(raw)
            if handle.done:
                return
            handle.unsent = False
        await handle.wait()

    async def send(self, message: Message, headers: Headers) -> None:
        raw = encode(message)
        if not self._put(raw):
            await self._wait_to_put(raw)

    def send_now(self, message: Message) -> bool:
        return self._put(encode(message))

    def _put(self, raw: bytes) -> bool:
        try:
            self._to_server.send_nowait(raw)
        except WouldBlock:
            return False
        except (BrokenResourceError, ClosedResourceError) as exc:
            raise ConnectionClosed(self.reason, may_have_run=False) from exc
        return True

    async def _wait_to_put(self, raw: bytes) -> None:
        try:
            await self._to_server.send(raw)
        except (BrokenResourceError, ClosedResourceError) as exc:
            raise ConnectionClosed(self.reason, may_have_run=False) from exc

    async def listen(self, receive: Receive) -> None:
        async for raw in self._from_server:
            if len(raw) > self._max_message:
                receive(too_large(raw, raw, self._max_message))
            else:
                for message in decode(raw):
                    receive(message)
        raise ConnectionClosed(self.reason)
