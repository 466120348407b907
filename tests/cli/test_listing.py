"""What ``tools`` and ``inspect`` tell of parameters, and how much of a hostile server's text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.bounded import main
from tests.cli.test_command import Captured, scripted


def listed(capsys: Captured, *tools: dict[str, Any]) -> list[str]:
    """The lines of ``tools``."""
    assert main(["tools", *scripted({"tools": {}}, tools_list={"result": {"tools": tools}})]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "101")


def test_the_signature_has_types_and_defaults_and_the_lines_below_have_the_rest(capsys: Captured) -> None:
    properties = {
        "units": {"enum": ["metric", "imperial"], "default": "metric"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": "How many days.\nToday is the first."},
        "city": {"type": "string", "description": "Where."},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "mood": {"anyOf": [{"$ref": "#/$defs/Mood"}, {"type": "null"}], "default": None},
    }
    moods = {"Mood": {"type": "string", "enum": ["glad", "sad"]}}
    schema = {"type": "object", "properties": properties, "required": ["city"], "$defs": moods}

    lines = listed(capsys, {"name": "forecast", "description": "The weather.", "inputSchema": schema})

    assert lines == [
        'forecast(city: string, units: "metric" | "imperial" = "metric", days?: integer, tags?: array of',
        '        string, mood?: "glad" | "sad")',
        "    The weather.",
        "    city: Where.",
        "    days: How many days.",
        "        Today is the first. (at least 1, at most 14)",
        "    tags: at most 3 items",
    ]


def test_a_parameter_that_the_signature_leaves_out_is_told_below(capsys: Captured) -> None:
    names = [f"p{number}" for number in range(14)]
    schema = {"properties": {name: {"type": "number", "default": 1} for name in names}, "required": names}

    lines = listed(capsys, {"name": "t", "inputSchema": schema})

    assert lines[-2:] == ["    p12: number, required, default 1", "    p13: number, required, default 1"]
    assert " ".join(line.strip() for line in lines[:-2]).endswith("p11: number = 1, 2 more)")


def test_all_values_of_a_long_enum_are_told(capsys: Captured) -> None:
    lines = listed(capsys, {"name": "t", "inputSchema": {"properties": {"x": {"enum": list(range(9))}}}})

    assert lines == ["t(x?: 0 | 1 | 2 | 3 | 4 | 5 | 3 more)", "    x: one of 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8"]


def test_the_text_of_a_hostile_server_is_bounded_and_escaped(capsys: Captured) -> None:
    name = "\x1b[2J\u202e" * 20
    text = "\x1b[2J " * 900
    many = {
        f"{name}{number}": {"description": "\x1b[2J" + "x\n" * 60, "type": name, "default": name}
        for number in range(70)
    }

    lines = listed(
        capsys,
        {"name": name, "title": text, "description": "\n" * 5000 + "x\n" * 5000, "inputSchema": {"properties": many}},
    )

    assert 64 * 41 < len(lines) < 64 * 50
    assert all(line.isprintable() and len(line) <= 100 for line in lines)
    assert lines[-1] == "    and 6 more"
    assert lines.count("    x") == 40
    assert "    ... (15,000 characters in all)" in lines
