"""Marking secrets before a file is written: keys, cookies, ids of organizations, and what the user names."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus, urlencode, urlsplit, urlunsplit

from mcp_host.types.base import JSONValue

Place: TypeAlias = tuple[str | int, ...]

REDACTED = "<redacted>"
JSON = re.compile(r"\s*[{\[]")  # how a text of JSON begins

KEPT_HEADERS = frozenset(
    {
        *("content-type", "content-encoding", "accept", "location", "retry-after", "retry-after-ms", "x-should-retry"),
        *("anthropic-version", "anthropic-beta", "openai-beta"),
    }
)
"""What replaying needs, and the versions of APIs. Other headers differ from run to run."""

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "openai-project"})
SECRET_NAME = re.compile(
    r"(^|[-_.])(api)?[-_.]?(key|token|credential|signature|cookie|jwt|bearer|auth|pat)s?$"
    r"|(password|passwd|passphrase|secret|authorization)s?$|[-_.]pwd$|^sig$|organi[sz]ation",
    re.I,
)
"""The names of headers, parameters of URLs, options of programs and environment variables that hold secrets.

``PGPASSWORD`` has no mark before the word, and ``PWD`` is a folder.
"""

SECRET_PARAMETER = re.compile(rf"{SECRET_NAME.pattern}|^(code|code_verifier|client_assertion|assertion)$", re.I)
"""Those of forms and URLs, with what OAuth sends. In JSON, a ``code`` is that of an error."""

SECRET_FIELD = re.compile(
    r"^(.*[-_.])?((client|app|consumer|webhook)?[-_.]?secret|password|passwd|passphrase|api[-_.]?key|private[-_.]?key"
    r"|secret[-_.]?(access[-_.]?)?key|(access|refresh|id|auth|bearer|session|security)[-_.]?token"
    r"|authorization|client_assertion|code_verifier|device_code)$",
    re.I,
)
"""The members of JSON that hold secrets. A plain ``token`` or ``key`` is text in the answers of providers."""

NOT_ASCII = re.compile(r"[^\x20-\x7e]")  # in a header, which libraries decode in several ways
PASSWORD_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s/@]+)@", re.I)
PAIR = re.compile(r"([\w.-]+)=([^\s;&,]+)")
MEMBER = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*))?"?', re.S)
"""A string in the text of JSON and, if it names a string, that string. The text may be cut within either."""

ORGANIZATION = re.compile(r"\borg-[A-Za-z0-9]{8,}\b")
SHORTEST = 8  # characters of a secret that is marked everywhere: shorter ones would be found in ordinary text


class Redaction:
    """The secrets of one cassette: *named* by the user, from the *environment*, and from what is recorded."""

    def __init__(self, named: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in named:
            if not secret:
                raise ValueError("redact has an empty text, which would be marked everywhere: leave it out")
            self._add(secret, shortest=1)
        for name, value in environment.items():
            self.learn(name, value)

    def learn(self, name: str, value: str) -> None:
        """Find the secrets in the *value* of a variable or an option.

        They are the whole value if its *name* says so, passwords in URLs, and ``password=…`` and the like.
        """
        if SECRET_NAME.search(name):
            self._add(value)
        for password in PASSWORD_IN_URL.findall(value):
            self._add(password)
            self._add(unquote(password))
        for inner, secret in PAIR.findall(value):
            if SECRET_PARAMETER.search(inner):
                self._add(secret)
                self._add(unquote_plus(secret))

    def learn_command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Find the secrets that a program is started with: ``--token …``, ``--token=…``, and its environment."""
        for before, argument in zip(["", *arguments], arguments, strict=False):
            self.learn(before if before.startswith("-") else "", argument)
        for name, value in environment.items():
            self.learn(name, value)

    def learn_members(self, value: JSONValue) -> None:
        """Find the secrets in the members of JSON, also of JSON in a text, such as OpenAI's arguments of a call."""
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, str) and SECRET_FIELD.search(name):
                    self._add(inner)
                self.learn_members(inner)
        elif isinstance(value, list):
            for inner in value:
                self.learn_members(inner)
        elif isinstance(value, str) and JSON.match(value):
            with suppress(ValueError, RecursionError):  # it is no JSON
                self.learn_members(json.loads(value))

    def learn_stream(self, events: list[JSONValue]) -> None:
        """Find the secrets in the members of JSON whose text comes in pieces, such as the arguments of a call."""
        for pieces in texts_by_place(events).values():
            self.learn_members("".join(pieces))

    def _add(self, secret: str, shortest: int = SHORTEST) -> None:
        if len(secret) >= shortest:
            self._forms |= set(encodings(secret))
            self._pattern = None

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers to record: secrets, which are marked, and `KEPT_HEADERS`."""
        kept = {}
        for name, value in ((name.lower(), value) for name, value in headers):
            if name in SECRET_HEADERS or SECRET_NAME.search(name):
                kept[name] = REDACTED
                for part in re.split(r"[;,\s]+", value):  # "Bearer …", "a=…; b=…"
                    self._add(part.partition("=")[2] if "=" in part.rstrip("=") else part)
            elif name in KEPT_HEADERS:
                kept[name] = NOT_ASCII.sub("?", self.url(value) if name == "location" else value)
        return dict(sorted(kept.items()))

    def url(self, url: str) -> str:
        """The URL to record: without user, password and a port of this machine, and with secret parameters marked."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # a provider may redirect to what is no URL
            return url
        query = self.form(parts.query)
        host = parts.hostname or ""
        local = host in ("localhost", "::1") or host.startswith("127.")
        bracketed = f"[{host}]" if ":" in host else host
        place = "localhost" if local else bracketed if port is None else f"{bracketed}:{port}"
        if parts.password:
            self._add(unquote(parts.password))
        return urlunsplit((parts.scheme, place, parts.path, query, ""))

    def form(self, text: str) -> str:
        """The query of a URL, or the body of a form, to record: with the values of secret parameters marked."""
        kept = []
        for name, value in parse_qsl(text, keep_blank_values=True):
            secret = SECRET_PARAMETER.search(name) is not None
            if secret:
                self._add(value)
            kept.append((name, REDACTED if secret else value))
        return urlencode(kept, safe="<>:/")

    def text(self, text: str) -> str:
        """*text* with its secrets marked, in each of their encodings, and the strings of secret members if it is JSON."""
        kept, end = [], 0
        for start, after in self._spans(text):
            kept += [text[end:start], REDACTED]
            end = after
        return "".join([*kept, text[end:]])

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where the secrets in *text* begin and end, in order."""
        if self._pattern is None:
            self._pattern = re.compile("|".join([REDACTED, *self._escaped_forms(), ORGANIZATION.pattern]))
        found = [match.span() for match in self._pattern.finditer(text)]
        if JSON.match(text):
            found += [match.span(2) for match in MEMBER.finditer(text) if match[2] and SECRET_FIELD.search(match[1])]
        spans: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if spans and start < spans[-1][1]:  # one is a part of the other, or they overlap
                start, end = spans[-1][0], max(spans.pop()[1], end)
            spans.append((start, end))
        return spans

    def json(self, value: JSONValue) -> JSONValue:
        """*value* with the secrets marked: in strings and names, in secret members, and split over elements of a list."""
        self.learn_members(value)
        return self._marked(value)

    def stream(self, events: list[JSONValue]) -> list[JSONValue]:
        """The *events* of a response with the secrets marked, also those that are split over events.

        The first piece of such a secret has the mark. So the joined pieces are what `text` makes of the joined text.
        """

        def mark(pieces: list[str]) -> list[str]:
            return self._with_marks(pieces, self._spans("".join(pieces)), once=True)

        return [self._marked(event, in_texts=False) for event in with_texts(events, mark)]

    def _marked(self, value: JSONValue, *, in_texts: bool = True) -> JSONValue:
        """*value* with its secrets marked; without *in_texts*, only in names and in secret members."""
        match value:
            case str():
                return self.text(value) if in_texts else value
            case dict():
                return {
                    self.text(name): REDACTED
                    if isinstance(inner, str) and inner and SECRET_FIELD.search(name)
                    else self._marked(inner, in_texts=in_texts)
                    for name, inner in value.items()
                }
            case list():
                return [self._marked(inner, in_texts=in_texts) for inner in self._joined(value)]
        return value

    def _joined(self, elements: list[JSONValue]) -> list[JSONValue]:
        """*elements* with the secrets marked that are split over several: each part of a secret has a mark."""
        if not self._forms or len(elements) < 2:
            return elements
        pattern = re.compile("|".join(self._escaped_forms()))

        def mark(parts: list[str]) -> list[str]:
            return self._with_marks(parts, [match.span() for match in pattern.finditer("".join(parts))], once=False)

        return with_texts(elements, mark)

    def _with_marks(self, parts: list[str], spans: list[tuple[int, int]], *, once: bool) -> list[str]:
        """*parts* of a text with marks in place of *spans* of it: *once* for each span, or in each part of a span."""
        ends = list(accumulate(map(len, parts)))
        marked = list(parts)
        for start, end in reversed(spans):  # so that the places of earlier ones stay
            first, last = bisect_right(ends, start), bisect_left(ends, end)
            for index in range(first, last + 1):
                begin = ends[index] - len(parts[index])
                mark = REDACTED if index == first or (parts[index] and not once) else ""
                marked[index] = marked[index][: max(start - begin, 0)] + mark + marked[index][max(end - begin, 0) :]
        return marked

    def _escaped_forms(self) -> Iterator[str]:
        """The forms as regular expressions, the longest first: it may contain another one."""
        return map(re.escape, sorted(self._forms, key=len, reverse=True))


def mapped(value: JSONValue, change: Callable[[str], str]) -> JSONValue:
    """*value* with *change* applied to each string and to each name of a member."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): mapped(inner, change) for key, inner in value.items()}
        case list():
            return [mapped(inner, change) for inner in value]
    return value


def texts_by_place(elements: list[JSONValue]) -> dict[Place, list[str]]:
    """The strings in *elements* at each place, in order."""
    texts: defaultdict[Place, list[str]] = defaultdict(list)

    def collect(place: Place, text: str) -> str:
        texts[place].append(text)
        return text

    for element in elements:
        mapped_by_place(element, collect)
    return texts


def with_texts(elements: list[JSONValue], change: Callable[[list[str]], list[str]]) -> list[JSONValue]:
    """*elements* with *change* applied to the strings at each place, all at once."""
    changed = {place: iter(change(parts)) for place, parts in texts_by_place(elements).items()}
    return [mapped_by_place(element, lambda place, _: next(changed[place])) for element in elements]


def mapped_by_place(value: JSONValue, change: Callable[[Place, str], str], place: Place = ()) -> JSONValue:
    """*value* with *change* applied to each string and its place, which is a path of names and positions.

    An ``index`` is part of the path, as streams tell their blocks apart by it. So is Gemini's ``thought``, which tells
    thoughts from the answer.
    """
    match value:
        case str():
            return change(place, value)
        case dict():
            numbers = [
                inner for name, inner in value.items() if name.endswith(("index", "thought")) and isinstance(inner, int)
            ]
            return {name: mapped_by_place(inner, change, (*place, *numbers, name)) for name, inner in value.items()}
        case list():
            numbered = [isinstance(inner, dict) and isinstance(inner.get("index"), int) for inner in value]
            return [
                mapped_by_place(inner, change, place if by_index else (*place, position))
                for position, (inner, by_index) in enumerate(zip(value, numbered, strict=True))
            ]
    return value


def encodings(secret: str) -> Iterator[str]:
    """The forms of *secret* in a text: as it is, in a URL, in JSON, in hexadecimal digits, in base64."""
    raw = secret.encode(errors="surrogateescape")
    yield from (secret, quote(secret, safe=""), quote(secret), quote_plus(secret), raw.hex(), raw.hex().upper())
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    for before in range(3):  # its base64 depends on where it begins in a group of three bytes
        encoded = b64encode(bytes(before) + raw).decode().rstrip("=")
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        inside = encoded[first:last]
        if len(inside) >= SHORTEST:
            yield from (inside, inside.replace("+", "-").replace("/", "_"))
