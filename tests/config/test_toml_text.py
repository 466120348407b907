"""Changing one member in the text of TOML: everything else stays, character for character."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.config.formats.data import with_member, without_member
from mcp_host.config.formats.toml_text import remove_member, set_member
from tests.extent import THOROUGH

NEW = {"command": "n", "args": ["a"], "env": {"A b": "\x7f\\"}}
BLOCK = '[s.new]\ncommand = "n"\nargs = ["a"]\nenv = { "A b" = "\\u007f\\\\" }'
ADDED = [
    ("", f"{BLOCK}\n"),
    ("# none\n", f"# none\n\n{BLOCK}\n"),
    ("a = 1 # 1", f"a = 1 # 1\n\n{BLOCK}"),
    ("[s.a]\nx = 1\n\n# t\n[t]\n", f"[s.a]\nx = 1\n\n{BLOCK}\n\n# t\n[t]\n"),
    ("[s.a]\nx = 1\n# y = 1\n\n# t\n[t]\n", f"[s.a]\nx = 1\n# y = 1\n\n{BLOCK}\n\n# t\n[t]\n"),
    ("[s.a]\nx = 1\n# t\n[t]\n", f"[s.a]\nx = 1\n\n{BLOCK}\n# t\n[t]\n"),
    ("[s.a]\nx = 1\n# end\n", f"[s.a]\nx = 1\n# end\n\n{BLOCK}\n"),
    ("s.a.x = 1\nb = 2\n[t]\n", f"s.a.x = 1\nb = 2\n\n{BLOCK}\n[t]\n"),
    ("[t]\n[s.a]\n[u]\n[s.b]\nx = '''\n[s.c]'''\n[v]", f"[t]\n[s.a]\n[u]\n[s.b]\nx = '''\n[s.c]'''\n\n{BLOCK}\n[v]"),
    (
        "s = { a = { x = 1.5 } } # s\n",
        's = { a = { x = 1.5 }, new = { command = "n", args = ["a"], env = { "A b" = "\\u007f\\\\" } } } # s\n',
    ),
    ("# 1\n[s.new] # 2\nx = 1 # 3\n[s.a]\n[s.new.y]\nz = 1 # 4\n\n[t]", f"# 1\n{BLOCK}\n[s.a]\n\n[t]"),
    ("s.new.x = 1\nb = 2\n", f"b = 2\n\n{BLOCK}\n"),
    ("[s]\nnew = {} # 1\n", f"[s]\nnew = {BLOCK.replace('[s.new]', '{').replace(chr(10), ', ').replace('{,', '{')} }} # 1\n"),
]  # fmt: skip


def test_a_new_table_comes_after_those_beside_it_or_takes_the_place_of_one(subtests: pytest.Subtests) -> None:
    for before, after in ADDED:
        for newline in ("\n", "\r\n"):
            with subtests.test(before, newline=newline):
                changed = set_member(before.replace("\n", newline), ("s", "new"), NEW)

                assert changed.replace("\r\n", "\n") == after
                assert "\r\n" not in before.replace("\n", newline) or changed == after.replace("\n", "\r\n")


SET = [
    ("[s.a]\nx = 1\n", "[s.a]\nx = 1\non = false\n"),
    ("[s.a]\n  x = 1 # 1\n# y = 1\n\n[s.a.env]\n", "[s.a]\n  x = 1 # 1\n  on = false\n# y = 1\n\n[s.a.env]\n"),
    ("[s.a]\non = true # why\n", "[s.a]\non = false # why\n"),
    ("[s.a]", "[s.a]\non = false"),
    ("[s.a.env]\nx = 1\n", "[s.a.env]\nx = 1\n\n[s.a]\non = false\n"),
    ("s.a.x = 1\nb = 2\n", "s.a.x = 1\ns.a.on = false\nb = 2\n"),
    ("[s]\na.x = 1\nb = 2\n", "[s]\na.x = 1\na.on = false\nb = 2\n"),
    ("[s]\na = {x = 1} # why\n", "[s]\na = {x = 1, on = false} # why\n"),
    ("s={a={x='}',on=true , y=[[1,2],{}]}}\n", "s={a={x='}',on=false , y=[[1,2],{}]}}\n"),
    ("[s]\na = { 'x,y' = '', \"on\"=0x1 }\n", "[s]\na = { 'x,y' = '', \"on\"=false }\n"),
    ("s={}", "s={ a = { on = false } }"),
    ("s={b.x=1}", "s={b.x=1, a = { on = false }}"),
    ("s = {a.x=1}\n", "s = { a = { x = 1, on = false } }\n"),  # it is laid out anew
    (
        "[s]\na = { x = [1, 2026-11-27, inf], on = 1 }\n",
        "[s]\na = { x = [1, 2026-11-27, inf], on = false }\n",
    ),
    ("[s]\na = { x = [\n1, # why {\n] }\n", "[s]\na = { x = [\n1, # why {\n], on = false }\n"),
    ("s = { a.x = [\n1, # why\n] }\n", "s = { a.x = [\n1, # why\n] }\n"),  # the comment would be lost
]  # fmt: skip


def test_a_key_comes_after_the_others_of_its_table(subtests: pytest.Subtests) -> None:
    for before, after in SET:
        with subtests.test(before):
            assert set_member(before, ("s", "a", "on"), False) == after


REMOVED = [
    ("[s.a]\nx = 1\n\n[s.b]\n", "[s.b]\n"),
    ("# 1\n[s.a] # 2\nx = 1 # 3\n# 4\n\n[s.b]\n", "# 1\n# 4\n\n[s.b]\n"),
    ("[s.b]\n\n[s.a]\n\n[s.a.env]\nx = 1\n", "[s.b]\n"),
    ("[s.b]\n[s.a.env]\n[t]\n[s.a]\n", "[s.b]\n[t]\n"),
    ("[s]\n  a.x = 1 # 1\n  b = 2\n", "[s]\n  # 1\n  b = 2\n"),
    ("[s]\n\na.x = 1\na.y = 1\nb = 2\n", "[s]\n\nb = 2\n"),
    ("s.a.x = 1\n\ns.b = 2\n", "s.b = 2\n"),
    ("s = { a = {}, b = 2 }\n", "s = { b = 2 }\n"),
    ("s={b=2,c=[[1],\n# 1\n{}] , a={x='},'}} # 2\n", "s={b=2,c=[[1],\n# 1\n{}]} # 2\n"),
    ("s={a.x=1,b=0x2, a.y=[ # 1\n]}\n", "s={b=0x2}\n"),
    ("s={ a.x = 1 }\n", "s={}\n"),
    ("# 1\n[s.a]\n", "# 1\n\n[s]\n"),
    ("[s.a]\n", "[s]\n"),
]  # fmt: skip


def test_a_table_goes_with_the_blank_lines_before_it_and_comments_beside_it_stay(subtests: pytest.Subtests) -> None:
    """If it is the last of its table, the header of that stays."""
    for before, after in REMOVED:
        with subtests.test(before):
            assert remove_member(before, ("s", "a")) == after


LISTS = [
    ("", '[s]\nl = ["x"]\n', "[s]\nl = []\n"),
    ("[s]\nl = []\n", '[s]\nl = ["x"]\n', "[s]\nl = []\n"),
    ("[s]\nl = ['y'] # why\n", '[s]\nl = ["y", "x"] # why\n', '[s]\nl = ["x"] # why\n'),
]


def test_a_table_in_one_line_that_becomes_empty_stays() -> None:
    assert remove_member("s = {a.x=1,b=2}\n", ("s", "a", "x")) == "s = { a = {}, b = 2 }\n"
    assert remove_member("s = {b={a=1} , c=2}\n", ("s", "b", "a")) == "s = {b={} , c=2}\n"


def test_items_of_lists_are_added_and_removed(subtests: pytest.Subtests) -> None:
    for before, added, removed in LISTS:
        with subtests.test(before):
            assert set_member(before, ("s", "l", before.count("y")), "x") == added
            assert remove_member(added, ("s", "l", 0)) == removed
    one = set_member("[t]\n", ("l", 0), {"x": 1})
    assert one == "[t]\n\n[[l]]\nx = 1\n"
    assert set_member(one, ("l", 1), {"x": 2}) == "[t]\n\n[[l]]\nx = 1\n\n[[l]]\nx = 2\n"


GAPS = st.sampled_from(["", "", "\n", "# out\n", "\n  # out\u00a0\n\n", "# out [s.a]\n# out x = '''\n", "  \n"])
INNER = st.sampled_from(["", "", "\n", "# in\n", "\t# in [s.a]\n"])
ENDS = st.sampled_from(["\n", "\n", "  # in ]\n"])
VALUES = st.sampled_from(
    [
        *('"a # b"', "'[x]'", '"""\n[s.a]\n\\""""""', "'''\n# \\''''", '""', "true", "0x1f", "1e3"),
        *("[\n  1, # in }\n  [2],\n]", "{ k = 1, l.m = '=' }", "{}", "1979-05-27T07:32:00Z", '"\\""'),
    ]
)
KEYS = ("x", '"x.y"', "'#'")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A file with servers in tables, by dotted keys and in one line each, and other tables between them."""
    names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    forms = {name: draw(st.sampled_from(["table", "subtable", "dotted", "inline"])) for name in names}
    flat = [name for name in names if forms[name] in ("dotted", "inline")]

    def lines(*keys: str, before: str = "", gaps: st.SearchStrategy[str] = INNER) -> str:
        return "".join(f"{draw(gaps)}{before}{key} = {draw(VALUES)}{draw(ENDS)}" for key in keys)

    def some() -> list[str]:
        return draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=3))

    def server(name: str, prefix: str) -> str:
        if forms[name] == "dotted":
            return draw(GAPS) + lines(*(some() or ["x"]), before=f"{prefix}{name}.")
        value = draw(st.sampled_from(["1", "'#'"]))
        return f"{draw(GAPS)}{prefix}{name} = {{ x = {value} }} # out\n"

    def table(name: str) -> str:
        sub = f"{draw(INNER)}[s.{name}.env]\n{lines(*some())}"
        own = f"[s . '{name}']{draw(ENDS)}{lines(*some())}"
        return draw(GAPS) + (sub if forms[name] == "subtable" else own + draw(st.sampled_from(["", sub])))

    at_top = draw(st.booleans())
    members = "".join(server(name, "s." if at_top else "") for name in flat)
    tables = [table(name) for name in names if name not in flat]
    tables += [] if at_top or not flat else [f"{draw(GAPS)}[s]\n{members}"]
    tables += draw(
        st.lists(st.sampled_from(["# out\n[[u]]\nx = 1\n", "[[u]]\n", '["s.a"]\n', "[t.s]\n"]), max_size=2, unique=True)
    )
    top = lines(*some(), gaps=GAPS) + (members if at_top else "") + draw(st.sampled_from(["", "s2.a = 1\n"]))
    return top + "".join(draw(st.permutations(tables))) + draw(GAPS)


many = settings(max_examples=2000 if THOROUGH else 200, deadline=None)


def comments_of(text: str) -> int:
    return text.count("# out")


@given(text=texts())
@many
def test_a_table_that_is_added_and_removed_again_leaves_the_text_as_it_was(text: str) -> None:
    before: dict[str, Any] = tomllib.loads(text)

    added = set_member(text, ("s", "new"), NEW)
    removed = remove_member(added, ("s", "new"))

    assert tomllib.loads(added) == with_member(before, ("s", "new"), NEW)
    assert tomllib.loads(removed) == {**before, "s": before.get("s", {})}
    assert comments_of(text) == comments_of(added) == comments_of(removed)
    if before.get("s"):
        assert removed == text


@given(text=texts(), data=st.data())
@many
def test_a_member_that_is_changed_or_removed_costs_no_other_and_no_comment(text: str, data: st.DataObject) -> None:
    before: dict[str, Any] = tomllib.loads(text)
    if not before.get("s"):
        return
    at = ("s", data.draw(st.sampled_from(sorted(before["s"]))))

    switched, replaced = set_member(text, (*at, "on"), False), set_member(text, at, NEW)
    removed = remove_member(text, at)

    assert tomllib.loads(switched) == with_member(before, (*at, "on"), False)
    assert tomllib.loads(replaced) == with_member(before, at, NEW)
    assert tomllib.loads(removed) == without_member(before, at)
    assert comments_of(text) == comments_of(switched) == comments_of(replaced) == comments_of(removed)
    assert switched.count("# in") == text.count("# in")
