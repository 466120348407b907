"""A server in the same process whose inbox is full."""

from __future__ import annotations

import anyio

from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Notification, encode
from mcp_host.transports.in_process import Inbox, InProcess, Outbox


async def test_a_message_waits_for_room_in_the_inbox_of_a_slow_server() -> None:
    read: list[bytes] = []
    begin, done = anyio.Event(), anyio.Event()

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        await begin.wait()
        async for message in inbox:
            read.append(message)
            if len(read) == 1025:
                done.set()

    notes = [Notification("notifications/tide", {"number": number}) for number in range(1025)]
    with anyio.fail_after(10):
        async with InProcess(serve).open(Limits()) as channel, anyio.create_task_group() as tasks:
            assert [channel.send_now(note) for note in notes] == [True] * 1024 + [False]
            tasks.start_soon(channel.send, notes[-1], {})
            await anyio.wait_all_tasks_blocked()
            begin.set()
            await done.wait()

    assert read == [encode(note) for note in notes]
