"""Connections over HTTP that are not there, break, hang or speak something else: one call fails, the next works."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from anyio.abc import SocketAttribute

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectFailed, ConnectionClosed, ConnectTimeout, RequestTimeout
from mcp_host.limits import Limits
from tests.clock import Pauses, advance
from tests.faults.fault import fault
from tests.faults.http_server import (
    DONE,
    MANNERS,
    SOON,
    TIDES,
    chunked,
    connected,
    error_of,
    failing,
    mcp,
    refused,
    says,
    sends,
    storm,
    streams,
    subject,
    subjects,
    tides,
)
from tests.faults.measure import share_of_cpu
from tests.transports.http_contract import libraries
from tests.transports.http_peers import CHUNKED, EVENTS, JSON, LENGTH, Heard, Peer, Wire, event, head, serving, timed
from tests.transports.legacy_peers import hang, hang_for, in_turn

# Servers that are not there


async def closed_port() -> int:
    """A port without a listener."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        return int(listener.extra(SocketAttribute.local_port))


@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
@fault("H01")
async def test_an_unreachable_server_fails_the_connect_with_an_error_without_secrets(era: str) -> None:
    port = await closed_port()

    with anyio.fail_after(SOON), pytest.raises(ConnectFailed) as caught:
        await Client(StreamableHttp(f"http://me:pw@127.0.0.1:{port}/mcp?key=pw"), era=era).connect()

    assert str(caught.value).startswith(f"http://127.0.0.1:{port}/mcp: ")
    assert "pw" not in str(caught.value)
    assert not caught.value.may_have_run


@pytest.mark.parametrize(
    "url", ["http://nowhere.invalid/mcp", "https://127.0.0.1:{port}/mcp"], ids=["no host", "no TLS"]
)
@fault("H01")
async def test_an_unknown_host_or_one_without_tls_fails_the_connect(url: str) -> None:
    async def script(wire: Wire) -> None:
        await wire.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(script) as peer:
        port = peer.url.rpartition(":")[2].removesuffix("/mcp")
        with anyio.fail_after(SOON), pytest.raises(ConnectFailed) as caught:
            await Client(StreamableHttp(url.format(port=port))).connect()

    assert not caught.value.may_have_run


# Connections that break


BROKEN = {
    "nothing at all": b"",
    "half a status line": b"HTTP/1.1 200 O",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-type: appl",
    "a head": head(200, {**JSON, **LENGTH}),
    "half a body": head(200, {**JSON, **LENGTH}) + DONE,
    "half a chunk": head(200, {**JSON, **CHUNKED}) + b"ff\r\n" + DONE,
    "a stream's head": chunked(),
    "half a stream": chunked(b": hello\n\n", b"data: {"),
}
VIOLATIONS = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "noise": bytes(range(256)),
    "a bad chunk": head(200, {**JSON, **CHUNKED}) + b"zz\r\n" + DONE,
    "a bad chunk in a stream": chunked(b": hello\n\n") + b"-5\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    "a negative length": head(200, {**JSON, "content-length": "-1"}) + DONE,
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nwhatever\r\n\r\n",
    "a huge header": head(200, {"x": "y" * 4 * 1024 * 1024}),
    "headers without an end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
}


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
@fault("H19")
async def test_a_connection_that_breaks_fails_its_call_alone(raw: bytes, reset: bool) -> None:
    error = await error_of(sends(raw, reset=reset))

    assert type(error) is ConnectionClosed
    assert error.may_have_run


@pytest.mark.parametrize("raw", VIOLATIONS.values(), ids=VIOLATIONS)
@fault("H21")
async def test_a_response_that_is_not_http_fails_only_its_call(raw: bytes) -> None:
    error = await error_of(sends(raw))

    assert type(error) is ConnectionClosed
    assert error.may_have_run


@pytest.mark.parametrize("raw", [b"", *VIOLATIONS.values()], ids=["nothing at all", *VIOLATIONS])
@fault("H19", "H21")
async def test_a_server_that_does_not_speak_http_fails_the_connect(raw: bytes) -> None:
    assert type(await refused(mcp(initialize=sends(raw)))) is ConnectFailed


@fault("H19")
async def test_calls_beside_one_whose_connection_breaks_go_on() -> None:
    waiting, broken = anyio.Event(), anyio.Event()

    async def slow(wire: Wire, heard: Heard) -> None:
        waiting.set()
        await broken.wait()
        await says()(wire, heard)

    async with (
        connected(mcp(call=in_turn(slow, sends(b"", reset=True)))) as (client, _),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(tides, client)
        await waiting.wait()
        assert type(await failing(client)) is ConnectionClosed
        broken.set()


@fault("H23")
async def test_a_server_that_is_away_for_a_while_fails_the_calls_meanwhile_and_no_others() -> None:
    async with serving(mcp()) as first:
        port = int(first.url.removesuffix("/mcp").rpartition(":")[2])
        client = Client(timed(first.url, sleep_unsent=Pauses()), era="legacy")
        await client.connect()
        await tides(client)
    errors = [await failing(client) for _ in range(3)]
    async with serving(mcp(), port=port) as second:
        await tides(client)
        await client.aclose()

    assert isinstance(errors[0], ConnectionClosed)  # perhaps over a connection that had been kept
    assert [type(error) for error in errors[1:]] == [ConnectFailed] * 2
    assert subjects(second) == ["call", "delete"]  # and no new session, for the server knows the old one


@fault("H24")
async def test_a_kept_connection_that_the_server_has_closed_is_not_used_again() -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        await says()(wire, heard)
        await wire.end()  # though nothing said so

    async with connected(mcp(call=answer)) as (client, peer):
        for _ in range(5):
            await tides(client)
            await anyio.wait_all_tasks_blocked()

    assert subjects(peer).count("call") == 5


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@fault("H24")
async def test_a_request_that_may_have_been_read_is_not_sent_again(reset: bool) -> None:
    """The server closes a kept connection just as it is used again: nothing tells that from a call that ran."""
    async with connected(mcp(call=in_turn(says(), sends(b"", reset=reset), says()))) as (client, peer):
        await tides(client)
        error = await failing(client)
        await tides(client)

    assert type(error) is ConnectionClosed
    assert error.may_have_run
    assert subjects(peer).count("call") == 3


LISTED = b'{"jsonrpc":"2.0","id":@id,"result":{"tools":[]}}'


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize(
    "client", [nullcontext, httpx.AsyncClient, httpx2.AsyncClient], ids=["own", "the caller's", "one of httpx2"]
)
@fault("H24")
async def test_a_read_and_a_ping_that_may_have_been_read_are_sent_again(
    client: Callable[[], AbstractAsyncContextManager[httpx.AsyncClient | None]], reset: bool
) -> None:
    """A second time does no harm, in a session as without one."""
    lost = sends(b"", reset=reset)
    script = mcp(list=in_turn(says(LISTED), lost, says(LISTED)), ping=in_turn(lost, MANNERS["ping"]))
    async with client() as http, connected(script, client=http) as (host, peer):
        for _ in range(2):
            assert await host.list_tools() == []
        await host.ping()

    assert [subjects(peer).count(subject) for subject in ("list", "ping")] == [3, 2]


# Connections that stay, in silence


@fault("H25", "R07")
async def test_a_client_whose_server_is_gone_uses_no_cpu() -> None:
    port = await closed_port()
    with pytest.raises(ConnectFailed):
        await Client(StreamableHttp(f"http://127.0.0.1:{port}/mcp")).connect()
    async with connected(mcp(call=sends(b""), get=streams(stay=True))) as (client, _):
        for _ in range(3):
            await failing(client)
        await anyio.wait_all_tasks_blocked()
        assert await share_of_cpu() < 0.5


@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
@pytest.mark.parametrize("silent", ["initialize", "everything"])
@fault("H27")
async def test_a_server_that_never_answers_the_handshake_ends_at_the_limit(era: str, silent: str) -> None:
    script = mcp(initialize=hang) if silent == "initialize" and era != "modern" else mcp(initialize=hang, discover=hang)

    error = await refused(script, era=era, limits=Limits(connect_timeout=0.3))

    assert type(error) is ConnectTimeout
    assert "was not ready within 0.3 s" in str(error)


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nx: ", head(200, JSON), head(200, EVENTS)],
                         ids=["silence", "half a head", "a head", "a stream's head"])  # fmt: skip
@pytest.mark.adjustable_clock
@fault("H28", "H29")
async def test_a_call_that_times_out_does_not_fail_the_session(beginning: bytes) -> None:
    async with connected(mcp(call=storm(hang_for(2, beginning)))) as (client, peer):
        error = await failing(client, "storm", timeout=2)
        await tides(client)
        await peer.heard.reaches(lambda heard: "cancelled" in map(subject, heard))

    assert type(error) is RequestTimeout
    assert subjects(peer).count("initialize") == 1


@fault("H28")
async def test_a_slow_response_head_ends_at_the_calls_timeout() -> None:
    async def drip(wire: Wire, heard: Heard) -> None:
        await wire.say(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            await wire.say(b"y")
            await anyio.sleep(0.01)

    async with connected(mcp(call=storm(drip))) as (client, _):
        error = await failing(client, "storm", timeout=0.2)
        await tides(client)

    assert type(error) is RequestTimeout


async def thinks(wire: Wire, heard: Heard) -> None:
    """A tool that takes longer than every limit of a network's."""
    await anyio.wait_all_tasks_blocked()  # until the client reads
    advance(100)
    await anyio.wait_all_tasks_blocked()
    await says()(wire, heard)


@pytest.mark.adjustable_clock
@fault("H29", "H30", within=100 + 20)
async def test_no_timeout_of_the_network_cuts_a_call_that_may_take_longer() -> None:
    async with connected(mcp(call=thinks), limits=Limits(stall_timeout=60)) as (client, _):
        assert (await client.call_tool("tides")).content == TIDES


@libraries
@pytest.mark.adjustable_clock
@fault("H29", "H30", within=100 + 20)
async def test_no_timeout_of_the_callers_http_client_cuts_a_call_that_may_take_longer(library: Any) -> None:
    async with library.AsyncClient(timeout=60) as http, connected(mcp(call=thinks), client=http) as (client, _):
        assert (await client.call_tool("tides")).content == TIDES


# Connections that are in order


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + DONE,
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" + DONE,
        head(100, {}) + head(200, {**JSON, "connection": "close"}) + DONE,
        head(103, {"link": "</a>"}) * 5 + head(200, {**JSON, "connection": "close"}) + DONE,
        b"HTTP/1.1 200\r\nContent-Type:application/json;charset=utf-8\r\nConnection:CLOSE\r\n\r\n" + DONE,
        b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + event(DONE),
        head(200, {**JSON, **CHUNKED, "connection": "close"})
        + b"%X;name=value\r\n" % (len(DONE) - 2)
        + DONE
        + b"\r\n0\r\nx: y\r\n\r\n",
    ],
    ids=["HTTP/1.0", "without a length", "100", "103", "no phrase", "HTTP/1.0 events", "extensions and trailers"],
)
@fault("H26")
async def test_unusual_http_is_accepted(raw: bytes) -> None:
    async with connected(mcp(call=sends(raw))) as (client, _):
        for _ in range(2):
            await tides(client)


# What the environment adds


@fault("H40")
async def test_no_credentials_come_from_a_netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n", encoding="ascii")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))

    async with connected(mcp()) as (client, peer):
        await tides(client)

    assert [heard.headers for heard in peer.heard if "authorization" in heard.headers] == []


@fault("H40")
async def test_cookies_live_as_long_as_a_connection_and_go_to_no_other_client() -> None:
    """Load balancers pin a session to a machine by them."""
    script = mcp(call=says(set_cookie="node=7; Path=/"))
    async with serving(script) as peer:
        for _ in range(2):
            async with Client(StreamableHttp(peer.url), era="legacy") as client:
                await tides(client)
                await tides(client)

    cookies = [
        heard.headers.get("cookie") for heard, about in zip(peer.heard, subjects(peer), strict=True) if about == "call"
    ]
    assert cookies == [None, "node=7"] * 2


@pytest.fixture
def proxy_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Peer], None]:
    """Have the environment name a proxy."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return lambda peer: monkeypatch.setenv("HTTP_PROXY", peer.url.removesuffix("/mcp"))


@fault("H40")
async def test_a_proxy_of_the_environment_is_used(proxy_at: Callable[[Peer], None]) -> None:
    async with serving(mcp()) as proxy:
        proxy_at(proxy)
        async with Client(StreamableHttp("http://far.invalid/mcp"), era="legacy") as client:
            await tides(client)

    assert {heard.path for heard in proxy.heard} == {"http://far.invalid/mcp"}


@libraries
@fault("H40")
async def test_a_proxy_of_the_environment_is_not_used_with_the_callers_own_client(
    library: Any,
    proxy_at: Callable[[Peer], None],
) -> None:
    async with serving(mcp()) as proxy, library.AsyncClient(trust_env=False) as http:
        proxy_at(proxy)
        async with connected(mcp(), client=http) as (client, _):
            await tides(client)

    assert proxy.connections == 0
