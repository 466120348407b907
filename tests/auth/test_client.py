"""OAuth's own requests, to servers down to the bytes: what comes back, where they must not go, and what bounds them."""

from __future__ import annotations

import errno
import gzip
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from ssl import SSLContext
from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.auth.errors import AddressRefused, AuthError, DiscoveryFailed, RegistrationFailed, TokenRequestFailed
from mcp_host.auth.requests.client import Answer, AuthClient
from mcp_host.transports._http import tls
from tests.clock import advance
from tests.extent import THOROUGH, on_both
from tests.transports.http_contract import certified, libraries, trusting
from tests.transports.http_peers import (
    Halting,
    Heard,
    Log,
    Peer,
    Script,
    Wire,
    head,
    reserved_port,
    saying,
    saying_once,
    serving,
)

SOON = 25.0  # seconds, on a busy machine; the client's own deadline is at 30
HERE, PUBLIC = "http://127.0.0.1/mcp", "https://mcp.test/mcp"
METADATA = b'{"issuer":"https://as.test"}'
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

Ask = Callable[[AuthClient, str], Awaitable[Answer]]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that trusts the tests' authority, and has no proxy."""
    monkeypatch.setattr(tls, "trusted", trusting)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Names:
    """A resolver: each question takes the next answer, the last answer stays. It notes the *asked* hosts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


HOME = Names(["127.0.0.1"])


def client(server: str = HERE, **options: Any) -> AuthClient:
    return AuthClient(server, **{"resolve": HOME, **options})


def says(status: int = 200, body: bytes = METADATA, **headers: str) -> Script:
    named = {"content-type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}

    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            await wire.reply(status, {key: value for key, value in named.items() if value}, body)

    return script


def texts(exc: BaseException | None) -> str:
    """What a log shows of *exc* and of its causes."""
    return "" if exc is None else f"{exc!r} {texts(exc.__cause__ if exc.__suppress_context__ else exc.__context__)}"


def at(url: str, host: str) -> str:
    """*url* with another host at its port."""
    return str(httpx.URL(url).copy_with(host=host))


async def get(client: AuthClient, url: str) -> Answer:
    return await client.get_json(url)


async def post(client: AuthClient, url: str) -> Answer:
    return await client.post_form(url, {"code": "secret-1"}, {"Authorization": "Basic secret-2"})


async def register(client: AuthClient, url: str) -> Answer:
    return await client.post_json(url, {"client_name": "mine"})


@asynccontextmanager
async def answering(script: Script, *, tls: SSLContext | None = None) -> AsyncIterator[Peer]:
    """A server with *script*. What is asked of it ends soon."""
    async with serving(script, tls=tls) as peer:
        with anyio.fail_after(SOON):
            yield peer


async def answered(script: Script, ask: Ask = get, *, host: str = "", **options: Any) -> tuple[Answer, Peer]:
    """The answer of a server with *script*: of *host* over TLS, if that is given."""
    async with answering(script, tls=certified(host) if host else None) as peer:
        return await ask(client(**options), at(peer.url, host) if host else peer.url), peer


every_request = pytest.mark.parametrize(
    ("ask", "failure"),
    [(get, DiscoveryFailed), (post, TokenRequestFailed), (register, RegistrationFailed)],
    ids=["metadata", "tokens", "registration"],
)


# What comes back


async def test_metadata_is_a_get_over_tls_to_the_host_of_the_url() -> None:
    asked_for: list[str | None] = []
    context = certified("as.test")
    context.sni_callback = lambda connection, name, context: asked_for.append(name)
    names = Names(["127.0.0.1"])
    try:
        async with answering(says(), tls=context) as peer:
            url = at(peer.url, "as.test") + "?a=1"
            answer = await client(resolve=names).get_json(url, {"MCP-Protocol-Version": "2025-03-26"})
    finally:
        context.sni_callback = None

    assert (answer.status, answer.json, answer.problem) == (200, {"issuer": "https://as.test"}, "HTTP 200")
    assert answer.headers["Content-Type"] == "application/json"
    [heard] = peer.heard
    assert (heard.method, heard.path) == ("GET", "/mcp?a=1")
    assert heard.headers["host"] == f"as.test:{httpx.URL(peer.url).port}"
    assert heard.headers["accept"] == "application/json"
    assert heard.headers["mcp-protocol-version"] == "2025-03-26"
    assert (names.asked, asked_for) == (["as.test"], ["as.test"])


async def test_a_form_is_posted() -> None:
    body = b'{"error":"invalid_grant","access_token":"secret-3"}'
    async with answering(says(400, body, dpop_nonce="n-1", set_cookie="a=secret-4")) as peer:
        answer = await client().post_form(peer.url, {"code": "a b&c", "scope": "ü"}, {"Authorization": "Basic x"})

    assert (answer.status, answer.json) == (400, {"error": "invalid_grant", "access_token": "secret-3"})
    assert repr(answer) == "Answer(status=400, problem='HTTP 400')"
    assert answer.headers["DPoP-Nonce"] == "n-1"
    [heard] = peer.heard
    assert (heard.method, heard.body) == ("POST", b"code=a+b%26c&scope=%C3%BC")
    assert heard.headers["content-type"] == "application/x-www-form-urlencoded"
    assert heard.headers["authorization"] == "Basic x"


async def test_json_is_posted() -> None:
    answer, peer = await answered(says(201, b'{"client_id":"c-1"}'), register)

    assert (answer.status, answer.json) == (201, {"client_id": "c-1"})
    [heard] = peer.heard
    assert (heard.method, heard.rpc) == ("POST", {"client_name": "mine"})
    assert heard.headers["content-type"] == "application/json"


WITHOUT = "HTTP 200 without a JSON object"
TOO_LARGE = "a body is larger than 1048576 bytes"
PROBLEMS: list[tuple[Script, str]] = [
    (says(404, b"<html>", content_type="text/html"), "HTTP 404"),
    (says(200, b"<html>", content_type="text/html; charset=utf-8"), f"{WITHOUT} (text/html)"),
    (says(200, b"", content_type=""), f"{WITHOUT} (no content type)"),
    *(
        (says(200, body), f"{WITHOUT} (application/json)")
        for body in (b"[]", b'{"issuer":', b'{"expires_in":NaN}', b'{"a":' * 100_000, b'{"issuer":"\xff"}')
    ),
    (says(200, b" " * (1024 * 1024 + 1)), f"HTTP 200: {TOO_LARGE}"),
    (says(503, b" " * (1024 * 1024 + 1)), f"HTTP 503: {TOO_LARGE}"),
    (
        says(body=b"\x1b...", content_encoding="br"),
        "HTTP 200: the body has the Content-Encoding br; asked for were gzip, deflate",
    ),
]


@pytest.mark.parametrize("ask", [get, post], ids=["metadata", "tokens"])
async def test_what_is_no_json_object_has_a_problem(ask: Ask, subtests: pytest.Subtests) -> None:
    bomb = says(200, gzip.compress(bytes(5_000_000)), content_encoding="gzip")
    for row, (script, problem) in enumerate((*PROBLEMS, (bomb, f"HTTP 200: {TOO_LARGE}"))):
        with subtests.test(problem, row=row):
            answer, _ = await answered(script, ask)

            assert (answer.json, answer.problem) == (None, problem)


async def test_json_of_another_type_or_with_a_mark_or_that_is_compressed_unasked_is_read(
    subtests: pytest.Subtests,
) -> None:
    """Files without a suffix, as metadata are, often have no better type."""
    scripts = {
        "another type": says(content_type="application/octet-stream"),
        "compressed": says(body=gzip.compress(METADATA), content_encoding="gzip"),
        "not compressed": says(content_encoding="UTF-8"),
        "a byte order mark": says(body=b"\xef\xbb\xbf" + METADATA),
    }
    for name, script in scripts.items():
        with subtests.test(name):
            answer, peer = await answered(script)

            assert (answer.json, answer.problem) == ({"issuer": "https://as.test"}, "HTTP 200")
            assert peer.heard[0].headers["accept-encoding"] == "identity"


# Where a request must not go


REFUSED = {
    "http://as.test/x?q=secret": "http://as.test/x is refused: it is not https",
    "http://127.0.0.1/x": "http://127.0.0.1/x is refused: it is not https",
    "https://user:secret@as.test/x": "https://as.test/x is refused: it has a user or a password",
    "https://as.test\\@evil.test/": "https://evil.test/ is refused: it has a user or a password",
    "ftp://as.test/secret": (
        "a URL that came from the network is refused: not the URL of an HTTP server: it must look like https://host/path"
    ),
    "https://[secret]/x": "a URL that came from the network is refused: not a URL",
}


@every_request
async def test_a_url_that_is_not_https_is_refused(
    ask: Ask, failure: type[AuthError], subtests: pytest.Subtests
) -> None:
    names, found = Names(["127.0.0.1"]), {}
    for url in REFUSED:
        with subtests.test(ascii(url)):
            with pytest.raises(AddressRefused) as caught:
                await ask(client(PUBLIC, resolve=names), url)
            found[url] = str(caught.value)

    assert (found, names.asked) == (REFUSED, [])


utf8 = st.characters(codec="utf-8")
urls = st.text(utf8) | st.from_regex(r"\A(https?:)?//[^/]{0,12}/?.{0,12}\Z", alphabet=utf8)


@given(urls)
@settings(max_examples=1000 if THOROUGH else 40)
def test_no_url_comes_past_the_checks(url: str) -> None:
    """Where it leads is a private address, so it is refused for that at the latest."""
    ours = client(PUBLIC, resolve=Names(["10.0.0.1"]))

    with pytest.raises(AddressRefused):
        anyio.run(get, ours, url)


@given(urls)
@settings(max_examples=1000 if THOROUGH else 40)
def test_no_redirect_comes_past_the_checks(location: str) -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(302, headers=[(b"location", location.encode())])

    theirs = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    with suppress(AddressRefused, DiscoveryFailed):
        anyio.run(get, client(PUBLIC, client=theirs), "https://as.test/x")

    assert 1 <= len(asked) <= 4
    assert all(url.scheme == "https" and not url.userinfo for url in asked)


@pytest.mark.parametrize("server", [HERE, "https://localhost:8443/mcp"])
async def test_http_is_for_this_machine_only(server: str, subtests: pytest.Subtests) -> None:
    for host in ("as.test", "10.0.0.1", "localhost.test"):
        with subtests.test(host), pytest.raises(AddressRefused, match="it is not https"):
            await client(server).get_json(f"http://{host}/x")


@pytest.mark.fault("O01")
@every_request
async def test_a_public_server_leads_to_no_private_address(
    ask: Ask, failure: type[AuthError], subtests: pytest.Subtests
) -> None:
    """`test_addresses.py` has more of them."""
    for address, kind in {
        "127.0.0.1": "loopback",
        "::1": "loopback",
        "0.0.0.0": "loopback",
        "10.0.0.1": "private",
        "fd00::1": "private",
        "fe80::1%1": "link-local",
        "64:ff9b::a9fe:a9fe": "link-local",
        "2001:0:101:101::80ff:fffe": "loopback",
        "224.0.0.1": "reserved",
    }.items():
        with subtests.test(address):
            with anyio.fail_after(SOON), pytest.raises(AddressRefused) as caught:
                await ask(client(PUBLIC, resolve=Names([address])), "https://as.test/x?q=secret")

            assert str(caught.value) == (
                f"https://as.test/x is refused: its address {address} is {kind}, which https://mcp.test/mcp does not allow"
                " (OAuth(client=httpx.AsyncClient()) leaves addresses to that client)"
            )


@pytest.mark.fault("O02")
async def test_encoded_addresses_are_what_the_resolver_makes_of_them(subtests: pytest.Subtests) -> None:
    """Nothing comes in where they lead. The resolver is the system's."""
    ways = ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "017700000001", "0", "[::1]", "[::ffff:127.0.0.1]"]
    async with serving(says(), tls=certified("localhost")) as peer:
        port = httpx.URL(peer.url).port
        for host in ways:
            with subtests.test(host), anyio.fail_after(SOON), pytest.raises(AddressRefused, match="is loopback, which"):
                await AuthClient(PUBLIC).get_json(f"https://{host}:{port}/x")

    assert peer.connections == 0


async def test_a_name_that_changes_its_address_leads_to_the_one_that_was_checked() -> None:
    """It is resolved once for each connection."""
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with answering(says(), tls=certified("as.test")) as peer:
        ours = client(resolve=names)
        answer = await ours.get_json(at(peer.url, "as.test"))
        with pytest.raises(AddressRefused, match=r"its address 169.254.169.254 is link-local"):
            await ours.get_json(at(peer.url, "as.test"))

    assert answer.status == 200
    assert (peer.connections, names.asked) == (1, ["as.test", "as.test"])


@pytest.mark.parametrize(
    ("server", "url", "address", "kind"),
    [
        (PUBLIC, "https://mcp.test/x", "10.0.0.1", "private"),  # its own name could lead there for a moment
        *(
            ("https://10.0.0.1/mcp", "https://as.test/x", address, kind)
            for address, kind in (
                ("127.0.0.1", "loopback"),
                ("169.254.169.254", "link-local"),
                ("224.0.0.1", "reserved"),
            )
        ),
        (HERE, "http://app.localhost/x", "10.0.0.1", "private"),  # http is for this machine only
    ],
)
async def test_a_server_leads_to_nothing_more_private_than_itself(
    server: str, url: str, address: str, kind: str
) -> None:
    with pytest.raises(AddressRefused, match=f"its address {address} is {kind}, which {server} does not allow"):
        await client(server, resolve=Names([address])).get_json(url)


async def test_addresses_that_are_refused_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not dialled: whether they would answer has no say in it."""
    dialled: list[str] = []

    async def connect(host: str, port: int) -> SocketStream:
        dialled.append(host)
        return await anyio.connect_tcp(host, port)

    monkeypatch.setattr("mcp_host.auth.requests.client.connect_tcp", connect)
    names = Names(["169.254.169.254", "127.0.0.1", "224.0.0.1"])
    answer, _ = await answered(says(), host="as.test", resolve=names)

    assert answer.status == 200
    assert dialled == ["127.0.0.1"]


# Redirects


async def test_a_redirect_of_metadata_is_followed() -> None:
    async with serving(says(), tls=certified("b.test")) as second:
        answer, _ = await answered(says(302, b"", location=at(second.url, "b.test")), host="a.test")

    assert (answer.status, answer.json) == (200, {"issuer": "https://as.test"})


async def test_a_redirect_may_be_relative() -> None:
    async def script(wire: Wire) -> None:
        heard = await wire.hear()
        await (wire.reply(307, {"location": "../b"}) if heard.path == "/mcp" else wire.reply(200, None, METADATA))

    answer, peer = await answered(script)

    assert answer.json == {"issuer": "https://as.test"}
    assert [heard.path for heard in peer.heard] == ["/mcp", "/b"]


async def test_three_redirects_are_followed_if_they_have_a_location() -> None:
    redirected, peer = await answered(says(302, b"", location="/mcp"))
    without, _ = await answered(says(301))

    assert (redirected.status, redirected.json) == (302, None)
    assert redirected.problem == "HTTP 302, a redirect that is not followed"
    assert peer.methods() == ["GET"] * 4
    assert (without.status, without.json) == (301, None)


async def test_a_redirect_is_checked_as_every_url(subtests: pytest.Subtests) -> None:
    for location, why in {
        "http://localhost:1/x?q=secret": "is refused: http://localhost:1/x is not https",
        "http://as.test/x?q=secret": "http://as.test/x is refused: it is not https",
        "//u:secret@as.test/x": "https://as.test/x is refused: it has a user or a password",
        "file:///etc/passwd": "is refused: not the URL of an HTTP server",
        "https://[secret]/x": "is refused: not a URL",
        "https://as.test/x?q=secret, https://b.test/": "is refused: it is to one of https://as.test/x, https://b.test/",
    }.items():
        with subtests.test(location):
            async with answering(says(302, b"", location=location), tls=certified("a.test")) as peer:
                with pytest.raises(AddressRefused) as caught:
                    await client().get_json(at(peer.url, "a.test"))

            assert why in str(caught.value)
            assert "secret" not in str(caught.value)


@pytest.mark.fault("O04")
async def test_a_redirect_to_an_internal_host_is_refused() -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with answering(says(302, b"", location="https://metadata.test/latest"), tls=certified("a.test")) as peer:
        with pytest.raises(AddressRefused) as caught:
            await client(resolve=names).get_json(at(peer.url, "a.test"))

    assert str(caught.value).startswith(
        "https://metadata.test/latest is refused: its address 169.254.169.254 is link-local"
    )


@pytest.mark.parametrize("ask", [post, register], ids=["tokens", "registration"])
async def test_a_post_follows_no_redirect(ask: Ask, subtests: pytest.Subtests) -> None:
    for status in (301, 302, 303, 307, 308):
        with subtests.test(status=status):
            answer, peer = await answered(says(status, METADATA, location="/other"), ask)

            assert (answer.status, answer.json) == (status, None)
            assert answer.problem == f"HTTP {status}, a redirect that is not followed"
            assert peer.methods() == ["POST"]


# Servers that misbehave


async def hang(wire: Wire) -> None:
    await wire.hear()
    advance(31)
    await wire.hung_up()


async def stall(wire: Wire) -> None:
    await wire.hear()
    await wire.say(head(200, {"transfer-encoding": "chunked"}) + b"1\r\n{\r\n")
    advance(31)
    await wire.hung_up()


@pytest.mark.fault("O15")
@on_both
@pytest.mark.adjustable_clock
@pytest.mark.parametrize("script", [hang, stall], ids=["no response", "no end"])
@every_request
async def test_a_server_that_hangs_has_thirty_seconds(script: Script, ask: Ask, failure: type[AuthError]) -> None:
    async with serving(script) as peer:
        with anyio.fail_after(60), pytest.raises(failure) as caught:
            await ask(client(), peer.url)

    assert str(caught.value).endswith(f"T {peer.url}: no answer within 30 seconds")


@on_both
@pytest.mark.adjustable_clock
async def test_the_time_is_for_all_redirects_together() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        advance(10)
        await wire.reply(302, {"location": "/mcp"})

    async with serving(script) as peer:
        with anyio.fail_after(60), pytest.raises(DiscoveryFailed, match="no answer within 25 seconds"):
            await client(timeout=25).get_json(peer.url)

    assert peer.connections == 3


@on_both
@pytest.mark.adjustable_clock
async def test_a_resolver_that_hangs_has_thirty_seconds() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        advance(31)
        await anyio.sleep_forever()
        raise AssertionError("it sleeps")

    with anyio.fail_after(60), pytest.raises(DiscoveryFailed) as caught:
        await client(resolve=resolve).get_json("https://as.test/x?q=secret")

    assert str(caught.value) == "GET https://as.test/x: no answer within 30 seconds"


@pytest.mark.fault("O15")
@on_both
@pytest.mark.parametrize("status", [200, 404])
@every_request
async def test_a_body_without_end_is_left(status: int, ask: Ask, failure: type[AuthError]) -> None:
    left = anyio.Event()

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(status, {"transfer-encoding": "chunked"}))
        try:
            while True:
                await wire.say(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        finally:
            left.set()

    async with answering(script) as peer:
        answer = await ask(client(), peer.url)
        await left.wait()

    assert (answer.json, answer.problem) == (None, f"HTTP {status}: a body is larger than 1048576 bytes")


async def garbage(wire: Wire) -> None:
    heard = await wire.hear()
    await wire.say(b"SECRET! " + heard.body + heard.headers.get("authorization", "").encode() + b"\r\n\r\n")
    await wire.end()


async def reset(wire: Wire) -> None:
    await wire.hear()
    await wire.reset()


CUT, DROP = saying_once(head(200, {"content-length": "100"}) + b"{"), saying_once(b"")
LONG_HEAD = saying(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000)
BROKEN: list[tuple[Script, str]] = [
    *((script, "the response is not HTTP, or not complete") for script in (garbage, CUT, LONG_HEAD)),
    (DROP, "the server closed the connection without a response"),
    (reset, f"[Errno {errno.ECONNRESET}] "),
    (says(body=b"no gzip", content_encoding="gzip"), "the body's gzip compression is corrupt"),
]


@on_both
@every_request
async def test_a_broken_response_is_an_error_of_the_step(
    ask: Ask, failure: type[AuthError], subtests: pytest.Subtests
) -> None:
    method = "GET" if ask is get else "POST"
    for row, (script, why) in enumerate(BROKEN):
        with subtests.test(why, row=row):
            async with answering(script) as peer:
                with pytest.raises(failure) as caught:
                    await ask(client(), peer.url + "?q=secret")

            assert str(caught.value).startswith(f"{method} {peer.url}: {why}")
            assert "secret" not in texts(caught.value)


@every_request
async def test_a_server_that_is_not_there_is_an_error_of_the_step(ask: Ask, failure: type[AuthError]) -> None:
    with reserved_port() as port, anyio.fail_after(SOON), pytest.raises(failure) as caught:
        await ask(client(), f"http://127.0.0.1:{port}/x?q=secret")

    assert str(caught.value).endswith(f"T http://127.0.0.1:{port}/x: {os.strerror(errno.ECONNREFUSED)}")


async def test_a_name_without_an_address_is_an_error_of_the_step(subtests: pytest.Subtests) -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    for resolve, why in ((unknown, "no such name"), (Names([]), "the host has no address")):
        with subtests.test(why):
            with pytest.raises(DiscoveryFailed) as caught:
                await client(PUBLIC, resolve=resolve).get_json("https://as.test/x")

            assert str(caught.value) == f"GET https://as.test/x: {why}"


async def test_a_header_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(TokenRequestFailed) as caught:
        await client().post_form("https://as.test/x", {}, {"Authorization": "Basic secret\n"})

    assert "secret" not in texts(caught.value)


async def test_the_next_address_is_tried_if_one_does_not_answer() -> None:
    answer, _ = await answered(says(), host="as.test", resolve=Names(["::1", "127.0.0.1"]))

    assert answer.status == 200


@on_both
@pytest.mark.adjustable_clock
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of their own, not 127.0.0.0/8")
async def test_the_next_address_is_tried_if_one_takes_too_long() -> None:
    async with serving(says()) as peer:
        port = httpx.URL(peer.url).port
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await client(resolve=Names(["127.0.0.2", "127.0.0.1"])).get_json(f"http://localhost:{port}"))

        with silent("127.0.0.2", port), anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                assert peer.connections == 0
                advance(6)

    assert [answer.status for answer in answers] == [200]


@contextmanager
def silent(host: str, port: int | None) -> Iterator[None]:
    """A place where a connection is neither accepted nor refused: the queue for it is full."""
    with socket.create_server((host, port), backlog=0) as listener, socket.create_connection(listener.getsockname()):
        yield


@pytest.mark.parametrize(("names", "why"), [(["other.test"], "is for another host"), (["127.0.0.1"], "is for another")])
async def test_a_certificate_is_for_the_host_of_the_url(names: list[str], why: str) -> None:
    async with answering(says(), tls=certified(*names)) as peer:
        with pytest.raises(TokenRequestFailed, match=why) as caught:
            await post(client(), at(peer.url, "as.test"))

    assert peer.heard == []
    assert "as OAuth(client=httpx.AsyncClient(verify=...))" in str(caught.value)


@on_both
async def test_cancelling_leaves_nothing_behind() -> None:
    server = Halting()
    async with serving(server) as peer, anyio.create_task_group() as tasks:
        with anyio.fail_after(SOON):
            tasks.start_soon(get, client(), peer.url)
            await server.heard.wait()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await server.hung_up.wait()


# Proxies of the environment


def proxy(heard: Log[Heard]) -> Script:
    """A proxy with the server as.test behind it. It notes what that has *heard*."""

    async def script(wire: Wire) -> None:
        assert (await wire.hear()).method == "CONNECT"
        await wire.say(b"HTTP/1.1 200 OK\r\n\r\n")
        tls = certified("as.test")
        inside = await TLSStream.wrap(wire.stream, server_side=True, ssl_context=tls, standard_compatible=False)
        await says()(Wire(inside, heard))

    return script


@pytest.mark.parametrize("scheme", ["http://", ""])
@every_request
async def test_a_proxy_of_the_environment_resolves_the_name(
    scheme: str, ask: Ask, failure: type[AuthError], monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, names = Log[Heard](), Names(["127.0.0.1"])
    async with serving(proxy(behind)) as peer:
        monkeypatch.setenv("HTTPS_PROXY", scheme + peer.url.removeprefix("http://").removesuffix("/mcp"))
        with anyio.fail_after(SOON):
            answer = await ask(client(PUBLIC, resolve=names), "https://as.test/x")

    assert (answer.status, answer.json, names.asked) == (200, {"issuer": "https://as.test"}, [])
    assert [heard.path for heard in peer.heard] == ["as.test:443"]
    assert [heard.path for heard in behind] == ["/x"]


async def test_a_private_address_is_refused_before_a_proxy(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    for host in ("127.0.0.1", "0x7f.1", "2130706433", "[::ffff:a9fe:a9fe]", "10.0.0.1", "localhost"):
        with subtests.test(host), pytest.raises(AddressRefused, match=r"which https://mcp.test/mcp does not allow"):
            await client(PUBLIC).get_json(f"https://{host}/x")


async def test_a_host_that_no_proxy_is_for_is_checked(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")

    for hosts in (".test", "as.test", "as.test:8443,b.test", "*"):
        with subtests.test(hosts):
            monkeypatch.setenv("NO_PROXY", hosts)
            with pytest.raises(AddressRefused, match=r"its address 10.0.0.1 is private"):
                await client(PUBLIC, resolve=Names(["10.0.0.1"])).get_json("https://as.test:8443/x")


async def test_this_machine_is_behind_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES[:3]:
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    answer, _ = await answered(says())

    assert answer.status == 200


@pytest.mark.parametrize(
    ("proxy", "why"),
    [
        ("ftp://user:secret@127.0.0.1", "HTTP_PROXY, .* not the URL of a proxy"),
        ("http://user:secret@127.0.0.1:99999", "HTTP_PROXY, .* not the URL of a proxy"),
        ("http://user:secret@[x]", "HTTP_PROXY, .* not the URL of a proxy"),
        ("socks5://user:secret@127.0.0.1", ".*'socksio' package is not installed"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_an_error_of_the_step(
    proxy: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setitem(sys.modules, "socksio", None)

    cannot = "GET https://as.test/x: the proxy of the environment cannot be used: "
    with pytest.raises(DiscoveryFailed, match=f"^{cannot}{why}") as caught:
        await client(PUBLIC).get_json("https://as.test/x")

    assert "secret" not in texts(caught.value)


async def test_a_proxy_that_refuses_is_an_error_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says(403)) as peer:
        monkeypatch.setenv("HTTPS_PROXY", peer.url.replace("://", "://user:secret@"))
        with anyio.fail_after(SOON), pytest.raises(DiscoveryFailed) as caught:
            await client(PUBLIC).get_json("https://as.test/x")

    proxy = peer.url.removesuffix("/mcp")
    assert str(caught.value).startswith(f"GET https://as.test/x: the proxy {proxy}: 403 ")
    assert "secret" not in texts(caught.value)


# A client of the host's


@pytest.mark.fault("O03")
@libraries
@every_request
async def test_a_client_of_the_hosts_decides_about_addresses_and_sends_no_credentials(
    library: ModuleType, ask: Ask, failure: type[AuthError]
) -> None:
    """It may well be the client that has the tokens."""
    options = {"verify": trusting(), "auth": ("me", "secret"), "headers": {"Authorization": "secret", "X-Team": "a"}}
    async with answering(says(), tls=certified("127.0.0.1")) as peer, library.AsyncClient(**options) as theirs:
        ours = client(PUBLIC, client=theirs)
        for _ in range(2):
            answer = await ask(ours, peer.url)

    assert (answer.status, answer.json) == (200, {"issuer": "https://as.test"})
    assert peer.connections == 1
    authorization = "Basic secret-2" if ask is post else None
    assert [heard.headers.get("authorization") for heard in peer.heard] == [authorization] * 2
    assert [heard.headers["x-team"] for heard in peer.heard] == ["a", "a"]


@libraries
async def test_a_client_of_the_hosts_is_held_to_all_else(library: ModuleType) -> None:
    async with library.AsyncClient(verify=trusting(), follow_redirects=True) as theirs:
        ours = client(PUBLIC, client=theirs)
        with anyio.fail_after(SOON):
            with pytest.raises(AddressRefused, match="it is not https"):
                await ours.get_json("http://127.0.0.1/x")
            async with serving(says(302, b"", location="http://a.test/"), tls=certified("127.0.0.1")) as peer:
                with pytest.raises(AddressRefused, match=r"http://a.test/ is refused: it is not https"):
                    await ours.get_json(peer.url)
                answer = await post(ours, peer.url)
                assert answer.problem == "HTTP 302, a redirect that is not followed"
            bomb = says(200, gzip.compress(bytes(5_000_000)), content_encoding="gzip")
            async with serving(bomb, tls=certified("127.0.0.1")) as peer:
                answer = await ours.get_json(peer.url)
                assert answer.problem == "HTTP 200: a body is larger than 1048576 bytes"
            async with serving(DROP, tls=certified("127.0.0.1")) as peer:
                with pytest.raises(TokenRequestFailed, match="the response is not HTTP, or not complete"):
                    await post(ours, peer.url)


@on_both
@libraries
@pytest.mark.adjustable_clock
async def test_a_client_of_the_hosts_has_thirty_seconds(library: ModuleType) -> None:
    async with (
        serving(hang, tls=certified("127.0.0.1")) as peer,
        library.AsyncClient(verify=trusting(), timeout=None) as theirs,
    ):
        with anyio.fail_after(60), pytest.raises(DiscoveryFailed, match="no answer within 30 seconds"):
            await client(PUBLIC, client=theirs).get_json(peer.url)


# Arguments


def test_arguments_are_checked(subtests: pytest.Subtests) -> None:
    for arguments in ({"server_url": "ftp://a.test"}, {"server_url": HERE, "timeout": -1}):
        with subtests.test(ascii(arguments)), pytest.raises(ValueError):  # noqa: PT011  # any text
            AuthClient(**arguments)
    for arguments in ({"timeout": "1"}, {"client": object()}):
        with subtests.test(ascii(arguments)), pytest.raises(TypeError):
            AuthClient(HERE, **arguments)
