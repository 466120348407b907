"""Parsing the command line: no list of arguments is a traceback."""

from __future__ import annotations

import shlex
from contextlib import redirect_stdout
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.cli.arguments import parse
from mcp_host.cli.commands import COMMANDS, examples, servers
from mcp_host.cli.options import OPTIONS
from mcp_host.cli.output import UsageError
from tests.extent import THOROUGH

WORDS = [
    *COMMANDS,
    *servers.COMMANDS,
    *sorted({flag for option in OPTIONS.values() for flag in option.flags} | {"-h", "--help", "--version"}),
    *("--", "-"),
    *("--frob", "http://x", "https://", "1", "-1", "inf", "nan", "auto", "arithmetic", "a=b", "a: b"),
    *("a:=1", "a:=[", "a=@", "a=@/", "a=@\0", "{", "{}", '{"a": 1}', "[]", "=", "", " ", "%s", "%(prog)s", "\udcff"),
    *("a=\udcff", "a:=\udcff", '{"a": "\udcff"}', '{"a": "\\ud800"}', 'a:="\\ud800"'),
]


@settings(max_examples=1000 if THOROUGH else 50)
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=8))
def test_arguments_are_options_or_an_error_or_help(argv: list[str]) -> None:
    printed, code, problem = StringIO(), None, ""
    try:
        with redirect_stdout(printed):
            options = parse(argv)
    except UsageError as exc:
        problem = str(exc)
    except SystemExit as stopped:
        code = stopped.code
    else:
        assert options.verb.split()[0] == argv[0]
        return

    assert problem or (code == 0 and printed.getvalue())


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("99", 99), ("0", None), ("-1", None), ("1.5", None), ("x", None)]
)
def test_a_number_of_tokens_or_tools_is_one_at_least(text: str, number: int | None) -> None:
    for of in ("tokens", "tools"):
        argv = ["chat", "http://x", "--model", "arithmetic", f"--max-{of}={text}"]

        if number is None:
            with pytest.raises(UsageError, match=f"^argument --max-{of}: '{text}' is not a number of {of}"):
                parse(argv)
        else:
            assert getattr(parse(argv), f"max_{of}") == number


def test_all_commands_that_have_a_model_take_a_yes_for_it() -> None:
    commands = (["demo"], ["call", "http://x", "t"], ["chat", "http://x", "--model", "arithmetic"])

    assert [parse(command).yes for command in commands] == [False] * 3
    assert [parse([*command, flag]).yes for command in commands for flag in ("--yes", "-y")] == [True] * 6


def test_each_example_of_the_help_is_a_command() -> None:
    for verb in COMMANDS:
        for line in examples(verb):
            assert parse(shlex.split(line.partition("mcp-host ")[2])).verb.split()[0] == verb
