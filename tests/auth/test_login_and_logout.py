"""Logins and logouts that an application asks for: `OAuth.login`, `OAuth.logout` and `OAuth.saved`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mcp_host.auth import AuthorizationNeeded, FileTokens, LoginFailed, MemoryTokens, Registered
from mcp_host.auth.storage.saved import Saved
from tests.auth.authorization_server import Endpoint
from tests.auth.world import CALLBACK, SOON, Gate, World, gives_up, rewrite, soon
from tests.extent import on_both


async def test_a_login_that_is_asked_for_has_the_scopes_of_the_old_one_and_takes_its_place() -> None:
    world, store = World(), MemoryTokens()
    world.site.scope = "a"
    await world.call(world.oauth(tokens=store))
    auth = world.oauth(tokens=store, scopes=["b"])

    login = await auth.login(world.site.url)

    saved, token = await world.saved(auth)
    assert (saved, token.scopes) == (login, ("a", "b"))
    assert await world.call(auth) == 200
    assert world.logins == 2
    assert world.site.seen[-1] == f"Bearer {token.access_token}"


async def test_no_request_has_to_come_before_a_login() -> None:
    world = World()
    auth = world.oauth()

    token = await world.log_in_again(auth)

    assert await world.call(auth) == 200
    assert world.site.seen == [f"Bearer {token.access_token}"]


async def test_a_login_that_fails_leaves_the_old_one() -> None:
    world, store = World(), MemoryTokens()
    before = await world.saved(await world.log_in(tokens=store))

    auth = world.oauth(tokens=store, login=gives_up, scopes=["b"])
    with pytest.raises(LoginFailed, match="not now"):
        await auth.login(world.site.url)

    assert await world.saved(auth) == before
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
    assert [str(step).partition(" at ")[0] for step in auth.steps] == ["request", "token request (authorization_code)"]


async def test_a_server_without_metadata_has_no_login_that_could_be_asked_for() -> None:
    world = World()
    world.apps[1002] = world.apps[1001] = Response(status_code=404)

    assert await world.oauth().login(world.site.url) is None
    assert world.logins == 0


# Logging out


@pytest.fixture
def world() -> World:
    """Its authorization server revokes tokens."""
    world = World()
    world.server.metadata["revocation_endpoint"] = f"{world.server.issuer}/revoke"
    return world


async def test_both_tokens_are_revoked_and_nothing_is_kept(world: World) -> None:
    auth = await world.log_in()
    saved, token = await world.saved(auth)

    assert await auth.logout(world.site.url) is True

    asked = [fields for name, fields in world.server.log if name == "revoke"]
    assert asked == [
        {"token": token.refresh_token, "token_type_hint": "refresh_token", "client_id": saved.client.id},
        {"token": token.access_token, "token_type_hint": "access_token", "client_id": saved.client.id},
    ]
    assert (world.server.tokens, await auth.saved(world.site.url)) == ({}, None)


@pytest.mark.parametrize("url", [None, "", "/revoke", "http://login.example.com/revoke"])
async def test_a_server_that_revokes_nothing_says_so_in_the_steps(url: str | None) -> None:
    world = World(metadata={"revocation_endpoint": url})
    auth = await world.log_in()

    assert await auth.logout(world.site.url) is False

    assert str(auth.steps[-1]) == f"revocation at {world.server.issuer}: not offered"
    assert await auth.saved(world.site.url) is None


async def busy(request: Request) -> Response:
    return JSONResponse({"error": "server_error"}, 503)


async def unreachable(request: Request) -> Response:
    raise httpx.ConnectError("nobody listens")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(busy, "HTTP 503 (server_error)"), (unreachable, "POST http://127.0.0.1:1001/revoke: nobody listens")],
    ids=["busy", "down"],
)
async def test_a_revocation_that_fails_keeps_nothing_either(world: World, answer: Endpoint, outcome: str) -> None:
    world.server.answers["revoke"] = answer
    auth = await world.log_in()

    assert await auth.logout(world.site.url) is False

    kinds = ("refresh_token", "access_token")
    where = f"at {world.server.issuer}/revoke: {outcome}"
    assert [str(step) for step in auth.steps[-2:]] == [f"revocation ({kind}) {where}" for kind in kinds]
    assert await auth.saved(world.site.url) is None


async def test_a_server_that_wants_a_secret_of_a_public_client_gets_an_empty_one(world: World) -> None:
    """Servers of the official SDK do."""

    async def strict(request: Request) -> Response:
        if b"client_secret=" not in await request.body():
            world.server.log.append(("refused", {}))
            return JSONResponse({"error": "invalid_request"}, 400)
        return await world.server._revocation(request)

    world.server.answers["revoke"] = strict
    auth = await world.log_in()

    assert await auth.logout(world.site.url) is True

    assert [name for name, _ in world.server.log[-4:]] == ["refused", "revoke", "refused", "revoke"]
    assert world.server.tokens == {}


async def test_without_a_login_there_is_nothing_to_revoke(world: World) -> None:
    auth = world.oauth()

    assert await auth.logout(world.site.url) is False
    assert await auth.saved(world.site.url) is None
    assert world.server.log == []


async def test_what_another_process_has_gotten_meanwhile_is_forgotten_too(world: World) -> None:
    class Busy(MemoryTokens):
        """Another process swaps first, once."""

        others: str | None = None

        async def swap(self, key: str, old: str | None, new: str | None) -> bool:
            if key.startswith("token") and new is None and self.others is not None:
                await super().swap(key, old, self.others)
                self.others = None
            return await super().swap(key, old, new)

    tokens, other = Busy(), MemoryTokens()
    await world.log_in(tokens=other)
    auth = await world.log_in(tokens=tokens)
    tokens.others = await other.load(world.token_key)

    assert await auth.logout(world.site.url) is True

    assert await tokens.load(world.token_key) is None
    assert len(world.server.tokens) == 1  # the one that was replaced in the store


async def test_what_is_saved_shows_no_secret(world: World, tmp_path: Path) -> None:
    auth = await world.log_in(tokens=FileTokens(tmp_path / "tokens.json"))
    saved, token = await world.saved(auth)
    shown = repr(replace(saved, key={"d": "s3cret"}, client=replace(saved.client, secret="s3cret")))

    assert [text for text in ("s3cret", token.access_token, str(token.refresh_token)) if text in shown] == []


@on_both
async def test_a_login_that_is_open_is_given_up() -> None:
    world, store, gone = World(), MemoryTokens(), list[bool]()
    reached = anyio.Event()

    async def person(url: str) -> str:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.append(True)
        return ""

    auth = world.oauth(login=person, tokens=store)
    async with soon() as tasks:
        for _ in range(3):
            tasks.start_soon(world.given_up, auth)
        await reached.wait()
        assert await auth.logout(world.site.url) is False

    assert (gone, store._tokens) == ([True], {})


@on_both
async def test_a_logout_during_discovery_gives_up_the_login() -> None:
    world, store = World(), MemoryTokens()
    auth, gate = world.oauth(tokens=store), Gate(world.server, "metadata")

    async with soon() as tasks:
        tasks.start_soon(world.given_up, auth)
        await gate.reached.wait()
        assert not await auth.logout(world.site.url)
        gate.is_open.set()

    assert (world.logins, store._tokens) == (0, {})


@on_both
async def test_a_code_that_is_being_exchanged_gives_a_token_that_is_forgotten(world: World) -> None:
    store = MemoryTokens()
    gate, auth = Gate(world.server, "token"), world.oauth(tokens=store)
    revoked = []

    async def log_out() -> None:
        revoked.append(await auth.logout(world.site.url))

    async with soon() as tasks:
        tasks.start_soon(world.given_up, auth)
        await gate.reached.wait()
        tasks.start_soon(log_out)
        await anyio.wait_all_tasks_blocked()
        gate.is_open.set()

    assert revoked == [True]
    assert (store._tokens, world.server.tokens) == ({}, {})


@on_both
@pytest.mark.fake_clock
async def test_a_revocation_that_hangs_holds_up_a_logout_for_10_seconds_at_most(world: World) -> None:
    Gate(world.server, "revoke")
    auth = await world.log_in()
    begun = anyio.current_time()

    assert not await auth.logout(world.site.url)
    assert anyio.current_time() - begun == pytest.approx(10)
    assert auth.explain().endswith("/revoke: no answer within 10 seconds")


async def test_a_login_function_that_logs_out_ends_its_login() -> None:
    world = World()

    async def person(url: str) -> str:
        await auth.logout(world.site.url)
        return await world.person(url)

    auth = world.oauth(login=person)

    with anyio.fail_after(SOON):
        await world.given_up(auth)

    assert world.logins == 0


async def test_what_is_saved_can_be_seen_during_a_login() -> None:
    world, seen = World(), list[Saved | None]()

    async def person(url: str) -> str:
        seen.append(await auth.saved(world.site.url))
        return await world.person(url)

    auth = world.oauth(login=person)
    world.site.needs = lambda body: body.decode()
    with anyio.fail_after(SOON):
        assert [await world.call(auth, body) for body in ("", "write")] == [200, 200]

    first, second = seen
    assert first is None
    assert second is not None
    assert second.scopes == ()


@on_both
async def test_what_is_saved_can_be_seen_while_a_server_is_discovered() -> None:
    world, store = World(), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    await rewrite(store, f"server {world.site.url}", lambda text: None)
    gate, auth = Gate(world.server, "metadata"), world.oauth(tokens=store)

    async with soon() as tasks:
        tasks.start_soon(world.call, auth)
        await gate.reached.wait()
        assert await auth.saved(world.site.url) is None
        gate.is_open.set()

    assert await auth.saved(world.site.url) is not None


async def test_a_login_in_another_process_is_seen_by_saved_and_by_logout() -> None:
    world, store = World(), MemoryTokens()
    auth = world.restarted(tokens=store)
    assert await auth.saved(world.site.url) is None
    await world.log_in(tokens=store)

    assert await auth.saved(world.site.url) is not None
    await auth.logout(world.site.url)

    assert store._tokens == {}


async def test_after_a_logout_no_url_of_before_finishes_a_login_nor_one_that_another_process_gave_meanwhile() -> None:
    world, late = World(), list[AuthorizationNeeded]()

    class Busy(MemoryTokens):
        async def swap(self, key: str, old: str | None, new: str | None) -> bool:
            if key.startswith("logins") and new is None and not late:
                auth = world.oauth(login=None, redirect_uri=f"{CALLBACK}/late", tokens=self)
                late.append(await world.needed(auth))
            return await super().swap(key, old, new)

    store = Busy()
    auth, other = (world.oauth(login=None, tokens=store) for _ in range(2))
    before = await world.needed(auth)

    await other.logout(world.site.url)

    for needed in (before, *late):
        with pytest.raises(LoginFailed, match="no login waits with this state"):
            await world.finish(auth, needed)
    assert len(late) == 1
    assert not any(key.startswith("login") for key in store._tokens)


@on_both
async def test_a_logout_in_another_process_during_a_refresh_is_not_undone(world: World) -> None:
    """The token that arrives afterwards is revoked."""
    store = MemoryTokens()
    await world.log_in(tokens=store, later=2 * world.server.lifetime)

    async def logged_out_meanwhile(request: Request) -> Response:
        response = await world.server._token(request)
        assert await world.restarted(tokens=store).logout(world.site.url)
        return response

    world.server.answers["token"] = logged_out_meanwhile

    with pytest.raises(LoginFailed, match="needs a login"):
        await world.call(world.restarted(tokens=store))

    assert (world.refreshes, world.server.tokens, world.server.refresh_tokens) == (1, {}, {})
    assert not [key for key in store._tokens if key.startswith("token")]
