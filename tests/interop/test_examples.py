"""The examples that need other packages, in the environments that have them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.processes import python_with

EXAMPLES = Path(__file__).parents[2] / "examples"

SAID = """\
calculator asks, with 1 messages and 4 tools
calculator asks, with 3 messages and 4 tools
its tools say 24.0 and 18.0
calculator asks, with 5 messages and 4 tools
its tools say 42.0
"""


@pytest.mark.parametrize(
    ("version", "example"),
    [
        (2, "callback_in_official_sdk"),
        (2, "callback_in_official_session"),
        (1, "callback_in_official_session"),
        (2, "callback_in_fastmcp"),
        (1, "callback_in_fastmcp"),
        (1, "callback_in_langchain"),
        (2, "callback_in_pydantic_ai"),
        (2, "callback_in_google_adk"),
    ],
)
def test_another_client_answers_sampling_with_tools_through_our_callback(version: int, example: str) -> None:
    command = [python_with(version), str(EXAMPLES / f"{example}.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    result = '{"solve":"There are 42 legs."}\n' if example == "callback_in_pydantic_ai" else "There are 42 legs.\n"
    assert (ended.returncode, ended.stdout) == (0, SAID + result), ended.stderr
