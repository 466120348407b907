"""What a call through a group costs beside one through its client."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import mcp_host
from mcp_host import Stdio
from tests.client.test_shape import ECHO, HELLO
from tests.extent import on_both
from tests.group.support import opened
from tests.transports.children import python

LISTS = ECHO.replace(
    "reply(request, text(",
    'reply(request, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}'
    ' if request["method"] == "tools/list" else text(',
)
MOST = 0.05
SOURCE = str(Path(mcp_host.__file__).parent)


@on_both
async def test_a_call_through_a_group_makes_at_most_5_percent_more_calls_of_functions() -> None:
    """Of Python and of C, from the call until its result. The event loop has its own, more or fewer: the group adds to ours only."""

    async def fewest(call: Callable[[], Awaitable[object]]) -> Counter[bool]:
        """The fewest of several calls, of functions of this library (True) and of others: a reply may come in pieces."""
        counts = []
        for _ in range(20):
            count = Counter[bool]()

            def watch(frame: FrameType, event: str, arg: object, count: Counter[bool] = count) -> None:
                if event in {"call", "c_call"}:
                    count[frame.f_code.co_filename.startswith(SOURCE)] += 1

            sys.setprofile(watch)
            try:
                await call()
            finally:
                sys.setprofile(None)
            counts.append(count)
        return Counter({ours: min(count[ours] for count in counts) for ours in (True, False)})

    async with opened({"a": Stdio(python(LISTS))}) as group:
        client = group.clients["a"]
        assert (await group.call_tool("a__echo", {"words": "hello"})).content == HELLO
        gc.collect()
        through_client = await fewest(lambda: client.call_tool("echo", {"words": "hello"}))
        through_group = await fewest(lambda: group.call_tool("a__echo", {"words": "hello"}))

    assert 0 < through_group[True] - through_client[True] <= MOST * through_client.total()
