"""Machines: tokens without a person, and several processes or authorization servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import (
    ClientSecret,
    EnterpriseManaged,
    Machine,
    MemoryTokens,
    OAuth,
    Registered,
    TokenRequestFailed,
    Workload,
)
from mcp_host.auth.registration import TokenAuthMethod
from mcp_host.auth.requests.metadata import AuthorizationServer as Metadata
from tests.auth.authorization_server import AuthorizationServer, Grant
from tests.auth.world import Gate, World, soon
from tests.extent import on_both


def knows(server: AuthorizationServer) -> None:
    """Let *server* give tokens to the machine, for a short time."""
    server.clients["id"] = {"token_endpoint_auth_method": "client_secret_basic", "client_secret": "secret"}
    server.lifetime = 100


def machine(world: World, store: MemoryTokens, issuer: str | None = None) -> OAuth:
    return world.machine(ClientSecret("id", "secret", issuer=issuer), tokens=store)


async def test_a_machine_asks_for_no_access_while_a_person_is_away() -> None:
    """It gets no refresh token (RFC 6749, section 4.4.3), and authorization servers may refuse that scope."""
    world = World(metadata={"scopes_supported": ["read", "offline_access"]})
    knows(world.server)
    world.site.resource = {"scopes_supported": ["read"]}

    assert await world.call(machine(world, MemoryTokens())) == 200

    assert world.server.count("token", scope="read") == 1


@on_both
@pytest.mark.parametrize("revokes", [False, True])
async def test_a_logout_in_another_process_while_a_machine_gets_its_next_token_is_not_undone(revokes: bool) -> None:
    world, store = World(), MemoryTokens()
    knows(world.server)
    if revokes:
        world.server.metadata["revocation_endpoint"] = f"{world.server.issuer}/revoke"
    await world.call(machine(world, store))
    world.now += 200
    gate = Gate(world.server, "token")

    async with soon() as tasks:
        tasks.start_soon(world.call, machine(world, store))
        await gate.reached.wait()
        assert await machine(world, store).logout(world.site.url) is revokes
        gate.is_open.set()

    assert (world.site.seen.count(""), world.server.count("token")) == (2, 3)  # it logs in anew, as any process would
    assert len(world.server.tokens) == (1 if revokes else 3)


async def test_a_machine_is_shown_to_no_other_authorization_server_than_its_own() -> None:
    world, store = World(), MemoryTokens()
    other = world.another_server()
    for server in (world.server, other):
        knows(server)
    await world.call(machine(world, store))
    world.site.resource["authorization_servers"] = [world.server.issuer, other.issuer]
    world.site.server = other
    world.now += 200

    assert await world.call(machine(world, store, other.issuer)) == 200

    assert (world.server.count("token"), other.count("token")) == (1, 1)


async def test_a_machine_whose_token_is_refused_fails() -> None:
    world, store = World(), MemoryTokens()
    knows(world.server)
    auth = machine(world, store)
    await world.call(auth)
    world.now += 200

    world.server.refuse("token", 401)
    with pytest.raises(TokenRequestFailed, match="HTTP 401"):
        await world.call(auth)


async def test_a_workload_shows_the_jwt_of_its_platform_for_the_issuer() -> None:
    world, audiences = World(trusts="jwt of the platform"), list[str]()
    world.server.clients["id"] = {"token_endpoint_auth_method": "none"}
    world.site.scope = "read"

    def get_jwt(audience: str) -> str:
        audiences.append(audience)
        return "jwt of the platform"

    auth = world.machine(Workload(get_jwt, client_id="id"))

    assert await world.call(auth) == 200
    assert audiences == [world.server.issuer]
    assert world.server.count("token", client_id="id", scope="read", resource=world.site.url) == 1


class IdentityProvider:
    """It exchanges an ID token for *answer* (RFC 8693)."""

    def __init__(self, world: World, **answer: str) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self._answer = answer
        world.apps[1005] = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(parse_qs((await Request(scope, receive).body()).decode()))
        await JSONResponse(self._answer)(scope, receive, send)


def id_token(audience: str) -> str:
    return f"ID token for {audience}"


def no_jwt(audience: str) -> Any: ...


def managed(
    get_id_token: Callable[[str], str] = id_token, *, idp_client_secret: str | None = None
) -> EnterpriseManaged:
    idp = {"idp_token_endpoint": "http://127.0.0.1:1005/token", "idp_client_id": "at-idp"}
    return EnterpriseManaged("id", "secret", get_id_token=get_id_token, idp_client_secret=idp_client_secret, **idp)


def test_the_repr_of_a_machine_has_no_secret() -> None:
    machines = [ClientSecret("id", "secret"), Workload(id_token, client_id="id"), managed()]

    assert [repr(machine) for machine in machines] == [
        "ClientSecret('id')",
        "Workload(client_id='id')",
        "EnterpriseManaged('id')",
    ]


ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


@pytest.mark.parametrize("secret", [None, "s"])
async def test_a_client_of_an_enterprise_gets_the_assertion_of_its_identity_provider(secret: str | None) -> None:
    world = World(trusts="id-jag")
    world.site.scope = "read"
    knows(world.server)
    idp = IdentityProvider(world, access_token="id-jag", issued_token_type=ID_JAG)

    assert await world.call(world.machine(managed(idp_client_secret=secret))) == 200

    assert idp.asked == [
        {
            "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
            "requested_token_type": [ID_JAG],
            "audience": [world.server.issuer],
            "resource": [world.site.url],
            "subject_token": ["ID token for at-idp"],
            "subject_token_type": ["urn:ietf:params:oauth:token-type:id_token"],
            "scope": ["read"],
            "client_id": ["at-idp"],
            **({"client_secret": [secret]} if secret else {}),
        }
    ]


@pytest.mark.parametrize("answer", [{"access_token": "id-jag"}, {"issued_token_type": ID_JAG}], ids=["kind", "token"])
async def test_an_identity_provider_that_gives_no_assertion_is_named(answer: dict[str, str]) -> None:
    world = World()
    IdentityProvider(world, **answer)

    with pytest.raises(TokenRequestFailed, match=r"^token exchange at .*:1005/token: HTTP 200, and no assertion$"):
        await world.call(world.machine(managed()))
    assert world.server.count("token") == 0


@pytest.mark.parametrize(
    ("machine", "function"),
    [(Workload(no_jwt, client_id="id"), "get_jwt"), (managed(no_jwt), "get_id_token")],
    ids=["workload", "enterprise"],
)
async def test_a_function_that_gives_no_jwt_is_named(machine: Machine, function: str) -> None:
    world = World()

    with pytest.raises(TypeError, match=f"^{function} returns a JWT as text, not NoneType$"):
        await world.call(world.machine(machine))
    assert world.server.count("token") == 0


METHODS: list[tuple[TokenAuthMethod | None, list[str] | None, str]] = [
    (None, None, "basic"),  # RFC 8414, section 2
    (None, ["client_secret_post", "client_secret_basic"], "basic"),
    (None, ["none", "client_secret_post"], "post"),
    (None, ["private_key_jwt"], "basic"),  # which every server MUST support: RFC 6749, section 2.3.1
    ("client_secret_basic", ["client_secret_post"], "basic"),
    ("client_secret_post", ["client_secret_basic"], "post"),
]


@pytest.mark.parametrize(("method", "offered", "sent"), METHODS)
async def test_a_machine_sends_its_secret_as_the_server_takes_it(
    method: TokenAuthMethod | None, offered: list[str] | None, sent: str
) -> None:
    world, heard = World(metadata={"token_endpoint_auth_methods_supported": offered}), []

    async def token(request: Request) -> Response:
        heard.append((request.headers.get("authorization", "")[:5], b"client_secret=secret" in await request.body()))
        return world.server.issue(Grant("id", "", world.site.url))

    world.server.answers["token"] = token
    auth = world.machine(ClientSecret("id", "secret", method=method))

    assert await world.call(auth) == 200
    world.now += 2 * world.server.lifetime
    assert await world.call(auth) == 200
    saved = await auth.saved(world.site.url)

    assert heard == [{"basic": ("Basic", False), "post": ("", True)}[sent]] * 2
    assert saved is not None
    assert saved.client.method == f"client_secret_{sent}"


def test_clients_of_an_enterprise_or_registered_by_hand_send_their_secrets_as_the_server_takes_them() -> None:
    for method, offered, sent in METHODS:
        methods = None if offered is None else tuple(offered)
        server = Metadata("https://as.test", None, "https://as.test/token", token_auth_methods=methods)

        registered = Registered("id", "secret", method=method).client(server, None)

        assert registered is not None
        assert (registered.secret, registered.method) == ("secret", f"client_secret_{sent}")
        if method is None:
            assert managed().client_at(server).method == f"client_secret_{sent}"
