"""Files of environment variables, as ``envFile`` names them: the lines that python-dotenv and VS Code agree on."""

from __future__ import annotations

import re

_LINE = re.compile(
    r"""
    [^\S\n]* (?:export[^\S\n]+)? (?P<name>[A-Za-z_][\w.-]*) [^\S\n]* =
    (?: [^\S\n]* '(?P<single>(?:\\.|[^'\\])*)' [^\S\n]* (?:\#[^\n]*)?
      | [^\S\n]* "(?P<double>(?:\\.|[^"\\])*)" [^\S\n]* (?:\#[^\n]*)?
      | (?![^\S\n]*['"]) (?P<plain>[^\n]*)
    ) (?:\n|$)
    """,
    re.VERBOSE | re.DOTALL,
)
_IGNORED = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|$)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse_env_file(text: str) -> tuple[dict[str, str], tuple[int, ...]]:
    """The variables in *text*, and the lines that are none. Nothing in a value is expanded.

    A line is ``NAME=value``, with or without ``export``. A value in quotes may have several lines; in double quotes
    ``\\n`` is a line break. After other values, `` #`` begins a comment.
    """
    text = text.replace("\r\n", "\n")
    variables: dict[str, str] = {}
    bad: list[int] = []
    start, line = 0, 1
    while start < len(text):
        found = _LINE.match(text, start)
        if found is not None:
            variables[found["name"]] = _value(found)
        elif (found := _IGNORED.match(text, start)) is None:
            bad.append(line)
        end = found.end() if found is not None else (text.find("\n", start) + 1 or len(text))
        start, line = end, line + text.count("\n", start, end)
    return variables, tuple(bad)


def _value(line: re.Match[str]) -> str:
    if (text := line["single"]) is not None:
        return re.sub(r"\\(['\\])", r"\1", text)
    if (text := line["double"]) is not None:
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
    return re.split(r"\s#", line["plain"], maxsplit=1)[0].strip()
