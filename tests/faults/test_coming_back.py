"""A server that comes back, as a new process or with a new session, finds everything as it was: handlers, wishes, ears."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from anyio import Event

from mcp_host import Change, Client, Stdio
from mcp_host.errors import ConnectionClosed
from tests.client.support import PARIS, sampling
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import says
from tests.faults.stdio_server import WORDS
from tests.transports.children import counted

pytestmark = on_both

EMPTY = says(b'{"jsonrpc":"2.0","id":@id,"result":{}}')
FORGETS = says(b"", 404)
UPDATED = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}'


def mortal(starts: Path, body: str, *, restart: bool | None = True) -> Stdio:
    """A process that is started again when it has died; in *body*, ``start`` is the number of its life."""
    return counted(starts, WORDS + dedent(body), restart=restart)


async def die(client: Client) -> None:
    """Call the tool that ends the server."""
    with pytest.raises(ConnectionClosed):
        await client.call_tool("die")


@fault("C22")
async def test_a_request_of_a_restarted_process_before_its_initialize_result_is_answered_by_the_same_handler(
    tmp_path: Path,
) -> None:
    body = """
    hello = read()
    sample("q")
    info = {"name": "s", "version": "0"}
    reply(hello, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    heard = [read(), read(), read()]
    call = next(message for message in heard if message.get("method") == "tools/call")
    answers = [message["result"] for message in heard if message.get("id") == "q"]
    reply(call, text(json.dumps([start, hello["params"]["capabilities"], answers])))
    read()
    sys.exit(1)
    """

    async with Client(mortal(tmp_path / "starts", body), era="legacy", sampling=sampling()) as client:
        first = json.loads((await client.call_tool("x")).text)
        await die(client)
        second = json.loads((await client.call_tool("x")).text)

    assert first == [1, {"sampling": {"tools": {}}}, [PARIS]]
    assert second == [2, {"sampling": {"tools": {}}}, [PARIS]]


@fault("C23")
async def test_a_restarted_stateless_process_is_subscribed_to_without_a_call(tmp_path: Path) -> None:
    body = """
    discovered()
    listen = read()
    subscription = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    wanted = listen["params"]["notifications"]
    tell("subscriptions/acknowledged", notifications=wanted, _meta=subscription)
    tell("resources/updated", uri=wanted["resourceSubscriptions"][0], _meta=subscription)
    read()
    sys.exit(1)
    """
    heard: list[Change] = []
    both = Event()

    async def on_change(change: Change) -> None:
        heard.append(change)
        if len(heard) == 2:
            both.set()

    async with Client(mortal(tmp_path / "starts", body, restart=None), on_change=on_change) as client:
        await client.subscribe_resource("a:1")
        await die(client)
        await both.wait()

    assert (tmp_path / "starts").read_text() == "xx"
