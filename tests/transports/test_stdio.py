"""Real child processes that behave well. The others are in tests/faults."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_host import Client, Stdio
from mcp_host.errors import ConnectionClosed, RequestTimeout
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.transports._process.start import start
from mcp_host.transports._process.stderr import Stderr
from mcp_host.transports.stdio import StdioChannel
from tests.clock import advance
from tests.transports.children import TimedStdio, python, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("uvx some-server", "command is of type str: "),
        (b"uvx", "command is of type bytes: "),
        (None, "command is of type NoneType: "),
        ([], "command is empty: "),
        ([""], r"command\[0\], the program, is empty: "),
        (["uvx", 3], r"command\[1\] is of type int: "),
        (["no-such-program --key"], r'command\[0\] has a space .* write \["no-such-program", \.\.\.\]; '),
        (["API_KEY=sk/1", "uvx"], r"command\[0\] gives the variable API_KEY, .* pass it with env=; "),
        (["_k=s p"], r"command\[0\] gives the variable _k, "),
    ],
    ids=["text", "bytes", "nothing", "empty", "no program", "a number", "a whole line", "a variable", "both"],
)
def test_an_invalid_command_is_an_error_that_shows_how_to_write_it(command: Any, says: str) -> None:
    with pytest.raises(TypeError, match=f'^{says}.*, like \\["uvx", "some-server"\\]'):
        Stdio(command)


@pytest.mark.parametrize("env", [{"PORT": 8000}, {8000: "PORT"}, ["PORT=8000"]], ids=["value", "name", "list"])
def test_an_environment_that_is_not_a_mapping_of_text_is_an_error(env: Any) -> None:
    with pytest.raises(TypeError, match=r'^env must be a mapping of text to text, like \{"PORT": "8000"\}$'):
        Stdio(["uvx"], env=env)


HALF = "s3cret\ud83d"  # half an emoji, as an editor may cut it


@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        (r"command\[0\]", {"command": [HALF]}),
        (r"command\[2\]", {"command": ["uvx", "a", HALF]}),
        ("the name of an environment variable", {"command": ["uvx"], "env": {HALF: "a"}}),
        ("the value of the environment variable 'A'", {"command": ["uvx"], "env": {"A": HALF}}),
        ("cwd", {"command": ["uvx"], "cwd": HALF}),
    ],
)
def test_what_cannot_be_encoded_is_an_error_without_the_text(where: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{where} has half of a surrogate pair, which cannot be encoded$") as caught:
        Client(Stdio(**arguments))

    assert (type(caught.value), caught.value.__context__) == (ValueError, None)
    frames = [
        frame for frame, _ in traceback.walk_tb(caught.value.__traceback__) if "/mcp_host/" in frame.f_code.co_filename
    ]
    made = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, Stdio)]
    assert set(map(repr, made)) == {"Stdio(...)"}


def test_a_client_that_is_not_made_has_a_repr() -> None:
    assert repr(Client.__new__(Client)) == "<Client that was not made>"


async def test_the_working_directory_is_the_callers_choice(tmp_path: Path) -> None:
    with anyio.fail_after(25):
        async with Client(Stdio(python("reply(read(), text(os.getcwd()))"), cwd=tmp_path)) as client:
            assert (await client.call_tool("x")).text == str(tmp_path)


async def test_the_processes_are_listed_once_for_a_server_that_exits_when_its_input_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listdir(path: str) -> list[str]:
        listed.append(path)
        return original(path)

    listed, original = list[str](), os.listdir
    monkeypatch.setattr(os, "listdir", listdir)
    with anyio.fail_after(25):
        async with Client(Stdio(python("read()"))):
            pass

    assert listed.count("/proc") == 1  # an import lists folders, too


async def test_a_server_can_write_much_while_shutting_down_after_a_cancellation(tmp_path: Path) -> None:
    """Its output is discarded, but a server that cannot write cannot shut down."""
    body = f"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say({{"method": "ready"}})
    sys.stdin.read()
    raw("x" * 8_000_000)
    open({str(tmp_path / "has shut down")!r}, "w").close()
    """
    ready = anyio.Event()
    with anyio.fail_after(25), anyio.CancelScope() as scope:
        async with (
            TimedStdio(python(body, hands=False), grace=60).open(Limits(close_timeout=180)) as channel,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(channel.listen, lambda message: ready.set())
            await ready.wait()
            scope.cancel()

    assert (tmp_path / "has shut down").exists()


@pytest.mark.adjustable_clock
async def test_a_call_that_was_never_written_says_that_it_has_not_run() -> None:
    """The server reads nothing: one call is written in part, one is queued behind it, and one waits for room in the queue."""
    may_have_run: dict[str, bool] = {}

    async def call(name: str, size: int, timeout: float = 600) -> None:
        try:
            await client.call_tool(name, {"x": "x" * size}, timeout=timeout)
        except (RequestTimeout, ConnectionClosed) as exc:
            may_have_run[name] = exc.may_have_run

    limits = Limits(max_outbox=2_000_000, close_timeout=0.6)
    with anyio.fail_after(60):
        async with Client(Stdio(python("time.sleep(60)")), limits=limits) as client, anyio.create_task_group() as tasks:
            for name, size in (("is begun", 1_500_000), ("is in line", 500_000)):
                tasks.start_soon(call, name, size)
                await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as late:
                late.start_soon(call, "waits for room", 2_000_000, 30)
                await anyio.wait_all_tasks_blocked()
                advance(30)
            await client.aclose()

    assert may_have_run == {"is begun": True, "is in line": False, "waits for room": False}


async def test_a_client_left_by_an_error_leaves_no_process() -> None:
    body = "reply(read(), text(str(os.getpid()))); time.sleep(60)"  # says who it is, and does not end by itself

    async def fail() -> None:
        async with Client(TimedStdio(python(body), grace=0.2)) as client:
            pids.append(int((await client.call_tool("pid")).text))
            raise KeyError("mine")

    pids: list[int] = []
    with anyio.fail_after(25), pytest.raises(KeyError, match="mine"):
        await fail()

    assert not running(pids[0])


def test_no_server_is_left_when_the_event_loop_ends_while_it_is_being_ended() -> None:
    """As by a signal. On asyncio that cancels every task, and no scope shields from it."""

    async def end() -> int | None:
        child = await start([sys.executable, "-c", "import time; time.sleep(60)"], None, None)
        stopping = asyncio.ensure_future(child.stop(60.0))
        await asyncio.sleep(0)
        stopping.cancel()
        with anyio.fail_after(25), suppress(asyncio.CancelledError):
            await stopping
        try:
            with anyio.fail_after(25):
                return await child.process.wait()
        finally:
            await child.stop(0)
            await child.close()

    assert asyncio.run(end()) == -signal.SIGKILL


class StalledChild:
    """A server that runs, reads nothing, and notes how long it may take to end."""

    def __init__(self) -> None:
        self.stdin = self.stdout = self.stderr = self.process = self
        self.given: list[float] = []

    def write(self, data: bytes) -> None:
        pass

    async def write_some(self, data: memoryview) -> int:
        await anyio.sleep_forever()
        raise AssertionError

    async def stop(self, limit: float) -> None:
        self.given.append(limit)


async def test_a_server_that_reads_nothing_is_killed_at_once() -> None:
    """It has had `Limits.stall_timeout`, and its callers wait until it has ended."""
    child: Any = StalledChild()
    channel = StdioChannel("stalled", child, Stderr(None), Limits(stall_timeout=0))

    assert channel.send_now(Notification("n", {}))
    with anyio.fail_after(25):
        await channel.write_queued()

    assert child.given == [0]


async def test_a_call_that_waits_for_room_is_written_when_there_is_some(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    body = f"""
    open({str(fifo)!r}).read()
    while True:
        reply(request := read(), text(request["params"]["name"]))
    """
    answers: list[str] = []

    async def call(name: str, size: int) -> None:
        answers.append((await client.call_tool(name, {"x": "x" * size})).text)
        if len(answers) == 3:
            all_answered.set()

    all_answered = anyio.Event()
    with anyio.fail_after(30):
        async with (
            Client(Stdio(python(body)), limits=Limits(max_outbox=2_000_000)) as client,
            anyio.create_task_group() as tasks,
        ):
            for name, size in (("is begun", 1_500_000), ("is in line", 500_000), ("waits for room", 2_000_000)):
                tasks.start_soon(call, name, size)
                await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(fifo.write_text, "go on")
            await all_answered.wait()

    assert set(answers) == {"is begun", "is in line", "waits for room"}  # they may be read at once
