"""What a program writes to stdout that is no message: an error or a warning quotes it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from anyio import fail_after

from mcp_host import Client, Limits
from mcp_host.errors import ConnectFailed, ConnectionClosed, ConnectTimeout
from tests.clock import advance
from tests.transports.children import python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")

IN_TIME = 30.0  # seconds for a process, on a busy machine
PATIENT = Limits(connect_timeout=600.0)
NO_SERVER = "it seems to be no MCP server: its stdout begins with"


async def refusal(body: str, *, era: str = "auto") -> str:
    """Why no client connects to the program that is *body*, without the program's name."""
    with fail_after(IN_TIME), pytest.raises(ConnectFailed) as caught:
        await Client(python(body, hands=False), era=era).connect()
    return str(caught.value).partition(" ")[2]


QUOTES = {
    "print('hello')": "'hello'",
    "raw('hello')": "'hello'",
    "raw('\\r\\n  hello \\r\\n\\n')": "'hello'",
    "print(42)": "'42'",
    "print(json.dumps({'level': 30}))": """'{"level": 30}'""",
    "raw('a\\nb\\n')": "'a', 'b'",
    "print(*range(6), sep='\\n')": "'0', '1', '2', '3', '4', '5'",
    "print(*range(1000), 'Error: no key', sep='\\n')": "'0', '1', '2' and ends with '998', '999', 'Error: no key' (1,001 lines)",
    "print('x' * 1000)": f"'{'x' * 80}… (1000 characters)'",
    "print('\\x1b[2J\\u202e')": r"'\x1b[2J\u202e'",
    "raw('Content-Length: 7\\r\\n\\r\\n')": "'Content-Length: 7'",
    "read(); print('hello')": "'hello'",
}


@pytest.mark.backends("asyncio")
async def test_a_program_that_is_no_server_is_quoted(subtests: pytest.Subtests) -> None:
    for body, quotes in QUOTES.items():
        with subtests.test(body):
            assert await refusal(body) == f"exited with code 0; {NO_SERVER} {quotes}"


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_stdout_is_quoted_before_stderr_in_each_era(era: str) -> None:
    body = "raw('usage: x'); print('bad option', file=sys.stderr); sys.exit(2)"

    assert await refusal(body, era=era) == f"exited with code 2; {NO_SERVER} 'usage: x'; its stderr:\n  | bad option"


async def test_the_first_lines_of_stderr_are_quoted_of_a_program_that_never_spoke() -> None:
    usage = "print(*[f'usage {n}' for n in range(30)], sep='\\n', file=sys.stderr); sys.exit(2)"
    never = await refusal(f"print('no key', file=sys.stderr); {usage}")
    with fail_after(IN_TIME):
        async with Client(python(f"print('ready', file=sys.stderr); read(); {usage}"), era="legacy") as client:
            with pytest.raises(ConnectionClosed) as caught:
                await client.list_tools()

    lines = [f"usage {n}" for n in range(30)]
    assert never.split("\n  | ") == [
        "exited with code 2; its stderr:",
        "no key",
        *lines[:4],
        "… (6 lines)",
        *lines[10:],
    ]
    assert caught.value.stderr.split("\n") == lines[10:]


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_program_that_sends_back_what_it_gets_is_no_server(era: str) -> None:
    body = "for line in sys.stdin: raw(line)"

    assert await refusal(body, era=era) == (
        "sends back what it gets: it is no MCP server, or has a terminal, as with the -t of docker run and of ssh"
    )


class TimeIsUp(logging.Handler):
    """Puts the clock forward as soon as the client has logged anything."""

    def emit(self, record: logging.LogRecord) -> None:
        advance(60)


LISTENING = "raw('Listening on http://localhost:3000\\n'); time.sleep(60)"
GLUED = "refuse(read(), -32601, 'x'); request = read(); raw('Loading: 100%\\r'); reply(request, {}); time.sleep(60)"
SKIPPED = "it did not answer initialize; skipped meanwhile: 1, the last not JSON (expected value at line 1 column 1)"


@pytest.mark.adjustable_clock
@pytest.mark.parametrize(
    ("body", "quotes"),
    [
        (LISTENING, f"30 s; {NO_SERVER} 'Listening on http://localhost:3000'"),
        (GLUED, f"30 s: {SKIPPED}: " r'Loading: 100%\r{"jsonrpc": "2.0", "id": 2, "result": {}}'),
    ],
    ids=["no server", "no newline before an answer"],
)
async def test_a_program_that_prints_and_goes_on_is_quoted_when_time_is_up(body: str, quotes: str) -> None:
    handler, logger = TimeIsUp(), logging.getLogger("mcp_host")
    logger.addHandler(handler)
    try:
        with fail_after(300), pytest.raises(ConnectTimeout) as caught:
            await Client(python(body, hands=False), limits=Limits(close_timeout=0.3)).connect()
    finally:
        logger.removeHandler(handler)

    assert str(caught.value).endswith(quotes)


async def test_a_server_that_prints_a_banner_first_gets_a_warning_that_quotes_it() -> None:
    body = "raw('Welcome!\\n'); shake_hands(); reply(read(), text('ok')); read()"
    with fail_after(IN_TIME):
        async with Client(python(body, hands=False)) as client:
            assert (await client.call_tool("x")).text == "ok"

    problem = "skipped something that is no message (1 so far): not JSON (expected value at line 1 column 1): Welcome!"
    assert client.warnings == [f"{Path(sys.executable).name}: {problem}"]


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_program_that_writes_lines_without_end_is_no_server_at_once(era: str) -> None:
    with fail_after(IN_TIME), pytest.raises(ConnectFailed) as caught:
        await Client(python("while True: raw('y\\n' * 100)", hands=False), era=era, limits=PATIENT).connect()

    assert f"writes to stdout, but no messages; {NO_SERVER} 'y', 'y', 'y' and " in str(caught.value)
    assert not isinstance(caught.value, ConnectTimeout)


async def test_a_server_may_write_thousands_of_lines_before_its_first_message_and_any_number_after_it() -> None:
    body = "raw('y\\n' * 4999); shake_hands(); raw('y\\n' * 9999); reply(read(), text('ok')); read()"
    with fail_after(IN_TIME):
        async with Client(python(body, hands=False)) as client:
            assert (await client.call_tool("x")).text == "ok"


async def test_the_error_of_a_server_that_has_spoken_does_not_doubt_that_it_is_one() -> None:
    assert (
        await refusal("raw('Welcome!\\n'); say({'method': 'notifications/message', 'params': {}})")
        == "exited with code 0"
    )
