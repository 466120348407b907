"""The example that keeps the official Python SDK's client, in the environment that has the SDK."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.interop.processes import PYTHON

EXAMPLE = Path(__file__).parents[2] / "examples" / "callback_in_official_sdk.py"

SAID = """\
calculator asks, with 1 messages and 4 tools
calculator asks, with 3 messages and 4 tools
its tools say 24.0 and 18.0
calculator asks, with 5 messages and 4 tools
its tools say 42.0
There are 42 legs.
"""


def test_the_official_sdks_client_answers_sampling_with_tools_through_our_callback() -> None:
    ended = subprocess.run([PYTHON, str(EXAMPLE)], capture_output=True, text=True, timeout=30, check=False)

    assert (ended.returncode, ended.stdout) == (0, SAID), ended.stderr
