"""Which key a client authenticates with."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

from joserfc.jwk import ECKey
from starlette.requests import Request

from mcp_host.auth import Dynamic, MemoryTokens, PrivateKey, Registered
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.world import CALLBACK, World


class Keys(AuthorizationServer):
    """It takes assertions by any key, and notes the client and the ``kid`` of each."""

    seen: list[tuple[str, str]]

    def _authenticated(self, request: Request, asked: dict[str, str]) -> str | None:
        header, claims, _ = (
            json.loads(urlsafe_b64decode(part + "==")) if part.startswith("ey") else {}
            for part in asked["client_assertion"].split(".")
        )
        self.seen.append((claims["iss"], header["kid"]))
        return str(claims["iss"])


def taking_keys(world: World) -> Keys:
    """The world's authorization server, which now takes keys."""
    server = Keys(clock=world.clock, origin=world.server.origin, lifetime=100)
    server.seen = []
    world.server = world.site.server = server
    world.apps[1001] = server.app()
    return server


def registered(world: World, name: str) -> Registered:
    """A client with a key of its name."""
    world.server.clients[name] = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "private_key_jwt"}
    pem = ECKey.generate_key("P-256").as_pem(private=True)
    return Registered(name, issuer=world.server.issuer, key=PrivateKey(pem, id=name))


async def test_a_token_is_refreshed_with_the_key_of_its_client_whichever_others_are_passed() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    server = taking_keys(world)
    one, two = registered(world, "one"), registered(world, "two")
    await world.call(world.oauth(tokens=store, registration=two))
    world.now += 200

    assert await world.call(world.oauth(tokens=store, registration=[one, two])) == 200
    world.now += 200
    assert await world.call(world.oauth(tokens=store, registration=[two, one])) == 200

    assert server.seen == [("two", "two")] * 3
    assert (world.logins, world.refreshes) == (1, 2)


async def test_a_login_uses_the_key_of_its_client() -> None:
    world = World()
    server = taking_keys(world)
    one, two = registered(world, "one"), registered(world, "two")

    assert await world.call(world.oauth(registration=[one, two])) == 200

    assert server.seen == [("one", "one")]


async def test_a_client_whose_key_is_not_passed_any_more_logs_in_as_another() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    server = taking_keys(world)
    await world.call(world.oauth(tokens=store, registration=registered(world, "one")))
    world.now += 200

    assert await world.call(world.oauth(tokens=store, registration=[registered(world, "two"), Dynamic()])) == 200

    assert server.seen == [("one", "one"), ("two", "two")]
