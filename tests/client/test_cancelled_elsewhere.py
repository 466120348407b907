"""Code of the application awaits a task that something else has cancelled: a failure of that code, and no cancellation of ours.

On asyncio the two look alike. On trio no code can raise a cancellation, so there are only genuine ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import (
    Client,
    InProcess,
    OAuth,
    Sampling,
    SamplingRequest,
    ServerOptions,
    ServerSampling,
    StreamableHttp,
    ToolCall,
    ToolPins,
    ToolPolicy,
    always,
    run_tool_loop,
)
from mcp_host.auth import TokensError
from mcp_host.config import ask_inputs, read_servers
from mcp_host.errors import ConnectFailed, ConnectionClosed, McpError, ServerError
from mcp_host.middleware import AnyRequest, CallNext, Middleware
from mcp_host.terminal.browser import is_opened
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.transports._http.authorization import AuthorizedBy
from mcp_host.transports.base import AuthorizationContext
from mcp_host.types import AssistantContentBlock, CreateMessageResult, Tool, ToolUseContent
from tests.client.sites import PLAIN, Site, handshake, response
from tests.client.support import EMPTY, QUESTION, connected
from tests.extent import on_both
from tests.group.support import Node, names, opened, states
from tests.transports.http_peers import EVENTS

asyncios = pytest.mark.backends("asyncio")
LISTED = {"resultType": "complete", "tools": [PLAIN], "ttlMs": 0, "cacheScope": "private"}
DONE = {"resultType": "complete", **EMPTY}


def cancelled() -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


def server() -> Server:
    made = Server("server")

    @made.tool
    async def work(context: Context) -> str:
        await context.report_progress(1, 2)
        return "done"

    return made


def once(method: str, of: str | None = None) -> Middleware:
    """Middleware that awaits what was cancelled, the first time that *method* passes to the server *of*."""
    left = [method]

    async def shares(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method in left and of in (None, request.server):
            left.remove(method)
            await cancelled()
        return await call_next(request)

    return shares


class Shares(httpx.Auth):
    """Awaits what was cancelled, the first time that *method* is sent, or a request of HTTP that is named so."""

    def __init__(self, method: str) -> None:
        self.left = [method]

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        content = b"" if request.method != "POST" else request.content
        if self.left and (self.left == [request.method] or f'"{self.left[0]}"'.encode() in content):
            self.left.clear()
            await cancelled()
        yield request


class Known(Shares):
    """The same around any backend, ours and those of httpx."""

    def ready(self, method: str, url: str) -> None:
        return None

    def authorized_by(self, url: str) -> AuthorizedBy:
        return AuthorizedBy(AuthorizationContext("ada", ()))


@asyncios
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "ping"])
async def test_what_middleware_awaits_in_vain_fails_its_call_alone(method: str) -> None:
    calls: dict[str, Callable[[Client], Awaitable[object]]] = {
        "tools/call": lambda client: client.call_tool("work"),
        "tools/list": lambda client: client.list_tools(),
        "ping": lambda client: client.ping(),
    }
    async with connected(server(), era="legacy", middleware=[once(method)]) as client:
        async with anyio.create_task_group() as tasks:  # which would swallow a cancellation

            async def call() -> None:
                with pytest.raises(McpError, match="the middleware shares awaited a task that was cancelled") as caught:
                    await calls[method](client)
                errors.append(caught.value.__cause__)

            errors: list[BaseException | None] = []
            tasks.start_soon(call)
        assert (await client.call_tool("work")).text == "done"

    assert [type(error) for error in errors] == [asyncio.CancelledError]


@asyncios
@pytest.mark.parametrize(
    ("era", "method"), [("legacy", "initialize"), ("modern", "server/discover"), (None, "server/discover")]
)
async def test_connecting_says_what_middleware_has_awaited_in_vain(era: Any, method: str) -> None:
    client = Client(server(), middleware=[once(method)], **({} if era is None else {"era": era}))
    with anyio.fail_after(25):
        with pytest.raises(McpError, match="the middleware shares awaited a task that was cancelled"):
            await client.connect()
        await client.connect()
        assert (await client.call_tool("work")).text == "done"
        await client.aclose()


@asyncios
async def test_so_does_a_progress_callback() -> None:
    async def shares(progress: object) -> None:
        await cancelled()

    async with connected(server()) as client:
        with pytest.raises(McpError, match="the progress callback awaited a task that was cancelled"):
            await client.call_tool("work", on_progress=shares)
        assert (await client.call_tool("work")).text == "done"


@asyncios
@pytest.mark.parametrize(("kind", "method"), [(Shares, "server/discover"), (Shares, "tools/call"), (Known, "POST")])
async def test_so_does_an_auth(kind: type[Shares], method: str) -> None:
    site = Site(tools_list=LISTED, tools_call=DONE)
    client = site.client(auth=kind(method))
    with anyio.fail_after(25):
        with pytest.raises(McpError, match=r"^http://server.test/mcp: an Auth, or the client, awaited a task"):
            async with client:
                await client.call_tool("plain")
        async with client:
            assert (await client.call_tool("plain")).content == []


@asyncios
async def test_an_auth_that_fails_so_for_the_servers_own_stream_ends_nothing_else() -> None:
    """The stream is asked for again after the next request that succeeds."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            streams.append(request.method)
            return httpx.Response(405)
        message = json.loads(request.content)
        if "id" not in message:
            return httpx.Response(202)
        return handshake(message) if message["method"] == "initialize" else response(message, EMPTY)

    streams: list[str] = []
    auth = Shares("GET")
    http = httpx.AsyncClient(auth=auth, transport=httpx.MockTransport(answer))
    async with connected(StreamableHttp("http://server.test/mcp", client=http), era="legacy") as client:
        while auth.left:
            await checkpoint()
        assert streams == []
        await client.call_tool("plain")
        while not streams:
            await checkpoint()
        assert client.connected


@asyncios
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_that_fails_so_has_failed_and_its_request_is_answered(era: Literal["legacy", "modern"]) -> None:
    """Of the server for tests."""
    made = server()

    @made.tool
    async def shares() -> str:
        return str(await cancelled())

    async with connected(made, era=era) as client:
        with pytest.raises(ServerError, match="a function of the server awaited a task that was cancelled"):
            await client.call_tool("shares")
        assert (await client.call_tool("work")).text == "done"


class Foreign:
    """A client of another library."""

    name = "foreign"

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        await self.listing()
        return []

    async def listing(self) -> None:
        await cancelled()

    async def call_tool(self, *args: object, **options: object) -> Any:
        raise AssertionError


@asyncios
async def test_a_loop_whose_client_cannot_list_so_does_not_go_on_without_its_tools() -> None:
    async with connected(server()) as client:
        with pytest.raises(
            McpError, match=r"^the tools of 'foreign' \(tools\[1\]\) cannot be listed: list_tools awaited"
        ):
            await run_tool_loop(ScriptedModel("done"), "go", tools=[client, Foreign()])


@asyncios
@pytest.mark.parametrize("what", ["the model", "on_turn"])
async def test_a_loop_whose_model_or_callback_fails_so_is_not_cancelled(what: str) -> None:
    async def model(request: SamplingRequest) -> str:
        return str(await cancelled()) if what == "the model" else "done"

    async def on_turn(step: object) -> None:
        await cancelled()

    with pytest.raises(McpError, match=f"^{what} awaited a task that was cancelled$"):
        await run_tool_loop(model, "go", tools=[], on_turn=on_turn)


@asyncios
async def test_the_check_of_a_result_that_fails_so_fails_its_call_alone() -> None:
    async def check(tool: Tool, result: object) -> None:
        await cancelled()

    async with connected(server(), tools=ToolPolicy(output=check)) as client:
        await client.list_tools()
        with pytest.raises(McpError, match=r"^ToolPolicy.output awaited a task that was cancelled$"):
            await client.call_tool("work")
        assert [tool.name for tool in await client.list_tools()] == ["work"]


# Other functions that the application gives


async def fails(*_: object) -> Any:
    await cancelled()


class Stores:
    """A store of tokens, or of answers, that fails so."""

    load = swap = take = staticmethod(fails)


USE = ToolUseContent(id="1", name="use", input={})
AGAIN = ToolUseContent(id="2", name="use", input={})


async def use() -> str:
    return "used"


@asyncios
@pytest.mark.parametrize("uses", [[USE], [USE, AGAIN]], ids=["one call", "two calls at once"])
async def test_a_loop_whose_approver_fails_so_is_not_cancelled(uses: list[AssistantContentBlock]) -> None:
    answer = CreateMessageResult(role="assistant", content=uses, model="m", stop_reason="toolUse")

    with pytest.raises(McpError, match=r"^approve awaited a task that was cancelled$"):
        await run_tool_loop(ScriptedModel(answer, "done"), "go", tools=[use], approve=fails)


@asyncios
async def test_the_tools_of_a_server_that_cannot_be_listed_so_are_run_by_it(caplog: pytest.LogCaptureFixture) -> None:
    asked = Sampling(with_tools=ScriptedModel(ToolCall("plain")), approve=always)
    answer = await asked.callback(server="s", call_tool=fails, list_tools=fails)({**QUESTION, "tools": [PLAIN]})

    assert answer["result"]["stopReason"] == "toolUse"
    assert caplog.messages == [
        "sampling for s: its tools cannot be listed, so it has to run them: list_tools awaited a task that was cancelled"
    ]


@asyncios
async def test_a_change_of_a_tool_about_which_asking_fails_so_fails_the_listing() -> None:
    def changed(description: str) -> Server:
        made = Server("server")
        made.tool(description=description)(use)
        return made

    policy = ToolPolicy(pins=ToolPins(on_changed=fails))
    async with connected(changed("old"), name="s", tools=policy) as client:
        await client.list_tools()
    async with connected(changed("new"), name="s", tools=policy) as client:
        for _ in range(2):  # it is asked about again
            with pytest.raises(McpError, match=r"^ToolPins.on_changed awaited a task that was cancelled$"):
                await client.list_tools()


@asyncios
async def test_a_request_of_a_server_that_cannot_be_sent_so_has_failed() -> None:
    with pytest.raises(McpError, match=r"^create_message awaited a task that was cancelled$"):
        await ServerSampling(fails, with_tools=False).sample("hello")


@asyncios
async def test_a_server_in_this_process_that_fails_so_says_why_it_has_ended() -> None:
    with anyio.fail_after(25):
        with pytest.raises(ConnectFailed, match=r"server failed: McpError: it awaited a task that was cancelled$"):
            await Client(InProcess(fails), era="legacy").connect()


@asyncios
async def test_tokens_that_cannot_be_loaded_so_are_an_error_of_their_store() -> None:
    with pytest.raises(TokensError, match=r"^the store of tokens awaited a task that was cancelled$"):
        await OAuth(tokens=Stores()).saved("http://127.0.0.1:1/mcp")


@asyncios
async def test_answers_that_are_asked_for_so_in_vain_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    inputs = [{"id": "key", "type": "promptString"}]
    file.write_text(json.dumps({"inputs": inputs, "servers": {"a": {"command": "a", "args": ["${input:key}"]}}}))
    servers = read_servers(file).servers

    with pytest.raises(McpError, match=r"^the question awaited a task that was cancelled$"):
        await ask_inputs(servers, fails)
    with pytest.raises(McpError, match=r"^the store of answers awaited a task that was cancelled$"):
        await ask_inputs(servers, fails, store=Stores())


@asyncios
async def test_a_browser_that_cannot_be_opened_so_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    assert not await is_opened("http://server.test/login", fails)
    assert caplog.messages[0].endswith("McpError: it awaited a task that was cancelled\n")


class Broken(httpx.AsyncByteStream):
    """A body of a transport of the application, which fails so."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b": here\n\n"
        await cancelled()


@asyncios
async def test_a_body_that_cannot_be_read_so_ends_its_call_alone() -> None:
    bodies = [httpx.Response(200, headers=EVENTS, stream=Broken())]
    site = Site(tools_call=lambda call: bodies.pop() if bodies else response(call, DONE))
    async with site.connected() as client:
        with pytest.raises(ConnectionClosed, match="the stream ended before the response") as caught:
            await client.call_tool("plain")
        assert "the client awaited a task that was cancelled" in str(caught.value.__cause__)
        assert (await client.call_tool("plain")).content == []


@asyncios
@pytest.mark.fake_clock
async def test_a_stream_of_the_server_that_cannot_be_read_so_is_opened_again() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            if streams:
                return streams.pop()
            again.set()
            return httpx.Response(405)
        message = json.loads(request.content)
        if "id" not in message:
            return httpx.Response(202)
        return handshake(message) if message["method"] == "initialize" else response(message, EMPTY)

    streams, again = [httpx.Response(200, headers=EVENTS, stream=Broken())], anyio.Event()
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    async with connected(StreamableHttp("http://server.test/mcp", client=http), era="legacy") as client:
        await again.wait()
        assert (await client.call_tool("plain")).content == []


# In a group


@asyncios
@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
async def test_what_middleware_of_one_server_awaits_in_vain_costs_its_server_alone(method: str) -> None:
    async with opened({"a": Node("x"), "b": Node("y")}, middleware=[once(method, of="a")]) as group:
        assert await names(group) == ["b__y"]
        assert "the middleware shares awaited a task that was cancelled" in str(group.status()["a"].error)
        await group.disable("a")
        await group.enable("a")
        assert await names(group) == ["a__x", "b__y"]


@asyncios
async def test_lists_of_a_group_go_on_without_a_server_whose_middleware_fails_so() -> None:
    async with opened({"a": Node(), "b": Node()}, middleware=[once("prompts/list", of="a")]) as group:
        assert [prompt.name for prompt in await group.list_prompts()] == ["b__ask_me_07f75bee", "b__greet"]
        assert states(group) == {"a": "ready", "b": "ready"}
        assert "its prompts cannot be listed: the middleware shares awaited" in "".join(group.warnings)


@asyncios
async def test_a_server_that_is_removed_cancels_the_refresh_that_others_await_and_nothing_else() -> None:
    """An Auth of the application that shares the task of one refresh, as many are written."""

    class Refreshes(httpx.Auth):
        requires_request_body = True
        task: asyncio.Future[Any] | None = None
        waiting = 0

        async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
            if b'"tools/list"' in request.content and self.waiting < 2:
                self.task = self.task or asyncio.ensure_future(anyio.sleep_forever())
                self.waiting += 1
                await self.task
            yield request

    auth = Refreshes()

    def over_http(path: str) -> StreamableHttp:
        http = httpx.AsyncClient(auth=auth, transport=httpx.MockTransport(Site(tools_list=LISTED)))
        return StreamableHttp(f"http://server.test/{path}", client=http)

    async with opened({"a": over_http("a"), "b": over_http("b"), "c": Node("x")}, wait="none") as group:
        while auth.waiting < 2 or states(group)["c"] != "ready":
            await checkpoint()
        await group.remove("a")
        assert (await group.call_tool("c__x")).text == "a node: x"
        await group.disable("b")
        await group.enable("b")
        assert states(group) == {"b": "ready", "c": "ready"}


@asyncios
async def test_a_policy_that_reads_what_was_cancelled_costs_its_server_alone(caplog: pytest.LogCaptureFixture) -> None:
    def allowed(tool: Tool) -> bool:
        return bool(cancelled().result())

    refusing = ServerOptions(Node("x"), tools=ToolPolicy(allow=allowed))
    async with opened({"a": refusing, "b": Node("y")}) as group:
        assert await names(group) == ["b__y"]
        assert states(group) == {"a": "disabled", "b": "ready"}
        assert "code of the application awaited a task that was cancelled" in str(group.status()["a"].error)

    assert "a: it is kept connected no more" in caplog.text


# What is cancelled in earnest

WAYS = ["middleware", "Auth", "progress", "loop", "model", "check"]


def waiting(at: list[str]) -> Middleware:
    async def waits(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "tools/call":
            at.append("middleware")
            await anyio.sleep_forever()
        return await call_next(request)

    return waits


async def _until(at: list[str]) -> None:
    while not at:
        await checkpoint()


def ways(at: list[str]) -> dict[str, Callable[[], Awaitable[object]]]:
    """Calls that wait for code of the application, which says so."""

    class Waits(httpx.Auth):
        async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
            if b'"tools/call"' in request.content:
                at.append("Auth")
                await anyio.sleep_forever()
            yield request

    class Lists(Foreign):
        async def listing(self) -> None:
            at.append("list_tools")
            await anyio.sleep_forever()

    async def report(progress: object) -> None:
        at.append("a callback")
        await anyio.sleep_forever()

    async def by_middleware() -> object:
        async with Client(server(), middleware=[waiting(at)]) as client:
            return await client.call_tool("work")

    async def by_auth() -> object:
        async with Site(tools_list=LISTED, tools_call=DONE).client(auth=Waits()) as client:
            return await client.call_tool("plain")

    async def by_progress() -> object:
        async with Client(server()) as client:
            return await client.call_tool("work", on_progress=report)

    async def by_loop() -> object:
        return await run_tool_loop(ScriptedModel("done"), "go", tools=[Lists()])

    return dict(zip(WAYS, (by_middleware, by_auth, by_progress, by_loop, *by_callbacks(report)), strict=True))


def by_callbacks(report: Callable[[object], Awaitable[None]]) -> tuple[Callable[[], Awaitable[object]], ...]:
    async def model(request: SamplingRequest) -> str:
        await report(request)
        return ""

    async def by_model() -> object:
        return await run_tool_loop(model, "go", tools=[])

    async def check(tool: Tool, result: object) -> None:
        await report(tool)

    async def by_check() -> object:
        async with Client(server(), tools=ToolPolicy(output=check)) as client:
            await client.list_tools()
            return await client.call_tool("work")

    return by_model, by_check


@on_both
@pytest.mark.parametrize("way", WAYS)
async def test_the_scope_of_a_caller_that_is_cancelled_there_ends_it(way: str) -> None:
    at: list[str] = []
    passed: list[str] = []

    async def call() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await ways(at)[way]()
        passed.append(f"caught: {scope.cancelled_caught}")

    scopes: list[anyio.CancelScope] = []
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await _until(at)
            scopes[0].cancel()

    assert passed == ["caught: True"]


@asyncios
@pytest.mark.parametrize("way", WAYS)
async def test_a_task_that_is_cancelled_there_is_cancelled(way: str) -> None:
    at: list[str] = []
    task = asyncio.ensure_future(ways(at)[way]())
    with anyio.fail_after(25):
        await _until(at)
        task.cancel("in earnest")
        await asyncio.wait([task])

    assert task.cancelled()


@asyncios
async def test_a_task_that_has_cancelled_itself_before_its_call_is_cancelled() -> None:
    async def call() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await client.call_tool("work")

    async with connected(server(), middleware=[once("prompts/list")]) as client:
        task = asyncio.ensure_future(call())
        await asyncio.wait([task])

    assert task.cancelled()
