"""A server to talk to a model about: over HTTP in the process of the tests, or as a program, so it imports little."""

from __future__ import annotations

import os
import sys

from anyio import Event, sleep_forever
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
async def count(context: Context) -> str:
    await context.report_progress(1, 3, "reading\x1b[2J")
    await context.log("info", "half\x1b[2J\nway")
    await context.report_progress(2, 3, "a message that is longer than a narrow terminal has columns for it")
    return "counted"


@server.tool
async def opinion(context: Context) -> str:
    return (await context.sample("What do you think?", max_tokens=50)).text


ended: list[Event] = []
"""One for each call of `hang`."""


@server.tool
async def hang(context: Context) -> None:
    """Say so, and never return."""
    end = Event()
    ended.append(end)
    await context.log("info", "hanging")
    try:
        await sleep_forever()
    finally:
        end.set()


@server.tool
async def until_hang_ends() -> str:
    await ended[-1].wait()
    return "cancelled"


@server.tool
def die() -> str:
    print("on fire", file=sys.stderr, flush=True)
    os._exit(3)
