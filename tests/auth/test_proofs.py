"""DPoP: each token is sent with a proof by its own key and with the newest nonce, whatever becomes of other logins."""

from __future__ import annotations

import json
import sys
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response

from mcp_host import StreamableHttp
from mcp_host.auth import DiscoveryFailed, LoginFailed, MemoryTokens, OAuth, Registered
from mcp_host.limits import Limits
from mcp_host.protocol import jsonrpc
from tests.auth.verifying import unverified, verify_proof
from tests.auth.world import CALLBACK, SOON, Gate, World, soon
from tests.extent import on_both
from tests.transports.http_peers import Heard, Peer, RecordedHandle, Wire, serving


class Bound(World):
    """A world whose tokens are bound to keys. Its servers verify each proof."""

    def __init__(self, **options: object) -> None:
        super().__init__(lifetime=100, metadata={"dpop_signing_alg_values_supported": ["ES256"]}, **options)
        self.store = MemoryTokens()

    def bound(self, **options: object) -> OAuth:
        return self.oauth(tokens=self.store, dpop=True, **options)


@on_both
async def test_each_token_is_sent_with_a_proof_by_its_own_key() -> None:
    """Two processes log in at once, each with a new key. One refreshes the token that the other has stored."""
    world, both = Bound(), anyio.Event()

    async def person(url: str) -> str:
        redirected = await world.person(url)
        if world.logins == 2:
            both.set()
        await both.wait()
        return redirected

    processes = [world.bound(login=person) for _ in range(2)]

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for auth in processes:
                tasks.start_soon(world.call, auth)
        assert len({token.thumbprint for token in world.server.tokens.values()}) == 2
        for auth in processes:
            world.now += 200
            assert await world.call(auth) == 200

    assert (world.logins, world.refreshes) == (2, 2)


async def test_a_login_that_is_denied_leaves_the_token_of_before_and_its_key() -> None:
    world = Bound()
    one, other = (world.bound(login=None, redirect_uri=f"{CALLBACK}/{name}") for name in "ab")
    first, second = await world.needed(one), await world.needed(other)
    await world.finish(one, first)
    denied = {"state": second.state, "iss": world.server.issuer, "error": "access_denied"}

    with pytest.raises(LoginFailed, match="denied"):
        await one.finish(second.state, f"{CALLBACK}?{urlencode(denied)}")

    assert await world.call(one) == 200


@on_both
async def test_the_token_of_another_process_that_has_logged_in_during_a_refresh_is_sent_with_its_key() -> None:
    world = Bound()
    refreshing, other = world.bound(), world.bound()
    await world.call(refreshing)
    world.now += 200
    gate = Gate(world.server, "token")

    async with soon() as tasks:
        tasks.start_soon(world.call, refreshing)
        await gate.reached.wait()
        del world.server.answers["token"]
        await other.logout(world.site.url)
        assert await world.call(other) == 200
        gate.is_open.set()

    assert await world.call(refreshing) == 200
    assert world.logins == 2


async def test_the_nonce_of_a_login_is_in_the_proof_of_the_refresh() -> None:
    world, asked = Bound(), 0
    world.server.nonce = "n-1"
    auth = world.bound()
    await world.call(auth)
    world.now += 200

    async def counted(request: Request) -> Response:
        nonlocal asked
        asked += 1
        return await world.server._token(request)

    world.server.answers["token"] = counted

    assert await world.call(auth) == 200
    assert asked == 1


async def test_without_dpop_the_next_login_binds_its_token_to_no_key() -> None:
    world = Bound(gives_refresh_tokens=False)
    await world.call(world.bound())
    world.now += 200

    assert await world.call(world.oauth(tokens=world.store)) == 200
    assert world.site.seen[-1].startswith("Bearer ")
    assert world.logins == 2


async def test_a_server_that_does_not_offer_dpop_gets_no_login() -> None:
    world = World()

    with pytest.raises(DiscoveryFailed, match="does not offer DPoP with ES256"):
        await world.call(world.oauth(dpop=True))
    assert world.logins == 0


async def test_dpop_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Bound()
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)

    with pytest.raises(ImportError, match=r"joserfc is not installed: pip install 'mcp-host\[oauth\]'"):
        await world.call(world.bound())
    assert world.logins == 0


JSON = {"content-type": "application/json"}
PING, PONG = jsonrpc.Request(7, "ping", {}), b'{"jsonrpc":"2.0","id":7,"result":{}}'


async def agree(url: str) -> str:
    [state] = parse_qs(urlsplit(url).query)["state"]
    return f"{CALLBACK}?code=yes&state={state}"


async def test_the_nonce_of_a_response_is_in_the_next_proof() -> None:
    """So a server that gives another with each response refuses one request, the first."""
    statuses: list[int] = []

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            origin = peer.url.removesuffix("/mcp")
            if heard.path.startswith("/.well-known/oauth-protected-resource"):
                document: dict[str, object] = {"resource": peer.url, "authorization_servers": [origin]}
            elif heard.path.startswith("/.well-known/"):
                endpoints = {"authorization_endpoint": f"{origin}/authorize", "token_endpoint": f"{origin}/token"}
                methods = {"code_challenge_methods_supported": ["S256"], "dpop_signing_alg_values_supported": ["ES256"]}
                document = {"issuer": origin, **endpoints, **methods}
            elif heard.path == "/token":
                document = {"access_token": "t", "token_type": "DPoP", "expires_in": 3600}
            else:
                await answer(wire, heard)
                continue
            await wire.reply(200, JSON, json.dumps(document).encode())

    async def answer(wire: Wire, heard: Heard) -> None:
        fresh, next_one = f"n-{len(statuses)}", {"dpop-nonce": f"n-{len(statuses) + 1}"}
        if "dpop" not in heard.headers:
            await wire.reply(401, {"www-authenticate": 'DPoP algs="ES256"'})
            return
        proof = heard.headers["dpop"]
        verify_proof([proof], heard.method, peer.url, token="t")
        statuses.append(200 if unverified(proof)[1].get("nonce") == fresh else 401)
        if statuses[-1] == 200:
            await wire.reply(200, {**JSON, **next_one}, PONG)
        else:
            await wire.reply(401, {"www-authenticate": 'DPoP error="use_dpop_nonce"', **next_one})

    auth = OAuth(registration=Registered("id"), login=agree, redirect_uri=CALLBACK, dpop=True)
    peer: Peer
    async with serving(script) as peer:
        with anyio.fail_after(25):
            async with StreamableHttp(peer.url, auth=auth).open(Limits()) as channel:
                for _ in range(5):
                    await channel.request(PING, {}, RecordedHandle())

    assert statuses == [401, 200, 200, 200, 200, 200]
