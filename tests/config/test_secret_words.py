"""What in a text looks like a secret. What the command hides of its arguments is in `tests/cli/test_command.py`."""

from __future__ import annotations

from time import process_time

import pytest

from mcp_host.config.secret_words import without_secrets

HOSTILE = ("a-", "a_", "token-", "token ", "bearer ", "https://", "aA1", "sk-", "key=")


def test_secrets_are_looked_for_in_linear_time(subtests: pytest.Subtests) -> None:
    """A file of a project may have an argument of a million characters: quadratic time would be hours."""
    begun = process_time()

    for repeated in HOSTILE:
        with subtests.test(repeated):
            without_secrets(repeated * 50_000)

    assert process_time() - begun < 4
    assert without_secrets(f"{'a-' * 50_000}token=hunter2") == f"{'a-' * 50_000}token=***"
