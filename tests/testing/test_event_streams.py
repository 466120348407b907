"""What is kept of an event stream, and what a client that does not read costs."""

from __future__ import annotations

from anyio import TaskInfo, create_task_group, fail_after, get_current_task, sleep_forever, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from mcp_host.protocol.jsonrpc import Notification, Success
from mcp_host.serving.http.event_stream import MAX_KEPT, MAX_SIZE, MAX_WAITING, EventStream
from tests.transports.http_peers import Log

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


async def test_while_nothing_is_written_the_end_of_the_connection_is_awaited_in_no_other_task() -> None:
    """An event interrupts the wait, and an end that comes meanwhile is noticed by the next one."""
    stream, received, waits = EventStream("1"), list[bytes](), Log[TaskInfo]()
    is_gone = False

    async def disconnected() -> None:
        waits.append(get_current_task())
        if not is_gone:
            await sleep_forever()

    async def write(events: bytes) -> None:
        nonlocal is_gone
        received.append(events)
        is_gone = len(received) == 2

    async def send() -> None:
        senders.append(get_current_task())
        await stream.send_to(write, 0, disconnected)

    senders = list[TaskInfo]()
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(send)
            for _ in range(2):
                await waits.reaches(lambda waits: len(waits) > len(received))
                await wait_all_tasks_blocked()
                stream.append(b"{}")

    assert received == [b"id: 1/0\ndata: {}\n\n", b"id: 1/1\ndata: {}\n\n"]
    assert waits == 3 * senders


async def test_a_newer_connection_takes_over_from_one_that_waits() -> None:
    stream, ended = EventStream("1"), list[str]()
    received: dict[str, list[bytes]] = {"older": [], "newer": []}

    async def send(name: str) -> None:
        async def write(events: bytes) -> None:
            received[name].append(events)

        await stream.send_to(write, stream.sent)
        ended.append(name)

    with fail_after(25):
        async with create_task_group() as tasks:
            for name in received:
                tasks.start_soon(send, name)
                await wait_all_tasks_blocked()
            assert ended == ["older"]
            stream.append(b"{}")
            await wait_all_tasks_blocked()
            stream.end()

    assert received == {"older": [], "newer": [b"id: 1/0\ndata: {}\n\n"]}
