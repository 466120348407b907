"""``mcp-host servers add io.github.owner/name``: what is shown and asked, and what the file gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from keyring.backends import fail

from mcp_host.auth import MemoryTokens, TokensError
from mcp_host.cli.inputs import KeyringAnswers
from mcp_host.config import read_servers
from tests.cli.conftest import Run
from tests.cli.terminals import Sitting, needs_terminal
from tests.config.registries import FakeRegistry, serving_registry
from tests.config.test_server_json import NPM, SECRET
from tests.terminal.screens import Screen

NAME = "io.github.example/db"
DIR = {"type": "positional", "valueHint": "dir", "format": "filepath", "isRequired": True, "isRepeated": True}
PORT = {"type": "named", "name": "--port", "format": "number", "default": "8080", "description": "To listen on"}
PACKAGE = {
    **NPM,
    "packageArguments": [PORT, DIR],
    "environmentVariables": [
        {**SECRET, "description": "From your account\x1b[2J"},
        {"name": "MODE", "choices": ["fast", "safe"], "default": "safe"},
        {"name": "EXTRA"},
    ],
}
HEADERS = [{"name": "Authorization", "value": "Bearer {token}", "variables": {"token": SECRET}}]
SECRETS = [{"name": "KEY", "value": "{a key}", "variables": {"a key": SECRET}}, {"name": "OPTIONAL", "isSecret": True}]
REMOTE = {"type": "streamable-http", "url": "https://db.example.com/mcp", "headers": HEADERS}
DB = {"name": NAME, "version": "1.2.3", "description": "A database", "packages": [PACKAGE], "remotes": [REMOTE]}
COMMAND = ["-y", "@example/db@1.2.3", "--port", "8080"]


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def keyring(monkeypatch: pytest.MonkeyPatch) -> MemoryTokens:
    keyring = MemoryTokens()
    monkeypatch.setattr(KeyringAnswers, "of_person", lambda: KeyringAnswers(keyring))
    return keyring


@pytest.fixture(scope="module")
def serving() -> Iterator[FakeRegistry]:
    with serving_registry(DB) as registry:
        yield registry


@pytest.fixture
def registry(serving: FakeRegistry) -> FakeRegistry:
    """At the registry is one server, which is active."""
    serving.servers = {(NAME, "1.2.3"): DB}
    serving.status.clear()
    serving.asked.clear()
    return serving


def servers(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())["mcpServers"])


def test_without_a_terminal_answers_are_arguments(run: Run, registry: FakeRegistry, own: Path) -> None:
    given = ["-e", "API_KEY", "-e", "dir=/a", "-e", "dir=/b c"]

    done = run("servers", "add", NAME, "--registry", registry.url, *given)

    shown = "npx -y @example/db@1.2.3 --port 8080 /a '/b c'"
    assert done == (
        0,
        f"\nIt gets these values:\n  | API_KEY=${{API_KEY}}\n  | MODE=safe\nThis command is started for it:\n  | {shown}\n"
        f"Added: db ({own})\n",
        "",
    )
    env = {"API_KEY": "${API_KEY}", "MODE": "safe"}
    assert servers(own) == {"db": {"command": "npx", "args": [*COMMAND, "/a", "/b c"], "env": env}}


def test_a_url_gets_its_headers(run: Run, registry: FakeRegistry, own: Path) -> None:
    arguments = ["--registry", registry.url, "--package", "remote", "-e", "token=a secret", "--version", "1.2.3"]

    done = run("servers", "add", "mine", NAME, *arguments)

    assert done == (
        0,
        "\nIt gets these values:\n  | Authorization=Bearer ***\nIt is at this URL:\n  | https://db.example.com/mcp\n"
        f"Added: mine ({own})\n",
        "",
    )
    headers = {"Authorization": "Bearer a secret"}
    assert servers(own) == {"mine": {"type": "http", "url": "https://db.example.com/mcp", "headers": headers}}
    assert json.loads(run("servers", "add", "x", NAME, *arguments, "--json").out) == {"added": "x", "file": str(own)}


def test_what_a_registry_says_is_shown_also_if_it_calls_that_a_secret(run: Run, registry: FakeRegistry) -> None:
    """It decides what is started. Nor does any text of a registry stand for an answer."""
    said = [{"name": "NODE_OPTIONS", "value": "--require=x \ue0000\ue001 \ue0009\ue001", "isSecret": True}]
    others = [{"name": "MODE", "default": "dev", "isSecret": True}, *SECRETS]
    keys = {"a key": SECRET, "more": SECRET}
    argument = {"type": "named", "name": "--eval=", "value": "f('{a key}{more}')", "variables": keys}
    empty = {"type": "positional", "isSecret": True, "valueHint": "empty"}
    package = {**NPM, "environmentVariables": [*said, *others], "packageArguments": [argument, empty]}
    registry.servers[NAME, "1.2.3"] = {**DB, "packages": [package]}
    answers = ["a key=s3cret", "more=s3cret2", "empty=", "OPTIONAL"]

    done = run("servers", "add", NAME, "--registry", registry.url, *(word for each in answers for word in ("-e", each)))

    shown = [
        *("NODE_OPTIONS=--require=x \\ue0000\\ue001 \\ue0009\\ue001", "MODE=dev", "KEY=***", "OPTIONAL=${OPTIONAL}"),
        "This command is started for it:",
        """npx -y @example/db@1.2.3 '--eval=f('"'"'******'"'"')' ''""",
    ]
    assert (done.code, done.err) == (0, "")
    assert [row.removeprefix("  | ") for row in done.out.split("\n")[2:8]] == shown


def test_what_cannot_be_added_is_an_error_and_nothing_is_written(
    run: Run, registry: FakeRegistry, own: Path, subtests: pytest.Subtests
) -> None:
    bundle = {"registryType": "mcpb", "identifier": "https://example.com/db.mcpb"}
    registry.servers |= {
        ("com.example/bundle", "1"): {"name": "com.example/bundle", "version": "1", "packages": [bundle]},
        ("com.example/thief", "1"): {
            "name": "com.example/thief",
            "version": "1",
            "remotes": [{"type": "streamable-http", "url": "https://x.example/${HOME}"}],
        },
        ("com.example/gone", "1"): {"name": "com.example/gone", "version": "1"},
    }
    registry.status["com.example/gone"] = {"status": "deleted"}
    rows: list[tuple[list[str], str]] = [
        (
            [NAME],
            "there is no terminal to ask in: pass -e NAME=VALUE, or -e NAME for a variable of the environment, for\n"
            "  | API_KEY (From your account\\x1b[2J)\n  | dir",
        ),
        ([NAME, "-e", "API_KEI=1"], f"'{NAME}' asks for no 'API_KEI'; did you mean 'API_KEY'?"),
        (
            [NAME, "-e", "API_KEY", "-e", "dir=/", "-e", "port=x"],
            "packages[0].packageArguments[0]: the answer to port cannot be used: it must be a number",
        ),
        ([NAME, "--package", "oci"], f"'{NAME}' has no choice for --package oci that can be used\n"
         "  | npm: npx -y @example/db@1.2.3 --port '{port}' '{dir}'\n  | remote: https://db.example.com/mcp"),
        (["com.example/bundle"], "'com.example/bundle' has no package or URL that can be used\n"
         "  | mcpb: packages[0]: bundles (mcpb) are not supported"),
        (["com.example/thief"], "warning: url: {HOME} is no variable, and stays as it is\nmcp-host: url: it has ${HOME}, which a file of servers would expand"),
        (["com.example/gone"], "'com.example/gone' was deleted from HERE"),
        (["io.github.exampel/db"], f"HERE has no server 'io.github.exampel/db'; did you mean {NAME}?"),
        ([NAME, "-H", "A=b"], "a server of a registry says which headers it wants: answer with -e NAME=VALUE"),
        (["db", "https://x.example", "--version", "1"],
         "--version, --registry and --package are for a server of a registry, such as io.github.owner/name"),
    ]  # fmt: skip
    for arguments, error in rows:
        with subtests.test(error):
            done = run("servers", "add", *arguments, "--registry", registry.url)

            assert done == (2, "", f"mcp-host: {error.replace('HERE', registry.url)}\n")
    done = run("servers", "add", NAME, "--registry", "x")
    assert done.err == "mcp-host: --registry: not the URL of an HTTP server: it must look like https://host/path\n"
    assert not own.exists()


def test_a_name_that_is_taken_is_an_error_before_anything_is_asked(run: Run, registry: FakeRegistry, own: Path) -> None:
    assert run("servers", "add", "db", "https://db.example.com").code == 0

    done = run("servers", "add", NAME, "--registry", registry.url)

    assert (done.code, registry.asked) == (2, [])
    assert done.err == f"mcp-host: {own}: server 'db': there is one already: to replace it, pass --replace\n"


def test_what_the_registry_says_of_a_server_is_a_warning(run: Run, registry: FakeRegistry) -> None:
    registry.servers = {
        (NAME, version): {"name": NAME, "version": version, "packages": [{**NPM, "fileSha256": "0" * 64}]}
        for version in ("1", "2")
    }
    registry.status[NAME] = {"status": "deprecated", "statusMessage": "Use the other"}

    done = run("servers", "add", NAME, "--registry", registry.url, "--version", "1")

    assert done.err.splitlines() == [
        "mcp-host: warning: its status is deprecated: Use the other",
        "mcp-host: warning: there is a newer version",
        "mcp-host: warning: its fileSha256 is not checked: the command that runs it downloads it",
    ]


@needs_terminal
def test_in_a_terminal_each_question_is_asked_and_secrets_go_to_the_keyring(
    registry: FakeRegistry, own: Path, screen: Screen, sit: Sitting, keyring: MemoryTokens
) -> None:
    shown: list[str] = []

    async def person() -> None:
        for keys in ("\n", "s3cret\n", "slow\n", "fast\n", "\n", "x\n", "80\n", "\n", "~/a\n", "/b\n", "\n"):
            shown.append(await screen.asks("> "))
            screen.press(keys)
        shown.append(await screen.asks(f"Write this into {own}? [y/N] "))
        screen.press("y\n")
        await screen.shows("Added: db")

    screen.resize(200)
    assert sit(person, "servers", "add", NAME, "--registry", registry.url) == 0

    [entry] = read_servers(own).servers
    key = entry.inputs[0].key
    assert servers(own) == {
        "db": {
            "command": "npx",
            "args": ["-y", "@example/db@1.2.3", "--port", "80", f"{Path.home()}/a", "/b"],
            "env": {"API_KEY": "${input:db.API_KEY}", "MODE": "fast"},
        }
    }
    assert (entry.inputs[0].password, anyio.run(keyring.load, key)) == (True, "s3cret")
    assert (
        "".join(shown).replace("\r", "")
        == f"""\
  | io.github.example/db 1.2.3
  | A database
It gets these values:
  | API_KEY={{API_KEY}}
  | MODE={{MODE}}
  | EXTRA={{EXTRA}}
The npm package (there is also --package remote):
  | npx -y @example/db@1.2.3 --port '{{port}}' '{{dir}}'

  | API_KEY
  | From your account\\x1b[2J
What you type is not shown.
>{" "}
This value is required. Ctrl-D cancels.
>{" "}

  | MODE
one of
  | fast
  | safe
Enter takes
  | safe
> slow
Type one of the words above.
> fast

  | EXTRA
Enter alone leaves it out.
>{" "}

  | port
  | To listen on
Enter takes
  | 8080
> x
This cannot be used: it must be a number.
> 80

  | dir
>{" "}
This value is required. Ctrl-D cancels.
> ~/a

  | dir
It may have several values. Enter alone: no more.
> /b

  | dir
It may have several values. Enter alone: no more.
>{" "}

It gets these values:
  | API_KEY=${{input:db.API_KEY}}
  | MODE=fast
This command is started for it:
  | npx -y @example/db@1.2.3 --port 80 {Path.home()}/a /b
Write this into {own}? [y/N] """
    )


@needs_terminal
@pytest.mark.parametrize("why", ["no library", "no keyring", "the file of another host"])
def test_without_a_keyring_a_secret_stays_in_the_environment(
    why: str,
    registry: FakeRegistry,
    own: Path,
    tmp_path: Path,
    screen: Screen,
    sit: Sitting,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a name that is not the registry's choice, which could be that of another secret."""
    file = tmp_path / "mcp.json" if (other := why == "the file of another host") else own
    if not other:
        found = None if why == "no library" else KeyringAnswers()
        monkeypatch.setattr(KeyringAnswers, "of_person", lambda: found)
    monkeypatch.setattr("keyring.get_keyring", fail.Keyring)
    headers = [*HEADERS, {"name": "X", "isSecret": True}]
    registry.servers = {(NAME, "1"): DB | {"version": "1", "packages": [], "remotes": [{**REMOTE, "headers": headers}]}}

    async def person() -> None:
        await screen.shows("Added: db")

    screen.resize(200)
    argv = ["--registry", registry.url, "--yes", *(["--config", str(file)] if other else [])]
    assert sit(person, "servers", "add", NAME, *argv) == 0

    assert screen.rows[:14] == [
        "  | io.github.example/db 1",
        "  | A database",
        "It gets these values:",
        "  | Authorization=Bearer {token}",
        "  | X={X}",
        "The URL:",
        "  | https://db.example.com/mcp",
        "token is a secret, which is not kept here: it is read from the variable DB_TOKEN of the environment.",
        "X is a secret, which is not kept here: it is left out, since it is optional. To have it, pass -e NAME or -e NAME=VALUE.",
        "",
        "It gets these values:",
        "  | Authorization=Bearer ${DB_TOKEN}",
        "It is at this URL:",
        "  | https://db.example.com/mcp",
    ]
    assert servers(file)["db"]["headers"] == {"Authorization": "Bearer ${DB_TOKEN}"}


class LockedKeyring(MemoryTokens):
    async def load(self, key: str) -> str | None:
        raise TokensError("it stays locked")

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        raise TokensError("it stays locked")


@needs_terminal
def test_a_secret_that_the_keyring_does_not_take_is_asked_for_again_later(
    registry: FakeRegistry, own: Path, screen: Screen, sit: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyringAnswers, "of_person", lambda: KeyringAnswers(LockedKeyring()))
    said: list[str] = []
    registry.servers = {
        (NAME, "1"): {"name": NAME, "version": "1", "packages": [NPM | {"environmentVariables": SECRETS}]}
    }

    async def person() -> None:
        for keys in ("s3cr\x1bet\n", "s3cret\n", "\n"):
            said.append(await screen.asks("> "))
            screen.press(keys)
        said.append(await screen.shows("Added: db"))

    screen.resize(200)
    assert sit(person, "servers", "add", NAME, "--registry", registry.url, "--yes") == 0

    assert "This has a control character" in said[1]
    assert "mcp-host: warning: the keyring does not keep db.question0: " in said[3]
    assert servers(own)["db"]["env"] == {"KEY": "${input:db.question0}"}


@needs_terminal
@pytest.mark.parametrize(
    "answers",
    [["\x04"], ["s3cret\n", "n\n"], ["s3cret\n", "\n"], ["s3cret\n", "\x04"]],
    ids=["Ctrl-D", "no", "Enter", "then"],
)
def test_nothing_is_written_without_a_yes(
    answers: list[str], registry: FakeRegistry, own: Path, screen: Screen, sit: Sitting, keyring: MemoryTokens
) -> None:
    async def person() -> None:
        for question, keys in zip(("> ", "[y/N] "), answers, strict=False):
            await screen.shows(question)
            screen.press(keys)
        await screen.shows("nothing was written")

    assert sit(person, "servers", "add", NAME, "--registry", registry.url, "--package", "remote") == 0

    assert not own.exists()
    assert anyio.run(keyring.load, f"input db.token of {own}") is None


@needs_terminal
def test_a_terminal_that_is_too_narrow_is_an_error(registry: FakeRegistry, screen: Screen, sit: Sitting) -> None:
    async def person() -> None:
        await screen.shows("narrow")

    screen.resize(5)
    assert sit(person, "servers", "add", NAME, "--registry", registry.url) == 2
