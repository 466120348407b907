"""TLS and addresses: who is trusted, under which name, and by which protocol of the internet."""

from __future__ import annotations

import socket
import ssl

import anyio
import httpx
import pytest

from tests.transports.http_contract import Kind, authority, both, certified, ours, trusting
from tests.transports.http_peers import CHUNKED, Wire, head, saying_once, serving

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"content-length: 0\r\n\r\n"


async def answering(wire: Wire) -> None:
    while True:
        heard = await wire.hear()
        await wire.reply(200, body=heard.body)


@both
async def test_a_server_with_a_certificate_is_trusted_and_its_connection_kept(kind: Kind) -> None:
    async with serving(answering, tls=certified("127.0.0.1")) as peer, kind.client(tls=trusting()) as client:
        for body in (b"tide", b"x" * 1_000_000, b""):
            assert (await client.post(peer.url, content=body)).content == body

    assert (len(peer.heard), peer.connections) == (3, 1)


@pytest.mark.parametrize("secure", [False, True], ids=["tls to plain", "plain to tls"])
@both
async def test_one_side_alone_cannot_speak_tls(secure: bool, kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        await wire.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    tls = certified("127.0.0.1") if secure else None
    async with serving(script, tls=tls) as peer, kind.client(tls=trusting()) as client:
        with pytest.raises(httpx.TransportError if secure else httpx.ConnectError):
            await client.get(peer.url.replace("https:", "http:") if secure else peer.url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("raw", "broken"),
    [
        pytest.param(OK + b"\r\ntide", False, id="a body that ends with the connection"),
        pytest.param(OK + b"content-length: 5\r\n\r\ntide", True, id="half a body"),
        pytest.param(head(200, CHUNKED) + b"4\r\ntide\r\n", True, id="no last chunk"),
        pytest.param(b"", True, id="nothing"),
    ],
)
@both
async def test_a_connection_that_is_cut_off_ends_a_body_only_where_nothing_else_would(
    raw: bytes, broken: bool, kind: Kind
) -> None:
    """No server says goodbye in TLS; lengths and last chunks are what shows that something is missing."""

    async with serving(saying_once(raw), tls=certified("127.0.0.1")) as peer, kind.client(tls=trusting()) as client:
        if broken:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(peer.url)
        else:
            assert (await client.get(peer.url)).content == b"tide"


@ours("it takes such a record for the answer")
async def test_unsolicited_bytes_are_not_the_response_to_the_next_request(kind: Kind) -> None:
    """The second record waits behind the first, where no look at the socket finds it."""

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(EMPTY, head(408, {"content-length": "0"}))
        await wire.hung_up()

    async with serving(script, tls=certified("127.0.0.1")) as peer, kind.client(tls=trusting()) as client:
        for _ in range(2):
            assert (await client.post(peer.url)).status_code == 200

    assert peer.connections == 2


async def test_bytes_that_are_not_tls_after_a_response_end_the_use_of_its_connection() -> None:
    async def script(wire: Wire) -> None:
        """Speak TLS; send the response and the bytes after it in one piece."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = certified("127.0.0.1").wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.read(65536)  # shakes hands first
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    await wire.stream.send(outgoing.read())
                incoming.write(await wire.stream.receive())
        tls.write(EMPTY)
        await wire.stream.send(outgoing.read() + b"this is no TLS record")
        await wire.hung_up()

    async with serving(script) as peer, Kind("ours").client(tls=trusting()) as client:
        for _ in range(2):
            assert (await client.get(peer.url.replace("http:", "https:"))).status_code == 200

    assert peer.connections == 2


@ours("it writes to the end before it reads")
async def test_an_early_response_is_read_over_tls(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear_until(b"\r\n\r\n")
        await wire.reply(413)
        await anyio.sleep_forever()

    async with serving(script, tls=certified("127.0.0.1")) as peer, kind.client(tls=trusting()) as client:
        assert (await client.post(peer.url, content=b"x" * 50_000_000)).status_code == 413


async def test_a_server_that_chooses_http_2_is_an_error_of_connecting() -> None:
    """The context of a caller may offer it for another client's sake. httpx changes the context, so it has no such error."""
    offering, choosing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().configure_trust(offering)
    authority().issue_cert("127.0.0.1").configure_cert(choosing)
    for context in (offering, choosing):
        context.set_alpn_protocols(["h2"])

    async with serving(answering, tls=choosing) as peer, Kind("ours").client(tls=offering) as client:
        complaint = (
            r"the server chose h2, which the ssl\.SSLContext of StreamableHttp\(verify=\.\.\.\) offers: only http/1\.1"
        )
        with pytest.raises(httpx.ConnectError, match=complaint):
            await client.post(peer.url)

    assert peer.heard == []


# Addresses


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@both
async def test_a_server_may_have_an_address_of_ipv6(secure: bool, kind: Kind) -> None:
    tls = certified("::1") if secure else None
    async with serving(answering, host="::1", tls=tls) as peer, kind.client(tls=trusting()) as client:
        assert (await client.post(peer.url, content=b"tide")).content == b"tide"

    assert peer.heard[0].headers["host"] == peer.url.removesuffix("/mcp").partition("//")[2]


@both
async def test_a_name_with_several_addresses_leads_to_the_one_that_answers(kind: Kind) -> None:
    async with serving(answering) as peer, kind.client() as client:  # localhost may be ::1 first, where nothing listens
        assert (await client.post(peer.url.replace("127.0.0.1", "localhost"))).status_code == 200
