"""Text of strangers in the heads of our HTTP requests, where lines mean something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from anyio import fail_after

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectionClosed
from tests.faults.http_server import SOON, connected, mcp, says, subjects, tides
from tests.transports.http_contract import by_httpx  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import serving
from tests.transports.legacy_peers import in_turn

DISCOVERED = b'{"jsonrpc":"2.0","id":@id,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}}}}'
PROMPT = b'{"jsonrpc":"2.0","id":@id,"result":{"messages":[]}}'
RESOURCE = b'{"jsonrpc":"2.0","id":@id,"result":{"contents":[]}}'

BREAKS = [
    "a\r\nX-Admin: yes",
    "a\nX-Admin: yes",
    "a\rX-Admin: yes",
    "a\r\n\r\nGET /admin HTTP/1.1\r\n\r\n",
    "a\0b",
    "\x85\u2028",
]

Verb = Callable[[Client, str], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "call": lambda client, name: client.call_tool(name),
    "get": lambda client, name: client.get_prompt(name),
    "read": lambda client, name: client.read_resource(f"x:{name}"),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_a_name_cannot_inject_a_header_or_a_request(verb: Verb) -> None:
    script = mcp(discover=says(DISCOVERED), call=says(), get=says(PROMPT), read=says(RESOURCE))
    async with serving(script) as peer, Client(StreamableHttp(peer.url)) as client:
        with fail_after(SOON):
            await verb(client, "plain")
            plain = peer.heard[-1]
            for name in BREAKS:
                await verb(client, name)

    assert len(peer.heard) == 2 + len(BREAKS)
    assert all(heard.headers.keys() == plain.headers.keys() for heard in peer.heard[2:])
    assert all(heard.headers["mcp-name"].isprintable() for heard in peer.heard[2:])


PATHS = {
    "/x y": "/x%20y",
    "/x HTTP/1.1": "/x%20HTTP/1.1",
    "/%0d%0aX-Admin:%20yes": "/%0d%0aX-Admin:%20yes",
    "/\xa0\x85\xff": "/%C2%A0%C2%85%C3%BF",
    "?a b#c": "/mcp?a%20b",
    "/../..//x": "/x",
    "\\x": "/\\x",
}


async def test_a_redirect_cannot_inject_a_header_or_a_request() -> None:
    """Where it leads is written into the next request's first line."""
    redirects = [answer for location in PATHS for answer in (says(b"", 307, location=location), says())]
    async with connected(mcp(call=in_turn(says(), *redirects))) as (client, peer):
        await tides(client)
        plain, paths = peer.heard[-1], []
        for _ in PATHS:
            await tides(client)
            paths.append(peer.heard[-1].path)
            assert peer.heard[-1].headers == plain.headers

    assert paths == [*PATHS.values()]
    assert subjects(peer).count("call") == 1 + 2 * len(PATHS)


async def test_a_redirect_to_an_invalid_url_fails_only_its_call() -> None:
    async with connected(mcp(call=in_turn(says(b"", 307, location="/\tx"), says()))) as (client, peer):
        with (
            fail_after(SOON),
            pytest.raises(ConnectionClosed, match=r"Invalid URL in location header: .* non-printable"),
        ):
            await client.call_tool("tides")
        await tides(client)

    assert subjects(peer).count("call") == 2
