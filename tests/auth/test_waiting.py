"""`OAuth` in a client: what a call waits for, and what its timeouts do meanwhile. On a clock that does not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_host import Client, Limits, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, DeviceCode, MemoryTokens, OAuth, OnDevice
from mcp_host.auth.shared_work import GRACE
from mcp_host.errors import ConnectTimeout, HttpStatusError, RequestTimeout
from mcp_host.transports._http.session import DELETE_TIME
from tests.auth.world import Answers, Gate, World
from tests.extent import on_both

pytestmark = [pytest.mark.fake_clock, on_both]

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])

LONG = 1000.0  # seconds, which take no time


class Server(Answers):
    """A call gets *response*, if there is one."""

    response: Callable[[], Response] | None = None

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        return self.response() if method == "tools/call" and self.response is not None else None


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def world(server: Server) -> World:
    world = World(lifetime=100)
    world.site.app = server
    return world


@asynccontextmanager
async def client(
    world: World, auth: OAuth, era: str, *, of_httpx: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """A client of the world's protected server, for a long time at most. *auth* may be that of a client *of_httpx*."""
    http, given = (world.client(auth), None) if of_httpx else (world.client(), auth)
    with anyio.fail_after(LONG):
        async with Client(StreamableHttp(world.site.url, client=http, auth=given), era=era, **options) as client:
            yield client


@ERAS
async def test_a_lazy_client_that_needs_a_login_says_so_at_once(world: World, era: str) -> None:
    auth = world.oauth(login=None)

    async with client(world, auth, era, lazy=True) as web_host:
        began = anyio.current_time()
        for _ in range(5):
            with pytest.raises(AuthorizationNeeded) as needed:
                await web_host.call_tool("x")
        await auth.finish(needed.value.state, await world.person(needed.value.url))
        await web_host.call_tool("x")
        took = anyio.current_time() - began

    assert took == 0


@ERAS
async def test_a_lazy_client_that_needs_a_login_forgets_that_its_server_was_down(world: World, era: str) -> None:
    auth = world.oauth(login=None)

    async def down(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=503)(scope, receive, send)

    site, world.apps[1002] = world.apps[1002], down
    async with client(world, auth, era, lazy=True) as web_host:
        for _ in range(5):
            with pytest.raises(HttpStatusError):
                await web_host.call_tool("x")
        world.apps[1002] = site
        took = []
        for _ in range(3):
            began = anyio.current_time()
            with pytest.raises(AuthorizationNeeded):
                await web_host.call_tool("x")
            took.append(anyio.current_time() - began)

    assert took == [pytest.approx(3), 0, 0]


# OAuth's own requests


async def seconds_until_timeout(client: Client, timeout: float) -> float:
    """How long a call takes to time out. It was not sent."""
    began = anyio.current_time()
    with pytest.raises(RequestTimeout, match=rf"took longer than {timeout:g} s \(timeout\)") as failed:
        await client.call_tool("x", timeout=timeout)
    assert not failed.value.may_have_run
    return anyio.current_time() - began


@ERAS
@pytest.mark.parametrize("others_wait", [True, False])
async def test_a_call_times_out_while_its_token_is_refreshed_and_the_refresh_goes_on(
    world: World, era: str, others_wait: bool
) -> None:
    async with client(world, world.oauth(), era) as host:
        world.now += 200
        gate = Gate(world.server, "token")
        async with anyio.create_task_group() as tasks:
            if others_wait:
                tasks.start_soon(host.call_tool, "x")
                await gate.reached.wait()
            took = await seconds_until_timeout(host, 2)
            gate.is_open.set()
        await host.call_tool("x")

    assert took == 2
    assert (world.logins, world.refreshes) == (1, 1)


async def test_a_call_times_out_while_another_process_refreshes_its_token(world: World) -> None:
    store = MemoryTokens()

    async with client(world, world.oauth(tokens=store), "legacy") as host, anyio.create_task_group() as tasks:
        world.now += 200
        gate = Gate(world.server, "token")
        tasks.start_soon(world.call, world.restarted(tokens=store))
        await gate.reached.wait()
        took = await seconds_until_timeout(host, 5)
        gate.is_open.set()

    assert took == 5


@ERAS
@pytest.mark.parametrize("endpoint", ["metadata", "register", "token", "refresh"])
async def test_connecting_times_out_while_the_authorization_server_is_silent(
    world: World, era: str, endpoint: str
) -> None:
    """What must not be lost has a moment more, in the background."""
    auth = world.oauth()
    if endpoint == "refresh":
        await auth.login(world.site.url)
        world.now += 200
    gate = Gate(world.server, "token" if endpoint == "refresh" else endpoint)

    began = anyio.current_time()
    with pytest.raises(ConnectTimeout):
        async with client(world, auth, era, limits=Limits(connect_timeout=1)):
            """It does not connect."""
    took = anyio.current_time() - began
    await anyio.sleep(GRACE)

    assert (took, gate.waiting) == (1, 0)


@ERAS
async def test_closing_ends_a_refresh_that_hangs_once_no_other_client_needs_it(world: World, era: str) -> None:
    auth = world.oauth()

    async with client(world, auth, era) as last:
        async with client(world, auth, era) as first:
            world.now += 200
            gate = Gate(world.server, "token")
            for host in (first, last):
                await seconds_until_timeout(host, 2)
        assert gate.waiting == 1
        began = anyio.current_time()
    took = anyio.current_time() - began

    assert (took, gate.waiting) == (DELETE_TIME if era == "legacy" else 0, 0)
    gate.is_open.set()
    async with client(world, auth, era):
        assert world.refreshes == 1


async def test_a_slow_authorization_is_no_silence_of_the_server(world: World, server: Server) -> None:
    """Neither while it is probed, nor during a call."""

    async def slowly(request: Request) -> Response:
        await anyio.sleep(10)
        return await world.server._token(request)

    world.server.answers["token"] = slowly
    async with client(world, world.oauth(), "auto") as host:
        world.now += 200
        await host.call_tool("x", idle_timeout=5)

    assert server.methods == ["server/discover", "tools/call"]
    assert len(world.site.seen) == 3  # one was refused


async def test_a_call_that_times_out_while_its_stream_gets_its_authorization_may_have_run(
    world: World, server: Server
) -> None:
    def broken_off() -> Response:
        world.now += 200
        Gate(world.server, "token")
        return Response("id: 1\ndata:\n\n", media_type="text/event-stream")

    server.response = broken_off
    async with client(world, world.oauth(), "legacy") as host:
        with pytest.raises(RequestTimeout) as failed:
            await host.call_tool("x", timeout=5)

    assert failed.value.may_have_run


# A person


class Person:
    """Takes *seconds* for each login."""

    def __init__(self, world: World, seconds: float) -> None:
        self.seconds = seconds
        self._world = world

    async def __call__(self, url: str) -> str:
        await anyio.sleep(self.seconds)
        return await self._world.person(url)


@ERAS
@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
async def test_the_timeouts_of_connecting_are_paused_while_a_person_logs_in(world: World, era: str, lazy: bool) -> None:
    auth, limits = world.oauth(login=Person(world, 100)), Limits(connect_timeout=3)

    async with client(world, auth, era, lazy=lazy, limits=limits) as host, anyio.create_task_group() as tasks:
        for timeout in (1, 2):
            tasks.start_soon(partial(host.call_tool, "x", timeout=timeout, idle_timeout=timeout))

    assert world.logins == 1


@ERAS
@pytest.mark.parametrize("of_httpx", [False, True])
async def test_the_timeouts_of_all_calls_are_paused_while_a_person_logs_in_for_them(
    world: World, era: str, of_httpx: bool
) -> None:
    async def join_later() -> None:
        await anyio.sleep(50)
        await host.call_tool("x", timeout=2)

    async with client(world, world.oauth(login=Person(world, 100)), era, of_httpx=of_httpx) as host:
        world.server.forget()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(partial(host.call_tool, "x", timeout=2, idle_timeout=2))
            tasks.start_soon(join_later)

    assert world.logins == 2


async def test_the_timeouts_of_a_call_are_paused_while_a_person_logs_in_for_a_new_session(
    world: World, server: Server
) -> None:
    def lost() -> Response:
        server.response = None
        world.server.forget()
        return Response(status_code=404)

    server.response = lost
    async with client(world, world.oauth(login=Person(world, 100)), "legacy") as host:
        await host.call_tool("x", timeout=2, idle_timeout=2)

    assert (server.methods.count("initialize"), world.logins) == (2, 2)


@ERAS
async def test_the_timeouts_run_on_once_the_person_has_logged_in(world: World, era: str) -> None:
    world.server.gives_refresh_tokens = False

    async with client(world, world.oauth(login=Person(world, 100)), era) as host:
        world.server.forget()
        gate = Gate(world.server, "token")
        took = await seconds_until_timeout(host, 2)
        gate.is_open.set()

    assert took == 102


async def test_a_login_pauses_the_timeouts_no_longer_than_input_timeout(world: World) -> None:
    person, limits = Person(world, 1), Limits(input_timeout=100)

    async with client(world, world.oauth(login=person), "legacy", limits=limits) as host:
        world.server.forget()
        person.seconds = 200
        took = await seconds_until_timeout(host, 2)

    assert (took, world.logins) == (102, 1)


async def test_the_timeouts_are_paused_while_a_person_logs_in_on_another_device(world: World) -> None:
    world.server.metadata["device_authorization_endpoint"] = f"{world.server.issuer}/device"
    world.server.polls[:] = [*10 * ["authorization_pending"], ""]

    async def show(code: DeviceCode) -> None:
        pass

    auth, limits = world.oauth(login=OnDevice(show)), Limits(connect_timeout=3)

    async with client(world, auth, "legacy", limits=limits) as host:
        await host.call_tool("x")

    assert world.server.polls == []
