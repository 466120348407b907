"""URLs for a browser: which are fit for one, and what the standard library's `webbrowser` makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_host.terminal.browser import is_web_url


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://a.example/x?y#z", True),
        ("HTTP://A.example:80", True),
        ("http://[::1]:8000/", True),
        ("http://127.0.0.1/", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("ftp://a.example/", False),
        ("vscode://open", False),
        ("/relative", False),
        ("https:a.example", False),
        ("https:///a.example", False),
        ("https://", False),
        ("https://[::1", False),
        ("https://a.example\\@b.example/", False),
        ("https://a.example/ b", False),
        ("https://a.example/\r\nb", False),
        ("https://a%2eexample/", False),
        ("https://\u0430pple.example/", False),
        ("", False),
    ],
)
def test_only_plain_web_urls_are_for_a_browser(url: str, fine: bool) -> None:
    assert is_web_url(url) is fine


@pytest.mark.parametrize(("browser", "opened"), [("firefox", True), ("lynx", False), (None, False)])
def test_a_browser_that_would_take_the_terminal_is_not_started(
    browser: str | None, opened: bool, tmp_path: Path
) -> None:
    """Here the browser is a script, which the standard library finds by its name."""
    script = tmp_path / (browser or "none")
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/visited\n')
    script.chmod(0o700)
    program = "from mcp_host.terminal.browser import _open; print(_open('https://id.example/'))"
    inherited = {name: value for name, value in os.environ.items() if name not in ("BROWSER", "WAYLAND_DISPLAY")}
    environment = {**inherited, "PATH": str(tmp_path), "TERM": "xterm", "DISPLAY": ":0" if browser == "firefox" else ""}

    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=30
    )

    assert printed.stdout == f"{opened}\n"
