"""What the official Python SDK's client sees of our test server, in either era and over either transport."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.interop.processes import SERVERS, HttpServer, free_port, official_client, running

OURS = SERVERS / "ours.py"
IN_TIME = 60.0  # seconds for one client and its four connections, which take three when the machine is idle


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, object]]:
    """What the client reports, by transport and mode."""
    mark, port = f"interop-{uuid.uuid4().hex}", free_port()
    command = [sys.executable, str(OURS), "http", str(port), mark]
    with HttpServer(command, port, ready=f":{port}") as http:
        ended = subprocess.run(
            official_client(OURS, http.url), capture_output=True, text=True, timeout=IN_TIME, check=False
        )
    assert ended.returncode == 0, ended.stderr
    yield json.loads(ended.stdout)

    assert running(mark) == []


MODES = {"legacy": ("2025-11-25", -32002), "auto": ("2026-07-28", -32602)}
"""The revision of each, and its error for a resource that is missing."""


def expected(mode: str) -> dict[str, object]:
    """What it sees, with or without a proxy between."""
    version, missing = MODES[mode]
    return {
        "version": version,
        "server": "ours",
        "instructions": "For interoperability tests.",
        "sampled": [1, 3, 1],
        "calculated": "5.0",
        "gathered": {"order": {"size": "large"}, "opinion": "Splendid.", "roots": ["file:///home"]},
        "progress": [[1, 2, "step 1"], [2, 2, "step 2"]],
        "logged": ["at 1", "at 2"],
        "note": "Buy milk.",
        "missing": [missing, {"uri": "note://yesterday"}],
        "appeared": [f"new-{mode}"],
    }


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_gets_the_same_results_from_our_server_in_either_era(
    seen: dict[str, object], transport: str, mode: str
) -> None:
    """Its model is asked twice for the calculation, with what the tool said the second time, and once for an opinion."""
    assert seen[f"{transport}-{mode}"] == expected(mode)
