"""The example of a web application, over real HTTP: browsers that come and go, and a server process that dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

import anyio
import httpx
import pytest
import uvicorn
from anyio.abc import Process, SocketStream, TaskGroup, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream
from web_application import make_app
from web_questions import Questions

from mcp_host import Stdio
from mcp_host.serving.http.uvicorn_server import listen
from tests.transports.http_peers import Log, reserved_port

TIMEOUT = 60.0  # seconds for several programs that import everything, on a busy machine


pytestmark = pytest.mark.backends("asyncio")  # uvicorn runs on no other


# The MCP server. It tells the test what happens to it.
CALCULATOR = """
import os, socket, sys
import anyio
from mcp_host.testing import Context, Server

told = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def tell(text):
    told.sendall(f"{text}\\n".encode())

server = Server("calculator", versions=[sys.argv[2]])

@server.tool
async def solve(problem: str, context: Context) -> str:
    tell(f"begins: {problem}")
    try:
        if problem.startswith("wait"):
            await anyio.sleep_forever()
        return (await context.sample(problem)).text
    except anyio.get_cancelled_exc_class():
        tell(f"cancelled: {problem}")
        raise

tell(f"up: {os.getpid()}")
if len(sys.argv) > 3:
    server.run_http(int(sys.argv[3]))
else:
    server.run_stdio()
"""


def calculator(*arguments: object) -> list[str]:
    return [sys.executable, "-c", CALCULATOR, *map(str, arguments)]


@dataclass
class Browser:
    """One user at their browser."""

    user: str
    http: httpx.AsyncClient
    seen: Log[list[dict[str, str]]] = field(default_factory=Log)
    """The open questions, as shown each time."""
    responses: list[tuple[int, str]] = field(default_factory=list)

    async def watch(self) -> None:
        """Show the questions until cancelled."""
        questions = self.http.stream("GET", "/questions", params={"user": self.user}, timeout=None)
        with suppress(httpx.TransportError):  # the application has shut down
            async with questions as response:
                async for line in response.aiter_lines():
                    if line:
                        self.seen.append(json.loads(line.removeprefix("data: ")))

    async def ask(self, problem: str) -> None:
        response = await self.http.post("/ask", json={"user": self.user, "problem": problem})
        self.responses.append((response.status_code, response.text))

    async def sees(self, *problems: str) -> list[str]:
        """Wait until these questions are shown, and no other; return their ids."""
        texts = sorted(f"calculator asks the model: {problem}" for problem in problems)
        with anyio.fail_after(TIMEOUT):
            await self.seen.reaches(lambda seen: bool(seen) and sorted(each["text"] for each in seen[-1]) == texts)
        return [each["id"] for each in sorted(self.seen[-1], key=lambda each: each["text"])]

    async def answer(self, id: str, *, allow: bool) -> int:
        response = await self.http.post("/answer", json={"user": self.user, "id": id, "allow": allow})
        return response.status_code

    @property
    def ever_seen(self) -> set[str]:
        return {each["text"].rpartition(": ")[2] for shown in self.seen for each in shown}


@dataclass
class Site:
    """The web application, its MCP server in a process of its own, and the users."""

    kind: str
    version: str
    port: int
    """For the MCP server over HTTP."""
    tasks: TaskGroup
    """The users' looks at their questions."""
    stack: AsyncExitStack
    told: Log[str] = field(default_factory=Log)
    """What the MCP server tells; "gone" when its process has ended."""
    telling: int = 0
    calculator: Process | None = None
    server: uvicorn.Server = field(init=False)
    url: str = ""
    down: anyio.Event = field(default_factory=anyio.Event)
    """Set when the application has shut down."""

    async def serve_calculator(self) -> None:
        """Over HTTP: start the MCP server. Over stdio the application does."""
        if self.kind == "http":
            command = calculator(self.telling, self.version, self.port)
            self.calculator = await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None)
            self.stack.push_async_callback(ended, self.calculator)
            assert self.calculator.stdout is not None
            await self.calculator.stdout.receive()  # the URL: it accepts connections

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        address = calculator(self.telling, self.version)
        app = make_app(Stdio(address) if self.kind == "stdio" else f"http://127.0.0.1:{self.port}/mcp")
        self.server = Uvicorn(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        with listen(0) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            task_status.started()
            await self.server.serve([listener])
        self.down.set()

    async def shut_down(self) -> None:
        self.server.should_exit = True
        with anyio.fail_after(TIMEOUT):
            await self.down.wait()

    async def browser(self, user: str) -> Browser:
        """Someone who looks at their questions."""
        http = await self.stack.enter_async_context(httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT))
        browser = Browser(user, http)
        self.tasks.start_soon(browser.watch)
        await browser.sees()
        return browser

    async def tells(self, *texts: str) -> None:
        """Wait until the MCP server has told each of these."""
        with anyio.fail_after(TIMEOUT):
            await self.told.reaches(lambda told: set(texts) <= set(told))

    async def ups(self, number: int) -> list[int]:
        """The process ids of the MCP server, once it has been started so often."""
        with anyio.fail_after(TIMEOUT):
            await self.told.reaches(lambda told: len(pids(told)) >= number)
        return pids(self.told)

    async def listen(self, stream: SocketStream) -> None:
        lines = BufferedByteReceiveStream(stream)
        async with stream:
            while True:
                try:
                    self.told.append((await lines.receive_until(b"\n", 1000)).decode())
                except (anyio.IncompleteRead, anyio.BrokenResourceError):
                    self.told.append("gone")
                    return


def pids(told: list[str]) -> list[int]:
    return [int(text.removeprefix("up: ")) for text in told if text.startswith("up: ")]


async def ended(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
        await process.wait()
        await process.aclose()


class Uvicorn(uvicorn.Server):
    """In this process, whose signals are those of the tests."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def site(kind: str, version: str) -> AsyncIterator[Site]:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as serving,
        AsyncExitStack() as stack,
    ):
        port = stack.enter_context(reserved_port())
        async with anyio.create_task_group() as watching:
            site = Site(kind, version, port, watching, stack)
            serving.start_soon(listener.serve, site.listen)
            site.telling = listener.extra(anyio.abc.SocketAttribute.local_port)
            await serving.start(site.run)
            try:
                yield site
            finally:
                watching.cancel_scope.cancel()
        await site.shut_down()
        serving.cancel_scope.cancel()


attributed = pytest.mark.parametrize(
    ("kind", "version"),
    [("stdio", "2026-07-28"), ("http", "2026-07-28"), ("http", "2025-11-25")],
    ids=lambda value: value,
)
everywhere = pytest.mark.parametrize(
    ("kind", "version"),
    [("stdio", "2026-07-28"), ("stdio", "2025-11-25"), ("http", "2026-07-28"), ("http", "2025-11-25")],
    ids=lambda value: value,
)


@attributed
async def test_two_users_at_once_are_each_asked_about_their_own_calls_only(kind: str, version: str) -> None:
    async with site(kind, version) as web:
        await web.serve_calculator()
        ada, bob = await web.browser("ada"), await web.browser("bob")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ada.ask, "1 + 1")
            tasks.start_soon(bob.ask, "2 + 2")
            tasks.start_soon(ada.ask, "3 + 3")
            one, three = await ada.sees("1 + 1", "3 + 3")
            (two,) = await bob.sees("2 + 2")

            assert await ada.answer(two, allow=True) == 404  # it is Bob's
            assert await bob.answer(one, allow=False) == 404
            assert await ada.answer(three, allow=True) == 204
            await ada.sees("1 + 1")
            assert await bob.answer(two, allow=False) == 204
            await bob.sees()
            assert await ada.answer(one, allow=True) == 204
            await ada.sees()

    assert ada.responses == [(200, "Four, I believe.")] * 2
    assert [status for status, _ in bob.responses] == [403 if version == "2026-07-28" else 502]
    assert (ada.ever_seen, bob.ever_seen) == ({"1 + 1", "3 + 3"}, {"2 + 2"})


async def test_where_the_wire_does_not_say_whose_call_it_is_no_user_is_asked() -> None:
    """Over a pipe in a handshake revision: the user of the only call in flight is asked, but of two calls none is."""
    async with site("stdio", "2025-11-25") as web:
        ada, bob = await web.browser("ada"), await web.browser("bob")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bob.ask, "2 + 2")
            (two,) = await bob.sees("2 + 2")
            await bob.answer(two, allow=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ada.ask, "wait")
            await web.tells("begins: wait")
            await bob.ask("3 + 3")
            tasks.cancel_scope.cancel()
        await web.tells("cancelled: wait")
        await bob.ask("4 + 4")  # a server that answers no cancelled call may still be at work on it

    assert bob.responses[0] == (200, "Four, I believe.")
    assert [status for status, _ in bob.responses] == [200, 502, 502]
    assert (ada.ever_seen, bob.ever_seen) == (set(), {"2 + 2"})


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_the_next_request_after_a_server_over_stdio_was_killed_succeeds(version: str) -> None:
    async with site("stdio", version) as web:
        ada = await web.browser("ada")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ada.ask, "wait")
            await web.tells("begins: wait")
            os.kill((await web.ups(1))[0], signal.SIGKILL)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ada.ask, "1 + 1")
            (one,) = await ada.sees("1 + 1")
            await ada.answer(one, allow=True)

        assert len(await web.ups(2)) == 2
    assert ada.responses == [(502, "the calculator cannot answer"), (200, "Four, I believe.")]


async def test_a_server_over_http_may_come_up_later_be_killed_and_come_back() -> None:
    async with site("http", "2026-07-28") as web:
        ada = await web.browser("ada")
        for _ in range(2):
            await ada.ask("while it is down")
            await web.serve_calculator()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ada.ask, "1 + 1")
                (one,) = await ada.sees("1 + 1")
                await ada.answer(one, allow=True)
            assert web.calculator is not None
            web.calculator.kill()
            await web.calculator.wait()

    assert ada.responses == [(503, "the calculator cannot answer"), (200, "Four, I believe.")] * 2


@everywhere
async def test_a_browser_that_leaves_withdraws_its_question_and_cancels_its_tool(kind: str, version: str) -> None:
    """In the handshake revisions a tool waits for the answer, and is cancelled. Since 2026-07-28 nothing waits."""
    async with site(kind, version) as web:
        await web.serve_calculator()
        ada, bob = await web.browser("ada"), await web.browser("bob")
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(ada.ask, "1 + 1")
            (one,) = await ada.sees("1 + 1")
            leaving.cancel_scope.cancel()
        await ada.sees()

        assert await ada.answer(one, allow=True) == 404
        if version != "2026-07-28":
            await web.tells("cancelled: 1 + 1")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bob.ask, "wait, Bob")
            await web.tells("begins: wait, Bob")
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(ada.ask, "wait, Ada")
                await web.tells("begins: wait, Ada")
                leaving.cancel_scope.cancel()
            await web.tells("cancelled: wait, Ada")

            assert "cancelled: wait, Bob" not in web.told
            tasks.cancel_scope.cancel()
        await web.tells("cancelled: wait, Bob")
        assert len(await web.ups(1)) == 1


def test_nothing_is_kept_of_users_whose_browsers_have_left() -> None:
    questions = Questions(seconds=60)

    async def watch_until_cancelled(user: str) -> None:
        with anyio.CancelScope() as watching:
            async for _ in questions._events(user):
                assert list(questions._changed) == [user]
                watching.cancel()
        assert watching.cancelled_caught

    for user in ("ada", "bob"):
        asyncio.run(watch_until_cancelled(user))

    assert list(questions._changed) == []


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_shutting_down_with_open_streams_and_calls_does_not_hang(version: str) -> None:
    async with site("stdio", version) as web:
        ada, bob = await web.browser("ada"), await web.browser("bob")

        async def ask_in_vain(browser: Browser, problem: str) -> None:
            with suppress(httpx.TransportError):
                await browser.ask(problem)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_in_vain, ada, "1 + 1")
            await ada.sees("1 + 1")
            tasks.start_soon(ask_in_vain, bob, "wait")
            await web.tells("begins: wait")
            await web.shut_down()
            await web.tells("gone")  # and its MCP server with it

    assert all(status >= 500 for status, _ in [*ada.responses, *bob.responses])
