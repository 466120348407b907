"""Logins on another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from starlette.requests import Request
from starlette.responses import Response

from mcp_host.auth import DeviceCode, DiscoveryFailed, LoginFailed, OAuth, OnDevice, TokenRequestFailed
from mcp_host.auth.shared_work import END_TIME, GRACE
from mcp_host.terminal import device
from tests.auth.world import SOON, Gate, World
from tests.clock import with_fake_clock
from tests.extent import on_both
from tests.terminal.screens import Screen


class Waits:
    """Stands for `anyio.sleep`, and for the clock: it notes the seconds, and does not wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await checkpoint()

    def now(self) -> float:
        return sum(self.seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def world() -> World:
    world = World()
    world.server.metadata["device_authorization_endpoint"] = f"{world.server.issuer}/device"
    return world


async def log_in(world: World, waits: Waits, show: Callable[[DeviceCode], object] = lambda code: None) -> int:
    login = OnDevice(show, sleep=waits.sleep, now=waits.now)
    with anyio.fail_after(SOON):
        return await world.call(world.oauth(login=login, redirect_uri=None))


async def test_a_person_logs_in_elsewhere_while_the_server_is_asked_in_its_interval(world: World, waits: Waits) -> None:
    codes = list[DeviceCode]()
    world.server.polls[:] = ["authorization_pending", "slow_down", "authorization_pending", ""]

    assert await log_in(world, waits, codes.append) == 200

    page = f"{world.server.issuer}/device-page"
    assert codes == [DeviceCode(page, "WDJB-MJHT", f"{page}?user_code=WDJB", world.site.url)]
    assert codes[0].host == "127.0.0.1"
    assert waits.seconds == [5, 5, 10, 10]
    assert world.server.count("register", redirect_uris="[]") == 1
    assert "WDJB" not in repr(codes)


@on_both
async def test_by_default_the_code_is_shown_in_the_terminal(world: World, waits: Waits, screen: Screen) -> None:
    world.server.polls[:] = [""]

    with anyio.fail_after(SOON):
        login = OnDevice(sleep=waits.sleep, now=waits.now)
        assert await world.call(world.oauth(login=login, redirect_uri=None)) == 200

    screen.rest()
    assert screen.rows == [
        "",
        f"{world.site.url} asks you to log in at",
        "  | 127.0.0.1",
        "Open this URL on any device:",
        f"  {world.server.issuer}/device-page?user_code=WDJB",
        "and compare this code, or type it there:",
        "  | WDJB-MJHT",
    ]


PAGE = "https://xn--80ak6aa92e.example/device"
PADDED = f"{PAGE}?code=".ljust(78, "a")  # a row of the terminal


@pytest.mark.parametrize(
    ("complete", "shown"),
    [
        (f"{PADDED}https://bank.example/", [f"  {PADDED}", "    https://bank.example/"]),
        ("https://evil.example/?code=a", [f"  {PAGE}"]),
        ("https://bank.example@xn--80ak6aa92e.example/", [f"  {PAGE}"]),
    ],
)
async def test_a_host_that_may_look_like_another_is_shown_with_a_warning_and_no_other_host_is(
    world: World, waits: Waits, screen: Screen, complete: str, shown: list[str]
) -> None:
    given = {"user_code": "A\x1b[2J", "verification_uri": PAGE, "verification_uri_complete": complete}
    world.server.change("device", lambda codes: codes | given)
    world.server.polls[:] = [""]

    with anyio.fail_after(SOON):
        login = OnDevice(sleep=waits.sleep, now=waits.now)
        assert await world.call(world.oauth(login=login, redirect_uri=None)) == 200

    screen.rest()
    assert screen.rows == [
        "",
        f"{world.site.url} asks you to log in at",
        "  | xn--80ak6aa92e.example",
        "This host has letters that may look like others: is it the one that you know?",
        "Open this URL on any device:",
        *shown,
        "and compare this code, or type it there:",
        "  | A\\x1b[2J",
    ]


async def test_without_a_terminal_the_login_fails_at_once(
    world: World, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "terminal_path", lambda: "/dev/null/no-terminal")

    with pytest.raises(LoginFailed, match=r"^the code of the login cannot be shown: this client has no terminal"):
        await world.call(world.oauth(login=OnDevice(sleep=waits.sleep, now=waits.now), redirect_uri=None))
    assert waits.seconds == []


@pytest.mark.parametrize(
    ("polls", "error", "text", "code"),
    [
        (["access_denied"], LoginFailed, "was denied", "access_denied"),
        (["authorization_pending", "expired_token"], LoginFailed, "took too long: its code has expired", None),
        (["authorization_pending"] * 200, LoginFailed, "took too long: its code has expired", None),
        (["invalid_grant"], TokenRequestFailed, r"\(invalid_grant\)", "invalid_grant"),
        (["a text of the server's"], TokenRequestFailed, "HTTP 400$", None),
    ],
)
async def test_a_login_that_fails_says_why(
    world: World, waits: Waits, polls: list[str], error: Any, text: str, code: str | None
) -> None:
    world.server.polls[:] = polls

    with pytest.raises(error, match=text) as failed:
        await log_in(world, waits)

    assert (waits.now() <= 600, failed.value.code) == (True, code)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"access_token": "a", "token_type": "mac"}, "its token_type is not Bearer"),
        ({"access_token": "", "token_type": "Bearer"}, "the answer has no access_token that can be sent"),
    ],
)
async def test_a_token_that_cannot_be_used_ends_the_login_at_once(
    world: World, waits: Waits, document: dict[str, object], problem: str
) -> None:
    """The code has been used up for it: "Stop polling" (RFC 8628, section 3.5), and nobody has denied anything."""
    world.server.refuse("token", 200, **document)

    with pytest.raises(TokenRequestFailed, match=rf"device_code.*: {problem}$"):
        await log_in(world, waits)
    assert waits.seconds == [5]


@pytest.mark.parametrize(
    "hiccup",
    [Response(status_code=503), Response(status_code=429), Response("<html>"), Response("{")],
    ids=["503", "429", "html", "broken"],
)
async def test_a_poll_that_fails_is_followed_by_slower_ones(world: World, waits: Waits, hiccup: Response) -> None:
    world.server.polls[:] = ["authorization_pending", ""]

    async def token(request: Request) -> Response:
        del world.server.answers["token"]
        return hiccup

    world.server.answers["token"] = token

    assert await log_in(world, waits) == 200
    assert waits.seconds == [5, 10, 10]


async def test_a_server_that_never_answers_a_poll_is_given_up_when_the_code_ends(world: World, waits: Waits) -> None:
    world.server.refuse("token", 503)

    with pytest.raises(LoginFailed, match="its code has expired"):
        await log_in(world, waits)
    assert 500 < waits.now() <= 600


async def test_an_interval_and_a_lifetime_are_bounded_and_have_a_default(world: World) -> None:
    async def waits_for(value: object) -> list[float]:
        waits = Waits()
        world.server.polls[:] = ["authorization_pending"] * 400
        world.server.change("device", lambda codes: codes | {"interval": value, "expires_in": value})
        with pytest.raises(LoginFailed, match="its code has expired"):
            await log_in(world, waits)
        return waits.seconds

    assert await waits_for(10**400) == [60] * 30  # beyond all floats
    for value in (None, "9", True, 0, -1):
        assert await waits_for(value) == [5] * 360, value


@pytest.mark.parametrize("url", [None, "/device"])
async def test_a_server_without_the_flow_is_named(world: World, waits: Waits, url: str | None) -> None:
    world.server.metadata["device_authorization_endpoint"] = url

    with pytest.raises(DiscoveryFailed, match="has no device_authorization_endpoint"):
        await log_in(world, waits)


async def test_an_answer_without_a_code_is_an_error(world: World, waits: Waits) -> None:
    answers: list[dict[str, object]] = [
        {"error": "unauthorized_client"},
        {"device_code": "d", "user_code": "u"},
        {"device_code": "d", "user_code": "u", "verification_uri": "javascript:alert(1)"},
        {"device_code": 1, "user_code": "u", "verification_uri": "https://example.com"},
        {"device_code": "d", "user_code": "", "verification_uri": "https://example.com"},
        {"device_code": "d", "user_code": "u" * 65, "verification_uri": "https://example.com"},
        {"device_code": "d", "user_code": "u", "verification_uri": "https://bank@example.com"},
        {"device_code": "d", "user_code": "u", "verification_uri": "https://example.com/" + "x" * 4096},
    ]

    for answer in answers:
        world.server.refuse("device", 200, **answer)
        with pytest.raises(TokenRequestFailed, match=r"^device authorization at .*/device: .*no code"):
            await log_in(world, waits)


def on_device(world: World) -> OAuth:
    """Of a person who logs in at once. It polls without a pause."""
    waits = Waits()
    world.server.polls[:] = [""]
    return world.oauth(login=OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now), redirect_uri=None)


@on_both
async def test_the_token_is_kept_if_the_last_caller_is_cancelled_during_the_poll_that_brings_it(world: World) -> None:
    """The person has logged in, and the code works only once."""
    auth, gate = on_device(world), Gate(world.server, "token")

    async def open_later() -> None:
        await wait_all_tasks_blocked()
        gate.is_open.set()

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as calls:
            calls.start_soon(world.call, auth)
            await gate.reached.wait()
            calls.cancel_scope.cancel()
            tasks.start_soon(open_later)
        assert await world.call(auth) == 200

    assert world.server.count("device") == 1


@on_both
@pytest.mark.fake_clock
async def test_a_poll_that_hangs_holds_up_a_logout_for_a_few_seconds_only(world: World) -> None:
    auth, gate = on_device(world), Gate(world.server, "token")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.given_up, auth)
        await gate.reached.wait()
        begun = anyio.current_time()
        assert await auth.logout(world.site.url) is False

    assert anyio.current_time() - begun == pytest.approx(END_TIME + GRACE)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_poll_that_hangs_ends_with_the_event_loop(world: World, backend: str) -> None:
    times: list[float] = []

    async def main() -> None:
        reached = anyio.Event()
        auth = on_device(world)

        async def hang(request: Request) -> Response:
            reached.set()
            try:
                await anyio.sleep_forever()
            finally:
                times.append(anyio.current_time())
            return Response()

        world.server.answers["token"] = hang
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.call, auth)
            await reached.wait()
            tasks.cancel_scope.cancel()
        times.append(anyio.current_time())

    name, options = with_fake_clock(backend)
    anyio.run(main, backend=name, backend_options=options)

    left, ended = times
    assert ended == left
