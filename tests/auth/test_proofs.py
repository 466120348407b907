"""DPoP: each token is sent with a proof by its own key, whichever process has logged in, and whatever becomes of other logins."""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64decode
from typing import Any
from urllib.parse import parse_qs, urlencode

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import AuthorizationNeeded, DiscoveryFailed, LoginFailed, MemoryTokens, OAuth
from tests.auth.authorization_server import parameters
from tests.auth.world import CALLBACK, Gate, World

SOON = 10.0  # seconds, on a busy machine


def decoded(part: str) -> Any:
    return json.loads(urlsafe_b64decode(part + "=="))


class Bound:
    """Servers whose tokens are bound to keys."""

    def __init__(self, **options: Any) -> None:
        metadata = {"dpop_signing_alg_values_supported": ["ES256"]}
        self.world = World(lifetime=100, metadata=metadata, **options)
        self.store = MemoryTokens()
        self.keys: dict[str, str] = {}
        """Of each token, and of what refreshes it (RFC 9449, section 5)."""
        self.nonce = ""
        """What the token endpoint wants in proofs, if it does."""
        self.world.server.answers["token"] = self.token
        self.world.apps[1002] = self._protected

    def oauth(self, **options: Any) -> OAuth:
        return self.world.oauth(tokens=self.store, dpop=True, **options)

    async def token(self, request: Request) -> Response:
        header, claims, _ = request.headers["dpop"].split(".")
        if decoded(claims).get("nonce", "") != self.nonce:
            return JSONResponse({"error": "use_dpop_nonce"}, 400, {"dpop-nonce": self.nonce})
        key = decoded(header)["jwk"]["x"]
        asked = parse_qs((await request.body()).decode())
        if [self.keys.get(token) for token in asked.get("refresh_token", [])] not in ([], [key]):
            return JSONResponse({"error": "invalid_dpop_proof"}, 400)
        document = json.loads(bytes((await self.world.server._token(request)).body))
        self.keys |= {document[name]: key for name in ("access_token", "refresh_token") if name in document}
        return JSONResponse({**document, "token_type": "DPoP"})

    async def _protected(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        token = headers.get(b"authorization", b"").decode().removeprefix("DPoP ")
        if token in self.keys and self.keys[token] == decoded(headers[b"dpop"].decode().partition(".")[0])["jwk"]["x"]:
            headers[b"authorization"] = f"Bearer {token}".encode()
        await self.world.site({**scope, "headers": [*headers.items()]}, receive, send)

    @property
    def unproved(self) -> int:
        """How many tokens came with a proof by another key."""
        return sum(seen.startswith("DPoP") for seen in self.world.site.seen)


async def test_each_token_is_sent_with_a_proof_by_its_own_key() -> None:
    """Two processes log in at once, each with a new key. One refreshes the token that the other has stored."""
    bound, both = Bound(), anyio.Event()
    world = bound.world

    async def person(url: str) -> str:
        redirected = await world.person(url)
        if world.logins == 2:
            both.set()
        await both.wait()
        return redirected

    processes = [bound.oauth(login=person) for _ in range(2)]

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for auth in processes:
                tasks.start_soon(world.call, auth)
        assert len({*bound.keys.values()}) == 2
        for auth in processes:
            world.now += 200
            assert await world.call(auth) == 200

    assert (world.logins, world.refreshes) == (2, 2)


async def test_a_login_that_is_denied_leaves_the_token_of_before_and_its_key() -> None:
    bound = Bound()
    world = bound.world
    one, other = (bound.oauth(login=None, redirect_uri=f"{CALLBACK}/{name}") for name in "ab")
    needed = []
    for auth in (one, other):
        with pytest.raises(AuthorizationNeeded) as raised:
            await world.call(auth)
        needed.append(raised.value)
    await one.finish(needed[0].state, await world.person(needed[0].url))
    denied = {"state": parameters(needed[1].url)["state"], "iss": world.server.issuer, "error": "access_denied"}

    with pytest.raises(LoginFailed, match="denied"):
        await one.finish(needed[1].state, f"{CALLBACK}?{urlencode(denied)}")

    assert await world.call(one) == 200
    assert bound.unproved == 0


async def test_the_token_of_another_process_that_has_logged_in_during_a_refresh_is_sent_with_its_key() -> None:
    bound = Bound()
    world = bound.world
    refreshing, other = bound.oauth(), bound.oauth()
    await world.call(refreshing)
    world.now += 200
    gate = Gate(world.server, "token")

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.call, refreshing)
            await gate.reached.wait()
            world.server.answers["token"] = bound.token
            await other.logout(world.site.url)
            assert await world.call(other) == 200
            gate.is_open.set()

    assert await world.call(refreshing) == 200
    assert (bound.unproved, world.logins) == (0, 2)


async def test_the_nonce_of_a_login_is_in_the_proof_of_the_refresh() -> None:
    bound = Bound()
    bound.nonce = "n-1"
    auth = bound.oauth()
    await bound.world.call(auth)
    bound.world.now += 200
    asked = 0

    async def counted(request: Request) -> Response:
        nonlocal asked
        asked += 1
        return await bound.token(request)

    bound.world.server.answers["token"] = counted

    assert await bound.world.call(auth) == 200
    assert asked == 1


async def test_without_dpop_the_next_login_binds_its_token_to_no_key() -> None:
    bound = Bound(gives_refresh_tokens=False)
    world = bound.world
    await world.call(bound.oauth())
    world.now += 200
    del world.server.answers["token"]

    assert await world.call(world.oauth(tokens=bound.store)) == 200
    assert world.site.seen[-1].startswith("Bearer ")
    assert world.logins == 2


async def test_a_server_that_does_not_offer_dpop_gets_no_login() -> None:
    world = World()

    with pytest.raises(DiscoveryFailed, match="does not offer DPoP with ES256"):
        await world.call(world.oauth(dpop=True))
    assert world.logins == 0


async def test_dpop_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Bound()
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)

    with pytest.raises(ImportError, match=r"joserfc is not installed: pip install 'mcp-host\[oauth\]'"):
        await bound.world.call(bound.oauth())
    assert bound.world.logins == 0
