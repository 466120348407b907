"""Server objects of other packages, in process: stand-ins with what we use of them. `tests/interop` has the real ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field

from mcp_host import Client
from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Incoming, Success
from mcp_host.transports.sdk import SHUTDOWN_GRACE, in_process, is_sdk_server

WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "0"}}


@dataclass
class SessionMessage:
    message: dict[str, Any]


@pytest.fixture(autouse=True)
def sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that the SDK has imported when there is such an object, as far as we use them."""
    types: Any = ModuleType("mcp.types")
    types.JSONRPCMessage = dict[str, Any]
    message: Any = ModuleType("mcp.shared.message")
    message.SessionMessage = SessionMessage
    for module in (types, message):
        monkeypatch.setitem(sys.modules, module.__name__, module)


class LowLevelServer:
    """A server that answers a handshake and calls, in the shape of the SDK's."""

    __module__ = "mcp.server.lowlevel.server"
    name = "tides"

    def __init__(self, after_call: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint) -> None:
        self.log: list[str] = []
        self._after_call = after_call

    def create_initialization_options(self) -> str:
        return "options"

    async def run(self, read_stream: Any, write_stream: Any, initialization_options: str) -> None:
        self.log.append(initialization_options)
        try:
            async with read_stream, write_stream:
                async for session_message in read_stream:
                    await self.answer(session_message.message, write_stream)
        finally:
            await anyio.lowlevel.checkpoint()  # it is not cancelled in its clean-up
            self.log.append("cleaned up")

    async def answer(self, message: dict[str, Any], write_stream: Any) -> None:
        results = {"initialize": WELCOME, "tools/call": {"content": []}}
        if (result := results.get(message["method"])) is not None:
            await write_stream.send(SessionMessage({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        if message["method"] == "tools/call":
            await self._after_call()


class FastMCP:
    """A server that wraps another one and has a lifespan to hold around it."""

    __module__ = "fastmcp.server.server"
    name = "wrapped"

    def __init__(self) -> None:
        self._mcp_server = LowLevelServer()

    def run(self) -> None:
        raise AssertionError("it would serve stdio")

    @asynccontextmanager
    async def _lifespan_manager(self) -> AsyncIterator[None]:
        self._mcp_server.log.append("entered")
        yield
        self._mcp_server.log.append("left")


@pytest.mark.backends("asyncio")
async def test_a_server_that_awaits_what_was_cancelled_says_why_it_has_ended() -> None:
    """On asyncio that looks as if the connection were cancelled."""

    async def fail() -> None:
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    with anyio.fail_after(25):
        async with Client(LowLevelServer(after_call=fail), era="legacy") as client:
            await client.call_tool("x")
            assert str(await client.wait_closed()).startswith(
                "tides failed: McpError: it awaited a task that was cancelled"
            )


@pytest.mark.parametrize("wrapped", [False, True], ids=["low-level", "wrapped"])
async def test_a_server_runs_until_the_client_closes_and_cleans_up_within_the_lifespan_of_its_wrapper(
    wrapped: bool,
) -> None:
    wrapper = FastMCP()
    server = wrapper._mcp_server

    with anyio.fail_after(25):
        async with Client(wrapper if wrapped else server, era="legacy") as client:
            await client.call_tool("x")
            assert client.server_info.name == "s"

    assert server.log == (["entered", "options", "cleaned up", "left"] if wrapped else ["options", "cleaned up"])


class Result(BaseModel):
    """A result of the SDK's: its fields have names of Python's, and what is not there is None."""

    next_cursor: str | None = Field(alias="nextCursor")
    total: int | None = None


class Response(BaseModel):
    jsonrpc: str = "2.0"
    id: int
    result: Result


async def test_messages_are_written_with_their_names_on_the_wire_and_without_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Telling(LowLevelServer):
        async def run(self, read_stream: Any, write_stream: Any, initialization_options: str) -> None:
            message: Any = Response(id=7, result=Result(nextCursor="c"))
            await write_stream.send(SessionMessage(message))

    monkeypatch.setattr(sys.modules["mcp.types"], "JSONRPCMessage", Response)
    received: list[Incoming] = []
    with anyio.fail_after(25):
        async with in_process(Telling()).open(Limits()) as channel:
            with pytest.raises(ConnectionClosed):
                await channel.listen(received.append)

    assert received == [Success(7, {"nextCursor": "c"})]


@pytest.mark.fake_clock
async def test_a_server_that_does_not_end_is_cancelled_after_its_grace() -> None:
    server = LowLevelServer(anyio.sleep_forever)
    began = anyio.current_time()
    with anyio.fail_after(25):
        async with Client(in_process(server), era="legacy") as client:
            await client.call_tool("x")

    assert anyio.current_time() - began == pytest.approx(SHUTDOWN_GRACE)
    assert server.log == ["options"]  # its clean-up was cut off


async def test_the_error_of_a_server_is_reported_without_its_exception_groups() -> None:
    class Failing(LowLevelServer):
        async def answer(self, message: dict[str, Any], write_stream: Any) -> None:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [RuntimeError("no database")])

    with anyio.fail_after(25), pytest.raises(ConnectFailed, match="tides failed: RuntimeError: no database"):
        await Client(Failing(), era="legacy").connect()


async def test_a_server_that_ends_by_itself_closes_the_connection() -> None:
    async def end() -> None:
        raise anyio.EndOfStream("of the database")

    with anyio.fail_after(25):
        async with Client(LowLevelServer(end), era="legacy") as client:
            await client.call_tool("x")
            with pytest.raises(ConnectionClosed, match="tides failed: EndOfStream: of the database"):
                await client.call_tool("x")


def test_only_server_objects_of_the_sdk_and_of_fastmcp_are_recognized() -> None:
    class Own(LowLevelServer):
        pass

    class Session:
        __module__ = "mcp.client.session"

    assert [is_sdk_server(candidate) for candidate in (LowLevelServer(), Own(), FastMCP())] == [True, True, True]
    assert [is_sdk_server(candidate) for candidate in (Session(), LowLevelServer, "mcp", None)] == [False] * 4
    with pytest.raises(TypeError, match="Client cannot connect to a Session"):
        Client(Session())  # type: ignore[arg-type]  # which is what is tested
