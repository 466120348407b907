"""Handshakes over stdio that fail: a typed error that says why, in time, and no process left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after

from mcp_host import Client, Limits, Stdio
from mcp_host.errors import ConnectTimeout, McpError, NoCommonVersion, ProtocolError
from mcp_host.types import LoggingMessageNotificationParams
from tests.client.support import PARIS, sampling
from tests.clock import advance
from tests.faults.fault import fault
from tests.faults.stdio_server import connected, server

SOON = 25.0  # seconds, on a busy machine; the connect timeout comes later
FINE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "s", "version": "0"},
}


async def refused(body: str, **options: Any) -> McpError:
    """How connecting to the server that is *body* fails, soon."""
    client = Client(Stdio(server(body, hands=False)), **{"era": "legacy", **options})
    with fail_after(SOON), pytest.raises(McpError) as caught:
        await client.connect()
    assert not client.connected
    return caught.value


@fault("J26")
async def test_messages_before_the_initialize_result_are_handled_after_it() -> None:
    """A ping is answered at once; the rest waits until the version is negotiated."""

    async def on_log(log: LoggingMessageNotificationParams) -> None:
        logged.append(log.data)
        heard.set()

    body = """
    hello = read()
    tell("message", level="info", data="early")
    sample("q")
    say({"id": "p", "method": "ping"})
    said = [read()]
    reply(hello, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s",
        "version": "0"}})
    said += [read(), read(), read()]
    call = next(message for message in said if message.get("method") == "tools/call")
    reply(call, text(json.dumps(said)))
    read()
    """
    logged: list[object] = []
    heard = Event()

    async with connected(body, hands=False, sampling=sampling(), on_log=on_log) as client:
        said = json.loads((await client.call_tool("what was said")).text)
        await heard.wait()

    assert said[0] == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert said[1]["method"] == "notifications/initialized"
    assert [message["result"] for message in said[2:] if message["id"] == "q"] == [PARIS]
    assert logged == ["early"]


@fault("J27")
async def test_an_unsupported_protocol_version_ends_the_connection_and_is_named_with_ours() -> None:
    errors = {}
    for version in ("1999-01-01", "2026-07-28", "", "2025-11-25\n", 20251125, None):
        error = await refused(f"reply(read(), {FINE | {'protocolVersion': version}!r})\nread()\ntime.sleep(60)")

        assert isinstance(error, ProtocolError), version
        assert "rotocol" in str(error)
        assert str(error).isprintable()
        errors[version] = error

    old = errors["1999-01-01"]
    assert type(old) is NoCommonVersion
    assert str(old).startswith("the server chose protocol version '1999-01-01'; this client supports 2025-11-25, ")


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("capabilities: ", FINE | {"capabilities": 5}),
    ("capabilities.tools: ", FINE | {"capabilities": {"tools": "yes"}}),
    ("serverInfo: ", FINE | {"serverInfo": "s"}),
    ("serverInfo.version: ", FINE | {"serverInfo": {"name": "s"}}),
    ("protocolVersion: ", FINE | {"protocolVersion": ["2025-11-25"]}),
    *((f"{field}: Field required", {name: FINE[name] for name in FINE if name != field}) for field in FINE),
]


@fault("J28")
async def test_a_malformed_initialize_result_is_an_error_that_names_the_field() -> None:
    for problem, result in MALFORMED:
        error = await refused(f"reply(read(), {result!r})\nread()\ntime.sleep(60)")

        assert type(error) is ProtocolError
        assert str(error).startswith(f"malformed InitializeResult: {problem}")


@pytest.mark.adjustable_clock
@fault("J28", "J29")
async def test_an_initialize_result_with_another_id_is_a_connect_timeout() -> None:
    """Nothing is cancelled: "The initialize request MUST NOT be cancelled by clients" (2025-11-25, cancellation)."""

    def on_stderr(line: str) -> None:
        heard.append(line)
        read.set()

    async def connect() -> None:
        client = Client(Stdio(command, on_stderr=on_stderr), era="legacy", limits=Limits(connect_timeout=60))
        with pytest.raises(ConnectTimeout, match=r"not ready within 60 s"):
            await client.connect()

    heard: list[str] = []
    read = Event()
    body = f"""
    request = read()
    reply({{"id": 99}}, {FINE!r})
    say({{"id": "p", "method": "ping"}})
    for line in sys.stdin:
        print(line, file=sys.stderr, flush=True)
    """
    command = server(body, hands=False)

    with fail_after(60 + SOON):
        async with create_task_group() as tasks:
            tasks.start_soon(connect)
            await read.wait()
            advance(60)

    assert [json.loads(line) for line in heard if line] == [{"jsonrpc": "2.0", "id": "p", "result": {}}]
