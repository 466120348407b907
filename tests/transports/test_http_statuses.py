"""Statuses that are no success, and redirects: what each of them means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from mcp_host.errors import ConnectionClosed, HttpStatusError, Unauthorized
from mcp_host.transports._http.response import ERROR_TIME
from tests.clock import advance
from tests.transports.http_contract import libraries
from tests.transports.http_peers import (
    CALL,
    DONE,
    DONE_JSON,
    EVENTS,
    INITIALIZE,
    JSON,
    Script,
    Wire,
    answering,
    ask,
    error_of,
    head,
    mocked,
    opened,
    response,
    saying,
    serving,
)

REFUSAL = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool","data":{"name":"tides"}}}'


in_memory = pytest.mark.backends("trio")  # the server is a function: no event loop can change what comes of it


async def status_error(answer: Callable[[httpx.Request], httpx.Response]) -> HttpStatusError:
    error = await error_of(answer, CALL)
    assert isinstance(error, HttpStatusError)
    return error


# Statuses


STATUSES = (101, 304, 400, 402, 404, 405, 406, 409, 413, 415, 422, 429, 500, 501, 502, 503, 504, 599)


@in_memory
@pytest.mark.fault("H02")
async def test_every_other_status_is_a_typed_error() -> None:
    found = {status: await status_error(answering(status)) for status in STATUSES}

    assert {
        status: (type(error), error.status, error.retry_after, error.body, error.code, error.data)
        for status, error in found.items()
    } == {status: (HttpStatusError, status, None, "", None, None) for status in STATUSES}


@in_memory
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.fault("H10")
async def test_missing_credentials_raise_unauthorized_with_challenges_that_appear_in_no_message(status: int) -> None:
    bearer = 'Bearer realm="tides", resource_metadata="https://server.test/meta", nonce="hunter2"'
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, headers=[("WWW-Authenticate", value) for value in given])

    for given in ([], [bearer, "Basic", "Bearer " + "x" * 8192]):
        asked.clear()
        error = await error_of(answer)

        assert isinstance(error, Unauthorized)
        assert (error.status, error.challenges, len(asked)) == (status, tuple(given[:2]), 1)  # and not one of any size
        assert "hunter2" not in str(error) + repr(error)


@in_memory
@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://server.test", "HTTP 404 Not Found from http://server.test (most servers are at http://server.test/mcp)"),
        ("http://server.test/", "HTTP 404 Not Found from http://server.test/ (most servers are at http://server.test/mcp)"),
        ("http://ada:hunter2@server.test/api?key=hunter2", "HTTP 404 Not Found from http://server.test/api"),
    ],
)  # fmt: skip
async def test_a_status_error_names_the_url_and_what_it_probably_lacks(url: str, text: str) -> None:
    async with mocked(answering(404), url) as channel:
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)

    assert str(caught.value) == text


TEXT, HTML = {"content-type": "text/plain"}, {"content-type": "text/html; charset=utf-8"}
TEXTS: list[tuple[int, dict[str, str], bytes, str]] = [
    (401, TEXT, b"No token", "HTTP 401 Unauthorized from http://server.test/mcp: No token"),
    (403, TEXT, b"Not yours\n", "HTTP 403 Forbidden from http://server.test/mcp: Not yours"),
    (429, {}, b"", "HTTP 429 Too Many Requests from http://server.test/mcp"),
    (502, HTML, b"<h1>Bad Gateway</h1>", "HTTP 502 Bad Gateway from http://server.test/mcp"),
    (503, TEXT, b"\x1b[2J\xff", "HTTP 503 Service Unavailable from http://server.test/mcp: \\x1b[2J\ufffd"),
    (599, {}, b"", "HTTP 599 from http://server.test/mcp"),
]


@in_memory
@pytest.mark.fault("H03")
async def test_a_status_error_has_the_servers_text_and_quotes_it_unless_it_is_html(subtests: pytest.Subtests) -> None:
    for status, headers, body, text in TEXTS:
        with subtests.test(ascii(text)):
            error = await status_error(answering(status, headers, body))
            assert (str(error), error.body) == (text, body.decode(errors="replace"))


@in_memory
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.fault("H04")
async def test_a_status_error_has_the_time_to_retry_after(status: int) -> None:
    assert (await status_error(answering(status, {"retry-after": "30"}))).retry_after == 30.0


@in_memory
@pytest.mark.fault("H03")
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


async def error_from(script: Script) -> HttpStatusError:
    """What a request ends with at a server down to the bytes."""
    async with serving(script) as peer, opened(peer.url) as channel:
        with pytest.raises(HttpStatusError) as caught:
            await ask(channel)
    return caught.value


@pytest.mark.fault("H32")
async def test_an_endless_error_body_is_read_no_further_than_an_error_is_worth() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-type": "text/plain", "connection": "close"}))
        while True:
            await wire.say(b"x" * 1024)

    assert (await error_from(script)).body == "x" * 64 * 1024


@pytest.mark.adjustable_clock
async def test_a_hanging_error_body_is_not_waited_for() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-type": "text/plain", "content-length": "100"}) + b"It all")
        await anyio.wait_all_tasks_blocked()  # until that has been read
        advance(ERROR_TIME)
        await wire.hung_up()

    assert (await error_from(script)).body == "It all"


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.fault("H20")
async def test_an_error_body_that_breaks_off_leaves_its_beginning(reset: bool) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(500, {"content-type": "text/plain", "content-length": "100"}) + b"It all")
        await (wire.reset() if reset else wire.end())

    error = await error_from(script)

    assert (error.status, error.body) in [(500, "It all")] + [(500, "")] * reset  # a reset may overtake what was said


@pytest.mark.parametrize("body", [b"", b"no gzip"], ids=["empty", "corrupt"])
@pytest.mark.fault("H20")
async def test_a_compressed_error_body_that_cannot_be_inflated_is_empty(body: bytes) -> None:
    error = await error_from(saying(response(500, {"content-encoding": "gzip"}, body)))

    assert (error.status, error.body) == (500, "")


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


@in_memory
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

    async with mocked(answer) as channel:
        begun = anyio.current_time()
        with pytest.raises(HttpStatusError, match="HTTP 404 Not Found"):
            await ask(channel, INITIALIZE)

        assert anyio.current_time() - begun == pytest.approx(2)


# Redirects


@in_memory
@pytest.mark.fault("H34")
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


@in_memory
@libraries
async def test_user_and_password_of_the_url_survive_a_redirect_but_none_are_taken_from_one(library: Any) -> None:
    heard: list[Any] = []

    def answer(request: Any) -> Any:
        heard.append(request)
        if request.url.path == "/mcp":
            return library.Response(307, headers={"location": "http://eve:evil@server.test/x"})
        return library.Response(200, headers=JSON, content=DONE_JSON)

    async with mocked(answer, "http://me:mine@server.test/mcp", library=library) as channel:
        await ask(channel)

    assert [request.headers["authorization"] for request in heard] == ["Basic bWU6bWluZQ=="] * 2


REDIRECTS = [
    *(
        (307, location, f"refused to follow a redirect to {shown}, another origin")
        for location, shown in (
            ("https://server.test/mcp", "https://server.test/mcp"),
            ("http://evil.test/?token=1", "http://evil.test/"),
            ("//evil.test/", "http://evil.test/"),
            ("http://server.test:81/", "http://server.test:81/"),
            ("http://server.test:80@evil.test/mcp", "http://evil.test/mcp"),
            ("http://server.test.evil.test/mcp", "http://server.test.evil.test/mcp"),
            ("http://[::1]/mcp", "http://[::1]/mcp"),
            ("http://169.254.169.254/latest", "http://169.254.169.254/latest"),
            ("file:///etc/passwd", "file:/etc/passwd"),
            ("gopher://server.test/", "gopher://server.test/"),
        )
    ),
    *((status, "/login", "refused to follow a redirect to http://server.test/login, which would change the method") for status in (301, 302, 303)),
    *((status, "http://server.test:81/", "refused to follow a redirect to http://server.test:81/, which would change the method") for status in (301, 302, 303)),
    (308, "http://server.test:81/", "refused to follow a redirect to http://server.test:81/, another origin"),
    (307, "", "refused to follow a redirect to nowhere"),
    (307, "/a?secret, /b", "refused to follow a redirect to one of http://server.test/a, http://server.test/b"),
    (307, "http://evil.test/, http://evil.test/", "refused to follow a redirect to http://evil.test/, another origin"),
    (307, "/mcp", "gave up after 5 redirects"),
]  # fmt: skip


@in_memory
@libraries
@pytest.mark.parametrize("follow", [True, False], ids=["a client that follows", "a client that does not"])
@pytest.mark.fault("H33", "H34")
async def test_no_other_redirect_is_followed_even_if_the_client_would(
    library: Any, follow: bool, subtests: pytest.Subtests
) -> None:
    visited: list[str] = []

    def answer(request: Any) -> Any:
        visited.append(str(request.url))
        return library.Response(status, headers={"location": location} if location else {})

    async with mocked(answer, library=library, follow_redirects=follow) as channel:
        for status, location, complaint in REDIRECTS:
            visited.clear()
            with subtests.test(status=status, location=location):
                with pytest.raises(HttpStatusError) as caught:
                    await ask(channel)
                assert caught.value.status == status
                assert str(caught.value).partition(" from http://server.test/mcp: ")[2] == complaint
                assert visited == ["http://server.test/mcp"] * (6 if location == "/mcp" else 1)


NO_URL, NO_PATH = "Invalid URL in location header: ", "For absolute URLs, path must be empty or begin with '/'"
NONSENSE = {
    "http://server.test:x/": NO_URL,
    "http://:x/": NO_URL,
    "/\tx": f"{NO_URL}Invalid non-printable ASCII character",
    "javascript:alert(1)": NO_PATH,
    "data:application/json,{}": NO_PATH,
    "x" * 65_530: "URL too long",
}


@in_memory
@pytest.mark.fault("H34")
async def test_a_redirect_that_makes_no_sense_is_a_broken_answer() -> None:
    for location, problem in NONSENSE.items():
        error = await error_of(answering(307, {"location": location}))

        assert type(error) is ConnectionClosed
        assert str(error).startswith(f"http://server.test/mcp: {problem}")
