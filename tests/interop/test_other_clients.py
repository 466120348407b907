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


# Asked twice in the first connection, where the first answer is no; then once in each.
BEFORE_2026 = {
    "forbidden": "the client refused sampling/createMessage: not this one (-1)",
    "6 * 7": "42.0",
    "broken": "the client refused sampling/createMessage: this client's model failed (-32603)",
    "6 * 7 again": "42.0",
    "in the same connection": "42.0",
    "in another connection": "42.0",
    "asked": ["calculator, who connected"] * 4,
}

SINCE_2026 = {
    **BEFORE_2026,
    "forbidden": "MCPError: not this one",
    "broken": "MCPError: this client's model failed",
    "asked": [f"calculator, who asked for {problem}" for problem in ("forbidden", "6 * 7", "endless", "6 * 7")],
}


@pytest.mark.parametrize("package", ["official_client", "official_session", "google_adk"])
def test_version_2_of_the_sdk_before_2026(package: str, mark: str) -> None:
    """The server is told why; the connection goes on. An abandoned call cancels the model."""
    assert report(2, package, LEGACY, "call", "asyncio", mark) == BEFORE_2026


@pytest.mark.parametrize("package", ["fastmcp", "pydantic_ai"])
def test_packages_that_raise_the_errors_of_tools_before_2026(package: str, mark: str) -> None:
    raised = {problem: f"ToolError: {BEFORE_2026[problem]}" for problem in ("forbidden", "broken")}

    assert report(2, package, LEGACY, "call", "asyncio", mark) == {**BEFORE_2026, **raised}


@pytest.mark.parametrize("package", ["official_client", "fastmcp", "pydantic_ai"])
def test_version_2_of_the_sdk_since_2026(package: str, mark: str) -> None:
    """The call fails with our reason: the server is not waiting. We are asked in the context of the call."""
    assert report(2, package, MODERN, "call", "asyncio", mark) == SINCE_2026


@pytest.mark.parametrize(("revision", "expected"), [(LEGACY, BEFORE_2026), (MODERN, SINCE_2026)])
def test_version_2_of_the_sdk_on_trio(revision: str, expected: object, mark: str) -> None:
    assert report(2, "official_client", revision, "call", "trio", mark) == expected


@pytest.mark.parametrize(
    ("package", "ends"), [("official_session", "task"), ("langchain", "task"), ("fastmcp", "close")]
)
def test_version_1_of_the_sdk(package: str, ends: str, mark: str) -> None:
    """It reads nothing while our model answers, so an abandoned call does not cancel the model: the connection's end does.

    It does not keep the server's name.
    """
    expected = {**BEFORE_2026, "asked": ["unnamed server, who connected"] * 4}
    del expected["in the same connection"]
    if package == "fastmcp":
        expected |= {problem: f"ToolError: {BEFORE_2026[problem]}" for problem in ("forbidden", "broken")}

    assert report(1, package, LEGACY, ends, "asyncio", mark) == expected


def report(
    version: int, package: str, revision: str, ends: str, backend: str, mark: str, *, proxied: bool = False
) -> object:
    command = other_client(version, package, revision, ends, backend, mark, proxied=proxied)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
