"""Files of environment variables, as ``envFile`` names them: the lines that python-dotenv and VS Code agree on."""

from __future__ import annotations

import re

_LINE = re.compile(
    r"""
    [^\S\n]* (?:export[^\S\n]+)? (?P<name>[A-Za-z_][\w.-]*) [^\S\n]* = [^\S\n]*
    (?: '(?P<single>(?:\\.|[^'\\])*)' | "(?P<double>(?:\\.|[^"\\])*)" | (?P<plain>[^\n'"][^\n]*?)?? )
    [^\S\n]* (?:(?:(?<=\s)|(?<=['"=]))\#[^\n]*)? (?:\n|$)
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
    place = 0
    while place < len(text):
        found = _LINE.match(text, place)
        if found is not None:
            variables[found["name"]] = _value(found)
        elif (found := _IGNORED.match(text, place)) is None:
            bad.append(text.count("\n", 0, place) + 1)
        place = found.end() if found is not None else (text.find("\n", place) + 1 or len(text))
    return variables, tuple(bad)


def _value(line: re.Match[str]) -> str:
    if (text := line["single"]) is not None:
        return re.sub(r"\\(['\\])", r"\1", text)
    if (text := line["double"]) is not None:
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
    return line["plain"] or ""
