"""Compressed bodies in every wrapping: what they would come to is never held."""

from __future__ import annotations

import zlib

import pytest

from mcp_host.errors import ConnectionClosed, HttpStatusError, MessageTooLarge, ProtocolError
from mcp_host.limits import Limits
from tests.faults.http_server import error_of, says, sends
from tests.faults.test_http_bodies import bomb, memory_below
from tests.transports.http_contract import by_httpx  # noqa: F401  # an autouse fixture

MiB = 1024 * 1024
SMALL = Limits(max_message=64 * 1024)


FORMS = {"gzip": 31, "deflate": 15, "deflate without its head": -15}
"""Each with zlib's *wbits* for it."""


@pytest.mark.parametrize("form", FORMS)
async def test_a_compression_bomb_in_any_encoding_stops_at_the_limit(form: str) -> None:
    packed = bomb(16 * MiB, wbits=FORMS[form])
    for kind in ("application/json", "text/event-stream", "text/plain"):
        status = 500 if kind == "text/plain" else 200
        answer = says(packed, status, content_encoding=form.split()[0], content_type=kind)
        with memory_below(8 * MiB):
            error = await error_of(answer, limits=SMALL)

        assert isinstance(error, HttpStatusError if status == 500 else MessageTooLarge)


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
        with memory_below(8 * MiB):
            error = await error_of(sends(head + twice), limits=SMALL)

        assert type(error) in (ProtocolError, ConnectionClosed), name
