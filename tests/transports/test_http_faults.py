"""Broken HTTP, byte by byte: each fault is an error of one request, and the next request works."""

from __future__ import annotations

from traceback import format_exception
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute

from mcp_host.errors import ConnectFailed, ConnectionClosed, ProtocolError
from tests.clock import advance
from tests.transports.http_contract import Kind, both, by_httpx, libraries  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import (
    CHUNKED,
    DONE,
    DONE_JSON,
    EVENTS,
    JSON,
    LENGTH,
    NOTE_JSON,
    VERSION,
    Wire,
    ask,
    event,
    head,
    opened,
    serving,
)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing at all"),
        pytest.param(b"HTTP/1.1 200 O", id="half a status line"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="another protocol"),
        pytest.param(head(200, {**JSON, **LENGTH}), id="no body"),
        pytest.param(head(200, {**JSON, **LENGTH}) + DONE_JSON, id="half a body"),
        pytest.param(head(200, {**JSON, **CHUNKED}) + b"zz\r\n" + DONE_JSON, id="a bad chunk"),
        pytest.param(head(200, {**JSON, **CHUNKED}) + b"5\r\n{", id="half a chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", id="two lengths"),
        pytest.param(head(200, {"x": "y" * 4 * 1024 * 1024}), id="a huge header"),
        pytest.param(head(200, {**JSON, "content-encoding": "gzip"}) + b"no gzip", id="corrupt gzip"),
        pytest.param(head(200, {**EVENTS, **CHUNKED}) + b"zz\r\n", id="a bad chunk in a stream"),
        pytest.param(
            head(200, {**EVENTS, **LENGTH}) + event(NOTE_JSON) + b"data: {", id="a stream cut inside an event"
        ),
        pytest.param(head(200, {**EVENTS, "content-encoding": "gzip"}) + b"no gzip", id="corrupt gzip in a stream"),
    ],
)
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_broken_answer_fails_its_request_and_nothing_else(raw: bytes, end: str) -> None:
    broken = False

    async def script(wire: Wire) -> None:
        nonlocal broken
        await wire.hear()
        if broken:
            await wire.reply(200, JSON, DONE_JSON)
            return
        broken = True
        await wire.say(raw)
        if end == "reset":
            await wire.reset()

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(ConnectionClosed) as caught:
            await ask(channel)
        assert await ask(channel) == [DONE]

    assert type(caught.value) is ConnectionClosed
    assert caught.value.may_have_run


async def test_a_complete_reply_counts_although_the_connection_breaks_after_it() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(200, {**EVENTS, **LENGTH}) + b"data: " + DONE_JSON)

    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + DONE_JSON, id="HTTP/1.0"),
        pytest.param(head(103, {"link": "</a>"}) + head(200, {**JSON, "connection": "close"}) + DONE_JSON, id="103"),
    ],
)
async def test_unusual_http_is_accepted(raw: bytes) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(raw)

    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]


async def test_an_encoding_that_was_not_requested_is_a_protocol_error() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(200, {**JSON, "content-encoding": "br"}, b"...")

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(ProtocolError, match="Content-Encoding br"):
            await ask(channel)


async def test_a_server_that_is_not_there_certainly_did_not_run_the_request() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    await listener.aclose()

    async with opened(f"http://127.0.0.1:{port}/mcp?token=secret") as channel:
        with pytest.raises(
            ConnectFailed,
            match=rf"http://127.0.0.1:{port}/mcp: (?i:all connection attempts failed|all attempts to connect)",
        ) as caught:
            await ask(channel)

    assert not caught.value.may_have_run


async def test_a_host_without_an_address_is_a_server_that_is_not_there() -> None:
    async with opened("http://nowhere.invalid/") as channel:
        with pytest.raises(ConnectFailed):
            await ask(channel)


async def test_a_server_without_tls_cannot_be_reached_by_https() -> None:
    async def script(wire: Wire) -> None:
        await wire.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(script) as peer, opened(peer.url.replace("http", "https", 1)) as channel:
        with pytest.raises(ConnectFailed):
            await ask(channel)


@libraries
@pytest.mark.adjustable_clock
async def test_a_full_pool_of_the_callers_is_an_error_of_the_request_that_waited(library: Any) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        heard.set()
        await wire.hung_up()

    async def wait() -> None:
        with pytest.raises(ConnectFailed, match="PoolTimeout"):
            await ask(channel)
        tasks.cancel_scope.cancel()

    heard = anyio.Event()
    async with (
        library.AsyncClient(limits=library.Limits(max_connections=1), timeout=5) as client,
        serving(script) as peer,
        opened(peer.url, client=client) as channel,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(channel.send, DONE, VERSION)
        await heard.wait()
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        advance(5)


@libraries
async def test_a_client_that_its_owner_closed_is_a_clear_error(library: Any) -> None:
    client = library.AsyncClient()
    async with opened("http://127.0.0.1:1/mcp", client=client) as channel:
        await client.aclose()
        with pytest.raises(ConnectionClosed, match=rf"the {library.__name__}\.AsyncClient was closed") as caught:
            await ask(channel)

    assert not caught.value.may_have_run


@both
async def test_a_secret_in_a_bad_header_of_the_callers_client_is_not_quoted_nor_is_it_in_a_traceback(
    kind: Kind,
) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()

    async with kind.client() as client, serving(script) as peer, opened(peer.url, client=client) as channel:
        client.headers["Authorization"] = "Bearer hunter2\n"
        with pytest.raises(ConnectionClosed, match="LocalProtocolError") as caught:
            await ask(channel)

    assert "hunter2" not in "".join(format_exception(caught.value))


@both
async def test_a_cookie_that_no_header_can_carry_fails_the_requests_of_a_client_that_keeps_it(kind: Kind) -> None:
    """A client of ours keeps none; what is in the caller's is the caller's."""

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(200, {**JSON, "set-cookie": "a=\u00e9"}, DONE_JSON)

    async with kind.client() as client, serving(script) as peer, opened(peer.url, client=client) as channel:
        assert await ask(channel) == [DONE]
        with pytest.raises(ConnectionClosed, match="'ascii' codec can't encode"):
            await ask(channel)


async def test_a_kept_connection_that_the_server_has_closed_is_not_used_again() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(200, JSON, DONE_JSON)  # and the connection ends, though nothing said so

    async with serving(script) as peer, opened(peer.url) as channel:
        for _ in range(3):
            assert await ask(channel) == [DONE]
            await anyio.wait_all_tasks_blocked()

    assert peer.connections == 3


async def test_a_kept_connection_that_breaks_under_a_request_does_not_repeat_it() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(200, JSON, DONE_JSON)
        await wire.hear()

    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]
        with pytest.raises(ConnectionClosed) as caught:
            await ask(channel)

    assert caught.value.may_have_run
    assert (len(peer.heard), peer.connections) == (2, 1)
