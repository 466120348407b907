"""A network that fails: a proxy that does one thing wrong, at one byte of what passes through it."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio
from anyio import BrokenResourceError, CancelScope, ClosedResourceError, EndOfStream, Event, create_task_group, sleep
from anyio.abc import SocketAttribute, SocketStream

Manner: TypeAlias = Literal["halts", "closes", "resets", "loses bytes", "repeats bytes", "delays"]
Direction: TypeAlias = Literal["to the server", "to the client"]

LOST = 7  # bytes that are lost, or come twice
DELAY = 0.05  # seconds
GONE = (BrokenResourceError, ClosedResourceError, EndOfStream, OSError)


@dataclass
class Proxy:
    """Forwards to the server at *server*; goes wrong in its *manner* before byte number *at* of one *direction*.

    *halts*, *closes* and *resets* affect every connection, present and future, until `mend`.
    """

    server: int
    manner: Manner
    direction: Direction
    at: int
    port: int = 0
    passed: dict[Direction, int] = field(default_factory=lambda: {"to the server": 0, "to the client": 0})
    struck: bool = False
    halted: Event = field(default_factory=Event)
    mended: Event = field(default_factory=Event)
    streams: set[SocketStream] = field(default_factory=set)

    @property
    def down(self) -> bool:
        return self.struck and self.manner in ("halts", "closes", "resets") and not self.mended.is_set()

    def mend(self) -> None:
        """From now on all is well."""
        self.mended.set()

    async def handle(self, client: SocketStream) -> None:
        async with client:
            self.streams.add(client)
            if self.down:
                await self._fail()
            with suppress(OSError):
                async with await anyio.connect_tcp("127.0.0.1", self.server) as server, create_task_group() as tasks:
                    self.streams.add(server)
                    tasks.start_soon(self._forward, client, server, "to the server")
                    await self._forward(server, client, "to the client")
                    tasks.cancel_scope.cancel()

    async def _forward(self, source: SocketStream, target: SocketStream, direction: Direction) -> None:
        with suppress(*GONE):
            while True:
                await self._pass(await source.receive(), target, direction)
        with suppress(*GONE):
            await target.send_eof()

    async def _pass(self, data: bytes, target: SocketStream, direction: Direction) -> None:
        before = self.passed[direction]
        self.passed[direction] += len(data)
        if self.down:
            await self._fail()
        elif direction == self.direction and before <= self.at < before + len(data) and not self.mended.is_set():
            self.struck = True
            await target.send(data[: self.at - before])
            await self._go_wrong(data[self.at - before :], target)
        else:
            await target.send(data)

    async def _go_wrong(self, data: bytes, target: SocketStream) -> None:
        match self.manner:
            case "loses bytes":
                await target.send(data[LOST:])
            case "repeats bytes":
                await target.send(data[:LOST] + data)
            case "delays":
                await sleep(DELAY)
                await target.send(data)
            case _:
                await self._fail()

    async def _fail(self) -> None:
        streams, self.streams = self.streams, set()
        if self.manner == "halts":
            self.halted.set()
            await self.mended.wait()  # nothing comes through, and neither side is told
        for stream in streams:
            with suppress(*GONE), CancelScope(shield=True):  # it is among those that end with its own connection
                if self.manner == "resets":
                    raw = stream.extra(SocketAttribute.raw_socket)
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await stream.aclose()


@asynccontextmanager
async def running(proxy: Proxy) -> AsyncIterator[Proxy]:
    """Let *proxy* listen on a free port."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, create_task_group() as tasks:
        proxy.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, proxy.handle)
        yield proxy
        tasks.cancel_scope.cancel()
