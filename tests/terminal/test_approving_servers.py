"""Consent to a server of a file in a real (pseudo-)terminal: what the person sees, and what each key decides."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mcp_host import Allow, Deny, ask_in_terminal
from mcp_host.group import ProposedServer
from tests.terminal.screens import Screen

START = "Start this server? [y/v/N] "
CONNECT = "Connect to it? [y/N] "
VIEW = "v/N] "  # also before "y" is a key
REFUSED = Deny("the user refused it")
COMMAND = ProposedServer(
    name="shop",
    path=Path("/projects/shop/.mcp.json"),
    scope="project",
    kind="command",
    written="uvx shop '${DIR}'",
    expanded="uvx shop '**********'",
    cwd="/projects/shop",
    env_file="/projects/shop/.env",
    variables={"MODE": "dev", "PATH": "/opt/bin", "TOKEN": "**********"},
    deciding=("PATH",),
    settings=("timeout: 5.0 seconds",),
    expansions=("args[1]: the variable DIR", "env.TOKEN: the variable KEY"),
    digest="1",
)
URL = replace(
    COMMAND,
    kind="url",
    written="https://example.com/mcp",
    expanded="https://example.com/mcp",
    cwd=None,
    env_file=None,
    variables={},
    deciding=(),
    settings=(),
    expansions=(),
)


async def decision(
    screen: Screen, *keys: str, asked: ProposedServer = COMMAND, question: str | None = None
) -> Allow | Deny:
    """Ask, press *keys* at each question, and return the decision."""
    question = question or (START if asked.kind == "command" else CONNECT)
    return await screen.outcome(partial(ask_in_terminal, asked), question, *keys)


async def test_only_yes_allows_a_server(screen: Screen, subtests: pytest.Subtests) -> None:
    for keys, decided in (("y\n", Allow()), ("YES\n", Allow()), ("n\n", REFUSED), ("\n", REFUSED), ("\x04", REFUSED)):
        with subtests.test(keys):
            assert await decision(screen, keys) == decided
    assert await decision(screen, "s\n", "a\n", "session\n") == REFUSED


async def test_the_person_sees_the_file_the_command_and_what_else_decides_what_runs(screen: Screen) -> None:
    assert await decision(screen, "y\n") == Allow()

    assert screen.rows == [
        "",
        "A file of this project brings a server",
        "  | shop in /projects/shop/.mcp.json",
        "as the file has it",
        "  | uvx shop '${DIR}'",
        "values of yours that it gets",
        "  | args[1]: the variable DIR",
        "  | env.TOKEN: the variable KEY",
        "variables of the environment that the file gives it",
        "  | MODE=dev",
        "  | TOKEN=**********",
        "the file that more variables are from",
        "  | /projects/shop/.env",
        "variables that can decide what is run, or where it sends what it gets",
        "  | PATH=/opt/bin",
        "the folder that it is started in",
        "  | /projects/shop",
        "the command that is run on this machine",
        "  | uvx shop '**********'",
        "",
        "y: yes, until its entry, its command or the file of variables changes",
        "v: view the whole entry",
        "A refusal holds until the next start.",
        "Start this server? [y/v/N] y",
    ]


PARTS: dict[str, tuple[ProposedServer, list[str]]] = {
    "a URL of a file of unknown scope": (
        replace(URL, scope=None, variables={"X-Key": "**********"}),
        ["A file brings a server", "its URL", "headers that the file gives it", "  | X-Key=**********"],
    ),
    "a URL whose host is not at its beginning": (
        replace(URL, expanded="https://example.com@evil.example/mcp?@x", host="evil.example"),
        ["the host that it connects to", "  | evil.example"],
    ),
    "a URL whose host is hidden": (
        replace(URL, expanded="**********", host="evil.example"),
        ["the host that it connects to", "  | evil.example"],
    ),
    "a host that may look like another": (
        replace(URL, expanded="https://ex\u0430mple.com/mcp", host="xn--exmple-4nf.com"),
        ["  | xn--exmple-4nf.com", "This host has letters that may look like others: is it the one that you know?"],
    ),
    "a host that may look like another in an argument": (
        replace(COMMAND, expanded="uvx --from git+https://g\u0456thub.com/shop shop"),
        ["It names a host with letters that may look like others: is it the one that you", "know?"],
    ),
    "a host that may look like another in a variable": (
        replace(COMMAND, variables={"API": "user@g\u0456thub.com"}, deciding=()),
        ["It names a host with letters that may look like others: is it the one that you", "know?"],
    ),
    "another command": (
        replace(COMMAND, previous="npx shop"),
        ["A file of this project brings a server, which has changed since you agreed to it", "  | npx shop"],
    ),
    "what is not obeyed": (
        replace(COMMAND, warnings=("sandbox: no", "trust: no")),
        ["what is not obeyed of its entry", "  | sandbox: no", "  | trust: no"],
    ),
    "other settings": (
        replace(COMMAND, variables={}, deciding=(), previous=COMMAND.expanded),
        [
            "what you agreed to",
            "  | the same as far as it is shown: a hidden value, or something else in its",
            "  |     entry or its files, has changed",
        ],
    ),
    "what would control the terminal": (
        replace(COMMAND, name="a\x1b[2J", expanded="x \x1b[2J\u202e"),
        ["  | a\\x1b[2J in /projects/shop/.mcp.json", "  | x \\x1b[2J\\u202e"],
    ),
}


async def test_a_change_is_shown_with_what_was_agreed_to_and_text_of_the_file_is_escaped(
    screen: Screen, subtests: pytest.Subtests
) -> None:
    for name, (proposed, rows) in PARTS.items():
        with subtests.test(name):
            assert await decision(screen, "n\n", asked=proposed) == REFUSED
            assert [row for row in rows if row not in screen.rows] == []


async def test_letters_that_are_in_no_host_need_no_warning(screen: Screen) -> None:
    asked = replace(COMMAND, expanded="uvx shop /home/jos\u00e9 https://example.com/jos\u00e9")

    assert await decision(screen, "n\n", asked=asked) == REFUSED
    assert [row for row in screen.rows if "look like others" in row] == []


async def test_the_host_is_not_repeated_and_nothing_moves_the_command_out_of_sight(screen: Screen) -> None:
    plain = replace(URL, expanded="HTTPS://Example.com:8443/mcp", host="example.com")
    many = {f"GIT_{number}": "x" * 300 for number in range(500)}

    assert await decision(screen, "n\n", asked=plain) == REFUSED
    assert "the host that it connects to" not in screen.rows
    asked = replace(COMMAND, variables=many, deciding=tuple(many))
    assert await decision(screen, "n\n", asked=asked, question=VIEW) == REFUSED
    asked = replace(COMMAND, variables=many, warnings=tuple(many), expansions=tuple(many), deciding=())
    assert await decision(screen, "n\n", asked=asked, question=VIEW) == REFUSED
    assert screen.rows[-6:-4] == ["the command that is run on this machine", "  | uvx shop '**********'"]

    rows = screen.rows[screen.rows.index("variables that can decide what is run, or where it sends what it gets") :]
    assert rows[5:14] == [
        "  | GIT_1=" + "x" * 70,
        "  |     " + "x" * 72,
        "  |     " + "x" * 72,
        "  | ... and 2 more lines",
        "  | GIT_2=" + "x" * 70,
        "  |     " + "x" * 72,
        "  |     " + "x" * 72,
        "  | ... and 2 more lines",
        "  | ... and at least 1000 more lines",
    ]


async def test_a_long_command_is_cut_and_agreed_to_only_after_v_has_shown_it_whole(screen: Screen) -> None:
    long = replace(COMMAND, env_file=None, expanded="uvx " + "x " * 2_000 + "--last")

    assert await decision(screen, "y\n", "v\n", "y\n", asked=long, question=VIEW) == Allow()

    rows = screen.rows
    first, second = rows[: rows.index("v: view the whole entry")], rows[rows.index("Start this server? [v/N] v") :]
    assert any("more lines" in row for row in first)
    assert not any("--last" in row for row in first)
    assert any("--last" in row for row in second)
    assert "y: yes, until its entry or its command changes" not in first
    assert second[-1] == "Start this server? [y/v/N] y"


async def test_what_is_hidden_among_many_values_or_behind_many_blanks_has_to_be_viewed(
    screen: Screen, subtests: pytest.Subtests
) -> None:
    many = {f"GIT_{number}": "x" for number in range(50)}
    for name, asked in {
        "behind blanks": replace(COMMAND, expanded="sh -c 'echo" + " " * 5_000 + "; evil'"),
        "among variables": replace(COMMAND, variables=many, deciding=tuple(many)),
        "among values of the person": replace(COMMAND, expansions=tuple(many)),
    }.items():
        with subtests.test(name):
            assert await decision(screen, "y\n", "y\n", "y\n", asked=asked, question=VIEW) == REFUSED
            assert await decision(screen, "v\n", "y\n", asked=asked, question=VIEW) == Allow()


async def test_the_whole_entry_has_its_settings_and_is_offered_only_if_there_is_more(screen: Screen) -> None:
    assert await decision(screen, "v\n", "y\n") == Allow()

    rows = screen.rows
    second = rows[rows.index("Start this server? [y/v/N] v") + 1 :]
    assert second[second.index("its other settings") :][:2] == ["its other settings", "  | timeout: 5.0 seconds"]
    assert await decision(screen, "v\n", "n\n", asked=URL) == REFUSED  # it is no key then
