"""`OAuth(issuer_aliases=)`: authorization servers that MCP servers know by another name."""

from __future__ import annotations

import pytest

from mcp_host.auth import ClientSecret, DiscoveryFailed, MemoryTokens, OAuth, Registered, TokenRequestFailed
from tests.auth.world import CALLBACK, World

HOUR = 3600.0  # of seconds, as long as a token lasts


@pytest.fixture
def world() -> World:
    """Its protected server has a slash more in the name of its authorization server."""
    world = World()
    world.site.resource = {"authorization_servers": [f"{world.server.issuer}/"]}
    return world


def aliases(world: World) -> dict[str, str]:
    return {f"{world.server.issuer}/": world.server.issuer}


async def test_an_issuer_by_another_name_is_used_if_the_host_says_so(world: World) -> None:
    tokens, issuer = MemoryTokens(), world.server.issuer

    with pytest.raises(DiscoveryFailed) as refused:
        await world.call(world.oauth())
    hint = f"its issuer is {issuer}, not {issuer}/: if you know that they are one, pass issuer_aliases="
    assert f"{hint}{aliases(world)!r}" in str(refused.value)
    assert await world.call(world.oauth(tokens=tokens, issuer_aliases=aliases(world))) == 200

    saved = await world.restarted(tokens=tokens).saved(world.site.url)
    assert saved is not None
    assert saved.server.issuer == issuer
    world.now += HOUR + 1
    assert await world.call(world.restarted(tokens=tokens)) == 200  # what is stored needs no alias
    assert (world.logins, world.refreshes) == (1, 1)


async def test_a_client_that_was_registered_at_an_issuer_is_used_there_by_either_name(world: World) -> None:
    world.server.clients["mine"] = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
    registered = Registered("mine", issuer=world.server.issuer)

    assert await world.call(world.oauth(registration=registered, issuer_aliases=aliases(world))) == 200
    with pytest.raises(DiscoveryFailed):
        await world.call(world.oauth(registration=registered))


async def test_a_machine_may_have_them_too(world: World) -> None:
    client = ClientSecret("mine", "s", issuer=world.server.issuer)
    auth = OAuth.machine(client, client=world.client(), issuer_aliases=aliases(world), _clock=world.clock)

    with pytest.raises(TokenRequestFailed):  # this authorization server is for people alone
        await world.call(auth)
    assert world.server.count("token", grant_type="client_credentials") == 1


async def test_an_alias_is_for_that_name_alone(world: World) -> None:
    """Another server that says it is this issuer gets nothing: not the client, and not the login."""
    attacker, attacked = World(), world.server.issuer
    attacker.site.resource = {"authorization_servers": [attacker.server.issuer]}
    attacker.server.metadata = {"issuer": "https://login.example"}
    auth = attacker.oauth(issuer_aliases={f"{attacked}/": "https://login.example"})

    with pytest.raises(DiscoveryFailed, match=r"its issuer is https://login\.example, not"):
        await attacker.call(auth)
    assert attacker.logins == attacker.server.count("register") == 0
