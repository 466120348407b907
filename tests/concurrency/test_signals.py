"""Signals that end a program. (That a command ends its servers: `tests/cli/test_command.py`.)"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from types import FrameType
from typing import Literal

import pytest
from anyio import CancelScope, sleep_forever, to_thread
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.backends import Loop
from mcp_host.concurrency.signals import ended_by_signals, run
from mcp_host.handlers import call_handler

Backend = Literal["asyncio", "trio"]
IN_TIME = 25.0


@pytest.fixture(autouse=True)
def with_handler_of_ctrl_c() -> Iterator[None]:
    """What a shell runs in the background ignores Ctrl-C: perhaps these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Server:
    """It runs in a task without an owner, and takes some steps of the event loop to end."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def serve(self) -> None:
        self.log.append("began")
        try:
            await sleep_forever()
        finally:
            with CancelScope(shield=True):
                for _ in range(3):
                    await checkpoint()
            self.log.append("ended")

    async def use(self) -> None:
        Loop.running().spawn(self.serve, lambda: None)
        await checkpoint()


def run_interrupted(function: Callable[[], Awaitable[None]], before: int) -> object:
    """The exit code of *function* with a signal in the call of a Python function after *before* others. None without."""
    calls = count()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and next(calls) == before:
            signal.raise_signal(signal.SIGTERM)
        elif event == "return" and frame.f_code is run.__code__:
            sys.setprofile(None)

    try:
        with ended_by_signals():
            sys.setprofile(profile)
            run(function)
    except SystemExit as stopped:
        return stopped.code
    finally:
        sys.setprofile(None)
    assert next(calls) <= before  # the signal did not come
    return None


def test_a_signal_at_any_point_of_an_event_loop_cuts_off_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """While it starts, runs and ends: also where the function has returned, and the loop has not stopped yet."""
    logs: list[list[str]] = []
    server = Server()
    while (code := run_interrupted(server.use, len(logs))) is not None:
        assert code == 143
        logs.append(server.log)
        server = Server()

    assert [log for log in logs if log not in ([], ["began", "ended"])] == []
    assert [] in logs
    assert ["began", "ended"] in logs
    assert capfd.readouterr() == ("", "")


def test_a_signal_in_the_last_step_is_raised_after_the_event_loop_has_ended(anyio_backend_name: Backend) -> None:
    server = Server()

    async def use() -> None:
        await server.use()
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit, match="143"), ended_by_signals():
        run(use, backend=anyio_backend_name)

    assert server.log == ["began", "ended"]


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (signal.SIGINT, signal.SIGINT, KeyboardInterrupt),
        (signal.SIGINT, signal.SIGTERM, KeyboardInterrupt),
        (signal.SIGTERM, signal.SIGINT, SystemExit),
    ],
)
def test_a_second_signal_does_not_cut_off_what_the_first_ends(
    first: signal.Signals, second: signal.Signals, error: type[BaseException], anyio_backend_name: Backend
) -> None:
    closed = False

    async def serve() -> None:
        nonlocal closed
        try:
            signal.raise_signal(first)
            await sleep_forever()
        finally:
            with CancelScope(shield=True):
                await checkpoint()
                signal.raise_signal(second)
                await checkpoint()
            closed = True

    with pytest.raises(error), ended_by_signals():
        run(serve, backend=anyio_backend_name)

    assert closed


def test_a_second_signal_is_ignored_where_no_event_loop_runs() -> None:
    def wait() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended, ended_by_signals():
        wait()

    assert ended.type is SystemExit
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_to_a_worker_thread_ends_the_wait_for_it(anyio_backend_name: Backend) -> None:
    abandoned, seen = threading.Event(), threading.Event()

    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        if abandoned.wait(IN_TIME):
            seen.set()

    async def wait() -> None:
        try:
            await to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            abandoned.set()

    with pytest.raises(SystemExit, match="143"), ended_by_signals():
        run(wait, backend=anyio_backend_name)

    assert seen.wait(IN_TIME)


async def handled() -> None:
    async def ask() -> None:
        signal.raise_signal(signal.SIGTERM)

    await call_handler(ask, subject="a form", failed="there is no answer")


@pytest.mark.parametrize("wait", [lambda: signal.raise_signal(signal.SIGTERM), lambda: run(handled)])
def test_a_signal_ends_the_program_also_where_it_comes_while_a_handler_asks_the_person(
    wait: Callable[[], object],
) -> None:
    with pytest.raises(SystemExit, match="143"), ended_by_signals():
        wait()


def test_a_signal_that_is_ignored_or_another_thread_changes_nothing() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with ended_by_signals():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    thread = threading.Thread(target=ended_by_signals().__enter__)
    thread.start()
    thread.join()

    assert signal.getsignal(signal.SIGTERM) == before
