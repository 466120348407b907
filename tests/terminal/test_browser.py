"""URLs for a browser: which are fit for one, and what the standard library's `webbrowser` makes of them."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from anyio import fail_after

from mcp_host.terminal.browser import is_opened, is_web_url, open_default
from tests.extent import on_both

URLS: list[tuple[str, bool]] = [
    ("https://a.example/x?y#z", True),
    ("HTTP://A.example:80", True),
    ("http://[::1]:8000/", True),
    ("http://[::ffff:127.0.0.1]", True),
    ("http://127.0.0.1/", True),
    ("http://good_1.example.:/", True),
    ("http://user:p@a.example:65535/", True),
    ("http://[::1].b.example/", False),
    ("http://[::1]b.example/", False),
    ("http://[a.example]/", False),
    ("http://::1/", False),
    ("http://a.example:65536/", False),
    ("http://a.example:80:90/", False),
    ("http://a.example:x/", False),
    ("http://2130706433/", False),
    ("http://127.1/", False),
    ("http://a.example.0x7f/", False),
    ("http://0x/", False),
    ("http://1.2.3.4.5/", False),
    ("http://127.0.0.1./", False),
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
]


def test_only_plain_web_urls_are_for_a_browser(subtests: pytest.Subtests) -> None:
    for url, fine in URLS:
        with subtests.test(url):
            assert is_web_url(url) is fine


URL = "https://id.example/authorize?a=1&b=%ab;c=(d)!*,+#e"


class Programs:
    """A folder with one program, which writes down its arguments, and no other program to open URLs with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self.ran_with: list[str] | None = None

    def write(self, name: str, *, end: str = "exit 0") -> None:
        program = self._folder / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {self._folder}/arguments\n{end}\n")
        program.chmod(0o700)

    def open(self, url: str, **variables: str) -> bool:
        """What `open_default` returns with these environment variables."""
        for name in ("BROWSER", "WAYLAND_DISPLAY"):
            self._monkeypatch.delenv(name, raising=False)
        for name, value in ({"PATH": str(self._folder), "TERM": "xterm", "DISPLAY": ""} | variables).items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.delitem(sys.modules, "webbrowser", raising=False)  # it looks for browsers once

        opened = anyio.run(open_default, url)

        arguments = self._folder / "arguments"
        self.ran_with = arguments.read_text().splitlines() if arguments.exists() else None
        return opened


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("browser", []), ("browser %s", []), ("browser --new-window %s", ["--new-window"]), ("nothing:browser", None)],
)
def test_the_browser_is_the_one_of_the_environment(
    command: str, arguments: list[str] | None, programs: Programs, tmp_path: Path
) -> None:
    """Only the first that it names is tried: the library does not say which of the others would run in this terminal."""
    programs.write("browser")

    assert programs.open(URL, BROWSER=command.replace("browser", f"{tmp_path}/browser")) is (arguments is not None)
    assert programs.ran_with == (None if arguments is None else [*arguments, URL])


@pytest.mark.parametrize(
    ("url", "argument"),
    [
        ("https://id.example/--help?-x", "https://id.example/--help?-x"),
        ("https://id.example/$(touch${IFS}x)", "https://id.example/%24(touch%24%7BIFS%7Dx)"),
        ("https://id.example/`id`;id|id&id>x'\"^", "https://id.example/%60id%60;id%7Cid&id%3Ex%27%22%5E"),
        ("https://id.example/?a=%action&b=%s", "https://id.example/?a=%ACtion&b=%s"),
    ],
    ids=["options", "a command", "more commands", "what webbrowser replaces"],
)
@pytest.mark.parametrize("name", ["browser", "firefox"])
def test_a_url_is_one_argument_and_means_nothing_to_a_shell(
    name: str, url: str, argument: str, programs: Programs, tmp_path: Path
) -> None:
    """The library knows Firefox by name, and gives it the URL in another way."""
    programs.write(name)

    assert is_web_url(url)
    assert programs.open(url, **({"BROWSER": f"{tmp_path}/browser"} if name == "browser" else {"DISPLAY": ":0"}))
    assert programs.ran_with == [argument]
    assert {path.name for path in tmp_path.iterdir()} == {name, "arguments"}


@pytest.mark.parametrize("command", [None, "lynx", "FOLDER/lynx", "FOLDER/lynx -force_html %s"])
def test_a_browser_that_would_take_the_terminal_is_not_started(
    command: str | None, programs: Programs, tmp_path: Path
) -> None:
    programs.write("lynx")

    assert not programs.open(URL, **({} if command is None else {"BROWSER": command.replace("FOLDER", str(tmp_path))}))
    assert programs.ran_with is None


def test_without_any_browser_nothing_opens(programs: Programs) -> None:
    assert not programs.open(URL)


@pytest.mark.parametrize(("end", "opened"), [("exit 0", True), ("exit 1", False), (None, False)])
def test_a_browser_that_fails_or_does_not_exist_is_not_opened(
    end: str | None, opened: bool, programs: Programs, tmp_path: Path
) -> None:
    if end is not None:
        programs.write("browser", end=end)

    assert programs.open(URL, BROWSER=f"{tmp_path}/browser") is opened


@on_both
async def test_a_browser_that_stays_open_keeps_neither_the_caller_nor_the_end_of_the_host_waiting(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when the test opens the pipe that it reads."""
    os.mkfifo(tmp_path / "pipe")
    programs.write("browser", end=f"read line < {tmp_path}/pipe")
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser([f"{tmp_path}/browser", "%s"]))

    with fail_after(25):
        assert await open_default(URL, starting=0.01)

    (thread,) = [thread for thread in threading.enumerate() if thread.name == "_open"]
    assert thread.daemon
    (tmp_path / "pipe").write_text("\n")
    thread.join(25)
    assert not thread.is_alive()


async def test_an_error_of_the_browser_is_logged_without_the_url(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> NoReturn:
        raise ValueError(f"cannot open {URL}")

    monkeypatch.setattr(webbrowser, "get", fail)

    with fail_after(25):
        assert not await is_opened(URL, open_default)
    assert caplog.messages == ["the browser could not be opened: ValueError"]
    assert caplog.records[0].exc_info is None


async def test_an_error_of_the_applications_own_opener_is_logged_in_full_without_the_url(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(url: str) -> bool:
        raise ValueError(f"my bug with {url}")

    assert not await is_opened(URL, fail)
    first, *traceback, last = caplog.messages[0].splitlines()
    assert (first, last) == (
        "the browser could not be opened: Traceback (most recent call last):",
        "ValueError: my bug with (the URL)",
    )
    assert "in fail" in "".join(traceback)


@on_both
async def test_an_error_of_the_library_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise RuntimeError("no browsers today")

    monkeypatch.setattr(webbrowser, "get", refuse)

    with fail_after(25), pytest.raises(RuntimeError, match="no browsers today"):
        await open_default(URL)
