"""Our `Sampling`, registered with the clients of other packages: asked for tools, refusing, failing and cancelled."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.interop.processes import other_client

IN_TIME = (
    90.0  # seconds for three or four connections, and for importing the package, which take four on an idle machine
)

LEGACY, MODERN = "2025-11-25", "2026-07-28"


@pytest.mark.parametrize("package", ["official_client", "official_session", "fastmcp", "pydantic_ai", "google_adk"])
def test_version_2_of_the_sdk_before_2026(package: str, mark: str) -> None:
    """The server is told why; the connection goes on. An abandoned call cancels the model."""
    fails = "ToolError: " if package in ("fastmcp", "pydantic_ai") else ""

    assert report(2, package, LEGACY, "call", "asyncio", mark) == {
        "forbidden": f"{fails}the client refused sampling/createMessage: not this one (-1)",
        "6 * 7": "42.0",
        "broken": f"{fails}the client refused sampling/createMessage: this client's model failed (-32603)",
        "6 * 7 again": "42.0",
        "in the same connection": "42.0",
        "in another connection": "42.0",
        "asked": ["calculator"]
        * 4,  # twice in the first connection, where the refusal was the first; then once in each
    }


@pytest.mark.parametrize("package", ["official_client", "fastmcp", "pydantic_ai"])
def test_version_2_of_the_sdk_since_2026(package: str, mark: str) -> None:
    """The call fails with our reason: the server is not waiting."""
    assert report(2, package, MODERN, "call", "asyncio", mark) == {
        "forbidden": "MCPError: not this one",
        "6 * 7": "42.0",
        "broken": "MCPError: this client's model failed",
        "6 * 7 again": "42.0",
        "in the same connection": "42.0",
        "in another connection": "42.0",
        "asked": ["calculator"] * 4,
    }


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_version_2_of_the_sdk_on_trio(revision: str, mark: str) -> None:
    told = report(2, "official_client", revision, "call", "trio", mark)

    assert told == report(2, "official_client", revision, "call", "asyncio", mark)


@pytest.mark.parametrize(
    ("package", "ends"), [("official_session", "task"), ("langchain", "task"), ("fastmcp", "close")]
)
def test_version_1_of_the_sdk(package: str, ends: str, mark: str) -> None:
    """It reads nothing while our model answers, so an abandoned call does not cancel the model: the connection's end does."""
    fails = "ToolError: " if package == "fastmcp" else ""

    assert report(1, package, LEGACY, ends, "asyncio", mark) == {
        "forbidden": f"{fails}the client refused sampling/createMessage: not this one (-1)",
        "6 * 7": "42.0",
        "broken": f"{fails}the client refused sampling/createMessage: this client's model failed (-32603)",
        "6 * 7 again": "42.0",
        "in another connection": "42.0",
        "asked": ["unnamed server"] * 4,  # version 1 does not keep the name
    }


def report(version: int, package: str, revision: str, ends: str, backend: str, mark: str) -> object:
    command = other_client(version, package, revision, ends, backend, mark)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
