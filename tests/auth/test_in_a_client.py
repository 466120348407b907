"""`OAuth` in a `Client`, over real HTTP: what servers and applications see of a login, while connecting and afterwards."""

from __future__ import annotations

import pytest
from anyio import fail_after

from mcp_host import Client, OAuth, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, LoginFailed
from tests.auth.authorization_server import Protected
from tests.auth.world import CALLBACK, call, oauth, person

ERAS = pytest.mark.parametrize("era", ["auto", "modern", "legacy"])


@pytest.mark.fault("O18")
async def test_a_server_gets_a_token_for_itself_alone_and_later_clients_need_no_login(site: Protected) -> None:
    auth = oauth(authorization_params={"access_type": "offline"})

    for _ in range(2):
        await call(site, auth)

    assert [name for name, _ in site.server.log] == ["metadata", "register", "authorize", "token"]
    asked, exchanged = (dict(fields) for name, fields in site.server.log if name in ("authorize", "token"))
    assert asked["resource"] == exchanged["resource"] == site.url
    assert (asked["code_challenge_method"], asked["access_type"]) == ("S256", "offline")
    assert "scope" not in asked
    assert (site.seen[0], len({*site.seen[1:]}), site.seen.count("")) == ("", 1, 1)
    assert {*site.queries} == {b""}


async def finish(auth: OAuth, needed: AuthorizationNeeded) -> None:
    await auth.finish(needed.state, await person(needed.url))


@ERAS
async def test_a_web_host_that_connects_gets_the_need_of_a_login_as_it_was_raised(site: Protected, era: str) -> None:
    """Whether the era of the server is remembered or not."""
    auth = OAuth(redirect_uri=CALLBACK)
    for _ in range(2):
        with fail_after(25), pytest.raises(AuthorizationNeeded) as raised:
            await Client(StreamableHttp(site.url, auth=auth), era=era).connect()

        assert str(raised.value) == f"{site.url} needs a login at {site.server.issuer}"
        assert raised.value.url.startswith(f"{site.server.issuer}/authorize?")
        assert f"state={raised.value.state}" in raised.value.url
        await finish(auth, raised.value)
        async with Client(StreamableHttp(site.url, auth=auth), era=era):
            site.server.forget()


@ERAS
async def test_a_session_goes_on_after_a_login_that_is_needed_in_its_middle(site: Protected, era: str) -> None:
    auth = OAuth(redirect_uri=CALLBACK)
    with pytest.raises(AuthorizationNeeded) as first:
        await auth.login(site.url)
    await finish(auth, first.value)

    with fail_after(25):
        async with Client(StreamableHttp(site.url, auth=auth), era=era) as client:
            site.server.forget()
            with pytest.raises(AuthorizationNeeded) as of_a_call:
                await client.call_tool("add", {"a": 2, "b": 3})
            with pytest.raises(AuthorizationNeeded) as of_a_list:
                await client.list_tools()

            await finish(auth, of_a_list.value)
            result = await client.call_tool("add", {"a": 2, "b": 3})

    assert of_a_call.value.state == of_a_list.value.state
    assert result.structured_content == {"result": 5}


@pytest.mark.fault("H12")
@ERAS
async def test_a_person_who_denies_a_login_is_asked_once(site: Protected, era: str) -> None:
    asked = []

    async def deny(url: str) -> str:
        asked.append(url)
        raise LoginFailed("they said no")

    auth = OAuth(login=deny, redirect_uri=CALLBACK)
    with fail_after(25), pytest.raises(LoginFailed, match="they said no"):
        await Client(StreamableHttp(site.url, auth=auth), era=era).connect()

    assert len(asked) == 1


async def test_without_a_login_the_error_says_what_to_pass(site: Protected) -> None:
    with fail_after(25), pytest.raises(LoginFailed) as raised:
        await Client(StreamableHttp(site.url, auth=OAuth())).connect()

    assert str(raised.value) == f"{site.url} needs a login, and no one can log in: pass login=in_browser()"
