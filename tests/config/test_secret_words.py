"""What in a text looks like a secret. What the command hides of its arguments is in `tests/cli/test_command.py`."""

from __future__ import annotations

import pytest

from mcp_host.config.deciding import shown_value
from mcp_host.config.secret_words import without_secrets
from mcp_host.secret import HIDDEN
from tests.faults.measure import grows_linearly

COMMAND_LINES = {
    "x --api-key hunter2 --verbose": "x --api-key *** --verbose",
    "x --db-password 'hunter 2' y": "x --db-password *** y",
    "x -token hunter2": "x -token ***",
    "x --token --verbose": "x --token --verbose",
    "x --token-file /a --password": "x --token-file /a --password",
    "x secret y": "x secret y",
}
HOSTILE = ("a-", "a_", "token-", "token ", "bearer ", "https://", "aA1", "sk-", "key=", "--a-", "--token ", "--token '")


def test_the_value_after_an_option_for_a_secret_is_hidden(subtests: pytest.Subtests) -> None:
    for line, shown in COMMAND_LINES.items():
        with subtests.test(line):
            assert without_secrets(line) == shown


def test_secrets_are_looked_for_in_linear_time(subtests: pytest.Subtests) -> None:
    """A file of a project may have an argument of a million characters: quadratic time would be hours."""
    for repeated in HOSTILE:

        def look(size: int, repeated: str = repeated) -> None:
            without_secrets(repeated * size)
            shown_value(f"{repeated}URL", repeated * size, repeated * size)
            shown_value("A", HIDDEN, repeated * size)

        with subtests.test(repeated):
            assert grows_linearly(look, 2_000)

    assert without_secrets(f"{'a-' * 50_000}token=hunter2") == f"{'a-' * 50_000}token=***"
