"""The server's process: it does not start, exits, closes its pipes, or does not exit."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import CancelScope, Event, create_task_group, current_time, fail_after, wait_all_tasks_blocked

from mcp_host import Client, Stdio
from mcp_host.errors import ConnectFailed, ConnectionClosed, ConnectTimeout, NoCommonVersion, ProtocolError, ServerError
from mcp_host.limits import Limits
from mcp_host.types import LoggingMessageNotificationParams
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import children, fault
from tests.faults.processes import SOON, client_of, ended, says
from tests.transports.children import running
from tests.transports.http_peers import Log

pytestmark = on_both

# It does not start


@pytest.fixture
def what_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").write_text("#!/bin/sh\n", encoding="ascii")
    Path("garbage").write_bytes(b"\x7fELF?")
    Path("garbage").chmod(0o755)
    Path("lost").write_text("#!/no/such/interpreter\n", encoding="ascii")
    Path("lost").chmod(0o755)


@pytest.mark.parametrize(
    ("command", "options", "reason"),
    [
        (["no-such-server"], {}, "No such file"),
        (["-c"], {}, "No such file"),
        (["-c;hunter2"], {}, "No such file"),
        (["./plain"], {}, "Permission denied"),
        (["./garbage"], {}, "Exec format error"),
        (["./lost"], {}, "the file is there, but not the interpreter that its first line names"),
        (["."], {}, "Permission denied"),
        ([sys.executable], {"cwd": "nowhere"}, "No such file or directory: 'nowhere'"),
        ([sys.executable, "--key=hunter2\0"], {}, "embedded null byte"),
        (["\0"], {}, "embedded null byte"),
        ([sys.executable], {"env": {"KEY": "hunter2\0"}}, "embedded null byte"),
        ([sys.executable], {"env": {"KEY=hunter2": ""}}, "illegal environment variable name"),
        ([sys.executable, "hunter2" * 2**18], {}, "Argument list too long"),
    ],
    ids=[
        *(
            "not there",
            "an option",
            "a command line",
            "not executable",
            "no program",
            "no interpreter",
            "a folder",
            "no such folder",
        ),
        *("NUL", "only NUL", "NUL in a variable", "no name of a variable", "too long"),
    ],
)
@pytest.mark.usefixtures("what_does_not_run")
@fault("P01")
async def test_a_command_that_cannot_be_started_fails_the_connect_with_its_name_and_the_reason(
    command: list[str], options: Any, reason: str
) -> None:
    """And without its arguments and variables."""
    with fail_after(SOON), pytest.raises(ConnectFailed, match=reason) as failure:
        await Client(Stdio(command, **options)).connect()

    assert str(failure.value).startswith(f"cannot start {command[0]!r}: ")
    assert ("hunter2" in str(failure.value)) == ("hunter2" in command[0])
    assert not failure.value.may_have_run


@fault("P02")
async def test_a_server_that_exits_at_once_fails_the_connect_with_its_exit_code_and_stderr() -> None:
    with fail_after(SOON), pytest.raises(ConnectFailed, match=r"exited with code 3[^$]*no config") as failure:
        await client_of("print('no config', file=sys.stderr); sys.exit(3)", hands=False).connect()

    assert (failure.value.exit_code, failure.value.stderr) == (3, "no config")


@pytest.mark.adjustable_clock
@pytest.mark.parametrize(
    "body", ["time.sleep(60)", "while True: read()", "raw('Welcome!\\n'); time.sleep(60)"], ids=["deaf", "mute", "vain"]
)
@fault("P03", "P17")
async def test_a_server_that_never_answers_times_out_and_is_ended(body: str) -> None:
    client = client_of(
        f"print('no API_KEY', file=sys.stderr, flush=True)\n{body}",
        hands=False,
        on_stderr=lambda line: advance(60),
        limits=Limits(connect_timeout=60, close_timeout=0.3),
    )

    before = children()
    with fail_after(60 + SOON), pytest.raises(ConnectTimeout, match=r"not ready within 60 s[^$]*no API_KEY"):
        await client.connect()

    assert children() == before


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ('refuse(r, -32603, "no database")', ServerError),
        ('reply(r, {"protocolVersion": "1999-12-31", "capabilities": {}, "serverInfo": {"name": "s", "version": "0"}})', NoCommonVersion),
        ('reply(r, {"protocolVersion": 7})', ProtocolError),
        ('say({"id": r["id"], "result": 7})', ProtocolError),
        ("sys.exit(3)", ConnectFailed),
    ],
    ids=["an error", "a strange version", "a strange shape", "no object", "its end"],
)  # fmt: skip
@fault("P17")
async def test_a_handshake_that_fails_leaves_no_process_behind(answer: str, error: type[Exception]) -> None:
    body = f"""
    while True:
        r = read()
        if r["method"] == "initialize": {answer}
        else: refuse(r, -32601, "Method not found")
    """
    client = client_of(body, hands=False)

    before = children()
    with fail_after(SOON), pytest.raises(error):
        await client.connect()

    assert children() == before
    assert not client.connected


@pytest.mark.parametrize(
    "stage",
    [
        "started",
        *("hears server/discover", "answers server/discover"),
        *("hears initialize", "answers initialize"),
        "hears notifications/initialized",
    ],
)
@fault("P16")
async def test_a_connect_that_is_cancelled_at_any_stage_leaves_no_process(stage: str) -> None:
    body = """
    def note(stage):
        print(stage, file=sys.stderr, flush=True)
    note("started")
    while True:
        r = read()
        note("hears " + r["method"])
        if r["method"] == "initialize":
            reply(r, {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "0"}})
        elif "id" in r:
            refuse(r, -32601, "Method not found")
        note("answers " + r["method"])
    """

    def on_stderr(line: str) -> None:
        stages.append(line)
        if line == stage:
            scope.cancel()

    stages: list[str] = []
    before = children()
    client = client_of(body, hands=False, on_stderr=on_stderr)
    with CancelScope() as scope:
        await client.connect()
    if client.connected:  # in the last stages, the cancellation may come too late
        await client.aclose()

    assert stage in stages
    assert children() == before


@fault("P16")
async def test_a_connect_cancelled_before_it_begins_starts_nothing(tmp_path: Path) -> None:
    with CancelScope() as scope:
        scope.cancel()
        await client_of(f"open({str(tmp_path / 'note')!r}, 'w'); read()", hands=False).connect()

    assert children() == set()


# It exits


@pytest.mark.parametrize(
    ("body", "words", "code"),
    [
        ('read(); print("out of cheese", file=sys.stderr); sys.exit(7)', "exited with code 7", 7),
        ("read(); os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9", -9),
    ],
    ids=["exit", "signal"],
)
@fault("P04")
async def test_a_server_that_exits_ends_every_call_at_once_with_its_exit_code(body: str, words: str, code: int) -> None:
    ends: list[ConnectionClosed] = []

    async def call() -> None:
        with pytest.raises(ConnectionClosed, match=words) as failure:
            await says(client)
        ends.append(failure.value)

    async with client_of(body) as client:
        with fail_after(SOON):
            async with create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(call)
        with pytest.raises(ConnectionClosed, match=words):
            await says(client)
        assert not client.connected
        await client.connect()
        assert client.connected

    assert [end.exit_code for end in ends] == [code] * 3
    assert all(end.may_have_run for end in ends)
    assert {end.stderr for end in ends} == ({"out of cheese"} if code == 7 else {""})
    assert ("its stderr:\n  | out of cheese" in str(ends[0])) == (code == 7)


async def test_the_exit_code_is_unknown_where_the_program_ignores_sigchld() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with fail_after(SOON):
            async with client_of("read(); sys.exit(7)", name="server") as client:
                with pytest.raises(ConnectionClosed, match=r"^server exited; ") as failure:
                    await says(client)
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert failure.value.exit_code is None


@pytest.mark.parametrize(
    ("opening", "restart"),
    [
        ("shake_hands()", True),
        ('reply(read(), {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})', None),
    ],
    ids=["a handshake server, by choice", "a stateless server, as its revision has it"],
)
@fault("P05")
async def test_a_server_that_exits_during_a_call_is_restarted_and_the_call_is_not_repeated(
    opening: str, restart: bool | None, tmp_path: Path
) -> None:
    body = f"""
    {opening}
    while True:
        request = read()
        what = request["params"]["arguments"]["what"]
        print(what, file=open({str(tmp_path / "runs")!r}, "a"))
        if what == "die":
            os._exit(7)
        reply(request, text("done"))
    """
    async with client_of(body, hands=False, restart=restart) as client:
        for _ in range(2):
            with pytest.raises(ConnectionClosed, match="exited with code 7") as failure:
                await says(client, what="die")
            assert failure.value.may_have_run
            assert await says(client, what="work") == "done"

    assert (tmp_path / "runs").read_text(encoding="ascii").split() == ["die", "work", "die", "work"]


@fault("P06")
async def test_half_a_reply_at_the_end_is_a_closed_connection_and_no_malformed_message() -> None:
    body = 'raw(\'{"jsonrpc": "2.0", "id": %d, "resu\' % read()["id"]); sys.exit(0)'

    async with client_of(body) as client:
        with fail_after(SOON), pytest.raises(ConnectionClosed, match="exited with code 0"):
            await says(client)

    assert client.counters == {}


@pytest.mark.parametrize("size", [2, 3_000_000], ids=["small", "more than a pipe holds"])
@fault("P07")
async def test_a_reply_that_was_written_before_the_exit_is_delivered(size: int) -> None:
    async with client_of(f'reply(read(), text("x" * {size})); os._exit(1)') as client:
        assert await says(client) == "x" * size
        with pytest.raises(ConnectionClosed, match="exited with code 1"):
            await says(client)


@fault("P07")
async def test_a_result_is_checked_by_the_listed_schema_after_the_server_has_exited() -> None:
    body = """
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    reply(read(), {"tools": [{"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}]})
    reply(read(), text("one") | {"structuredContent": {"n": 1}})
    """
    async with client_of(body) as client:
        await client.list_tools()
        result = await client.call_tool("x")

    assert result.structured_content == {"n": 1}


@fault("P08")
async def test_a_last_reply_needs_no_line_end() -> None:
    body = 'raw(json.dumps({"jsonrpc": "2.0", "id": read()["id"], "result": text("ok")})); os._exit(0)'

    async with client_of(body) as client:
        assert await says(client) == "ok"


@pytest.mark.parametrize(("restart", "times"), [(False, 6), (True, 6)], ids=["many clients", "one client"])
@fault("P18")
async def test_servers_that_have_exited_are_reaped_before_the_client_closes(restart: bool, times: int) -> None:
    before = children()
    body = 'reply(read(), text("ok")); read(); os._exit(1)'
    clients = [client_of(body, restart=restart)] * times if restart else [client_of(body) for _ in range(times)]
    for client in clients:
        await client.connect()
        assert await says(client) == "ok"
        with pytest.raises(ConnectionClosed):
            await says(client)
        assert children() == before  # a zombie counts as one
    for client in clients:
        await client.aclose()


# It closes its pipes


@fault("P09")
async def test_a_server_that_closes_its_stdout_ends_the_connection_and_is_ended() -> None:
    body = "read(); print(os.getpid(), file=sys.stderr, flush=True); os.close(1); time.sleep(60)"
    pids: list[str] = []

    async with client_of(body, on_stderr=pids.append, grace=0.05) as client:
        with fail_after(SOON):
            with pytest.raises(ConnectionClosed, match="has closed its end of the connection"):
                await says(client)
            assert not client.connected
            for pid in pids:
                await ended(int(pid))

    assert [running(int(pid)) for pid in pids] == [False]


@fault("P10")
async def test_a_server_that_closes_its_stdin_fails_later_requests_and_may_still_answer_earlier_ones() -> None:
    body = """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    request = read()
    os.close(0)
    say({"method": "notifications/message", "params": {"level": "info", "data": os.getpid()}})
    signal.sigwait({signal.SIGUSR1})
    reply(request, text("ok"))
    time.sleep(60)
    """
    pids: list[Any] = []
    closed = Event()

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        pids.append(message.data)
        closed.set()

    async def call() -> None:
        assert await says(client) == "ok"

    async with client_of(body, on_log=on_log, roots=[], grace=0.05) as client, create_task_group() as tasks:
        tasks.start_soon(call)
        await closed.wait()
        with pytest.raises(ConnectionClosed, match="has closed its end of the connection") as request:
            await says(client)
        with pytest.raises(ConnectionClosed, match="has closed its end of the connection") as notification:
            await client.set_roots([])
        os.kill(pids[0], signal.SIGUSR1)

    assert not request.value.may_have_run
    assert not notification.value.may_have_run


# It does not exit


STUBBORN = """
def note(what):  # not by print: SIGTERM comes while it writes, and it cannot be entered twice
    os.write(2, what.encode() + b"\\n")
signal.signal(signal.SIGTERM, lambda *_: note("asked to end"))
reply(read(), text("ok"))
sys.stdin.read()
note("end of input")
while True: time.sleep(60)
"""


@pytest.mark.adjustable_clock
@pytest.mark.parametrize(("grace", "close_timeout"), [(2000, 12_000), (4000, 6000)], ids=["grace", "time to close"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["closed", "cancelled"])
@fault("P11", within=4200)
async def test_a_server_that_does_not_exit_is_terminated_and_then_killed_in_time(
    cancelled: bool, grace: float, close_timeout: float
) -> None:
    """Each step comes when the time of the one before is over; here, as soon as the server has noted that step."""

    def on_stderr(line: str) -> None:
        said.append(line)
        advance(2000)

    said: list[str] = []
    with CancelScope() as scope:
        limits = Limits(close_timeout=close_timeout)
        async with client_of(STUBBORN, on_stderr=on_stderr, grace=grace, limits=limits) as client:
            await says(client)
            began = current_time()
            if cancelled:
                scope.cancel()

    assert said == ["end of input", "asked to end"]
    assert 4000 <= current_time() - began < 6000
    assert children() == set()


@fault("P11")
async def test_a_server_that_exits_at_the_end_of_its_stdin_is_not_signalled() -> None:
    """It ends only when its word that it has read to the end is here, and the client waits: it would have sent a signal by then."""
    wait = "signal.sigwait({signal.SIGUSR1})\nnote('in order')"
    body = STUBBORN.replace("while True: time.sleep(60)", wait).replace('text("ok")', "text(str(os.getpid()))")
    body = f"signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}})\n{body}"
    said = Log[str]()

    async def let_it_end() -> None:
        await said.reaches(bool)
        await wait_all_tasks_blocked()
        os.kill(pid, signal.SIGUSR1)

    limits = Limits(close_timeout=180)
    async with (
        create_task_group() as tasks,
        client_of(body, on_stderr=said.append, grace=60, limits=limits) as client,
    ):
        pid = int(await says(client))
        tasks.start_soon(let_it_end)

    assert said == ["end of input", "in order"]
