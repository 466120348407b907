"""Files that are broken, or have a server that cannot be used: the sentence names the file, the place and what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from traceback import TracebackException

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.config import DIALECTS, read_servers
from mcp_host.config.fields import KEYS, OAUTH_KEYS
from mcp_host.config.formats.documents import MAX_FILE
from mcp_host.config.formats.yaml_text import MAX_YAML, TOO_LARGE, UNKNOWN_TAG
from mcp_host.errors import ConfigError
from tests.config.described import ANSWERS, ENVIRONMENT, written
from tests.extent import saturated

SYNTAX: list[tuple[str, str | bytes, str]] = [
    ("mcp.json", '{"mcpServers": {"a": {"command": "a"}}', "mcp.json, line 1, column 39: Expecting ',' delimiter"),
    (
        "mcp.json",
        '{\n  // why\n  "mcpServers": {\n    "a": {"command": "a" "args": []}\n  }\n}',
        "mcp.json, line 4, column 26: Expecting ',' delimiter",
    ),
    ("mcp.json", "{'mcpServers': {}}", "mcp.json, line 1, column 2: Expecting property name enclosed in double quotes"),
    ("mcp.json", '{"a": "b\n}', "mcp.json, line 1, column 9: Invalid control character"),
    ("mcp.json", '{"mcpServers": {"a": {"command": "C:\\Tools"}}}', "mcp.json, line 1, column 37: Invalid \\escape"),
    ("mcp.json", "{} {}", "mcp.json, line 1, column 4: Extra data"),
    ("mcp.json", '{\n  /* why\n}', "mcp.json, line 2, column 3: the comment is not closed"),
    ("mcp.json", "[" * 200_000, "mcp.json: it nests too deeply"),
    ("mcp.json", '{"a": "' + '\\"' * 300_000, "mcp.json, line 1, column 7: Unterminated string"),
    ("mcp.json", '{"a":' * 101 + "{}" + "}" * 101, "mcp.json: it nests too deeply"),
    ("mcp.json", '{"n": ' + "1" * 5_000 + "}", "mcp.json: it has a number that is too long"),
    ("mcp.json", b'{"mcpServers":\n {"\xff": {}}}', "mcp.json, line 2, column 4: it is not UTF-8"),
    ("mcp.json", b"\xff\xfe{", "mcp.json, line 1, column 1: it is not UTF-16-LE"),
    ("mcp.json", " " * (MAX_FILE + 1), f"mcp.json: it cannot be read: it has more than {MAX_FILE} bytes"),
    ("config.toml", "[mcp_servers.a]\ncommand = \n", "config.toml, line 2, column 11: Invalid value"),
    ("config.toml", '[mcp_servers.a]\ncommand = "a', 'config.toml, line 2: Unterminated string'),
    ("config.toml", "[a]\n[a]\n", "config.toml, line 2, column 3: Cannot declare ('a',) twice"),
    ("config.toml", "a = " + "[" * 200_000, "config.toml: it nests too deeply"),
    ("config.toml", "a." * 400_000 + "a = 1", "config.toml: it nests too deeply"),
    ("config.toml", "[" + "'a' . \"\\\"\".b-." * 30_000 + "a]\n" + "a = 1\n" * 30_000, "config.toml: it nests too deeply"),
    ("config.toml", "a = " + "1" * 5_000, "config.toml: it has a number that is too long"),
    ("config.yaml", "extensions:\n  a: [1\n", "config.yaml, line 3, column 1: expected ',' or ']', but got '<stream end>'"),
    ("config.yaml", "extensions:\n\ta: 1\n", "config.yaml, line 2, column 1: found character '\\t' that cannot start any token"),
    ("config.yaml", "a: 1\n---\nb: 2\n", "config.yaml, line 2, column 1: but found another document"),
    ("config.yaml", "a: *s3cret\n", "config.yaml, line 1, column 4: found undefined alias"),
    ("config.yaml", "a: !s3!cret 1\n", "config.yaml, line 1, column 4: found undefined tag handle"),
    ("config.yaml", "a: !s3cret\n", f"config.yaml, line 1, column 4: {UNKNOWN_TAG}"),
    ("config.yaml", "a:\n- !include b.yaml\n", f"config.yaml, line 2, column 3: {UNKNOWN_TAG}"),
    ("config.yaml", "!s3cret a: 1\n", f"config.yaml, line 1, column 1: {UNKNOWN_TAG}"),
    ("config.yaml", "a: !!binary eA==\n", f"config.yaml, line 1, column 4: {UNKNOWN_TAG}"),
    ("config.yaml", "a: 1\nb: \x07\n", "config.yaml, line 2, column 4: special characters are not allowed"),
    ("config.yaml", "a: " + "[" * 500, "config.yaml: it nests too deeply"),
    ("config.yaml", "#" * (MAX_YAML + 1), f"config.yaml: it has more than {MAX_YAML} characters, too many for YAML"),
    (
        "config.yaml",
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
        f"config.yaml: {TOO_LARGE}",
    ),
    ("config.yaml", f"a: &a {'x' * 100_000}\nb: [{'*a,' * 50}]", f"config.yaml: {TOO_LARGE}"),
    ("config.yaml", f"a: &a\n  ? {'x' * 100_000}\n  : 1\nb: [{'*a,' * 50}]", f"config.yaml: {TOO_LARGE}"),
]  # fmt: skip

STRUCTURE: list[tuple[str, str | bytes, str]] = [
    ("mcp.json", "[]", "mcp.json: it must be an object of settings, not a list"),
    ("mcp.yaml", "just text", "mcp.yaml: it must be an object of settings, not text"),
    ("mcp", "just text" + "\n" * 200_000, "mcp: it must be an object of settings, not text"),
    ("mcp.json", '{"mcpServers": [{"name": "a", "command": "a"}]}',
     "mcp.json: mcpServers must be an object with a server under each name, not a list"),
    ("settings.json", '{"context_servers": true}',
     "settings.json: context_servers must be an object with a server under each name, not true or false"),
    ("config.toml", "mcp_servers = 1",
     "config.toml: mcp_servers must be an object with a server under each name, not a number"),
    (".vscode/mcp.json", '{"servers": []}',
     ".vscode/mcp.json: servers must be an object with a server under each name, not a list"),
    (".vscode/mcp.json", '{"mcp": {"servers": "a"}}',
     ".vscode/mcp.json: mcp.servers must be an object with a server under each name, not text"),
    ("opencode.json", '{"mcp": "a"}', "opencode.json: mcp must be an object with a server under each name, not text"),
    ("config.yaml", "extensions: [a]", "config.yaml: extensions must be an object with a server under each name, not a list"),
    ("mcp.json", '{"command": "npx", "args": ["-y", "x"]}',
     'mcp.json: it is one server without a name: write {"mcpServers": {"NAME": {...}}}'),
    ("mcp.json", '{"mcpservers": {"a": {"command": "a"}}}', "mcp.json: there are no servers in it: it has none of "
     "mcpServers, servers, mcp.servers, context_servers, mcp_servers, extensions, mcp"),
    (".gemini/settings.json", '{"mcp": {"allowed": "a"}, "mcpServers": {}}',
     ".gemini/settings.json: mcp.allowed: it must be a list of names, not text"),
]  # fmt: skip

SERVERS: list[tuple[str, str, str]] = [
    ("mcp.json", '"npx a"', "it must be an object, not text"),
    ("mcp.json", "null", "it must be an object, not null"),
    ("mcp.json", "{}", "it has neither a command nor a URL"),
    ("mcp.json", '{"command": "a", "url": "https://example.com"}', "it has both a command and a URL"),
    ("mcp.json", '{"type": "stdio", "url": "https://example.com"}', "it has no command"),
    ("mcp.json", '{"type": "http", "command": "a"}', "it has no URL"),
    ("mcp.json", '{"type": "carrier-pigeon", "url": "https://example.com"}', "the type 'carrier-pigeon' is unknown"),
    ("mcp.json", '{"type": 1.5, "command": "a"}', "the type '1.5' is unknown"),
    ("mcp.json", '{"command": " "}', "command: it is empty"),
    ("mcp.json", '{"command": []}', "command: it is empty"),
    ("mcp.json", '{"command": {"args": []}}', "it has neither a command nor a URL"),
    ("mcp.json", '{"command": "a", "args": "-y x"}', "args: it must be a list of texts, not text"),
    ("mcp.json", '{"command": "a", "args": ["x", ["y"]]}', "args[1]: it must be text, not a list"),
    ("mcp.json", '{"command": "a", "args": {}}', "args: it must be a list of texts, not an object"),
    ("mcp.json", '{"command": "a", "env": ["A=b"]}', "env: it must be an object, not a list"),
    ("mcp.json", '{"command": "a", "env": {"A": null}}', "env.A: it must be text, not null"),
    ("mcp.json", '{"command": "a", "disabled": "maybe"}', "disabled: it must be true or false, not text"),
    ("mcp.json", '{"command": "a", "includeTools": "x"}', "includeTools: it must be a list of names, not text"),
    ("mcp.json", '{"command": "a", "disabledTools": [1], "args": 1}',
     "args: it must be a list of texts, not a number; disabledTools: it must be a list of names, not a list"),
    ("mcp.json", '{"command": "a", "env_vars": "A"}', "env_vars: it must be a list of names, not text"),
    ("mcp.json", '{"command": "a", "env_vars": [{"name": "A", "source": "remote"}]}',
     "env_vars: only variables of the source 'local' are supported"),
    ("mcp.json", '{"url": "https://example.com", "oauth": 1}', "oauth: it must be an object, not a number"),
    ("mcp.json", '{"url": "https://example.com", "oauth": {"callbackPort": "80"}}',
     "oauth.callbackPort: it must be the number of a port"),
    ("mcp.json", '{"url": "ws://example.com"}', "there is no transport for WebSockets"),
    ("mcp.json", '{"command": "a", "env": {"T": "\\ud800"}}',
     "the value of the environment variable 'T' has half of a surrogate pair, which cannot be encoded"),
    ("mcp.json", '{"url": "https://example.com", "bearer_token_env_var": "sk-s3cret"}',
     "bearer_token_env_var: it must be the name of a variable of the environment, and cannot be one"),
    ("mcp.json", '{"url": "https://example.com", "env_http_headers": {"X": "sk-s3cret"}}',
     "env_http_headers.X: it must be the name of a variable of the environment, and cannot be one"),
    ("config.toml", "[mcp_servers.a]\ncommand = 2026-11-26", "command: it must be text, not date"),
    ("mcp.json", '{"command": "PORT=hunter2", "args": ["npx"]}', "command: command[0] gives the variable PORT, and there is no such program. No shell "
     'reads a command line: pass it with env=; it must be a list of a program and its arguments, like ["uvx", "some-server"]'),
    ("mcp.json", '{"command": "npx -y x"}', "command: command[0] has a space in it, and there is no such program. No shell "
     'splits a command line: write ["npx", ...]; it must be a list of a program and its arguments, like ["uvx", "some-server"]'),
    ("mcp.json", '{"url": "example.com/mcp"}',
     "url: not the URL of an HTTP server: it must look like https://host/path"),
    ("mcp.json", '{"url": "https://example.com", "headers": {"Accept": "x"}}',
     "headers: the transport writes the header Accept itself"),
    ("mcp.json", '{"url": "https://example.com", "headers": {"X": "${env:TRICK}\\n"}}',
     "headers: the value of the header X is not printable ASCII without space around it"),
    ("mcp.json", '{"url": "https://${HOST}/mcp"}', "url: the environment has no variable 'HOST'"),
    ("mcp.json", '{"command": "a", "env": {"A": "x${NOT_THERE}"}}',
     "env.A: the environment has no variable 'NOT_THERE'"),
    ("mcp.json", '{"url": "https://example.com", "headers": {"A": "Bearer ${EMPTY}"}}',
     "headers.A: the variable 'EMPTY' of the environment is empty"),
    ("mcp.json", '{"url": "https://example.com", "oauth": {"clientSecret": "${NOT_THERE}"}}',
     "oauth.client_secret: the environment has no variable 'NOT_THERE'"),
    ("mcp.json", '{"command": "a", "env": {"' + "A" * 257 + '": ""}}', "env: a name in it has more than 256 characters"),
    ("mcp.json", '{"command": "a", "args": ["${input:never}"]}', "args[0]: the input 'never' has no answer"),
    ("mcp.json", '{"command": "a", "args": ["${env:EMPTY | value:}"]}', "args[0]: none of its sources has a value"),
    ("mcp.json", '{"command": "a", "cwd": "${workspaceFolder}"}',
     "cwd: ${workspaceFolder} is not known: pass the folder of the project as workspace="),
    ("mcp.json", '{"command": "a", "args": ["${file:/nowhere/key}"]}',
     "args[0]: the file /nowhere/key cannot be read: there is no such file"),
    ("mcp.json", '{"command": "a", "args": ["${file:/\\u0000}"]}',
     "args[0]: the file /\\x00 cannot be read: there can be no such name"),
    ("mcp.json", '{"command": "a", "args": ["${file:/dev/null}"]}',
     "args[0]: the file /dev/null cannot be read: it is not a regular file"),
]  # fmt: skip


TEXT = st.text(max_size=5) | st.sampled_from(
    ["${TOKEN}", "a", "https://example.com", "unix:///x", "http", "stdio", "oauth", "\0", "\ud800"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.lists(TEXT, max_size=3) | st.dictionaries(TEXT, TEXT, max_size=3) | TEXT
OAUTH = st.dictionaries(st.sampled_from([*OAUTH_KEYS]), TEXTS | JSON, max_size=3)
SERVER = st.dictionaries(st.sampled_from([*KEYS]), TEXTS | JSON | OAUTH, max_size=6)
TOPS = ["mcpServers", "servers", "context_servers", "mcp_servers", "extensions"]
DIALECT = st.none() | st.sampled_from([*DIALECTS])


def errors(path: Path) -> Iterator[str]:
    """What is wrong in the file, or with its server "a"."""
    try:
        [server] = read_servers(path).servers
        server.expand(ENVIRONMENT, answers={each: ANSWERS[each.id] for each in server.inputs if each.id in ANSWERS})
    except ConfigError as exc:
        yield str(exc)


def test_a_file_that_cannot_be_read_is_an_error_that_names_the_place(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (name, text, sentence) in enumerate([*SYNTAX, *STRUCTURE]):
        with subtests.test(sentence[:80]):
            folder = tmp_path / str(number)

            assert list(errors(written(folder, name, text))) == [f"{folder}/{sentence}"]


def test_the_frames_of_an_error_do_not_have_the_text_of_the_file(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for text in ('{"mcpServers": {"a": "s3cret", }', '["s3cret"]', '{"mcpServers": ["s3cret"]}', '{"x": "s3cret"}'):
        with subtests.test(text):
            path = written(tmp_path, "mcp.json", text)
            with pytest.raises(ConfigError) as caught:
                read_servers(path)

            report = TracebackException.from_exception(caught.value, capture_locals=True)
            assert "s3cret" not in str([frame.locals for frame in report.stack[1:]])  # without that of this test


def test_a_server_that_cannot_be_used_says_why_and_the_others_of_its_file_stay(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, (name, entry, sentence) in enumerate(SERVERS):
        with subtests.test(sentence[:80]):
            whole = entry if name.endswith("toml") else f'{{"mcpServers": {{"a": {entry}}}}}'
            path = written(tmp_path / str(number), name, whole)
            beside = written(
                tmp_path / f"{number}b", "mcp.json", f'{{"mcpServers": {{"a": {entry}, "b": {{"command": "b"}}}}}}'
            )

            assert list(errors(path)) == [f"{path}: server 'a': {sentence}"]
            if not name.endswith("toml"):
                assert read_servers(beside).servers[1].problem is None


def test_where_a_host_has_nothing_but_servers_each_entry_is_one(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Read as no servers, it would stop those that run when the file is watched."""
    for name, text, dialect, expected in (
        (
            ".vscode/mcp.json",
            '{"servers": {"disabled": true}}',
            None,
            ["disabled: it must be an object, not true or false"],
        ),
        (".vscode/mcp.json", '{"servers": {"a": {"cwd": "/"}}}', None, ["a: it has neither a command nor a URL"]),
        ("settings.json", '{"mcp": {"servers": {"a": "b"}}}', "vscode", ["a: it must be an object, not text"]),
        ("opencode.json", '{"mcp": {"a": ["b"]}}', None, ["a: it must be an object, not a list"]),
        ("opencode.json", '{"mcp": {"servers": "b"}}', None, ["servers: it must be an object, not text"]),
        ("opencode.json", '{"mcp": {"servers": {"command": ["b"]}}}', None, ["servers: None"]),
        ("opencode.json", '{"mcp": {"servers": {"a": {"command": ["b"]}}}}', None, ["a: None"]),
        ("config.yaml", "extensions:\n  a: b", None, ["a: it must be an object, not text"]),
        (".vscode/mcp.json", '{"servers": {}, "mcpServers": {"a": {"command": "b"}}}', None, ["a: None"]),
        (".vscode/mcp.json", '{"servers": {}, "mcp": {"allowed": "a"}, "extensions": ["a"]}', None, []),
        (".gemini/settings.json", '{"mcp": {"allowed": ["a"]}, "servers": "a", "extensions": {"a": true}}', None, []),
        (
            ".gemini/settings.json",
            '{"mcp": {"a": "b"}, "mcpServers": {"a": {"command": "b"}}}',
            "mcp-host",
            ["a: None"],
        ),
        ("config.yaml", "extensions:\nmcp: a", None, []),
    ):
        with subtests.test(text):
            file = read_servers(written(tmp_path, name, text), dialect=dialect)

            assert ([f"{each.name}: {each.problem}" for each in file.servers], file.warnings) == (expected, ())


@saturated
@given(
    servers=st.dictionaries(st.sampled_from(["a", "b", ""]), SERVER | JSON), top=st.sampled_from(TOPS), dialect=DIALECT
)
def test_whatever_a_file_says_nothing_but_a_config_error_is_raised(
    tmp_path_factory: pytest.TempPathFactory, servers: object, top: str, dialect: str | None
) -> None:
    text = json.dumps({top: servers, "inputs": servers, "mcp": {"allowed": servers, "servers": servers}})
    try:
        read = read_servers(written(tmp_path_factory.mktemp("x"), "mcp.json", text), dialect=dialect).servers
    except ConfigError:
        return
    for server in read:
        assert (server.transport is None) == (server.problem is not None)
        with suppress(ConfigError):
            server.expand(ENVIRONMENT, workspace="/project")


def test_what_is_said_of_a_server_is_bounded(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """A file of a megabyte could have a line for each of its letters, each with all of a name in it."""
    long = "k" * 1_000
    repeated = '"A": 0, "A": 1'
    for members, count, last in (
        (f'"command": "a", "args": ["{"%A% " * 1_000}"]', 1, "args[0]: something like %V% stays as it is written: "),
        (", ".join(f'"timeoutt{index}": 0' for index in range(300)), 101, "... and 200 more like these"),
        (f'"{long}": {{"b": [{{{repeated}}}]}}', 2, f"{long[:300]}… (1000 characters): the key is unknown"),
        (f'"_": {{"{long}": [[{{{repeated}}}]]}}', 1, f"_.{long[:300]}… (1000 characters)[0][0].A: it is there more"),
    ):
        with subtests.test(last):
            path = written(tmp_path, "mcp.json", f'{{"mcpServers": {{"a": {{{members}}}}}}}')
            [server] = read_servers(path, dialect="claude-code").servers
            assert len(server.warnings) == count
            assert server.warnings[-1].startswith(last)
    for inputs, last in (
        ([0] * 300, "... and 200 more like these"),
        (
            [{"id": "a", "options": ["x" * 70_000] * 2}],
            "inputs[0]: it proposes more than 131,072 characters, and is ignored",
        ),
    ):
        path = written(tmp_path, "mcp.json", json.dumps({"mcpServers": {}, "inputs": inputs}))
        assert read_servers(path).warnings[-1] == last


def test_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_servers(tmp_path / "a\nb.json")

    assert str(caught.value) == f"{tmp_path}/a\\nb.json: there is no such file"


def test_a_server_without_a_name_is_told_of(tmp_path: Path) -> None:
    [server] = read_servers(written(tmp_path, "mcp.json", '{"mcpServers": {"": {"command": "a"}}}')).servers

    assert (server.transport, server.problem) == (None, "it has no name")


def test_yaml_without_its_library_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = written(tmp_path, "config.yaml", "extensions: {}")

    with pytest.raises(ConfigError) as caught:
        read_servers(path)

    assert str(caught.value) == f"{path}: reading YAML needs PyYAML: pip install 'mcp-host[yaml]'"


def test_a_dialect_that_is_asked_for_has_its_servers_under_its_own_keys(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", '{"mcpServers": {}}')

    with pytest.raises(ConfigError) as caught:
        read_servers(path, dialect="zed")
    with pytest.raises(
        ValueError, match="there is no dialect 'zeed': it is one of claude-desktop, claude-code, vscode,"
    ):
        read_servers(path, dialect="zeed")

    assert str(caught.value) == f"{path}: there are no servers in it: it has none of context_servers"
