"""Forms to fill in, and a person who does it."""

from __future__ import annotations

from typing import Any

from anyio import create_task_group, fail_after

from mcp_host import Elicitation, OuterCall, fill_in_terminal
from mcp_host.types import ElicitResult
from tests.terminal.screens import Screen

FIELD = "> "
SEND = "Send this? [y/e/v/n/c] "


def form(*required: str, message: str = "Who are you?", **fields: object) -> dict[str, Any]:
    """The parameters of an elicitation with these fields."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"message": message, "requestedSchema": schema}


async def filled_in(
    screen: Screen, params: dict[str, Any], *keys: str, server: str = "shop", outer: OuterCall | None = None
) -> ElicitResult:
    """Answer each question with the next of *keys*, which is a line, Ctrl-D or a paste."""
    results: list[ElicitResult] = []

    async def ask() -> None:
        results.append(await Elicitation(form=fill_in_terminal).answer(params, outer, server=server))

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            for key in keys:
                await screen.asks(FIELD, SEND)
                screen.press(key if key == "\x04" else f"{key}\n")
    screen.rest()
    (result,) = results
    return result
