"""Play against the scripted player in a terminal, or serve the game to other hosts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))  # `python examples/play_ttt` finds its modules, but no package

from mcp_host import Client, Elicitation, Sampling, StreamableHttp, always, fill_in_terminal
from mcp_host.testing import Server
from mcp_host.transports.base import Transport
from play_ttt.player import player
from play_ttt.server import make_server


@asynccontextmanager
async def reached(server: Server, over: str) -> AsyncIterator[Transport]:
    match over:
        case "http":
            async with server.http() as url:
                yield StreamableHttp(url)
        case _:
            yield server.in_process()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="play_ttt", description=__doc__)
    parser.add_argument("--over", choices=["memory", "stdio", "http"], default="memory")
    arguments = parser.parse_args()
    sampling = Sampling(with_tools=player, approve=always)
    async with (
        reached(make_server(), arguments.over) as transport,
        Client(transport, sampling=sampling, elicitation=Elicitation(form=fill_in_terminal)) as client,
    ):
        result = await client.call_tool("play_ttt")
        print(result.text)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except KeyboardInterrupt:
        sys.exit("\nYou have left the game.")
