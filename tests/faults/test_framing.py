"""Lines on a server's stdout: split anywhere, with any line end, too long, not UTF-8, or no message."""

from __future__ import annotations

import pytest
from anyio import CancelScope, fail_after
from pydantic_core import from_json

from mcp_host.errors import ConnectTimeout, MessageTooLarge
from mcp_host.limits import Limits
from mcp_host.types import ProgressNotificationParams
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.measure import busy, peak, processor_time
from tests.faults.processes import SOON, client_of, says
from tests.faults.stdio_server import GOOD, connected, hear, unharmed

# What is no message


NOISE = [
    b"Starting up...\n",
    b"\x1b[2J\x1b[32mREADY\x1b[0m\n",
    b"42\n",
    b'"ready"\n',
    b"null\n",
    b"[]\n",
    b"{}\n",
    b'{"level":"info","id":@id,"msg":"listening"}\n',
    b"\x00\x01\x02\n",
    b"\xff\xfe garbage\n",
    bytes(range(14, 256)) * 50 + b"\n",
    b"\0" + GOOD,
    b"\x7fELF\x02\x01\x01\n",
    b"\x1f\x8b\x08\n",
    b'Received: {"method":"tools/call","jsonrpc":"2.0","id":@id}\n',
    b'Sending: {"result":{"content":[]},"jsonrpc":"2.0","id":@id}\n',
    b'2025-06-01T10:00:00Z\tINFO\tcalling\t{"tool":"good","id":@id}\n',
    b'[INFO] {"tool":"good"}, "id": @id}\n',
]


@fault("F01", "F08", "J18")
async def test_an_invalid_line_is_skipped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as client:
        for noise in NOISE:
            assert (await hear(client, noise, GOOD, noise)).text == "good", noise
            assert await unharmed(client)

    assert client.counters == {"malformed messages": 2 * len(NOISE)}
    assert "skipped something that is no message (1 so far): " in caplog.text
    assert caplog.text.replace("\n", "").isprintable()


@fault("F01")
async def test_a_server_that_prints_constantly_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as client:
        assert (await hear(client, b"Working...\n" * 10_000, GOOD)).text == "good"

    assert client.counters == {"malformed messages": 10_000}
    assert caplog.text.count("skipped something") == 14  # at 1, 2, 4, 8 and so on


# Bytes and lines


@fault("F10", "F12")
async def test_lines_may_end_as_on_windows_and_blank_ones_are_ignored() -> None:
    async with connected() as client:
        assert (await hear(client, b"\n\r\n \t\r\n", GOOD.replace(b"\n", b"\r\n"), b"\n")).text == "good"
        assert await unharmed(client)

    assert client.counters == {}


@on_both
@fault("F03")
async def test_a_call_cancelled_in_the_middle_of_a_line_loses_none_of_its_bytes() -> None:
    body = """
    while True:
        first = read()
        progress = {"progressToken": first["params"]["_meta"]["progressToken"], "progress": 1}
        half = json.dumps({"jsonrpc": "2.0", "id": first["id"], "result": text("late")})
        say({"method": "notifications/progress", "params": progress})
        raw(half[:30])
        while (second := read())["method"] != "tools/call": pass
        raw(half[30:] + "\\n")
        reply(second, text("ok"))
    """

    async def give_up(progress: ProgressNotificationParams) -> None:
        scope.cancel()

    async with client_of(body) as client:
        for _ in range(100):
            with CancelScope() as scope:
                await client.call_tool("x", on_progress=give_up)
            assert await says(client) == "ok"

    assert client.counters == {"answers to nothing": 100}


@pytest.mark.parametrize("read_size", [1, 2, 65536])
@fault("F11")
async def test_a_byte_order_mark_before_the_first_message_is_ignored(read_size: int) -> None:
    body = 'os.write(1, b"\\xef\\xbb\\xbf"); shake_hands(); reply(read(), text("ok"))'

    async with client_of(body, hands=False, read_size=read_size) as client:
        assert await says(client) == "ok"

    assert client.counters == {}


@pytest.mark.adjustable_clock
@pytest.mark.parametrize("end", ["\\n", ""], ids=["with a line end all the same", "without"])
@fault("F15")
async def test_the_framing_of_lsp_is_named_in_the_log(end: str, caplog: pytest.LogCaptureFixture) -> None:
    """A message can be read where a line end follows it; the next header would stand on its line otherwise."""
    body = f"""
    def say(message):
        body = json.dumps({{"jsonrpc": "2.0"}} | message) + "{end}"
        raw(f"Content-Length: {{len(body)}}\\r\\n\\r\\n{{body}}")
        print("said", file=sys.stderr, flush=True)
    shake_hands()
    reply(read(), text("ok"))
    read()
    """
    limits = Limits(connect_timeout=60, close_timeout=0.3)
    if end:
        async with client_of(body, hands=False, era="legacy", limits=limits) as client:
            assert await says(client) == "ok"
    else:
        client = client_of(body, hands=False, era="legacy", limits=limits, on_stderr=lambda line: advance(60))
        with pytest.raises(ConnectTimeout):
            await client.connect()

    assert "Content-Length header: the server seems to use the framing of LSP" in caplog.text


# Long lines


@fault("F04", "F05")
async def test_messages_of_16_mib_are_sent_and_received_in_linear_time() -> None:
    """A line comes in 4096 chunks. Scanning it again for each would take a thousand times as long as reading its JSON."""
    large = "x" * (16 * 1024 * 1024)

    async with client_of('r = read(); reply(r, text(r["params"]["arguments"]["t"]))', read_size=4096) as client:
        with busy() as seconds:
            assert await says(client, t=large) == large

    assert seconds() < 100 * processor_time(lambda: from_json(f'"{large}"'))


@fault("F06")
async def test_an_endless_line_fails_the_waiting_call_and_is_not_kept() -> None:
    body = """
    read()
    for _ in range(1000):
        raw("x" * 16_000)
    raw("\\n")
    while "id" not in (request := read()): pass
    reply(request, text("ok"))
    """
    async with client_of(body, limits=Limits(max_message=100_000, close_timeout=1)) as client:
        with peak() as most:
            with fail_after(SOON), pytest.raises(MessageTooLarge, match="of more than 100,000 bytes"):
                await says(client)
            assert await says(client) == "ok"

    assert most() < 4_000_000  # of 16 million; up to 1 MiB is read at once, and may be in memory twice
