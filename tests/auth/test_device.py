"""Logins on another device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mcp_host.auth import DeviceCode, DiscoveryFailed, LoginFailed, OAuth, OnDevice, TokenRequestFailed
from mcp_host.auth.shared_work import END_TIME, GRACE
from mcp_host.testing import Server
from tests.auth.authorization_server import AuthorizationServer, Protected, protected
from tests.auth.world import Gate, World
from tests.clock import with_fake_clock


@pytest.fixture
def site() -> Iterator[Protected]:
    server = AuthorizationServer()
    with protected(Server("protected").asgi(), server) as site:
        server.metadata["device_authorization_endpoint"] = f"{server.issuer}/device"
        yield site


class Waits:
    """Stands for `anyio.sleep`, and for the clock: it notes the seconds, and does not wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await checkpoint()

    def now(self) -> float:
        return sum(self.seconds)


async def log_in(site: Protected, login: OnDevice) -> OAuth:
    auth = OAuth(login=login)
    with anyio.fail_after(20):
        async with httpx.AsyncClient(auth=auth) as client:
            assert (await client.get(site.url)).status_code != 401
    return auth


async def test_a_person_logs_in_elsewhere_while_the_server_is_asked_in_its_interval(site: Protected) -> None:
    codes, waits = list[DeviceCode](), Waits()
    site.server.polls[:] = ["authorization_pending", "slow_down", "authorization_pending", ""]

    await log_in(site, OnDevice(codes.append, sleep=waits.sleep, now=waits.now))

    page = f"{site.server.issuer}/device-page"
    assert codes == [DeviceCode(page, "WDJB-MJHT", f"{page}?user_code=WDJB")]
    assert waits.seconds == [5, 5, 10, 10]
    registered = next(fields for name, fields in site.server.log if name == "register")
    assert registered["redirect_uris"] == "[]"
    assert "WDJB" not in repr(codes)


@pytest.mark.parametrize(
    ("polls", "error", "text"),
    [
        (["access_denied"], LoginFailed, "was denied"),
        (["authorization_pending", "expired_token"], LoginFailed, "took too long: its code has expired"),
        (["authorization_pending"] * 200, LoginFailed, "took too long: its code has expired"),
        (["invalid_grant"], TokenRequestFailed, r"\(invalid_grant\)"),
        (["a text of the server's"], TokenRequestFailed, "HTTP 400$"),
    ],
)
async def test_a_login_that_fails_says_why(
    site: Protected, polls: list[str], error: type[Exception], text: str
) -> None:
    waits = Waits()
    site.server.polls[:] = polls

    with pytest.raises(error, match=text):
        await log_in(site, OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now))

    assert waits.now() <= 600


@pytest.mark.parametrize(
    "hiccup",
    [Response(status_code=503), Response(status_code=429), Response("<html>"), Response("{")],
    ids=["503", "429", "html", "broken"],
)
async def test_a_poll_that_fails_is_followed_by_slower_ones(site: Protected, hiccup: Response) -> None:
    waits = Waits()
    site.server.polls[:] = ["authorization_pending", ""]

    async def token(request: Request) -> Response:
        del site.server.answers["token"]
        return hiccup

    site.server.answers["token"] = token

    await log_in(site, OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now))

    assert waits.seconds == [5, 10, 10]


async def test_a_server_that_never_answers_a_poll_is_given_up_when_the_code_ends(site: Protected) -> None:
    waits = Waits()

    async def token(request: Request) -> Response:
        return Response(status_code=503)

    site.server.answers["token"] = token

    with pytest.raises(LoginFailed, match="its code has expired"):
        await log_in(site, OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now))
    assert 500 < waits.now() <= 600


async def test_a_login_that_was_denied_has_the_code_for_that(site: Protected) -> None:
    waits = Waits()
    site.server.polls[:] = ["access_denied"]

    with pytest.raises(LoginFailed) as failed:
        await log_in(site, OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now))
    assert failed.value.code == "access_denied"


async def test_an_interval_and_a_lifetime_beyond_all_floats_are_the_longest(site: Protected) -> None:
    waits = Waits()
    site.server.polls[:] = ["authorization_pending"] * 200

    async def device(request: Request) -> Response:
        response = await site.server._device(request)
        document = json.loads(bytes(response.body)) | {"interval": 10**400, "expires_in": 10**400}
        return JSONResponse(document)

    site.server.answers["device"] = device

    with pytest.raises(LoginFailed, match="its code has expired"):
        await log_in(site, OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now))
    assert waits.seconds == [60] * 30


async def test_a_server_without_the_flow_is_named(site: Protected) -> None:
    del site.server.metadata["device_authorization_endpoint"]

    with pytest.raises(DiscoveryFailed, match="has no device_authorization_endpoint"):
        await log_in(site, OnDevice(lambda code: None))


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "unauthorized_client"},
        {"device_code": "d", "user_code": "u"},
        {"device_code": "d", "user_code": "u", "verification_uri": "javascript:alert(1)"},
        {"device_code": 1, "user_code": "u", "verification_uri": "https://example.com"},
        {"device_code": "d", "user_code": "", "verification_uri": "https://example.com"},
    ],
)
async def test_an_answer_without_a_code_is_an_error(site: Protected, answer: dict[str, Any]) -> None:
    async def device(request: Request) -> JSONResponse:
        return JSONResponse(answer)

    site.server.answers["device"] = device

    with pytest.raises(TokenRequestFailed, match=r"^device authorization at http://127\.0\.0\.1:\d+/device: .*no code"):
        await log_in(site, OnDevice(lambda code: None))


def on_device(world: World) -> OAuth:
    """Of a person who logs in at once. It polls without a pause."""
    waits = Waits()
    world.server.metadata["device_authorization_endpoint"] = f"{world.server.issuer}/device"
    world.server.polls[:] = [""]
    login = OnDevice(lambda code: None, sleep=waits.sleep, now=waits.now)
    return world.oauth(login=login, redirect_uri=None)


async def test_the_token_is_kept_if_the_last_caller_is_cancelled_during_the_poll_that_brings_it() -> None:
    """The person has logged in, and the code works only once."""
    world = World()
    auth, gate = on_device(world), Gate(world.server, "token")

    async def open_later() -> None:
        await wait_all_tasks_blocked()
        gate.is_open.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as calls:
            calls.start_soon(world.call, auth)
            await gate.reached.wait()
            calls.cancel_scope.cancel()
            tasks.start_soon(open_later)
        assert await world.call(auth) == 200

    assert world.server.count("device") == 1


@pytest.mark.fake_clock
async def test_a_poll_that_hangs_holds_up_a_logout_for_a_few_seconds_only() -> None:
    world = World()
    auth, gate = on_device(world), Gate(world.server, "token")

    async def given_up() -> None:
        with pytest.raises(LoginFailed, match="logged out before there was a token"):
            await world.call(auth)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(given_up)
        await gate.reached.wait()
        begun = anyio.current_time()
        assert await auth.logout(world.site.url) is False

    assert anyio.current_time() - begun == pytest.approx(END_TIME + GRACE)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_poll_that_hangs_ends_with_the_event_loop(backend: str) -> None:
    times: list[float] = []

    async def main() -> None:
        world, reached = World(), anyio.Event()
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
