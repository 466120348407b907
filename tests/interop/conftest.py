"""Interop is not part of the main suite: without `run.py`, which installs the servers, nothing here is collected."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from mcp_host import Stdio, StreamableHttp
from tests.interop.processes import (
    AnyTransport,
    Era,
    HttpServer,
    Peer,
    Sdk,
    both_eras,
    both_eras_over_http,
    everything_command,
    everything_over_http,
    free_port,
    running,
)
from tests.telemetry.recorder import Recorder
from tests.terminal.screens import screen

__all__ = ["screen"]

SDKS: list[Sdk] = ["python", "typescript"]
ERAS: list[Era] = ["legacy", "modern"]

collect_ignore_glob = [] if os.environ.get("MCP_INTEROP") else ["providers", "test_*.py"]


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


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    sdk: Sdk = request.param
    return sdk


@pytest.fixture(scope="session")
def both_eras_http() -> Iterator[dict[Sdk, HttpServer]]:
    """The servers of both eras over Streamable HTTP, for all tests."""
    marks = {sdk: f"interop-{uuid.uuid4().hex}" for sdk in SDKS}
    with (
        both_eras_over_http("python", marks["python"]) as one,
        both_eras_over_http("typescript", marks["typescript"]) as other,
    ):
        yield {"python": one, "typescript": other}

    assert [running(mark) for mark in marks.values()] == [[], []]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Era:
    era: Era = request.param
    return era


@pytest.fixture
def http_peer(sdk: Sdk, era: Era, both_eras_http: dict[Sdk, HttpServer]) -> Peer:
    """A server of either SDK in either era, over HTTP: for what is the same however it is reached."""
    return Peer(sdk, StreamableHttp(both_eras_http[sdk].url), era)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(params=["stdio", "http"])
def peer(request: pytest.FixtureRequest, sdk: Sdk, era: Era, both_eras_http: dict[Sdk, HttpServer], mark: str) -> Peer:
    """A server of either SDK in either era, over either transport."""
    if request.param == "stdio":
        return Peer(sdk, Stdio(both_eras(sdk, "stdio", 0, mark)), era)
    return Peer(sdk, StreamableHttp(both_eras_http[sdk].url), era)
