"""Real child processes: what they say, how they end, and that all of them end."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client, Stdio
from mcp_host.errors import ConnectionClosed, MessageTooLarge, RequestTimeout
from mcp_host.limits import Limits
from mcp_host.types import ProgressNotificationParams, TextContent
from tests.transports.children import python, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")

QUICK = Limits(close_timeout=1.5)
STAYS = "reply(read(), text(str(os.getpid()))); time.sleep(60)"  # says who it is, and does not end by itself


async def said(body: str, *, calls: int = 1) -> list[str]:
    """The texts that the server's tool answers with."""
    texts = []
    with anyio.fail_after(15):
        async with Client(Stdio(python(body)), limits=QUICK) as client:
            for _ in range(calls):
                (block,) = (await client.call_tool("x")).content
                assert isinstance(block, TextContent)
                texts.append(block.text)
    return texts


@pytest.mark.parametrize(
    "body",
    [
        'raw("starting up...\\n\\n42\\n[]\\n\\x00\\x01\\n"); reply(read(), text("ok"))',
        'r = read(); raw(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": text("ok")}) + "\\r\\n")',
        'r = read(); raw(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": text("ok")})); sys.exit(0)',
        'reply(read(), text("ok")); sys.exit(0)',
        'r = read(); sys.stdout.buffer.write(b"\\xff\\xfe garbage\\n"); sys.stdout.flush(); reply(r, text("ok"))',
        'reply(read(), text("ok")); os.close(1); read()',
        """
        for byte in json.dumps({"jsonrpc": "2.0", "id": read()["id"], "result": text("ok")}).encode() + b"\\n":
            os.write(1, bytes([byte]))
        """,
    ],
    ids=["stray-output", "crlf", "no-line-end", "reply-then-exit", "bad-utf8", "closes-stdout", "byte-by-byte"],
)
async def test_a_good_reply_arrives_whatever_surrounds_it(body: str) -> None:
    assert await said(body) == ["ok"]


async def test_a_byte_order_mark_before_the_first_message_is_no_part_of_it() -> None:
    body = 'sys.stdout.buffer.write(b"\\xef\\xbb\\xbf"); sys.stdout.flush(); shake_hands(); reply(read(), text("ok"))'

    with anyio.fail_after(15):
        async with Client(Stdio(python(body, hands=False))) as client:
            assert (await client.call_tool("x")).content == [TextContent(text="ok")]


async def test_text_travels_exactly_also_where_other_programs_see_line_ends() -> None:
    odd = "a\u2028b\u2029c\x85d\u00e9\U0001f600"

    with anyio.fail_after(15):
        body = 'r = read(); reply(r, text(r["params"]["arguments"]["t"]))'
        async with Client(Stdio(python(body))) as client:
            assert (await client.call_tool("x", {"t": odd})).content == [TextContent(text=odd)]


async def test_many_megabytes_travel_in_both_directions() -> None:
    large = "x" * (8 * 1024 * 1024)

    with anyio.fail_after(30):
        body = 'r = read(); reply(r, text(r["params"]["arguments"]["t"]))'
        async with Client(Stdio(python(body))) as client:
            (block,) = (await client.call_tool("x", {"t": large})).content

    assert isinstance(block, TextContent)
    assert block.text == large


async def test_a_server_that_writes_while_we_write_does_not_deadlock() -> None:
    """Both pipes full at once: the reader never waits for the writer."""
    body = """
    flood = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}})
    for _ in range(8000):
        raw(flood + "\\n")
    reply(read(), text("ok"))
    """
    with anyio.fail_after(30):
        async with Client(Stdio(python(body))) as client:
            result = await client.call_tool("x", {"t": "y" * (4 * 1024 * 1024)})

    assert result.content == [TextContent(text="ok")]


async def test_a_server_that_reads_nothing_costs_its_callers_their_deadline_and_no_more() -> None:
    with anyio.fail_after(10):
        async with Client(Stdio(python("time.sleep(60)")), limits=Limits(close_timeout=1)) as client:
            large = {"t": "x" * (3 * 1024 * 1024)}
            for _ in range(3):
                with pytest.raises(RequestTimeout):
                    await client.call_tool("stuck", large, timeout=0.1)


async def test_a_server_that_reads_nothing_for_too_long_is_given_up() -> None:
    limits = Limits(stall_timeout=0.2, close_timeout=1)

    with anyio.fail_after(10):
        async with Client(Stdio(python("time.sleep(60)")), limits=limits) as client:
            with pytest.raises(ConnectionClosed, match="has read none of its input"):
                await client.call_tool("stuck", {"t": "x" * (3 * 1024 * 1024)})
            with pytest.raises(ConnectionClosed):
                await client.call_tool("later")


async def test_progress_from_a_process_is_in_order_and_before_the_call_returns() -> None:
    body = """
    r = read()
    for n in range(200):
        say({"method": "notifications/progress", "params": {"progressToken": r["params"]["_meta"]["progressToken"], "progress": n}})
    reply(r, text("ok"))
    """
    seen: list[float] = []

    async def on_progress(progress: ProgressNotificationParams) -> None:
        await checkpoint()
        seen.append(progress.progress)

    with anyio.fail_after(15):
        async with Client(Stdio(python(body))) as client:
            await client.call_tool("x", on_progress=on_progress)
            assert seen == list(range(200))


async def test_the_working_directory_is_the_callers_choice(tmp_path: Path) -> None:
    with anyio.fail_after(15):
        async with Client(Stdio(python("reply(read(), text(os.getcwd()))"), cwd=tmp_path)) as client:
            assert (await client.call_tool("x")).content == [TextContent(text=str(tmp_path))]


async def pid_of(client: Client) -> int:
    (block,) = (await client.call_tool("pid")).content
    assert isinstance(block, TextContent)
    return int(block.text)


async def test_a_client_left_by_an_error_leaves_no_process() -> None:
    async def fail() -> None:
        async with Client(Stdio(python(STAYS)), limits=QUICK) as client:
            pids.append(await pid_of(client))
            raise KeyError("mine")

    pids: list[int] = []
    with anyio.fail_after(10), pytest.raises(KeyError, match="mine"):
        await fail()

    assert not running(pids[0])


def test_a_host_that_ends_without_closing_leaves_no_process(tmp_path: Path) -> None:
    async def main() -> None:
        client = Client(Stdio(python(STAYS)), limits=QUICK)
        await client.connect()
        pids.append(await pid_of(client))
        clients.append(client)

    pids: list[int] = []
    clients: list[Client] = []
    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)

    assert [running(pid) for pid in pids] == [False, False]


@pytest.mark.parametrize("members", ['"id": %d, "result": %s', '"result": %s, "id": %d'], ids=["id-first", "id-last"])
async def test_a_line_past_the_limit_fails_its_own_call_at_once_and_no_other(members: str) -> None:
    order = "(r['id'], result)" if members.startswith('"id"') else "(result, r['id'])"
    body = f"""
    r = read()
    result = json.dumps(text("x" * 200_000))
    line = '{{"jsonrpc": "2.0", {members}}}' % {order}
    raw(line[:150_000])
    time.sleep(0.2)
    raw(line[150_000:] + "\\n")
    reply(read(), text("ok"))
    """
    with anyio.fail_after(10):
        async with Client(Stdio(python(body)), limits=Limits(max_message=100_000, close_timeout=1)) as client:
            with pytest.raises(MessageTooLarge, match=r"more than Limits\.max_message"):
                await client.call_tool("x")
            assert (await client.call_tool("y")).text == "ok"


async def test_a_line_that_never_ends_fails_the_call_that_waits() -> None:
    body = "read()\nwhile True: raw('x' * 50_000)"

    with anyio.fail_after(10):
        async with Client(Stdio(python(body)), limits=Limits(max_message=100_000, close_timeout=1)) as client:
            with pytest.raises(MessageTooLarge):
                await client.call_tool("x")
