"""How often servers may have a person log in, and ask for scopes that the person has denied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from mcp_host.auth import LoginFailed, MemoryTokens, OAuth, OnDevice, TokenRequestFailed
from mcp_host.auth.login.limits import LOGINS_TIME, MAX_LOGINS, LoginLimits
from tests.auth.authorization_server import parameters
from tests.auth.world import Gate, World, soon
from tests.extent import on_both

URL = "https://example.com/mcp"


def test_what_was_long_ago_is_forgotten() -> None:
    now = 0.0
    limits = LoginLimits(lambda: now)
    for number in range(100):
        limits.count(f"https://{number}.example.com/mcp")
    assert len(limits._times) == 100

    now += LOGINS_TIME
    limits.count(URL)

    assert [*limits._times] == [URL]


def test_a_person_who_has_denied_two_scopes_may_still_give_one_of_them() -> None:
    limits = LoginLimits(lambda: 0.0)
    limits.deny(URL, {"a", "b"})

    for scopes in ({"a", "b"}, {"a", "b", "c"}):
        with pytest.raises(LoginFailed, match=r"denied \(a b\)"):
            limits.check(URL, scopes)
    limits.check(URL, {"a"})
    limits.check(URL, {"a", "c"})
    limits.check("https://other.example.com/mcp", {"a", "b"})


def test_a_denial_of_long_ago_is_forgotten() -> None:
    now = 0.0
    limits = LoginLimits(lambda: now)
    limits.deny(URL, {"a"})

    now += LOGINS_TIME
    limits.check(URL, {"a"})
    limits.deny(URL, {"b"})

    assert [denial.scopes for denial in limits._denials] == [{"b"}]


@pytest.mark.parametrize("again", [OAuth.login, OAuth.logout])
async def test_a_host_may_ask_for_any_number_of_logins(again: Callable[[OAuth, str], Awaitable[object]]) -> None:
    world = World()
    auth = world.oauth()

    for _ in range(MAX_LOGINS + 1):
        await again(auth, world.site.url)
        assert await world.call(auth) == 200

    assert world.logins == MAX_LOGINS + 1


class Denying(World):
    """A world of a person, or an authorization server, who denies each scope that is in *denies*, with *error*."""

    error = "access_denied"

    def __init__(self) -> None:
        super().__init__()
        self.denies = {"write"}
        self.site.needs = lambda body: body.decode()

    async def person(self, url: str) -> str:
        redirected = await super().person(url)
        asked = parameters(url)
        if self.denies.isdisjoint(asked.get("scope", "").split()):
            return redirected
        return f"{asked['redirect_uri']}?error={self.error}&state={asked['state']}&iss={self.server.issuer}"

    async def denied(self, auth: OAuth, body: str = "write") -> LoginFailed:
        with pytest.raises(LoginFailed) as failed:
            await self.call(auth, body)
        return failed.value


def by_redirect(world: Denying) -> OAuth:
    return world.oauth()


def by_the_server(world: Denying) -> OAuth:
    world.error = "invalid_scope"
    return world.oauth()


def by_function(world: Denying) -> OAuth:
    async def login(url: str) -> str:
        redirected = await world.person(url)
        if "error=" in redirected:
            raise LoginFailed("the person has closed the window")
        return redirected

    return world.oauth(login=login)


def on_device(world: Denying) -> OAuth:
    async def sleep(seconds: float) -> None: ...

    def show(code: object) -> None:
        world.logins += 1
        asked = [fields.get("scope", "") for name, fields in world.server.log if name == "device"][-1]
        world.server.polls[:] = ["" if world.denies.isdisjoint(asked.split()) else "access_denied"]

    world.server.metadata["device_authorization_endpoint"] = f"{world.server.issuer}/device"
    return world.oauth(login=OnDevice(show, sleep=sleep), redirect_uri=None)


@pytest.mark.parametrize(
    ("way", "code"),
    [*((way, "access_denied") for way in (by_redirect, by_function, on_device)), (by_the_server, "invalid_scope")],
)
async def test_scopes_that_were_denied_are_not_asked_for_again_for_ten_minutes(
    way: Callable[[Denying], OAuth], code: str
) -> None:
    world = Denying()
    auth = way(world)
    await world.call(auth)

    first = await world.denied(auth)
    again = [await world.denied(auth) for _ in range(3)]

    assert world.logins == 2
    assert (first.code, first.scopes) == (code, ("write",))
    assert {(str(each), each.scopes) for each in again} == {
        (
            f"{world.site.url} needs scopes that were denied (write): they are not asked for again for the next 600 s. "
            "To be asked all the same, call OAuth.login(url), and repeat the request",
            ("write",),
        )
    }
    assert await world.call(auth) == 200

    world.now += LOGINS_TIME
    world.denies.clear()
    assert await world.call(auth, "write") == 200
    assert world.logins == 3


async def test_scopes_that_another_process_was_given_meanwhile_are_used() -> None:
    world, store = Denying(), MemoryTokens()
    auth = await world.log_in(tokens=store)
    await world.denied(auth)
    world.denies.clear()

    await world.oauth(tokens=store, scopes=["write"]).login(world.site.url)

    assert await world.call(auth, "write") == 200


async def test_other_scopes_are_asked_for_all_the_same() -> None:
    world = Denying()
    auth = await world.log_in()
    await world.denied(auth)

    assert await world.call(auth, "read") == 200
    await world.denied(auth)

    assert world.scopes == [None, "write", "read"]


@pytest.mark.parametrize("again", [OAuth.login, OAuth.logout])
async def test_after_a_login_or_a_logout_a_request_asks_again(again: Callable[[OAuth, str], Awaitable[object]]) -> None:
    world = Denying()
    auth = await world.log_in()
    await world.denied(auth)

    await again(auth, world.site.url)
    assert await world.call(auth) == 200
    world.denies.clear()

    assert await world.call(auth, "write") == 200
    assert world.logins == 4


@on_both
async def test_a_url_is_not_denied_what_another_of_the_same_resource_was_denied() -> None:
    """The two share a token, as the host says, and so the work for it. They ask at once."""
    world = Denying()
    one, two = (f"{world.site.url}/{name}" for name in ("one", "two"))

    async def paths(scope: Scope, receive: Receive, send: Send) -> None:
        path = "/mcp" if scope["path"].startswith("/mcp/") else scope["path"]
        await world.site({**scope, "path": path}, receive, send)

    world.apps[1002] = paths
    client = world.client(world.oauth(shared_resources=[world.site.url]))
    for url in (one, two):
        await client.post(url)
    with pytest.raises(LoginFailed):
        await client.post(one, content="write")
    world.denies.clear()
    gate = Gate(world.server, "metadata")

    async def denied() -> None:
        with suppress(LoginFailed):  # unless the other was first
            await client.post(one, content="write")

    async def granted() -> None:
        assert (await client.post(two, content="write")).status_code == 200

    async with soon() as tasks:
        for each in (denied, granted):
            tasks.start_soon(each)
            await anyio.wait_all_tasks_blocked()
        gate.is_open.set()

    assert world.logins == 3


async def test_a_login_that_fails_otherwise_is_no_denial() -> None:
    world = Denying()
    auth = await world.log_in()
    world.server.refuse("token", 503)
    for _ in range(2):
        with pytest.raises(TokenRequestFailed):
            await world.call(auth, "read")

    assert world.logins == 3


async def test_a_web_host_gets_a_url_after_each_denial() -> None:
    """It decides itself when to send its user there."""
    world = Denying()
    auth = world.oauth(login=None)
    states = set()
    needed = await world.needed(auth)
    await world.finish(auth, needed)

    for _ in range(2):
        needed = await world.needed(auth, "write")
        states.add(needed.state)
        with pytest.raises(LoginFailed, match="denied"):
            await world.finish(auth, needed)

    assert len(states) == 2
