"""A lazy client: it starts without its server, connects with the first request, and connects again when it has to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from mcp_host import Client, Limits, Stdio
from mcp_host.errors import (
    CallerError,
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    McpError,
    NotConnected,
    RequestTimeout,
)
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.protocol.backoff import Backoff
from mcp_host.testing import ScriptedPeer, Server
from mcp_host.types import LoggingMessageNotificationParams, ToolListChangedNotification
from tests.client.support import (
    EMPTY,
    TOOLS,
    Era,
    Recorder,
    answering,
    connected,
    ended_by_closing,
    methods,
    open_listening,
    seconds_of_call,
    silent,
)
from tests.clock import Pauses
from tests.extent import on_both
from tests.transports.children import python
from tests.transports.http_peers import reserved_port, timed

pytestmark = on_both

NOT_YET = "the lazy client is not connected yet: it connects with its first request; call connect() to connect now"
CLOSED = "the client is not connected: use `async with`, or call connect() first"


SERVER = Server("tides")


@SERVER.tool
def tides() -> str:
    return "high"


async def fail_to_connect(client: Client) -> float:
    """How long a call took that could not connect."""
    began = anyio.current_time()
    with pytest.raises(ConnectFailed, match="failed: RuntimeError: down") as raised:
        await client.call_tool("x")
    assert not raised.value.may_have_run
    return anyio.current_time() - began


# Before the first request


async def test_entering_does_not_touch_the_server_and_the_first_requests_share_one_attempt(era: Era) -> None:
    peer = answering(era, EMPTY)
    async with connected(peer, lazy=True) as client:
        await anyio.wait_all_tasks_blocked()
        assert (client.connected, peer.received) == (False, [])
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(client.call_tool, "x")
        assert (client.connected, client.protocol_version) == (True, era.version)
        await client.call_tool("x")

    assert methods(peer) == [*era.opening, *6 * ["tools/call"]]


async def test_a_request_needs_no_async_with() -> None:
    client = Client(SERVER, lazy=True)
    with anyio.fail_after(25):
        assert await client.list_tools() != []
        await client.aclose()


async def test_what_connecting_settles_is_not_known_before() -> None:
    def errors() -> list[str]:
        found = []
        for name in ("protocol_version", "server_info", "server_capabilities", "instructions", "sampling_mode"):
            try:
                getattr(client, name)
            except NotConnected as exc:
                found.append(str(exc))
        return found

    async with connected(SERVER, lazy=True) as client:
        before = errors()
        await client.list_tools()
        while_connected = errors()

    assert (before, while_connected, errors()) == ([NOT_YET] * 5, [], [CLOSED] * 5)


async def test_neither_a_request_with_a_wrong_argument_nor_closing_connects() -> None:
    peer = ScriptedPeer(silent)
    async with connected(peer, lazy=True) as client:
        with pytest.raises(TypeError):
            await client.call_tool("x", timeout="soon")  # type: ignore[arg-type]  # the subject

    assert peer.received == []


# One attempt for all


@pytest.mark.fake_clock
async def test_the_attempt_goes_on_for_the_others_if_a_caller_is_cancelled_or_times_out(era: Era) -> None:
    up, results = anyio.Event(), list[str]()

    async def script(peer: ScriptedPeer) -> None:
        await up.wait()
        await era.open(peer)
        await peer.reply(await peer.receive(), EMPTY)

    async def give_up() -> None:
        with anyio.move_on_after(1):
            await client.call_tool("x")
        results.append("cancelled")

    async def time_out(timeout: float | None, idle_timeout: float | None) -> None:
        with pytest.raises(RequestTimeout) as raised:
            await client.call_tool("x", timeout=timeout, idle_timeout=idle_timeout)
        assert not raised.value.may_have_run
        results.append(str(raised.value))

    async def wait() -> None:
        await client.call_tool("x")
        results.append("answered")

    peer = ScriptedPeer(script)
    async with connected(peer, lazy=True, era=era.version, within=60) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)  # the first: the attempt is not its own
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(time_out, 2.0, None)
        tasks.start_soon(time_out, None, 3.0)
        tasks.start_soon(wait)
        await anyio.sleep(4)
        up.set()

    assert results == [
        "cancelled",
        "connecting to the scripted peer: took longer than 2 s (timeout)",
        "connecting to the scripted peer: the server was silent for 3 s (idle_timeout)",
        "answered",
    ]
    assert methods(peer).count("tools/call") == 1


@pytest.mark.fake_clock
async def test_connecting_takes_no_longer_than_connect_timeout() -> None:
    async with connected(ScriptedPeer(silent), lazy=True, limits=Limits(connect_timeout=3), within=60) as client:
        with pytest.raises(ConnectTimeout) as raised:
            await client.call_tool("x")

    assert not raised.value.may_have_run


# A server that is down


class Mortal:
    """A server in this process that can be down, and dies over the tool `die`; the client restarts none such by itself."""

    def __init__(self, era: Era, *, up: bool = True) -> None:
        self.up = up
        self.starts = 0
        self.transport = ScriptedPeer(self._live)
        self._era = era

    def client(self) -> Client:
        return Client(self.transport, lazy=True, era=self._era.version)

    def entered(self) -> AbstractAsyncContextManager[Client]:
        return connected(self.transport, within=100, lazy=True, era=self._era.version)

    async def _live(self, peer: ScriptedPeer) -> None:
        self.starts += 1
        if not self.up:
            raise RuntimeError("down")
        await self._era.open(peer)
        while True:
            request = await peer.receive("tools/call")
            if request["params"]["name"] == "die":
                raise RuntimeError("killed")
            await peer.reply(request, EMPTY)


@pytest.mark.fake_clock
async def test_each_request_tries_again_after_a_pause_that_stays_short(era: Era) -> None:
    server = Mortal(era, up=False)
    async with server.entered() as client:
        took = [await fail_to_connect(client) for _ in range(20)]
        server.up = True
        took.append(await seconds_of_call(client))

    assert took == pytest.approx([0, 0, 1.125, 1.6875, 2.53125, *16 * [3]])
    assert server.starts == 21
    assert client.warnings == []


@pytest.mark.fake_clock
async def test_the_pause_counts_from_the_last_attempt_so_a_rare_request_does_not_wait(era: Era) -> None:
    server = Mortal(era, up=False)
    took = []
    async with server.entered() as client:
        for _ in range(6):
            took.append(await fail_to_connect(client))
            await anyio.sleep(1)
        await anyio.sleep(2)
        took.append(await fail_to_connect(client))

    assert took == pytest.approx([0, 0, 0.125, 0.6875, 1.53125, 2, 0])


@pytest.mark.fake_clock
async def test_a_busy_application_does_not_flood_a_server_that_is_down(era: Era) -> None:
    """Ten tasks, each with one request after another for a minute."""
    server = Mortal(era, up=False)

    async def keep_calling() -> None:
        while True:
            await fail_to_connect(client)

    async with server.entered() as client:
        with anyio.move_on_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(keep_calling)

    assert 20 <= server.starts <= 25


@pytest.mark.fake_clock
async def test_connect_tries_at_once_and_requests_that_wait_use_its_connection(era: Era) -> None:
    server = Mortal(era, up=False)
    async with server.entered() as client:
        for _ in range(8):
            await fail_to_connect(client)
        server.up = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "x")
            await anyio.wait_all_tasks_blocked()  # in the pause
            began = anyio.current_time()
            await client.connect()
        took = anyio.current_time() - began

    assert took == pytest.approx(0)
    assert server.starts == 9


async def test_an_error_of_the_server_is_raised_by_the_request_and_the_next_one_connects(era: Era) -> None:
    errors = [True, False]

    async def script(peer: ScriptedPeer) -> None:
        if errors.pop(0):
            await peer.reply_error(await peer.receive(), -32603, "not today")
            return
        await era.open(peer)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), lazy=True, era=era.version) as client:
        with pytest.raises(McpError, match="not today"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).content == []


# A server that is lost


async def test_after_a_crash_the_next_request_connects_again_and_the_error_names_no_remedy(era: Era) -> None:
    server = Mortal(era)
    errors = []
    async with server.entered() as client:
        for _ in range(3):
            with pytest.raises(ConnectionClosed) as raised:
                await client.call_tool("die")
            errors.append((str(raised.value), raised.value.may_have_run))
            assert not client.connected
            assert client.protocol_version == era.version  # as it was
            await client.call_tool("x")

    assert errors == 3 * [("the scripted peer failed: RuntimeError: killed", True)]
    assert server.starts == 4


@pytest.mark.fake_clock
async def test_a_server_that_keeps_dying_is_started_again_without_end(era: Era) -> None:
    server = Mortal(era)
    took = []
    async with server.entered() as client:
        for _ in range(15):
            began = anyio.current_time()
            with pytest.raises(ConnectionClosed, match="killed"):
                await client.call_tool("die")
            took.append(anyio.current_time() - began)
        await client.call_tool("x")

    assert took == pytest.approx([0, 0, 1.125, 1.6875, 2.53125, *10 * [3]])
    assert client.warnings == []


@pytest.mark.fake_clock
async def test_one_request_does_not_start_a_server_endlessly_that_dies_as_soon_as_it_is_connected() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        await peer.aclose()

    peer = ScriptedPeer(script)
    starts = []
    async with connected(peer, lazy=True, era="legacy", within=600) as client:
        for _ in range(3):
            with pytest.raises(ConnectionClosed) as raised:
                await client.call_tool("x")
            assert (str(raised.value), raised.value.may_have_run) == ("the scripted peer has ended", False)
            starts.append(methods(peer).count("initialize"))

    assert starts == [9, 10, 11]


async def test_a_listening_client_connects_again_without_a_request_once_it_has_connected() -> None:
    """In 2026-07-28 changes arrive on a subscription, so nothing is heard before the first request."""
    changes = Recorder()
    lives = iter([1, 2])

    async def script(peer: ScriptedPeer) -> None:
        number = next(lives)
        listen = await open_listening(peer, {"tools": {"listChanged": True}})
        if number == 1:
            await peer.reply(await peer.receive("tools/call"), EMPTY)
            await peer.aclose()
        await peer.notify_subscription(listen, "notifications/tools/list_changed")

    peer = ScriptedPeer(script)
    async with connected(peer, lazy=True, on_change=changes) as client:
        await anyio.wait_all_tasks_blocked()
        assert peer.received == []
        await client.call_tool("x")
        await changes.called.wait()

    assert changes == [ToolListChangedNotification()]


# Closing


async def test_closing_while_it_connects_ends_the_requests_and_later_ones_do_not_connect(era: Era) -> None:
    peer = ScriptedPeer(silent)
    async with connected(peer, lazy=True) as client:
        ended = await ended_by_closing(client, *2 * [lambda: client.call_tool("x")])
        heard = len(peer.received)
        with pytest.raises(NotConnected) as raised:
            await client.call_tool("x")

    assert [(str(error), error.may_have_run) for error in ended] == 2 * [("the client was closed", False)]
    assert str(raised.value) == CLOSED
    assert heard == len(peer.received) == 1


@pytest.mark.fake_clock
async def test_closing_ends_requests_that_wait_for_the_next_attempt(era: Era) -> None:
    server = Mortal(era, up=False)
    async with server.entered() as client:
        for _ in range(8):
            await fail_to_connect(client)
        (ended,) = await ended_by_closing(client, lambda: client.call_tool("x"))

    assert str(ended) == "the client was closed"
    assert server.starts == 8


@pytest.mark.parametrize("again", ["async with", "connect"])
async def test_a_closed_client_that_is_opened_again_is_lazy_again(era: Era, again: str) -> None:
    server = Mortal(era)
    with anyio.fail_after(25):
        async with server.client() as client:
            await client.call_tool("x")
        with pytest.raises(NotConnected, match=CLOSED.partition(":")[0]):
            await client.call_tool("x")
        if again == "connect":
            await client.connect()
        async with client:
            assert client.connected == (again == "connect")
            await client.call_tool("x")
            with pytest.raises(ConnectionClosed):
                await client.call_tool("die")
            await client.call_tool("x")

    assert server.starts == 3


async def test_a_closed_client_whose_connect_fails_is_lazy_again(era: Era) -> None:
    server = Mortal(era, up=False)
    client = server.client()
    with anyio.fail_after(25):
        await client.aclose()
        with pytest.raises(NotConnected):
            await client.call_tool("x")
        with pytest.raises(ConnectFailed):
            await client.connect()
        server.up = True
        await client.call_tool("x")
        await client.aclose()

    assert server.starts == 2


async def test_a_client_that_is_not_lazy_does_not_connect_by_itself(era: Era) -> None:
    server = Mortal(era)
    client = Client(server.transport, era=era.version)
    with anyio.fail_after(25):
        with pytest.raises(NotConnected) as raised:
            await client.call_tool("x")
        async with client:
            for _ in range(2):
                with pytest.raises(ConnectionClosed, match="killed"):
                    await client.call_tool("die")

    assert str(raised.value) == CLOSED
    assert server.starts == 1


# Whose context


USER: ContextVar[str] = ContextVar("USER", default="none")


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "restarted"])
async def test_a_connection_that_a_request_opens_does_not_run_in_the_context_of_its_caller(lazy: bool) -> None:
    """What belongs to no call must not look like the work of the user who happened to call first."""
    lives = iter([1, 2])
    users: list[str] = []

    async def script(peer: ScriptedPeer) -> None:
        number = next(lives)
        await peer.answer_initialize(capabilities={**TOOLS, "logging": {}})
        request = await peer.receive("tools/call")
        await peer.notify("notifications/message", {"level": "info", "data": "x"})
        await peer.reply(request, EMPTY)
        if number == 1:
            await peer.aclose()

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        users.append(USER.get())
        logged.set()

    async def call_as(user: str) -> None:
        USER.set(user)
        await client.call_tool("x")

    server = ScriptedPeer(script)
    server.restart = True
    client = Client(server, lazy=lazy, on_log=on_log, era="legacy")  # where the module is imported, say
    USER.set("the application")
    with anyio.fail_after(25):
        async with client:
            for user in ("ada", "bob"):
                logged = anyio.Event()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call_as, user)
                await logged.wait()
                await anyio.wait_all_tasks_blocked()

    assert users == 2 * ["the application"]


# Event loops


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_lazy_client_serves_one_event_loop_after_another(backend: str) -> None:
    client = Client(SERVER, lazy=True)

    async def main() -> bool:
        async with client:
            return await client.list_tools() != []

    assert [anyio.run(main, backend=backend) for _ in range(2)] == [True, True]


async def test_a_lazy_client_that_is_connected_in_another_event_loop_says_so() -> None:
    client = Client(SERVER, lazy=True)

    async def elsewhere() -> str:
        with pytest.raises(CallerError) as raised:
            await client.list_tools()
        return str(raised.value)

    with anyio.fail_after(25):
        async with client:
            await client.list_tools()
            text = await anyio.to_thread.run_sync(anyio.run, elsewhere)

    assert text == "this client is connected in another event loop, and can be used and closed only there"


# Real processes and sockets: a server that comes up later, crashes, and comes back


class StdioServer:
    """Down means that its program is not there."""

    version = "2025-11-25"
    program = """
    while True:
        call = read()
        if call["params"]["name"] == "crash":
            os._exit(3)
        reply(call, text(str(os.getpid())))
    """

    def __init__(self, folder: Path, port: int) -> None:
        self._file = folder / "server.py"
        self.server: Any = Stdio([sys.executable, self._file])

    async def come_up(self) -> None:
        await anyio.Path(self._file).write_text(python(self.program)[-1])

    async def come_down(self) -> None:
        await anyio.Path(self._file).unlink(missing_ok=True)


class HttpServer:
    """Down means that nothing listens on its port."""

    version = "2026-07-28"
    program = """
import os, sys
from mcp_host.testing import Server

server = Server("tides", versions=["2026-07-28"])

@server.tool
def pid() -> int:
    return os.getpid()

@server.tool
def crash() -> None:
    os._exit(3)

server.run_http(int(sys.argv[1]))
"""

    def __init__(self, folder: Path, port: int) -> None:
        self._port = port
        self._process: Process | None = None
        self.server: Any = timed(f"http://127.0.0.1:{self._port}/mcp", sleep=Pauses(), sleep_unsent=Pauses())

    async def come_up(self) -> None:
        await self.come_down()
        command = [sys.executable, "-c", self.program, str(self._port)]
        self._process = await anyio.open_process(command, stderr=None)
        assert self._process.stdout is not None
        assert self.server.url in (await self._process.stdout.receive()).decode()

    async def come_down(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            await self._process.aclose()
            self._process = None


@pytest.mark.backends("trio")
@pytest.mark.parametrize("kind", [StdioServer, HttpServer])
async def test_a_server_that_comes_up_later_crashes_and_comes_back_is_used_each_time(
    kind: type[StdioServer | HttpServer], tmp_path: Path
) -> None:
    with anyio.fail_after(60), reserved_port() as port:
        server = kind(tmp_path, port)
        try:
            client = Client(server.server, lazy=True)
            client._state.restart_backoff = lambda: Backoff(max_failures=8, min_delay=0, max_delay=0)
            async with client:
                with pytest.raises(ConnectFailed) as before:
                    await client.call_tool("pid")
                await server.come_up()
                first = (await client.call_tool("pid")).text
                assert client.protocol_version == kind.version
                assert (await client.call_tool("pid")).text == first
                with pytest.raises(ConnectionClosed) as in_flight:
                    await client.call_tool("crash")
                await server.come_down()
                with pytest.raises(ConnectionClosed) as meanwhile:
                    await client.call_tool("pid")
                await server.come_up()
                assert (await client.call_tool("pid")).text not in ("", first)
        finally:
            with anyio.CancelScope(shield=True):
                await server.come_down()

    assert [caught.value.may_have_run for caught in (before, in_flight, meanwhile)] == [False, True, False]


# Middleware that uses the client while it connects

CONNECTING = "the client is connecting: middleware of a request without a call_id cannot wait for that"


async def call(client: Client) -> None:
    await client.call_tool("tides")


@pytest.mark.parametrize("begin", [call, Client.connect], ids=["by a call", "by connect"])
async def test_a_client_that_middleware_uses_while_it_connects_does_not_wait_for_itself(
    era: Era, begin: Callable[[Client], Any], subtests: pytest.Subtests
) -> None:
    clients: list[Client] = []

    async def token(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.call_id is None:
            await use(clients[0])
        return await call_next(request)

    for use in (call, Client.connect):
        clients[:] = [Client(answering(era, EMPTY), era=era.version, lazy=True, middleware=[token])]
        with subtests.test(use=use.__name__), anyio.fail_after(25):
            async with clients[0] as client:
                with pytest.raises(CallerError, match=f"^{CONNECTING}$"):
                    await begin(client)


async def test_a_task_of_middleware_does_not_wait_for_the_client_either(era: Era) -> None:
    clients: list[Client] = []
    errors: list[BaseException] = []

    async def token(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.call_id is None and not errors:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, clients[0])
            except BaseExceptionGroup as group:
                errors.extend(group.exceptions)
        return await call_next(request)

    clients.append(Client(answering(era, EMPTY), lazy=True, middleware=[token]))
    with anyio.fail_after(25):
        async with clients[0] as client:
            await call(client)

    assert [(type(error), str(error)) for error in errors] == [(CallerError, CONNECTING)]


async def test_a_task_that_outlives_the_middleware_that_started_it_may_wait_for_the_client(era: Era) -> None:
    """For example one that renews a token now and then."""
    wanted, done = anyio.Event(), anyio.Event()
    connecting: list[str] = []

    async def later() -> None:
        await wanted.wait()
        await call(client)
        done.set()

    async with anyio.create_task_group() as tasks:

        async def token(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
            if isinstance(request, ClientRequest) and request.call_id is None:
                connecting.append(request.method)
                if len(connecting) == 1:
                    tasks.start_soon(later)
                else:
                    wanted.set()
                    await anyio.wait_all_tasks_blocked()  # until `later` waits
            return await call_next(request)

        peer = answering(era, EMPTY)
        async with connected(peer, era=era.version, lazy=True, middleware=[token]) as client:
            await call(client)
            await client.aclose()
            async with client:
                await call(client)
                await done.wait()

    assert methods(peer).count("tools/call") == 3
