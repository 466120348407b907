"""Clients that many tasks share: each task gets its own answer or its own error, outside of exception groups."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest
import sniffio
from anyio import create_task_group
from anyio.lowlevel import checkpoint

from mcp_host import Client
from mcp_host.errors import ConnectFailed, ConnectionClosed, HttpStatusError, McpError, ProtocolError, ServerError
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import drop, reset, says, sends
from tests.faults.servers import KINDS, elsewhere, standing, works
from tests.faults.stdio_server import connected, server
from tests.transports.children import TimedStdio
from tests.transports.http_peers import JSON, head
from tests.transports.legacy_peers import Answer

pytestmark = on_both


def unscathed() -> bool:
    """Whether the current task has not been cancelled, and is not going to be."""
    if sniffio.current_async_library() != "asyncio":
        return True  # on trio only a scope of the task's own can cancel it
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


@fault("C01", "C02")
@pytest.mark.parametrize("kind", KINDS)
async def test_clients_may_connect_call_and_close_in_any_task_and_order(kind: str) -> None:
    async with standing(kind) as transport:
        first, second = Client(transport, era="legacy"), Client(transport, era="legacy")
        await elsewhere(first.connect)
        await second.connect()
        await elsewhere(works, first)
        assert await works(first)
        await elsewhere(first.aclose)

        assert not first.connected
        assert await works(second)
        await second.aclose()
        await checkpoint()
        assert unscathed()


FAILING: dict[str, tuple[list[str] | dict[str, Answer], type[McpError]]] = {
    "missing": (["no-such-server"], ConnectFailed),
    "ends": (server("sys.exit(1)", hands=False), ConnectFailed),
    "ends in the handshake": (server("read()\nsys.exit(2)", hands=False), ConnectFailed),
    "no welcome": (server("reply(read(), {})", hands=False), ProtocolError),
    "refuses": (server("refuse(read(), -1, 'no')\nread()", hands=False), ServerError),
    "ends in a call": (server("read()\nsys.exit(3)"), ConnectionClosed),
    "hangs up": (server("read()\nos.close(1)\nread()"), ConnectionClosed),
    "malformed": (server("reply(read(), {'content': 5})\nread()"), ProtocolError),
    "drop": ({"initialize": drop}, ConnectFailed),
    "reset": ({"initialize": reset}, ConnectFailed),
    "500": ({"initialize": says(b"{}", 500)}, HttpStatusError),
    "html": ({"initialize": says(b"<html>", content_type="text/html")}, ProtocolError),
    "drop of a call": ({"call": drop}, ConnectionClosed),
    "reset of a call": ({"call": reset}, ConnectionClosed),
    "half a body": ({"call": sends(head(200, {**JSON, "content-length": "999"}))}, ConnectionClosed),
    "503": ({"call": says(b"{}", 503)}, HttpStatusError),
    "reset at the end": ({"call": drop, "delete": reset}, ConnectionClosed),
}


@fault("C03", "C04", "C14")
@pytest.mark.parametrize("case", FAILING)
async def test_errors_are_raised_bare_and_cancel_no_task(case: str) -> None:
    """Nor does leaving the client raise anything in its place."""
    served, error = FAILING[case]
    async with (
        standing("http", **served)
        if isinstance(served, dict)
        else nullcontext(TimedStdio(served, grace=0.05)) as transport
    ):
        with pytest.raises(McpError) as caught:
            async with Client(transport, era="legacy") as client:
                await client.call_tool("x")

    assert type(caught.value) is error
    await checkpoint()
    assert unscathed()


@fault("C17")
async def test_a_server_that_dies_does_not_affect_the_others() -> None:
    async with connected("serve(read())\nread()\nsys.exit(1)") as mortal, connected("serve_all()") as other:
        assert await works(mortal)
        async with create_task_group() as tasks:
            tasks.start_soon(works, other)
            with pytest.raises(ConnectionClosed):
                await mortal.call_tool("die")
        assert await works(other)
