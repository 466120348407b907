"""What the tests of cassettes share: a file, a provider of models, and the two libraries that speak to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_host.testing.cassettes import network
from tests.asgi import serving
from tests.testing.cassettes.provider import Library, Provider

vars(network._check)["__cantrace__"] = True  # or else Python hides from coverage what runs in an audit hook


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a cassette."""
    return tmp_path / "cassette.json"


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that runs in a thread."""
    app = Provider()
    with serving(app) as app.url:
        yield app


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Library:
    name: Library = request.param
    return name
