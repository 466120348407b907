"""A server to talk to a model about. It imports little: each test of `chat` starts it."""

from __future__ import annotations

import os
from pathlib import Path

from anyio import sleep_forever
from pydantic import BaseModel

from mcp_host.testing import Context, Server

server = Server("desk")


class Order(BaseModel):
    size: int


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def order(context: Context) -> str:
    answer = await context.elicit("Which size?", Order)
    return f"ordered: {answer.content and answer.content['size']}"


@server.tool
async def opinion(context: Context) -> str:
    return (await context.sample("What do you think?", max_tokens=50)).text


def mark(path: str) -> None:
    Path(path).touch()


@server.tool
async def hang(context: Context, path: str) -> None:
    """Say so, and never return. If it is cancelled, there is a file at *path*."""
    await context.log("info", "hanging")
    try:
        await sleep_forever()
    finally:
        mark(path)


@server.tool
def die() -> str:
    os._exit(3)
