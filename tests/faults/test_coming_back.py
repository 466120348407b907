"""A server that comes back, as a new process or with a new session, finds everything as it was: handlers, wishes, ears."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from anyio import Event

from mcp_host import Change, Client, Stdio, StreamableHttp
from mcp_host.errors import ConnectionClosed
from mcp_host.types import LoggingMessageNotificationParams
from tests.client.support import PARIS, sampling
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import CAPABILITIES, DONE, mcp, says, streams, subject, welcome
from tests.faults.stdio_server import WORDS
from tests.transports.children import counted
from tests.transports.http_peers import event, serving
from tests.transports.legacy_peers import in_turn

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
async def test_subscriptions_are_restored_in_a_new_session_and_its_notifications_arrive() -> None:
    async def on_change(change: Change) -> None:
        changed.set()

    async def on_log(log: LoggingMessageNotificationParams) -> None: ...

    changed = Event()
    capabilities = {**CAPABILITIES, "resources": {"subscribe": True}}
    script = mcp(
        initialize=in_turn(welcome("s-1", capabilities=capabilities), welcome("s-2", capabilities=capabilities)),
        subscribe=EMPTY,
        setLevel=EMPTY,
        call=in_turn(says(), FORGETS, streams(event(UPDATED), event(DONE))),
    )

    async with (
        serving(script) as peer,
        Client(StreamableHttp(peer.url), era="legacy", on_change=on_change, on_log=on_log) as client,
    ):
        await client.subscribe_resource("a:1")
        await client.set_log_level("warning")
        await client.call_tool("tides")
        before = len(peer.heard)
        await client.call_tool("tides")
        await changed.wait()

    renewed = [heard for heard in peer.heard[before:] if heard.method == "POST"]
    assert [subject(heard) for heard in renewed] == [
        "call",
        "initialize",
        "initialized",
        "subscribe",
        "setLevel",
        "call",
    ]
    assert [heard.rpc["params"] for heard in renewed[3:5]] == [{"uri": "a:1"}, {"level": "warning"}]
    assert {heard.headers["mcp-session-id"] for heard in renewed[2:]} == {"s-2"}


@fault("C23")
async def test_subscriptions_are_restored_in_a_restarted_process(tmp_path: Path) -> None:
    body = """
    welcome(tools={}, logging={}, resources={"subscribe": True})
    heard = []
    while True:
        request = read()
        heard.append([request["method"], request["params"]])
        if request["method"] != "tools/call":
            reply(request, {})
        elif request["params"]["name"] == "die":
            sys.exit(1)
        else:
            reply(request, text(json.dumps([start, heard[:-1]])))
    """
    wishes = [["resources/subscribe", {"uri": "a:1"}], ["logging/setLevel", {"level": "error"}]]

    async with Client(mortal(tmp_path / "starts", body), era="legacy") as client:
        await client.subscribe_resource("a:1")
        await client.set_log_level("error")
        assert json.loads((await client.call_tool("x")).text) == [1, wishes]
        await die(client)
        assert json.loads((await client.call_tool("x")).text) == [2, wishes]


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
