"""For every test: its event loops, another clock where it is marked so, and nothing left behind."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis.errors import StopTest

from mcp_host.concurrency import backends
from tests import spec
from tests.clock import Pauses, with_adjustable_clock, with_fake_clock
from tests.extent import HERE, backends_of
from tests.faults import table
from tests.faults.table import pytest_collection_modifyitems

__all__ = ["pytest_collection_modifyitems"]  # a hook, which pytest looks for here


def pytest_configure() -> None:
    """A program that a shell starts in the background ignores SIGINT, and so do its children: tests interrupt some."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Each of several workers imports another part of the tests first, or in a fresh checkout each would compile all.

    What cannot be imported is an error where it is collected.
    """
    config = collector.config
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker and collector.path == HERE and config.args == config.getini("testpaths"):
        modules = [each for each in sorted(HERE.rglob("test_*.py")) if "interop" not in each.parts]
        for module in modules[int(worker["workerid"][2:]) :: worker["workercount"]]:
            with suppress(Exception):
                import_module(".".join(module.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """The tests themselves are no garbage: `gc.collect` in a test need not look through thousands of them."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    table.print_outcomes(terminalreporter)
    spec.say_if_missing(terminalreporter)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "anyio_backend" in metafunc.fixturenames:
        name = metafunc.function.__name__
        found = backends_of(metafunc.definition, name, os.environ.get("BACKENDS", ""))
        metafunc.parametrize("anyio_backend", found, indirect=True)


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """The event loop of the test, with the clock that its mark asks for."""
    backend: str = request.param
    if request.node.get_closest_marker("fake_clock"):
        return with_fake_clock(backend)
    return with_adjustable_clock(backend) if request.node.get_closest_marker("adjustable_clock") else backend


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """A connection's own task has ended by the time its test has."""
    yield

    left = [task for task in backends.background_tasks if not task.done()]
    backends.background_tasks.clear()
    assert left == []


@pytest.fixture(autouse=True)
def no_error_of_asyncio() -> Iterator[None]:
    """asyncio logs errors that no code has seen, such as an exception of a task that nothing awaited."""
    errors = Errors()
    logging.getLogger("asyncio").addHandler(errors)
    yield
    logging.getLogger("asyncio").removeHandler(errors)

    assert errors.seen == []


class Errors(logging.Handler):
    """Keeps the text of each error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not (record.exc_info and isinstance(record.exc_info[1], StopTest)):  # hypothesis ends an example with it
            self.seen.append(logging.Formatter().format(record))


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Without what asyncio says about the machine: its kind of selector, and in debug mode what was slow."""

    def is_about_us(record: logging.LogRecord) -> bool:
        about_machine = record.levelno <= logging.INFO or str(record.msg).startswith("Executing ")
        return not (record.name == "asyncio" and about_machine)

    caplog.handler.addFilter(is_about_us)
    yield caplog
    caplog.handler.removeFilter(is_about_us)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()
