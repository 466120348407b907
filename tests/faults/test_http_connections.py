"""Connections over HTTP that are not there, break, hang or speak something else: one call fails, the next works."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx
import httpx2
import pytest
from anyio.abc import SocketAttribute

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectFailed, ConnectTimeout, RequestTimeout
from mcp_host.limits import Limits
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import (
    MANNERS,
    SOON,
    TIDES,
    connected,
    failing,
    mcp,
    says,
    sends,
    streams,
    subject,
    subjects,
    tides,
)
from tests.faults.measure import FEW_CALLS, calls_while_idle
from tests.transports.http_contract import libraries
from tests.transports.http_peers import EVENTS, JSON, Heard, Peer, Wire, head, serving
from tests.transports.legacy_peers import hang_for, in_turn

pytestmark = on_both

MakeClient: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes the caller's own HTTP client, or none."""

# Servers that are not there


async def closed_port() -> int:
    """A port without a listener."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        return int(listener.extra(SocketAttribute.local_port))


@fault("H01")
async def test_an_unreachable_server_fails_the_connect_with_an_error_without_secrets(subtests: pytest.Subtests) -> None:
    port = await closed_port()

    for era in ("auto", "legacy", "modern"):
        with subtests.test(era):
            with anyio.fail_after(SOON), pytest.raises(ConnectFailed) as caught:
                await Client(StreamableHttp(f"http://me:pw@127.0.0.1:{port}/mcp?key=pw"), era=era).connect()

            assert str(caught.value).startswith(f"http://127.0.0.1:{port}/mcp: ")
            assert "pw" not in str(caught.value)
            assert not caught.value.may_have_run


# Connections that break


LISTED = b'{"jsonrpc":"2.0","id":@id,"result":{"tools":[]}}'


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize(
    "client", [nullcontext, httpx.AsyncClient, httpx2.AsyncClient], ids=["own", "the caller's", "one of httpx2"]
)
@fault("H24")
async def test_a_read_and_a_ping_that_may_have_been_read_are_sent_again(client: MakeClient, reset: bool) -> None:
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
        assert await calls_while_idle() < FEW_CALLS


@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
@pytest.mark.adjustable_clock
@fault("H27", within=1000)
async def test_a_server_that_never_answers_the_handshake_ends_at_the_limit(era: Any, subtests: pytest.Subtests) -> None:
    silent = {"initialize": hang_for(60)}, {"initialize": hang_for(60), "discover": hang_for(60)}
    for answers in silent if era != "modern" else silent[1:]:
        with subtests.test(silent=ascii(list(answers))):
            async with serving(mcp(**answers)) as peer:
                with pytest.raises(ConnectTimeout, match="was not ready within 60 s"):
                    await Client(StreamableHttp(peer.url), era=era, limits=Limits(connect_timeout=60)).connect()


@pytest.mark.adjustable_clock
@fault("H28", "H29")
async def test_a_call_that_times_out_does_not_fail_the_session(subtests: pytest.Subtests) -> None:
    beginnings = [b"", b"HTTP/1.1 200 OK\r\nx: ", head(200, JSON), head(200, EVENTS)]
    call = in_turn(*(each for beginning in beginnings for each in (hang_for(9, beginning), says())))
    async with connected(mcp(call=call)) as (client, peer):
        for count, beginning in enumerate(beginnings, 1):
            with subtests.test(ascii(beginning)):
                with pytest.raises(RequestTimeout):
                    await client.call_tool("tides", timeout=9)
                assert (await client.call_tool("tides")).content == TIDES
                await peer.heard.reaches(lambda heard, count=count: [*map(subject, heard)].count("cancelled") == count)  # type: ignore[misc]

    assert subjects(peer).count("initialize") == 1


async def thinks(wire: Wire, heard: Heard) -> None:
    """A tool that takes longer than every limit of a network's."""
    await anyio.wait_all_tasks_blocked()  # until the client reads
    advance(100)
    await anyio.wait_all_tasks_blocked()
    await says()(wire, heard)


@pytest.mark.parametrize(
    "client",
    [nullcontext, partial(httpx.AsyncClient, timeout=60), partial(httpx2.AsyncClient, timeout=60)],
    ids=["own", "the caller's", "one of httpx2"],
)
@pytest.mark.adjustable_clock
@fault("H29", "H30")
async def test_no_timeout_of_the_network_cuts_a_call_that_may_take_longer(client: MakeClient) -> None:
    async with client() as http, connected(mcp(call=thinks), client=http, limits=Limits(stall_timeout=60)) as (host, _):
        assert (await host.call_tool("tides")).content == TIDES


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
    library: Any, proxy_at: Callable[[Peer], None]
) -> None:
    async with serving(mcp()) as proxy, library.AsyncClient(trust_env=False) as http:
        proxy_at(proxy)
        async with connected(mcp(), client=http) as (client, _):
            await tides(client)

    assert proxy.connections == 0
