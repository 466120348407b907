"""What is kept of an event stream, and what a client that does not read costs."""

from __future__ import annotations

from anyio import create_task_group
from anyio.lowlevel import checkpoint

from mcp_host.protocol.jsonrpc import Notification, Success
from mcp_host.serving.http.event_stream import MAX_KEPT, MAX_SIZE, MAX_WAITING, EventStream

KIB = 1024


async def test_of_what_was_sent_the_last_megabytes_are_kept() -> None:
    stream, received = EventStream("1"), list[bytes]()

    async def write(events: bytes) -> None:
        received.append(events)

    async with create_task_group() as tasks:
        tasks.start_soon(stream.send_to, write, 0)
        for _ in range(3 * MAX_KEPT // (64 * KIB)):
            stream.append(b"x" * 64 * KIB)
            await checkpoint()
        stream.end()

    count = len(stream)
    assert b"".join(received).count(b"data: ") == count == 192
    assert MAX_KEPT < stream.size + 64 * KIB < 2 * MAX_KEPT + 128 * KIB
    assert stream.resumable.stop == count
    assert 0 < stream.resumable.start < 130
    again = list[bytes]()

    async def write_again(events: bytes) -> None:
        again.append(events)

    await stream.send_to(write_again, stream.resumable.start + 1)
    assert b"".join(again).count(b"data: ") == count - stream.resumable.start - 1


async def test_what_was_not_sent_is_kept_but_for_notifications() -> None:
    stream = EventStream()
    for number in range(MAX_WAITING + 5):
        stream.add(Notification("notifications/message", {"number": number}))
    stream.add(Success(1, {}))

    assert len(stream) == MAX_WAITING + 1
    assert stream.resumable == range(MAX_WAITING + 1)


async def test_large_notifications_that_were_not_sent_are_dropped_sooner() -> None:
    stream = EventStream()
    for _ in range(20):
        stream.add(Notification("notifications/message", {"data": "x" * 1024 * KIB}))
    stream.add(Success(1, {}))

    assert len(stream) == 17
    assert stream.size < MAX_SIZE + 1024 * KIB
