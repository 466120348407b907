"""Which era a server is spoken to in: the probe, what it costs, and what is remembered of it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, EraCache, Stdio, StreamableHttp
from mcp_host.errors import (
    CallerError,
    ConnectFailed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    NoCommonVersion,
    ServerError,
    Unauthorized,
)
from mcp_host.limits import Limits
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.protocol.negotiation import LEGACY_VERSIONS, AllowedVersions
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.in_process import MemoryChannel
from mcp_host.types import Implementation, ServerCapabilities
from tests.client.sites import DISCOVERED, Site, refused
from tests.client.support import DISCOVER, EMPTY, INITIALIZED, META, TOOLS, Era, connected, methods, sampling
from tests.clock import advance
from tests.extent import on_both
from tests.faults.http_server import chunked, drop, mcp, reset, says, sends, subjects, tides
from tests.faults.http_server import connected as connected_over_http
from tests.faults.http_server import refused as refused_over_http
from tests.transports.children import counted, python
from tests.transports.http_peers import EVENTS, JSON, LENGTH, Heard, Wire, head, serving
from tests.transports.legacy_peers import Answer, hang_for

SESSION_ID = "mcp-session-id"
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
MODERN = "2026-07-28"


async def modern(peer: ScriptedPeer) -> None:
    await peer.answer_discover(capabilities=TOOLS, instructions="be nice")
    await peer.reply(await peer.receive("tools/call"), {"resultType": "complete"} | EMPTY)


async def legacy(peer: ScriptedPeer) -> None:
    await peer.answer_initialize(capabilities=TOOLS)
    await peer.reply(await peer.receive("tools/call"), EMPTY)


async def test_a_server_that_answers_discover_is_used_without_a_handshake() -> None:
    peer = ScriptedPeer(modern, name="m")

    async with connected(peer) as client:
        await client.call_tool("x")
        assert client.protocol_version == MODERN
        assert client.server_info == Implementation(name="m", version="0")
        assert client.instructions == "be nice"
        assert client.server_capabilities.tools is not None

    assert peer.received == [
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "x", "arguments": {}, "_meta": META},
        },
    ]


async def test_a_server_that_knows_no_discovery_is_shaken_hands_with() -> None:
    peer = ScriptedPeer(legacy)

    async with connected(peer) as client:
        await client.call_tool("x")
        assert client.protocol_version == "2025-11-25"

    assert methods(peer) == ["server/discover", "initialize", "notifications/initialized", "tools/call"]


async def test_a_malformed_list_of_versions_is_named_where_a_handshake_is_not_allowed() -> None:
    async def malformed(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive("server/discover"), {"supportedVersions": None})

    with anyio.fail_after(25), pytest.raises(NoCommonVersion, match="a malformed list of versions, None"):
        await Client(ScriptedPeer(malformed), era="modern").connect()


@on_both
@pytest.mark.fake_clock
async def test_a_silent_server_costs_one_bounded_wait_once() -> None:
    async def silent_about_the_probe(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive("initialize"), INITIALIZED)
        await peer.receive("notifications/initialized")
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    peer, era_cache = ScriptedPeer(silent_about_the_probe), EraCache()
    for _ in range(2):
        async with connected(peer, era_cache=era_cache) as client:
            await client.call_tool("x")

    assert methods(peer) == ["server/discover", *2 * ("initialize", "notifications/initialized", "tools/call")]


@on_both
@pytest.mark.fake_clock
async def test_a_slow_modern_server_is_not_taken_for_a_silent_one() -> None:
    """Its answer to the probe counts, though a handshake has been begun meanwhile."""

    async def slow(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        await peer.receive("initialize")
        await peer.reply(probe, DISCOVERED)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    peer = ScriptedPeer(slow)
    async with connected(peer) as client:
        await client.call_tool("x")
        assert client.protocol_version == MODERN

    assert methods(peer) == ["server/discover", "initialize", "tools/call"]


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("first", [DISCOVER, "initialize"])
async def test_the_answer_of_a_slow_server_that_decides_nothing_any_more_is_no_answer_to_nothing(first: str) -> None:
    async def slow(peer: ScriptedPeer) -> None:
        answers = {DISCOVER: DISCOVERED, "initialize": INITIALIZED}
        requests = {request["method"]: request for request in (await peer.receive(), await peer.receive())}
        await peer.reply(requests.pop(first), answers[first])
        while (call := await peer.receive())["method"] != "tools/call":
            pass
        ((late, request),) = requests.items()
        for _ in range(2):
            await peer.reply(request, answers[late])
        await peer.reply(call, EMPTY)

    async with connected(ScriptedPeer(slow)) as client:
        await client.call_tool("x")
        assert client.counters == {"answers to nothing": 1}, (
            "the second of the late ones, which is a mistake of the server"
        )


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("code", [-32601, -32602, -32020, -32022])
async def test_a_slow_server_that_shakes_no_hands_is_waited_for(code: int) -> None:
    async def script(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        await peer.reply_error(await peer.receive("initialize"), code, "no", {"supported": [MODERN]})
        await peer.reply(probe, DISCOVERED)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("x")


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
            heard_while_starting.extend(methods(peer))
            up.set()

    monkeypatch.setattr(MemoryChannel, "wait_until_started", wait_until_started)
    peer = ScriptedPeer(script)
    async with connected(peer) as client:
        assert client.protocol_version == "2025-11-25"

    assert heard_while_starting == [DISCOVER]


@pytest.mark.fake_clock
async def test_a_silent_server_that_refuses_the_handshake_fails_with_that() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.reply_error(await peer.receive("initialize"), -32000, "out of order")

    with anyio.fail_after(5), pytest.raises(ServerError, match="out of order"):
        await Client(ScriptedPeer(script)).connect()


async def test_a_ping_before_anything_is_agreed_on_is_answered_only_in_a_handshake() -> None:
    """A stateless server may send no requests, and gets no responses; an old one may wait for its pong."""

    async def pings_first(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        await peer.send({"jsonrpc": "2.0", "id": "p", "method": "ping"})
        await peer.reply_error(probe, -32601, "Method not found")
        initialize = await peer.receive("initialize")
        assert await peer.receive() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        await peer.reply(initialize, INITIALIZED)

    async with connected(ScriptedPeer(pings_first)) as client:
        assert client.connected


@pytest.mark.fault("S28")
async def test_a_modern_server_that_sends_requests_gets_no_responses() -> None:
    async def chatty(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "x", "params": 7})
        await peer.reply(probe, DISCOVERED)
        call = await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": 2, "method": "x", "params": 7})
        await peer.send({"jsonrpc": "2.0", "id": 3, "method": "ping"})
        await peer.send({"jsonrpc": "2.0", "id": 4, "method": "sampling/createMessage", "params": {}})
        await peer.reply(call, EMPTY)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    peer = ScriptedPeer(chatty)
    async with connected(peer) as client:
        await client.call_tool("x")
        await client.call_tool("x")
        assert client.counters["requests that no server may send"] == 2

    assert methods(peer) == ["server/discover", "tools/call", "tools/call"]


async def test_a_refused_version_leads_to_one_in_common() -> None:
    async def strict(peer: ScriptedPeer) -> None:
        data = {"supported": [MODERN], "requested": "?"}
        await peer.reply_error(await peer.receive("server/discover"), -32022, "Unsupported protocol version", data)
        await modern(peer)

    peer = ScriptedPeer(strict)
    async with connected(peer) as client:
        await client.call_tool("x")
        assert (client.protocol_version, client.instructions) == (MODERN, "be nice")

    assert methods(peer) == ["server/discover", "server/discover", "tools/call"]


async def test_a_modern_server_that_refuses_to_describe_itself_can_be_called() -> None:
    """Its words are escaped and cut in the warning."""

    async def shy(peer: ScriptedPeer) -> None:
        for code in (-32020, -32021):
            discover = await peer.receive("server/discover")
            await peer.reply_error(discover, code, "not to you\x1b[2J\n" + "x" * 100_000, {"requiredCapabilities": {}})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(shy, name="shy")) as client:
        await client.call_tool("x")
        assert client.server_info == Implementation(name="shy", version="")

    (warning,) = client.warnings
    assert warning.startswith("shy did not describe itself: not to you")
    assert warning.isprintable()
    assert len(warning) < 500


async def test_malformed_capabilities_of_a_modern_server_are_a_warning_and_it_can_be_called() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": 5})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script, name="odd")) as client:
        await client.call_tool("x")
        assert client.server_capabilities == ServerCapabilities()

    [warning] = client.warnings
    assert warning.startswith("the capabilities of odd are malformed: ")


async def test_a_server_of_either_era_may_declare_its_capabilities_with_true_and_false(era: Era) -> None:
    declared = {"tools": True, "logging": True, "completions": True, "tasks": True, "prompts": True, "resources": False}

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, declared)
        await peer.reply(await peer.receive("tools/list"), {"tools": []})

    async with connected(ScriptedPeer(script)) as client:
        assert await client.list_tools() == []
        read = client.server_capabilities.to_wire()

    assert read == {name: {} for name in ("tools", "logging", "completions", "tasks", "prompts")}


@pytest.mark.fault("S32")
async def test_a_modern_server_without_a_common_revision_fails_the_connect() -> None:
    async def future(peer: ScriptedPeer) -> None:
        await peer.answer_discover(versions=["2031-01-01"])

    peer = ScriptedPeer(future)
    with anyio.fail_after(25), pytest.raises(NoCommonVersion, match="2031-01-01"):
        await Client(peer).connect()

    assert methods(peer) == ["server/discover"]


@pytest.mark.parametrize("era", ["legacy", "2025-06-18"])
async def test_a_client_that_is_pinned_to_handshakes_sends_no_probe(era: str) -> None:
    peer = ScriptedPeer(lambda peer: answer_handshake(peer, "2025-06-18"))

    async with connected(peer, era=era) as client:
        assert client.protocol_version == "2025-06-18"

    assert methods(peer)[0] == "initialize"


async def answer_handshake(peer: ScriptedPeer, version: str) -> None:
    await peer.answer_initialize(version=version)


async def test_a_client_that_is_pinned_to_one_revision_takes_no_other() -> None:
    peer = ScriptedPeer(lambda peer: answer_handshake(peer, "2025-11-25"))

    with anyio.fail_after(25), pytest.raises(NoCommonVersion, match="2025-06-18"):
        await Client(peer, era="2025-06-18").connect()


@pytest.mark.parametrize("era", ["modern", MODERN])
async def test_a_client_that_is_pinned_to_modern_shakes_no_hands(era: str) -> None:
    peer = ScriptedPeer(legacy, name="old")

    with anyio.fail_after(25), pytest.raises(NoCommonVersion, match="old does not support 2026-07-28"):
        await Client(peer, era=era).connect()

    assert methods(peer) == ["server/discover"]


# What is remembered


async def test_an_era_cache_can_be_saved_and_holds_no_secret(tmp_path: Path) -> None:
    answer = """
    request = read()
    reply(request, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}})
    read()
    """
    server, era_cache = Stdio([*python(answer, hands=False), "--key=hunter2"]), EraCache()

    async with connected(server, era_cache=era_cache):
        pass

    (key, era) = next(iter(era_cache.export().items()))
    assert (key, era) == (server.identity, "modern")
    assert "hunter2" not in json.dumps(era_cache.export())
    assert EraCache(json.loads(json.dumps(era_cache.export()))).export() == era_cache.export()
    with pytest.raises(ValueError, match="'perhaps'"):
        EraCache({"x": "perhaps"})


async def test_an_era_that_turns_out_wrong_is_found_out_and_replaced() -> None:
    async def refuses_handshakes(peer: ScriptedPeer) -> None:
        request = await peer.receive()
        if request["method"] == "initialize":
            await peer.reply_error(request, -32602, "no handshakes here: 2026-07-28 only")
            request = await peer.receive()
        await peer.reply(request, DISCOVERED)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    peer = ScriptedPeer(refuses_handshakes)
    era_cache = EraCache({peer.identity: "legacy"})
    async with connected(peer, era_cache=era_cache) as client:
        await client.call_tool("x")
        assert client.protocol_version == MODERN

    assert methods(peer) == ["initialize", "server/discover", "tools/call"]
    assert era_cache.export() == {peer.identity: "modern"}


async def test_a_server_that_was_modern_and_is_not_any_more_is_shaken_hands_with() -> None:
    peer = ScriptedPeer(legacy)
    era_cache = EraCache({peer.identity: "modern"})

    async with connected(peer, era_cache=era_cache) as client:
        await client.call_tool("x")

    assert era_cache.export() == {peer.identity: "legacy"}


async def test_a_handshake_that_fails_for_its_own_reasons_fails_with_those() -> None:
    async def refuses_all(peer: ScriptedPeer) -> None:
        while True:
            await peer.reply_error(await peer.receive(), -32000, "out of order")

    peer = ScriptedPeer(refuses_all)
    with anyio.fail_after(25), pytest.raises(ServerError, match="out of order"):
        await Client(peer, era_cache=EraCache({peer.identity: "legacy"})).connect()

    assert methods(peer) == ["initialize", "server/discover", "initialize"]


@pytest.mark.parametrize(("known", "heard"), [(False, ["server/discover"]), (True, [])])
async def test_an_error_of_middleware_says_nothing_about_the_era(known: bool, heard: list[str]) -> None:
    """The handshake fails with it, and no other is tried."""

    async def refuses_discovery(peer: ScriptedPeer) -> None:
        await peer.reply_error(await peer.receive("server/discover"), -32601, "Method not found")

    async def no_token(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "initialize":
            raise CallerError("no token")
        return await call_next(request)

    peer = ScriptedPeer(refuses_discovery)
    era_cache = EraCache({peer.identity: "legacy"} if known else {})
    with anyio.fail_after(25), pytest.raises(CallerError, match=r"^no token$"):
        await Client(peer, era_cache=era_cache, middleware=[no_token]).connect()

    assert methods(peer) == heard


@on_both
@pytest.mark.fake_clock
async def test_a_wrong_era_that_ends_in_a_timeout_is_forgotten() -> None:
    """The server is modern, and says nothing to a handshake."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive("server/discover"), DISCOVERED)

    peer = ScriptedPeer(script)
    era_cache = EraCache({peer.identity: "legacy"})
    client = Client(peer, era_cache=era_cache, limits=Limits(connect_timeout=0.2))
    with anyio.fail_after(5):
        with pytest.raises(ConnectTimeout):
            await client.connect()
        async with client:
            assert client.protocol_version == MODERN


async def test_a_wrong_era_that_ends_in_a_server_error_by_http_is_forgotten() -> None:
    era_cache = EraCache({"http://server.test/mcp": "legacy"})
    client = Site(initialize=httpx.Response(500)).client(era_cache=era_cache)
    with anyio.fail_after(25):
        with pytest.raises(HttpStatusError):
            await client.connect()
        async with client:
            assert client.protocol_version == MODERN


async def test_a_pinned_client_teaches_the_others_nothing() -> None:
    """It was not free to find out."""

    async def both(peer: ScriptedPeer) -> None:
        request = await peer.receive()
        await peer.reply(request, INITIALIZED if request["method"] == "initialize" else DISCOVERED)

    peer, era_cache = ScriptedPeer(both), EraCache()
    with anyio.fail_after(25):
        async with Client(peer, era_cache=era_cache, era="legacy"):
            assert era_cache.export() == {}
        async with Client(peer, era_cache=era_cache) as client:
            assert client.protocol_version == MODERN


@on_both
@pytest.mark.fake_clock
async def test_a_server_known_to_be_modern_gets_no_handshake_however_slow_it_is() -> None:
    async def slow(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        with anyio.move_on_after(20):  # ten times the silence after which another server would get one
            await peer.receive()
        await peer.reply(probe, DISCOVERED)

    peer = ScriptedPeer(slow)
    async with connected(peer, era_cache=EraCache({peer.identity: "modern"})):
        pass

    assert methods(peer) == ["server/discover"]


# Real processes


EXITS_ON_THE_PROBE = f"""
request = read()
if request["method"] != "initialize":
    SAYS
    sys.exit(3)
reply(request, {INITIALIZED!r})
read()
reply(read(), text("hi"))
read()
"""


@on_both
@pytest.mark.parametrize("says", ["pass", "refuse(request, -32600, 'not initialized')"], ids=["silent", "says why"])
async def test_a_server_that_exits_on_the_probe_is_started_once_more_and_shaken_hands_with(
    says: str, tmp_path: Path
) -> None:
    server, era_cache = counted(tmp_path / "starts", EXITS_ON_THE_PROBE.replace("SAYS", says)), EraCache()

    with anyio.fail_after(25):
        for _ in range(2):
            async with Client(server, era_cache=era_cache) as client:
                assert (await client.call_tool("x")).text == "hi"

    assert (tmp_path / "starts").read_text() == "xxx"


@on_both
async def test_a_server_that_always_exits_is_started_twice_and_reported_once(tmp_path: Path) -> None:
    server = counted(tmp_path / "starts", "read()\nsys.stderr.write('no database')\nsys.exit(4)")

    with anyio.fail_after(25), pytest.raises(ConnectFailed, match="no database") as raised:
        await Client(server).connect()

    assert (tmp_path / "starts").read_text() == "xx"
    assert (type(raised.value), raised.value.exit_code) == (ConnectFailed, 4)


SILENT_ABOUT_THE_PROBE = f"""
request = read()
print("has read", file=sys.stderr, flush=True)
while request["method"] != "initialize":
    ANSWER
    request = read()
reply(request, {INITIALIZED!r})
read()
reply(read(), text("hi"))
read()
"""


@pytest.mark.fault("S32")
@on_both
@pytest.mark.adjustable_clock
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", "pass"),
        ("sys.stderr.write('ready\\n')\n", "pass"),
        ("raw('Welcome!\\n')\n", "pass"),
        ("", "raw('\\n\\n{}\\n[]\\n7\\n')"),
        ("", "say({'id': None, 'error': {'code': -32600, 'message': 'What?'}})"),
    ],
    ids=["mute", "noisy", "a banner", "garbage", "no id"],
)
async def test_a_silent_process_is_shaken_hands_with_once_it_has_read_the_probe(words: str, answer: str) -> None:
    has_read, connected = anyio.Event(), anyio.Event()

    def note(line: str) -> None:
        if line == "has read":
            has_read.set()

    async def let_time_pass() -> None:
        await has_read.wait()
        while not connected.is_set():  # no event tells the test when the silence begins
            advance(0.5)
            await anyio.sleep(0.01)

    body = words + SILENT_ABOUT_THE_PROBE.replace("ANSWER", answer)
    server = Stdio(python(body, hands=False), on_stderr=note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(let_time_pass)
        async with Client(server, limits=Limits(connect_timeout=100_000)) as client:
            connected.set()
            assert (await client.call_tool("x")).text == "hi"


@on_both
async def test_a_process_that_is_still_starting_gives_no_sign_of_life(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    begin = f"""
    open({str(fifo)!r}).read()
    while True:
        read()
    """
    started = anyio.Event()

    async def wait() -> None:
        await channel.wait_until_started()
        started.set()

    with anyio.fail_after(25):
        async with Stdio(python(begin, hands=False)).open(Limits()) as channel, anyio.create_task_group() as tasks:
            await channel.send(Notification("x", {}), {})
            tasks.start_soon(wait)
            with await anyio.to_thread.run_sync(fifo.open, "w"):  # as soon as the process opens it, too
                await anyio.wait_all_tasks_blocked()
                assert not started.is_set()
            await started.wait()


# Over HTTP

FAILS_OVER_THE_PROBE: dict[str, Answer] = {
    "closes": drop,
    "resets": reset,
    "half a head": sends(b"HTTP/1.1 200 OK\r\ncontent-ty"),
    "half a body": sends(head(200, {**JSON, **LENGTH}) + b'{"jsonrpc":'),
    "half a stream": sends(chunked(b"data: {")),
    "an empty stream": sends(head(200, EVENTS)),
    "no HTTP": sends(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "500": says(b"Internal Server Error", 500, content_type="text/plain"),
    "500 with an error": says(b'{"jsonrpc":"2.0","id":@id,"error":{"code":-32603,"message":"oh"}}', 500),
    "501": says(b"", 501),
}


@on_both
async def test_a_server_over_http_that_fails_over_the_probe_is_shaken_hands_with_once(
    subtests: pytest.Subtests,
) -> None:
    for failure, answer in FAILS_OVER_THE_PROBE.items():
        with subtests.test(failure=failure):
            async with connected_over_http(mcp(discover=answer), era="auto") as (client, peer):
                await tides(client)

                assert (client.protocol_version, client.warnings) == ("2025-11-25", [])
                assert [subjects(peer).count(subject) for subject in ("discover", "initialize")] == [1, 1]


async def test_a_server_over_http_that_fails_over_the_probe_is_reported_where_no_handshake_is_allowed(
    subtests: pytest.Subtests,
) -> None:
    for name, answer in FAILS_OVER_THE_PROBE.items():
        with subtests.test(failure=name):
            error = await refused_over_http(mcp(discover=answer), era="modern")

            assert type(error) is (HttpStatusError if name.startswith("50") else ConnectFailed)


DROPPED = "URL: the server closed the connection without a response"
BOTH_FAIL: list[tuple[Answer, Answer, type[McpError], str]] = [
    (drop, says(b"", 418), HttpStatusError, f"HTTP 418 I'm a teapot from URL; server/discover failed, too: {DROPPED}"),
    (
        says(b"", 500),
        drop,
        HttpStatusError,
        f"HTTP 500 Internal Server Error from URL; initialize failed, too: {DROPPED}",
    ),
    (drop, drop, ConnectFailed, DROPPED),
    (says(b"", 500), says(b"", 500), HttpStatusError, "HTTP 500 Internal Server Error from URL"),
]


async def test_if_probe_and_handshake_fail_the_error_has_both_reasons(subtests: pytest.Subtests) -> None:
    for discover, initialize, kind, text in BOTH_FAIL:
        with subtests.test(text=text):
            error = await refused_over_http(mcp(discover=discover, initialize=initialize))

            assert type(error) is kind
            assert re.sub(r"http://[^ :;]+:[^ :;]+", "URL", str(error)) == text


GATEWAYS = [
    (401, {"X-Api-Key": "k"}),
    (403, {"Authorization": "Bearer t"}),
    (403, {}),
    *((status, {}) for status in (408, 425, 429, 502, 503, 504)),
]
"""What a gateway says that lets only known methods pass, or not so many requests, and the headers of the client."""


async def test_what_only_a_probe_is_refused_for_is_initialized_and_says_nothing_about_the_era(
    subtests: pytest.Subtests,
) -> None:
    for status, headers in GATEWAYS:
        with subtests.test(status=status, headers=headers):
            era_cache = EraCache()
            async with serving(mcp(discover=says(b"", status))) as peer:
                with anyio.fail_after(25):
                    async with Client(StreamableHttp(peer.url, headers=headers), era_cache=era_cache) as client:
                        await tides(client)

            assert [subjects(peer).count(subject) for subject in ("discover", "initialize")] == [1, 1]
            assert era_cache.export() == {}


async def test_if_the_handshake_is_refused_too_the_error_is_that_of_the_probe_and_names_the_other_era(
    subtests: pytest.Subtests,
) -> None:
    for status, headers in GATEWAYS:
        for unknown in (b"", b'{"jsonrpc":"2.0","id":@id,"error":{"code":-32601,"message":"what?"}}'):
            with subtests.test(status=status, headers=headers, unknown=unknown):
                answers = mcp(discover=says(b"", status), initialize=says(unknown, 422 if unknown else status))
                async with serving(answers) as peer:
                    with anyio.fail_after(25), pytest.raises(HttpStatusError) as caught:
                        await Client(StreamableHttp(peer.url, headers=headers), sampling=sampling()).connect()

                assert caught.value.status == status
                assert isinstance(caught.value, Unauthorized) == (status in (401, 403))
                assert str(caught.value).endswith('; with Client(era="legacy") no server/discover is sent')
                assert ("initialize failed, too: HTTP 422" in str(caught.value)) == bool(unknown)
                assert subjects(peer) == ["discover", "initialize"]


SENT: list[tuple[bool, dict[str, Any]]] = [
    (False, {}),
    (False, {"client": {}}),
    (True, {"headers": {"X-Token": "t"}}),
    (True, {"auth": httpx.BasicAuth("u", "p")}),
    (True, {"url": "http://u:p@server.test/mcp"}),
    (True, {"url": "http://server.test/mcp?key=k"}),
    (True, {"client": {"auth": ("u", "p")}}),
    (True, {"client": {"headers": {"Authorization": "Bearer t"}}}),
]


async def test_without_a_credential_no_handshake_is_tried(subtests: pytest.Subtests) -> None:
    """Whatever may be one counts, and what every client sends does not."""
    for row, (sent, given) in enumerate(SENT):
        with subtests.test(row=row):
            site = Site(server_discover=httpx.Response(401), initialize=httpx.Response(401))
            http = httpx.AsyncClient(transport=httpx.MockTransport(site), **given.get("client", {}))
            transport = StreamableHttp(**{"url": "http://server.test/mcp", **given, "client": http})
            with anyio.fail_after(25), pytest.raises(Unauthorized) as caught:
                await Client(transport).connect()

            assert caught.value.credential_sent == sent
            assert site.methods() == [DISCOVER, *["initialize"] * sent]


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_handshake_refused_by_http_status_fails_with_that_status_whatever_error_is_in_the_body(
    code: int,
) -> None:
    """These codes have exceptions without a status, which would be tried again with fewer capabilities."""
    body = f'{{"jsonrpc":"2.0","id":@id,"error":{{"code":{code},"message":"oh"}}}}'.encode()

    async with serving(mcp(initialize=says(body, 418))) as peer:
        with anyio.fail_after(25), pytest.raises(HttpStatusError) as caught:
            await Client(StreamableHttp(peer.url), era="legacy", sampling=sampling()).connect()

    assert (caught.value.status, caught.value.code) == (418, code)
    assert subjects(peer) == ["initialize"]


@on_both
@pytest.mark.adjustable_clock
async def test_a_probe_that_was_dropped_and_a_handshake_without_an_answer_take_the_time_of_one() -> None:
    async with serving(mcp(discover=drop, initialize=hang_for(30))) as peer:
        with anyio.fail_after(30 + 5), pytest.raises(ConnectTimeout) as caught:
            await Client(StreamableHttp(peer.url), limits=Limits(connect_timeout=30)).connect()

    assert str(caught.value).replace(peer.url, "URL") == (
        f"URL was not ready within 30 s: it did not answer initialize; server/discover failed: {DROPPED}"
    )


async def test_credentials_that_are_asked_for_after_the_version_was_settled_are_an_authorization_error() -> None:
    answers = iter([refused(400, -32021, {"requiredCapabilities": {}}), refused(401, -1)])
    site = Site(server_discover=lambda message: next(answers)(message))

    with anyio.fail_after(25), pytest.raises(Unauthorized):
        await site.client().connect()


async def test_a_version_that_is_refused_is_not_spoken_again() -> None:
    older, newer = "2026-07-28", "2027-01-31"

    def discover(message: dict[str, Any]) -> object:
        requested = message["params"]["_meta"][PROTOCOL_VERSION]
        no = refused(400, -32022, {"supported": [older], "requested": requested})
        return DISCOVERED if requested == older else no(message)

    site = Site(server_discover=discover, tools_list={"tools": []}, tools_call=EMPTY)
    client = site.client()
    client._state.allowed_versions = AllowedVersions((newer, older), LEGACY_VERSIONS)
    with anyio.fail_after(25):
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


@on_both
@pytest.mark.adjustable_clock
async def test_a_session_begun_beside_a_slow_probe_is_not_used_with_a_modern_server() -> None:
    """It speaks both: in one era it began a session, in the other it knows of none."""
    begun = anyio.Event()

    async def discover(wire: Wire, heard: Heard) -> None:
        advance(2)  # the silence after which a handshake is begun
        await begun.wait()
        await says(b'{"jsonrpc":"2.0","id":@id,"result":%b}' % json.dumps(DISCOVERED).encode())(wire, heard)

    async def initialized(wire: Wire, heard: Heard) -> None:
        begun.set()
        await wire.hung_up()

    with anyio.fail_after(25):
        async with (
            serving(mcp(discover=discover, initialized=initialized)) as peer,
            Client(StreamableHttp(peer.url)) as client,
        ):
            await client.call_tool("x")
            await client.call_tool("x")
            assert client.protocol_version == MODERN

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
