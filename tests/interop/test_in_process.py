"""Server objects of the official SDK and of FastMCP, in versions 1 and 2, run in the client's own process."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.interop.processes import in_process

IN_TIME = (
    60.0  # seconds for four connections and all that is imported for them, which take three when the machine is idle
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["low-level", "sdk", "fastmcp"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_server_object_is_served_in_this_process_in_each_era_that_it_speaks(
    version: int, kind: str, backend: str
) -> None:
    """Its lifespan is entered and left each time, and an error in there is what the client reports."""
    ended = subprocess.run(
        in_process(version, kind, backend), capture_output=True, text=True, timeout=IN_TIME, check=False
    )

    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    served = {"server": "calculator", "sum": "3", "asked": None, "lifespan": ["entered", "left"]}
    legacy = {**served, "version": "2025-11-25", "asked": "Because." if kind == "sdk" else None}
    modern = {**served, "version": "2026-07-28"}
    assert report == {
        "legacy": legacy,
        "modern": {"error": "NoCommonVersion", "lifespan": ["entered", "left"]} if version == 1 else modern,
        "auto": {**legacy, "asked": None} if version == 1 else modern,
        "failing": "ConnectFailed: calculator failed: RuntimeError: no database",
    }
