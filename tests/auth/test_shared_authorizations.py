"""What several URLs, event loops and processes of one user share."""

from __future__ import annotations

import logging
from functools import partial

import anyio
import pytest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import LoginFailed, MemoryTokens, OAuth, TokensError
from mcp_host.auth.oauth import MAX_KNOWN
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.world import World, logged_in, soon
from tests.extent import on_both

ORIGIN = "http://127.0.0.1:1002"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Tenants:
    """Servers of one origin. The path of each is in *paths*, with its authorization server and its resource."""

    def __init__(self, paths: dict[str, tuple[AuthorizationServer, str]]) -> None:
        self.paths = paths
        self.seen: dict[str, list[str]] = {path: [] for path in paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(WELL_KNOWN)
        server, resource = self.paths[path]
        if path != scope["path"]:
            response: Response = JSONResponse({"resource": resource, "authorization_servers": [server.issuer]})
        else:
            authorization = dict(scope["headers"]).get(b"authorization", b"").decode()
            self.seen[path].append(authorization)
            if authorization.removeprefix("Bearer ") in server.tokens:
                response = Response()
            else:
                challenge = f'Bearer resource_metadata="{ORIGIN}{WELL_KNOWN}{path}"'
                response = Response(status_code=401, headers={"www-authenticate": challenge})
        await response(scope, receive, send)


def one_api(world: World) -> Tenants:
    """Three paths that say that they are one resource."""
    tenants = Tenants({f"/api/{name}": (world.server, f"{ORIGIN}/api") for name in ("one", "two", "three")})
    world.apps[1002] = tenants
    return tenants


async def statuses(world: World, auth: OAuth, paths: list[str]) -> list[int]:
    client = world.client(auth)
    return [(await client.post(ORIGIN + path)).status_code for path in paths]


async def test_a_server_gets_no_token_of_another_on_its_origin_whose_resource_is_the_origin() -> None:
    world = World()
    other = AuthorizationServer(origin="http://127.0.0.1:1003", clock=world.clock)
    tenants = Tenants({"/one/mcp": (world.server, ORIGIN), "/two/mcp": (other, f"{ORIGIN}/two/mcp")})
    world.apps.update({1002: tenants, 1003: other.app()})

    assert await statuses(world, world.oauth(), ["/one/mcp", "/two/mcp"] * 2) == [200] * 4

    assert {*tenants.seen["/one/mcp"]} & {*tenants.seen["/two/mcp"]} == {""}
    assert world.logins == 2


async def test_urls_that_say_that_they_are_one_resource_need_one_login() -> None:
    world = World()
    tenants = one_api(world)

    assert await statuses(world, world.oauth(), [*tenants.paths] * 2) == [200] * 6

    assert [seen.count("") for seen in tenants.seen.values()] == [1, 1, 1]
    assert world.logins == 1


@on_both
async def test_requests_to_them_at_once_need_one_login() -> None:
    world = World()
    tenants, auth = one_api(world), world.oauth()

    async def one(path: str) -> None:
        assert await statuses(world, auth, [path]) == [200]

    async with soon() as tasks:
        for path in [*tenants.paths] * 10:
            tasks.start_soon(one, path)

    assert (world.logins, world.server.count("register")) == (1, 1)


async def test_the_one_that_needs_a_login_is_named() -> None:
    world, store = World(), MemoryTokens()
    one_api(world)
    await statuses(world, world.oauth(tokens=store), ["/api/one"])
    restarted = world.restarted(tokens=store)
    await statuses(world, restarted, ["/api/one"])
    world.server.tokens.clear()
    world.server.refresh_tokens.clear()

    with pytest.raises(LoginFailed, match=r"/api/two needs a login"):
        await statuses(world, restarted, ["/api/two"])


async def test_after_a_restart_their_token_is_found_without_a_login() -> None:
    world, store = World(), MemoryTokens()
    tenants = one_api(world)
    await statuses(world, world.oauth(tokens=store), ["/api/one"])

    restarted = world.restarted(tokens=store)
    assert await statuses(world, restarted, [*tenants.paths]) == [200] * 3

    assert tenants.seen["/api/one"].count("") == 1  # before it was known
    assert world.logins == 1


async def test_resources_of_one_authorization_server_share_a_registration_and_no_token() -> None:
    world = World()
    tenants = Tenants({path: (world.server, ORIGIN + path) for path in ("/one", "/two")})
    world.apps[1002] = tenants

    assert await statuses(world, world.oauth(), [*tenants.paths]) == [200, 200]

    assert (world.server.count("register"), world.logins) == (1, 2)
    assert {*tenants.seen["/one"]} & {*tenants.seen["/two"]} == {""}


async def test_the_token_of_a_url_that_is_written_otherwise_is_at_hand_too() -> None:
    world, auth = await logged_in()
    client, url = world.client(auth), f"{world.site.url}?query=1"

    assert auth.ready("POST", url) is None
    assert (await client.post(url)).status_code == 200
    assert auth.ready("POST", url) == {"Authorization": world.site.seen[-1]}


async def test_a_server_may_have_any_number_of_urls_and_none_needs_another_login() -> None:
    world, store = World(), MemoryTokens()
    tenants = Tenants({f"/api/{number}": (world.server, f"{ORIGIN}/api") for number in range(MAX_KNOWN + 20)})
    world.apps[1002] = tenants
    auth = world.oauth(tokens=store)

    paths = [*tenants.paths, *[*tenants.paths][:30]]
    assert await statuses(world, auth, paths) == [200] * len(paths)

    assert len(auth._servers) == MAX_KNOWN
    assert {seen.count("") for seen in tenants.seen.values()} == {1}
    assert world.logins == 1


@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "asyncio")])
def test_one_oauth_serves_one_event_loop_after_another(backends: tuple[str, str]) -> None:
    world = World(lifetime=100)
    auth = world.oauth()

    for backend in backends * 2:
        assert anyio.run(partial(world.call, auth), backend=backend) == 200
        world.now += 200

    assert (world.logins, world.refreshes) == (1, 3)


class FailingTokens(MemoryTokens):
    """A store that cannot write while it is *full*."""

    full = False

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        if self.full and key.startswith("token") and 'refreshing_until":null' in (new or ""):
            raise TokensError("the disk is full")
        return await super().swap(key, old, new)


async def test_a_token_that_cannot_be_stored_is_used_and_stored_later(caplog: pytest.LogCaptureFixture) -> None:
    world, store = World(lifetime=100), FailingTokens()
    auth = await world.log_in(tokens=store, later=200)
    store.full = True

    with caplog.at_level(logging.WARNING):
        assert [await world.call(auth) for _ in range(2)] == [200, 200]
    assert caplog.messages == ["the disk is full; what cannot be stored is lost when the process ends"]
    _, token = await world.saved(auth)
    assert world.site.seen[-1] == f"Bearer {token.access_token}"

    store.full = False
    world.now += 200
    assert await world.call(auth) == 200
    assert await world.call(world.restarted(tokens=store)) == 200
    assert (world.logins, world.refreshes, world.server.revoked) == (1, 2, [])
