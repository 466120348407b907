"""The OAuth of the official SDK serves as ours, over a client of httpx2, in both eras."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.interop.processes import CLIENTS, PYTHON

IN_TIME = 60.0  # seconds for two servers and twelve requests, which take two when the machine is idle


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_sdks_oauth_provider_gets_one_token_for_a_connection_and_its_calls(backend: str) -> None:
    command = [PYTHON, str(CLIENTS / "authorized.py"), backend]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)

    assert ended.returncode == 0, ended.stderr
    once = {"texts": 5 * ["6.1 m"], "tokens": 1, "refused": 1}
    assert json.loads(ended.stdout) == {"legacy": once, "modern": once}
