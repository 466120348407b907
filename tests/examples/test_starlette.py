"""A client in a web framework: the task of the lifespan connects and closes, and the tasks of requests call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from anyio import from_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from mcp_host import Client, McpError
from mcp_host.testing import Server
from tests.extent import on_both


class Tides:
    """A server with a tool that answers, and one that waits."""

    def __init__(self) -> None:
        self.server = Server("tides")
        self.waiting, self.cancelled = anyio.Event(), anyio.Event()
        self.server.tool(self.tell)
        self.server.tool(self.wait)

    async def tell(self, what: str) -> str:
        return what

    async def wait(self) -> str:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        raise AssertionError


def application(client: Client) -> Starlette:
    async def tell(request: Request) -> Response:
        result = await client.call_tool("tell", {"what": request.query_params["what"]})
        return PlainTextResponse(result.text)

    def tell_in_a_thread(request: Request) -> Response:
        async def call() -> str:
            return (await client.call_tool("tell", {"what": request.query_params["what"]})).text

        return PlainTextResponse(from_thread.run(call))

    async def wait(request: Request) -> Response:
        try:
            await client.call_tool("wait")
        except McpError as exc:
            return PlainTextResponse(str(exc), 502)
        raise AssertionError

    async def close(request: Request) -> Response:
        await client.aclose()
        return Response()

    async def connect(request: Request) -> Response:
        await client.connect()
        return Response()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    routes = [Route(f"/{route.__name__}", route) for route in (tell, tell_in_a_thread, wait, close, connect)]
    return Starlette(routes=routes, lifespan=lifespan)


@asynccontextmanager
async def running(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """The application, with its lifespan in a task of its own, as ASGI servers run it."""
    up, down = anyio.Event(), anyio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            up.set()
            await down.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live)
        await up.wait()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
            yield http
        down.set()


lazily = pytest.mark.parametrize("lazy", [False, True], ids=["connected in the lifespan", "lazy"])


@lazily
async def test_requests_use_the_client_that_the_lifespan_has_opened(lazy: bool) -> None:
    client = Client(Tides().server, lazy=lazy)
    told: list[str] = []

    async def ask(route: str, what: str) -> None:
        told.append((await http.get(route, params={"what": what})).text)

    with anyio.fail_after(25):
        async with running(application(client)) as http:
            assert client.connected != lazy
            async with anyio.create_task_group() as tasks:
                for number in range(5):
                    tasks.start_soon(ask, "/tell", str(number))
                tasks.start_soon(ask, "/tell_in_a_thread", "5")
            assert client.connected

    assert sorted(told) == ["0", "1", "2", "3", "4", "5"]
    assert not client.connected


@on_both
@lazily
async def test_the_request_that_connected_may_be_cancelled_and_the_connection_stays(lazy: bool) -> None:
    """Which task connects makes no difference: the connection has one of its own."""
    tides = Tides()
    client = Client(tides.server, lazy=lazy)
    with anyio.fail_after(25):
        async with running(application(client)) as http:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(http.get, "/wait")
                await tides.waiting.wait()
                tasks.cancel_scope.cancel()
            await tides.cancelled.wait()
            assert client.connected
            assert (await http.get("/tell", params={"what": "still here"})).text == "still here"


@lazily
async def test_one_request_may_close_while_another_waits_and_a_third_connect_again(lazy: bool) -> None:
    tides = Tides()
    client = Client(tides.server, lazy=lazy)
    failed: list[tuple[int, str]] = []

    async def wait() -> None:
        response = await http.get("/wait")
        failed.append((response.status_code, response.text))

    with anyio.fail_after(25):
        async with running(application(client)) as http:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await tides.waiting.wait()
                assert (await http.get("/close")).status_code == 200
            assert failed == [(502, "the client was closed")]
            assert (await http.get("/connect")).status_code == 200
            assert (await http.get("/tell", params={"what": "again"})).text == "again"

    assert not client.connected
