"""Where metadata are, and which of them are found and used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from mcp_host.auth.errors import AddressRefused, AuthError, DiscoveryFailed
from mcp_host.auth.requests.challenges import NO_CHALLENGE, Challenge
from mcp_host.auth.requests.client import Answer, AuthClient
from mcp_host.auth.requests.discovery import discover
from mcp_host.auth.requests.metadata import AuthorizationServer, Resource, metadata_urls, resource_urls
from mcp_host.auth.requests.steps import Steps
from tests.extent import on_both

ROOT = "https://h/.well-known/oauth-protected-resource"


def test_metadata_of_a_resource_are_at_its_path_and_at_the_root() -> None:
    expected = {
        "https://h/mcp": [f"{ROOT}/mcp", ROOT],
        "https://h/a/b/?q=1#f": [f"{ROOT}/a/b", ROOT],
        "https://h": [ROOT],
        "https://h/": [ROOT],
    }

    assert {url: resource_urls(url, NO_CHALLENGE) for url in expected} == expected


def test_the_url_of_the_challenge_is_the_first_and_tried_once() -> None:
    named, empty = (Challenge("bearer", {"resource_metadata": url}) for url in (ROOT, ""))

    assert resource_urls("https://h/mcp", named) == [ROOT, f"{ROOT}/mcp"]
    assert resource_urls("https://h", empty) == [ROOT]


def test_metadata_of_an_authorization_server_have_the_order_of_the_specification() -> None:
    expected = {
        "https://h": ["https://h/@oauth-authorization-server", "https://h/@openid-configuration"],
        "https://h/": ["https://h/@oauth-authorization-server", "https://h/@openid-configuration"],
        "https://h/t/1": [
            "https://h/@oauth-authorization-server/t/1",
            "https://h/@openid-configuration/t/1",
            "https://h/t/1/@openid-configuration",
        ],
        "https://h/t/": [
            "https://h/@oauth-authorization-server/t",
            "https://h/@openid-configuration/t",
            "https://h/t/@openid-configuration",
        ],
    }

    found = {issuer: [url.replace(".well-known/", "@") for url in metadata_urls(issuer)] for issuer in expected}
    assert found == expected


MCP, ISSUER = "https://mcp.test/mcp", "https://as.test/tenant"
RESOURCE_URL = "https://mcp.test/.well-known/oauth-protected-resource/mcp"
SERVER_URL = "https://as.test/.well-known/oauth-authorization-server/tenant"
OPENID_URL = "https://as.test/.well-known/openid-configuration/tenant"
RESOURCE = {"resource": MCP, "authorization_servers": [ISSUER]}
SERVER = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "code_challenge_methods_supported": ["S256"],
}
FOUND = AuthorizationServer(ISSUER, f"{ISSUER}/authorize", f"{ISSUER}/token", code_challenge_methods=("S256",))


class Documents(AuthClient):
    """A network with these documents, statuses or failures; it notes the URLs it was *asked* for, and the *headers*."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str] | None] = []

    async def get_json(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        self.asked.append(url)
        self.headers.append(headers)
        found = self.documents.get(url, 404)
        if isinstance(found, AuthError):
            raise found
        if isinstance(found, int):
            return Answer(found, f"HTTP {found}", None, {}, 0.0)
        return Answer(200, "HTTP 200", found, {}, 0.0)


async def found(documents: dict[str, Any], **options: Any) -> tuple[Resource, AuthorizationServer]:
    return await discover(Documents(documents), MCP, NO_CHALLENGE, Steps(), **options)


@pytest.mark.fault("O17")
async def test_the_first_document_that_can_be_used_wins() -> None:
    network = Documents({RESOURCE_URL: RESOURCE, SERVER_URL: {**SERVER, "issuer": f"{ISSUER}/"}, OPENID_URL: SERVER})

    assert await discover(network, MCP, NO_CHALLENGE, Steps()) == (Resource(MCP, (ISSUER,), None), FOUND)
    assert network.asked == [RESOURCE_URL, SERVER_URL, OPENID_URL]
    assert network.headers == [None] * 3  # no revision: newer ones do not ask for that


async def test_where_a_person_logs_in_the_first_document_with_pkce_wins() -> None:
    """Some authorization servers have it in one of their documents only."""
    without = {name: value for name, value in SERVER.items() if name != "code_challenge_methods_supported"}
    documents = {RESOURCE_URL: RESOURCE, SERVER_URL: without, OPENID_URL: SERVER}
    server_without = replace(FOUND, code_challenge_methods=())

    assert (await found(documents))[1] == FOUND
    assert (await found(documents, for_person=False))[1] == server_without
    assert (await found({**documents, OPENID_URL: without}))[1] == server_without  # which gets no login


async def test_json_that_is_no_metadata_is_not_read() -> None:
    root, other = "https://mcp.test/.well-known/oauth-protected-resource", {"message": "no such page"}
    documents = {RESOURCE_URL: other, root: RESOURCE, SERVER_URL: other, OPENID_URL: SERVER}

    assert await found(documents) == (Resource(MCP, (ISSUER,), None), FOUND)


async def test_of_several_authorization_servers_one_that_knows_the_client_or_the_first_is_used() -> None:
    documents = {RESOURCE_URL: {**RESOURCE, "authorization_servers": ["https://a.test", ISSUER]}, SERVER_URL: SERVER}

    assert (await found(documents))[1] == FOUND
    assert (await found(documents, issuer=ISSUER))[1] == FOUND
    with pytest.raises(DiscoveryFailed, match=r"https://a\.test, https://as\.test/tenant, not https://b\.test"):
        await found(documents, issuer="https://b.test")


async def test_metadata_may_have_another_issuer_that_the_host_knows() -> None:
    stated = "https://as.test"  # without the path
    documents = {RESOURCE_URL: RESOURCE, SERVER_URL: {**SERVER, "issuer": stated}}
    known = {ISSUER: stated}

    for issuer in (None, ISSUER, stated):
        assert (await found(documents, aliases=known, issuer=issuer))[1] == replace(FOUND, issuer=stated)
    assert (await found({RESOURCE_URL: RESOURCE, SERVER_URL: SERVER}, aliases=known))[1] == FOUND  # mended


@pytest.mark.parametrize(
    ("scheme", "auth"), [("basic", r"httpx\.BasicAuth\(user, password\)"), ("digest", r"another httpx\.Auth")]
)
async def test_a_server_that_wants_no_token_has_the_endpoints_of_its_metadata_or_none(scheme: str, auth: str) -> None:
    documents = Documents({RESOURCE_URL: RESOURCE, SERVER_URL: SERVER})

    assert (await discover(documents, MCP, Challenge(scheme), Steps()))[1] == FOUND
    with pytest.raises(DiscoveryFailed, match=f"it wants {scheme.title()}, not a token: pass {auth} as auth"):
        await discover(Documents({}), MCP, Challenge(scheme), Steps())


@pytest.mark.fault("O01", "O05", "O06", "O11")
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"issuer": f"{ISSUER}/"}, "its issuer is https://as.test/tenant/, not https://as.test/tenant"),
        ({"issuer": ISSUER.upper()}, "its issuer is HTTPS://AS.TEST/TENANT, not https://as.test/tenant"),
        ({"issuer": None}, "its issuer is None"),
        ({"token_endpoint": None}, "it has no token_endpoint"),
        ({"token_endpoint": "http://as.test/token"}, "its token_endpoint is no plain https URL"),
        ({"token_endpoint": ["https://as.test"]}, "its token_endpoint is no plain https URL"),
        ({"token_endpoint": "https://a:b@as.test/token"}, "its token_endpoint is no plain https URL"),
        ({"authorization_endpoint": "https://bank.test@as.test/"}, "its authorization_endpoint is no plain https URL"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "its authorization_endpoint is no plain https URL"),
    ],
)
async def test_metadata_that_must_not_be_used_say_why(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(DiscoveryFailed) as raised:
        await found({RESOURCE_URL: RESOURCE, SERVER_URL: {**SERVER, **changed}})

    assert f"at {SERVER_URL}: refused: {problem}" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "for_person"),
    [
        *((f"{name}_endpoint", True) for name in ("registration", "device_authorization", "revocation")),
        ("authorization_endpoint", False),
    ],
)
async def test_an_endpoint_that_may_be_absent_and_is_no_https_url_is_absent(name: str, for_person: bool) -> None:
    for url in ("", "/relative", "http://as.test/x", "file:///etc/passwd", 7, ["https://as.test"]):
        documents, steps = Documents({RESOURCE_URL: RESOURCE, SERVER_URL: {**SERVER, name: url}}), Steps()

        _, server = await discover(documents, MCP, NO_CHALLENGE, steps, for_person=for_person)

        assert (getattr(server, name), server.token_endpoint) == (None, FOUND.token_endpoint)
        assert str(steps[-1]).endswith(f"at {SERVER_URL}: its {name} is no plain https URL: not used")


@pytest.mark.fault("O10")
@pytest.mark.parametrize(
    "changed",
    [
        {"resource": "https://other.test/mcp"},
        {"resource": 7},
        {"authorization_servers": []},
        {"authorization_servers": "x"},
    ],
)
async def test_metadata_of_a_resource_that_must_not_be_used_end_the_discovery(changed: dict[str, Any]) -> None:
    network = Documents({RESOURCE_URL: {**RESOURCE, **changed}, SERVER_URL: SERVER})

    with pytest.raises(DiscoveryFailed, match=f"at {RESOURCE_URL}: refused: "):
        await discover(network, MCP, NO_CHALLENGE, Steps())
    assert network.asked == [RESOURCE_URL]


async def test_a_server_that_is_busy_or_has_other_metadata_does_not_get_the_endpoints_of_2025_03_26() -> None:
    for status in (408, 425, 429, 500, 503):
        with pytest.raises(DiscoveryFailed, match=f"oauth-protected-resource/mcp: HTTP {status}\n"):
            await found({RESOURCE_URL: status})
    with pytest.raises(DiscoveryFailed, match="no metadata of its authorization server can be used"):
        await found({"https://mcp.test/.well-known/oauth-authorization-server": SERVER})


async def test_a_document_that_is_not_reached_is_looked_for_at_the_next_place() -> None:
    refused, steps = AddressRefused("a private address"), Steps()
    network = Documents({RESOURCE_URL: RESOURCE, SERVER_URL: refused, OPENID_URL: SERVER})

    assert (await discover(network, MCP, NO_CHALLENGE, steps))[1] == FOUND
    assert str(steps[1]).endswith(f"at {SERVER_URL}: refused or not reached: a private address")
    with pytest.raises(DiscoveryFailed, match="refused or not reached: a private address\n"):  # no default endpoints
        await found({RESOURCE_URL: refused})


async def test_metadata_of_a_resource_that_do_not_name_it_are_of_the_server() -> None:
    resource, _ = await found({RESOURCE_URL: {"authorization_servers": [ISSUER]}, SERVER_URL: SERVER})

    assert resource == Resource(MCP, (ISSUER,), None)


async def test_a_server_without_any_metadata_has_the_endpoints_of_2025_03_26_and_is_told_that_revision() -> None:
    network = Documents({})
    resource, server = await discover(network, MCP, NO_CHALLENGE, Steps())

    assert resource == Resource(MCP, ("https://mcp.test",), None)
    assert server == AuthorizationServer(
        "https://mcp.test",
        "https://mcp.test/authorize",
        "https://mcp.test/token",
        "https://mcp.test/register",
        code_challenge_methods=("S256",),
        is_assumed=True,
    )
    assert dict(zip(network.asked, network.headers, strict=True)) == {
        RESOURCE_URL: None,
        "https://mcp.test/.well-known/oauth-protected-resource": None,
        "https://mcp.test/.well-known/oauth-authorization-server": {"MCP-Protocol-Version": "2025-03-26"},
        "https://mcp.test/.well-known/openid-configuration": {"MCP-Protocol-Version": "2025-03-26"},
    }


@on_both
@pytest.mark.fake_clock
async def test_places_that_never_answer_have_a_minute_in_all() -> None:
    class Slow(Documents):
        async def get_json(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
            await anyio.sleep(29)
            return await super().get_json(url, headers)

    network = Slow({RESOURCE_URL: {**RESOURCE, "authorization_servers": [f"https://as.test/{n}" for n in range(9)]}})
    begun = anyio.current_time()

    with pytest.raises(DiscoveryFailed, match=f"^{MCP}: its authorization server is not found within 60 seconds\n"):
        await discover(network, MCP, NO_CHALLENGE, Steps())
    assert anyio.current_time() - begun == 60
    assert len(network.asked) == 2


async def test_a_server_with_thousands_of_authorization_servers_has_a_short_error() -> None:
    issuers = [f"https://as.test/{number}" for number in range(10_000)]

    with pytest.raises(DiscoveryFailed) as failed:
        await found({RESOURCE_URL: {**RESOURCE, "authorization_servers": issuers}}, issuer=ISSUER)
    assert len(str(failed.value)) < 1000
