"""Processes that change one store at the same time, and processes that are killed while they do."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

from tests.auth.file_keyring import entries
from tests.auth.killed import CHANGES
from tests.extent import THOROUGH


@pytest.fixture(params=["file", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The kind of a store, and its place, for a child. Each has a keyring in a folder, through the real library."""
    (tmp_path / "ring").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.auth.file_keyring.FileKeyring")
    monkeypatch.setenv("KEYRING_PROPERTY_FOLDER", str(tmp_path / "ring"))
    kind: str = request.param
    return kind, str(tmp_path / "tokens.json") if kind == "file" else "my-host"


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.auth.{module}", *arguments], stdout=subprocess.PIPE, text=True
    )


def rest_of(process: subprocess.Popen[str]) -> list[str]:
    """The lines that *process* still prints until its end."""
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()  # not by `communicate`, which leaves out what `readline` has read ahead
    assert process.wait(timeout=60) in (0, -signal.SIGKILL)
    return lines


def rotate_once(store: tuple[str, str]) -> int:
    with start("rotating", *store, "1") as process:
        (value,) = rest_of(process)
    return int(value)


def test_processes_that_rotate_at_the_same_time_lose_no_rotation(store: tuple[str, str]) -> None:
    count, times = (4, 25) if THOROUGH else (2, 10)
    with ExitStack() as stack:
        processes = [stack.enter_context(start("rotating", *store, str(times))) for _ in range(count)]
        printed = [int(line) for process in processes for line in rest_of(process)]

    assert sorted(printed) == list(range(1, count * times + 1))
    assert rotate_once(store) == count * times + 1


def test_processes_that_are_killed_while_they_rotate_lose_no_rotation(store: tuple[str, str]) -> None:
    """A rotation whose process has printed it is stored; that of a killed one is stored whole or not at all."""
    chance, stored, kills = random.Random(14), set[int](), 8 if THOROUGH else 2
    with ExitStack() as stack:
        for _ in range(kills // 2):
            processes = [stack.enter_context(start("rotating", *store, "1000000")) for _ in range(2)]
            for process in processes:
                assert process.stdout is not None
                stored.update(int(process.stdout.readline()) for _ in range(chance.randint(1, 20)))
                process.kill()
                stored.update(int(line) for line in rest_of(process))

    next_one = rotate_once(store)
    assert stored <= set(range(1, next_one))
    assert len(stored) >= next_one - 1 - kills


def test_a_process_that_is_killed_at_any_line_leaves_the_old_value_or_the_new_one(
    store: tuple[str, str], tmp_path: Path
) -> None:
    step = 1 if THOROUGH else 13
    with start("killed", *store, str(step)) as process:
        outcomes = [json.loads(line) for line in rest_of(process)]
    assert process.returncode == 0

    assert all(goes_on for *_, goes_on in outcomes)
    seen = {change: [value for _, _, value, _ in lines] for change, lines in groupby(outcomes, lambda line: line[0])}
    assert seen.keys() == CHANGES.keys()
    for change, (old, new) in CHANGES.items():
        values = seen[change]
        changed = values.index(new)
        assert values == [old] * changed + [new] * (len(values) - changed)
        assert changed * step >= 10
    if store[0] == "file":
        assert sorted(os.listdir(tmp_path)) == ["ring", "tokens.json", "tokens.json.lock"]
        assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    else:
        assert entries(tmp_path / "ring") == {}
