"""How often servers may have a person log in; `test_oauth_flow.py` has the limit itself."""

from __future__ import annotations

from mcp_host.auth.login.limits import LOGINS_TIME, MAX_LOGINS, LoginLimits
from tests.auth.world import World


def test_what_was_long_ago_is_forgotten() -> None:
    now = 0.0
    limits = LoginLimits(lambda: now)
    for number in range(100):
        limits.count(f"https://{number}.example.com/mcp")
    assert len(limits._times) == 100

    now += LOGINS_TIME
    limits.count("https://example.com/mcp")

    assert [*limits._times] == ["https://example.com/mcp"]


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
