"""A pytest plugin: the fixture `cassette`, and the option ``--record-mode``.

It is opted in to, in the ``conftest.py`` at the top: ``pytest_plugins = ["mcp_host.testing.pytest_plugin"]``. An entry
point would load it wherever mcp-host is installed, and claim both names there.
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

_OPEN = pytest.StashKey[ExitStack]()
_UNSAFE = re.compile(r'[<>?%*:|"\'/\\\s\x00-\x1f\x7f\ud800-\udfff]+')
_LONGEST = 120  # bytes: some file systems allow 143, with ".json" and what a file has while it is written


class _NotRun(Exception):
    """The test was not run, so what was recorded for it is not all."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if find_spec("pytest_recording") is None or pluginmanager.is_blocked("recording"):  # else its option serves both
        with suppress(ValueError):  # another plugin has an option of this name
            parser.getgroup("cassettes").addoption(
                "--record-mode", choices=MODES, help="whether cassettes are recorded or replayed (default: none)"
            )


@pytest.fixture
def cassette_options() -> Mapping[str, Any]:
    """Override it: the arguments of `Cassette` for your tests, such as ``{"redact": [...]}``."""
    return {}


@pytest.fixture
def cassette(request: pytest.FixtureRequest, cassette_options: Mapping[str, Any]) -> Iterator[Cassette]:
    """A cassette in ``cassettes/<module>/<test>.json`` beside the test module. Without an option it is replayed."""
    options = {"record_mode": "none", **cassette_options}
    if (mode := request.config.getoption("--record-mode", None)) is not None:
        options["record_mode"] = "all" if mode == "rewrite" else mode  # the latter is pytest-recording's
    owner = "" if request.cls is None else f"{request.cls.__name__}."
    name = file_name(f"{owner}{request.node.name}")
    module = request.path
    with ExitStack() as stack:
        made = stack.enter_context(Cassette(module.parent / "cassettes" / module.stem / f"{name}.json", **options))
        request.node.stash[_OPEN] = stack
        yield made
        with suppress(_NotRun), stack:  # empty, if the test was run
            raise _NotRun


def file_name(test: str) -> str:
    """A name of a file for *test*, at most 120 bytes. If that is not *test* itself, it ends with a digest of it."""
    safe = _UNSAFE.sub("-", test)
    if safe == test and len(test.encode()) <= _LONGEST:
        return test
    digest = sha256(test.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{safe.encode()[: _LONGEST - 13].decode(errors='ignore')}-{digest}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End the cassette with the test, so that what differs is the failure of the test, and a failed test saves nothing."""
    with item.stash.get(_OPEN, None) or ExitStack():
        return (yield)
