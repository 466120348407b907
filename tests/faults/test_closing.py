"""Closing: it ends what is under way, in time, and is never the moment to hear of an old fault."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from anyio import create_task_group, fail_after

from mcp_host import Client, Stdio, StreamableHttp
from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.transports.base import Transport
from tests.client.support import HangingModel, sampling
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import ASK, mcp, streams
from tests.faults.processes import BRIEF
from tests.faults.servers import KINDS, standing
from tests.faults.stdio_server import server
from tests.transports.http_peers import event, serving

pytestmark = on_both

PROMPT = 25.0  # seconds, on a busy machine, for what `BRIEF` allows far less


@asynccontextmanager
async def asking(kind: str) -> AsyncIterator[Transport]:
    """A server that answers no call, and asks the model something."""
    if kind == "stdio":
        yield Stdio(server("read()\nsample('q')\ntime.sleep(60)"))
    else:
        async with standing("http", call=streams(event(ASK), stay=True)) as transport:
            yield transport


@fault("C13", "S19")
@pytest.mark.parametrize("kind", KINDS)
async def test_closing_ends_the_calls_in_flight_and_the_running_handlers(kind: str) -> None:
    async def call() -> None:
        with pytest.raises(ConnectionClosed, match="the client was closed") as caught:
            await client.call_tool("slow")
        ends.append(caught.value.may_have_run)

    model = HangingModel()
    ends: list[bool] = []
    async with asking(kind) as transport, create_task_group() as tasks:
        client = Client(transport, era="legacy", limits=BRIEF, sampling=sampling(with_tools=model))
        await client.connect()
        for _ in range(3):
            tasks.start_soon(call)
        await model.begun.wait()
        with fail_after(PROMPT):
            await client.aclose()

    assert ends == [True] * 3
    assert model.ended.is_set()


@fault("C14")
@pytest.mark.parametrize(
    "ending", ["sys.exit(1)", "os.kill(os.getpid(), signal.SIGKILL)", "os.close(1); time.sleep(60)"]
)
async def test_closing_does_not_raise_the_failure_of_a_process(ending: str) -> None:
    client = Client(Stdio(server(f"read()\n{ending}")), era="legacy", limits=BRIEF)
    await client.connect()
    with pytest.raises(ConnectionClosed):
        await client.call_tool("x")

    await client.aclose()

    assert not client.connected


@fault("C14")
async def test_closing_does_not_raise_the_failure_of_a_server() -> None:
    async with serving(mcp()) as peer:
        client = Client(StreamableHttp(peer.url), era="legacy", limits=BRIEF)
        await client.connect()

    with fail_after(PROMPT):
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
