"""What the era decides about a channel: when silence begins, and whose session a request is in."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, StreamableHttp
from mcp_host.protocol.negotiation import LEGACY_VERSIONS, AllowedVersions
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.in_process import MemoryChannel
from tests.client.sites import DISCOVERED, Site, handshake, refused
from tests.client.support import DISCOVER, EMPTY, connected
from tests.clock import advance
from tests.extent import on_both
from tests.transports.http_peers import JSON, Heard, Wire, serving

SESSION_ID = "mcp-session-id"
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"


@on_both
@pytest.mark.fake_clock
async def test_the_silence_of_a_server_begins_when_it_has_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long to start is not asked to shake hands meanwhile."""
    up = anyio.Event()
    heard_while_starting: list[str] = []

    async def wait_until_started(channel: MemoryChannel) -> None:
        await up.wait()

    async def script(peer: ScriptedPeer) -> None:
        await peer.receive(DISCOVER)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.answer_initialize)
            await anyio.sleep(5)  # more than the silence of a server that runs, and less than a start may take
            heard_while_starting.extend(message["method"] for message in peer.received)
            up.set()

    monkeypatch.setattr(MemoryChannel, "wait_until_started", wait_until_started)
    peer = ScriptedPeer(script)
    async with connected(peer, within=10) as client:
        assert client.protocol_version == "2025-11-25"

    assert heard_while_starting == [DISCOVER]


async def test_a_version_that_is_refused_is_not_spoken_again() -> None:
    older, newer = "2026-07-28", "2027-01-31"

    def discover(message: dict[str, Any]) -> object:
        requested = message["params"]["_meta"][PROTOCOL_VERSION]
        no = refused(400, -32022, {"supported": [older], "requested": requested})
        return DISCOVERED if requested == older else no(message)

    site = Site(server_discover=discover, tools_list={"tools": []}, tools_call=EMPTY)
    client = site.client()
    client._state.allowed_versions = AllowedVersions((newer, older), LEGACY_VERSIONS)
    with anyio.fail_after(5):
        async with client:
            await client.list_tools()
            await client.call_tool("x")
            assert client.protocol_version == older

    assert [said(post) for post in site.posts] == [
        (DISCOVER, newer, newer),
        (DISCOVER, older, older),
        ("tools/list", older, older),
        ("tools/call", older, older),
    ]


def said(post: httpx.Request) -> tuple[str, str, str]:
    """The method of a request, and the version that it is in: by its body, and by its headers."""
    message = json.loads(post.content)
    return message["method"], message["params"]["_meta"][PROTOCOL_VERSION], post.headers["mcp-protocol-version"]


# Sessions


async def answer(wire: Wire, heard: Heard, result: Any, **headers: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": heard.rpc["id"], "result": result}).encode()
    await wire.reply(200, {**JSON, **headers}, body)


WELCOME = json.loads(handshake({"id": 0}).content)["result"]


@on_both
@pytest.mark.adjustable_clock
async def test_a_session_begun_beside_a_slow_probe_is_not_used_with_a_modern_server() -> None:
    """It speaks both: in one era it began a session, in the other it knows of none."""
    begun = anyio.Event()

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.method != "POST":
                await wire.reply(405)
                continue
            match heard.rpc["method"]:
                case "server/discover":
                    advance(2)  # the silence after which a handshake is begun
                    await begun.wait()
                    await answer(wire, heard, DISCOVERED)
                case "initialize":
                    await answer(wire, heard, WELCOME, **{SESSION_ID: "s-1"})
                case "notifications/initialized":
                    begun.set()
                    await wire.hung_up()
                    return
                case _:
                    await answer(wire, heard, EMPTY)

    with anyio.fail_after(10):
        async with serving(script) as peer, Client(StreamableHttp(peer.url)) as client:
            await client.call_tool("x")
            await client.call_tool("x")
            assert client.protocol_version == "2026-07-28"

    posts = [heard for heard in peer.heard if heard.method == "POST"]
    assert sorted((heard.rpc["method"], heard.headers.get(SESSION_ID)) for heard in posts) == [
        ("initialize", None),
        ("notifications/initialized", "s-1"),
        (DISCOVER, None),
        ("tools/call", None),
        ("tools/call", None),
    ]


async def test_a_session_id_that_a_modern_server_offers_is_ignored() -> None:
    """It goes with no request, and nothing is opened or deleted for it."""
    heard: list[tuple[str, str | None]] = []

    class Offering(Site):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            heard.append((request.method, request.headers.get(SESSION_ID)))
            response = super().__call__(request)
            response.headers[SESSION_ID] = "s-1"
            return response

    site = Offering(tools_list={"tools": []}, tools_call=EMPTY)
    async with site.connected() as client:
        await client.list_tools()
        await client.call_tool("x")

    assert heard == 3 * [("POST", None)]
