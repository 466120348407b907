"""What goes through a proxy can be recorded, replayed and watched."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from mcp_host import Stdio
from mcp_host.middleware import Exchange, tap
from mcp_host.proxy import Proxy
from mcp_host.testing import Cassette
from mcp_host.types import LoggingMessageNotificationParams
from tests.extent import on_both
from tests.proxy.servers import ERAS, Planner, model_of, text_of, through, user

pytestmark = on_both

CALLS = ("tools/call", "sampling/createMessage", "elicitation/create")


@pytest.mark.parametrize(("server", "host"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_cassette_replays_the_server_and_a_tap_sees_both_sides(server: str, host: str, tmp_path: Path) -> None:
    """Sampling with tools, forms, progress and the log of a call are on it."""

    async def run(where: Planner | Stdio, mode: Literal["once", "none"]) -> tuple[list[str], list[str]]:
        exchanges, told = list[Exchange](), list[str]()

        async def log(line: LoggingMessageNotificationParams) -> None:
            told.append(str(line.data))

        with Cassette(tmp_path / "cassette.json", record_mode=mode, require_all=mode == "none") as cassette:
            transport, taps = cassette.transport(where), [tap(exchanges.append)]
            proxy = Proxy(transport, era=server, sampling=model_of("proxy"), middleware=taps)
            async with through(proxy, host, elicitation=user(), on_log=log) as client:
                told.append(text_of(await client.call_tool("plan", {"dinner": "soup"})))
                told.append(
                    text_of(await client.call_tool("book", on_progress=lambda each: told.append(str(each.message))))
                )
        return sorted(told), [each.request.method for each in exchanges if each.request.method in CALLS]

    recorded = await run(Planner(ERAS[server]), "once")
    assert recorded == (
        ["accept Ada", "careful", "half", "proxy after 2", "whole"],
        [*["sampling/createMessage"] * 3, "tools/call", "elicitation/create", "tools/call"],
    )
    assert await run(Stdio(["/no/such/program"]), "none") == recorded
