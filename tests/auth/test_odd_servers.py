"""`OAuth` with servers that are odd: what they send is no reason to fail as a program, or to ask a person often."""

from __future__ import annotations

import anyio
import pytest

from mcp_host import Client, StreamableHttp
from mcp_host.auth import (
    DiscoveryFailed,
    LoginFailed,
    MemoryTokens,
    OAuth,
)
from tests.auth.authorization_server import Protected
from tests.auth.world import CALLBACK, World, person


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


async def test_a_lifetime_of_zero_is_one_that_the_server_does_not_know() -> None:
    world = World(gives_refresh_tokens=False)
    world.server.change("token", lambda answer: answer | {"expires_in": 0})
    auth = world.oauth()

    assert [await world.call(auth) for _ in range(3)] == [200] * 3
    assert world.logins == 1


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
