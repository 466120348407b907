"""https stays https, and is checked: nothing is sent to a server that cannot prove its identity."""

from __future__ import annotations

import ssl

import httpx
import pytest
from anyio import fail_after

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectFailed, HttpStatusError
from mcp_host.transports._http import tls
from tests.faults.http_server import SOON, mcp, says, tides
from tests.transports.http_contract import by_httpx, certified, trusting  # noqa: F401  # one is an autouse fixture
from tests.transports.http_peers import Heard, Wire, serving
from tests.transports.legacy_peers import in_turn

SECRETS = {"Authorization": "Bearer secret"}
MACHINES = tls.trusted


@pytest.fixture(autouse=True)
def own_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificates of a machine that trusts the tests' authority."""
    monkeypatch.setattr(tls, "trusted", trusting)


async def test_a_redirect_to_plain_http_is_refused() -> None:
    """Even to the same host and port."""

    async def down(wire: Wire, heard: Heard) -> None:
        await says(b"", 307, location=f"http://{heard.headers['host']}/mcp")(wire, heard)

    async with serving(mcp()) as plain:
        elsewhere = says(b"", 308, location=plain.url)
        script = mcp(call=in_turn(down, elsewhere, says()))
        async with serving(script, tls=certified("127.0.0.1")) as peer:
            with fail_after(SOON):
                async with Client(StreamableHttp(peer.url, headers=SECRETS), era="legacy") as client:
                    for _ in range(2):
                        with pytest.raises(HttpStatusError, match="refused to follow a redirect to http://"):
                            await client.call_tool("tides")
                    await tides(client)

    assert plain.connections == 0


@pytest.mark.parametrize("names", [("127.0.0.2",), ("localhost", "*.0.0.1")], ids=["another address", "a name"])
async def test_nothing_is_sent_to_a_server_with_a_certificate_for_another_host(names: tuple[str, ...]) -> None:
    async with serving(mcp(), tls=certified(*names)) as peer:
        with fail_after(SOON), pytest.raises(ConnectFailed):
            await Client(StreamableHttp(peer.url, headers=SECRETS)).connect()

    assert peer.heard == []


async def test_nothing_is_sent_to_a_server_with_an_unknown_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "trusted", MACHINES)

    async with serving(mcp(), tls=certified("127.0.0.1")) as peer:
        with fail_after(SOON), pytest.raises(ConnectFailed):
            await Client(StreamableHttp(peer.url, headers=SECRETS)).connect()

    assert peer.heard == []


def test_certificates_and_names_are_checked() -> None:
    context = MACHINES()

    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("machine", "lowest"),
    [
        (ssl.TLSVersion.MINIMUM_SUPPORTED, ssl.TLSVersion.TLSv1_2),
        (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
    ],
    ids=["any", "1.2", "1.3"],
)
def test_the_lowest_tls_version_is_1_2_or_the_machines_minimum(
    machine: ssl.TLSVersion, lowest: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context()
    context.minimum_version = machine
    monkeypatch.setattr(httpx, "create_ssl_context", lambda: context)

    assert MACHINES.__wrapped__().minimum_version is lowest
