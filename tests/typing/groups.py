"""What calls through a `ClientGroup` take besides their parameters: the same as those of a `Client`."""

from __future__ import annotations

from mcp_host import ClientGroup
from mcp_host.sampling import LoopTool


async def calls(group: ClientGroup) -> None:
    await group.call_tool("a__x", {"n": 1}, timeout=1, idle_timeout=None, on_progress=print, meta={}, caller="ada")
    await group.call_tool("a__x", tiemout=1)  # type: ignore[call-arg]
    await group.call_tool("a__x", timeout="1")  # type: ignore[arg-type]
    await group.get_prompt("a__p", {"city": "Oslo"}, timeout=1, on_progress=print, caller="ada")
    await group.get_prompt("a__p", meta={})  # type: ignore[call-arg]
    await group.subscribe_resource("a", "x:///r", timeout=1, idle_timeout=1)
    await group.subscribe_resource("a", "x:///r", caller="ada")  # type: ignore[call-arg]


def in_a_loop(group: ClientGroup) -> LoopTool:
    return group
