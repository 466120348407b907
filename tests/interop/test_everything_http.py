"""server-everything over Streamable HTTP: streams that break off, and sessions that end."""

from __future__ import annotations

from contextlib import suppress

import httpx
import pytest
from anyio import (
    BrokenResourceError,
    CancelScope,
    EndOfStream,
    Event,
    connect_tcp,
    create_task_group,
    create_tcp_listener,
    fail_after,
    to_thread,
)
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from mcp_host import Change, Client, Sampling, StreamableHttp, always
from mcp_host.errors import HttpStatusError, SessionLost
from mcp_host.testing import ScriptedModel
from mcp_host.types import LoggingMessageNotificationParams, ProgressNotificationParams, TextContent
from tests.interop.processes import HttpServer, everything_command, everything_over_http, free_port

IN_TIME = 30.0  # seconds for a test; each takes a few when the machine is idle

DOCUMENT = "demo://resource/static/document/features.md"
LONG = "trigger-long-running-operation"


class Cable:
    """A way to the server at *url*, which breaks once: after the first bytes from there that contain *at*."""

    def __init__(self, url: str, at: bytes) -> None:
        self._server = httpx.URL(url)
        self._at = at
        self._broken = False

    async def serve(self, *, task_status: TaskStatus[str]) -> None:
        """Carry until cancelled; started with the URL of this end."""
        async with await create_tcp_listener(local_host="127.0.0.1") as listener:
            port = listener.extra(SocketAttribute.local_port)
            task_status.started(str(self._server.copy_with(port=port)))
            await listener.serve(self._carry)

    async def _carry(self, near: SocketStream) -> None:
        assert self._server.port is not None
        async with near, await connect_tcp(self._server.host, self._server.port) as far, create_task_group() as both:
            both.start_soon(self._forward, near, far, both.cancel_scope)
            both.start_soon(self._forward, far, near, both.cancel_scope)

    async def _forward(self, source: SocketStream, target: SocketStream, connection: CancelScope) -> None:
        with suppress(EndOfStream, BrokenResourceError):  # either side may hang up, and then the other is told
            while not connection.cancel_called:
                piece = await source.receive()
                await target.send(piece)
                if self._at in piece and not self._broken:
                    self._broken = True
                    connection.cancel()
        connection.cancel()


async def test_a_call_whose_connection_breaks_is_resumed_without_loss(everything_http: HttpServer) -> None:
    """It has ended when we are back: this server replays what was missed, and adds nothing to a resumed stream."""
    steps: list[float] = []
    resumed = "Client reconnecting with Last-Event-ID"
    before = everything_http.count(resumed)

    async def on_progress(report: ProgressNotificationParams) -> None:
        steps.append(report.progress)

    with fail_after(IN_TIME):
        async with create_task_group() as network:
            cable = Cable(everything_http.url, at=b"notifications/progress")
            url: str = await network.start(cable.serve)
            async with Client(StreamableHttp(url)) as client:
                result = await client.call_tool(LONG, {"duration": 0.4, "steps": 4}, on_progress=on_progress)
            network.cancel_scope.cancel()

    assert steps == [1, 2, 3, 4]
    assert result.content == [TextContent(text="Long running operation completed. Duration: 0.4 seconds, Steps: 4.")]
    everything_http.says(resumed, times=before + 1)


async def test_closing_ends_the_session_of_the_server(everything_http: HttpServer) -> None:
    ended = "Received session termination request"
    before = everything_http.count(ended)
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(everything_http.url)) as client:
            await client.ping()

    everything_http.says(ended, times=before + 1)


async def test_after_a_restart_of_the_server_all_calls_share_one_new_session(mark: str) -> None:
    port = free_port()
    heard: list[str] = []
    logged, changed = Event(), Event()

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        if "resources/static/document/startup" in str(message.data):
            logged.set()

    async def on_change(change: Change) -> None:
        if change.method == "notifications/resources/updated":
            changed.set()

    async def echo(message: str) -> None:
        result = await client.call_tool("echo", {"message": message})
        heard.extend(block.text for block in result.content if isinstance(block, TextContent))

    model = ScriptedModel("before", "after")
    sampling = Sampling(with_tools=model, approve=always)
    server = everything_over_http(mark, port)
    client = Client(StreamableHttp(server.url), sampling=sampling, on_log=on_log, on_change=on_change)
    with fail_after(IN_TIME), everything_over_http(mark, port) as before:
        async with client:
            await client.set_log_level("info")
            await client.subscribe_resource(DOCUMENT)
            await client.call_tool("trigger-sampling-request", {"prompt": "?"})
            await to_thread.run_sync(before.stop)
            with server:
                async with create_task_group() as calls:
                    for message in ("one", "two", "three"):
                        calls.start_soon(echo, message)
                await client.call_tool("trigger-sampling-request", {"prompt": "?"})
                await client.call_tool("toggle-subscriber-updates")
                await changed.wait()
                sessions = server.count("Session initialized with ID")
                await client.aclose()

    assert sorted(heard) == ["Echo: one", "Echo: three", "Echo: two"]
    assert (sessions, model.remaining, client.warnings) == (1, 0, [])


async def test_a_call_in_flight_when_the_server_restarts_raises_session_lost(mark: str) -> None:
    port = free_port()
    begun = Event()
    ended = Event()
    errors: list[SessionLost] = []

    async def on_progress(report: ProgressNotificationParams) -> None:
        begun.set()

    async def call() -> None:
        with pytest.raises(SessionLost) as lost:
            await client.call_tool(LONG, {"duration": 60, "steps": 600}, on_progress=on_progress)
        errors.append(lost.value)
        ended.set()

    with fail_after(IN_TIME), everything_over_http(mark, port) as before:
        client = Client(StreamableHttp(before.url))
        async with client, create_task_group() as calls:
            calls.start_soon(call)
            await begun.wait()
            await to_thread.run_sync(before.stop)
            with everything_over_http(mark, port):
                await client.call_tool("echo", {"message": "a new session"})
                await ended.wait()
                await client.aclose()

    (error,) = errors
    assert error.may_have_run


async def test_a_server_of_the_transport_of_2024_is_named_in_the_error(mark: str) -> None:
    port = free_port()
    server = HttpServer(everything_command("sse", mark), port, ready=f"running on port {port}", env={"PORT": str(port)})
    client = Client(StreamableHttp(f"http://127.0.0.1:{port}/sse"))
    with fail_after(IN_TIME), server, pytest.raises(HttpStatusError, match=r"only the HTTP\+SSE transport") as refused:
        await client.connect()

    assert refused.value.status == 404
