"""Broken HTTP, byte by byte: each fault is an error of one request, and the next request works."""

from __future__ import annotations

import errno
import os
from traceback import format_exception
from typing import Any

import anyio
import pytest

from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.transports._http.pool import system_reason
from tests.clock import advance
from tests.transports.http_contract import Kind, both, by_httpx, callers_own, libraries  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import (
    CHUNKED,
    DONE,
    DONE_JSON,
    EVENTS,
    JSON,
    LENGTH,
    NOTE_JSON,
    VERSION,
    Halting,
    Wire,
    ask,
    chunk,
    event,
    head,
    opened,
    reserved_port,
    response,
    saying,
    saying_once,
    serving,
)

CLOSING = {**JSON, "connection": "close"}
STREAMED = head(200, {**EVENTS, **CHUNKED})
BROKEN = {
    "nothing at all": b"",
    "half a status line": b"HTTP/1.1 200 O",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-type: appl",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "noise": bytes(range(256)),
    "no body": head(200, {**JSON, **LENGTH}),
    "half a body": head(200, {**JSON, **LENGTH}) + DONE_JSON,
    "a bad chunk": head(200, {**JSON, **CHUNKED}) + b"zz\r\n" + DONE_JSON,
    "half a chunk": head(200, {**JSON, **CHUNKED}) + b"5\r\n{",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    "a negative length": head(200, {**JSON, "content-length": "-1"}) + DONE_JSON,
    "a header without a colon": b"HTTP/1.1 200 OK\r\nwhatever\r\n\r\n",
    "a huge header": head(200, {"x": "y" * 4 * 1024 * 1024}),
    "headers without an end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "corrupt gzip": head(200, {**JSON, "content-encoding": "gzip"}) + b"no gzip",
    "a stream's head": STREAMED,
    "a bad chunk in a stream": STREAMED + b"zz\r\n",
    "a stream cut after an event": STREAMED + chunk(event(NOTE_JSON)),
    "a stream cut inside a field's name": STREAMED + chunk(b"da"),
    "a stream cut inside an id": STREAMED + chunk(b"id: e-1"),
    "a stream cut inside an event": head(200, {**EVENTS, **LENGTH}) + event(NOTE_JSON) + b"data: {",
    "corrupt gzip in a stream": head(200, {**EVENTS, "content-encoding": "gzip"}) + b"no gzip",
}


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.fault("E01", "H19", "H21", "H22")
async def test_a_broken_answer_fails_its_request_and_nothing_else(reset: bool, subtests: pytest.Subtests) -> None:
    raw: bytes | None = None

    async def script(wire: Wire) -> None:
        await wire.hear()
        if raw is None:
            await wire.reply(200, CLOSING, DONE_JSON)
            return
        await wire.say(raw)
        if reset:
            await wire.reset()

    async with serving(script) as peer, opened(peer.url) as channel:
        for name, spoiled in BROKEN.items():
            with subtests.test(name):
                raw = spoiled
                with pytest.raises(ConnectionClosed) as caught:
                    await ask(channel)
                raw = None
                assert await ask(channel) == [DONE]
                assert type(caught.value) is ConnectionClosed
                assert caught.value.may_have_run
    assert len(peer.heard) == 2 * len(BROKEN)


ANSWERS = [
    (b"SSH-2.0-OpenSSH_9.6\r\n", "what answered is not HTTP: it begins with 'SSH-2.0-OpenSSH_9.6'"),
    (b"220 mail.test ready\r\n\r\n", "what answered is not HTTP: it begins with '220'"),
    (
        b"POST /mcp?key=hunter2 HTTP/1.1\r\nauthorization: hunter2\r\n\r\n",
        "what answered is not HTTP: it begins with 'POST'",
    ),
    (b"\x15\x03\x03\x00\x02\x02\x28", "what answered speaks TLS: the URL may begin with https://"),
    (b"\x16\x03", "what answered speaks TLS: the URL may begin with https://"),
    (b"\x00", r"what answered is not HTTP: it begins with '\\x00'"),
    (b"\r\n", r"what answered is not HTTP: it begins with '\\r\\n'$"),
    (b"\r\nHTTP/1.1 200 OK\r\n\r\n", r"what answered is not HTTP: it begins with '\\r\\n'$"),
    (b"HTTP/1.1 200 OK\r\nset-cookie : sid=hunter2\r\n\r\n", "illegal header line"),
    (b"HTTP/1.1 200 OK\r\nmcp-session-id: hunter2\0\r\n\r\n", "illegal header line"),
    (b"HTTP/1.1 OK hunter2\r\n\r\n", r"illegal status line: bytearray\(b'HTTP/1.1"),
]


@pytest.mark.fault("H21")
async def test_what_answers_in_the_place_of_a_server_is_named_and_no_secret_in_it_quoted(
    request: pytest.FixtureRequest, subtests: pytest.Subtests
) -> None:
    """A server may repeat the request. Of the clients of others, errors have their own words for what is not HTTP."""
    ours = request.node.callspec.params["by_httpx"] == "our pool"
    for raw, complaint in ANSWERS:
        with subtests.test(ascii(raw)):
            async with serving(saying_once(raw)) as peer, opened(peer.url) as channel:
                with pytest.raises(
                    ConnectionClosed, match=complaint if ours or "illegal" in complaint else None
                ) as caught:
                    await ask(channel)

            assert "hunter2" not in "".join(format_exception(caught.value))


async def test_a_complete_reply_counts_although_the_connection_breaks_after_it() -> None:
    script = saying_once(head(200, {**EVENTS, **LENGTH}) + b"data: " + DONE_JSON)
    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]


@pytest.mark.fault("H01")
async def test_a_server_that_is_not_there_certainly_did_not_run_the_request(subtests: pytest.Subtests) -> None:
    refused = os.strerror(errno.ECONNREFUSED)
    with reserved_port() as port:
        for url, complaint in (
            (f"http://127.0.0.1:{port}/mcp?token=secret", f"http://127.0.0.1:{port}/mcp: {refused}"),
            ("http://127.0.0.1:80/nothing", r"http://127\.0\.0\.1/nothing"),
            ("http://nowhere.invalid/", r"http://nowhere\.invalid/"),
        ):
            with subtests.test(url):
                async with opened(url) as channel:
                    with pytest.raises(ConnectFailed, match=complaint) as caught:
                        await ask(channel)

                assert not caught.value.may_have_run


def test_a_failure_to_connect_says_what_the_system_said_to_each_attempt() -> None:
    def failed(*numbers: int) -> OSError:
        errors = [OSError(number, "Connect call failed") for number in numbers]
        error = OSError("All connection attempts failed")
        error.__cause__ = ExceptionGroup("", errors) if len(errors) > 1 else errors[0]
        return error

    refused, unreachable, full = map(os.strerror, (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EMFILE))
    assert system_reason(failed(errno.EMFILE)) == full
    assert (
        system_reason(failed(errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNREFUSED)) == f"{unreachable}, {refused}"
    )
    assert system_reason(OSError(errno.EMFILE, full)) == ""  # its own text says so
    assert system_reason(OSError("the host has no address")) == ""


@callers_own
@libraries
@pytest.mark.adjustable_clock
async def test_a_full_pool_of_the_callers_is_an_error_of_the_request_that_waited(library: Any) -> None:
    async def wait() -> None:
        with pytest.raises(ConnectFailed, match="PoolTimeout"):
            await ask(channel)
        tasks.cancel_scope.cancel()

    server = Halting()
    async with (
        library.AsyncClient(limits=library.Limits(max_connections=1), timeout=5) as client,
        serving(server) as peer,
        opened(peer.url, client=client) as channel,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(channel.send, DONE, VERSION)
        await server.heard.wait()
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        advance(5)


@callers_own
@libraries
async def test_a_client_that_its_owner_closed_is_a_clear_error(library: Any) -> None:
    client = library.AsyncClient()
    async with opened("http://127.0.0.1:1/mcp", client=client) as channel:
        await client.aclose()
        with pytest.raises(ConnectionClosed, match=rf"the {library.__name__}\.AsyncClient was closed") as caught:
            await ask(channel)

    assert not caught.value.may_have_run


@callers_own
@both
async def test_a_secret_in_a_bad_header_of_the_callers_client_is_not_quoted_nor_is_it_in_a_traceback(
    kind: Kind,
) -> None:
    server = Halting()
    async with kind.client() as client, serving(server) as peer, opened(peer.url, client=client) as channel:
        client.headers["Authorization"] = "Bearer hunter2\n"
        with pytest.raises(ConnectionClosed, match="LocalProtocolError") as caught:
            await ask(channel)

    assert "hunter2" not in "".join(format_exception(caught.value))


@callers_own
@both
async def test_a_cookie_that_no_header_can_carry_fails_the_requests_of_a_client_that_keeps_it(kind: Kind) -> None:
    """A client of ours keeps none; what is in the caller's is the caller's."""
    script = saying(response(200, {**JSON, "set-cookie": "a=\u00e9"}, DONE_JSON))
    async with kind.client() as client, serving(script) as peer, opened(peer.url, client=client) as channel:
        assert await ask(channel) == [DONE]
        with pytest.raises(ConnectionClosed, match="'ascii' codec can't encode"):
            await ask(channel)
