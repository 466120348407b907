"""Files as people have them, in each dialect: each describes the servers that a host would make by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.described import comparable, read
from tests.config.files import FILES


def test_the_files_of_users_describe_the_servers_that_a_host_makes_by_hand(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, file in enumerate(FILES):
        with subtests.test(f"{number} {file.name}"):
            result = read(file, tmp_path / str(number))

            assert comparable(result) == comparable(file)
