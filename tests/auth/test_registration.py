"""Clients: registered by hand, by a document, or by themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from mcp_host.auth.errors import RegistrationFailed
from mcp_host.auth.keys import PrivateKey
from mcp_host.auth.machines import ClientSecret
from mcp_host.auth.registration import Cimd, Dynamic, OAuthClient, Registered, TokenAuthMethod
from mcp_host.auth.requests.client import Answer, AuthClient
from mcp_host.auth.requests.metadata import AuthorizationServer
from mcp_host.auth.requests.steps import Steps
from mcp_host.types import JSONObject
from tests.auth.test_keys import new
from tests.auth.world import CALLBACK


def server(**changed: Any) -> AuthorizationServer:
    options = {"registration_endpoint": "https://as.test/register", "token_auth_methods": ("none",), **changed}
    return AuthorizationServer("https://as.test", None, "https://as.test/token", **options)


class Endpoint(AuthClient):
    """Gives one answer, and notes what was *asked*."""

    def __init__(self, document: JSONObject | None, status: int = 201) -> None:
        self._answer = Answer(status, f"HTTP {status}", document, {}, 0.0)
        self.asked: list[JSONObject] = []

    async def post_json(self, url: str, body: JSONObject) -> Answer:
        self.asked.append(body)
        return self._answer


async def register(
    endpoint: Endpoint, scopes: Sequence[str] = (), *, dynamic: Dynamic | None = None, **changed: Any
) -> OAuthClient | None:
    """What registering at *endpoint* gives, where the metadata are *changed*."""
    return await (dynamic or Dynamic()).register(endpoint, server(**changed), CALLBACK, scopes, Steps())


def registered(
    secret: str | None = None, method: TokenAuthMethod = "none", *, scopes: str = "read", **more: Any
) -> OAuthClient:
    return OAuthClient("a", secret, method, (CALLBACK,), scopes=tuple(scopes.split()), **more)


async def test_the_answer_has_the_client() -> None:
    rows: list[tuple[JSONObject, OAuthClient]] = [
        ({}, registered()),
        (dict.fromkeys(["client_secret", "token_endpoint_auth_method", "scope"]), registered()),
        ({"client_secret": ""}, registered()),
        (
            {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
            registered("s", "client_secret_post"),
        ),
        ({"client_secret_expires_at": 0}, registered()),
        ({"client_secret_expires_at": 5}, registered(expires_at=5.0)),
        ({"client_secret_expires_at": "soon"}, registered()),
        ({"client_secret_expires_at": True}, registered()),
        ({"client_secret_expires_at": 10**400}, registered()),
        ({"scope": "write read"}, registered(scopes="read write")),
        ({"scope": "write " * 8192}, registered()),
    ]

    for answer, client in rows:
        endpoint = Endpoint({"client_id": "a", **answer})
        assert await register(endpoint, ["read"]) == client, answer


async def test_an_answer_without_a_client_says_why() -> None:
    by_hand = "register a client there by hand, and pass Registered(...)"
    rows: list[tuple[JSONObject | None, int, str]] = [
        (None, 201, "HTTP 201"),
        ({"client_id": "a"}, 202, "HTTP 202"),
        ({"error": "invalid_client_metadata", "error_description": "canary"}, 400, "(invalid_client_metadata)"),
        ({"error": "canary"}, 400, "HTTP 400"),
        ({}, 201, "has no client_id"),
        ({"client_id": 7}, 201, "has no client_id"),
        ({"client_id": ""}, 201, "has no client_id"),
        ({"client_id": "a" * 4097}, 201, "its client_id has 4,097 characters, and 4,096 are the most"),
        *(
            ({"client_id": "a", name: text}, 201, f"its {name} has control characters, or others that are not ASCII")
            for name in ("client_id", "client_secret")
            for text in ("canary\r\nX: y", "canary\x1b[2J", "canary\u202e", "canary\ud800")
        ),
        ({"client_id": "a", "client_secret": "s" * 4097}, 201, "its client_secret has 4,097 characters"),
        ({"client_id": "a", "token_endpoint_auth_method": "canary"}, 201, "does not know"),
        ({"client_id": "a", "token_endpoint_auth_method": "client_secret_basic"}, 201, "has no client_secret"),
        (None, 403, f"HTTP 403: {by_hand}"),
        ({"error": "invalid_request"}, 400, "(invalid_request): register a client there by hand"),
    ]

    for answer, status, problem in rows:
        with pytest.raises(RegistrationFailed) as raised:
            await register(Endpoint(answer, status))
        assert str(raised.value).startswith("registration at https://as.test/register: ")
        assert problem in str(raised.value)
        assert "canary" not in str(raised.value)
    with pytest.raises(RegistrationFailed, match=r"HTTP 401$"):
        await register(Endpoint(None, 401), is_assumed=True)  # it may have no clients at all


@pytest.mark.parametrize(
    ("redirect_uri", "kind"),
    [(CALLBACK, "native"), ("http://localhost:1/c", "native"), ("https://host.test/callback", "web")],
)
async def test_a_client_registers_as_what_it_is(redirect_uri: str, kind: str) -> None:
    endpoint = Endpoint({"client_id": "a"})

    dynamic = Dynamic("my host", {"client_uri": "https://host.test"})
    await dynamic.register(endpoint, server(), redirect_uri, ["b", "c"], Steps())

    assert json.loads(json.dumps(endpoint.asked)) == [
        {
            "client_name": "my host",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": kind,
            "scope": "b c",
            "client_uri": "https://host.test",
        }
    ]


@pytest.mark.parametrize(
    ("offered", "method"),
    [
        (None, "client_secret_basic"),  # RFC 8414, section 2
        (("client_secret_basic", "client_secret_post"), "client_secret_basic"),
        (("client_secret_post", "client_secret_basic"), "client_secret_post"),
        (("private_key_jwt", "client_secret_post"), "client_secret_post"),
        (("client_secret_post", "client_secret_basic", "none"), "none"),
        (("private_key_jwt",), "none"),
    ],
)
async def test_a_client_registers_without_a_secret_or_with_the_method_that_the_server_prefers(
    offered: tuple[str, ...] | None, method: str
) -> None:
    endpoint = Endpoint({"client_id": "a", "client_secret": "s", "token_endpoint_auth_method": method})

    client = await register(endpoint, token_auth_methods=offered)

    assert client is not None
    assert (endpoint.asked[0]["token_endpoint_auth_method"], client.method) == (method, method)


@pytest.mark.parametrize(
    ("asked", "offered", "secret", "method"),
    [
        ({}, None, None, "none"),
        ({}, ("client_secret_basic",), None, "none"),
        ({}, ("client_secret_post", "none"), "s", "client_secret_post"),
        ({}, ("none", "client_secret_basic", "client_secret_post"), "s", "client_secret_basic"),
        ({}, ("none",), "s", "none"),
        ({}, ("client_secret_post",), "s", "client_secret_post"),
        ({"token_endpoint_auth_method": "client_secret_post"}, ("none",), "s", "client_secret_post"),
    ],
)
async def test_an_answer_that_does_not_say_how_its_client_authenticates_says_it_by_its_secret(
    asked: dict[str, str], offered: tuple[str, ...] | None, secret: str | None, method: TokenAuthMethod
) -> None:
    """Unless the application has *asked* for a method."""
    endpoint = Endpoint({"client_id": "a", "client_secret": secret})

    client = await register(endpoint, dynamic=Dynamic(metadata=asked), token_auth_methods=offered)

    assert client == OAuthClient("a", secret, method, (CALLBACK,), None, ())


async def test_where_no_client_can_register_the_next_way_is_tried() -> None:
    endpoint = Endpoint({"client_id": "a"})

    assert await register(endpoint, registration_endpoint=None) is None
    assert endpoint.asked == []


def test_a_client_that_was_registered_by_hand_is_for_its_issuer() -> None:
    registered = Registered("id", "secret", issuer="https://other.test")

    assert registered.client(server(), CALLBACK) is None
    assert "secret" not in repr(registered)
    assert repr(Dynamic("mine")) == "Dynamic('mine')"


def test_an_id_and_a_secret_of_the_application_have_no_control_characters() -> None:
    for make in (Registered, ClientSecret):
        for id, secret in (("id\n", "secret"), ("id", "secret\n"), ("i\x00d", "secret")):
            with pytest.raises(ValueError, match=r"^(id|secret) has control characters, such as the end of a line$"):
                make(id, secret)


def test_a_client_that_was_registered_by_hand_authenticates_in_one_way() -> None:
    key = PrivateKey(new("ES256").as_pem(private=True))
    rows: dict[str, list[dict[str, Any]]] = {
        "secret and key are two ways to authenticate: pass one of them": [{"secret": "s", "key": key}],
        "method='none' needs something else than what was passed": [
            {"method": "none", "secret": "s"},
            {"method": "none", "key": key},
        ],
        "method='client_secret_post' needs something else than what was passed": [
            {"method": "client_secret_post"},
            {"method": "client_secret_post", "key": key},
        ],
        "method='private_key_jwt' needs something else than what was passed": [
            {"method": "private_key_jwt"},
            {"method": "private_key_jwt", "secret": "s"},
        ],
    }

    for problem, options in rows.items():
        for given in options:
            with pytest.raises(ValueError, match=f"^{problem}$"):
                Registered("id", **given)


def test_the_client_of_a_document_is_for_servers_that_take_its_url() -> None:
    url = "https://host.test/client.json"
    cimd = Cimd(url, key=PrivateKey(new("ES256").as_pem(private=True)))

    assert cimd.client(server(), CALLBACK) is None
    taking = server(takes_client_urls=True)
    assert cimd.client(taking, CALLBACK) == OAuthClient(url, None, "private_key_jwt", (CALLBACK,))
    assert Cimd(url).client(taking, None) == OAuthClient(url, None, "none")
    assert Cimd(url, issuer="https://as.test").client(taking, None) == OAuthClient(url, None, "none")
    assert Cimd(url, issuer="https://other.test").client(taking, None) is None
    assert repr(cimd) == "Cimd('https://host.test/client.json')"


def test_the_url_of_a_document_is_https_with_a_path_and_no_fragment() -> None:
    controls = ("https://h/c\n", "https://h/c\x1b[2J", "https://h/\u202ec")
    for url in ("http://h/c", "https:///c", "https://h", "https://h/", "https://h/c#f", "https://u@h/c", *controls):
        with pytest.raises(ValueError, match=r"^the URL of a Client ID Metadata Document is https with a path"):
            Cimd(url)


def test_a_client_is_used_until_it_ends_and_at_its_redirect_uri() -> None:
    client = OAuthClient("a", "s3cret", "client_secret_basic", (CALLBACK,), 5.0)

    assert [client.can_be_used(CALLBACK, now) for now in (4.0, 5.0)] == [True, False]
    assert not client.can_be_used("http://other", 4.0)
    assert "s3cret" not in repr(client)
