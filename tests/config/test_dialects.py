"""Files as people have them, in each dialect: each describes the servers that a host would make by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_host.config import read_servers
from mcp_host.config.fields import KEYS, NO_APPROVAL
from tests.config.described import comparable, read, written
from tests.config.files import FILES


def test_the_files_of_users_describe_the_servers_that_a_host_makes_by_hand(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, file in enumerate(FILES):
        with subtests.test(f"{number} {file.name}"):
            result = read(file, tmp_path / str(number))

            assert comparable(result) == comparable(file)


def test_no_approval_is_taken_from_a_file(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Beside the warning nothing differs from the same entry without the key."""
    keys = [key for key, meaning in KEYS.items() if meaning == NO_APPROVAL]
    assert len(keys) == 5
    for key in keys:
        for value in (True, ["*"], {"*": "approve"}, "approve"):
            with subtests.test(key, value=value):
                servers = {"a": {"command": "a"}, "b": {"command": "a", key: value}}
                text = json.dumps({"mcpServers": servers})
                plain, granting = read_servers(written(tmp_path, "mcp.json", text), dialect="cursor").servers

                assert granting.warnings == (f"{key}: {NO_APPROVAL}",)
                assert replace(granting, name="a", digest=plain.digest, warnings=()) == plain


def test_reading_starts_expands_and_asks_nothing(tmp_path: Path) -> None:
    """Neither an unset variable nor a file that is not there matters before the expansion."""
    command = {"command": "touch", "args": [f"{tmp_path}/started", "${NOT_SET}"], "env": {"A": "${file:/nowhere}"}}
    text = json.dumps({"mcpServers": {"a": {**command, "envFile": "/nowhere", "headersHelper": "x"}}})
    [server] = read_servers(written(tmp_path, "mcp.json", text), dialect="mcp-host").servers

    assert server.problem is None
    assert server.shown == f"touch {tmp_path}/started '${{NOT_SET}}'"
    assert not (tmp_path / "started").exists()
