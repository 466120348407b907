"""Clients outside of their event loop: in another one, in a forked process, forgotten, or left open at the end."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from textwrap import dedent

import anyio
import pytest
import sniffio
from anyio import fail_after, to_thread
from anyio.lowlevel import checkpoint

from mcp_host import Client, Stdio
from mcp_host.errors import CallerError
from tests.faults.fault import children, fault
from tests.faults.http_server import mcp
from tests.faults.servers import works
from tests.faults.stdio_server import connected, server
from tests.transports.children import running
from tests.transports.http_peers import serving

PROLOGUE = """
import asyncio, os, sys, anyio, sniffio, trio
from contextlib import suppress
from mcp_host import Client, Limits, Stdio, StreamableHttp
from mcp_host.errors import CallerError, McpError

def beside(function, *args):
    async def run():
        with suppress(McpError):
            await function(*args)

    if sniffio.current_async_library() == "trio":
        trio.lowlevel.spawn_system_task(run)
    else:
        clients.append(asyncio.ensure_future(function(*args)))
"""

ELSEWHERE = "connected in another event loop"
MISUSES: dict[str, Callable[[Client], Awaitable[object]]] = {
    "call": lambda client: client.call_tool("x"),
    "list": lambda client: client.list_tools(),
    "ping": lambda client: client.ping(),
    "subscribe": lambda client: client.subscribe_resource("a:b"),
    "roots": lambda client: client.set_roots([]),
    "connect": lambda client: client.connect(),
    "close": lambda client: client.aclose(),
}


async def run(program: str) -> str:
    """What *program* writes; it must end well, and complain of nothing."""
    done = await anyio.run_process([sys.executable, "-c", PROLOGUE + dedent(program)])
    assert done.stderr.decode() == ""
    return done.stdout.decode()


@fault("C19")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_client_used_in_another_event_loop_raises_and_works_on_in_its_own(backend: str) -> None:
    async def misuse() -> None:
        for use in MISUSES.values():
            with fail_after(25), pytest.raises(CallerError, match=ELSEWHERE):
                await use(client)  # a thread would not end with the test

    async with connected("serve_all()", roots=[]) as client:
        await to_thread.run_sync(lambda: anyio.run(misuse, backend=backend))
        assert await works(client)


@fault("C19")
async def test_a_client_used_in_a_forked_process_raises() -> None:
    program = f"""
    async def misuse():
        try:
            await client.call_tool("x")
        except CallerError as exc:
            return str(exc)

    async def main():
        global client
        async with Client(Stdio({server("serve_all()")!r}), era="legacy") as client:
            if (child := os.fork()) == 0:
                print(asyncio.run(misuse()), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print((await client.call_tool("good")).text)

    asyncio.run(main())
    """

    assert (await run(program)).splitlines() == [
        "this client is connected in another event loop, and can be used and closed only there",
        "good",
    ]


@fault("C20")
async def test_a_client_that_is_dropped_is_closed_with_a_warning_and_its_process_ended() -> None:
    def drop() -> None:
        clients.clear()
        gc.collect()

    clients = [Client(Stdio(server("serve_all()")), era="legacy")]
    await clients[0].connect()
    assert children()
    with pytest.warns(ResourceWarning, match="a client of python.* was dropped without being closed"):
        drop()

    while children():  # within the time that a fault has
        await checkpoint()


SLOW = """
call = read()
reply(call, text(str(os.getpid())))
read()
time.sleep(60)
"""
LEFT_OPEN = {
    "held": "clients.append(client)",
    "dropped": "del client",
    "calling": "beside(client.call_tool, 'slow')",
    "connecting": "beside(Client(transport).connect)",
    "exiting": "sys.exit(0)",
}


async def left_open(transport: str, how: str) -> str:
    """What a program writes that connects to *transport* and ends without closing: on stdout, for it must not complain."""
    return await run(f"""
    clients = []
    transport = {transport}

    async def main():
        client = Client(transport, era="legacy", limits=Limits(close_timeout=0.6))
        await client.connect()
        print((await client.call_tool("pid")).text, flush=True)
        {how}
        await anyio.sleep(0)

    anyio.run(main, backend={sniffio.current_async_library()!r})
    """)


@fault("C21")
@pytest.mark.parametrize("how", LEFT_OPEN.values(), ids=LEFT_OPEN)
async def test_a_program_that_exits_with_an_open_client_warns_of_nothing_and_leaves_no_process(how: str) -> None:
    said = await left_open(f"Stdio({server(SLOW)!r})", how)

    assert not running(int(said))


@fault("C21")
async def test_a_program_that_exits_with_an_open_session_warns_of_nothing() -> None:
    async with serving(mcp()) as peer:
        assert await left_open(f"StreamableHttp({peer.url!r})", LEFT_OPEN["held"]) == "high\n"
