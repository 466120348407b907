"""Matching the regular expressions of servers in linear time, with the Rust engine inside pydantic.

Python's `re` backtracks and holds the GIL: `(a+)+$` on 40 letters stops the whole process, and no
timeout can fire. Rust's `regex` never backtracks. It has no look-around and no backreferences, so a
schema with such a pattern cannot be checked.

JSON Schema uses the dialect of ECMA-262, which differs from Rust's in a few tokens. Single tokens
are translated here, other differences rejected. One remains: `\\s` matches Unicode's white space
(with U+0085, without U+FEFF).
"""

from __future__ import annotations

import re

from pydantic_core import SchemaError, SchemaValidator, core_schema

from mcp_host.errors import InvalidSchema, UncheckableSchema, UnsupportedPattern, quoted

MAX_LENGTH = 4096
MAX_WEIGHT = 10_000  # compiles in 150 ms at most; `^.{1,5000}$` weighs half of it
START = 50  # minimum weight: even a small automaton may build a state for each character
CLASS = 50  # a class such as `\\p{L}` is a large automaton

TOKEN = re.compile(
    r"(?P<set>\[\^?(?:\\.|[^]\\])*\])"
    r"|(?P<open>\((?:\?:|\?P?<[A-Za-z_]\w*>)?(?!\?))"
    r"|(?P<close>\))"
    r"|(?P<times>\{\d+,?\d*\})"
    r"|(?P<escape>\\(?:[pPu]\{[^}]*\}|.))"
    r"|(?P<suffix>[*+?])"
    r"|(?P<other>[^\\\[(])",
    re.DOTALL,
)
IRREGULAR = re.compile(r"(?:^|[^\\])(?:\\\\)*(?:\(\?(?:=|!|<=|<!)|\\[1-9]|\\k<)")  # look-around and backreferences
SET_TOKEN = re.compile(r"\\[pP]\{[^}]*\}|\\.|--|.", re.DOTALL)
CLASSES = (r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\p", r"\P")

OUTSIDE = {
    r"\d": "[0-9]",  # ASCII, as in ECMA-262
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\b": r"(?-u:\b)",
    r"\B": r"(?-u:\B)",
    r"\<": "<",  # in Rust: the beginning and the end of a word
    r"\>": ">",
    ".": r"[^\n\r\u2028\u2029]",
}
INSIDE = {
    **{escape: OUTSIDE[escape] for escape in (r"\d", r"\D", r"\w", r"\W", r"\<", r"\>")},
    r"\b": r"\x08",
    "[": r"\[",  # in Rust: a nested set
    "&": r"\&",
    "~": r"\~",
    ".": ".",
}
SAME = frozenset("sSnrtfvpPux")  # escapes with the same meaning in both dialects


class _Unsupported(Exception):
    """The pattern cannot be translated, with the reason."""


class _TooLarge(_Unsupported):
    """The pattern may be valid."""


class Pattern:
    """A compiled pattern.

    *weight* is about the number of states of its automaton; a search makes at most
    this many moves per character.

    Raises:
        UnsupportedPattern: It has look-around or backreferences.
        InvalidSchema: It is malformed, or in the dialect of another language.
        UncheckableSchema: It is too large.
    """

    __slots__ = ("_engine", "weight")

    def __init__(self, source: str) -> None:
        try:
            translated, self.weight = _read(source)
            self._engine = SchemaValidator(core_schema.str_schema(pattern=translated, regex_engine="rust-regex"))
        except (_Unsupported, SchemaError) as exc:
            reason = str(exc).rpartition("rror: ")[2]  # the last line of Rust's message; the others show the pattern
            kind = UncheckableSchema if isinstance(exc, _TooLarge) else InvalidSchema
            if IRREGULAR.search(source):
                kind = UnsupportedPattern
            raise kind(f"the pattern {quoted(source)} cannot be matched: {reason}") from exc

    def matches(self, text: str) -> bool:
        """Whether any part of *text* matches. A lone surrogate counts as U+FFFD."""
        if not text.isascii():
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._engine.isinstance_python(text)


def _read(source: str) -> tuple[str, int]:
    """The pattern in Rust's dialect, and its weight, where repetitions count as if written out."""
    if len(source) > MAX_LENGTH:
        raise _TooLarge(f"it has {len(source)} characters, more than {MAX_LENGTH}")
    translated: list[str] = []
    groups, last, end = [START], 0, 0
    while (token := TOKEN.match(source, end)) is not None:  # a search would look for the end of each "["
        end = token.end()
        kind, text = token.lastgroup, token[0]
        translated.append(_translated(kind, text))
        if kind == "open":
            groups.append(2)
            continue
        if kind == "times":
            before, last = last, last * max(map(int, re.findall(r"\d+", text)))
            groups[-1] += max(last - before, 0)
        elif kind == "close" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif kind == "suffix":
            groups[-1] += 1  # `last` stays what it repeats, in case `{1000}` follows
        else:
            last = 1 + CLASS * len(re.findall(r"\\[pP]", text))
            groups[-1] += last
    if end != len(source):
        raise _Unsupported(f"{quoted(source[end : end + 3])} is not supported there, or not closed")
    if sum(groups) > MAX_WEIGHT:
        raise _TooLarge("its repetitions make it too large")
    return "".join(translated), sum(groups)


def _translated(kind: str | None, text: str) -> str:
    if kind == "set":
        return _set(text)
    return _escape(OUTSIDE.get(text, text))


def _set(text: str) -> str:
    opening = "[^" if text.startswith("[^") else "["
    tokens = SET_TOKEN.findall(text[len(opening) : -1])
    if not tokens or "--" in tokens:  # in Rust: a set that begins with "]", and a difference of sets
        raise _Unsupported(f"the set {quoted(text)} is not supported")
    for at in [at for at, token in enumerate(tokens) if token == "-"]:
        if any(token.startswith(CLASSES) for token in tokens[max(at - 1, 0) : at + 2]):
            tokens[at] = r"\-"  # `[\w-.]` is not a range
    return opening + "".join([_escape(INSIDE.get(token, token)) for token in tokens]) + "]"


def _escape(token: str) -> str:
    """The token, unless it is an escape that ECMA-262 lacks or that means something else in Rust."""
    if token[0] == "\\" and token[1].isalnum() and token[1] not in SAME:
        raise _Unsupported(f"the escape {quoted(token)} is not supported")
    return token
