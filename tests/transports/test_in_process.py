"""A server in the same process whose inbox is full, or which fails."""

from __future__ import annotations

import json

import anyio
import pytest

from mcp_host import Client
from mcp_host.errors import ConnectFailed, ConnectionClosed, RequestTimeout
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Notification, Success, encode
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
    with anyio.fail_after(25):
        async with InProcess(serve).open(Limits()) as channel, anyio.create_task_group() as tasks:
            assert [channel.send_now(note) for note in notes] == [True] * 1024 + [False]
            tasks.start_soon(channel.send, notes[-1], {})
            await anyio.wait_all_tasks_blocked()
            begin.set()
            await done.wait()

    assert read == [encode(note) for note in notes]


async def test_a_call_that_waits_for_room_is_made_when_there_is_some_and_has_not_run_if_it_times_out() -> None:
    begin, outcomes = anyio.Event(), list[str]()

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        answered = 0
        while True:
            message = json.loads(await inbox.receive())
            if message["method"] == "tools/call":
                answered += 1
                await outbox.send(encode(Success(message["id"], {"content": []})))
                if answered == 1:
                    await begin.wait()
            elif message["method"] == "initialize":
                info = {"name": "s", "version": "0"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                await outbox.send(encode(Success(message["id"], result)))

    async def call(timeout: float) -> None:
        try:
            await client.call_tool("x", timeout=timeout)
            outcomes.append("done")
        except RequestTimeout as exc:
            outcomes.append(f"may have run: {exc.may_have_run}")

    with anyio.fail_after(25):
        async with Client(InProcess(serve), era="legacy") as client:
            await client.call_tool("x")
            async with anyio.create_task_group() as tasks:
                for _ in range(1025):
                    tasks.start_soon(call, 60)
                await anyio.wait_all_tasks_blocked()
                for timeout in (0, 0.05):
                    await call(timeout)
                begin.set()

    assert outcomes == [*["may have run: False"] * 2, *["done"] * 1025]


async def test_a_message_that_waits_for_room_is_not_sent_if_the_server_ends() -> None:
    end = anyio.Event()

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        await end.wait()

    async def send() -> None:
        with pytest.raises(ConnectionClosed, match="has ended") as raised:
            await channel.send(note, {})
        assert not raised.value.may_have_run

    note = Notification("notifications/tide", {})
    with anyio.fail_after(25):
        async with InProcess(serve).open(Limits()) as channel, anyio.create_task_group() as tasks:
            while channel.send_now(note):
                pass
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            end.set()


@pytest.mark.parametrize("kind", [anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError])
async def test_a_stream_of_its_own_that_ends_is_why_a_server_has_ended(kind: type[Exception]) -> None:
    """The same says that the client has closed."""

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        await inbox.receive()
        raise kind("of the database")

    with anyio.fail_after(25):
        with pytest.raises(ConnectFailed) as raised:
            await Client(InProcess(serve, name="s")).connect()

    assert str(raised.value).startswith(f"s failed: {kind.__name__}: of the database")
