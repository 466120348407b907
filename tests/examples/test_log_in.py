"""The example of a login, with a browser that follows the redirects."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import DEVNULL

import pytest
from anyio import fail_after, run_process

from tests.auth.authorization_server import Protected
from tests.cli.terminals import IN_TIME
from tests.cli.test_login import BROWSER

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the browser is a script")

EXAMPLE = Path(__file__).parents[2] / "examples/log_in.py"


async def output(home: Path, *argv: str) -> list[str]:
    browser = home / "browser"
    browser.write_text(BROWSER.format(python=sys.executable))
    browser.chmod(0o700)
    environment = {**os.environ, "HOME": str(home), "BROWSER": str(browser), "no_proxy": "*"}
    with fail_after(IN_TIME):
        done = await run_process(
            [sys.executable, str(EXAMPLE), *argv], stdin=DEVNULL, env=environment, start_new_session=True
        )
    return done.stdout.decode().splitlines()


async def test_it_logs_in_once(site: Protected, tmp_path: Path) -> None:
    first = await output(tmp_path, site.url)
    second = await output(tmp_path, site.url)

    assert first == [
        "add: Add.",
        "request: 401, it wants a token",
        "metadata of the protected resource: found",
        "metadata of the authorization server: found",
        "registration: registered",
        "token request (authorization_code): a token",
    ]
    assert second == ["add: Add."]


async def test_a_failure_is_told_with_its_steps(site: Protected, tmp_path: Path) -> None:
    site.server.metadata["code_challenge_methods_supported"] = ["plain"]

    first, *steps = await output(tmp_path, site.url)

    assert (
        first == f"there is no login: {site.server.issuer} does not offer PKCE with S256, without which no code is safe"
    )
    assert steps[0] == "request: 401, it wants a token"


async def test_without_a_url_its_own_server_wants_no_login(tmp_path: Path) -> None:
    assert await output(tmp_path) == ["tides: Ask for the tides."]
