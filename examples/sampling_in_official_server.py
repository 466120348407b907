"""A server on the official Python SDK (``pip install mcp``) whose tools ask the client's model."""

from __future__ import annotations

import random
from typing import Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from mcp_host.sampling.structured import ServerSampling, sampling_for_sdk

server = MCPServer("helpdesk")

STOCK = {"tea": 3, "coffee": 0}


class Ticket(BaseModel):
    """What a letter is about."""

    kind: Literal["question", "complaint", "order"]
    urgent: bool


@server.tool()
@sampling_for_sdk
async def classify(letter: str, sampling: ServerSampling) -> Ticket:
    """Say what a letter is about."""
    result = await sampling.sample(f"Classify this letter: {letter}", schema=Ticket)
    if result.parse_error is not None:
        raise ToolError(result.parse_error.message)
    return result.parsed


@server.tool()
@sampling_for_sdk
async def reply(letter: str, sampling: ServerSampling) -> str:
    """Draft a reply to a letter, under a new number."""
    number = await sampling.once("number", new_number)
    result = await sampling.sample_loop(f"Reply to letter {number}: {letter}", tools=[in_stock], max_turns=5)
    return f"{number}: {result.text}"


def new_number() -> int:
    return random.randrange(1_000, 10_000)


def in_stock(article: str) -> int:
    """How many of an article are in stock."""
    return STOCK.get(article, 0)


if __name__ == "__main__":
    server.run()
