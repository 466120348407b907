"""Authorization servers that refuse scopes which a client was not registered with, as those of the official SDK do."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from mcp_host.auth import AuthorizationNeeded, Dynamic, LoginFailed, MemoryTokens, Registered
from mcp_host.auth.clients import MAX_SCOPES
from tests.auth.authorization_server import Protected
from tests.auth.world import Gate, World, _empty, rewrite, soon
from tests.extent import on_both

SECOND = "http://127.0.0.1:1003"


def without_scopes(text: str) -> str:
    return json.dumps({name: value for name, value in json.loads(text).items() if name != "scopes"})


class Strict(World):
    """A world with such a server. *refuses* are scopes that it gives no one, although it registers them."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__()
        self.site.scope, self.site.resource = "a", {"scopes_supported": ["a"]}
        self.store = MemoryTokens()
        self._refuses = set(refuses.split())
        self.server.answers["authorize"] = self._authorize

    async def _authorize(self, request: Request) -> Response:
        asked = request.query_params
        client = self.server.clients[asked["client_id"]]
        scopes = set(asked.get("scope", "").split())
        if scopes <= set(client.get("scope", "").split()) and not scopes & self._refuses:
            return await self.server._authorize(request)
        self.server.log.append(("refused", {"client_id": asked["client_id"]}))
        answer = f"error=invalid_scope&state={asked['state']}&iss={self.server.issuer}"
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", 302)

    def second(self, scope: str) -> Protected:
        """Another protected server of the same authorization server."""
        second = self.apps[1003] = Protected(_empty, self.server, origin=SECOND, scope=scope)
        return second

    @property
    def registered(self) -> list[str | None]:
        """The scopes of each registration."""
        return [fields.get("scope") for name, fields in self.server.log if name == "register"]

    async def logged_in(self, **options: Any) -> tuple[str, ...]:
        """The scopes after a login that is asked for, in another process."""
        return (await self.log_in_again(self.oauth(tokens=self.store, **options))).scopes

    async def of_an_earlier_version(self) -> None:
        """Log in with a client whose scopes were not stored."""
        await self.logged_in()
        await rewrite(self.store, f"client {self.server.issuer}", without_scopes)


async def test_a_login_for_more_scopes_registers_with_these_too() -> None:
    world = Strict()
    await world.logged_in()
    auth = world.oauth(tokens=world.store, scopes=["b"])

    assert (await world.log_in_again(auth)).scopes == ("a", "b")
    assert await world.logged_in() == ("a", "b")

    assert (world.registered, world.logins) == (["a", "a b"], 3)
    assert f"registration at {world.server.issuer}: the client is registered without some of the scopes" in (
        auth.explain()
    )


async def test_a_request_that_needs_more_scopes_registers_with_these_too_and_gets_a_token_with_all() -> None:
    world = Strict()
    world.site.needs = lambda body: body.decode()
    auth = world.oauth()

    assert [await world.call(auth, body) for body in ("", "b", "a", "c", "b")] == [200] * 5

    assert world.registered == world.scopes == ["a", "a b", "a b c"]


async def test_a_second_server_of_the_authorization_server_leaves_the_token_of_the_first_as_it_is() -> None:
    """That is refreshed by the client that it was given to."""
    world = Strict()
    second, auth = world.second("b"), world.oauth()
    await world.call(auth)

    assert (await world.client(auth).post(second.url)).status_code == 200
    world.now += 2 * world.server.lifetime
    assert await world.call(auth) == 200
    assert (await world.client(auth).post(second.url)).status_code == 200

    assert (world.registered, world.logins, world.refreshes) == (["a", "b a"], 2, 2)


async def test_a_login_that_fails_leaves_the_token_and_the_client_of_before() -> None:
    """The client, too, since no other may be registered later."""
    world = Strict(refuses="b")
    await world.logged_in()

    with pytest.raises(LoginFailed, match="is an error: invalid_scope") as failed:
        await world.logged_in(scopes=["b"])

    assert failed.value.code == "invalid_scope"
    world.now += 2 * world.server.lifetime
    assert await world.call(world.restarted(tokens=world.store)) == 200
    assert (world.registered, world.logins, world.refreshes) == (["a", "a b"], 2, 1)
    world.server.refuse("register", 429)
    assert await world.logged_in() == ("a",)


async def test_for_scopes_that_are_refused_once_they_are_registered_the_person_is_asked_once_a_login() -> None:
    world = Strict(refuses="b")
    auth = world.oauth(scopes=["b"])

    for logins in (1, 2, 3):
        with pytest.raises(LoginFailed, match="invalid_scope"):
            await auth.login(world.site.url)
        assert (world.registered, world.logins) == (["b a"] * logins, logins)


async def test_scopes_that_a_server_allows_later_need_no_logout() -> None:
    world = Strict()
    allowed = {"a"}

    async def registers_those_that_are_allowed(request: Request) -> Response:
        response = await world.server._register(request)
        client = world.server.clients[json.loads(bytes(response.body))["client_id"]]
        client["scope"] = " ".join(allowed & {*client["scope"].split()})
        return JSONResponse(client, 201)

    world.server.answers["register"] = registers_those_that_are_allowed
    auth = world.oauth(scopes=["b"])
    with pytest.raises(LoginFailed, match="invalid_scope"):
        await auth.login(world.site.url)

    allowed.add("b")

    assert (await world.log_in_again(auth)).scopes == ("b", "a")


async def test_a_client_of_an_earlier_version_registers_again_only_when_its_scopes_are_refused() -> None:
    world = Strict()
    await world.of_an_earlier_version()

    assert await world.logged_in() == ("a",)
    assert world.registered == ["a"]
    assert await world.logged_in(scopes=["b"]) == ("a", "b")

    assert (world.registered, world.logins) == (["a", "a b"], 4)


async def test_a_client_of_an_earlier_version_is_not_registered_for_the_login_of_another() -> None:
    world = Strict()
    await world.of_an_earlier_version()
    world.server.clients["by hand"] = {**world.server.clients["client-0"], "client_id": "by hand"}
    registration = [Registered("by hand", issuer=world.server.issuer), Dynamic()]

    with pytest.raises(LoginFailed, match="invalid_scope"):
        await world.logged_in(scopes=["b"], registration=registration)

    assert (world.registered, world.logins) == (["a"], 2)


async def test_the_next_login_of_a_web_host_has_another_client_if_the_scopes_of_the_first_are_refused() -> None:
    world = Strict()
    await world.of_an_earlier_version()
    auth = world.oauth(tokens=world.store, scopes=["b"], login=None)

    with pytest.raises(AuthorizationNeeded) as needed:
        await auth.login(world.site.url)
    with pytest.raises(LoginFailed, match="invalid_scope"):
        await auth.finish(needed.value.state, await world.person(needed.value.url))
    with pytest.raises(AuthorizationNeeded) as needed:
        await auth.login(world.site.url)
    await auth.finish(needed.value.state, await world.person(needed.value.url))

    assert await world.call(auth) == 200
    assert world.registered == ["a", "a b"]


async def test_a_client_that_was_registered_without_its_scopes_may_still_ask_for_them() -> None:
    """Some authorization servers know the scopes of a resource only in a login."""
    world = World()
    world.site.scope = "a"

    async def registers(request: Request) -> Response:
        if "scope" in await request.json():
            return JSONResponse({"error": "invalid_client_metadata"}, 400)
        return await world.server._register(request)

    world.server.answers["register"] = registers
    auth = await world.log_in()
    world.server.forget()
    world.site.scope = "b"

    assert await world.call(auth) == 200
    assert (world.server.count("register"), world.logins) == (1, 2)


@pytest.mark.parametrize("gone", [True, False])
async def test_the_client_that_there_is_asks_if_it_cannot_be_registered_again(gone: bool) -> None:
    """Many authorization servers do not mind."""
    world = World()
    auth = await world.log_in(scopes=["a"])

    world.server.refuse("register", 429)
    if gone:
        world.server.metadata["registration_endpoint"] = None
    world.server.forget()
    world.site.scope = "b"

    assert await world.call(auth) == 200
    assert (world.server.count("register"), world.logins) == (1, 2)


@on_both
async def test_processes_that_register_at_once_agree_on_one_client() -> None:
    world = Strict()
    await world.logged_in()
    gate = Gate(world.server, "register")
    told: list[tuple[str, ...]] = []

    async def process() -> None:
        told.append(await world.logged_in(scopes=["b"]))

    async with soon() as tasks:
        tasks.start_soon(process)
        tasks.start_soon(process)
        await anyio.wait_all_tasks_blocked()
        gate.is_open.set()

    clients = [fields["client_id"] for name, fields in world.server.log if name == "authorize"]
    assert told == [("a", "b")] * 2
    assert world.registered == ["a", "a b", "a b"]
    assert len(set(clients[1:])) == 1


async def test_further_scopes_of_a_resource_and_those_of_other_servers_do_not_make_a_registration_too_long() -> None:
    world = Strict()
    world.site.scope, other = MAX_SCOPES * "a", MAX_SCOPES * "b"
    world.site.resource = {"scopes_supported": [world.site.scope, "further"]}
    second, auth = world.second(other), world.oauth()

    assert await world.call(auth) == 200
    assert (await world.client(auth).post(second.url)).status_code == 200

    assert world.registered == [world.site.scope, other]
