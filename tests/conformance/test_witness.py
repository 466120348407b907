"""How a client of the conformance suite ended: what the suite itself would not say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance.witness import main

KILLS_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
NEVER_ENDS = "import threading; threading.Event().wait()"


@pytest.mark.parametrize(
    ("code", "seconds", "noted", "told"),
    [
        ("", 60, "0", 0),
        ("exit(3)", 60, "3", 1),
        (KILLS_ITSELF, 60, "-9", 1),
        (NEVER_ENDS, 0, "timeout", 1),
    ],
    ids=["well", "error", "killed", "never"],
)
def test_the_exit_of_a_client_is_recorded_and_reported_to_the_suite(
    code: str, seconds: float, noted: str, told: int, tmp_path: Path
) -> None:
    assert main(tmp_path / "ended", seconds, [sys.executable, "-c", code]) == told
    assert (tmp_path / "ended").read_text() == noted
