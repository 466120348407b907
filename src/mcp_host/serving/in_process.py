"""Serving one client in this process."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from contextlib import suppress

from anyio import BrokenResourceError, ClosedResourceError

from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.protocol.jsonrpc import Id, Message, decode, encode
from mcp_host.serving.service import Service
from mcp_host.serving.session import Session


async def serve(service: Service, inbox: AsyncIterable[bytes], write: Callable[[bytes], None]) -> None:
    """Serve the client whose messages come from *inbox*, until it ends. *write* sends a message, and never waits."""

    def send(message: Message, related: Id | None) -> None:
        with suppress(ClosedResourceError, BrokenResourceError):  # the client has closed the connection
            write(encode(message))

    async with HandlerTasks.open() as tasks:
        session = Session(service, tasks.start, send)
        try:
            async for raw in inbox:
                for message in decode(raw):
                    session.receive(message)
        finally:
            session.close()
