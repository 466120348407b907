"""Statuses that are no success, and redirects: what each of them means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from mcp_host.errors import (
    ConnectionClosed,
    HttpStatusError,
    Unauthorized,
)
from tests.transports.http_contract import libraries
from tests.transports.http_peers import (
    DONE,
    DONE_JSON,
    EVENTS,
    INITIALIZE,
    JSON,
    Wire,
    answering,
    ask,
    error_of,
    head,
    mocked,
    opened,
    serving,
)

REFUSAL = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool","data":{"name":"tides"}}}'


# Statuses


@pytest.mark.parametrize("status", [400, 404, 405, 406, 409, 415, 429, 500, 502, 503, 304, 101])
async def test_every_other_status_is_a_typed_error(status: int) -> None:
    error = await error_of(answering(status))

    assert type(error) is HttpStatusError
    assert (error.status, error.retry_after, error.body, error.code, error.data) == (status, None, "", None, None)


@pytest.mark.parametrize("status", [401, 403])
async def test_missing_credentials_raise_unauthorized(status: int) -> None:
    error = await error_of(answering(status))

    assert isinstance(error, Unauthorized)
    assert (error.status, error.challenges) == (status, ())


async def test_challenges_are_kept_and_appear_in_no_message() -> None:
    bearer = 'Bearer realm="tides", resource_metadata="https://server.test/meta", nonce="hunter2"'

    def answer(request: httpx.Request) -> httpx.Response:
        challenges = [bearer, "Basic", "Bearer " + "x" * 8192]
        return httpx.Response(401, headers=[("WWW-Authenticate", value) for value in challenges])

    error = await error_of(answer)

    assert isinstance(error, Unauthorized)
    assert error.challenges == (bearer, "Basic")  # and not one of any size
    assert "hunter2" not in str(error) + repr(error)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://server.test", "HTTP 404 Not Found from http://server.test (most servers are at http://server.test/mcp)"),
        ("http://server.test/", "HTTP 404 Not Found from http://server.test/ (most servers are at http://server.test/mcp)"),
        ("http://ada:hunter2@server.test/api?key=hunter2", "HTTP 404 Not Found from http://server.test/api"),
    ],
)  # fmt: skip
async def test_a_status_error_names_the_url_and_what_it_probably_lacks(url: str, text: str) -> None:
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(answering(404))) as http,
        opened(url, client=http) as channel,
    ):
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert str(caught.value) == text


async def test_a_status_error_has_the_servers_message_and_retry_after() -> None:
    error = await error_of(answering(503, {"content-type": "text/plain", "retry-after": "30"}, b"Back soon\n"))

    assert isinstance(error, HttpStatusError)
    assert (str(error), error.retry_after, error.body) == (
        "HTTP 503 Service Unavailable from http://server.test/mcp: Back soon",
        30.0,
        "Back soon\n",
    )


async def test_a_page_of_html_is_kept_but_not_quoted() -> None:
    error = await error_of(answering(502, {"content-type": "text/html"}, b"<h1>Bad Gateway</h1>"))

    assert isinstance(error, HttpStatusError)
    assert (str(error), error.body) == ("HTTP 502 Bad Gateway from http://server.test/mcp", "<h1>Bad Gateway</h1>")


@pytest.mark.parametrize("id", [b"7", b"null", b'"server-error"'])
async def test_a_json_rpc_error_in_the_body_comes_with_the_status(id: bytes) -> None:
    error = await error_of(answering(400, JSON, REFUSAL.replace(b"7", id)))

    assert isinstance(error, HttpStatusError)
    assert (error.status, error.code, error.message, error.data) == (
        400,
        -32602,
        "HTTP 400 Bad Request from http://server.test/mcp: no such tool",
        {"name": "tides"},
    )


async def test_an_unknown_status_has_no_phrase() -> None:
    assert str(await error_of(answering(599))) == "HTTP 599 from http://server.test/mcp"


async def test_an_endless_error_body_is_read_no_further_than_an_error_is_worth() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-type": "text/plain", "connection": "close"}))
        while True:
            await wire.say(b"x" * 1024)

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert caught.value.body == "x" * 64 * 1024


async def test_a_hanging_error_body_is_not_waited_for() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-type": "text/plain", "content-length": "100"}) + b"It all")
        await wire.hung_up()

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert caught.value.body == "It all"


async def test_an_error_body_that_breaks_off_leaves_its_beginning() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-type": "text/plain", "content-length": "100"}) + b"It all")

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert (caught.value.status, caught.value.body) == (500, "It all")


# The transport of 2024


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_of_2024_is_called_one(status: int) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(status)
        get = await wire.hear()
        assert (get.method, get.headers["accept"]) == ("GET", "text/event-stream")
        await wire.say(head(200, {**EVENTS, "transfer-encoding": "chunked"}))
        for line in (b"event: endpoint\n", b"data: /messages?session=1\n", b"\n"):
            await wire.say(b"%x\r\n%s\r\n" % (len(line), line))
        await wire.hung_up()

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(HttpStatusError, match=r"speaks only the HTTP\+SSE transport of 2024-11-05") as caught:
            await ask(channel, INITIALIZE)

    assert caught.value.status == status


@pytest.mark.parametrize(
    "answer_to_get",
    [
        pytest.param(answering(200, EVENTS, b"data: {}\n\n"), id="another event first"),
        pytest.param(answering(200, EVENTS, b""), id="no event"),
        pytest.param(answering(200, JSON, b"{}"), id="no stream"),
        pytest.param(answering(302, {"location": "https://other.test/"}), id="a redirect"),
        pytest.param(answering(405), id="a refusal"),
    ],
)
async def test_any_other_server_is_not(answer_to_get: Callable[[httpx.Request], httpx.Response]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(405) if request.method == "POST" else answer_to_get(request)

    error = await error_of(answer, INITIALIZE)

    assert str(error) == "HTTP 405 Method Not Allowed from http://server.test/mcp"


@pytest.mark.fake_clock
async def test_a_server_that_is_silent_about_its_transport_is_waited_for_no_longer_than_two_seconds() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            await anyio.sleep_forever()
        return httpx.Response(404)

    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client,
        opened("http://server.test/mcp", client=client) as channel,
    ):
        begun = anyio.current_time()
        with pytest.raises(HttpStatusError, match="HTTP 404 Not Found"):
            await ask(channel, INITIALIZE)

        assert anyio.current_time() - begun == pytest.approx(2)


# Redirects


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_with_method_and_body(status: int) -> None:
    heard: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        if request.url.path == "/mcp":
            return httpx.Response(status, headers={"location": "http://SERVER.test:80/mcp/?a=b"})
        return httpx.Response(200, headers=JSON, content=DONE_JSON)

    async with mocked(answer, headers={"X-Key": "1"}) as channel:
        assert await ask(channel) == [DONE]

    assert [str(request.url) for request in heard] == ["http://server.test/mcp", "http://server.test/mcp/?a=b"]
    assert heard[0].content == heard[1].content
    assert {request.headers["x-key"] for request in heard} == {"1"}


@libraries
async def test_user_and_password_of_the_url_survive_a_redirect_but_none_are_taken_from_one(library: Any) -> None:
    heard: list[Any] = []

    def answer(request: Any) -> Any:
        heard.append(request)
        if request.url.path == "/mcp":
            return library.Response(307, headers={"location": "http://eve:evil@server.test/x"})
        return library.Response(200, headers=JSON, content=DONE_JSON)

    async with (
        library.AsyncClient(transport=library.MockTransport(answer)) as client,
        opened("http://me:mine@server.test/mcp", client=client) as channel,
    ):
        await ask(channel)

    assert [request.headers["authorization"] for request in heard] == ["Basic bWU6bWluZQ=="] * 2


@libraries
@pytest.mark.parametrize(
    ("status", "location", "complaint"),
    [
        (307, "https://server.test/mcp", "HTTP 307 Temporary Redirect from http://server.test/mcp: refused to follow a redirect to https://server.test/mcp, another origin"),
        (307, "http://evil.test/?token=1", "HTTP 307 Temporary Redirect from http://server.test/mcp: refused to follow a redirect to http://evil.test/, another origin"),
        (307, "//evil.test/", "HTTP 307 Temporary Redirect from http://server.test/mcp: refused to follow a redirect to http://evil.test/, another origin"),
        (308, "http://server.test:81/", "HTTP 308 Permanent Redirect from http://server.test/mcp: refused to follow a redirect to http://server.test:81/, another origin"),
        (307, "file:///etc/passwd", "HTTP 307 Temporary Redirect from http://server.test/mcp: refused to follow a redirect to file:/etc/passwd, another origin"),
        (301, "/other", "HTTP 301 Moved Permanently from http://server.test/mcp: refused to follow a redirect to http://server.test/other, which would change the method"),
        (302, "/login", "HTTP 302 Found from http://server.test/mcp: refused to follow a redirect to http://server.test/login, which would change the method"),
        (303, "/other", "HTTP 303 See Other from http://server.test/mcp: refused to follow a redirect to http://server.test/other, which would change the method"),
        (307, "", "HTTP 307 Temporary Redirect from http://server.test/mcp: refused to follow a redirect to nowhere"),
        (307, "/mcp", "HTTP 307 Temporary Redirect from http://server.test/mcp: gave up after 5 redirects"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("follow", [True, False], ids=["a client that follows", "a client that does not"])
async def test_no_other_redirect_is_followed_even_if_the_client_would(
    library: Any, status: int, location: str, complaint: str, follow: bool
) -> None:
    visited: list[str] = []

    def answer(request: Any) -> Any:
        visited.append(str(request.url))
        return library.Response(status, headers={"location": location} if location else {})

    async with (
        library.AsyncClient(transport=library.MockTransport(answer), follow_redirects=follow) as client,
        opened("http://server.test/mcp", client=client) as channel,
    ):
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert (caught.value.status, str(caught.value)) == (status, complaint)
    assert set(visited) == {"http://server.test/mcp"}
    assert len(visited) <= 6


@pytest.mark.parametrize("location", ["http://server.test:x/", "x" * 65_530], ids=["no URL", "too long to be joined"])
async def test_a_redirect_that_makes_no_sense_is_a_broken_answer(location: str) -> None:
    assert type(await error_of(answering(307, {"location": location}))) is ConnectionClosed


async def test_an_empty_body_need_not_be_compressed() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-encoding": "gzip", "content-length": "0"}))

    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert (caught.value.status, caught.value.body) == (500, "")
