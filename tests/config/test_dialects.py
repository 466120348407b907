"""Files as people have them, in each dialect: each describes the servers that a host would make by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from mcp_host import Stdio, StreamableHttp
from mcp_host.config import read_servers
from mcp_host.config.dialects import DIALECTS
from mcp_host.config.fields import KEYS, NO_APPROVAL
from mcp_host.config.variables import Form
from tests.config.described import comparable, read, written
from tests.config.files import FILES


def test_the_files_of_users_describe_the_servers_that_a_host_makes_by_hand(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, file in enumerate(FILES):
        with subtests.test(f"{number} {file.name}"):
            result = read(file, tmp_path / str(number))

            assert comparable(result) == comparable(file)


EXPANDED: dict[str, set[Form]] = {
    "claude-desktop": set(),
    "claude-code": {"${V}", "${V:-d}"},
    "vscode": {"${env:V}", "${input:id}", "${workspaceFolder}"},
    "cursor": {"${env:V}", "${workspaceFolder}"},
    "windsurf": {"${env:V}", "${file:/p}"},
    "zed": set(),
    "cline": {"${env:V}"},
    "gemini-cli": {"$V", "${V}", "${V:-d}"},
    "lm-studio": set(),
    "goose": set(),
    "codex": set(),
    "opencode": {"{env:V}", "{file:/p}"},
    "fastmcp": set(),
    "inspector": set(),
    "sep-2633": {"${env:V}", "${input:id}", "${a:b | c:d}"},
    "mcp-host": {*("${V}", "${V:-d}", "${env:V}", "${input:id}", "${file:/p}", "${workspaceFolder}", "${a:b | c:d}")},
}
IN_HEADERS: dict[str, set[Form]] = {"goose": {"$V", "${V}"}}
"""More of them, in headers."""


def test_each_dialect_expands_its_own_variables_and_warns_of_those_of_others(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("of a file")
    examples: dict[Form, tuple[str, str]] = {
        "${V}": ("${V}", "v"),
        "${V:-d}": ("${NOT_SET:-d}", "d"),
        "$V": ("$V", "v"),
        "%V%": ("%V%", "v"),
        "${env:V}": ("${env:V}", "v"),
        "${input:id}": ("${input:id}", "answer"),
        "${file:/p}": ("${file:key}", "of a file"),
        "${workspaceFolder}": ("${workspaceFolder}", str(tmp_path)),
        "${a:b | c:d}": ("${env:NOT_SET | value:other}", "other"),
        "{env:V}": ("{env:V}", "v"),
        "{file:/p}": ("{file:key}", "of a file"),
    }
    texts = {form: text for form, (text, _) in examples.items()}
    assert (EXPANDED.keys(), [*examples]) == (DIALECTS.keys(), [*get_args(Form)])
    for dialect, forms in EXPANDED.items():
        headers = "http_headers" if dialect == "codex" else "headers"
        servers: object = {
            "a": {"command": "a", "args": [*texts.values()]},
            "b": {"url": "https://example.com/mcp", headers: {f"X-{n}": text for n, text in enumerate(texts.values())}},
        }
        for key in reversed(DIALECTS[dialect].at[0]):
            servers = {key: servers, "inputs": [{"id": "id"}]}
        path = written(tmp_path, "mcp.json", json.dumps(servers))
        stdio, http = read_servers(path, dialect=dialect).servers
        for server, name, own in (
            (stdio, "args[{}]", forms),
            (http, "headers.X-{}", forms | IN_HEADERS.get(dialect, set())),
        ):
            with subtests.test(dialect, name=name):
                answers = dict.fromkeys(server.inputs, "answer")
                transport = server.expand({"V": "v"}, answers=answers, workspace=tmp_path).transport
                assert isinstance(transport, Stdio | StreamableHttp)
                got = transport.command[1:] if isinstance(transport, Stdio) else (transport.headers or {}).values()

                assert [*got] == [value if form in own else text for form, (text, value) in examples.items()]
                assert [warning.partition(": ")[0] for warning in server.warnings] == [
                    name.format(number) for number, form in enumerate(examples) if form not in own
                ]


def test_percent_signs_are_variables_only_in_the_environment_of_a_server_of_gemini_cli_on_windows() -> None:
    """``date +%Y%m%d`` is none."""
    expanding = {
        (dialect, field, platform)
        for dialect in DIALECTS
        for field in ("command", "args[0]", "env.A", "headers.A", "url", "cwd")
        for platform in ("linux", "darwin", "win32")
        if "%V%" in DIALECTS[dialect].forms(field, platform=platform)
    }

    assert expanding == {("gemini-cli", "env.A", "win32")}


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
