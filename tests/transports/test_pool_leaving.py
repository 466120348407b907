"""Deadlines, cancellation, responses left half-read, and pools that are closed: nothing stays behind or waits."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio
import httpx
import pytest

from tests.clock import advance
from tests.transports.http_contract import SECONDS, Kind, PoolTransport, both, certified, ours, trusting, untrusting
from tests.transports.http_peers import CHUNKED, LENGTH, Halting, Wire, head, response, saying, serving

EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
LONG = b"x" * 50_000_000


# Deadlines


@ours("it leaves the generator of a body to the garbage collector")
@pytest.mark.adjustable_clock
async def test_a_server_that_reads_nothing_is_a_write_timeout(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear_until(b"\r\n\r\n")
        await anyio.wait_all_tasks_blocked()
        advance(30)
        await anyio.sleep_forever()

    async with serving(script) as peer, kind.client(timeout=httpx.Timeout(None, write=30)) as client:
        with pytest.raises(httpx.WriteTimeout):
            await client.post(peer.url, content=LONG)


@both
@pytest.mark.adjustable_clock
async def test_a_tls_handshake_without_an_answer_is_a_connect_timeout(kind: Kind) -> None:
    hung_up = anyio.Event()

    async def script(wire: Wire) -> None:
        advance(SECONDS / 2)  # once it is connected
        await wire.hung_up()
        hung_up.set()

    timeout = httpx.Timeout(None, connect=SECONDS / 2)
    async with serving(script) as peer, kind.client(tls=trusting(), timeout=timeout) as client:
        with pytest.raises(httpx.ConnectTimeout):
            await client.get(peer.url.replace("http:", "https:"))
        await hung_up.wait()


# Cancellation


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(lambda: Halting(), id="before the head"),
        pytest.param(lambda: Halting(b"HTTP/1.1 200"), id="in the head"),
        pytest.param(lambda: Halting(head(200, LENGTH)), id="before the body"),
        pytest.param(lambda: Halting(head(200, CHUNKED) + b"4\r\nti"), id="in the body"),
    ],
)
@both
async def test_a_cancelled_request_hangs_up(server: Callable[[], Halting], kind: Kind) -> None:
    halting = server()
    async with serving(halting) as peer, kind.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.get, peer.url)
            await halting.heard.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await halting.hung_up.wait()
        gc.collect()


@pytest.mark.parametrize("connects", [False, True], ids=["while it is written", "while it connects"])
@ours("it leaves the generator of a body, and the socket, to the garbage collector")
async def test_a_request_that_is_cancelled_before_it_is_sent_hangs_up(connects: bool, kind: Kind) -> None:
    begun, release, hung_up = anyio.Event(), anyio.Event(), anyio.Event()

    async def script(wire: Wire) -> None:
        if not connects:
            await wire.hear_until(b"\r\n\r\n")
        begun.set()
        await release.wait()
        await wire.hung_up()
        hung_up.set()

    async with serving(script) as peer, kind.client(tls=trusting()) as client:
        url = peer.url.replace("http:", "https:") if connects else peer.url
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.post, url, content=LONG))
            await begun.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        release.set()
        await hung_up.wait()


async def after_steps(count: int, function: Callable[[], Awaitable[object]]) -> bool:
    """Run *function* and cancel it after *count* turns of the event loop; whether it was done by then."""
    done = False

    async def run() -> None:
        nonlocal done
        await function()
        done = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for _ in range(count):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    return done


async def test_a_request_cancelled_at_any_point_leaves_the_pool_usable() -> None:
    """Each turn of the event loop is a place at which a cancellation may strike."""
    done = False

    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            await wire.say(head(200, CHUNKED) + b"4\r\nti")
            await wire.say(b"de\r\n0\r\n\r\n")

    async with serving(script) as peer, httpx.AsyncClient(transport=PoolTransport(untrusting()), timeout=25) as client:
        for count in range(1, 400):
            done = await after_steps(count, lambda: client.post(peer.url))
            assert (await client.get(peer.url)).content == b"tide"
            if done:
                break
        gc.collect()

    assert done


# Responses that are left


@pytest.mark.parametrize("cancelled", [False, True], ids=["at leisure", "in haste"])
@both
async def test_closing_a_response_before_its_end_hangs_up_at_once(cancelled: bool, kind: Kind) -> None:
    server = Halting(head(200, LENGTH) + b"tide")
    async with serving(server) as peer, kind.client() as client:
        request = client.build_request("GET", peer.url)
        response = await client.send(request, stream=True)
        with anyio.CancelScope() as scope:
            if cancelled:
                scope.cancel()
            await response.aclose()
        await server.hung_up.wait()
        gc.collect()


async def test_a_response_that_is_left_in_its_body_hangs_up() -> None:
    server = Halting(head(200, LENGTH) + b"tide")
    async with serving(server) as peer, PoolTransport(untrusting()) as pool:
        response = await pool.handle_async_request(httpx.Request("GET", peer.url))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        pieces = aiter(response.stream)
        assert await anext(pieces) == b"tide"
        await response.aclose()

        with anyio.fail_after(25):
            await server.hung_up.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(pieces)


@pytest.mark.parametrize("fault", ["a cancellation", "a bad chunk"])
async def test_a_body_that_fails_hangs_up_without_being_closed(fault: str) -> None:
    server = Halting(head(200, CHUNKED) + (b"zz\r\n" if fault == "a bad chunk" else b""))
    async with serving(server) as peer, PoolTransport(untrusting()) as pool:
        response = await pool.handle_async_request(httpx.Request("GET", peer.url))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        if fault == "a cancellation":
            with anyio.move_on_after(0):
                await anext(aiter(response.stream))
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(aiter(response.stream))

        with anyio.fail_after(25):
            await server.hung_up.wait()


async def test_a_response_that_has_arrived_need_not_be_read_for_its_connection_to_be_kept() -> None:
    async with serving(saying(response(200, body=b"tide"))) as peer, PoolTransport(untrusting()) as pool:
        first = await pool.handle_async_request(httpx.Request("POST", peer.url))
        second = await pool.handle_async_request(httpx.Request("POST", peer.url))
        await first.aclose()

        assert await second.aread() == b"tide"

    assert (len(peer.heard), peer.connections) == (2, 1)


# Closing


async def test_a_closed_pool_has_no_connections_and_makes_none() -> None:
    hung_up: list[str] = []

    async def script(wire: Wire) -> None:
        method = (await wire.hear()).method
        await wire.say(EMPTY if method == "POST" else head(200, CHUNKED))
        await wire.hung_up()
        hung_up.append(method)

    async def listen() -> None:
        response = await pool.handle_async_request(httpx.Request("GET", peer.url))
        with pytest.raises(httpx.ReadError):
            await response.aread()

    pool = PoolTransport(untrusting())
    async with serving(script) as peer:
        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await peer.hears("GET", 1)
                await pool.handle_async_request(httpx.Request("POST", peer.url))
                await anyio.wait_all_tasks_blocked()
                await pool.aclose()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(httpx.TransportError, match="the server: the client was closed"):
            await pool.handle_async_request(httpx.Request("GET", peer.url))

    assert (sorted(hung_up), peer.connections) == (["GET", "POST"], 2)


async def test_a_pool_closed_at_any_point_leaves_nothing_open() -> None:
    """Requests may end between the closing of one connection and the next."""
    opened = closed = 0

    async def script(wire: Wire) -> None:
        nonlocal opened, closed
        opened += 1
        try:
            while True:
                await wire.hear()
                await wire.say(EMPTY)
        finally:
            closed += 1

    async def ask(pool: PoolTransport) -> None:
        for _ in range(3):
            with suppress(httpx.TransportError):
                await pool.handle_async_request(httpx.Request("POST", peer.url))

    async with serving(script) as peer:
        for turns in range(0, 80, 2):
            pool = PoolTransport(untrusting())
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(ask, pool)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                await pool.aclose()
        await anyio.wait_all_tasks_blocked()

        assert opened == closed > 0


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@both
async def test_a_connection_that_ends_its_request_after_close_is_not_kept(secure: bool, kind: Kind) -> None:
    server = Halting(head(200, LENGTH) + b"x" * 1000)
    tls = certified("127.0.0.1") if secure else None
    async with serving(server, tls=tls) as peer:
        async with kind.client(tls=trusting()) as client:
            assert len((await client.get(peer.url)).content) == 1000
        with anyio.fail_after(25):
            await server.hung_up.wait()
