"""`OAuth` with servers that are odd: what they send is no reason to fail as a program, or to ask a person often."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mcp_host import Client, StreamableHttp
from mcp_host.auth import (
    DiscoveryFailed,
    LoginFailed,
    MemoryTokens,
    OAuth,
    OnDevice,
    RegistrationFailed,
)
from mcp_host.auth.storage.saved import Saved
from tests.auth.authorization_server import Protected
from tests.auth.world import CALLBACK, SOON, World, person


@pytest.mark.parametrize("issuer", ["http://[", "https://℀.com"])
async def test_an_authorization_server_that_is_no_url_is_a_failure_of_discovery(issuer: str) -> None:
    world = World()
    world.site.resource = {"authorization_servers": [issuer]}

    with pytest.raises(DiscoveryFailed, match="refused: it is no URL"):
        await world.call(world.oauth())


async def test_the_next_authorization_server_is_tried_after_one_that_is_no_url() -> None:
    world = World()
    world.site.resource = {"authorization_servers": ["http://[", world.server.issuer]}

    assert await world.call(world.oauth()) == 200


@pytest.mark.parametrize("url", ["", "/revoke", "http://login.example.com/revoke"])
async def test_a_revocation_endpoint_that_cannot_be_used_is_none(url: str) -> None:
    world = World(metadata={"revocation_endpoint": url})
    auth = world.oauth()

    assert await world.call(auth) == 200
    assert any(step.outcome == "its revocation_endpoint is no https URL: not used" for step in auth.steps)
    assert await auth.logout(world.site.url) is False
    assert str(auth.steps[-1]) == f"revocation at {world.server.issuer}: not offered"


async def test_a_registration_endpoint_that_cannot_be_used_is_none() -> None:
    world = World(metadata={"registration_endpoint": ""})

    with pytest.raises(RegistrationFailed, match="registers no clients by itself"):
        await world.call(world.oauth())

    assert world.logins == 0


async def test_a_device_endpoint_that_cannot_be_used_is_none() -> None:
    world = World(metadata={"device_authorization_endpoint": "/device", "authorization_endpoint": ""})

    with pytest.raises(DiscoveryFailed, match="has no device_authorization_endpoint"):
        await world.call(world.oauth(login=OnDevice(), redirect_uri=None))


async def test_a_person_is_sent_to_no_authorization_endpoint_that_cannot_be_used() -> None:
    world = World(metadata={"authorization_endpoint": ""})

    with pytest.raises(DiscoveryFailed, match="refused: its authorization_endpoint is no https URL"):
        await world.call(world.oauth())

    assert world.logins == 0


async def test_a_client_whose_end_is_beyond_all_numbers_has_none() -> None:
    world = World()

    async def registers(request: Request) -> Response:
        response = json.loads(bytes((await world.server._register(request)).body))
        return JSONResponse({**response, "client_secret_expires_at": 10**400}, 201)

    world.server.answers["register"] = registers

    assert await world.call(world.oauth()) == 200


async def test_a_lifetime_of_zero_is_one_that_the_server_does_not_know() -> None:
    world = World(gives_refresh_tokens=False)

    async def gives(request: Request) -> Response:
        return JSONResponse({**json.loads(bytes((await world.server._token(request)).body)), "expires_in": 0})

    world.server.answers["token"] = gives
    auth = world.oauth()

    assert [await world.call(auth) for _ in range(3)] == [200] * 3
    assert world.logins == 1


async def test_a_refresh_that_began_by_a_clock_that_was_wrong_is_not_waited_for() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    key = world.token_key
    text = await store.load(key)
    assert text is not None
    year = 365 * 24 * 3600.0
    assert await store.swap(key, text, json.dumps({**json.loads(text), "refreshing_until": world.now + year}))
    world.now += 200

    with anyio.fail_after(SOON):
        assert await world.call(world.restarted(tokens=store)) == 200

    assert world.refreshes == 1


@pytest.mark.parametrize(
    ("redirected", "text"),
    [
        ("http://[", "is no URL"),
        ("https://℀.com/?code=secret", "is no URL"),
        ("http://127.0.0.1/?state=\ud800&code=secret", "has another state"),
    ],
)
async def test_a_redirect_that_cannot_be_read_is_a_login_that_fails(redirected: str, text: str) -> None:
    world = World()
    auth = world.oauth(login=None)
    needed = await world.needed(auth)

    with pytest.raises(LoginFailed, match=text) as failed:
        await auth.finish(needed.state, redirected)

    assert "secret" not in str(failed.value)


async def test_what_another_version_has_stored_of_a_login_is_a_login_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, store = World(), MemoryTokens()
    assert await store.swap("login state", None, '{"verifier": "secret"}')

    with pytest.raises(LoginFailed, match="begin again"):
        await world.oauth(login=None, tokens=store).finish("state", CALLBACK)

    assert caplog.messages == ["what is stored of a login cannot be read, and is not used"]


async def test_no_one_has_to_log_in_while_a_client_closes(site: Protected) -> None:
    asked = 0

    async def counted(url: str) -> str:
        nonlocal asked
        asked += 1
        return await person(url)

    auth = OAuth(login=counted, redirect_uri=CALLBACK)
    with anyio.fail_after(20):
        async with Client(StreamableHttp(site.url, auth=auth), era="legacy"):
            site.server.forget()

    assert asked == 1


def test_a_private_key_is_not_in_a_repr() -> None:
    world = World()
    resource: Any = world.site.url
    server: Any = world.server.issuer
    client: Any = "client"

    assert "secret" not in repr(Saved(resource, server, client, key={"d": "secret"}))
