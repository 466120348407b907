"""The listener for the redirect: what it takes, what it refuses without an end of the wait, and its bounds."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from anyio import (
    BrokenResourceError,
    CancelScope,
    EndOfStream,
    connect_tcp,
    create_task_group,
    create_tcp_listener,
    fail_after,
    wait_all_tasks_blocked,
)
from anyio.abc import SocketAttribute, SocketListener, SocketStream

from mcp_host.auth.login.loopback import LoopbackListener, LoopbackUri, has_address
from tests.auth.world import new_browser
from tests.extent import on_both

STATE = "st4te-of-this-login"
FINE = f"?code=c0de&state={STATE}"


class Waiting:
    """A login that waits for its redirect: *url* is where it goes, *redirects* has what came back."""

    def __init__(self, url: str, answer: str = FINE) -> None:
        self.url = url
        self._answer = answer
        self.port = httpx.URL(url).port or 0
        self.redirects: list[str] = []
        self.is_over = False

    async def end(self) -> httpx.Response:
        """The right redirect."""
        self.is_over = True
        return await self.get(f"/callback{self._answer}")

    async def get(self, target: str) -> httpx.Response:
        async with new_browser() as browser:
            return await browser.get(f"http://127.0.0.1:{self.port}{target}")

    async def says(self, sent: bytes) -> bytes:
        """All that comes back for some bytes."""
        async with await self.connect() as stream:
            if sent:
                await stream.send(sent)
            return await rest(stream)

    async def connect(self) -> SocketStream:
        return await connect_tcp("127.0.0.1", self.port)


async def rest(stream: SocketStream) -> bytes:
    received = b""
    try:
        while True:
            received += await stream.receive()
    except (EndOfStream, BrokenResourceError):
        return received


@asynccontextmanager
async def waiting(answer: str = FINE, *, request_time: float = 30) -> AsyncIterator[Waiting]:
    """Listen inside. At the end the redirect with *answer* comes, if it has not come before."""
    with fail_after(25):
        async with LoopbackListener.open(LoopbackUri(), request_time=request_time) as listener:
            login = Waiting(listener.redirect_uri, answer)

            async def wait() -> None:
                login.redirects.append(await listener.wait_for_redirect(STATE))

            async with create_task_group() as tasks:
                tasks.start_soon(wait)
                yield login
                if not login.is_over:
                    assert (await login.end()).status_code == 200
    assert login.redirects == [f"{login.url}{answer}"]


def request(
    target: str = f"/callback{FINE}", *, method: str = "GET", host: str | None = None, more: str = "", port: int
) -> bytes:
    host = f"127.0.0.1:{port}" if host is None else host.replace("PORT", str(port))
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode("latin-1")


@on_both
async def test_a_redirect_to_localhost_is_taken_at_the_addresses_of_both_families() -> None:
    if not has_address("::1"):
        pytest.skip("this machine has no IPv6")
    for address in ("127.0.0.1", "::1"):
        with fail_after(25):
            async with LoopbackListener.open(LoopbackUri("localhost")) as listener:
                port = httpx.URL(listener.redirect_uri).port or 0
                async with await connect_tcp(address, port) as stream:
                    await stream.send(request(host="localhost:PORT", port=port))
                    assert await listener.wait_for_redirect(STATE) == f"{listener.redirect_uri}{FINE}"


async def test_a_port_that_another_program_has_at_one_address_of_localhost_is_refused() -> None:
    if not has_address("::1"):
        pytest.skip("this machine has no IPv6")
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            async with LoopbackListener.open(LoopbackUri("localhost", other.getsockname()[1])):
                """It does not get here."""


def test_an_address_that_this_machine_does_not_have_is_known() -> None:
    assert not has_address("2001:db8::1")  # of documentation: RFC 3849


@on_both
async def test_the_redirect_comes_back_whole_and_the_person_sees_a_page() -> None:
    async with waiting() as login:
        page = await login.end()

    assert page.status_code == 200
    assert dict(page.headers) == {
        "content-type": "text/html; charset=utf-8",
        "cache-control": "no-store",
        "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "connection": "close",
        "content-length": str(len(page.content)),
    }
    assert page.text == (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        "<title>Authorization received</title></head><body><h1>Authorization received</h1>"
        "<p>You can close this page and go back to the application.</p></body></html>\n"
    )


@pytest.mark.parametrize(
    "query",
    [
        f"?error=access_denied&error_description=%3Cscript%3Ealert(1)%3C/script%3E&state={STATE}",
        f"?error=access_denied&code=c0de&state={STATE}",
        f"?state={STATE}",
    ],
    ids=["an error", "an error and a code", "no code"],
)
async def test_a_refusal_is_an_answer_too_and_its_page_repeats_nothing(query: str) -> None:
    async with waiting(query) as login:
        page = await login.end()

    assert page.status_code == 200
    assert "<h1>Not authorized</h1>" in page.text
    assert "script" not in page.text
    assert "access_denied" not in page.text


def targets(*targets: str) -> list[dict[str, str]]:
    return [{"target": target} for target in targets]


OTHERS: dict[int, list[dict[str, str]]] = {
    404: [
        *targets("/", "/favicon.ico", f"/callback/{FINE}", f"//callback{FINE}", f"/CALLBACK{FINE}"),
        *targets(f"http://127.0.0.1/callback{FINE}"),
    ],
    400: [
        *targets("/callback", "/callback?code=c0de", "/callback?\xe9", f"/callback?code=c0de#state={STATE}"),
        *targets(*(f"/callback?code=c0de&state={state}" for state in ("", STATE[:-1], f"{STATE}x", STATE.upper()))),
        *targets("/callback?code=c0de&state=%ff%00", f"/callback?state=other&code=c0de&state={STATE}"),
        *targets(f"/callback{FINE}&state={STATE}", f"/callback{FINE}{'&a=b' * 63}"),
        {"more": "Host: 127.0.0.1\r\n"},
    ],
    405: [
        {"method": "POST", "more": "Content-Length: 3\r\n"},
        {"method": "HEAD"},
        {"method": "OPTIONS", "more": "Access-Control-Request-Private-Network: true\r\n"},
        {"method": "get"},
    ],
    421: [
        *({"host": f"{host}:PORT"} for host in ("evil.example", "localhost", "0.0.0.0")),
        *({"host": host} for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "")),
    ],
    431: [{"more": f"Cookie: {'x' * 30_000}\r\n"}],
    501: [{"more": "Transfer-Encoding: gzip\r\n"}],
}


@on_both
@pytest.mark.parametrize("status", OTHERS)
async def test_any_other_request_is_an_error_and_the_wait_goes_on(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcp_host")
    async with waiting() as login:
        for sent in OTHERS[status]:
            answer = await login.says(request(**sent, port=login.port))

            assert answer.startswith(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()), sent
            assert (b"\r\nAllow: GET\r\n" in answer) is (status == 405)
            assert STATE.encode() not in answer
            assert login.redirects == []

    assert STATE not in caplog.text
    assert "c0de" not in caplog.text
    assert len(caplog.records) == (4 if status == 400 else 0), "the first, second, fourth and eighth refused redirect"


async def test_a_person_with_the_page_of_an_earlier_login_is_told_so() -> None:
    async with waiting() as login:
        page = await login.get("/callback?code=c0de&state=earlier")

        assert page.status_code == 400
        assert "<h1>Not the answer to this login</h1>" in page.text
        assert "earlier</" not in page.text


async def test_garbage_is_an_error_and_the_wait_goes_on() -> None:
    garbage = [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\x00" * 20_000,
        b"GET " + b"a" * 20_000,
        b"GET /callback" + FINE.encode() + b" HTTP/1.1\r\n\r\n",
        b"GET /callback" + FINE.encode() + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    async with waiting() as login:
        for sent in garbage:
            answer = await login.says(sent)

            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421", b"HTTP/1.1 405", b"HTTP/1.1 431")), sent
            assert login.redirects == []


@on_both
async def test_clients_that_leave_do_not_end_the_wait() -> None:
    async with waiting() as login:
        for sent in (b"", b"GET /callb"):
            for how in ("close", "reset", "half"):
                stream = await login.connect()
                await stream.send(sent)
                if how == "reset":
                    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                elif how == "half":
                    await stream.send_eof()
                    await rest(stream)
                await stream.aclose()

        assert login.redirects == []


@on_both
@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /callback HTTP/1.1\r\nHost: "], ids=["nothing", "a word", "half"])
async def test_a_request_without_an_end_is_answered_when_its_time_is_over(sent: bytes) -> None:
    async with waiting(request_time=0.01) as login:
        answer = await login.says(sent)

        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        while not login.is_over:  # its time may be over, too
            login.is_over = b" 200 OK" in await login.says(request(port=login.port))


@on_both
async def test_a_flood_of_connections_leaves_room_for_the_redirect() -> None:
    async with waiting() as login:
        flood = [await login.connect() for _ in range(100)]
        for stream in flood[50:]:
            await stream.send(b"GET /callback")

        assert [await rest(stream) for stream in flood[:84]] == [b""] * 84

        page = await login.end()

        assert page.status_code == 200
        for stream in flood:
            await stream.aclose()


@on_both
async def test_what_a_client_still_sends_does_not_cost_it_the_answer() -> None:
    """The system would reset a connection that is closed while bytes are unread."""
    async with waiting() as login, await login.connect() as stream:
        await stream.send(request("/", port=login.port))
        answer = await rest(stream)
        for _ in range(3):
            await stream.send(b"more")
            await wait_all_tasks_blocked()

        assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")


@on_both
async def test_a_client_that_sends_without_end_gets_its_answer_and_is_cut_off() -> None:
    async with waiting() as login:
        stream = await login.connect()
        await stream.send(request("/", port=login.port))
        with suppress(BrokenResourceError):
            while True:
                await stream.send(b"x" * 10_000)
        await stream.aclose()

        assert login.redirects == []


class Failing(SocketListener):
    """A listener that cannot accept at first."""

    def __init__(self, listener: SocketListener, *errors: Exception) -> None:
        self._listener = listener
        self._errors = list(errors)

    async def accept(self) -> SocketStream:
        if self._errors:
            raise self._errors.pop()
        return await self._listener.accept()

    async def aclose(self) -> None:
        await self._listener.aclose()

    @property
    def _raw_socket(self) -> socket.socket:
        return self._listener._raw_socket


@on_both
async def test_connections_that_cannot_be_accepted_do_not_end_the_wait() -> None:
    with fail_after(25):
        async with await create_tcp_listener(local_host="127.0.0.1") as listeners, create_task_group() as tasks:
            (real,) = listeners.listeners
            assert isinstance(real, SocketListener)
            failing = Failing(real, OSError("too many open files"), BrokenResourceError())
            listener = LoopbackListener([failing], LoopbackUri(), 30)
            login = Waiting(listener.redirect_uri)
            tasks.start_soon(login.end)

            assert await listener.wait_for_redirect(STATE) == f"{login.url}{FINE}"


class AtPort80(Failing):
    """A listener that says that it has port 80, for which tests have no permission."""

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {SocketAttribute.local_port: lambda: 80}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80"])
async def test_a_browser_may_leave_out_the_default_port(host: str) -> None:
    with fail_after(25):
        async with await create_tcp_listener(local_host="127.0.0.1") as listeners, create_task_group() as tasks:
            (real,) = listeners.listeners
            assert isinstance(real, SocketListener)
            port, answers = real.extra(SocketAttribute.local_port), list[bytes]()

            async def visit() -> None:
                async with await connect_tcp("127.0.0.1", port) as stream:
                    await stream.send(request(host=host, port=port))
                    answers.append(await rest(stream))

            listener = LoopbackListener([AtPort80(real)], LoopbackUri(port=80), 30)
            tasks.start_soon(visit)

            assert await listener.wait_for_redirect(STATE) == f"http://127.0.0.1:80/callback{FINE}"

    assert answers[0].startswith(b"HTTP/1.1 200 ")


@on_both
async def test_of_two_redirects_the_first_is_taken() -> None:
    """The second is refused, or finds the listener closed."""
    with fail_after(25):
        async with LoopbackListener.open(LoopbackUri()) as listener:
            login = Waiting(listener.redirect_uri)
            async with await login.connect() as first, await login.connect() as second:
                await first.send(request(f"/callback?code=1&state={STATE}", port=login.port))
                await second.send(request(f"/callback?code=2&state={STATE}", port=login.port))

                redirect = await listener.wait_for_redirect(STATE)

                answers = [await rest(stream) for stream in (first, second)]
    taken = [b" 200 OK" in answer for answer in answers]
    assert taken in ([True, False], [False, True])
    assert redirect == f"{login.url}?code={taken.index(True) + 1}&state={STATE}"


@pytest.mark.fault("O20")
async def test_the_listener_is_on_the_loopback_address_alone() -> None:
    async with waiting() as login:
        assert login.url == f"http://127.0.0.1:{login.port}/callback"
        for family, other in ((socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as client:
                assert client.connect_ex((other, login.port)) != 0


@pytest.mark.fault("O20")
@on_both
async def test_after_the_redirect_the_port_is_closed() -> None:
    async with waiting() as login:
        await login.end()

    with pytest.raises(httpx.ConnectError):
        await login.get(f"/callback{FINE}")


@on_both
async def test_a_cancelled_wait_leaves_no_socket() -> None:
    """Warnings about sockets that nobody closed are errors here."""
    with fail_after(25), CancelScope() as scope:
        async with LoopbackListener.open(LoopbackUri()) as listener, create_task_group() as tasks:
            login = Waiting(listener.redirect_uri)
            tasks.start_soon(listener.wait_for_redirect, STATE)
            stream = await login.connect()
            await stream.send(b"GET /callback")
            await wait_all_tasks_blocked()
            scope.cancel()

    assert await rest(stream) == b""
    await stream.aclose()
    with pytest.raises(httpx.ConnectError):
        await login.get("/")


def test_the_port_of_an_earlier_redirect_uri_is_found() -> None:
    others = [
        *(f"http://127.0.0.1{port}/callback" for port in (":65536", ":0", ":050123", ":5\u0660", ":-1", "")),
        *("http://localhost:50123/callback", "https://127.0.0.1:50123/callback", "http://127.0.0.1:50123/other"),
        *("http://127.0.0.1:50123@evil.example/callback", "app://callback", "50123", ""),
    ]

    assert [LoopbackUri().find_port(f"http://127.0.0.1:{port}/callback") for port in (1, 65535)] == [1, 65535]
    assert [uri for uri in others if LoopbackUri().find_port(uri) != 0] == []


def test_a_redirect_uri_of_this_machine_is_used_as_it_is_written() -> None:
    expected = {
        "http://localhost:8080/oauth/callback": LoopbackUri("localhost", 8080, "/oauth/callback"),
        "http://localhost": LoopbackUri("localhost", 0, ""),
        "http://127.0.0.1/": LoopbackUri("127.0.0.1", 0, "/"),
        "http://[::1]:8080/callback": LoopbackUri("[::1]", 8080, "/callback"),
    }

    assert {uri: LoopbackUri.of(uri) for uri in expected} == expected
    assert [str(uri) for uri in expected.values()] == [*expected]


def test_a_redirect_uri_of_elsewhere_is_refused() -> None:
    for uri in (
        "https://localhost:8080/callback",
        "http://my-app.example/callback",
        "http://localhost:8080/callback?a=b",
        "http://user@localhost:8080/callback",
        "http://LOCALHOST:8080/callback",
        "http://localhost:08080/callback",
        "http://localhost:65536/callback",
        "http://localhost:8080/callback#fragment",
        "com.example.app:/callback",
    ):
        with pytest.raises(ValueError, match=r"^redirect_uri has to be|^Port out of range"):
            LoopbackUri.of(uri)
