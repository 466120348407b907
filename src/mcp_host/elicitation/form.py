"""The fields of a form for a person who types: what to enter, and what a typed line means."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from unicodedata import normalize
from urllib.parse import urlsplit

from mcp_host.terminal.fields import Choice, Field, compact

YES, NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})

EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
NOT_IN_WORDS = re.compile(r"[\W_]")  # blanks, points, brackets, and what cannot be seen

EXAMPLES: Mapping[object, str] = {
    "email": "an e-mail address",
    "uri": "a URI, such as https://example.com/page",
    "date": "a date, such as 2026-11-22",
    "date-time": "a date and time, such as 2026-11-22T09:30:00Z",
}


def expected(field: Field) -> str:
    """What to enter, in our own words, with nothing of the server's text."""
    schema = field.schema
    if is_list(field):
        what = "several texts" if field.choices is None else "several of these"
        return f"{what}{_range(schema, 'minItems', 'maxItems')}, with commas between them"
    if field.choices is not None:
        return "one of these"
    if field.kinds == ("boolean",):
        return "yes or no"
    if _is_text(field):
        lengths = _range(schema, "minLength", "maxLength", unit="character")
        return f"{EXAMPLES.get(_format(field), 'text')}{lengths}"
    whole = "number" not in field.kinds
    return f"a {'whole ' * whole}number{_range(schema, 'minimum', 'maximum')}"


def _range(schema: Mapping[str, object], low: str, high: str, *, unit: str = "") -> str:
    least, most = (_number(schema.get(name)) for name in (low, high))
    if least is not None and most is not None:
        words, last = f"{least} to {most}" if least != most else f"exactly {most}", most
    elif least is not None:
        words, last = f"at least {least}", least
    elif most is not None:
        words, last = f"at most {most}", most
    else:
        return ""
    return f", {words}{f' {unit}' if unit else ''}{'s' if unit and last != '1' else ''}"


def _number(value: object) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return compact(value) if is_number else None


def read_answer(field: Field, line: str) -> object:
    """The value that a typed line means.

    Raises:
        ValueError: It means none; the text says what to enter.
    """
    if is_list(field):
        return _read_several(field.choices, line) if field.choices is not None else _parts(line)
    if field.choices is not None:
        return _read_choice(field.choices, line)
    if field.kinds == ("boolean",):
        if line.lower() not in YES | NO:
            raise ValueError("Enter y for yes or n for no.")
        return line.lower() in YES
    if _is_text(field):
        if not FORMATS.get(_format(field), bool)(line):
            raise ValueError(f"Enter {EXAMPLES[_format(field)]}.")
        return line
    return _read_number(line, whole="number" not in field.kinds)


def _read_number(line: str, *, whole: bool) -> float:
    try:
        number: float = int(line)
    except ValueError:
        try:
            number = float(line)
        except ValueError:
            number = math.nan
    try:
        finite = math.isfinite(number)
    except OverflowError:  # an integer that no float holds: the protocol could not carry it
        finite = False
    if not finite:
        raise ValueError("Enter a number.")
    if whole and number != int(number):
        raise ValueError("Enter a whole number.")
    return int(number) if whole else number


def are_numbered(choices: Sequence[Choice]) -> bool:
    """Whether choices can be named by their number: not if one of them looks like a number, in any digits."""
    return not any(NOT_IN_WORDS.sub("", choice.title).isnumeric() for choice in choices)


def _read_choice(choices: Sequence[Choice], line: str) -> object:
    """What is shown counts before what is not: a server may hide a value that looks like the title of another choice."""
    numbered = are_numbered(choices)
    for same in (str, str.lower, _look):
        named = [choice.value for choice in choices if same(choice.title) == same(line)]
        if any(value != named[0] for value in named):
            raise ValueError(f"Several are called that. Enter {'a number' if numbered else 'the value of one'}.")
        if named:
            return named[0]
    if numbered and line.isdecimal() and len(line) < 10 and 1 <= int(line) <= len(choices):
        return choices[int(line) - 1].value
    for same in (str, str.lower):
        for choice in choices:
            if same(str(choice.value)) == same(line):
                return choice.value
    raise ValueError("Enter a number or a text from the list." if numbered else "Enter one from the list.")


def _look(text: str) -> str:
    """What a text looks like: the same for "1", for "1 " and for a 1 in a circle, which a person cannot type."""
    return normalize("NFKC", text).strip().lower()


def _read_several(choices: Sequence[Choice], line: str) -> list[object]:
    try:
        return [_read_choice(choices, line)]  # first as a whole: a title may have a comma
    except ValueError:
        values: list[object] = []
        for part in _parts(line):
            if (value := _read_choice(choices, part)) not in values:
                values.append(value)
        return values


def _parts(line: str) -> list[str]:
    return [part.strip() for part in line.split(",") if part.strip()]


def display(field: Field, value: object) -> str:
    """A value as the person knows it; not escaped."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join([display(field, item) for item in value]) or "none"
    for choice in field.choices or ():
        if choice.value == value:
            return choice.title
    return value if isinstance(value, str) else compact(value)


def _is_text(field: Field) -> bool:
    return not field.kinds or "string" in field.kinds


def is_list(field: Field) -> bool:
    """Whether an answer has several values."""
    return "array" in field.kinds and not _is_text(field)


def _format(field: Field) -> object:
    found = field.schema.get("format")
    return found if isinstance(found, str) else None


def _is_date(text: str) -> bool:
    return DATE.fullmatch(text) is not None and _parses(date.fromisoformat, text)


def _is_date_time(text: str) -> bool:
    return DATE_TIME.fullmatch(text) is not None and _parses(datetime.fromisoformat, text.upper())


def _is_uri(text: str) -> bool:
    return " " not in text and _parses(urlsplit, text) and urlsplit(text).scheme != ""


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


FORMATS: Mapping[object, Callable[[str], bool]] = {
    "email": lambda text: EMAIL.fullmatch(text) is not None,
    "uri": _is_uri,
    "date": _is_date,
    "date-time": _is_date_time,
}
"""The formats of the specification. A checked schema treats them as annotations."""
