"""A test server over Streamable HTTP: real sockets, uvicorn, and a client that checks nothing."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from io import BufferedWriter, BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from anyio import create_task_group

from mcp_host.serving.http.app import HttpApp
from mcp_host.serving.http.uvicorn_server import UvicornServer, listen
from mcp_host.testing import Context, Server
from tests.asgi import serving
from tests.extent import on_both
from tests.testing.raw import INITIALIZE, Wire, answer, call, request, text
from tests.testing.raw_http import ACCEPT, Peer, Response, Stream, served, session

pytestmark = on_both

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds for a server in a process, on a busy machine


def asking() -> Server:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.report_progress(1)
        return (await ctx.sample("Why?")).text

    @server.tool
    def echo() -> str:
        return "hello"

    return server


def response(asked: Wire) -> Wire:
    return {"jsonrpc": "2.0", "id": asked["id"], "result": answer("Because.")}


HELLO = text("hello")
BECAUSE = text("Because.")


async def test_a_post_is_answered_by_a_stream_with_all_its_messages() -> None:
    async with session(asking()) as peer, peer.stream(call(1, "ask", _meta={"progressToken": "t"})) as events:
        progress = await events.next()
        asked = await events.message()
        assert (await peer.post(response(asked))).status == 202
        [answered] = await events.rest()
        headers = events.headers

    assert headers["content-type"] == "text/event-stream"
    assert "date" in headers
    assert progress == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "t", "progress": 1},
    }
    assert asked["method"] == "sampling/createMessage"
    assert answered == {"jsonrpc": "2.0", "id": 1, "result": BECAUSE}


async def test_with_json_responses_all_other_messages_use_the_get_stream() -> None:
    async def answer_once(peer: Peer, events: Stream) -> None:
        heard.append(await events.next())
        asked = await events.message()
        await peer.post(response(asked))

    heard: list[Wire | None] = []
    async with session(asking(), json_response=True) as peer, peer.stream() as events, create_task_group() as tasks:
        tasks.start_soon(answer_once, peer, events)
        answered = await peer.post(call(1, "ask", _meta={"progressToken": "t"}))

    assert answered.headers["content-type"] == "application/json"
    assert answered.json() == {"jsonrpc": "2.0", "id": 1, "result": BECAUSE}
    assert heard[0] is not None
    assert heard[0]["method"] == "notifications/progress"


async def test_announcements_wait_for_the_get_stream() -> None:
    server = asking()
    async with session(server) as peer:
        await server.notify_tools_changed()
        async with peer.stream() as events:
            assert await events.next() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
            first = events.last_id
        await server.notify_prompts_changed()
        async with peer.stream(**{"last-event-id": first}) as events:  # goes on after that event
            resumed = await events.next()
        await server.notify_resources_changed()

    assert resumed == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed", "params": {}}


async def test_a_second_get_takes_over_the_stream() -> None:
    server = asking()
    async with session(server) as peer, peer.stream() as first, peer.stream() as second:
        assert await first.next() is None
        await server.notify_tools_changed()
        assert await second.next() is not None


async def test_a_cut_stream_is_resumed_and_the_tool_runs_once() -> None:
    server = asking()
    runs = []

    @server.tool
    async def cut() -> str:
        runs.append(1)
        await server.drop_streams(retry=0.05)
        return "hello"

    async with session(server) as peer:
        async with peer.stream(call(1, "cut")) as events:
            assert await events.rest() == []
            cursor, retry = events.last_id, events.retry
        async with peer.stream(**{"last-event-id": cursor}) as events:
            resumed = await events.rest()
        async with peer.stream(**{"last-event-id": cursor}) as events:
            replayed = await events.rest()

    assert (retry, runs) == ("50", [1])
    assert resumed == [{"jsonrpc": "2.0", "id": 1, "result": HELLO}]
    assert replayed == resumed


async def test_of_cut_streams_that_have_ended_a_few_megabytes_are_kept() -> None:
    server = Server("large")

    @server.tool
    async def cut() -> str:
        await server.drop_streams(retry=0.05)
        return "x" * (9 * 1024 * 1024)

    async with session(server) as peer:
        cursors = []
        for id in (1, 2):
            async with peer.stream(call(id, "cut")) as events:
                assert await events.rest() == []
                cursors.append(events.last_id)
        again = [await peer.send("GET", b"", **{"last-event-id": cursor}) for cursor in cursors]

    assert [response.status for response in again] == [400, 200]


async def test_disconnecting_cancels_nothing_in_a_session() -> None:
    """ "Disconnection SHOULD NOT be interpreted as the client cancelling its request"."""
    async with session(asking()) as peer:
        async with peer.stream(call(1, "ask")) as events:
            asked = await events.next()
            cursor = events.last_id
        assert asked is not None
        await peer.post(response(asked))
        async with peer.stream(**{"last-event-id": cursor}) as events:
            assert await events.rest() == [{"jsonrpc": "2.0", "id": 1, "result": BECAUSE}]


async def test_a_request_id_in_use_is_refused() -> None:
    async with session(asking()) as peer, peer.stream(call(1, "ask")) as events:
        await events.message()
        refused = await peer.post(call(1, "echo"))

    assert (refused.status, refused.json()["error"]["message"]) == (400, "the request id 1 is in use")


CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


async def test_a_cancelled_request_ends_its_stream_without_an_answer() -> None:
    async with session(asking()) as peer, peer.stream(call(1, "ask")) as events:
        asked = await events.message()
        await peer.post(CANCEL)
        rest = await events.rest()

    assert rest == [{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": asked["id"]}}]


async def test_a_cancelled_request_gets_no_json_response() -> None:
    responses: list[Response] = []

    async def begin(peer: Peer) -> None:
        responses.append(await peer.post(call(1, "ask")))

    async with session(asking(), json_response=True) as peer, peer.stream() as events, create_task_group() as tasks:
        tasks.start_soon(begin, peer)
        await events.message()
        await peer.post(CANCEL)

    assert [(response.status, response.body) for response in responses] == [(202, b"")]


async def test_deleting_a_session_ends_its_streams() -> None:
    async with session(asking()) as peer:
        async with peer.stream() as events, peer.stream(call(1, "ask")) as calling:
            await calling.next()
            deleted = await peer.send("DELETE")
            assert await events.rest() == []
            last = await calling.rest()
        again = await peer.send("DELETE")
        gone = await peer.post(request(1, "ping"))

    assert [deleted.status, again.status, gone.status] == [204, 404, 404]
    assert last == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "the session has ended"}}]


async def test_expired_sessions_are_404_and_a_new_one_can_begin() -> None:
    server = asking()
    async with session(server) as peer:
        async with peer.stream(call(1, "ask")) as events:
            await events.next()
            await server.expire_sessions()
            assert not {"result", "error"} & {key for message in await events.rest() for key in message}
        await server.drop_streams()  # of which there are none
        lost = await peer.post(request(2, "ping"))
        [fresh] = await (await Peer(peer.url).initialize()).ask(call(1, "echo"))

    assert (lost.status, lost.json()) == (
        404,
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "there is no such session"}},
    )
    assert fresh["result"] == HELLO


def small(idle: float = 1000.0) -> HttpApp:
    """With room for one session."""
    return HttpApp(asking()._catalog, json_response=False, path="/mcp", max_sessions=1, idle=idle)


async def test_there_are_only_so_many_sessions() -> None:
    with serving(small()) as origin:
        first, another = await Peer(f"{origin}/mcp").initialize(), Peer(f"{origin}/mcp")
        refused = await another.post(request(1, "initialize", INITIALIZE))
        assert (refused.status, refused.headers["retry-after"]) == (503, "60")
        assert (await first.send("DELETE")).status == 204
        await another.initialize()


async def test_a_session_that_is_idle_ends_when_another_begins() -> None:
    with serving(small(idle=0.0)) as origin:
        peer = Peer(f"{origin}/mcp")
        first, second = await peer.initialize(), await peer.initialize()
        assert (await first.post(request(1, "ping"))).status == 404
        async with second.stream():  # so it is not idle
            assert (await peer.post(request(1, "initialize", INITIALIZE))).status == 503


async def test_a_batch_is_refused() -> None:
    async with served(asking()) as anonymous:
        peer = await anonymous.initialize("2025-03-26")
        refused = await peer.post([call(1, "echo"), request(2, "ping")])

    assert (refused.status, refused.json()["error"]["message"]) == (400, "the body has to be one message, not a batch")


async def test_streams_are_primed_since_2025_11_25() -> None:
    async with served(asking()) as anonymous:
        bodies = [
            (await (await anonymous.initialize(version)).post(request(1, "ping"))).body.decode()
            for version in ("2025-11-25", "2025-06-18")
        ]

    pong = 'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    assert bodies == [f"id: 2/0\ndata: \n\nid: 2/1\n{pong}", f"id: 2/0\n{pong}"]


async def test_each_client_has_a_session() -> None:
    async with served(asking()) as anonymous:
        peers = [await anonymous.initialize() for _ in range(3)]
        answers = [await peer.ask(call(1, "echo")) for peer in peers]

    assert len({peer.headers["mcp-session-id"] for peer in peers}) == 3
    assert answers == [[{"jsonrpc": "2.0", "id": 1, "result": HELLO}]] * 3


async def test_no_thread_and_no_session_is_left_behind() -> None:
    server = asking()
    before = threading.enumerate()

    def serving() -> list[str]:
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        return [name for name in names if name == "uvicorn"]

    async with session(server) as peer, peer.stream(), peer.stream(call(1, "ask")) as events:
        await events.next()
        assert serving() == ["uvicorn"]

    assert serving() == []
    await server.notify_tools_changed()  # there is no event loop any more that this could run in
    await server.drop_streams()
    await server.expire_sessions()


@pytest.mark.parametrize(("ends", "patience"), [(True, 3600), (False, 0)], ids=["response", "no response"])
def test_a_connection_that_is_made_while_the_server_stops_is_closed(ends: bool, patience: int) -> None:
    """A client comes back at once when its stream ends."""
    late: list[socket.socket] = []

    async def app(scope: object, receive: object, send: Callable[[object], Awaitable[None]]) -> None:
        late.append(socket.create_connection(("127.0.0.1", port), timeout=25))  # the server has not accepted it yet
        server.stop()
        if not ends:
            await asyncio.Event().wait()
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    with listen(0) as listener:
        port = listener.getsockname()[1]
        server = UvicornServer(app)
        server.config.timeout_graceful_shutdown = patience
        thread = server.start(listener)
        assert server.up.wait(25)
        with socket.create_connection(("127.0.0.1", port), timeout=25) as early, early.makefile("rb") as response:
            early.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            thread.join(25)
            assert not thread.is_alive()
            assert response.read().startswith(b"HTTP/1.1 204") is ends
            with late[0]:
                assert late[0].recv(1) == b""


def test_uvicorn_keeps_no_headers_of_a_request_that_is_being_answered() -> None:
    seen: list[object] = []

    async def app(scope: dict[str, Any], receive: object, send: Callable[[object], Awaitable[None]]) -> None:
        connection: Any
        [connection] = server.server_state.connections
        seen.append((dict(scope["headers"]), connection.headers, connection.scope["headers"]))
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    with listen(0) as listener:
        server = UvicornServer(app)
        thread = server.start(listener)
        assert server.up.wait(25)
        with socket.create_connection(listener.getsockname(), timeout=25) as client, client.makefile("rb") as response:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            answer = response.read()  # to its end
        server.stop()
        thread.join(25)

    assert seen == [({b"host": b"a", b"connection": b"close"}, [], [])]
    assert answer.startswith(b"HTTP/1.1 204")


async def test_a_server_that_cannot_start_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    async def startup(server: uvicorn.Server, sockets: object) -> None:
        server.should_exit = True

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    with pytest.raises(RuntimeError, match="uvicorn did not start"):
        async with Server("s").http():
            pass


def test_the_url_is_printed_before_anything_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to a pipe, which has a buffer: the parent process waits for the line."""
    pipe = BytesIO()
    written: list[bytes] = []

    async def serve(server: UvicornServer, listeners: list[socket.socket]) -> None:
        written.append(pipe.getvalue())

    monkeypatch.setattr(UvicornServer, "serve", serve)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BufferedWriter(pipe)))
    asking().run_http(0)

    (line,) = written
    assert re.fullmatch(rb"http://127\.0\.0\.1:\d+/mcp\n", line)


def test_a_server_process_prints_its_url_and_ends_on_a_signal() -> None:
    program = "from tests.testing.stdio_server import server; server.run_http()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        initialize = request(0, "initialize", INITIALIZE)
        headers = {"accept": ACCEPT, "content-type": "application/json"}
        session = httpx.post(url, json=initialize, headers=headers, timeout=PATIENCE).headers["mcp-session-id"]
        listening = {"accept": ACCEPT, "mcp-session-id": session}
        with httpx.stream("GET", url, headers=listening, timeout=PATIENCE) as stream:
            process.send_signal(signal.SIGINT)
            rest = stream.read()

    assert (rest, process.returncode) == (b"", 0)


async def test_without_uvicorn_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mcp_host.serving.http.uvicorn_server", raising=False)

    with pytest.raises(ImportError, match=r"pip install 'mcp-host\[testing\]'"):
        async with Server("s").http():
            pass
