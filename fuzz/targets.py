"""What is fuzzed: each target takes any bytes, and fails where the code does what it promises never to do."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h11
from anyio import EndOfStream
from anyio.abc import ByteStream, SocketAttribute

import mcp_host.types
from mcp_host.errors import CallerError, ConnectionClosed, MessageTooLarge, ProtocolError, UncheckableSchema
from mcp_host.json_schema.schema import Schema
from mcp_host.protocol.headers import decode_value, encode_value, parameter_headers
from mcp_host.protocol.jsonrpc import ID_WINDOW, Malformed, decode, encode, recover_id
from mcp_host.protocol.sse import FIELD_ROOM, EventDecoder, LastEvent
from mcp_host.transports._http.pool import Connection
from mcp_host.transports._http.response import ACCEPT_ENCODING, INFLATE_SIZE, Decompressor
from mcp_host.transports.stdio import LineBuffer, LongLine
from mcp_host.types.base import Model

LIMIT = (
    2 * ID_WINDOW
)  # of lines and events here: short enough to be passed, longer than both ends that are kept of a line
STEPS = 20_000  # of a schema's check: some milliseconds, or a tenth of a second where every branch is counted


def split(data: bytes) -> tuple[bytes, list[bytes]]:
    """*data* without its first bytes, whole and in pieces whose sizes these bytes say."""
    sizes, whole = data[:4], data[4:]
    pieces, start = [], 0
    for position in range(len(whole)):
        size = 1 + sizes[position % len(sizes)] % 64
        if start >= len(whole):
            break
        pieces.append(whole[start : start + size])
        start += size
    return whole, pieces


def messages(data: bytes) -> None:
    """Any bytes are messages, or malformed; what is a message survives being written."""
    for message in decode(data):
        if isinstance(message, Malformed):
            continue
        try:
            again = encode(message)
        except CallerError:
            continue  # half a surrogate pair: JSON can say it, UTF-8 cannot
        assert b"\n" not in again
        assert list(decode(again)) == [message]
    recover_id(data, data)


def lines(data: bytes) -> None:
    """Any split of a stream has the same lines, and no more is kept than a line may be long."""
    whole, pieces = split(data)
    assert _lines(pieces) == _lines([whole] if whole else [])


def _lines(pieces: Sequence[bytes]) -> list[object]:
    buffer = LineBuffer(LIMIT)
    found: list[object] = []
    for piece in pieces:
        found += [_same(line) for line in buffer.feed(piece)]
        assert len(buffer._line) + len(buffer._head) + len(buffer._tail) <= LIMIT + 2 * ID_WINDOW
    return found + [_same(line) for line in buffer.rest()]


def _same(line: bytes | bytearray | LongLine) -> object:
    """What is the same of a line however it was split: of one that is too long, its size is so only at its end."""
    if isinstance(line, LongLine) and not line.tail:
        return line.head
    return line


def events(data: bytes) -> None:
    """Any split of a stream has the same events, and no more is kept than an event may be long."""
    whole, pieces = split(data)
    assert _events(pieces) == _events([whole] if whole else [])


def _events(pieces: Sequence[bytes]) -> tuple[list[object], LastEvent | None]:
    last_event = LastEvent()
    decoder = EventDecoder(LIMIT, last_event)
    found: list[object] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
            assert len(decoder._line) <= LIMIT + FIELD_ROOM
            assert len(decoder._data or b"") <= LIMIT
        found += decoder.end()
    except MessageTooLarge:
        return [], None  # at which event depends on when that was known
    return found, last_event


def headers(data: bytes) -> None:
    """Any text survives as a header's value; any schema annotates parameters, or is refused."""
    text = data.decode("utf-8", "replace")
    assert decode_value(encode_value(text)) == text
    decode_value(data.decode("latin-1"))
    if isinstance(schema := _json(data), dict):
        try:
            found = parameter_headers(schema)
        except ValueError:
            return
        for header in found:
            assert header.header.isascii()
            header.value({})


@cache
def models() -> list[type[Model]]:
    names = sorted(dir(mcp_host.types))
    found = [getattr(mcp_host.types, name) for name in names]
    return [each for each in found if isinstance(each, type) and issubclass(each, Model) and each is not Model]


def types(data: bytes) -> None:
    """Any JSON is a value of a type, which writes what it read, or a `ProtocolError`."""
    classes = models()
    cls, value = classes[int.from_bytes(data[:2], "big") % len(classes)], _json(data[2:])
    try:
        read = cls.from_wire(value)
    except ProtocolError:
        return
    assert cls.from_wire(read.to_wire()) == read


def schemas(data: bytes) -> None:
    """Any JSON is a schema that says whether any JSON conforms, or that it cannot be checked: in bounded steps."""
    match _json(data):
        case [dict() as schema, value]:
            try:
                problem = Schema(schema).mismatch(value, steps=STEPS)
            except UncheckableSchema:
                return
            assert problem is None or len(problem) <= 500


def compression(data: bytes) -> None:
    """Any bytes are decompressed in small pieces, or corrupt."""
    codings = ACCEPT_ENCODING.split(", ")
    decompressor = Decompressor(codings[data[0] % len(codings)] if data else codings[0])
    _, pieces = split(data[1:])
    try:
        for piece in pieces:
            assert all(len(inflated) <= INFLATE_SIZE for inflated in decompressor.feed(piece))
        decompressor.finish()
    except ConnectionClosed:
        pass


class Said(ByteStream):
    """A server's end of a connection that says these pieces and hangs up."""

    def __init__(self, pieces: Sequence[bytes], raw: socket.socket) -> None:
        self._pieces = iter(pieces)
        self._raw = raw

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {SocketAttribute.raw_socket: lambda: self._raw}

    async def receive(self, max_bytes: int = 65536) -> bytes:
        for piece in self._pieces:
            return piece
        raise EndOfStream

    async def send(self, item: bytes) -> None:
        pass

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


@cache
def runner() -> asyncio.Runner:
    found = asyncio.Runner()
    atexit.register(found.close)
    return found


def connections(data: bytes) -> None:
    """Any bytes are an HTTP response, or `ConnectionClosed`: never an exception of h11's."""
    _, pieces = split(data)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        runner().run(_read_response(Said(pieces, ours)))


async def _read_response(said: Said) -> None:
    connection = Connection(said, "the server")
    try:
        await connection.request(h11.Request(method="POST", target="/", headers=[("host", "server.test")]), b"", None)
        while (event := connection.next_event()) is h11.NEED_DATA or type(event) is h11.Data:
            if event is h11.NEED_DATA:
                await connection.read()
    except ConnectionClosed:
        pass


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Target:
    """One thing to fuzz, and what to begin with."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


STREAM = b"\x03\x10\x01\x3f"  # the sizes of pieces that a seed comes in
TOOL = b'{"properties":{"a":{"type":"string","x-mcp-header":"Region"}}}'
SCHEMA = b'[{"$defs":{"a":{"pattern":"^a+$","minLength":1}},"properties":{"b":{"items":{"$ref":"#/$defs/a"}}},"required":["b"]},{"b":["aa"]}]'

TARGETS = {
    "messages": Target(
        messages,
        [
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"2.0","id":"a","method":"ping"}',
            b'[{"jsonrpc":"2.0","method":"m","params":{"a":[1.5,null,"\\u00e9"]}}]',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m","data":0}}',
        ],
    ),
    "lines": Target(lines, [STREAM + b"a\nb\r\n\n" + b"c" * 2 * LIMIT + b"\nd"]),
    "events": Target(
        events, [STREAM + b"\xef\xbb\xbfid: 1\nretry: 5\nevent: message\ndata: a\r\ndata:b\r\r: c\ndata\n\ndata: e"]
    ),
    "headers": Target(headers, [b"=?base64?w6k=?=", "é".encode(), TOOL]),
    "types": Target(types, []),
    "schemas": Target(schemas, [SCHEMA, b'[{"anyOf":[{"type":["string","null"]},{"const":1}],"not":{"enum":[2]}},1]']),
    "compression": Target(
        compression, [b"\x00" + STREAM + bytes.fromhex("1f8b08000000000002034b04001dc1ec7401000000")]
    ),
    "connections": Target(
        connections,
        [
            STREAM + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            STREAM
            + b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ],
    ),
}


def examples(target: str) -> Iterator[bytes]:
    """The official examples as further seeds, where MCP_SPEC_DIR says where they are."""
    if (folder := os.environ.get("MCP_SPEC_DIR")) is None:
        return
    places = {cls.__name__: number.to_bytes(2, "big") for number, cls in enumerate(models())}
    for path in sorted(Path(folder, "examples").glob("*/*.json")):
        raw = path.read_bytes()
        if target == "types" and path.parent.name in places:
            yield places[path.parent.name] + raw
        elif target == "messages":
            yield raw
        elif target == "events":
            yield STREAM + b"data: " + json.dumps(json.loads(raw)).encode() + b"\n\n"
        elif target == "headers" and path.parent.name == "Tool":
            yield json.dumps(json.loads(raw)["inputSchema"]).encode()
        elif target == "schemas" and path.parent.name == "Tool":
            yield json.dumps([json.loads(raw)["inputSchema"], {}]).encode()
