"""In pytest: records which test runs and how long each takes; runs some of the tests to the first that fails.

PYTEST_DONT_REWRITE, for `run` has imported this before pytest does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mutants import hook

_durations: dict[str, float] = {}
_failed: set[str] = set()


def pytest_sessionstart() -> None:
    """The same examples in every run, and none that an earlier run found."""
    from hypothesis import Phase, settings  # pytest itself imports it first

    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
    settings.load_profile("mutants")


def pytest_runtest_logstart(nodeid: str) -> None:
    if hook.test is not None:
        hook.take(hook.RECORDING + nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations[report.nodeid] = _durations.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hook.test is not None and not hasattr(session.config, "workerinput"):  # xdist's workers tell it all
        with open(hook.DURATIONS, "w") as file:
            json.dump({"durations": _durations, "failed": sorted(_failed)}, file)


def play(session: pytest.Session, tests: Sequence[str], log: Path) -> None:
    """Run these *tests* of a session, to the first that fails; *log* says how far it is."""
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # into files that a fork shares with others
    capture.start_global_capturing()
    items = {item.nodeid: item for item in session.items}
    chosen = [items[test] for test in tests if test in items]
    with log.open("ab", buffering=0) as lines:
        if session.testsfailed and len(chosen) < len(tests):  # a file of theirs cannot be imported
            lines.write(f"failed {next(test for test in tests if test not in items)}\n".encode())
            return
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            lines.write(f"start {item.nodeid}\n".encode())
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.nodeid in _failed:
                lines.write(f"failed {item.nodeid}\n".encode())
                return
        lines.write(b"end\n")


class Player:
    """A plugin for a process that plays these *tests* only."""

    def __init__(self, tests: Sequence[str], log: Path) -> None:
        self._tests = tests
        self._log = log

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        play(session, self._tests, self._log)
        os._exit(0)


def main(listed: str, log: str, *options: str) -> None:
    tests: list[str] = json.loads(Path(listed).read_text())
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    pytest.main([*options, *files], plugins=[Player(tests, Path(log))])


if __name__ == "__main__":
    from mutants import plugin  # as pytest knows it

    plugin.main(*sys.argv[1:])
