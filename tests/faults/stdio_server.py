"""Servers over stdio that say what a test wants them to say, to the byte, and clients of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from textwrap import dedent
from typing import Any

import pytest

from mcp_host import Client
from mcp_host.errors import McpError
from mcp_host.types import CallToolResult
from tests.client.support import QUESTION
from tests.faults.naming import naming
from tests.transports.children import TimedStdio, python

WORDS = f"""
def welcome(**capabilities):
    info = {{"name": "s", "version": "0"}}
    reply(read(), {{"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}})
    read()

def tell(method, **params):
    say({{"method": "notifications/" + method, "params": params}})

def line(members):
    raw("{{" + members + "}}\\n")

def sample(id):
    say({{"id": id, "method": "sampling/createMessage", "params": {QUESTION!r}}})

def calls(count):
    return sorted((read() for _ in range(count)), key=lambda call: call["params"]["name"])

def until(method):
    while (message := read()).get("method") != method:
        pass
    return message

def serve(message):
    if "id" in message and "method" in message:
        name = message.get("params", {{}}).get("name", "")
        reply(message, text(name) if message["method"] == "tools/call" else {{}})

def serve_all():
    while True:
        serve(read())
"""

GOOD = b'{"jsonrpc":"2.0","id":@id,"result":{"content":[{"type":"text","text":"good"}]}}\n'
"""A reply as it should be. Wherever a test writes @id, the parrot puts the id of the request it answers."""

PARROT = """
while True:
    request = read()
    words = request.get("params", {}).get("arguments", {}).get("words")
    if words is None:
        serve(request)
    else:
        sys.stdout.buffer.write(words.encode("latin-1").replace(b"@id", str(request["id"]).encode()))
        sys.stdout.buffer.flush()
"""
"""A server that answers a call with what the call tells it to answer."""


def server(body: str, *, hands: bool = True) -> list[str]:
    """The command of a server that runs *body* with these words at hand; after the handshake, unless told otherwise."""
    return python(WORDS + dedent("shake_hands()\n" if hands else "") + dedent(body), hands=False)


@asynccontextmanager
async def connected(
    body: str = PARROT, *, hands: bool = True, read_size: int | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client of such a server, which reads *read_size* bytes at once."""
    transport = TimedStdio(server(body, hands=hands), read_size=read_size)
    async with Client(transport, **{"era": "legacy", **options}) as client:
        yield client


async def hear(client: Client, *words: bytes, **options: Any) -> CallToolResult:
    """Call a parrot, and have it answer with *words*."""
    return await client.call_tool("say", {"words": b"".join(words).decode("latin-1")}, **options)


async def unharmed(client: Client) -> bool:
    """Whether the session with a parrot goes on as if nothing had happened."""
    return (await hear(client, GOOD)).text == "good"


async def error_of(*words: bytes, **options: Any) -> McpError:
    """How a call fails that is answered with *words*: that call alone, for the next one works."""
    (error,) = (await errors_of({"": b"".join(words)}, **options)).values()
    return error


async def errors_of(replies: Mapping[str, bytes], **options: Any) -> dict[str, McpError]:
    """How a call fails that gets each of the *replies*, one after the other from the same process."""
    errors = {}
    async with connected(**options) as client:
        for name, words in replies.items():
            with naming(name):
                with pytest.raises(McpError) as caught:
                    await hear(client, words)
                errors[name] = caught.value
                assert await unharmed(client)
    return errors
