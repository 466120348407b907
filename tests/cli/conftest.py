"""The command in this process: with a person at a terminal, and without one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from mcp_host.cli.inputs import KeyringAnswers
from tests.asgi import serving_mcp
from tests.cli.bounded import main
from tests.cli.models import Provider
from tests.cli.terminals import Sitting
from tests.terminal.screens import Screen, screen

__all__ = ["screen"]


class Done(NamedTuple):
    """How the command ended."""

    code: int
    out: str
    err: str


class Run(Protocol):
    """`run("tools", url)` runs the command without a terminal. Its stdin has the *prompt*."""

    def __call__(self, *argv: str, prompt: str = ...) -> Done: ...  # pragma: no cover


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are not kept in the keyring of whoever runs the tests."""
    monkeypatch.setattr(KeyringAnswers, "of_person", lambda **_: None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the person, who runs the command there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own(home: Path) -> Path:
    """Their file of servers."""
    return home / ".config/mcp-host/mcp.json"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*argv: str, prompt: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(prompt.encode()), encoding="utf-8"))
        return Done(main(argv), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the *server* of the module of tests is."""
    with serving_mcp(request.module.server) as url:
        yield url


@pytest.fixture
def sit(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> Sitting:
    monkeypatch.setenv("TERM", "dumb")  # readline and the line of the status write no escapes there
    return Sitting(screen)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """A provider that the command knows, whose model says what a test scripts."""
    provider = Provider()
    monkeypatch.setattr("mcp_host.providers.lookup.model", provider.model)
    return provider
