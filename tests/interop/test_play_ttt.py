"""The example play_ttt is played with another project's host."""

from __future__ import annotations

import json
import subprocess

from play_ttt.rules import Board

from tests.interop.processes import CLIENTS, python_with

IN_TIME = 60.0  # seconds for one client and its three servers, which take three when the machine is idle

LAST_MOVE = "The model took 3 and says: Three in a row!"  # in both games that it wins


def test_the_official_client_plays_to_the_end_in_either_era_and_until_its_person_declines() -> None:
    ended = subprocess.run(
        [python_with(2), str(CLIENTS / "play_ttt.py")], capture_output=True, text=True, timeout=IN_TIME, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [
        f"2025-11-25: The model wins with O.\n\n{LAST_MOVE}\n\n{Board('12O4OXOXX')}",
        f"2026-07-28: The model wins with X.\n\n{LAST_MOVE}\n\n{Board('1XX4XOXOO')}",
        f"2026-07-28: The person declined to play on.\n\n{Board('1234O678X')}",
    ]
