"""What authorization servers that others wrote insist on; `tests/interop/test_oauth.py` has them."""

from __future__ import annotations

import re
from typing import Any

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import OAuth, RegistrationFailed
from mcp_host.auth.login.ways import LoginFunction
from tests.asgi import serving
from tests.auth.authorization_server import AuthorizationServer, Protected, protected
from tests.auth.world import call, oauth, person, server


async def person_of_2025(url: str) -> str:
    """A person whose authorization server sends no ``iss``."""
    return re.sub("&iss=[^&]+", "", await person(url))


async def logged_in(site: Protected, login: LoginFunction = person) -> OAuth:
    auth = oauth(login=login)
    await call(site, auth)
    return auth


def refusing(status: int, *, without_scope: bool = False) -> AuthorizationServer:
    """A server that registers no client that names scopes; or none at all."""
    authority = AuthorizationServer()

    async def register(request: Request) -> Response:
        asked: dict[str, Any] = await request.json()
        if "scope" in asked or without_scope:
            authority.log.append(("refused", {"scope": asked.get("scope", "none")}))
            return JSONResponse({"error": "invalid_client_metadata"}, status)
        return await authority._register(request)

    authority.answers["register"] = register
    return authority


@pytest.mark.parametrize("status", [400, 403])
async def test_a_registration_whose_scopes_are_refused_is_tried_without_them(status: int) -> None:
    authority = refusing(status)
    with protected(server().asgi(), authority) as site:
        site.scope = "read"
        auth = await logged_in(site)

    assert [name for name, _ in authority.log] == ["metadata", "refused", "register", "authorize", "token"]
    assert authority.count("authorize", scope="read") == 1
    registration = f"registration at {authority.issuer}/register"
    assert auth.explain().splitlines()[3:5] == [
        f"{registration}: HTTP {status} (invalid_client_metadata): tried again without scopes",
        f"{registration}: registered",
    ]


@pytest.mark.parametrize(
    ("scope", "status", "tries"), [("read", 400, ["read", "none"]), ("", 400, ["none"]), ("read", 500, ["read"])]
)
async def test_a_registration_is_tried_twice_at_most(scope: str, status: int, tries: list[str]) -> None:
    authority = refusing(status, without_scope=True)
    with protected(server().asgi(), authority) as site:
        site.scope = scope
        async with httpx.AsyncClient(auth=oauth()) as http:
            with anyio.fail_after(20), pytest.raises(RegistrationFailed) as raised:
                await http.post(site.url)

    assert [fields["scope"] for name, fields in authority.log if name == "refused"] == tries
    assert str(raised.value) == (
        f"registration at {authority.issuer}/register: HTTP {status} (invalid_client_metadata)"
    )


async def test_a_client_with_a_secret_names_itself_in_the_body_too() -> None:
    """Servers of the official SDK find the client by that, and check that both are the same."""
    authority = AuthorizationServer(methods=["client_secret_basic"])
    with protected(server().asgi(), authority) as site:
        await logged_in(site)

    assert authority.count("token", client_id="client-0") == 1
    assert [fields for name, fields in authority.log if name == "token" and "client_secret" in fields] == []


async def test_a_person_consents_to_access_while_they_are_away() -> None:
    authority = AuthorizationServer(metadata={"scopes_supported": ["read", "offline_access"]})
    with protected(server().asgi(), authority) as site:
        site.scope = "read"
        await logged_in(site)

    assert authority.count("authorize", scope="read offline_access", prompt="consent") == 1


async def test_no_person_consents_twice_where_that_is_not_needed() -> None:
    with protected(server().asgi()) as site:
        site.scope = "read"
        await logged_in(site)

    assert [fields.get("prompt") for name, fields in site.server.log if name == "authorize"] == [None]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_server_without_metadata_of_its_own_may_end_its_issuer_with_a_slash(slash: str) -> None:
    """Servers of 2025-03-26 on the official SDK do."""
    authority = AuthorizationServer()
    site = Protected(server().asgi(), authority, tells_metadata=False)
    endpoints = authority.app()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_endpoint = "path" in scope and scope["path"] != "/mcp"
        await (endpoints if is_endpoint else site)(scope, receive, send)

    with serving(app) as origin:
        site.origin = authority.origin = origin
        authority.metadata = {"issuer": f"{origin}{slash}", "authorization_response_iss_parameter_supported": None}
        await logged_in(site, person_of_2025)

    assert [name for name, _ in authority.log] == ["metadata", "register", "authorize", "token"]


async def test_a_refusal_that_names_no_scopes_wants_those_of_the_resource() -> None:
    """Servers of the official SDK name none in it, and have theirs in the metadata."""
    authority, wanted = AuthorizationServer(), ["read"]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status = 200 if all(name in list(authority.tokens.values())[-1].scope.split() for name in wanted) else 403
        await Response(status_code=status, headers={"www-authenticate": 'Bearer error="insufficient_scope"'})(
            scope, receive, send
        )

    with protected(app, authority) as site:
        site.resource = {"scopes_supported": wanted}
        async with httpx.AsyncClient(auth=oauth()) as http:
            with anyio.fail_after(20):
                first = await http.post(site.url)
                wanted.append("write")
                second = await http.post(site.url)

    assert (first.status_code, second.status_code) == (200, 200)
    asked = [fields["scope"] for name, fields in authority.log if name == "authorize"]
    assert asked == ["read", "read write"]
