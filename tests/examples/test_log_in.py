"""The example of a login, with a browser that follows the redirects."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.auth.authorization_server import Protected
from tests.cli.bounded import interrupted_late
from tests.cli.browsers import browser

__all__ = ["browser"]

EXAMPLE = Path(__file__).parents[2] / "examples/log_in.py"


@pytest.fixture
def output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[str]]:
    """What the program prints with these arguments."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def output(*argv: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *argv])
        with interrupted_late():
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return output


def test_it_logs_in_once(site: Protected, output: Callable[..., list[str]]) -> None:
    assert output(site.url) == [
        "add: Add.",
        "request: 401, it wants a token",
        "metadata of the protected resource: found",
        "metadata of the authorization server: found",
        "registration: registered",
        "token request (authorization_code): a token",
    ]
    assert output(site.url) == ["add: Add."]


def test_a_failure_is_told_with_its_steps(site: Protected, output: Callable[..., list[str]]) -> None:
    site.server.metadata["code_challenge_methods_supported"] = ["plain"]

    first, *steps = output(site.url)

    assert (
        first == f"there is no login: {site.server.issuer} does not offer PKCE with S256, without which no code is safe"
    )
    assert steps[0] == "request: 401, it wants a token"


def test_without_a_url_its_own_server_wants_no_login(output: Callable[..., list[str]]) -> None:
    assert output() == ["tides: Ask for the tides."]
