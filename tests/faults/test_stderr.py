"""What servers write to stderr: read in full, kept in part, never a failure by itself."""

from __future__ import annotations

import pytest
from anyio import create_task_group, fail_after

from mcp_host.errors import ConnectionClosed
from mcp_host.transports._process.stderr import OnStderr
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.processes import SOON, client_of, says
from tests.transports.http_peers import Log

pytestmark = on_both


@fault("P19", "P22")
async def test_a_server_may_write_more_to_stderr_than_a_pipe_holds_before_it_answers() -> None:
    body = """
    print("ERROR: FATAL: panic", file=sys.stderr)
    for n in range(20_000):
        print(f"line {n} " + "x" * 100, file=sys.stderr)
    reply(read(), text("ok"))
    """
    lines = Log[str]()

    async with client_of(body, on_stderr=lines.append, output_grace=100) as client:  # the server exits after its answer
        assert await says(client) == "ok"
        await lines.reaches(lambda lines: len(lines) > 20_000)

    assert lines == ["ERROR: FATAL: panic", *(f"line {n} " + "x" * 100 for n in range(20_000))]
    assert client.warnings == []


@fault("P19")
async def test_stderr_is_read_without_a_callback() -> None:
    async with client_of('os.write(2, b"x" * 2**24); reply(read(), text("ok"))') as client:
        assert await says(client) == "ok"


@fault("P19")
async def test_a_server_may_close_its_stderr() -> None:
    async with client_of('os.close(2); reply(read(), text("ok"))') as client:
        assert await says(client) == "ok"


@pytest.mark.parametrize("on_stderr", [None, lambda line: None], ids=["kept only", "with a callback"])
@pytest.mark.parametrize("hands", [False, True], ids=["at its start", "in a call"])
@fault("P04", "P19")
async def test_the_last_line_before_its_end_is_in_the_error_after_many_others(
    hands: bool, on_stderr: OnStderr | None
) -> None:
    body = f"""
    {"read()" if hands else ""}
    sys.stderr.write("at frame\\n" * 50_000 + "FATAL: disk full\\n")
    sys.exit(3)
    """
    client = client_of(body, hands=hands, on_stderr=on_stderr, output_grace=100)

    with fail_after(25), pytest.raises(ConnectionClosed, match=r"exited with code 3[^$]*FATAL: disk full$"):
        async with client:
            await says(client)


@fault("P04")
async def test_an_error_does_not_wait_for_a_descendant_that_keeps_stderr_open() -> None:
    body = """
    read()
    subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print("no API_KEY", file=sys.stderr, flush=True)
    sys.exit(3)
    """
    async with client_of(body, output_grace=0.1) as client:
        with fail_after(25), pytest.raises(ConnectionClosed, match=r"exited with code 3[^$]*no API_KEY$"):
            await says(client)


@fault("P21")
async def test_a_stderr_callback_that_raises_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    lines = Log[str]()

    def on_stderr(line: str) -> None:
        lines.append(line)
        raise RuntimeError("bug")

    body = 'print("one\\ntwo\\nthree", file=sys.stderr, flush=True); reply(read(), text("ok"))'
    async with client_of(body, on_stderr=on_stderr) as client:
        assert await says(client) == "ok"
        await lines.reaches(lambda lines: len(lines) == 3)

    assert lines == ["one", "two", "three"]
    assert caplog.text.count("the stderr callback failed") == 2


CLOSING_TIME = 'read(); print("closing time", file=sys.stderr, flush=True)\nwhile True: read()'
"""Of a server that says so once it has been asked something, so that it cannot come before or after that."""


@pytest.mark.parametrize(
    ("hands", "why"),
    [(False, "closed while it was being opened"), (True, "the client was closed")],
    ids=["during connect", "during a call"],
)
@fault("P21")
async def test_a_stderr_callback_may_close_its_client(hands: bool, why: str) -> None:
    def on_stderr(line: str) -> None:
        tasks.start_soon(client.aclose)

    async def connect_and_call() -> None:
        await client.connect()
        await says(client)

    client = client_of(CLOSING_TIME, hands=hands, on_stderr=on_stderr)

    with fail_after(SOON):
        async with create_task_group() as tasks:
            with pytest.raises(ConnectionClosed) as closed:
                await connect_and_call()

    assert str(closed.value) == why
