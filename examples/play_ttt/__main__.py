"""Play tic-tac-toe in a terminal against the scripted player, or serve the game to another host."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))  # `python examples/play_ttt` finds these modules, but no package

from mcp_host import Client, Elicitation, McpError, Sampling, Stdio, StreamableHttp, always, fill_in_terminal
from mcp_host.testing import Server
from mcp_host.transports.base import Transport
from play_ttt.player import player
from play_ttt.rules import MARKS, opponent
from play_ttt.server import draw_mark, make_server


async def play_in_terminal(server: Server, over: str) -> None:
    """Play one game, which the person plays in the terminal, and print how it ended."""
    sampling = Sampling(with_tools=player, approve=always)  # a real model costs tokens: see human_approval.py
    elicitation = Elicitation(form=fill_in_terminal)
    async with (
        reach(server, over) as transport,
        Client(transport, sampling=sampling, elicitation=elicitation) as client,
    ):
        result = await client.call_tool("play_ttt")
        print(f"\n{result.text}")


@asynccontextmanager
async def reach(server: Server, over: str) -> AsyncIterator[Transport]:
    """A transport to *server*, or to another in a child process."""
    match over:
        case "stdio":
            yield Stdio([sys.executable, *sys.argv, "--serve", "stdio"])
        case "http":
            async with server.http() as url:
                yield StreamableHttp(url)
        case _:
            yield server.in_process()


def main() -> None:
    parser = argparse.ArgumentParser(prog="play_ttt", description=__doc__)
    parser.add_argument("--mark", choices=MARKS, help="what you play, instead of a mark at random")
    parser.add_argument("--over", choices=["memory", "stdio", "http"], default="memory", help="how to reach the server")
    parser.add_argument("--serve", choices=["stdio", "http"], help="be the server, for another host")
    options = parser.parse_args()
    server = make_server(draw_mark if options.mark is None else lambda: opponent(options.mark))
    match options.serve:
        case "stdio":
            server.run_stdio()
        case "http":
            server.run_http()
        case _:
            anyio.run(play_in_terminal, server, options.over)


if __name__ == "__main__":
    try:
        main()
    except McpError as exc:
        sys.exit(f"The game cannot go on: {exc}")
    except KeyboardInterrupt:
        sys.exit("You have left the game.")
