"""A pytest plugin: the fixture `cassette`, and the option ``--record-mode``.

Load it in your top ``conftest.py``: ``pytest_plugins = ["mcp_host.testing.pytest_plugin"]``. It is not an entry point,
because that would claim both names wherever mcp-host is installed.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

import pytest

from mcp_host.testing.cassettes.cassette import MODES, Cassette

_OPEN_CASSETTE = pytest.StashKey[ExitStack]()
_UNSAFE = re.compile(r'[<>?%*:|"\'/\\\s\x00-\x1f\x7f\ud800-\udfff]+')
_LONGEST = 120  # bytes; some file systems allow 143, with ".json" and the suffix of a file that is being written


class _NotRun(Exception):
    """The test did not run, so the recording for it is incomplete."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # The option of pytest-recording has the same name, and serves both.
    if find_spec("pytest_recording") is None or pluginmanager.is_blocked("recording"):
        with suppress(ValueError):  # another plugin has an option of this name
            parser.getgroup("cassettes").addoption(
                "--record-mode", choices=MODES, help="whether cassettes are recorded or replayed (default: none)"
            )


@pytest.fixture
def cassette_options() -> Mapping[str, Any]:
    """The arguments of `Cassette` for your tests, such as ``{"redact": [...]}``. Override it to set them."""
    return {}


@pytest.fixture
def cassette(request: pytest.FixtureRequest, cassette_options: Mapping[str, Any]) -> Iterator[Cassette]:
    """A cassette in ``cassettes/<module>/<test>.json`` beside the test module. By default it is replayed."""
    options = {"record_mode": "none", **cassette_options}
    if (mode := request.config.getoption("--record-mode", None)) is not None:
        options["record_mode"] = "all" if mode == "rewrite" else mode  # pytest-recording calls it "rewrite"
    owner = "" if request.cls is None else f"{request.cls.__name__}."
    name = file_name(f"{owner}{request.node.name}")
    module = request.path
    stack = request.node.stash[_OPEN_CASSETTE] = ExitStack()
    yield stack.enter_context(Cassette(module.parent / "cassettes" / module.stem / f"{name}.json", **options))
    # After a test that ran, the stack is empty. Otherwise this ends the cassette without writing the file.
    with suppress(_NotRun), stack:
        raise _NotRun


def file_name(test: str) -> str:
    """The name of a file for *test*, of at most 120 bytes. If it is not *test* itself, it ends with a digest."""
    safe = _UNSAFE.sub("-", test)
    if safe == test and len(test.encode()) <= _LONGEST:
        return test
    digest = sha256(test.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{safe.encode()[: _LONGEST - 13].decode(errors='ignore')}-{digest}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End the cassette with the test: a difference fails the test, and a failed test saves nothing."""
    with item.stash.get(_OPEN_CASSETTE, None) or ExitStack():
        return (yield)
