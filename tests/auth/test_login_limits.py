"""How often servers may have a person log in; `test_oauth_flow.py` has the limit itself."""

from __future__ import annotations

import pytest

from mcp_host.auth import LoginFailed
from mcp_host.auth.login.limits import LOGINS_TIME, MAX_LOGINS, LoginLimits
from tests.auth.world import World

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


async def test_a_host_that_logs_out_may_log_in_again() -> None:
    world = World()
    auth = world.oauth()
    for _ in range(MAX_LOGINS + 1):
        assert await world.call(auth) == 200
        await auth.logout(world.site.url)

    assert world.logins == MAX_LOGINS + 1


async def test_a_host_may_ask_for_any_number_of_logins() -> None:
    world = World()
    auth = world.oauth()
    for _ in range(MAX_LOGINS + 1):
        await auth.login(world.site.url)

    assert world.logins == MAX_LOGINS + 1
