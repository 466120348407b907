"""`OAuth` with odd authorization servers: what they send, what they insist on, and by which names they are known."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host import Client, StreamableHttp
from mcp_host.auth import (
    ClientSecret,
    DiscoveryFailed,
    LoginFailed,
    MemoryTokens,
    OAuth,
    Registered,
    RegistrationFailed,
    TokenRequestFailed,
)
from tests.auth.authorization_server import Protected
from tests.auth.world import CALLBACK, World, person

# What servers of others insist on; `tests/interop/test_oauth.py` has them


def refusing(status: int, *, without_scope: bool = False) -> World:
    """Its authorization server registers no client that names scopes; or none at all."""
    world = World()

    async def register(request: Request) -> Response:
        asked: dict[str, Any] = await request.json()
        if "scope" in asked or without_scope:
            world.server.log.append(("refused", {"scope": asked.get("scope", "none")}))
            return JSONResponse({"error": "invalid_client_metadata"}, status)
        return await world.server._register(request)

    world.server.answers["register"] = register
    return world


@pytest.mark.parametrize("status", [400, 403])
async def test_a_registration_whose_scopes_are_refused_is_tried_without_them(status: int) -> None:
    world = refusing(status)
    world.site.scope = "read"
    auth = await world.log_in()

    assert [name for name, _ in world.server.log] == ["metadata", "refused", "register", "authorize", "token"]
    assert world.server.count("authorize", scope="read") == 1
    registration = f"registration at {world.server.issuer}/register"
    assert auth.explain().splitlines()[3:5] == [
        f"{registration}: HTTP {status} (invalid_client_metadata): tried again without scopes",
        f"{registration}: registered",
    ]


@pytest.mark.parametrize(
    ("scope", "status", "tries"), [("read", 400, ["read", "none"]), ("", 400, ["none"]), ("read", 500, ["read"])]
)
async def test_a_registration_is_tried_twice_at_most(scope: str, status: int, tries: list[str]) -> None:
    world = refusing(status, without_scope=True)
    world.site.scope = scope
    with pytest.raises(RegistrationFailed) as raised:
        await world.call(world.oauth())

    assert [fields["scope"] for name, fields in world.server.log if name == "refused"] == tries
    assert str(raised.value) == (
        f"registration at {world.server.issuer}/register: HTTP {status} (invalid_client_metadata)"
    )


async def test_a_client_with_a_secret_names_itself_in_the_body_too() -> None:
    """Servers of the official SDK find the client by that, and check that both are the same."""
    world = World(methods=["client_secret_basic"])
    await world.log_in()

    assert world.server.count("token", client_id="client-0") == 1
    assert [fields for name, fields in world.server.log if name == "token" and "client_secret" in fields] == []


@pytest.mark.parametrize(
    ("supported", "asked"), [([], {"scope": "read"}), (["offline_access"], {"scope": "read offline_access"})]
)
async def test_a_person_consents_to_access_while_they_are_away(supported: list[str], asked: dict[str, str]) -> None:
    """And to nothing twice where that is not needed."""
    world = World(metadata={"scopes_supported": ["read", *supported]})
    world.site.scope = "read"
    await world.log_in()

    consents = ["consent"] if supported else [None]
    assert [fields.get("prompt") for name, fields in world.server.log if name == "authorize"] == consents
    assert world.server.count("authorize", **asked) == 1


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_server_without_metadata_of_its_own_may_end_its_issuer_with_a_slash(slash: str) -> None:
    """Servers of 2025-03-26 on the official SDK do. They send no ``iss``."""
    world = World()
    endpoints = world.apps[1001]
    world.site.origin, world.site.tells_metadata = world.server.origin, False
    world.server.metadata = {
        "issuer": f"{world.server.origin}{slash}",
        "authorization_response_iss_parameter_supported": None,
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (world.site if scope["path"] == "/mcp" else endpoints)(scope, receive, send)

    async def person(url: str) -> str:
        return re.sub("&iss=[^&]+", "", await world.person(url))

    world.apps[1001] = app
    await world.log_in(login=person)

    assert [name for name, _ in world.server.log] == ["metadata", "register", "authorize", "token"]


async def test_a_refusal_that_names_no_scopes_wants_those_of_the_resource() -> None:
    """Servers of the official SDK name none in it, and have theirs in the metadata."""
    world, wanted = World(), ["read"]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status = 200 if {*wanted} <= {*[*world.server.tokens.values()][-1].scope.split()} else 403
        headers = {"www-authenticate": 'Bearer error="insufficient_scope"'}
        await Response(status_code=status, headers=headers)(scope, receive, send)

    world.site.app, world.site.resource = app, {"scopes_supported": wanted}
    auth = await world.log_in()
    wanted.append("write")

    assert await world.call(auth) == 200
    assert world.scopes == ["read", "read write"]


# What is odd in what they send


@pytest.mark.parametrize("issuer", ["http://[", "https://℀.com"])
async def test_an_authorization_server_that_is_no_url_is_a_failure_of_discovery_if_there_is_no_other(
    issuer: str,
) -> None:
    world = World()
    world.site.resource = {"authorization_servers": [issuer]}

    with pytest.raises(DiscoveryFailed, match="refused: it is no URL"):
        await world.call(world.oauth())

    world.site.resource = {"authorization_servers": [issuer, world.server.issuer]}
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
    with anyio.fail_after(25):
        async with Client(StreamableHttp(site.url, auth=auth), era="legacy"):
            site.server.forget()

    assert asked == 1


# Other names: `OAuth(issuer_aliases=)`


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
    auth = world.machine(client, issuer_aliases=aliases(world))

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
