"""The keys of an authorization server: which are used, when they are fetched, and what happens if they cannot be."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator

import pytest
from anyio import create_task_group, fail_after
from joserfc.jwk import OctKey

from mcp_host.auth import AuthError
from mcp_host.auth.access_tokens import KEYS_INTERVAL, KEYS_LIFETIME, RETRY_INTERVAL, TokenVerifier, read_keys
from mcp_host.auth.errors import DiscoveryFailed
from tests.asgi import serving
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.signing import ED25519, KEY, OTHER_KEY, RSA, claims, public, signed, signing_server
from tests.extent import on_both

RESOURCE = "https://mcp.example/mcp"


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    server = signing_server()
    with serving(server.app()) as server.origin:
        yield server


class Clock:
    """Of a verifier: only tests move it."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def token(server: AuthorizationServer, **changed: object) -> str:
    return signed(claims(server.issuer, RESOURCE, exp=int(time.time()) + 3 * int(KEYS_LIFETIME), **changed))


def of_other_key(server: AuthorizationServer) -> str:
    return signed(claims(server.issuer, RESOURCE), OTHER_KEY, kid="2")


@on_both
async def test_keys_are_fetched_once_and_again_for_an_unknown_one_but_not_at_once(server: AuthorizationServer) -> None:
    clock = Clock()
    verifier = TokenVerifier(server.issuer, RESOURCE, clock=clock)
    ada = (server.issuer, "sub", "ada")
    with fail_after(25):
        async with create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(verifier.verify, token(server))
        assert await verifier.verify(token(server)) == ada
        assert server.count("jwks") == 1

        server.keys = [public(OTHER_KEY)]
        for _ in range(2):
            with pytest.raises(ValueError, match="its key is none of the issuer's"):
                await verifier.verify(of_other_key(server))
        assert server.count("jwks") == 1

        clock.now += KEYS_INTERVAL
        assert await verifier.verify(of_other_key(server)) == ada
        assert server.count("jwks") == 2
        with pytest.raises(ValueError, match="its key is none"):
            await verifier.verify(token(server))


@on_both
async def test_a_key_that_the_issuer_has_withdrawn_expires(server: AuthorizationServer) -> None:
    clock = Clock()
    verifier = TokenVerifier(server.issuer, RESOURCE, clock=clock)
    with fail_after(25):
        await verifier.verify(token(server))
        server.keys = [public(OTHER_KEY)]
        clock.now += KEYS_LIFETIME - 1
        await verifier.verify(token(server))
        clock.now += 1
        with pytest.raises(ValueError, match="its key is none"):
            await verifier.verify(token(server))


@on_both
async def test_an_issuer_that_fails_is_asked_again_after_a_while(
    server: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    verifier = TokenVerifier(server.issuer, RESOURCE, clock=clock)
    server.refuse("jwks", 500)
    with fail_after(25), caplog.at_level(logging.WARNING, "mcp_host"):
        for _ in range(2):
            with pytest.raises(DiscoveryFailed, match=r"/jwks: HTTP 500, no key that can be used"):
                await verifier.verify(token(server))
        assert [record.getMessage() for record in caplog.records] == [
            f"tokens cannot be checked: {server.issuer}/jwks: HTTP 500, no key that can be used"
        ]
        del server.answers["jwks"]
        clock.now += RETRY_INTERVAL
        assert await verifier.verify(token(server)) == (server.issuer, "sub", "ada")

        server.refuse("jwks", 500)
        clock.now += KEYS_INTERVAL
        with pytest.raises(AuthError):
            await verifier.verify(of_other_key(server))
        await verifier.verify(token(server))  # whose key is known


@on_both
async def test_metadata_that_have_no_keys_are_refused(subtests: pytest.Subtests, server: AuthorizationServer) -> None:
    for metadata, problem in (
        ({"jwks_uri": None}, "its metadata have no jwks_uri that can be used"),
        ({"jwks_uri": "http://mcp.example/jwks"}, "its metadata have no jwks_uri that can be used"),
        ({"issuer": "https://other.example"}, "no metadata of this authorization server can be used"),
    ):
        with subtests.test(problem), fail_after(25):
            server.metadata = dict[str, object](metadata)
            with pytest.raises(DiscoveryFailed, match=problem):
                await TokenVerifier(server.issuer, RESOURCE).verify(token(server))


def test_keys_that_cannot_be_used_are_left_out(subtests: pytest.Subtests) -> None:
    secret = OctKey.generate_key(256, {"kid": "1"})
    broken = {"kty": "EC", "crv": "P-256", "x": "!", "y": ""}
    rows: list[tuple[object, list[str]]] = [
        ([public(KEY), public(RSA), public(ED25519)], ["1", "rsa", "ed"]),
        ([secret.as_dict(private=True), {"kty": "new"}, {}, 1, broken, public(OTHER_KEY)], ["2"]),
        ([{name: value for name, value in public(KEY).items() if name != "kid"}], [KEY.thumbprint()]),
        ([], []),
        ("keys", []),
    ]
    for keys, kids in rows:
        with subtests.test(str(keys)):
            assert [key.kid for key in read_keys({"keys": keys})] == kids
    assert read_keys({}) == []


def test_an_issuer_and_a_resource_have_to_be_urls(subtests: pytest.Subtests) -> None:
    for issuer, resource, problem in (
        ("http://auth.example", RESOURCE, "the issuer is an https URL, not http://auth.example"),
        ("auth.example", RESOURCE, "the issuer is an https URL"),
        ("https://auth.example", "mcp.example", "not the canonical URL"),
        ("https://auth.example", "https://MCP.example/", "canonical URL of a resource: https://mcp.example$"),
        ("https://auth.example", f"{RESOURCE}?a=b", f"canonical URL of a resource: {RESOURCE}$"),
    ):
        with subtests.test(f"{issuer} {resource}"), pytest.raises(ValueError, match=problem):
            TokenVerifier(issuer, resource)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)
    with pytest.raises(ImportError, match=r"joserfc is not installed: pip install 'mcp-host\[oauth\]'"):
        TokenVerifier("https://auth.example", RESOURCE)
