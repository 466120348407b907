"""The nonces of proofs, which a server may give with any response (RFC 9449, section 8.2)."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import anyio

from mcp_host import OAuth, StreamableHttp
from mcp_host.auth import Registered
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Request
from tests.auth.verifying import unverified, verify_proof
from tests.auth.world import CALLBACK
from tests.transports.http_peers import Heard, Peer, RecordedHandle, Wire, serving

JSON = {"content-type": "application/json"}
PING, PONG = Request(7, "ping", {}), b'{"jsonrpc":"2.0","id":7,"result":{}}'


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
        with anyio.fail_after(10):
            async with StreamableHttp(peer.url, auth=auth).open(Limits()) as channel:
                for _ in range(5):
                    await channel.request(PING, {}, RecordedHandle())

    assert statuses == [401, 200, 200, 200, 200, 200]
