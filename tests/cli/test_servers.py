"""``mcp-host servers``: showing and changing the files of servers."""

from __future__ import annotations

import json
import pwd
from contextlib import redirect_stdout
from pathlib import Path

import anyio
import pytest

from mcp_host.auth import MemoryTokens
from mcp_host.cli.inputs import KeyringAnswers
from tests.cli.bounded import main
from tests.cli.conftest import Run
from tests.cli.terminals import Terminal
from tests.config.described import written

TEXT = """{
  "mcpServers": {
    // why
    "files": {"command": "npx", "args": ["-y", "files", "${HOME}"], "mine": 1},
    "api": {"url": "https://example.com/mcp?api_key=abcdef123", "disabled": true},
    "old": {"type": "sse", "url": "https://example.com/sse"}
  }
}
"""
SHOWN = """\
~/.config/mcp-host/mcp.json (mcp-host, user)
    files         npx -y files '${HOME}'
                  mine: the key is unknown, and ignored
    api           https://example.com/mcp?api_key=***
                  disabled
    old           unusable: HTTP+SSE, the transport of 2024-11-05, is
                  not supported: if the server has Streamable HTTP
                  too, use its URL
"""
SSE = "HTTP+SSE, the transport of 2024-11-05, is not supported: if the server has Streamable HTTP too, use its URL"


pytestmark = pytest.mark.usefixtures("home")


def test_servers_are_listed_on_one_line_each_for_programs_without_secrets(run: Run, own: Path) -> None:
    written(own.parent, own.name, TEXT)

    done = run("servers", "list")

    assert done == (
        0,
        f"files\tstdio\tenabled\tnpx -y files '${{HOME}}'\t{own}\n"
        f"api\thttp\tdisabled\thttps://example.com/mcp?api_key=***\t{own}\n"
        f"old\tunusable\tenabled\t{SSE}\t{own}\n",
        "",
    )


def test_a_command_without_a_server_names_the_file_that_has_some(run: Run, own: Path) -> None:
    def said(*argv: str) -> str:
        return run(*argv).err.partition(" (see ")[0].partition("after --, ")[2]

    before = said("tools")
    written(own.parent, own.name, '{"mcpServers": {}}')
    empty = said("tools")
    written(own.parent, own.name, TEXT)

    assert (before, empty) == ("or a file of servers: --config FILE",) * 2
    for argv in (["tools"], ["call"], ["chat", "--model", "arithmetic"], ["inspect"], ["proxy"]):
        assert said(*argv) == f"or a file of servers: --config {own}"


def test_a_file_may_be_named_and_listed_as_json(run: Run, home: Path) -> None:
    path = written(home, ".cursor/mcp.json", '{"mcpServers": {"a\\u001b": {"command": "a", "trust": true}}}')

    done = run("servers", "list", "--config", str(path), "--json")

    [server] = json.loads(done.out)["servers"]
    assert server == {
        "name": "a\x1b",
        "type": "stdio",
        "shown": "a",
        "enabled": True,
        "problem": None,
        "warnings": ["trust: no approval is taken from a file: your own approver decides"],
        "file": str(path),
        "host": "cursor",
        "scope": "user",
    }


def test_the_files_of_all_hosts_are_listed_and_what_cannot_be_read_hides_no_other(run: Run, home: Path) -> None:
    written(home, ".gemini/settings.json", '{"mcpServers": {"a": {"command": "a"}}}')
    broken = written(home, ".cursor/mcp.json", '{"mcpServers": {')
    written(home, ".lmstudio/mcp.json", '\ufeff{"mcpServers": {"b": {"command": "b\\u001b[2J"}}}')

    done = run("servers", "list", "--all")

    assert done.code == 0
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["a", "b"]
    assert "b\\x1b[2J" in done.out
    assert done.err.splitlines() == [
        f"mcp-host: {broken}, line 1, column 17: Expecting property name enclosed in double quotes",
        f"mcp-host: warning: {home}/.lmstudio/mcp.json: it begins with a byte order mark, at which other programs may fail",
    ]


def test_a_person_sees_whose_the_file_is_and_what_is_wrong_with_a_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(home, ".config/mcp-host/mcp.json", TEXT)
    written(home, ".lmstudio/mcp.json", '{"mcpServers": {}}')
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")

    with redirect_stdout(Terminal()) as out:
        assert main(["servers", "list", "--all"]) == 0

    assert out.getvalue() == SHOWN


def test_servers_are_added_and_removed(run: Run, own: Path) -> None:
    token = "Authorization: Bearer ${TOKEN}"
    added = [
        run("servers", "add", "-H", token, "api", "--config", str(own), "https://example.com/mcp"),
        run("servers", "add", "files", "-e", "TOKEN", "-e", "A=b=c", "--json", "--", "npx", "-y", "files", "--json"),
    ]
    text = own.read_text()
    removed = run("servers", "remove", "--config", str(own), "api")

    assert added == [(0, f"Added: api ({own})\n", ""), (0, f'{{\n  "added": "files",\n  "file": "{own}"\n}}\n', "")]
    assert json.loads(text) == {
        "mcpServers": {
            "api": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            "files": {"command": "npx", "args": ["-y", "files", "--json"], "env": {"TOKEN": "${TOKEN}", "A": "b=c"}},
        }
    }
    assert removed == (0, f"Removed: api ({own})\n", "")
    assert list(json.loads(own.read_text())["mcpServers"]) == ["files"]


def test_all_files_are_listed_in_a_folder_that_was_deleted_and_by_a_user_without_a_home_folder(
    run: Run, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert run("servers", "list", "--all").code == 0
    assert run("servers", "add", "a", "--config", "mcp.json", "--", "a").code == 2

    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert run("servers", "list").code == 0


def test_servers_are_switched_off_and_on(run: Run, own: Path) -> None:
    written(own.parent, own.name, '{"mcpServers": {"a": {"url": "x"} /* why */}}')

    done = [run("servers", "disable", "a"), run("servers", "enable", "a", "--json")]

    assert done == [(0, f"Disabled: a ({own})\n", ""), (0, f'{{\n  "enabled": "a",\n  "file": "{own}"\n}}\n', "")]
    assert own.read_text() == '{"mcpServers": {"a": {"url": "x", "disabled": false} /* why */}}'


def test_an_import_says_if_others_may_read_the_file_and_not_the_one_that_it_is_from(run: Run, home: Path) -> None:
    secret = {"mcpServers": {"a": {"command": "a", "env": {"KEY": "sk-s3cret"}}}}
    source = written(home, "theirs.json", json.dumps(secret))
    target = written(home, "mine.json", "{}")
    words = ("servers", "import", "a", "--from", str(source), "--config", str(target), "--replace")

    said = dict[tuple[int, int], list[str]]()
    for modes in ((0o600, 0o644), (0o600, 0o600), (0o644, 0o644)):
        source.chmod(modes[0])
        target.chmod(modes[1])
        said[modes] = run(*words).out.splitlines()[3:]

    note = f"    other users may read this file, but not the one that the server is from: chmod 600 {target}"
    assert said == {(0o600, 0o644): [note], (0o600, 0o600): [], (0o644, 0o644): []}


def test_servers_of_other_hosts_are_imported_and_what_is_not_is_said(run: Run, home: Path, own: Path) -> None:
    cursor = {"a": {"command": "a", "env": {"T": "${env:T}"}, "trust": True}, "b": {"url": "b"}, "c": {"url": "c"}}
    theirs = written(home, ".cursor/mcp.json", json.dumps({"mcpServers": cursor}))
    gemini = {"a": {"command": "a", "env": {"T": "$T"}}, "d": {"tcp": "d"}, "b": {"url": "b"}}
    other = written(home, ".gemini/settings.json", json.dumps({"mcpServers": gemini}))
    broken = written(home, ".lmstudio/mcp.json", "{")
    written(own.parent, own.name, '{"mcpServers": {"c": {"url": "mine"}}}')

    every = run("servers", "import", "--all")
    named = run("servers", "import", "--from", "cursor", "c", "--replace", "--json")
    one = run("servers", "import", "a", "--from", str(other))

    trust = "trust: no approval is taken from a file: your own approver decides"
    assert every.code == 2
    assert every.out == f"Imported: b from {theirs}\n    b\n"
    assert every.err.splitlines() == [
        f"mcp-host: {broken}, line 1, column 2: Expecting property name enclosed in double quotes",
        f"mcp-host: a of {theirs} and {other} is not imported: they differ: choose one by --from",
        f"mcp-host: c of {theirs} is not imported: there is one already: to replace it, pass --replace",
        f"mcp-host: d of {other} is not imported: there is no transport for WebSockets",
    ]
    assert json.loads(named.out) == {
        "imported": [{"name": "c", "from": [str(theirs)], "shown": "c", "notes": []}],
        "notImported": [],
        "file": str(own),
    }
    assert one == (0, f"Imported: a from {other}\n    a\n", "")
    assert json.loads(own.read_text()) == {
        "mcpServers": {
            "c": {"type": "http", "url": "c"},
            "b": {"type": "http", "url": "b"},
            "a": {"command": "a", "env": {"T": "${T}"}},
        }
    }
    assert (
        run("servers", "import", "a", "--from", "cursor", "--replace").out
        == f"Imported: a from {theirs}\n    a\n    {trust}\n"
    )


def test_the_file_of_codex_is_imported_from_and_written_to(run: Run, home: Path, own: Path) -> None:
    text = '# mine\n[mcp_servers.a]\nurl = "https://a.example"\nbearer_token_env_var = "T"\n'
    path = written(home, ".codex/config.toml", text)
    config = ("--config", str(path))

    done = [
        run("servers", "import", "--from", "codex", "a"),
        run("servers", "add", "b", *config, "-e", "TOKEN", "--", "npx", "b"),
        run("servers", "disable", "b", *config),
        run("servers", "remove", "a", *config),
        run("servers", "import", "a", *config),
    ]

    assert [each.code for each in done] == [0] * 5
    assert json.loads(own.read_text())["mcpServers"]["a"]["headers"] == {"Authorization": "Bearer ${T}"}
    assert path.read_text() == (
        '# mine\n\n[mcp_servers.b]\ncommand = "npx"\nargs = ["b"]\nenv_vars = ["TOKEN"]\nenabled = false\n'
        '\n[mcp_servers.a]\nurl = "https://a.example"\nbearer_token_env_var = "T"\n'
    )


def test_servers_of_a_project_are_imported_only_from_its_file(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the user's own file they are started without consent, so all that is given to them is shown; no word that decides what runs, nor a host, for a secret."""
    given = {
        "NODE_OPTIONS": "-r ./b\n",
        "PATH": "${PATH}",
        "MODE": "-p ./c",
        "KEY": "sk-1234567890",
        "A_URL": "https://sk-evil1234.example",
    }
    entry = {"command": "./a", "args": ["a\x1b", "token=1;./b"], "env": given, "envFile": ".env", "cwd": "sub"}
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Password": "s3cret", "X-Forward-To": "https://evil.example"}
    remote = {"type": "http", "url": "https://sk-internal.evil.example/mcp", "headers": headers}
    login = {"type": "http", "url": "https://c.example", "oauth": {"clientId": "theirs", "clientSecret": "s3cret"}}
    servers = {"a": entry, "b": remote, "c": login, "d": {"command": "./d"}}
    theirs = written(home, "project/.mcp.json", json.dumps({"mcpServers": servers}))
    monkeypatch.chdir(theirs.parent)

    left = [run("servers", "import", *words) for words in (["--all"], ["a"], ["--from", "claude-code"])]
    named = run("servers", "import", "--from", ".mcp.json")

    assert [(done.code, done.out) for done in left] == [(0, ""), (2, ""), (0, "")]
    assert left[1].err == "mcp-host: no other file of yours has a server 'a'\n"
    assert named.out.splitlines() == [
        f"Imported: a from {theirs.name}",
        "    ./a 'a\\x1b' 'token=1;./b'",
        "    env.NODE_OPTIONS: -r ./b\\n",
        "    env.PATH: ${PATH}",
        "    env.MODE: -p ./c",
        "    env.KEY: ***",
        "    env.A_URL: https://sk-evil1234.example",
        "    env_file: .env",
        "    cwd: sub",
        "    env.PATH: the variable PATH",
        f"Imported: b from {theirs.name}",
        "    https://sk-internal.evil.example/mcp",
        "    headers.Authorization: *** ${TOKEN}",
        "    headers.X-Password: ***",
        "    headers.X-Forward-To: https://evil.example",
        "    headers.Authorization: the variable TOKEN",
        f"Imported: c from {theirs.name}",
        "    https://c.example",
        "    oauth.client_id: theirs",
        "    oauth.client_secret: ***",
        f"Imported: d from {theirs.name}",
        "    ./d",
        f"    cwd: {theirs.parent}",
    ]


def test_an_import_takes_no_answer_of_another_server_unseen(
    run: Run, home: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keyring has answers of servers that were removed or replaced. Those in use are shared, which is said."""
    keyring = MemoryTokens()
    server = {"command": "a", "args": ["${input:KEY}", "${input:OTHER}", "${input:NEW}"]}
    described = [{"type": "promptString", "id": id, "description": "x"} for id in ("KEY", "OTHER", "NEW")]
    text = json.dumps({"mcpServers": {"a": server}, "inputs": described})
    mine = {"mcpServers": {"gone": server, "b": {"command": "b", "args": ["${input:OTHER}"]}}, "inputs": described}
    written(own.parent, own.name, json.dumps(mine))
    keys = [f"input {id} of {own}" for id in ("KEY", "OTHER")]
    words = ("servers", "import", "--from", str(written(home, "theirs.json", text)))
    assert run("servers", "remove", "gone").code == run(*words, "--config", "other.json").code == 0
    monkeypatch.setattr(KeyringAnswers, "of_person", lambda: KeyringAnswers(keyring))

    for replacing in ((), ("--replace",)):
        for key in keys:
            anyio.run(keyring.swap, key, anyio.run(keyring.load, key), "s3cret")
        done = run(*words, *replacing)

        assert done.out.splitlines()[5:] == ["    the input 'OTHER' is one of 'b', too: both get the same answer"]
        assert [anyio.run(keyring.load, key) for key in keys] == [None, "s3cret"]


ERRORS: list[tuple[list[str], str]] = [
    (["--all"], "'--all' stands before the command: options come after it (list, add, import, remove, enable, disable) (see mcp-host servers --help)"),
    (["frob"], "'frob' is no command (list, add, import, remove, enable, disable)"),
    (["list", "a"], "unexpected argument 'a' (see mcp-host servers list --help)"),
    (["add", "--replace"], "NAME is missing (see mcp-host servers add --help)"),
    (["add", "a", "--replace", "https://x", "b"], "unexpected argument 'b' (see mcp-host servers add --help)"),
    (["list", "--", "a"], "no server takes part in this"),
    (["list", "--all", "--config", "mcp.json"], "--all and --config contradict each other: use one of them"),
    (["list", "--config", "none.json"], "none.json: there is no such file"),
    (["add", "", "--", "x"], "{own}: server '': the name of a server has 1 to 64 characters, not 0"),
    (["add", "", "io.github.owner/name"], "{own}: server '': the name of a server has 1 to 64 characters, not 0"),
    (["add", "a"], "there is no server: give its URL, or the command that starts it after --"),
    (["add", "a", "--"], "there is no command after --"),
    (["add", "a", "npx"], "'npx' is no http(s) URL; a command that starts a server comes after --"),
    (["add", "a", "https://x", "--", "npx"], "there are both a URL and a command: a server has one of them"),
    (["add", "a", "https://x", "-e", "A"], "--env is for a command; a URL takes --header"),
    (["add", "a", "-H", "A: b", "--", "npx"], "headers are for a URL; a command takes --env"),
    (["add", "a", "-H", "sk-12345678"], "argument -H/--header: not of the form NAME: VALUE"),
    (["add", "a", "-e", "sk-12345678"], "--env: not of the form NAME or NAME=VALUE"),
    (["add", "a", "-e", "A", "--config", "claude_desktop_config.json", "--", "npx"], "claude_desktop_config.json: server 'a': env.A: Claude Desktop does not read variables of the environment here"),
    (["add", "a\udc80", "https://x"], "'a\\udc80' is not UTF-8"),
    (["import"], "import which? Name servers, or pass --from FILE-OR-HOST, or --all"),
    (["import", "a"], "no other file of yours has a server 'a'"),
    (["import", "--from", "none.json"], "none.json: there is no such file"),
    (["disable", "a"], "{own}: server 'a': there is no such server"),
    (["remove", "a"], "{own}: server 'a': there is no such server"),
]  # fmt: skip


def test_a_wrong_argument_is_named_in_one_sentence(run: Run, own: Path, subtests: pytest.Subtests) -> None:
    for argv, sentence in ERRORS:
        with subtests.test(ascii(argv)):
            done = run("servers", *argv)

            assert (done.code, done.out) == (2, "")
            assert done.err.startswith(f"mcp-host: {sentence.format(own=own)}")
            assert len(done.err.splitlines()) == 1


def test_nothing_is_overwritten_without_being_asked_for(run: Run, own: Path) -> None:
    add = ("servers", "add", "a", "https://example.com/mcp")

    codes = [run(*add).code, run(*add, "--replace").code]
    refused = run(*add)

    assert codes == [0, 0]
    assert refused.err == f"mcp-host: {own}: server 'a': there is one already: to replace it, pass --replace\n"


NO_SERVERS = "mcp-host: there are no servers: mcp-host servers add adds one, mcp-host servers import takes those of other hosts\n"


def test_without_servers_the_list_says_how_to_get_some(run: Run, subtests: pytest.Subtests) -> None:
    for words in (["list"], []):
        with subtests.test(str(words)):
            assert run("servers", *words) == (0, "", NO_SERVERS)
