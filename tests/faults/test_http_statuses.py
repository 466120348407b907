"""HTTP statuses that are no success, and successes that hold no reply: one call fails, at once, and says why."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import httpx2
import pytest

from mcp_host.errors import HttpStatusError, ProtocolError, Unauthorized
from tests.faults.fault import fault
from tests.faults.http_server import connected, error_of, failing, mcp, refused, says, streams, subjects, tides
from tests.transports.http_peers import Heard, Log, Wire
from tests.transports.legacy_peers import Answer, in_turn

HTML = "text/html; charset=utf-8"
LOGIN = b"<html><form action=/login>"


@pytest.mark.parametrize("status", [304, 400, 402, 405, 406, 409, 413, 415, 422, 429, 500, 501, 502, 503, 504, 599])
@fault("H02")
async def test_every_status_that_is_no_success_fails_its_call_at_once(status: int) -> None:
    error = await error_of(says(b"", status))

    assert type(error) is HttpStatusError
    assert error.status == status


@pytest.mark.parametrize("status", [401, 403, 500, 502])
@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
@fault("H02", "H03")
async def test_a_server_that_refuses_the_handshake_by_status_fails_the_connect_with_it(status: int, era: str) -> None:
    answer = says(b"Not you", status, content_type="text/plain")

    error = await refused(mcp(discover=answer, initialize=answer), era=era)

    assert isinstance(error, HttpStatusError)
    assert isinstance(error, Unauthorized) == (status in (401, 403))
    assert (error.status, error.body) == (status, "Not you")


@pytest.mark.parametrize(
    ("answer", "kind", "status", "text", "body"),
    [
        (says(b"No token", 401, content_type="text/plain"), Unauthorized, 401, "HTTP 401 Unauthorized from URL: No token", "No token"),
        (says(b"Not yours", 403, content_type="text/plain"), Unauthorized, 403, "HTTP 403 Forbidden from URL: Not yours", "Not yours"),
        (says(b"", 429), HttpStatusError, 429, "HTTP 429 Too Many Requests from URL", ""),
        (says(b"<h1>Oops</h1>", 500, content_type=HTML), HttpStatusError, 500, "HTTP 500 Internal Server Error from URL", "<h1>Oops</h1>"),
        (says(b"\x1b[2J\xff", 503, content_type="text/plain"), HttpStatusError, 503, r"HTTP 503 Service Unavailable from URL: \x1b[2J" + "\ufffd", "\x1b[2J\ufffd"),
    ],
    ids=["401", "403", "429", "a page of HTML", "a terminal's control characters"],
)  # fmt: skip
@fault("H03")
async def test_an_error_has_the_status_and_the_servers_text(
    answer: Answer, kind: type[HttpStatusError], status: int, text: str, body: str
) -> None:
    error = await error_of(answer)

    assert type(error) is kind
    assert isinstance(error, HttpStatusError)
    assert re.sub(r"http://127\.0\.0\.1:\d+/mcp", "URL", str(error)) == text
    assert (error.status, error.body) == (status, body)


@fault("H03")
async def test_a_json_rpc_error_in_an_error_response_is_in_the_error() -> None:
    refusal = b'{"jsonrpc":"2.0","id":@id,"error":{"code":-32602,"message":"no such tool","data":{"name":"tides"}}}'

    error = await error_of(says(refusal, 400))

    assert isinstance(error, HttpStatusError)
    assert (error.status, error.code, error.rpc_message, error.data) == (400, -32602, "no such tool", {"name": "tides"})


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("30", 30.0), ("0", 0.0), ("9" * 400, 86_400.0), ("-5", None), ("\u0663", None), ("soon", None), ("", None)],
    ids=["seconds", "at once", "centuries", "negative", "other digits", "words", "nothing"],
)
@fault("H04")
async def test_the_error_has_the_time_to_retry_after(status: int, header: str, seconds: float | None) -> None:
    if not header.isascii():
        header = header.encode().decode("latin-1")  # as a server would put it on the wire

    error = await error_of(says(b"", status, retry_after=header))

    assert isinstance(error, HttpStatusError)
    assert error.retry_after == seconds


@fault("H04")
async def test_retry_after_may_be_a_date() -> None:
    error = await error_of(says(b"", 503, retry_after=format_datetime(datetime.now(UTC) + timedelta(hours=1), True)))

    assert isinstance(error, HttpStatusError)
    assert error.retry_after is not None
    assert 3500 < error.retry_after <= 3600


# Authorization, as far as it goes without OAuth


@fault("H10")
async def test_a_server_that_never_authorizes_is_asked_once_a_call() -> None:
    async with connected(mcp(call=says(b"", 401))) as (client, peer):
        for _ in range(3):
            assert isinstance(await failing(client), Unauthorized)

    assert subjects(peer).count("call") == 3


class Login:
    """An application's own authorization, which gets its token when it is first refused."""

    def __init__(self) -> None:
        self.prompts = 0

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        response = yield request
        if response.status_code == 401:
            self.prompts += 1
            request.headers["Authorization"] = "Bearer token"
            yield request


class HttpxLogin(Login, httpx.Auth):
    """One for a client of httpx."""


class Httpx2Login(Login, httpx2.Auth):
    """One for a client of httpx2."""


logins = pytest.mark.parametrize(
    ("library", "make_login"), [(httpx, HttpxLogin), (httpx2, Httpx2Login)], ids=["httpx", "httpx2"]
)


@logins
@fault("H10")
async def test_an_authorization_that_does_not_help_is_not_repeated_within_a_call(
    library: Any, make_login: type[Login]
) -> None:
    login = make_login()
    async with (
        library.AsyncClient(auth=login) as http,
        connected(mcp(call=says(b"", 401)), client=http) as (client, peer),
    ):
        assert isinstance(await failing(client), Unauthorized)

    assert (login.prompts, subjects(peer).count("call")) == (1, 2)


@fault("H11")
async def test_a_401_to_the_servers_own_stream_fails_no_call_and_is_not_asked_again() -> None:
    async with connected(mcp(get=says(b"", 401))) as (client, peer):
        for _ in range(3):
            await tides(client)

    assert subjects(peer).count("get") == 1


@logins
@fault("H11")
async def test_the_servers_own_stream_is_authorized_like_calls(library: Any, make_login: type[Login]) -> None:
    async def get(wire: Wire, heard: Heard) -> None:
        authorized = heard.headers.get("authorization") == "Bearer token"
        await (streams(note, stay=True) if authorized else says(b"", 401))(wire, heard)

    note = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"waves"}}\n\n'
    logs = Log[object]()

    async def on_log(message: object) -> None:
        logs.append(message)

    async with library.AsyncClient(auth=make_login()) as http, connected(mcp(get=get), client=http, on_log=on_log):
        await logs.reaches(lambda logs: len(logs) == 1)


# Successes that hold no reply


@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
@fault("H13")
async def test_a_login_page_in_place_of_a_server_fails_the_connect_with_an_error_that_names_it(era: str) -> None:
    page = says(LOGIN, content_type=HTML)

    error = await refused(mcp(discover=page, initialize=page), era=era)

    assert isinstance(error, ProtocolError)
    assert "text/html" in str(error)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (says(LOGIN, content_type=HTML), "HTTP 200 OK with the content type text/html"),
        (says(content_type="text/plain"), "HTTP 200 OK with the content type text/plain"),
        (says(content_type=""), "HTTP 200 OK with no content type"),
        (says(content_type="\x1b[2J"), r"with the content type \x1b[2j"),
    ],
    ids=["a login page", "plain text", "no type", "control characters"],
)
@fault("H13")
async def test_a_response_of_another_content_type_fails_its_call_with_an_error_that_names_it(
    answer: Answer, complaint: str
) -> None:
    error = await error_of(answer)

    assert type(error) is ProtocolError
    assert complaint in str(error)


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.parametrize("kind", ["", "application/json"])
@fault("H14")
async def test_a_request_answered_by_202_fails_at_once(status: int, kind: str) -> None:
    error = await error_of(says(b"", status, content_type=kind))

    assert type(error) is ProtocolError
    assert f"HTTP {status}" in str(error)
    assert "no response can follow" in str(error)


@pytest.mark.parametrize("status", [201, 202, 203])
@fault("H14")
async def test_a_reply_with_another_2xx_status_is_accepted(status: int) -> None:
    async with connected(mcp(call=in_turn(says(status=status), says()))) as (client, _):
        await tides(client)
