"""One request and its answer, by our own pool and by httpx's: both read any bytes in the same way."""

from __future__ import annotations

import anyio
import httpx
import pytest

from tests.transports.http_contract import Kind, both, ours
from tests.transports.http_peers import Wire, head, saying, saying_once, serving

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = OK + b"transfer-encoding: chunked\r\n\r\n"
MANY = b"x" * 3_000_000


async def answered(kind: Kind, raw: bytes, *, method: str = "POST") -> httpx.Response:
    """What becomes of *raw*, after which the server closes the connection."""
    async with serving(saying_once(raw)) as peer, kind.client() as client:
        try:
            return await client.request(method, peer.url)
        except httpx.TransportError as exc:
            failure = exc
    raise failure  # out of the server's task group, which would wrap it


# What is an answer


ANSWERS = {
    "sized": (OK + b"content-length: 4\r\n\r\ntide", 200, b"tide"),
    "empty": (OK + b"content-length: 0\r\n\r\n", 200, b""),
    "until the connection ends": (OK + b"\r\ntide", 200, b"tide"),
    "chunked": (CHUNKS + b"2\r\nti\r\n2\r\nde\r\n0\r\n\r\n", 200, b"tide"),
    "chunk extensions and a trailer": (CHUNKS + b"4;a=b\r\ntide\r\n0\r\nx: y\r\n\r\n", 200, b"tide"),
    "chunked and sized": (OK + b"transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n4\r\ntide\r\n0\r\n\r\n", 200, b"tide"),
    "the same length twice": (OK + b"content-length: 4\r\ncontent-length: 4\r\n\r\ntide", 200, b"tide"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\ntide", 200, b"tide"),
    "no reason phrase": (b"HTTP/1.1 200\r\ncontent-length: 4\r\n\r\ntide", 200, b"tide"),
    "bare line feeds": (b"HTTP/1.1 200 OK\ncontent-length: 4\n\ntide", 200, b"tide"),
    "a folded header": (OK + b"x: a\r\n b\r\ncontent-length: 4\r\n\r\ntide", 200, b"tide"),
    "an empty header": (OK + b"x:\r\ncontent-length: 4\r\n\r\ntide", 200, b"tide"),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\n", 304, b""),
    "an unknown status": (b"HTTP/1.1 599 Odd\r\ncontent-length: 4\r\n\r\ntide", 599, b"tide"),
    "100 first": (head(100, {}) + OK + b"content-length: 4\r\n\r\ntide", 200, b"tide"),
    "103 first": (head(103, {"link": "</a>"}) * 3 + OK + b"content-length: 4\r\n\r\ntide", 200, b"tide"),
    "large": (OK + b"content-length: 3000000\r\n\r\n" + MANY, 200, MANY),
}  # fmt: skip


@pytest.mark.fault("H26")
@both
async def test_an_answer_is_understood(kind: Kind, subtests: pytest.Subtests) -> None:
    for name, (raw, status, body) in ANSWERS.items():
        with subtests.test(name):
            response = await answered(kind, raw)
            assert (response.status_code, response.content) == (status, body)


@ours("it refuses them")
async def test_blanks_before_the_extension_of_a_chunk_are_legal(kind: Kind) -> None:
    """RFC 9112, section 7.1.1: `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`."""
    raw = CHUNKS + b'2 ; a = "b;c"\r\nti\r\n2\t;a\r\nde\r\n0 ;end\r\n\r\n'

    async def in_pieces(wire: Wire) -> None:
        await wire.hear()
        for piece in raw.partition(b"; a"):
            await wire.say(piece)
            await anyio.wait_all_tasks_blocked()

    assert (await answered(kind, raw)).content == b"tide"
    async with serving(in_pieces) as peer, kind.client() as client:
        assert (await client.post(peer.url)).content == b"tide"
    with pytest.raises(httpx.RemoteProtocolError):
        await answered(kind, CHUNKS + b"2 2;a\r\nti\r\n0\r\n\r\n")


@both
async def test_the_answer_to_head_has_no_body(kind: Kind) -> None:
    response = await answered(kind, OK + b"content-length: 4\r\n\r\n", method="HEAD")

    assert (response.headers["content-length"], response.content) == ("4", b"")


@both
async def test_a_response_has_the_fields_of_its_head(kind: Kind) -> None:
    response = await answered(kind, b"HTTP/1.1 418 Tea\r\nSet-Cookie: a\r\nset-cookie: b\r\ncontent-length: 0\r\n\r\n")

    assert (response.http_version, response.reason_phrase) == ("HTTP/1.1", "Tea")
    assert response.headers.raw == [(b"Set-Cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"0")]


@ours("it parses all that has arrived in one go")
async def test_chunks_of_one_byte_do_not_block_the_event_loop(kind: Kind) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with (
        serving(saying(CHUNKS + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n")) as peer,
        kind.client() as client,
        client.stream("GET", peer.url) as response,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(take_turns)
        body = await response.aread()
        tasks.cancel_scope.cancel()

    assert body == b"x" * 10_000
    assert turns >= 30


# What is none


FAULTS = {
    "nothing": b"",
    "half a status line": b"HTTP/1.1 200 O",
    "half a head": OK + b"content-length: 4\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "another version": b"HTTP/2 200 OK\r\n\r\n",
    "a short status": b"HTTP/1.1 20 OK\r\n\r\n",
    "two lengths": OK + b"content-length: 4\r\ncontent-length: 5\r\n\r\ntide",
    "a negative length": OK + b"content-length: -4\r\n\r\ntide",
    "a length that is no number": OK + b"content-length: 4x\r\n\r\ntide",
    "another transfer encoding": OK + b"transfer-encoding: gzip\r\n\r\ntide",
    "a space in the name of a header": OK + b"x y: z\r\n\r\n",
    "NUL in a header": OK + b"x: a\x00b\r\n\r\n",
    "a huge header": OK + b"x: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "many headers": OK + b"x: y\r\n" * 200_000 + b"\r\n",
    "101": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
    "half a body": OK + b"content-length: 4\r\n\r\nti",
    "no chunk": CHUNKS,
    "half a chunk": CHUNKS + b"4\r\nti",
    "no last chunk": CHUNKS + b"4\r\ntide\r\n",
    "a bad chunk size": CHUNKS + b"zz\r\n",
    "a chunk longer than its size": CHUNKS + b"2\r\ntide\r\n",
    "an endless chunk size": CHUNKS + b"f" * 100 + b"\r\n",
}


@both
async def test_anything_else_breaks_the_protocol(kind: Kind, subtests: pytest.Subtests) -> None:
    for name, raw in FAULTS.items():
        with subtests.test(name), pytest.raises(httpx.RemoteProtocolError):
            await answered(kind, raw)


@both
async def test_bytes_before_a_fault_are_delivered_first(kind: Kind) -> None:
    pieces: list[bytes] = []

    script = saying(CHUNKS + b"4\r\ntide\r\nzz\r\n")
    async with serving(script) as peer, kind.client() as client, client.stream("GET", peer.url) as response:
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012  # when it comes is what this is about
            async for piece in response.aiter_raw():
                pieces.append(piece)

    assert pieces == [b"tide"]


# What is said


@pytest.mark.parametrize(
    ("method", "options", "end"),
    [
        pytest.param("GET", {}, b"\r\n\r\n", id="no body"),
        pytest.param("POST", {"content": b"tide"}, b"\r\n\r\ntide", id="sized"),
        pytest.param("POST", {"content": b"x" * 300_000}, b"x" * 300_000, id="large"),
        pytest.param("GET", {"headers": {"X-Mixed-Case": "1", "x": "2"}}, b"\r\n\r\n", id="headers"),
    ],
)  # fmt: skip
async def test_both_write_the_same_bytes(method: str, options: dict[str, object], end: bytes) -> None:
    said: list[bytes] = []

    async def script(wire: Wire) -> None:
        said.append(await wire.hear_until(end) + end)
        await wire.reply(200)

    for kind in (Kind("ours"), Kind("httpx")):
        async with serving(script, port=0) as peer, kind.client() as client:
            given = dict(options)
            headers = {"Host": "server.test", **given.pop("headers", {})}  # type: ignore[dict-item]
            await client.request(method, peer.url, headers=headers, **given)  # type: ignore[arg-type]

    ours, httpxs = said
    assert ours == httpxs


@ours("it hands the connection over to the caller")
async def test_no_connection_changes_to_another_protocol(kind: Kind) -> None:
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    async with serving(saying(head(101, headers))) as peer, kind.client() as client:
        with pytest.raises(httpx.RemoteProtocolError, match="switched to another protocol"):
            await client.get(peer.url, headers=headers)


# An answer that comes early


@ours("it writes to the end before it reads, and then the answer may be lost")
async def test_an_answer_before_the_end_of_the_body_counts(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear_until(b"\r\n\r\n")
        await wire.reply(413, body=b"too large")
        await anyio.sleep_forever()  # and read nothing more

    async with serving(script) as peer, kind.client() as client:
        for _ in range(2):
            response = await client.post(peer.url, content=b"x" * 10_000_000)  # more than sockets hold
            assert (response.status_code, response.content) == (413, b"too large")

    assert peer.connections == 2


@ours("it leaves the generator of a body to the garbage collector")
async def test_a_server_that_hangs_up_during_the_body_ends_the_request(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear_until(b"\r\n\r\n")

    async with serving(script) as peer, kind.client() as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)):
            await client.post(peer.url, content=b"x" * 10_000_000)


@both
async def test_an_interim_answer_does_not_end_the_body(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        await wire.hear_until(b"\r\n\r\n")
        await wire.say(head(102, {}) + head(103, {}))
        await anyio.wait_all_tasks_blocked()
        await wire.hear_until(b"end")
        await wire.reply(200)
        await wire.hear()
        await wire.reply(204)

    async with serving(script) as peer, kind.client() as client:
        first = await client.post(peer.url, content=b"x" * 2_000_000 + b"end")
        second = await client.get(peer.url)

    assert (first.status_code, second.status_code, peer.connections) == (200, 204, 1)
