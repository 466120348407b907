"""Changing files of servers: each host gets the keys that it reads, and all else stays as it is written."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from errno import EEXIST
from pathlib import Path
from traceback import TracebackException
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.config import (
    DIALECTS,
    EnvironmentVariable,
    FoundFile,
    HttpServer,
    ServerEntry,
    Source,
    StdioServer,
    add_server,
    read_servers,
    remove_server,
    set_enabled,
    user_file,
)
from mcp_host.config.entry_reader import read_entry
from mcp_host.config.fields import NO_APPROVAL
from mcp_host.config.reader import ServersFile
from mcp_host.config.spelling import SPELLINGS, CannotWrite
from mcp_host.config.spelling import written as written_as
from mcp_host.config.variables import own, parse
from mcp_host.config.writer import OTHERWISE, Edit, change_file
from mcp_host.errors import ConfigError
from mcp_host.secret import Secret, SecretValues
from tests.config import files
from tests.config.described import ANSWERS, ENVIRONMENT, HOME, parts_of, written
from tests.extent import saturated

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
    "cline": ({"type": "stdio", **entry(env={"T": "${env:TOKEN}"})}, {"type": "streamableHttp", **at("${env:TOKEN}")}),
    "gemini-cli": (entry(env={"T": "${TOKEN}"}), at("${TOKEN}", "httpUrl")),
    "lm-studio": (
        "env.T: " + NO_VARIABLES.format("LM Studio"),
        "headers.Authorization: " + NO_VARIABLES.format("LM Studio"),
    ),
    "goose": ("servers of Goose are only read: change them in an editor",) * 2,
    "codex": ("env.T: " + NO_VARIABLES.format("Codex"), {"url": AT, "bearer_token_env_var": "TOKEN"}),
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
    ("gemini-cli", "mcp-host", "$TOKEN %TOKEN% ${TOKEN:-x}", "${TOKEN} %TOKEN% ${TOKEN:-x}"),
    ("vscode", "mcp-host", "${input:key} ${workspaceFolder}/${HOME}", "args[0]: mcp-host would expand what is to stay as it is"),
    ("claude-desktop", "zed", "${HOME}", "${HOME}"),
    ("claude-desktop", "claude-code", "${HOME:-secret}", "args[0]: Claude Code would expand what is to stay as it is"),
    ("vscode", "cursor", "${input:key}", "args[0]: Cursor has no variable for ${input:key}"),
    ("mcp-host", "opencode", "${A}", "{env:A}"),
    ("mcp-host", "opencode", "$${A}", "command[1]: OpenCode would expand what is to stay as it is"),
    ("mcp-host", "claude-code", "${env:A-B}", "args[0]: Claude Code would expand what is to stay as it is"),
    ("mcp-host", "cursor", "${env:A | value:secret}", "args[0]: Cursor has no variable for something like ${a:b | c:d}"),
]  # fmt: skip


def test_variables_are_written_as_the_other_host_has_them_or_not_at_all(subtests: pytest.Subtests) -> None:
    for source, dialect, text, expected in CONVERTED:
        with subtests.test(text, dialect=dialect):
            result: object = None
            try:
                entry = written_as(StdioServer("a", (Secret(text),)), dialect, source=source).entry
                result = entry.get("args", entry["command"])
            except CannotWrite as exc:
                result = [str(exc)]

            assert result in ([expected], ["a", expected])


EXPANDED = "mcp-host would expand what is to stay as it is"


def server_of(entry: ServerEntry, environment: Mapping[str, str] = ENVIRONMENT) -> object:
    """What an entry says: two of different files are comparable."""
    answers = {each: ANSWERS[each.id] for each in entry.inputs if each.id in ANSWERS}
    try:
        result = entry.expand(environment, answers=answers, home=HOME)
    except ConfigError as exc:
        whole: object = "input" if "input" in exc.reason else exc.reason  # the own file has any
    else:
        whole = parts_of(result.transport), result.oauth
    return whole, entry.enabled, entry.timeout, entry.connect_timeout, entry.tools, entry.title, entry.description


def test_all_that_the_files_of_users_say_of_a_server_is_written_into_the_own_file(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    """It is read there as it was in its own host, or it is said what cannot be written."""
    for number, file in enumerate(files.FILES):
        path = written(tmp_path / str(number), file.name, file.text)
        for entry in read_servers(path, dialect=file.given).servers:
            with subtests.test(f"{number} {file.name}: {entry.name}"):
                own = FoundFile(tmp_path / f"{number}.json", "mcp-host", "user")
                why = None
                try:
                    add_server(own, entry.name, entry, replace=True)
                except ConfigError as exc:
                    why = exc.reason

                if why is None:
                    copy = {each.name: each for each in read_servers(own).servers}[entry.name]
                    assert server_of(copy) == server_of(entry)
                else:
                    assert why == entry.problem or why.endswith(EXPANDED)


WHOLE = {
    "url": AT,
    "title": "T",
    "description": "D",
    "tool_timeout_sec": 1.5,
    "startup_timeout_sec": 2,
    "includeTools": ["b", "a"],
    "oauth": {"clientId": "me", "scopes": ["a", "b"]},
    "trust": True,
}
CARRIED: list[tuple[str, list[str], object]] = [
    (
        "gemini-cli",
        [],
        {
            "httpUrl": AT,
            "oauth": {"clientId": "me", "scopes": ["a", "b"]},
            "description": "D",
            "includeTools": ["a", "b"],
            "timeout": 1500,
        },
    ),
    ("gemini-cli", ["disabled"], "enabled: Gemini CLI has no key that switches a server off"),
    ("cline", [], "oauth.client_id: Cline has no key for it"),
    ("cline", ["oauth"], "allow: Cline has no key for it"),
    (
        "cline",
        ["oauth", "includeTools", "disabled"],
        {"type": "streamableHttp", "url": AT, "timeout": 1.5, "disabled": True},
    ),
    (
        "claude-code",
        ["includeTools"],
        {"type": "http", "url": AT, "oauth": {"clientId": "me", "scopes": "a b"}, "timeout": 1500},
    ),
    ("cursor", ["includeTools"], {"url": AT, "auth": {"CLIENT_ID": "me", "scopes": ["a", "b"]}}),
    (
        "codex",
        ["disabled"],
        {
            "url": AT,
            "oauth": {"client_id": "me"},
            "scopes": ["a", "b"],
            "enabled_tools": ["a", "b"],
            "tool_timeout_sec": 1.5,
            "startup_timeout_sec": 2,
            "enabled": False,
        },
    ),
]  # fmt: skip


def test_what_an_entry_says_besides_is_carried_over_or_said_to_be_left_out(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    """The keys in the second column are left out of the entry, but "disabled" is added."""
    for dialect, changed, expected in CARRIED:
        with subtests.test(dialect, changed=changed):
            raw = {key: value for key, value in WHOLE.items() if key not in changed} | {
                "disabled": "disabled" in changed
            }
            text = json.dumps({"mcpServers": {"a": raw}})
            [server] = read_servers(written(tmp_path, "mcp.json", text), dialect="mcp-host").servers
            result: object = None
            notes: Sequence[str] = ()
            try:
                result, _, notes = astuple(written_as(server, dialect))
            except CannotWrite as exc:
                result = str(exc)

            assert result == expected
            if isinstance(expected, dict):
                spelling, title = SPELLINGS[dialect], DIALECTS[dialect].title
                left_out = {"title", "description", "timeout", "connect_timeout"} - {*spelling.keys}
                assert set(notes) == {
                    f"trust: {NO_APPROVAL}",
                    *[f"{part}: it is left out: {title} has no key for it" for part in left_out],
                }


def test_a_time_may_be_a_whole_number(tmp_path: Path) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "a"}}})
    [server] = read_servers(written(tmp_path, "mcp.json", text)).servers

    result = written_as(replace(server, timeout=5), "claude-code")

    assert result.entry["timeout"] == 5000


IN_CODEX: list[tuple[StdioServer | HttpServer, object]] = [
    (
        HttpServer(
            Secret(AT),
            SecretValues(
                {"A": Secret("${V}"), "authorization": Secret("Bearer ${env:T}"), "B": Secret("b"), "C": Secret("$V")}
            ),
        ),
        {
            "url": AT,
            "http_headers": {"B": "b", "C": "$V"},
            "env_http_headers": {"A": "V"},
            "bearer_token_env_var": "T",
        },
    ),
    (HttpServer(Secret(AT), {"A": Secret("Bearer ${V}")}), "headers.A: " + NO_VARIABLES.format("Codex")),
    (HttpServer(Secret(AT), {"Authorization": Secret("Basic ${V}")}), "headers.Authorization: " + NO_VARIABLES.format("Codex")),
    (
        StdioServer("a", env=SecretValues({"V": Secret("${V}"), "W": Secret("1"), "X": EnvironmentVariable("X", optional=True)})),
        {"command": "a", "env": {"W": "1"}, "env_vars": ["V", "X"]},
    ),
    (StdioServer("a", env={"V": Secret("a${V}")}), "env.V: " + NO_VARIABLES.format("Codex")),
    (StdioServer("a", (Secret("${V}"),)), "args[0]: " + NO_VARIABLES.format("Codex")),
]  # fmt: skip


def test_codex_has_keys_for_headers_and_an_environment_that_are_variables(subtests: pytest.Subtests) -> None:
    for server, expected in IN_CODEX:
        with subtests.test(str(expected)):
            result: object = None
            try:
                result = written_as(server, "codex", source="mcp-host").entry
            except CannotWrite as exc:
                result = str(exc)

            assert result == expected


NAMED = (NO_VARIABLES.format("Codex"), "Codex has no variable for ", "Codex has no key for it")


def test_what_codex_has_keys_for_is_read_from_its_file_as_it_was(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """What it cannot say of the servers of other files is named. A variable that is not set is no error there."""
    environment = {**ENVIRONMENT, "NOT_THERE": "1"}
    named: list[str] = []
    for number, file in enumerate(files.FILES):
        own = FoundFile(tmp_path / f"{number}.toml", "codex", "user")
        for entry in read_servers(written(tmp_path / str(number), file.name, file.text), dialect=file.given).servers:
            with subtests.test(f"{number} {file.name}: {entry.name}"):
                why = None
                try:
                    add_server(own, entry.name, entry, replace=True)
                except ConfigError as exc:
                    why = exc.reason

                if why is None:
                    copy = {each.name: each for each in read_servers(own).servers}[entry.name]
                    shown = replace(entry, title=None, description=None)
                    assert server_of(copy, environment) == server_of(shown, environment)
                    set_enabled(own, entry.name, False)
                    set_enabled(own, entry.name, True)
                elif why != entry.problem:
                    named += [each for each in NAMED if each in why] or [why]

        if own.path.exists():
            for entry in read_servers(own).servers:
                assert entry.enabled
                remove_server(own, entry.name)
            assert own.path.read_text() == "[mcp_servers]\n"

    assert set(named) == set(NAMED)


def test_the_inputs_of_an_entry_are_described_in_the_file_that_it_is_written_to(tmp_path: Path) -> None:
    key = {"type": "promptString", "id": "key", "description": "The key", "password": True}
    region = {
        "type": "pickString",
        "id": "region",
        "default": "eu",
        "options": ["eu", {"label": "America", "value": "us"}],
    }
    servers = {"a": {"url": AT, "headers": {"K": "${input:key}", "R": "${input:region}"}}}
    theirs = written(tmp_path, ".vscode/mcp.json", json.dumps({"inputs": [key, region], "servers": servers}))
    [entry] = read_servers(theirs).servers
    path = written(tmp_path, "own.json", '{"mcpServers": {}}')

    add_server(path, "a", entry)
    add_server(path, "b", entry)

    region |= {"description": "region", "options": ["eu", "us"]}
    assert json.loads(path.read_text())["inputs"] == [key, region]
    assert [each.options for each in read_servers(path).servers[1].inputs] == [(), ("eu", "us")]
    path.write_text(text := '{"mcpServers": {}, "inputs": [0, {"id": "key", "type": "promptString"}]}')
    with pytest.raises(ConfigError) as caught:
        add_server(path, "a", entry)
    assert str(caught.value) == f"{path}: server 'a': the file has another input 'key': change the id of one of them"
    assert path.read_text() == text


def test_what_is_of_the_folder_of_a_project_is_still_that_in_another_file(tmp_path: Path) -> None:
    raw = {
        "command": "${workspaceFolder}/run",
        "args": ["${workspaceFolderBasename}", "${userHome}"],
        "envFile": ".env",
        "cwd": "sub",
    }
    servers = {"a": raw, "b": {"command": "b", "envFile": "${userHome}/.env"}}
    path = written(tmp_path, "shop/.cursor/mcp.json", json.dumps({"mcpServers": servers}))
    own = FoundFile(tmp_path / "own.json", "mcp-host", "user")
    for entry in read_servers(path).servers:
        add_server(own, entry.name, entry)

    shop = str(tmp_path / "shop")
    assert json.loads(own.path.read_text())["mcpServers"] == {
        "a": {
            "command": f"{shop}/run",
            "args": ["shop", "${userHome}"],
            "envFile": f"{shop}/.env",
            "cwd": f"{shop}/sub",
        },
        "b": {"command": "b", "envFile": "${userHome}/.env", "cwd": shop},
    }


def test_the_files_that_an_entry_names_are_the_same_in_a_file_of_another_folder(tmp_path: Path) -> None:
    key = {"K": "Bearer ${file:file}"}
    servers = {
        "a": {"serverUrl": "https://x.example", "headers": key},
        "b": {"command": "b", "envFile": "b.env", "cwd": "sub", "args": ["${file:/etc/key}", "${file:~/key}"]},
        "c": {"url": "http://localhost/", "socket": "c.sock"},
    }
    path = written(tmp_path, "x/servers.json", json.dumps({"mcpServers": servers}))
    own = FoundFile(tmp_path / "own.json", "mcp-host", "user")
    for entry in read_servers(path, dialect="mcp-host").servers:
        add_server(own, entry.name, entry)

    x = str(tmp_path / "x")
    assert json.loads(own.path.read_text())["mcpServers"] == {
        "a": {"type": "http", "url": "https://x.example", "headers": {"K": f"Bearer ${{file:{x}/file}}"}},
        "b": {
            "command": "b",
            "envFile": f"{x}/b.env",
            "cwd": f"{x}/sub",
            "args": ["${file:/etc/key}", "${file:~/key}"],
        },
        "c": {"type": "http", "url": "http://localhost/", "socket": f"{x}/c.sock"},
    }


def test_a_path_is_whole_unless_a_variable_begins_it(subtests: pytest.Subtests, tmp_path: Path) -> None:
    x, own = str(tmp_path / "x"), tmp_path / "own.json"
    refused = "cwd: the text that its variable may have is a path from another folder"
    for cwd, wanted in {
        "%X%/bin": f"{x}/%X%/bin",
        "$X": f"{x}/$X",
        "${X:-bin}": refused,
        "${env:X | value:bin}": refused,
        "${X:-/bin}/a": "${X:-/bin}/a",
        "${X}/a": "${X}/a",
    }.items():
        path = written(tmp_path, "x/servers.json", json.dumps({"mcpServers": {"a": {"command": "a", "cwd": cwd}}}))
        [entry] = read_servers(path, dialect="mcp-host").servers
        with subtests.test(cwd):
            if wanted == refused:
                with pytest.raises(ConfigError, match=re.escape(refused)):
                    add_server(own, "a", entry, replace=True)
                continue
            add_server(own, "a", entry, replace=True)
            assert json.loads(own.read_text())["mcpServers"]["a"]["cwd"] == wanted
    add_server(own, "b", StdioServer("b", cwd="bin"))  # of no file
    assert json.loads(own.read_text())["mcpServers"]["b"]["cwd"] == "bin"


def test_a_folder_whose_name_is_a_variable_to_the_other_host_is_refused(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "a", "cwd": "sub", "envFile": "}"}}})
    for folder, is_refused in (("${X}", True), ("${X:-..}", True), ("${file:", True), ("$X", False), ("{X}", False)):
        [entry] = read_servers(written(tmp_path / folder, "servers.json", text), dialect="mcp-host").servers
        own = tmp_path / "own.json"
        with subtests.test(folder):
            if is_refused:
                with pytest.raises(ConfigError, match="mcp-host would expand what is to stay as it is"):
                    add_server(own, "a", entry, replace=True)
                continue
            add_server(own, "a", entry, replace=True)
            assert json.loads(own.read_text())["mcpServers"]["a"]["cwd"] == f"{tmp_path}/{folder}/sub"


def test_an_entry_gets_no_answer_that_was_given_for_another(tmp_path: Path) -> None:
    own = written(tmp_path, "own.json", text := '{"mcpServers": {"b": {"command": "b", "args": ["${input:key}"]}}}')
    theirs = written(tmp_path, "x/servers.json", '{"mcpServers": {"a": {"url": "https://x/${input:key}"}}}')
    [entry] = read_servers(theirs).servers
    with pytest.raises(ConfigError, match="the file has another input 'key': change the id of one of them"):
        add_server(own, "a", entry)
    assert own.read_text() == text
    add_server(own, "b", entry, replace=True)  # in the place of the only one that had it
    assert [each["id"] for each in json.loads(own.read_text())["inputs"]] == ["key"]


SWITCHES: list[tuple[str, str, str, str]] = [
    ("mcp-host", '{"a": {"url": "x"}}', '{"a": {"url": "x", "disabled": true}}', '{"a": {"url": "x", "disabled": false}}'),
    ("zed", '{"a": {"url": "x"}}', '{"a": {"url": "x", "enabled": false}}', '{"a": {"url": "x", "enabled": true}}'),
    (
        "mcp-host",
        '{"a": {"enabled": true, "disabled": true, "url": "x"}}',
        '{"a": {"enabled": false, "disabled": true, "url": "x"}}',
        '{"a": {"enabled": true, "disabled": false, "url": "x"}}',
    ),
    ("cursor", '{"a": {"url": "x"}}', "Cursor has no switch for a server in its file: remove it, or switch it off there", ""),
    ("mcp-host", '{"b": {"url": "x"}}', "there is no such server", "there is no such server"),
    ("mcp-host", '{"a": 1}', "it must be an object, not a number", "it must be an object, not a number"),
]  # fmt: skip


def test_a_server_is_switched_off_and_on_by_the_key_that_its_host_has(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for dialect, before, off, on in SWITCHES:
        with subtests.test(dialect, before=before):
            at = DIALECTS[dialect].at[0][0]
            path = written(tmp_path, "mcp.json", f'{{"{at}": {before}}}')
            results: list[str] = []
            for enabled in (False, True):
                try:
                    set_enabled(path, "a", enabled, dialect=dialect)
                except ConfigError as exc:
                    results.append(exc.reason)
                else:
                    results.append(path.read_text().removeprefix(f'{{"{at}": ').removesuffix("}"))
                    assert [each.enabled for each in read_servers(path, dialect=dialect).servers] == [enabled]

            assert results == [off, on or before]


def test_codex_has_the_switch_in_its_table(tmp_path: Path) -> None:
    before = '[mcp_servers.a] # a\nurl = "x"\n# why = 1\n\n# b\n[mcp_servers.a.tools.t]\napproval_mode = "approve"\n'
    path = written(tmp_path, ".codex/config.toml", before)

    set_enabled(path, "a", False)
    off = path.read_text()
    set_enabled(path, "a", True)

    assert off == before.replace('"x"\n', '"x"\nenabled = false\n')
    assert path.read_text() == off.replace("false", "true")


def test_gemini_cli_has_lists_of_the_servers_to_use_and_not_to_use(tmp_path: Path) -> None:
    before = (
        '{"mcpServers": {"a": {"url": "x"}, "b": {"url": "y"}}, "mcp": {"allowed": ["b" /* b */], "excluded": ["b"]}}'
    )
    path = written(tmp_path, ".gemini/settings.json", before)

    set_enabled(path, "a", True)
    set_enabled(path, "b", True)
    set_enabled(path, "a", False)
    set_enabled(path, "a", False)

    assert path.read_text() == before.replace('["b" /* b */]', '["b", /* b */ "a"]').replace('["b"]', '[\n  "a"\n]')
    path.write_text('{"mcpServers": {"a": {"url": "x"}}}')
    set_enabled(path, "a", False)
    set_enabled(path, "a", True)
    assert json.loads(path.read_text()) == {"mcpServers": {"a": {"url": "x"}}, "mcp": {"excluded": []}}


TEXTS = st.lists(
    st.sampled_from(["$", "{", "}", "env:", "A", ":-", "%", " | ", '"', "\\", "é", "input:", "file:/", "/"])
).map("".join)


@given(dialect=st.sampled_from(list(SPELLINGS)), args=st.lists(TEXTS, max_size=3), value=TEXTS)
@saturated
def test_a_text_without_variables_is_read_as_it_was_in_every_dialect_or_refused(
    dialect: str, args: list[str], value: str
) -> None:
    """Claude Desktop expands nothing, so nothing that is from there may be expanded by another host."""
    server = StdioServer("a", tuple(map(Secret, args)), SecretValues({"T": Secret(value)}))
    host = DIALECTS[dialect]
    try:
        raw = json.loads(json.dumps(written_as(server, dialect, source="claude-desktop").entry))
    except CannotWrite:
        assert any(own(piece, host.variables) for text in (*args, value) for piece in parse("args", text))
        return
    entry = read_entry("a", raw, host, {}, Source(path=Path("mcp.json"), dialect=dialect))

    assert parts_of(entry.expand({}, home=HOME).transport) == (["a", *args], {"T": value}, None)


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
    (
        ".codex/config.toml",
        '# mine\r\nmodel = "o9" # m\r\n\r\n[mcp_servers.a]\r\ncommand = "a"\r\nmine = 0x1f\r\n\r\n# tui\r\n[tui]\r\nsince = 2026-11-27\r\n',
        '# mine\r\nmodel = "o9" # m\r\n\r\n[mcp_servers.a]\r\ncommand = "a"\r\nmine = 0x1f\r\n\r\n'
        '[mcp_servers.new]\r\ncommand = "npx"\r\nargs = ["-y", "x"]\r\n\r\n# tui\r\n[tui]\r\nsince = 2026-11-27\r\n',
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


def test_a_name_that_no_host_could_use_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name in ("", " ", "\u3164", "a\x1b[2J", "a\nb", "a\u202eb", "a\udc80"):
        with subtests.test(ascii(name)):
            with pytest.raises(ConfigError) as caught:
                add_server(tmp_path / "mcp.json", name, BARE)

            assert caught.value.reason.startswith("the name of a server ")
            assert caught.value.server == name
    assert os.listdir(tmp_path) == []
    add_server(tmp_path / "mcp.json", "My server 漢字", BARE)


def test_the_frames_of_an_error_do_not_have_the_text_of_the_file(subtests: pytest.Subtests, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    for server in (BARE, StdioServer("a\udc80")):
        with subtests.test(ascii(server.command)):
            path.write_text('{"mcpServers": {"n": {"url": "s3cret"}}}')
            with pytest.raises(ConfigError) as caught:
                add_server(path, server.command[0], server)

            report = TracebackException.from_exception(caught.value, capture_locals=True)
            assert "s3cret" not in str([frame.locals for frame in report.stack[1:]])  # without that of this test
            assert caught.value.__context__ is None


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


def test_a_change_that_would_break_the_syntax_is_refused(tmp_path: Path) -> None:
    """The switch has the wrong type, and a table of its own."""
    path = written(tmp_path, "config.toml", text := "[mcp_servers.a.enabled]\nx = 1\n[mcp_servers.a.env]\n")

    with pytest.raises(ConfigError) as caught:
        set_enabled(path, "a", False)

    assert caught.value.reason == OTHERWISE
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


def test_no_dialect_writes_a_key_that_marks_another_one() -> None:
    """Else the next change of a file would take it for one of that host."""
    for name, spelling in SPELLINGS.items():
        keys = {*spelling.keys.values(), *spelling.stdio, *spelling.http}
        marked = [other for other, dialect in DIALECTS.items() if other != name and dialect.marks & keys]
        assert marked == [], name
        assert keys <= DIALECTS[name].meanings().keys(), name


def test_a_new_file_is_of_this_library_whatever_is_written_into_it(tmp_path: Path) -> None:
    servers = {"a": {"command": "a", "includeTools": ["x"], "excludeTools": ["y"]}, "b": {**WHOLE, "disabled": True}}
    theirs = read_servers(written(tmp_path, "theirs.json", json.dumps({"mcpServers": servers})), dialect="mcp-host")
    path = tmp_path / "new.json"
    for server in theirs.servers:
        add_server(path, server.name, server)
    add_server(path, "c", StdioServer("c", env={"T": EnvironmentVariable("TOKEN")}))

    file = read_servers(path)
    assert (file.dialect, file.warnings) == ("mcp-host", ())
    a, b, _ = file.servers
    assert [a.tools, b.tools] == [each.tools for each in theirs.servers]
    assert (b.enabled, b.timeout, b.oauth) == (False, 1.5, theirs.servers[1].oauth)


def test_where_the_folder_of_the_lock_cannot_be_made_the_error_names_that_too(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")

    with pytest.raises(ConfigError) as failure:
        add_server(tmp_path / "mcp.json", "new", BARE)

    assert failure.value.reason == f"it cannot be written: {os.strerror(EEXIST)} ({tmp_path / 'home'})"
    assert not (tmp_path / "mcp.json").exists()


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
