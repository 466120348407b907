"""Clients that many tasks share: each task gets its own answer or its own error, outside of exception groups."""

from __future__ import annotations

import asyncio

import pytest
import sniffio
from anyio import create_task_group
from anyio.lowlevel import checkpoint

from mcp_host import Client, Stdio
from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    ProtocolError,
    ServerError,
)
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import drop, reset, says, sends
from tests.faults.servers import KINDS, elsewhere, standing, works
from tests.faults.stdio_server import connected, server
from tests.transports.http_peers import head
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


@fault("C03", "C04")
@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["no-such-server"], ConnectFailed),
        (server("sys.exit(1)", hands=False), ConnectFailed),
        (server("read()\nsys.exit(2)", hands=False), ConnectFailed),
        (server("reply(read(), {})", hands=False), ProtocolError),
        (server("refuse(read(), -1, 'no')\nread()", hands=False), ServerError),
        (server("read()\nsys.exit(3)"), ConnectionClosed),
        (server("read()\nos.close(1)\nread()"), ConnectionClosed),
        (server("reply(read(), {'content': 5})\nread()"), ProtocolError),
    ],
    ids=["missing", "ends", "ends-in-handshake", "no-welcome", "refuses", "ends-in-call", "hangs-up", "malformed"],
)
async def test_errors_of_a_process_are_raised_bare_and_cancel_no_task(
    command: list[str], error: type[McpError]
) -> None:
    with pytest.raises(McpError) as caught:
        async with Client(Stdio(command), era="legacy") as client:
            await client.call_tool("x")

    assert type(caught.value) is error
    await checkpoint()
    assert unscathed()


@fault("C03", "C04", "C14")
@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"initialize": drop}, ConnectFailed),
        ({"initialize": reset}, ConnectFailed),
        ({"initialize": says(b"{}", 500)}, HttpStatusError),
        ({"initialize": says(b"<html>", content_type="text/html")}, ProtocolError),
        ({"call": drop}, ConnectionClosed),
        ({"call": reset}, ConnectionClosed),
        ({"call": sends(head(200, {"content-type": "application/json", "content-length": "999"}))}, ConnectionClosed),
        ({"call": says(b"{}", 503)}, HttpStatusError),
        ({"call": drop, "delete": reset}, ConnectionClosed),
    ],
    ids=["drop", "reset", "500", "html", "call-drop", "call-reset", "call-cut", "call-503", "delete-reset"],
)
async def test_errors_over_http_are_raised_bare_and_cancel_no_task(
    answers: dict[str, Answer], error: type[McpError]
) -> None:
    """Nor does leaving the client raise anything in its place."""
    async with standing("http", **answers) as transport:
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
