"""Processes that a server starts, and a host that is killed: which processes remain, and how they interfere."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pytest
import sniffio
from anyio import fail_after, open_process

from mcp_host import Client
from mcp_host.errors import ConnectFailed, ConnectionClosed, RequestTimeout
from tests.clock import advance
from tests.extent import on_both
from tests.faults import processes
from tests.faults.fault import fault
from tests.faults.processes import SOON, ended, says
from tests.transports.children import python, running

pytestmark = on_both

CHILD = """
def child_that(body, **how):
    return subprocess.Popen([sys.executable, "-c", "import os, signal, time\\n" + body], **how).pid
"""


def client_of(body: str, **options: Any) -> Client:
    """A client that soon stops waiting for output that descendants may still write."""
    return processes.client_of(body, output_grace=0.1, **options)


CHILDREN = pytest.mark.parametrize(
    "child", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"], ids=["mild", "tough"]
)
GROUPS = pytest.mark.parametrize("group", [None, 0], ids=["same group", "own group"])


@pytest.mark.parametrize("leader", ["read()", "time.sleep(60)", "os._exit(0)"], ids=["polite", "stubborn", "gone"])
@CHILDREN
@GROUPS
@fault("P12", "P13")
async def test_the_descendants_of_a_server_end_with_it(leader: str, child: str, group: int | None) -> None:
    """Those in a process group of their own, too, as the jobs of an interactive shell are."""
    body = f"""
    pid = child_that({child + "time.sleep(60)"!r}, process_group={group})
    reply(read(), text(str(pid)))
    {leader}
    """
    async with client_of(CHILD + dedent(body)) as client:
        pid = int(await says(client))
        assert running(pid)

    with fail_after(SOON):
        await ended(pid)


@CHILDREN
@GROUPS
@fault("P12")
async def test_the_descendants_of_a_server_that_crashes_end_while_the_client_stays_open(
    child: str, group: int | None
) -> None:
    body = f"""
    reply(read(), text(str(child_that({child + "time.sleep(60)"!r}, process_group={group}))))
    read()
    os._exit(1)
    """
    async with client_of(CHILD + dedent(body)) as client:
        pid = int(await says(client))
        with fail_after(SOON):
            with pytest.raises(ConnectionClosed):
                await says(client)
            await ended(pid)


@fault("P12")
async def test_a_wrapper_that_exits_ends_the_connection_and_the_server_that_it_started() -> None:
    """As a shell's `server & exit` does. The real server holds the pipes and goes on running."""
    wrapper = """
    if pid := os.fork():
        print(pid, file=sys.stderr, flush=True)
        os._exit(0)
    time.sleep(60)
    """
    pids: list[str] = []

    with fail_after(SOON), pytest.raises(ConnectFailed, match="exited with code 0"):
        await client_of(wrapper, hands=False, on_stderr=pids.append).connect()

    assert pids
    for pid in pids:
        await ended(int(pid))


@pytest.fixture
def runaways() -> Iterator[list[int]]:
    """Processes that no client can know of."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@fault("P14")
async def test_a_descendant_that_left_the_process_group_with_the_pipes_does_not_delay_closing(
    runaways: list[int],
) -> None:
    body = """
    reply(read(), text(str(child_that("time.sleep(60)", start_new_session=True))))
    read()
    """
    async with client_of(CHILD + dedent(body)) as client:
        runaways.append(int(await says(client)))
        with fail_after(SOON):
            await client.aclose()

    assert running(runaways[0])


@fault("P14")
async def test_a_server_that_exits_ends_its_calls_even_if_a_descendant_holds_its_stdout(runaways: list[int]) -> None:
    body = """
    reply(read(), text(str(child_that("time.sleep(60)", start_new_session=True))))
    read()
    os._exit(4)
    """
    async with client_of(CHILD + dedent(body)) as client:
        runaways.append(int(await says(client)))
        with fail_after(SOON), pytest.raises(ConnectionClosed, match="exited with code 4"):
            await says(client)


HOST = """
import anyio, json, sys
from mcp_host import Client, Stdio

async def main(backend, polite, stubborn):
    async with Client(Stdio(json.loads(polite))) as first, Client(Stdio(json.loads(stubborn))) as second:
        sys.stdout.write("[%s, %s]" % ((await first.call_tool("x")).text, (await second.call_tool("x")).text))
        sys.stdout.flush()
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:], backend=sys.argv[1])
"""


@fault("P15")
async def test_when_a_host_is_killed_its_server_sees_the_end_of_its_stdin(runaways: list[int]) -> None:
    """Also when another server does not exit: no server holds the pipes of its siblings."""
    polite = python("reply(read(), text(str(os.getpid()))); read()")
    stubborn = python("reply(read(), text(str(os.getpid()))); time.sleep(60)")
    backend = sniffio.current_async_library()
    command = [sys.executable, "-c", HOST, backend, json.dumps(polite), json.dumps(stubborn)]

    async with await open_process(command, stderr=None) as host:
        assert host.stdout is not None
        first, second = json.loads(await host.stdout.receive())
        runaways.append(second)
        assert running(first)
        host.kill()
        await host.wait()
        with fail_after(SOON):
            await ended(first)

    assert running(second)  # as docs/rough-edges.md says


# Interference


@fault("P26")
async def test_output_of_a_servers_children_between_its_messages_is_skipped() -> None:
    body = """
    request = read()
    for _ in range(20):
        os.write(1, b"Downloading...")
        subprocess.run(["echo", "done"])
    reply(request, text("ok"))
    """
    async with client_of(body) as client:
        assert await says(client) == "ok"

    assert client.counters == {"malformed messages": 20}


@pytest.mark.adjustable_clock
@fault("P26")
async def test_a_request_read_by_a_child_of_the_server_fails_only_its_own_call() -> None:
    body = """
    reply(read(), text("before"))
    subprocess.run(["head", "-n", "1"], stdout=subprocess.DEVNULL)
    print("swallowed", file=sys.stderr, flush=True)
    while "id" not in (request := read()): pass
    reply(request, text("after"))
    """
    async with client_of(body, on_stderr=lambda line: advance(60)) as client:
        assert await says(client) == "before"
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=60)
        assert await says(client) == "after"
