"""What a run of the tests says of the official schemas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = "MCP_SPEC_DIR is not set: nothing that the client says was checked against the official schemas"


@pytest.mark.parametrize(("variables", "said"), [({}, 1), ({"MCP_SPEC_DIR": "schemas"}, 0)], ids=["unset", "set"])
def test_a_run_without_the_schemas_says_once_that_messages_were_not_checked(
    variables: dict[str, str], said: int
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MCP_SPEC_DIR"} | variables
    command = [sys.executable, "-m", "pytest", "--quiet", "--collect-only", "tests/test_spec.py"]

    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1], timeout=60, check=False
    )

    assert done.returncode == 0
    assert done.stdout.splitlines().count(WORDS) == said
