"""What authorization servers that others wrote insist on; `tests/interop/test_oauth.py` has them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import RegistrationFailed
from tests.auth.world import World


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
