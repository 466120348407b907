"""Changing files of servers: each host gets the keys that it reads, and all else stays as it is written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mcp_host.config import (
    DIALECTS,
    EnvironmentVariable,
    HttpServer,
    StdioServer,
    add_server,
    read_servers,
    remove_server,
    user_file,
)
from mcp_host.config.reader import ServersFile
from mcp_host.config.spelling import SPELLINGS, CannotWrite
from mcp_host.config.spelling import written as written_as
from mcp_host.config.writer import OTHERWISE, Edit, change_file
from mcp_host.errors import ConfigError
from mcp_host.transports._http.secret import Secret, SecretValues
from tests.config.described import written

AT = "https://example.com/mcp"
STDIO = StdioServer("npx", (Secret("-y"), Secret("x")), SecretValues({"T": EnvironmentVariable("TOKEN")}))
BARE = StdioServer("npx", (Secret("-y"), Secret("x")))
HTTP = HttpServer(Secret(AT), SecretValues({"Authorization": EnvironmentVariable("TOKEN", prefix="Bearer ")}))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def entry(command: str = "npx", **more: object) -> dict[str, object]:
    return {"command": command, "args": ["-y", "x"], **more}


def at(reference: str, key: str = "url") -> dict[str, object]:
    return {key: AT, "headers": {"Authorization": f"Bearer {reference}"}}


NO_VARIABLES = "{} does not read variables of the environment here"
WRITTEN: dict[str, tuple[object, object]] = {
    "claude-desktop": ("env.T: " + NO_VARIABLES.format("Claude Desktop"), "url: Claude Desktop has no key for it"),
    "claude-code": (
        {"type": "stdio", **entry(env={"T": "${TOKEN}"})},
        {"type": "http", **at("${TOKEN}")},
    ),
    "vscode": (
        {"type": "stdio", **entry(env={"T": "${env:TOKEN}"})},
        {"type": "http", **at("${env:TOKEN}")},
    ),
    "cursor": (entry(env={"T": "${env:TOKEN}"}), at("${env:TOKEN}")),
    "windsurf": (entry(env={"T": "${env:TOKEN}"}), at("${env:TOKEN}", "serverUrl")),
    "zed": ("env.T: " + NO_VARIABLES.format("Zed"), "headers.Authorization: " + NO_VARIABLES.format("Zed")),
    "cline": (
        {"type": "stdio", **entry(env={"T": "${env:TOKEN}"})},
        {"type": "streamableHttp", **at("${env:TOKEN}")},
    ),
    "gemini-cli": (entry(env={"T": "${TOKEN}"}), at("${TOKEN}", "httpUrl")),
    "lm-studio": (
        "env.T: " + NO_VARIABLES.format("LM Studio"),
        "headers.Authorization: " + NO_VARIABLES.format("LM Studio"),
    ),
    "goose": ("servers of Goose are only read: change them in an editor",) * 2,
    "codex": ("servers of Codex are only read: change them in an editor",) * 2,
    "opencode": (
        {"type": "local", "command": ["npx", "-y", "x"], "environment": {"T": "{env:TOKEN}"}},
        {"type": "remote", **at("{env:TOKEN}")},
    ),
    "fastmcp": ("env.T: " + NO_VARIABLES.format("fastmcp"), "headers.Authorization: " + NO_VARIABLES.format("fastmcp")),
    "inspector": (
        "env.T: " + NO_VARIABLES.format("MCP Inspector"),
        "headers.Authorization: " + NO_VARIABLES.format("MCP Inspector"),
    ),
    "sep-2633": (
        {"type": "stdio", **entry(env={"T": "${env:TOKEN}"})},
        {"type": "streamable-http", **at("${env:TOKEN}")},
    ),
    "mcp-host": (entry(env={"T": "${TOKEN}"}), {"type": "http", **at("${TOKEN}")}),
}
"""What each dialect writes for `STDIO` and `HTTP`, or why it cannot."""


def test_each_host_gets_the_keys_that_it_reads(subtests: pytest.Subtests, tmp_path: Path) -> None:
    assert WRITTEN.keys() == DIALECTS.keys()
    for dialect, expected in WRITTEN.items():
        servers: tuple[StdioServer | HttpServer, ...] = (STDIO, HTTP)
        for server, entry in zip(servers, expected, strict=True):
            with subtests.test(dialect, server=type(server).__name__):
                path = tmp_path / f"{dialect}.json"
                result: Any = None
                try:
                    add_server(path, "new", server, dialect=dialect)
                except ConfigError as exc:
                    result = exc.reason
                else:
                    result = json.loads(path.read_text())
                    for key in DIALECTS[dialect].at[0]:
                        result = result[key]
                    path.unlink()

                assert result == (entry if isinstance(entry, str) else {"new": entry})


def test_what_is_written_is_read_as_what_it_was(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Without variables, it is the same in all dialects."""
    server = StdioServer("a b", (Secret("$HOME"), Secret("")), SecretValues({"T": Secret("1")}), None, None)
    for dialect in SPELLINGS:
        with subtests.test(dialect):
            path = tmp_path / f"{dialect}.json"
            source = "claude-desktop" if dialect != "gemini-cli" else None
            add_server(path, "new", server, dialect=dialect, source=source)
            [entry] = read_servers(path, dialect=dialect).servers

            assert (entry.name, entry.transport, entry.problem) == ("new", server, None)


CONVERTED = [
    ("mcp-host", "windsurf", "a ${TOKEN} b$c", "a ${env:TOKEN} b$c"),
    ("windsurf", "claude-code", "${env:TOKEN}${env:B}", "${TOKEN}${B}"),
    ("gemini-cli", "mcp-host", "$TOKEN %TOKEN% ${TOKEN}", "${TOKEN} ${TOKEN} ${TOKEN}"),
    ("vscode", "mcp-host", "${input:key} ${workspaceFolder}/${HOME}", "args[0]: mcp-host would expand ${HOME}, which is to stay as it is"),
    ("claude-desktop", "zed", "${HOME}", "${HOME}"),
    ("claude-desktop", "claude-code", "${HOME:-secret}", "args[0]: Claude Code would expand ${HOME:-...}, which is to stay as it is"),
    ("vscode", "cursor", "${input:key}", "args[0]: Cursor has no variable for ${input:key}"),
    ("mcp-host", "cursor", "${env:A | value:secret}", "args[0]: Cursor has no variable for something like ${a:b | c:d}"),
]  # fmt: skip


def test_variables_are_written_as_the_other_host_has_them_or_not_at_all(subtests: pytest.Subtests) -> None:
    for source, dialect, text, expected in CONVERTED:
        with subtests.test(text, dialect=dialect):
            result: object = None
            try:
                result = written_as(StdioServer("a", (Secret(text),)), dialect, source=source)["args"]
            except CannotWrite as exc:
                result = [str(exc)]

            assert result == [expected]


FILES: list[tuple[str, str | bytes, str | bytes]] = [
    (
        ".vscode/mcp.json",
        '{\r\n\t// ours\r\n\t"servers": {\r\n\t\t"a": {"command": "a", "mine": 1}, // a\r\n\t},\r\n\t"inputs": []\r\n}\r\n',
        '{\r\n\t// ours\r\n\t"servers": {\r\n\t\t"a": {"command": "a", "mine": 1}, // a\r\n\t\t"new": {\r\n\t\t\t"type": "stdio",'
        '\r\n\t\t\t"command": "npx",\r\n\t\t\t"args": ["-y", "x"]\r\n\t\t},\r\n\t},\r\n\t"inputs": []\r\n}\r\n',
    ),
    (
        ".zed/settings.json",
        '{\n    "theme": "One", // dark\n}\n',
        '{\n    "theme": "One", // dark\n    "context_servers": {\n        "new": {\n            "command": "npx",\n'
        '            "args": ["-y", "x"]\n        }\n    },\n}\n',
    ),
    (
        "mcp.json",
        b'\xef\xbb\xbf{"mcpServers": {"\xc3\xa9": {"command": "\\u00e9"}}, "n": [1e400, 1.10]}',
        b'\xef\xbb\xbf{"mcpServers": {"\xc3\xa9": {"command": "\\u00e9"}, "new": {"command": "npx", "args": ["-y", "x"]}},'
        b' "n": [1e400, 1.10]}',
    ),
    (
        "mcp.json",
        b"\xff\xfe" + '{"mcpServers": {"a": {"url": "x"}}}'.encode("utf-16-le"),
        b"\xff\xfe"
        + '{"mcpServers": {"a": {"url": "x"}, "new": {"command": "npx", "args": ["-y", "x"]}}}'.encode("utf-16-le"),
    ),
]  # fmt: skip


def test_all_else_in_a_file_stays_as_it_is_written(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name, before, after in FILES:
        with subtests.test(name):
            path = written(tmp_path, name, before)
            was = path.read_bytes()
            path.chmod(0o640)

            add_server(path, "new", BARE)

            assert path.read_bytes() == (after if isinstance(after, bytes) else after.encode())
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            remove_server(path, "new")
            if name != ".zed/settings.json":  # there, the place for servers stays
                assert path.read_bytes() == was


REFUSED: list[tuple[str, str, str]] = [
    ("mcp.json", '{"mcpServers": {"new": {"url": "x"}}}', ": server 'new': there is one already: to replace it, pass replace=True"),
    ("mcp.json", '{"mcpServers": {', ", line 1, column 17: Expecting property name enclosed in double quotes"),
    ("package.json", '{"name": "x"}', ": there are no servers in it: it has none of mcpServers, servers, mcp.servers, "),
    ("config.toml", "", ": TOML is only read: change it in an editor"),
    ("config.yaml", "extensions: {}", ": YAML is only read: change it in an editor"),
]  # fmt: skip


def test_a_server_that_cannot_be_added_leaves_the_file_as_it_was(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name, text, sentence in REFUSED:
        with subtests.test(name, text=text):
            path = written(tmp_path, name, text)

            with pytest.raises(ConfigError) as caught:
                add_server(path, "new", BARE)

            assert str(caught.value).startswith(f"{path}{sentence}")
            assert path.read_text() == text


def test_a_server_takes_the_place_of_another_only_if_that_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", '{"mcpServers": {"new": {"url": "x"}, "b": {"url": "y"}}}')

    add_server(path, "new", BARE, replace=True)

    assert json.loads(path.read_text())["mcpServers"] == {"new": entry(), "b": {"url": "y"}}


def test_a_server_that_is_not_there_or_there_twice_is_not_removed(tmp_path: Path) -> None:
    """What would be read after the change is not what was meant, so nothing is written."""
    path = written(tmp_path, "mcp.json", text := '{"mcpServers": {"a": {"url": "x"}, "a": {"url": "y"}}}')

    for name, reason in (("b", "there is no such server"), ("a", OTHERWISE)):
        with pytest.raises(ConfigError) as caught:
            remove_server(path, name)
        assert caught.value.reason == reason
    assert path.read_text() == text


def test_what_another_program_writes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", "{}")

    def change(file: ServersFile, edit: Edit) -> None:
        edit.set((*file.at, "new"), {"url": "x"})
        path.write_text("{ }")

    with pytest.raises(ConfigError) as caught:
        change_file(path, None, change)

    assert caught.value.reason == "another program has changed it meanwhile: nothing was written"
    assert path.read_text() == "{ }"


def test_a_file_is_made_for_this_user_only_and_a_link_stays_one(tmp_path: Path) -> None:
    path = user_file().path
    add_server(user_file(), "new", BARE)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    add_server(link, "b", BARE)

    assert path == tmp_path / "home/.config/mcp-host/mcp.json"
    assert [each.name for each in read_servers(path).servers] == ["new", "b"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert link.is_symlink()
    assert os.listdir(path.parent) == ["mcp.json"]  # the lock is elsewhere


def test_the_own_file_of_a_user_is_of_no_other_host_and_any_other_proves_nothing_by_its_path(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "a", "includeTools": [], "args": ["${HOME}"]}}}'
    own = read_servers(written(user_file().path.parent, "mcp.json", text))
    other = read_servers(written(tmp_path, "mcp-host/mcp.json", text))

    assert (own.dialect, own.scope) == ("mcp-host", "user")
    assert (other.dialect, other.scope) == ("gemini-cli", None)


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").mkdir()
    with pytest.raises(ConfigError, match=r"mcp\.json: it cannot be written: "):
        add_server(tmp_path / "mcp.json", "new", BARE)
    surrogate = StdioServer("a\udc80")
    with pytest.raises(ConfigError, match=r"other\.json: it is not Unicode text"):
        add_server(tmp_path / "other.json", "new", surrogate)
    with pytest.raises(ValueError, match="there is no dialect 'none'"):
        add_server(tmp_path / "other.json", "new", BARE, dialect="none")
    assert not (tmp_path / "other.json").exists()
