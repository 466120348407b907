"""Changing one member in the text of JSON with comments: everything else stays, character for character."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.config.formats.json_text import remove_member, set_member, without_comments, without_trailing_commas
from tests.extent import saturated

AT = ("s", "new")
ROWS = [
    ("", '{\n  "s": {\n    "new": 1\n  }\n}\n'),
    ("// none\n", '// none\n{\n  "s": {\n    "new": 1\n  }\n}\n'),
    ("{}", '{\n  "s": {\n    "new": 1\n  }\n}'),
    ('{"s": null}', '{"s": {\n  "new": 1\n}}'),
    ('{"s": {}}', '{"s": {\n  "new": 1\n}}'),
    ('{"s": { }}', '{"s": {\n  "new": 1\n}}'),
    ('{"s": {"new": 0, "b": 2}}', '{"s": {"new": 1, "b": 2}}'),
    ('{"s": {/* none */}}', '{"s": {/* none */ "new": 1}}'),
    ('{"s": {"a": 0}}', '{"s": {"a": 0, "new": 1}}'),
    ('{"s": {"a": 0,}}', '{"s": {"a": 0, "new": 1,}}'),
    ('{"s": {"a": 0 /* a */}}', '{"s": {"a": 0, /* a */ "new": 1}}'),
    ('{"s": {"a": 0 // a\n}}', '{"s": {"a": 0, // a\n  "new": 1\n}}'),
    ('{"s": {"a": 0 // a\u00a0\n}}', '{"s": {"a": 0, // a\u00a0\n  "new": 1\n}}'),
    (
        '{\r\n\t"s": {\r\n\t\t"a": {}, // a\r\n\t\t// "b": {}\r\n\t}, // s\r\n}',
        '{\r\n\t"s": {\r\n\t\t"a": {}, // a\r\n\t\t// "b": {}\r\n\t\t"new": 1,\r\n\t}, // s\r\n}',
    ),
    ('{\n    "s": {}\n}\n', '{\n    "s": {\n        "new": 1\n    }\n}\n'),
    ('{\n  "s": {\n  }\n}', '{\n  "s": {\n    "new": 1\n  }\n}'),
]


def test_a_new_member_is_written_as_the_others_are(subtests: pytest.Subtests) -> None:
    for before, after in ROWS:
        with subtests.test(before):
            assert set_member(before, AT, 1) == after


def test_a_value_takes_the_place_of_another_over_as_many_lines_as_it_needs() -> None:
    text = '{\n  "s": {\n    "new": {"command": "x"}, // why\n    "b": 0\n  }\n}'

    changed = set_member(text, AT, {"command": "y", "args": ["-y", "é"], "env": {}})

    entry = '{\n      "command": "y",\n      "args": ["-y", "é"],\n      "env": {}\n    }'
    assert changed == text.replace('{"command": "x"}', entry)


REMOVED = [
    ('{"s": {"new": 1}}', '{"s": {}}'),
    ('{"s": {"new": 1, "b": 2}}', '{"s": {"b": 2}}'),
    ('{"s": {"a": 0, "new": 1, "b": 2}}', '{"s": {"a": 0, "b": 2}}'),
    ('{"s": {\n  "new": 1,\n  "b": 2\n}}', '{"s": {\n  "b": 2\n}}'),
    ('{"s": {\n  // about new\n  "new": 1, // too\n  "b": 2\n}}', '{"s": {\n  // about new\n  // too\n  "b": 2\n}}'),
    ('{"s": {\n  "a": 0, // a\n  "new": 1 // new\n}}', '{"s": {\n  "a": 0 // a\n  // new\n}}'),
    ('{"s": {\n  "a": 0, // a\u00a0\n  "new": 1\n}}', '{"s": {\n  "a": 0 // a\u00a0\n}}'),
    ('{"s": {\n  "a": 0, // a\n  "new": 1 }}', '{"s": {\n  "a": 0 // a\n  }}'),
    ('{"s": {"a": 0, "new": 1 /* 1 */, }}', '{"s": {"a": 0,  /* 1 */ }}'),
    ('{"s": {"a": 0, "new": 1 // 1\n , "b": 2}}', '{"s": {"a": 0,  // 1\n  "b": 2}}'),
    ('{"s": {\n  // none\n  "new": 1\n}}', '{"s": {\n  // none\n}}'),
]


def test_a_member_goes_with_its_comma_and_its_line_and_comments_beside_it_stay(subtests: pytest.Subtests) -> None:
    for before, after in REMOVED:
        with subtests.test(before):
            assert remove_member(before, AT) == after


LISTS = [
    ("{}", '{\n  "l": [3]\n}', '{\n  "l": []\n}'),
    ('{"l": null}', '{"l": [3]}', '{"l": []}'),
    ('{"l": []}', '{"l": [\n  3\n]}', '{"l": []}'),
    ('{"l": [1, 2 /* 2 */]}', '{"l": [1, 2, /* 2 */ 3]}', '{"l": [2 /* 2 */]}'),
    ('{"l": [\n  1, // 1\n  2, // 2\n]}', '{"l": [\n  1, // 1\n  2, // 2\n  3,\n]}', '{"l": [\n  // 1\n  2, // 2\n]}'),
]


def test_items_of_lists_are_added_and_removed_in_the_same_way(subtests: pytest.Subtests) -> None:
    for before, added, removed in LISTS:
        with subtests.test(before):
            length = before.count("1") and 2
            assert set_member(before, ("l", length), 3) == added
            assert remove_member(added if not length else before, ("l", 0)) == removed


def data_of(text: str) -> object:
    return json.loads(without_trailing_commas(without_comments(text)))


def comments_of(text: str) -> list[str]:
    """The comments, without the texts that they may have in quotes."""
    found = re.findall(r"/\*.*?\*/|//.*", re.sub(r'"(\\.|[^"\\])*"', "", text))
    return [each.rstrip() for each in found]


GAPS = st.sampled_from(["", "", " ", "\n", "\n  ", "\r\n\t", "/* ,} */", " /* c */\n", ' // "x": {,\n', "//\n    "])
LEAVES = st.sampled_from(
    ['"a // b"', r'"\" /* "', "[1, 2,]", "null", "-1.5e3", '{"k": 1,}', "{}", '{ "env": {"A": ","} }']
)


@st.composite
def objects(draw: st.DrawFn, names: str, values: st.SearchStrategy[str], within: st.SearchStrategy[str] = GAPS) -> str:
    """The text of an object, with any spaces, comments and trailing comma. *within* a member is what is around its colon."""
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    members = [f'{draw(GAPS)}"{name}"{draw(within)}:{draw(within)}{draw(values)}{draw(GAPS)}' for name in chosen]
    return f"{{{','.join(members)}{draw(st.sampled_from(['', ','])) if members else ''}{draw(GAPS)}}}"


@given(text=objects("srt", objects("abc", LEAVES)), value=st.sampled_from([1, [], {"command": "x", "args": ["a"]}]))
@saturated
def test_what_is_added_and_removed_again_leaves_the_text_as_it_was(text: str, value: object) -> None:
    before = data_of(text)
    assert isinstance(before, dict)

    added = set_member(text, AT, value)
    removed = remove_member(added, AT)

    servers = before.get("s", {})
    assert json.dumps(data_of(added)) == json.dumps({**before, "s": {**servers, "new": value}})
    assert json.dumps(data_of(removed)) == json.dumps({**before, "s": servers})
    assert comments_of(text) == comments_of(added) == comments_of(removed)
    if servers:
        assert removed == text


@given(text=objects("st", objects("abc", LEAVES, st.sampled_from(["", " ", "\n"]))), data=st.data())
@saturated
def test_a_member_that_is_removed_or_replaced_costs_no_other_and_no_comment(text: str, data: st.DataObject) -> None:
    before = data_of(text)
    assert isinstance(before, dict)
    paths = [(name, inner) for name, members in before.items() for inner in members]
    if not paths:
        return
    outer, inner = data.draw(st.sampled_from(paths))
    rest = {
        name: {each: value for each, value in members.items() if (name, each) != (outer, inner)}
        for name, members in before.items()
    }

    removed = remove_member(text, (outer, inner))
    replaced = set_member(text, (outer, inner), {"command": "x"})

    assert json.dumps(data_of(removed)) == json.dumps(rest)
    assert comments_of(removed) == comments_of(replaced) == comments_of(text)
    before[outer][inner] = {"command": "x"}
    assert json.dumps(data_of(replaced)) == json.dumps(before)
