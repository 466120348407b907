"""What httpx's client would do for a server, our own does too: cookies, the user of a URL, and default headers."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import pytest

from mcp_host.errors import ConnectionClosed
from mcp_host.transports._http.backend import own_backend
from mcp_host.version import __version__
from tests.transports.http_contract import by_httpx, callers_own, libraries  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import (
    CALL,
    DONE,
    DONE_RESPONSE,
    Heard,
    RecordedHandle,
    Wire,
    ask,
    opened,
    saying,
    serving,
)

pytestmark = pytest.mark.backends("trio")  # what is written into a request is the same on either


def setting(cookies: str) -> bytes:
    """The response that also has these header lines."""
    return DONE_RESPONSE.replace(b"\r\n\r\n", f"\r\n{cookies}\r\n".encode())


async def heard_with(
    url: str = "", headers: dict[str, str] | None = None, cookies: list[str] | None = None
) -> list[Heard]:
    """Three requests, after the first of which a server sets *cookies*."""
    to_set = [f"set-cookie: {cookie}\r\n" for cookie in cookies or []]

    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            await wire.say(setting("".join(to_set)))
            to_set.clear()

    async with serving(script) as peer, opened(peer.url.replace("//", f"//{url}"), headers=headers) as channel:
        for _ in range(3):
            assert await ask(channel) == [DONE]
    return list(peer.heard)


COOKIES: dict[str, tuple[list[str], str | None]] = {
    "none": ([], None),
    "one": (["a=1"], "a=1"),
    "two": (["a=1; HttpOnly", "b=2; Path=/mcp"], "b=2; a=1"),
    "for another path": (["a=1; Path=/other"], None),
    "for another domain": (["a=1; Domain=evil.test"], None),
    "for https": (["a=1; Secure"], None),
    "expired": (["a=1; Max-Age=0"], None),
    "nonsense": (["="], None),
    "not ASCII": (["a=\u00e9", "\u00e9=1", "b=2"], "b=2"),
    "too large": (["a=1", f"b={'x' * 5000}"], "a=1"),
    "too many": ([f"c{n}=1" for n in range(70)], "; ".join(f"c{n}=1" for n in range(20, 70))),
}


@pytest.mark.fault("H40")
async def test_cookies_come_back_as_long_as_the_channel_lives(subtests: pytest.Subtests) -> None:
    for name, (cookies, sent) in COOKIES.items():
        with subtests.test(name):
            heard = await heard_with(cookies=cookies)
            assert [each.headers.get("cookie") for each in heard] == [None, sent, sent]


async def test_a_server_that_sets_cookies_without_end_gets_the_newest_back_and_costs_no_more() -> None:
    async def script(wire: Wire) -> None:
        for turn in range(20):
            await wire.hear()
            cookies = "".join(f"set-cookie: c{turn}-{n}={'x' * 1500}\r\n" for n in range(10))
            await wire.say(setting(cookies))

    async with serving(script) as peer, opened(peer.url) as channel:
        for _ in range(20):
            assert await ask(channel) == [DONE]

    sent = [[each.split("=")[0] for each in heard.headers.get("cookie", "").split("; ")] for heard in peer.heard]
    assert sent == [[""], *([f"c{turn}-{n}" for n in range(5, 10)] for turn in range(19))]


async def test_cookies_of_the_callers_own_win() -> None:
    heard = await heard_with(headers={"cookie": "mine=1"}, cookies=["a=1"])

    assert [each.headers["cookie"] for each in heard] == ["mine=1"] * 3


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer other"}], ids=["alone", "beside a header"])
async def test_user_and_password_of_the_url_are_sent(headers: dict[str, str]) -> None:
    heard = await heard_with("me:p%40ss@", headers)

    assert [each.headers["authorization"] for each in heard] == ["Basic bWU6cEBzcw=="] * 3  # me:p@ss
    assert heard[0].path == "/mcp"


@libraries
@pytest.mark.parametrize("whose", ["ours", "the caller's"])
async def test_httpx_gets_no_user_and_password_and_logs_none(
    library: Any, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async with (
        serving(saying(DONE_RESPONSE)) as peer,
        library.AsyncClient() as client,
        opened(peer.url.replace("//", "//me:hunter2@"), client=None if whose == "ours" else client) as channel,
    ):
        assert await ask(channel) == [DONE]

    assert [each.headers["authorization"] for each in peer.heard] == ["Basic bWU6aHVudGVyMg=="]  # me:hunter2
    assert "hunter2" not in caplog.text
    assert "me:" not in caplog.text


@callers_own
@libraries
async def test_the_authentication_of_a_callers_client_comes_before_the_user_of_the_url(library: Any) -> None:
    async with (
        serving(saying(DONE_RESPONSE)) as peer,
        library.AsyncClient(auth=("you", "1")) as client,
        opened(peer.url.replace("//", "//me:2@"), client=client) as channel,
    ):
        assert await ask(channel) == [DONE]

    assert [each.headers["authorization"] for each in peer.heard] == ["Basic eW91OjE="]  # you:1


async def test_a_host_of_the_callers_own_replaces_that_of_the_url() -> None:
    async def script(wire: Wire) -> None:
        raw = await wire.hear_until(b"\r\n\r\n")
        hosts.append([line for line in raw.decode().split("\r\n") if line.lower().startswith("host:")])
        await wire.hear_until(b"}}")
        await wire.say(DONE_RESPONSE)

    names = ["Host", "HOST", "host"]
    hosts: list[list[str]] = []
    for name in names:
        async with serving(script) as peer, opened(peer.url, headers={name: "other.test"}) as channel:
            assert await ask(channel) == [DONE]

    assert hosts == [[f"{name}: other.test"] for name in names]


async def test_headers_that_change_between_requests_are_checked_each_time() -> None:
    """Headers that have been checked are kept; another value is another header."""
    bad = ["a\r\nX-Admin: 1", "a\n", "a\0", "\u00e9"]
    async with serving(saying(DONE_RESPONSE)) as peer, opened(peer.url) as channel:
        for name in ("a", *bad, "a", *bad, "b"):
            with pytest.raises(ConnectionClosed) if name in bad else nullcontext():
                await channel.request(CALL, {"Mcp-Name": name}, RecordedHandle())

    assert [each.headers["mcp-name"] for each in peer.heard] == ["a", "a", "b"]
    assert not [each for each in peer.heard if "x-admin" in each.headers]


async def test_a_request_has_a_user_agent() -> None:
    agents = {each.headers["user-agent"].split("/")[0] for each in await heard_with()}
    (given,) = {each.headers["user-agent"] for each in await heard_with(headers={"User-Agent": "host/1"})}

    assert agents <= {"mcp-host", "python-httpx", "python-httpx2"}
    assert given == "host/1"


async def test_our_user_agent_is_mcp_host(by_httpx: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("mcp_host.transports._http.backend.own_backend", own_backend)
    monkeypatch.setattr("mcp_host.transports._http.backend.proxied", lambda url: False)

    assert (await heard_with())[0].headers["user-agent"] == f"mcp-host/{__version__}"
