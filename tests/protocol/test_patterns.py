"""Regular expressions of strangers: what they mean, and that none of them can hold the process."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.protocol.pattern_syntax import UnsupportedPattern
from mcp_host.protocol.patterns import Budget, BudgetExhausted, Pattern

PLENTY = 10_000_000


def found(pattern: str, text: str) -> bool:
    return Pattern(pattern).found_in(text, Budget(PLENTY))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("c$", "abc", True),
        ("c$", "c\n", False),  # in Python's dialect it would be found
        ("^$", "", True),
        ("a|^c", "bc", False),
        ("a|b|c", "c", True),
        ("^(ab)+$", "ababab", True),
        ("^(ab)+$", "aba", False),
        ("^a{2}$", "aa", True),
        ("^a{2}$", "aaa", False),
        ("^a{2,}$", "aaaa", True),
        ("^a{2,3}?$", "aaaa", False),
        ("^a{0,3}$", "aaa", True),
        ("^(){1000}$", "", True),
        ("a{x}", "a{x}", True),  # no quantifier, so every character is itself
        ("^a+?b*?c??$", "aab", True),
        ("^.$", "\n", False),
        ("^.$", "🂡", True),
        (r"^\d\D\w\W\s\S$", "1a_- x", True),
        (r"^\d$", "٣", False),  # "\d" is ASCII in ECMA-262
        (r"\bcat\b", "a cat.", True),
        (r"\bcat\b", "concat", False),
        (r"\Bcat", "concat", True),
        (r"^[a-c\d_-]+$", "b7_-", True),
        (r"^[^a-c]$", "b", False),
        (r"^[^\]\\]$", "]", False),
        (r"^[\b]$", "\b", True),
        (r"^[\w-\.]+$", "a-b.c", True),
        (r"^[.-\w]+$", "a-b.c", True),
        (r"^[+--]$", ",", True),
        (r"^[[]$", "[", True),
        (r"^\x41\u0042\u{43}$", "ABC", True),
        (r"^\t\n\v\f\r\0\.\/$", "\t\n\v\f\r\0./", True),
        (r"^\p{Lu}\p{Letter}\P{N}$", "Éé-", True),
        (r"^\p{gc=Nd}$", "x", False),
        (r"^[\p{L}]$", "é", True),
        (r"^(?:a)(?<name>b)(?P<other>c)$", "abc", True),
        (r"^(?=.*[A-Z])(?=.*\d).{4,}$", "ab1C", True),
        (r"^(?=.*[A-Z])(?=.*\d).{4,}$", "abcd", False),
        (r"^(?!admin$)\w+$", "admin", False),
        (r"^(?!admin$)\w+$", "admins", True),
        ("}]", "}]", True),
    ],
)
def test_patterns_mean_what_ecma_262_says(pattern: str, text: str, expected: bool) -> None:
    assert found(pattern, text) is expected


ATOMS = st.sampled_from(["a", "b", "_", " ", ".", r"\d", r"\W", "[ab]", "[^a]", "[a-c0]", "^", r"\b", "(?=a)", "(?!b)"])
QUANTIFIED = st.sampled_from(["a", ".", "[ab]", r"\w"]).flatmap(
    lambda atom: st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"]).map(lambda times: atom + times)
)
PATTERNS = st.recursive(
    ATOMS | QUANTIFIED,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(inner, st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.text("ab_0 c", max_size=8))
def test_patterns_mean_the_same_as_to_python_where_the_dialects_agree(pattern: str, text: str) -> None:
    assert found(pattern, text) is (re.search(pattern, text, re.ASCII) is not None)


@given(st.text("ab(){}[]*+?|^$\\dwpu-,09:=!<>.", max_size=12), st.text(max_size=5))
def test_any_text_is_a_pattern_or_unsupported(pattern: str, text: str) -> None:
    try:
        verdict = found(pattern, text)
    except UnsupportedPattern:
        return

    assert verdict in (True, False)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 100_000 + "b"),
        ("(a|a)*b", "a" * 100_000),
        ("(a|aa)+$", "a" * 100_000 + "b"),
        ("a*a*a*a*a*b", "a" * 100_000),
        ("(.*)*x", "a" * 100_000),
        (r"\s+$", " " * 100_000 + "x"),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 100_000),
        (r"(\w+\s?)*\.", "word " * 20_000),
    ],
)
def test_the_classical_killers_take_no_more_steps_than_the_text_is_long(pattern: str, text: str) -> None:
    assert Pattern(pattern).found_in(text, Budget(len(text))) is False


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?=.*x)y", "a" * 100_000),
        ("(a|b|.|c?)*.{0,500}x", "".join(map(chr, range(0x4E00, 0x9000)))),
        ("(?=(?=(?=.*x).*x).*x)y", "a" * 1000),
    ],
)
def test_what_does_take_longer_stops_when_the_steps_are_used_up(pattern: str, text: str) -> None:
    with pytest.raises(BudgetExhausted):
        Pattern(pattern).found_in(text, Budget(100_000))


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "an escape that is not supported (at character 5)"),
        (r"\k<name>", "an escape that is not supported (at character 2)"),
        (r"\01", "an escape that is not supported (at character 2)"),
        ("\\", "an escape that is not supported (at character 2)"),
        ("(?<=a)b", "a group of a kind that is not supported (at character 0)"),
        ("(?<!a)b", "a group of a kind that is not supported (at character 0)"),
        ("(?i)a", "a group of a kind that is not supported (at character 0)"),
        ("(?>a)", "a group of a kind that is not supported (at character 0)"),
        (r"\p{Script=Greek}", "an escape that is not supported (at character 2)"),
        (r"\p{Greek}", "a Unicode property that is not supported (at character 9)"),
        (r"\ud83d", "half a character (at character 6)"),
        (r"\u{110000}", "half a character (at character 10)"),
        ("(a", "a group without an end (at character 2)"),
        ("a)", "an unopened group (at character 1)"),
        ("[a", "a set without an end (at character 2)"),
        ("[]a]", "an empty set (at character 1)"),
        ("[z-a]", "a range without order (at character 4)"),
        ("*a", "a repetition of nothing (at character 1)"),
        ("a**", "a repetition of a repetition (at character 2)"),
        ("a++", "a repetition of a repetition (at character 2)"),
        ("^*", "a repetition that repeats nothing (at character 2)"),
        ("a{3,2}", "a repetition that repeats nothing (at character 6)"),
        ("a" * 5000, "it has 5000 characters, more than 4096"),
        ("(" * 60 + ")" * 60, "groups nest more than 50 deep (at character 51)"),
        ("((a{100}){100}){100}", "its repetitions amount to more than 10000 steps"),
        ("((){5000}){5000}", "its repetitions amount to more than 10000 steps"),
    ],
)
def test_a_pattern_that_is_malformed_too_large_or_not_regular_is_unsupported(pattern: str, reason: str) -> None:
    with pytest.raises(UnsupportedPattern, match=f"^{re.escape(reason)}$"):
        Pattern(pattern)


def test_a_pattern_stops_remembering_moves_before_they_fill_the_memory() -> None:
    pattern = Pattern("(.*)*x")
    text = "".join(map(chr, range(0x4E00, 0x9000)))

    assert [pattern.found_in(text, Budget(PLENTY)), pattern.found_in(text + "x", Budget(PLENTY))] == [False, True]


def test_a_long_text_costs_fewer_steps_than_it_has_characters() -> None:
    budget = Budget(PLENTY)

    Pattern("^[a-z]+$").found_in("a" * 80_000, budget)

    assert PLENTY - budget.left < 10_100
