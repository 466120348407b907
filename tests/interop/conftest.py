"""Interop is not part of the main suite: without `run.py`, which installs the servers, nothing here is collected."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from mcp_host import Stdio, StreamableHttp
from tests.interop.processes import (
    AnyTransport,
    HttpServer,
    everything_command,
    everything_over_http,
    free_port,
    running,
)

collect_ignore_glob = [] if os.environ.get("MCP_INTEROP") else ["test_*.py"]


@pytest.fixture
def mark() -> Iterator[str]:
    """An argument for each server of a test. None of them is left when the test is over."""
    mark = f"interop-{uuid.uuid4().hex}"
    yield mark

    assert running(mark) == []


@pytest.fixture(scope="module")
def everything_http() -> Iterator[HttpServer]:
    """server-everything over Streamable HTTP, for the tests of one file."""
    mark, port = f"interop-{uuid.uuid4().hex}", free_port()
    with everything_over_http(mark, port) as server:
        yield server

    assert running(mark) == []


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, mark: str) -> AnyTransport:
    """A way to server-everything."""
    if request.param == "stdio":
        return Stdio(everything_command("stdio", mark))
    http: HttpServer = request.getfixturevalue("everything_http")
    return StreamableHttp(http.url)
