"""What a call through a group costs beside one through its client."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

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
MOST = 1.05


@on_both
async def test_a_call_through_a_group_makes_at_most_5_percent_more_calls_of_functions() -> None:
    """Of Python and of C, from the call until its result. The fewest of several calls: the event loop has its own."""

    async def fewest(call: Callable[[], Awaitable[object]]) -> int:
        counts = []
        for _ in range(20):
            count = 0

            def watch(frame: FrameType, event: str, arg: object) -> None:
                nonlocal count
                count += event in {"call", "c_call"}

            sys.setprofile(watch)
            try:
                await call()
            finally:
                sys.setprofile(None)
            counts.append(count)
        return min(counts)

    async with opened({"a": Stdio(python(LISTS))}) as group:
        client = group.clients["a"]
        assert (await group.call_tool("a__echo", {"words": "hello"})).content == HELLO
        gc.collect()
        through_client = await fewest(lambda: client.call_tool("echo", {"words": "hello"}))
        through_group = await fewest(lambda: group.call_tool("a__echo", {"words": "hello"}))

    assert through_client < through_group <= MOST * through_client
