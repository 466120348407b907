"""`OAuth` against an authorization server and an MCP server that it protects, over real HTTP."""

from __future__ import annotations

import pytest

from tests.auth.authorization_server import Protected
from tests.auth.world import call, oauth


async def test_a_server_that_wants_a_token_gets_one(site: Protected) -> None:
    await call(site, oauth())

    assert [name for name, _ in site.server.log] == ["metadata", "register", "authorize", "token"]
    assert site.seen[0] == ""
    assert len({*site.seen[1:]}) == 1


@pytest.mark.fault("O18")
async def test_the_token_is_for_the_server_alone_and_its_code_is_bound_to_us(site: Protected) -> None:
    await call(site, oauth())

    asked, exchanged = (dict(fields) for name, fields in site.server.log if name in ("authorize", "token"))
    assert asked["resource"] == exchanged["resource"] == site.url
    assert asked["code_challenge_method"] == "S256"
    assert "scope" not in asked


async def test_later_clients_need_no_login(site: Protected) -> None:
    auth = oauth()

    await call(site, auth)
    await call(site, auth)

    assert site.server.count("authorize") == 1
    assert site.seen.count("") == 1
