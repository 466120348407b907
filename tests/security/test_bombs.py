"""Compressed bodies in every wrapping: what they would come to is never held."""

from __future__ import annotations

import zlib
from functools import cache

import pytest

from mcp_host.errors import ConnectionClosed, HttpStatusError, MessageTooLarge, ProtocolError
from mcp_host.limits import Limits
from tests.faults.fault import fault
from tests.faults.http_server import DONE, connected, error_of, mcp, says, sends, tides
from tests.faults.measure import peak
from tests.transports.http_contract import by_httpx  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import event

MiB = 1024 * 1024
SMALL = Limits(max_message=64 * 1024)


@cache
def bomb(size: int, *, wbits: int) -> bytes:
    """So many NULs, in a thousandth of the space."""
    packer = zlib.compressobj(wbits=wbits)
    return b"".join(packer.compress(bytes(MiB)) for _ in range(size // MiB)) + packer.flush()


FORMS = {"gzip": 31, "deflate": 15, "deflate without its head": -15}
"""Each with zlib's *wbits* for it."""


@pytest.mark.fault("H31")
@pytest.mark.parametrize("form", FORMS)
async def test_a_compression_bomb_in_any_encoding_stops_at_the_limit(form: str) -> None:
    packed = bomb(16 * MiB, wbits=FORMS[form])
    for kind in ("application/json", "text/event-stream", "text/plain"):
        status = 500 if kind == "text/plain" else 200
        answer = says(packed, status, content_encoding=form.split()[0], content_type=kind)
        with peak() as most:
            error = await error_of(answer, limits=SMALL)

        assert most() < 8 * MiB
        if isinstance(error, HttpStatusError):
            assert (error.status, error.body) == (500, "\0" * 64 * 1024)
        assert type(error) is (HttpStatusError if status == 500 else MessageTooLarge)


LAYERS = {
    "named at once": b"content-encoding: deflate, deflate\r\n",
    "in two headers": b"content-encoding: deflate\r\ncontent-encoding: deflate\r\n",
    "not named": b"content-encoding: deflate\r\n",
    "in the transfer": b"transfer-encoding: deflate, chunked\r\n",
}


async def test_only_one_layer_of_compression_is_accepted() -> None:
    twice = zlib.compress(bomb(16 * MiB, wbits=FORMS["deflate"]))
    for name, headers in LAYERS.items():
        sized = b"content-length: %d\r\n" % len(twice) if b"transfer" not in headers else b""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n" + sized + headers + b"\r\n"
        with peak() as most:
            error = await error_of(sends(head + twice), limits=SMALL)

        assert most() < 8 * MiB
        assert type(error) in (ProtocolError, ConnectionClosed), name


@fault("H31")
async def test_a_compression_bomb_after_the_reply_is_not_read() -> None:
    """Comments without end, compressed: the reply is there, and the rest is left."""
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(event(DONE.replace(b"@id", b"2"))) + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = b"".join(packer.compress(b": x\n" * (MiB // 4)) for _ in range(20))

    answer = says(first + rest, content_type="text/event-stream", content_encoding="gzip")
    with peak() as most:
        async with connected(mcp(call=answer)) as (client, _):
            await tides(client)

    assert most() < 8 * MiB
