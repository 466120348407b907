"""`OAuth` where something fails or is cancelled between two steps, and servers that take back what they have said."""

from __future__ import annotations

import json

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import AuthError, ClientSecret, DiscoveryFailed, MemoryTokens, Registered, TokensError
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.storage.entry import Entry
from mcp_host.auth.storage.saved import CLIENT
from tests.auth.world import CALLBACK, World, soon
from tests.extent import on_both


class Thief:
    """An MCP server without any metadata, which collects what comes to its token endpoint."""

    def __init__(self) -> None:
        self.stolen: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/token":
            self.stolen.append(await Request(scope, receive).body())
        status = 401 if scope["path"] == "/mcp" else 404
        await Response(status_code=status, headers={"www-authenticate": "Bearer"})(scope, receive, send)


class Failing(MemoryTokens):
    """A store that cannot be read where a key begins with *failing*, and deletes nothing while it *keeps* everything."""

    failing: str | None = None
    keeps = False

    async def load(self, key: str) -> str | None:
        if self.failing is not None and key.startswith(self.failing):
            raise TokensError("locked")
        return await super().load(key)

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        if self.keeps and new is None:
            raise TokensError("the disk is full")
        return await super().swap(key, old, new)


def client(world: World, secret: str) -> Registered:
    """A client that is registered by hand, with *secret*."""
    method = "client_secret_basic"
    fields = {"client_secret": secret, "token_endpoint_auth_method": method, "redirect_uris": [CALLBACK]}
    world.server.methods[:] = [method]
    world.server.clients["mine"] = {"client_id": "mine", **fields}
    return Registered("mine", secret)


# Secrets


async def test_a_server_without_metadata_gets_no_secret_of_a_client_for_another_issuer() -> None:
    world, thief = World(), Thief()
    world.apps[1009] = thief
    machine = ClientSecret("mine", "secret", issuer=world.server.issuer)
    auth = world.machine(machine)

    with pytest.raises(DiscoveryFailed, match="is its own authorization server, not"):
        await world.client(auth).post("http://127.0.0.1:1009/mcp")

    assert thief.stolen == []


async def test_a_server_that_takes_back_its_metadata_gets_no_secret_of_the_client_of_before() -> None:
    world, thief = World(), Thief()
    auth = await world.log_in(registration=client(world, "secret"))
    world.apps[1002] = thief

    with pytest.raises(DiscoveryFailed, match="is its own authorization server, not"):
        await world.call(auth)

    assert (thief.stolen, world.logins) == ([], 1)


async def test_a_wrong_secret_costs_no_refresh_token_and_a_new_one_is_used_at_once() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    old = client(world, "old")
    await world.log_in(tokens=store, registration=old, later=200)
    new = client(world, "new")

    with pytest.raises(AuthError):
        await world.call(world.restarted(tokens=store, registration=old))

    assert await world.call(world.restarted(tokens=store, registration=new)) == 200
    assert world.logins == 1


# Refreshing


async def test_a_token_that_another_process_has_replaced_untried_is_no_reason_to_ask_for_each_request() -> None:
    world, store = World(lifetime=1000), MemoryTokens()
    auth, site = world.oauth(tokens=store), world.apps[1002]
    await world.call(auth)

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("gone")

    world.now += 975
    world.apps[1002] = fail
    with pytest.raises(RuntimeError, match="gone"):
        await world.call(auth)  # refreshed, and never answered
    world.apps[1002] = site
    world.now += 975
    await world.call(world.restarted(tokens=store))
    await world.call(auth)

    assert auth.ready("POST", world.site.url) is not None


# Web hosts


async def test_two_wants_of_a_web_host_have_a_login_each() -> None:
    world = World()
    world.site.needs = lambda body: body.decode()
    auth = world.oauth(login=None)
    needed = await world.needed(auth)
    await world.finish(auth, needed)

    urls = {(await world.needed(auth, scope)).url for _ in range(5) for scope in ("read", "write")}

    assert len(urls) == 2


@on_both
async def test_a_login_whose_listing_is_cancelled_is_not_left_in_the_store() -> None:
    world, reached = World(), anyio.Event()

    class Slow(MemoryTokens):
        async def swap(self, key: str, old: str | None, new: str | None) -> bool:
            if key.startswith("logins") and new is not None:
                reached.set()
                await anyio.sleep_forever()
            return await super().swap(key, old, new)

    store = Slow()
    async with soon() as tasks:
        tasks.start_soon(world.call, world.oauth(login=None, tokens=store))
        await reached.wait()
        tasks.cancel_scope.cancel()

    assert not any(key.startswith("login") for key in store._tokens)


# Stores that fail


async def test_a_token_that_a_process_cannot_compare_is_kept_in_memory_and_used() -> None:
    world, store = World(lifetime=100, gives_refresh_tokens=False), Failing()
    asking, finishing = (world.oauth(login=None, tokens=store) for _ in range(2))
    first = await world.needed(asking)
    await world.finish(asking, first)
    world.now += 200
    second = await world.needed(asking)
    redirected = await world.person(second.url)

    store.failing = "token"
    await finishing.finish(second.state, redirected)
    store.failing = None

    assert await world.call(finishing) == 200


@pytest.mark.parametrize("loaded", [True, False])
async def test_what_is_stored_is_not_deleted_in_the_place_of_another_value(loaded: bool) -> None:
    store = Failing()
    await Entry(store, "client x", CLIENT).save(OAuthClient("new"))
    entry = Entry(store, "client x", CLIENT)
    if loaded:
        await entry.load()

    store.failing = "client"
    await entry.keep(None, lambda stored: stored == OAuthClient("old"))
    store.failing = None

    assert await entry.load() == OAuthClient("new")


@pytest.mark.parametrize(
    "values",
    [[OAuthClient("new")], [None], [OAuthClient("new"), OAuthClient("newer")]],
    ids=["a change", "a deletion", "two changes"],
)
async def test_what_a_store_has_failed_to_change_is_changed_when_it_can_be(values: list[OAuthClient | None]) -> None:
    store = Failing()
    await Entry(store, "client x", CLIENT).save(OAuthClient("old"))
    entry = Entry(store, "client x", CLIENT)

    store.failing = "client"
    for value in values:
        await entry.keep(value)
    assert await entry.load() == values[-1]
    store.failing = None
    assert await entry.load() == values[-1]

    assert await Entry(store, "client x", CLIENT).load() == values[-1]


class Rewriting(MemoryTokens):
    """Gives JSON with other spaces than it was given, as a database does that reads it."""

    async def load(self, key: str) -> str | None:
        text = await super().load(key)
        return text and json.dumps(json.loads(text), indent=1)


async def test_a_store_whose_texts_change_does_not_hang_a_login() -> None:
    world = World(lifetime=100)
    auth = world.oauth(tokens=Rewriting())

    assert [await world.call(auth), await world.call(auth)] == [200, 200]
    world.now += 200
    with pytest.raises(TokensError, match="its swap has to compare with the text that its load gives"):
        await world.call(auth)


# Logging out


async def test_a_logout_that_the_store_fails_can_be_repeated_and_revokes_then() -> None:
    world, store = World(), Failing()
    world.server.metadata["revocation_endpoint"] = f"{world.server.issuer}/revoke"
    auth = await world.log_in(tokens=store)

    for store.failing, store.keeps in (("logins", False), (None, True)):
        with pytest.raises(TokensError):
            await auth.logout(world.site.url)
    store.keeps = False

    assert await auth.logout(world.site.url)
    assert (world.server.tokens, store._tokens) == ({}, {})
    assert await world.call(auth) == 200
    assert world.logins == 2


async def test_a_logout_revokes_with_the_secret_of_now() -> None:
    world, store = World(), MemoryTokens()
    world.server.metadata["revocation_endpoint"] = f"{world.server.issuer}/revoke"
    await world.call(world.oauth(tokens=store, registration=client(world, "old")))

    assert await world.oauth(tokens=store, registration=client(world, "new")).logout(world.site.url)
