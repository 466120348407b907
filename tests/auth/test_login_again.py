"""Logins that an application asks for: `OAuth.login`."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from mcp_host.auth import LoginFailed, MemoryTokens, Registered
from tests.auth.world import World, gives_up


async def test_a_login_that_is_asked_for_has_the_scopes_of_the_old_one_and_takes_its_place() -> None:
    world, store = World(), MemoryTokens()
    world.site.scope = "a"
    await world.call(world.oauth(tokens=store))
    auth = world.oauth(tokens=store, scopes=["b"])

    saved = await auth.login(world.site.url)

    assert saved is not None
    assert saved.token is not None
    assert saved.token.scopes == ("a", "b")
    assert saved == await auth.saved(world.site.url)
    assert await world.call(auth) == 200
    assert world.logins == 2
    assert world.site.seen[-1] == f"Bearer {saved.token.access_token}"


async def test_no_request_has_to_come_before_a_login() -> None:
    world = World()
    auth = world.oauth()

    saved = await auth.login(world.site.url)

    assert saved is not None
    assert saved.token is not None
    assert await world.call(auth) == 200
    assert world.site.seen == [f"Bearer {saved.token.access_token}"]


async def test_a_login_that_fails_leaves_the_old_one() -> None:
    world, store = World(), MemoryTokens()
    await world.call(world.oauth(tokens=store))

    auth = world.oauth(tokens=store, login=gives_up, scopes=["b"])
    before = await auth.saved(world.site.url)
    with pytest.raises(LoginFailed, match="not now"):
        await auth.login(world.site.url)

    assert before is not None
    assert await auth.saved(world.site.url) == before
    assert await world.call(auth) == 200


async def test_another_client_logs_in_in_the_place_of_the_old_one() -> None:
    world, store = World(), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    world.server.clients["mine"] = world.server.clients["client-0"]

    saved = await world.oauth(tokens=store, registration=Registered("mine")).login(world.site.url)

    assert saved is not None
    assert saved.client.id == "mine"


async def test_metadata_that_only_a_challenge_could_name_are_those_of_the_old_login() -> None:
    world, store = World(), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    found = world.server.count("metadata")
    auth = world.oauth(tokens=store)

    await auth.login(world.site.url)

    assert world.server.count("metadata") == found
    assert [str(step).partition(" at ")[0] for step in auth.steps] == [
        "request",
        "token request (authorization_code)",
    ]


async def test_a_server_without_metadata_has_no_login_that_could_be_asked_for() -> None:
    world = World()
    world.apps[1002] = world.apps[1001] = Response(status_code=404)

    assert await world.oauth().login(world.site.url) is None
    assert world.logins == 0
