"""Closing: it ends what is under way, in time, and is never the moment to hear of an old fault."""

from __future__ import annotations

import pytest

from mcp_host import Client, Stdio, StreamableHttp
from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.transports.base import Transport
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.processes import BRIEF
from tests.faults.stdio_server import server
from tests.transports.children import TimedStdio

pytestmark = on_both

PROMPT = 25.0  # seconds, on a busy machine, for what `BRIEF` allows far less


@fault("C14")
@pytest.mark.parametrize(
    "ending", ["sys.exit(1)", "os.kill(os.getpid(), signal.SIGKILL)", "os.close(1); time.sleep(60)"]
)
async def test_closing_does_not_raise_the_failure_of_a_process(ending: str) -> None:
    client = Client(TimedStdio(server(f"read()\n{ending}"), grace=0.05), era="legacy", limits=BRIEF)
    await client.connect()
    with pytest.raises(ConnectionClosed):
        await client.call_tool("x")

    await client.aclose()

    assert not client.connected


@fault("C15")
@pytest.mark.parametrize(
    "transport",
    [Stdio(["no-such-server"]), Stdio(server("sys.exit(1)", hands=False)), StreamableHttp("http://127.0.0.1:1/mcp")],
    ids=["missing", "ends", "refused"],
)
async def test_closing_after_a_failed_connect_does_nothing(transport: Transport) -> None:
    client = Client(transport, era="legacy")
    with pytest.raises(ConnectFailed):
        await client.connect()

    await client.aclose()
    await client.aclose()
