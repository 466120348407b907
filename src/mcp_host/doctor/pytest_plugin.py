"""A pytest plugin: with ``--mcp-host-doctor COMMAND``, each rule that the host of this command has to keep is a test.

Load it in your top ``conftest.py``: ``pytest_plugins = ["mcp_host.doctor.pytest_plugin"]``. The command gets the URL of
the server as its last argument, as for `mcp-host doctor`.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_host.doctor import Doctor
from mcp_host.doctor.checks import CHECKS, Check
from mcp_host.doctor.doctor import VERSIONS
from mcp_host.doctor.report import told
from mcp_host.protocol.negotiation import MODERN_VERSIONS


class BrokenRule(Exception):
    """A host breaks a MUST."""


class HostWarning(UserWarning):
    """A host breaks a SHOULD."""


class HostUnderTest:
    """The host that *command* starts, which is checked once."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    @cached_property
    def doctor(self) -> Doctor:
        doctor = Doctor()
        anyio.run(doctor.check, self._command)
        return doctor


class CheckItem(pytest.Item):
    """One rule in one revision."""

    def __init__(self, *, host: HostUnderTest, revision: str, check: Check, **rest: Any) -> None:
        super().__init__(**rest)
        self._host, self._revision, self._check = host, revision, check

    def runtest(self) -> None:
        checkups = {checkup.host.revision: checkup for checkup in self._host.doctor.checkups}
        if (checkup := checkups.get(self._revision)) is None:
            problem = f"the host did not call the tool in revision {self._revision}"
            if checkups:
                pytest.skip(problem)
            raise BrokenRule(problem)
        outcome = next(each for each in checkup.outcomes() if each.check is self._check)
        match outcome.verdict:
            case "failed":
                raise BrokenRule(told(outcome, checkup.host))
            case "warning":
                warnings.warn(HostWarning(told(outcome, checkup.host)), stacklevel=1)
            case "skipped":
                pytest.skip(outcome.seen)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, BrokenRule):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("mcp-host").addoption(
        "--mcp-host-doctor",
        metavar="COMMAND",
        help="check the MCP host that this command starts, with a test for each rule",
    )


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    command = session.config.getoption("--mcp-host-doctor")
    if command is None:
        return
    host = HostUnderTest(shlex.split(command))
    for revision in VERSIONS:
        for check in CHECKS:
            if check.applies(stateless=revision in MODERN_VERSIONS):
                name = f"doctor[{revision}-{check.name}]"
                items.append(CheckItem.from_parent(session, name=name, host=host, revision=revision, check=check))
