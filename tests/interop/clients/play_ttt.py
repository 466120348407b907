"""The official SDK's client plays the example play_ttt in either era, and prints how the games ended.

Its model is the example's player. Its person takes the last free square, and in the last game declines the second form.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

from mcp_host import Sampling, always

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from play_ttt.player import player

EXAMPLE = Path(__file__).parents[3] / "examples" / "play_ttt"
ROUNDS = 50  # in 2026-07-28 a game of nine moves takes 14, and the official client allows 10 by default


class Person:
    def __init__(self, forms: int) -> None:
        self._forms = forms
        """How many forms are filled in before one is declined."""

    async def __call__(self, context: object, params: Any) -> ElicitResult:
        if not self._forms:
            return ElicitResult(action="decline")
        self._forms -= 1
        return ElicitResult(
            action="accept", content={"square": params.requested_schema["properties"]["square"]["enum"][-1]}
        )


async def play(mode: str, mark: str, forms: int) -> str:
    server = StdioServerParameters(command=sys.executable, args=[str(EXAMPLE), "--serve", "stdio", "--mark", mark])
    sampling = Sampling(with_tools=player, approve=always)
    async with Client(
        server,
        mode=mode,
        elicitation_callback=Person(forms),
        input_required_max_rounds=ROUNDS,
        **sampling.for_sdk(),
    ) as client:
        result = await client.call_tool("play_ttt")
        return f"{client.protocol_version}: {' '.join(block.text for block in result.content)}"


async def main() -> None:
    games = [("legacy", "X", 9), ("auto", "O", 9), ("auto", "X", 1)]
    print(json.dumps([await play(*game) for game in games]))


if __name__ == "__main__":
    anyio.run(main)
