"""Machines: tokens without a person, and several processes or authorization servers."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response

from mcp_host.auth import ClientSecret, MemoryTokens, OAuth, TokenRequestFailed
from tests.auth.authorization_server import AuthorizationServer, Grant
from tests.auth.world import Gate, World

SOON = 10.0  # seconds, on a busy machine


def gives_tokens(world: World, server: AuthorizationServer) -> None:
    """Let *server* give tokens to any machine (RFC 6749, section 4.4)."""

    async def token(request: Request) -> Response:
        asked = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        server.log.append(("token", asked))
        return server.issue(Grant(asked["client_id"], "", asked["resource"]))

    server.answers["token"] = token
    server.lifetime = 100


def machine(world: World, store: MemoryTokens, issuer: str | None = None, **options: Any) -> OAuth:
    secret = ClientSecret("id", "secret", issuer=issuer)
    return OAuth.machine(secret, tokens=store, client=world.client(), _clock=world.clock, **options)


async def test_a_machine_gets_a_token_and_in_time_the_next() -> None:
    world, store = World(), MemoryTokens()
    gives_tokens(world, world.server)
    auth = machine(world, store)

    assert await world.call(auth) == 200
    world.now += 200
    assert await world.call(auth) == 200

    assert (world.server.count("token"), world.site.seen.count("")) == (2, 1)


async def test_a_logout_in_another_process_while_a_machine_gets_its_next_token_is_not_undone() -> None:
    world, store = World(), MemoryTokens()
    gives_tokens(world, world.server)
    await world.call(machine(world, store))
    world.now += 200
    gate = Gate(world.server, "token")

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.call, machine(world, store))
            await gate.reached.wait()
            await machine(world, store).logout(world.site.url)
            gate.is_open.set()

    assert (world.site.seen.count(""), world.server.count("token")) == (2, 3)  # it logs in anew, as any process would


async def test_a_machine_is_shown_to_no_other_authorization_server_than_its_own() -> None:
    world, store = World(), MemoryTokens()
    other = AuthorizationServer(origin="http://127.0.0.1:1003", clock=world.clock)
    world.apps[1003] = other.app()
    for server in (world.server, other):
        gives_tokens(world, server)
    await world.call(machine(world, store))
    world.site.resource["authorization_servers"] = [world.server.issuer, other.issuer]
    world.site.server = other
    world.now += 200

    assert await world.call(machine(world, store, other.issuer)) == 200

    assert (world.server.count("token"), other.count("token")) == (1, 1)


async def test_a_machine_whose_token_is_refused_fails() -> None:
    world, store = World(), MemoryTokens()
    gives_tokens(world, world.server)
    auth = machine(world, store)
    await world.call(auth)
    world.now += 200

    async def refuses(request: Request) -> Response:
        return Response(status_code=401)

    world.server.answers["token"] = refuses
    with pytest.raises(TokenRequestFailed, match="HTTP 401"):
        await world.call(auth)
