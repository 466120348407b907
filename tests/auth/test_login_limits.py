"""How often servers may have a person log in; `test_oauth_flow.py` has the limit itself."""

from __future__ import annotations

from mcp_host.auth.login.limits import LOGINS_TIME, LoginLimits


def test_what_was_long_ago_is_forgotten() -> None:
    now = 0.0
    limits = LoginLimits(lambda: now)
    for number in range(100):
        limits.count(f"https://{number}.example.com/mcp")
    assert len(limits._times) == 100

    now += LOGINS_TIME
    limits.count("https://example.com/mcp")

    assert [*limits._times] == ["https://example.com"]
