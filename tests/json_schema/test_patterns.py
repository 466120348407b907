"""Regular expressions of servers: what they match, in linear time."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.errors import InvalidSchema, UncheckableSchema, UnsupportedPattern
from mcp_host.json_schema.patterns import Pattern
from tests.extent import saturated
from tests.faults.measure import grows_linearly


def matches(pattern: str, text: str) -> bool:
    return Pattern(pattern).matches(text)


MEANINGS: list[tuple[str, str, bool]] = [
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
    (r"^[a-\p{L}]$", "-", True),
    (r"^[\s-a]$", "-", True),
    (r"^[&&~~[]{3}$", "&~[", True),
    (r"^[+-.]$", ",", True),
    (r"^\<\>\-\/$", "<>-/", True),
    (r"^[\<\-\/]+$", "</-", True),
    (r"^[[]$", "[", True),
    (r"^\x41\u0042\u{43}$", "ABC", True),
    (r"^\t\n\v\f\r\.\/$", "\t\n\v\f\r./", True),
    (r"^\p{Lu}\p{Letter}\P{N}$", "Éé-", True),
    (r"^\p{gc=Nd}$", "x", False),
    (r"^[\p{L}]$", "é", True),
    (r"^(?:a)(?<name>b)(?P<other>c)$", "abc", True),
    (r"^\u{1F0A1}$", "🂡", True),
    ("^.$", "\r", False),
    ("^.$", "\ud800", True),
    (r"^\w$", "é", False),
    ("^é$", "é", True),
    ("}]", "}]", True),
]


def test_patterns_mean_what_ecma_262_says(subtests: pytest.Subtests) -> None:
    for pattern, text, expected in MEANINGS:
        with subtests.test(pattern=ascii(pattern), text=ascii(text)[:60]):
            assert matches(pattern, text) is expected


ATOMS = st.sampled_from(["a", "b", "_", " ", ".", r"\d", r"\W", "[ab]", "[^a]", "[a-c0]", "^", r"\b"])
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


@saturated
@given(PATTERNS, st.text("ab_0 c", max_size=8))
def test_patterns_mean_the_same_as_to_python_where_the_dialects_agree(pattern: str, text: str) -> None:
    assert matches(pattern, text) is (re.search(pattern, text, re.ASCII) is not None)


@given(st.text("ab(){}[]*+?|^$\\dwpu-,09:=!<>.", max_size=12), st.text(max_size=5))
def test_any_text_is_a_pattern_or_unsupported(pattern: str, text: str) -> None:
    try:
        verdict = matches(pattern, text)
    except UncheckableSchema:
        return

    assert verdict in (True, False)


KILLERS = [
    ("(a+)+$", "a" * 100_000 + "b"),
    ("(a|a)*b", "a" * 100_000),
    ("(a|aa)+$", "a" * 100_000 + "b"),
    ("a*a*a*a*a*b", "a" * 100_000),
    ("(.*)*x", "a" * 100_000),
    (r"\s+$", " " * 100_000 + "x"),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 100_000),
    (r"(\w+\s?)*\.", "word " * 20_000),
]


@pytest.mark.fault("T02")
def test_catastrophic_patterns_take_linear_time() -> None:
    """In a separate process: a pattern that does not end can only be killed."""
    code = f"from mcp_host.json_schema.patterns import Pattern; print([Pattern(p).matches(t) for p, t in {KILLERS!r}])"

    ran = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=True, timeout=25)
    assert ran.stdout == f"{[False] * len(KILLERS)}\n"


def test_patterns_that_cannot_be_read_are_refused_in_linear_time() -> None:
    def refused(length: int) -> None:
        for _ in range(20):
            with pytest.raises(InvalidSchema, match="not closed"):
                Pattern("[" * length)

    assert grows_linearly(refused, 500)


COSTS: list[tuple[str, int]] = [
    ("", 50),
    ("^a|bc$", 56),
    ("a{3}", 53),
    ("a{3,5}b{2,}", 57),
    ("(ab){3}", 62),
    ("((a{10}){10}c){10}", 50 + (2 + (2 + 10) * 10 + 1) * 10),
    ("a+{7}(b)*", 50 + 1 + 1 + 6 + 3 + 1),
    ("a{0}", 51),
    (r"[a-z\]]{9}\p{L}", 50 + 9 + 51),
    (r"\u{1000}", 51),
]


def test_a_pattern_costs_as_much_as_with_its_repetitions_written_out(subtests: pytest.Subtests) -> None:
    for pattern, weight in COSTS:
        with subtests.test(pattern=pattern):
            assert Pattern(pattern).weight == weight


IRREGULAR: list[tuple[str, str]] = [
    (r"(a)\1", r"the escape '\1' is not supported"),
    (r"\k<name>", r"the escape '\k' is not supported"),
    (r"(?<n>a)\k<n>", r"the escape '\k' is not supported"),
    ("(?=a)", "'(?=' is not supported there, or not closed"),
    ("a(?=b)", "'(?=' is not supported there, or not closed"),
    ("(?!b)", "'(?!' is not supported there, or not closed"),
    ("a(?!b)", "'(?!' is not supported there, or not closed"),
    ("(?<=a)b", "'(?<' is not supported there, or not closed"),
]


def test_an_irregular_pattern_is_unsupported_for_a_reason(subtests: pytest.Subtests) -> None:
    for pattern, reason in IRREGULAR:
        with subtests.test(pattern=pattern):
            with pytest.raises(UnsupportedPattern) as caught:
                Pattern(pattern)

            assert str(caught.value) == f"the pattern '{pattern}' cannot be matched: {reason}"


REJECTED: list[tuple[str, str]] = [
    (r"\0", r"the escape '\0' is not supported"),
    (r"\Aa", r"the escape '\A' is not supported"),
    (r"[\A]", r"the escape '\A' is not supported"),
    ("\\", "'\\' is not supported there, or not closed"),
    ("(?i)a", "'(?i' is not supported there, or not closed"),
    (r"\\(?", "'(?' is not supported there, or not closed"),
    ("[a", "'[a' is not supported there, or not closed"),
    ("[]a]", "the set '[]' is not supported"),
    ("[^]", "the set '[^]' is not supported"),
    ("[+--]", "the set '[+--]' is not supported"),
    (r"\p{Greek", "incomplete escape sequence"),
    (r"\ud83d", "hexadecimal literal is not a Unicode scalar value"),
    ("(a", "unclosed group"),
    ("a)", "unopened group"),
    ("[z-a]", "invalid character class range"),
    ("*a", "repetition operator missing expression"),
    ("a{x}", "repetition quantifier expects a valid decimal"),
    ("a{3,2}", "invalid repetition count range"),
    ("a" * 5000, "it has 5000 characters, more than 4096"),
    ("(" * 300 + ")" * 300, "exceed the maximum number of nested parentheses/brackets"),
    ("((a{100}){100}){100}", "its repetitions make it too large"),
    ("((){5000}){5000}", "its repetitions make it too large"),
    (r"\p{L}{200}", "its repetitions make it too large"),
    ("[^a]{9000}" * 2, "its repetitions make it too large"),
]


TOO_LARGE = ("it has 5000 characters, more than 4096", "its repetitions make it too large")


def test_a_malformed_or_too_large_pattern_is_rejected(subtests: pytest.Subtests) -> None:
    for pattern, reason in REJECTED:
        with subtests.test(pattern=pattern):
            with pytest.raises(UncheckableSchema, match=f"cannot be matched: {re.escape(reason)}") as caught:
                Pattern(pattern)

            assert type(caught.value) is (UncheckableSchema if reason in TOO_LARGE else InvalidSchema)
