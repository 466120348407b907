"""A server of the handshake era down to the bytes, with good manners everywhere but for what a test puts in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, StreamableHttp
from mcp_host.errors import McpError
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.types import TextContent
from tests.faults.naming import naming
from tests.transports.http_peers import JSON, Heard, Peer, Script, Wire, head, serving, timed
from tests.transports.legacy_peers import Answer, in_turn, refuse

SOON = 25.0  # seconds, on a busy machine; the deadlines for a connection and for calls come later
TIDES = [TextContent(text="high")]

DONE = b'{"jsonrpc":"2.0","id":@id,"result":{"content":[{"type":"text","text":"high"}]}}'
"""The good reply to a call. Wherever a test writes @id, the id of the request is put in."""

LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"waves"}}'
ASK = (
    b'{"jsonrpc":"2.0","id":"q-1","method":"sampling/createMessage","params":{"maxTokens":9,'
    b'"messages":[{"role":"user","content":{"type":"text","text":"And now?"}}]}}'
)
DISCOVERED = (
    b'{"jsonrpc":"2.0","id":@id,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],'
    b'"capabilities":{"tools":{"listChanged":true}}}}'
)
CAPABILITIES: dict[str, object] = {"tools": {}, "logging": {}}


def mcp(**answers: Answer) -> Script:
    """The script of a server that is good, but for *answers*, named as `subject` names what they answer."""
    manners = {**MANNERS, **answers}

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            await manners[subject(heard)](wire, heard)

    return script


def subject(heard: Heard) -> str:
    """What a request is about: "get", "delete", "initialize", "call" for tools/call, "answer" for one of ours."""
    if heard.method != "POST":
        return heard.method.lower()
    method: str = heard.rpc.get("method", "answer")
    return method.rpartition("/")[2]


def subjects(peer: Peer) -> list[str]:
    """What the server has been asked so far, in order."""
    return [subject(heard) for heard in peer.heard]


def filled(template: bytes, heard: Heard) -> bytes:
    return template.replace(b"@id", json.dumps(heard.rpc.get("id")).encode()) if b"@id" in template else template


# Answers


def says(template: bytes = DONE, status: int = 200, **headers: str) -> Answer:
    """A sized body; JSON unless *headers* say otherwise, which are written with underscores."""
    named = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.reply(status, {name: value for name, value in named.items() if value}, filled(template, heard))

    return answer


def sends(template: bytes, *, reset: bool = False) -> Answer:
    """These very bytes, and the end of the connection."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(filled(template, heard))
        await (wire.reset() if reset else wire.end())

    return answer


def streams(*templates: bytes, stay: bool = False, **headers: str) -> Answer:
    """An event stream of *templates*, which then ends, or stays open."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(*(filled(template, heard) for template in templates), **headers)
        await (wire.hung_up() if stay else wire.end())

    return answer


def storm(answer: Answer) -> Answer:
    """Only a call of the tool "storm" is answered so: for tests that cannot tell whether such a call arrives at all."""

    async def by_name(wire: Wire, heard: Heard) -> None:
        await (answer if heard.rpc["params"]["name"] == "storm" else says())(wire, heard)

    return by_name


def welcome(session: str | None = "s-1", **result: Any) -> Answer:
    """The reply to initialize."""

    async def answer(wire: Wire, heard: Heard) -> None:
        version = heard.rpc["params"]["protocolVersion"]
        info = {"name": "tidal", "version": "1"}
        said = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info, **result}
        body = json.dumps({"jsonrpc": "2.0", "id": heard.rpc["id"], "result": said}).encode()
        await wire.reply(200, {**JSON, **({"mcp-session-id": session} if session else {})}, body)

    return answer


async def accept(wire: Wire, heard: Heard) -> None:
    await wire.reply(202)


async def drop(wire: Wire, heard: Heard) -> None:
    await wire.end()


async def reset(wire: Wire, heard: Heard) -> None:
    await wire.reset()


MANNERS: dict[str, Answer] = {
    "discover": says(b'{"jsonrpc":"2.0","id":@id,"error":{"code":-32601,"message":"no such method"}}'),
    "initialize": welcome(),
    "initialized": accept,
    "cancelled": accept,
    "answer": accept,
    "call": says(),
    "ping": says(b'{"jsonrpc":"2.0","id":@id,"result":{}}'),
    "get": refuse,
    "delete": says(b"", 200),
}


# Clients


@asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[tuple[Client, Peer]]:
    """A client of such a server, and the server.

    *headers*, *client*, *max_connections*, *sleep*, *sleep_unsent* and *drain_time* are those of the transport. *retry_delays* are the
    seconds before each resend of one message.
    """
    of_transport = ("headers", "client", "max_connections", "sleep", "sleep_unsent", "drain_time")
    carried = {name: options.pop(name) for name in of_transport if name in options}
    retry_delays = options.pop("retry_delays", RETRY_DELAYS)
    async with serving(script) as peer:
        client = Client(timed(peer.url, **carried), **{"era": "legacy", **options})
        client._state.retry_delays = retry_delays
        async with client:
            yield client, peer


async def tides(client: Client, **options: Any) -> None:
    """Make a call that has to work, and soon."""
    with fail_after(SOON):
        assert (await client.call_tool("tides", **options)).content == TIDES


async def error_of(spoiled: Answer, **options: Any) -> McpError:
    """How a call fails, soon, whose answer is *spoiled*: that call alone, for the next works in the same session."""
    (error,) = (await errors_of({"": spoiled}, **options)).values()
    return error


async def errors_of(spoiled: Mapping[str, Answer], **options: Any) -> dict[str, McpError]:
    """How a call fails for each of the *spoiled* answers, one after the other in the same session."""
    errors = {}
    call = in_turn(*(answer for each in spoiled.values() for answer in (each, says())))
    async with connected(mcp(call=call), **options) as (client, peer):
        for name in spoiled:
            with naming(name):
                errors[name] = await failing(client)
                await tides(client)

    assert subjects(peer).count("initialize") == 1
    return errors


async def failing(client: Client, tool: str = "tides", **options: Any) -> McpError:
    """Make a call that has to fail, and soon."""
    with fail_after(SOON), pytest.raises(McpError) as caught:
        await client.call_tool(tool, **options)
    return caught.value


async def refused(script: Script, *, headers: Mapping[str, str] | None = None, **options: Any) -> McpError:
    """How connecting to such a server fails, soon."""
    async with serving(script) as peer:
        with fail_after(SOON), pytest.raises(McpError) as caught:
            await Client(StreamableHttp(peer.url, headers=headers), **options).connect()
    return caught.value


def chunked(*pieces: bytes) -> bytes:
    """An event stream's head, and *pieces* of its body, in a coding that says whether it was cut."""
    framed = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}) + b"".join(framed)
