"""Private keys: what is signed with them, and which of them a client authenticates with."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from mcp_host.auth import Dynamic, MemoryTokens, PrivateKey, PrivateKeyJwt, Registered
from mcp_host.auth.keys import Proofs, new_key
from tests.auth.verifying import ASSERTION_TYPE, unverified, verify_assertion, verify_proof
from tests.auth.world import CALLBACK, World

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey


@cache
def new(algorithm: str, id: str = "k") -> ECKey | RSAKey | OKPKey:
    """A key for *algorithm*."""
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    match algorithm:
        case "ES256" | "ES384":
            return ECKey.generate_key(f"P-{algorithm[2:]}", {"kid": id})
        case "Ed25519":
            return OKPKey.generate_key("Ed25519", {"kid": id})
        case _:
            return RSAKey.generate_key(2048, {"kid": id})


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "RS256", "PS256", "Ed25519"])
def test_assertions_are_signed_by_the_algorithm_of_the_key(algorithm: str) -> None:
    key = new(algorithm)
    private = PrivateKey(key.as_pem(private=True), algorithm, id="k")

    for _ in range(2):
        given = private.assertion("me", "https://as.test")
        fields = {"client_assertion": given, "client_assertion_type": ASSERTION_TYPE}
        verify_assertion(fields, "me", "https://as.test", [key.as_dict(private=False)])
        assert unverified(given)[0]["alg"] == algorithm
    without_id = PrivateKey(key.as_pem(private=True), algorithm).assertion("me", "https://as.test")
    assert unverified(without_id)[0] == {"typ": "JWT", "alg": algorithm}
    assert repr(private) == f"PrivateKey({algorithm})"


def test_what_is_no_private_key_for_the_algorithm_is_refused(subtests: pytest.Subtests) -> None:
    key = new("ES256")
    rows: list[tuple[str | bytes, str]] = [
        *((key.as_pem(private=True), algorithm) for algorithm in ("ES384", "RS256", "HS256", "none", "")),
        *((pem, "ES256") for pem in ("canary", b"", key.as_pem(private=False))),
    ]
    for row, (pem, algorithm) in enumerate(rows):
        with subtests.test(algorithm, row=row):
            with pytest.raises(ValueError, match=f"^not the PEM of a private key for {algorithm}$") as refused:
                PrivateKey(pem, algorithm)

            assert refused.value.__suppress_context__  # its text may quote the key


def test_a_key_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)

    with pytest.raises(ImportError, match=r"joserfc is not installed: pip install 'mcp-host\[oauth\]'"):
        PrivateKey("")


def test_proofs_are_for_a_request_and_its_token() -> None:
    proofs, thumbprints = Proofs(new_key()), set()
    urls = ["https://h/mcp", "https://h:8443/a/?q=1#f", "http://127.0.0.1:1/"]
    for method, url, token in [("POST", urls[0], None), ("GET", urls[0], "t"), *(("POST", url, "t") for url in urls)]:
        header = proofs.header(method, url, token)
        thumbprints.add(verify_proof([header["DPoP"]], method, url, token=token))
    [proof] = proofs.header("GET", "https://user:secret@h/mcp").values()

    assert len(thumbprints) == 1
    assert unverified(proof)[1]["htu"] == "https://h/mcp"


def test_a_nonce_is_of_its_server_and_of_visible_characters() -> None:
    """RFC 9449, section 8.1."""
    proofs = Proofs(new_key())
    given = ["n-1", "n-1", "n-1, n-1", "n-1, n-3", "", "ä", "a\n", "n-2, n-2"]

    assert [proofs.heard("https://h/a", {"dpop-nonce": nonce}) for nonce in given] == [True, *[False] * 6, True]
    assert not proofs.heard("https://h/a", {})
    nonces = [unverified(proofs.header("GET", url)["DPoP"])[1].get("nonce") for url in ("https://h/b", "https://i/a")]
    assert nonces == ["n-2", None]


def made_key(world: World, name: str) -> PrivateKey:
    """A key of *name*, with which a client of that name is registered."""
    key = new("ES256", name)
    jwks = {"keys": [key.as_dict(private=False)]}
    fields = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "private_key_jwt", "jwks": jwks}
    world.server.clients[name] = fields
    return PrivateKey(key.as_pem(private=True), id=name)


def registered(world: World, name: str) -> Registered:
    return Registered(name, issuer=world.server.issuer, key=made_key(world, name))


async def test_a_machine_authenticates_with_its_key_and_in_time_again() -> None:
    world = World(lifetime=100)
    machine = PrivateKeyJwt("one", made_key(world, "one"))
    auth = world.machine(machine)

    assert await world.call(auth) == 200
    world.now += 200
    assert await world.call(auth) == 200

    assert world.server.assertions == [("one", "one")] * 2
    assert world.site.seen.count("") == 1
    assert repr(machine) == "PrivateKeyJwt('one')"


async def test_a_token_is_gotten_and_refreshed_with_the_key_of_its_client_whichever_others_are_passed() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    one, two = registered(world, "one"), registered(world, "two")

    for registration in ([one, two], [two, one], [one, two]):
        assert await world.call(world.oauth(tokens=store, registration=registration)) == 200
        world.now += 200

    assert world.server.assertions == [("one", "one")] * 3
    assert (world.logins, world.refreshes) == (1, 2)


async def test_a_client_whose_key_is_not_passed_any_more_logs_in_as_another() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    await world.log_in(tokens=store, registration=registered(world, "one"), later=200)

    assert await world.call(world.oauth(tokens=store, registration=[registered(world, "two"), Dynamic()])) == 200

    assert world.server.assertions == [("one", "one"), ("two", "two")]
