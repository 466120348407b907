"""Marking secrets before a file is written: keys, cookies, ids of organizations, and what the user names."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus, urlencode, urlsplit, urlunsplit

from mcp_host.secret import ExpandedText
from mcp_host.testing.cassettes.secret_names import (
    FOLDERS,
    is_secret_member,
    is_secret_name,
    is_secret_parameter,
    secret_members,
)
from mcp_host.testing.cassettes.secret_texts import SHORTEST, could_be_secret, find_secrets
from mcp_host.testing.cassettes.texts import texts_by_place, with_texts
from mcp_host.types.base import JSONValue

REDACTED = "<redacted>"
JSON = re.compile(r"\s*[{\[]")  # how a text of JSON begins
DATA = re.compile(r"^data: ?([{\[].*)", re.M)  # JSON in the text of an event, such as one that was cut

KEPT_HEADERS = frozenset(
    {
        *("content-type", "content-encoding", "accept", "location", "retry-after", "retry-after-ms", "x-should-retry"),
        *("anthropic-version", "anthropic-beta", "openai-beta"),
    }
)
"""What replaying needs, and the versions of APIs. Other headers differ from run to run."""

LONGEST = 8192  # characters of a secret that is found by its form and marked elsewhere, too: a private key has 3,000

NOT_ASCII = re.compile(r"[^\x20-\x7e]")  # in a header, which libraries decode in several ways
PASSWORD_IN_URL = re.compile(r"""://[^\s/@:"'<>]*:([^\s/"'<>]+)@""")
PAIR = re.compile(r"(?<![\w.-])([\w.-]+)=([^\s;&,]+)")  # in a longer text, such as a connection string
ASSIGNMENT = re.compile(r"([\w.-]+)=(.*)", re.S)  # an option of a program, or a variable in one: all that follows
PERCENT = re.compile("%[0-9A-F]{2}")  # a byte in a URL
HEADER = re.compile(r"([\w.-]+):\s*(.+)", re.S)  # as in `--header "Authorization: Bearer …"`
SCHEME = re.compile(r"[A-Za-z][\w-]*\s+")  # of an authorization: "Bearer …", "Basic …"
SEPARATOR = re.compile(r"[,\n]|\\n")  # of secrets in a list, and of the lines of a key, which may be escaped
MEMBER = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*))?"?', re.S)
"""A string in the text of JSON and, if it names a string, that string. The text may be cut within either."""

ORGANIZATION = re.compile(r"\borg-[A-Za-z0-9]{8,}\b")


class Redaction:
    """The secrets of one cassette: *named* by the user, from the *environment*, and from what is recorded."""

    def __init__(self, named: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in named:
            if not secret:
                raise ValueError("redact has an empty text, which would be marked everywhere: leave it out")
            self._add(secret, named=True)
        for name, value in environment.items():
            self.learn(name, value)

    # Learning secrets

    def learn(self, name: str, value: str) -> None:
        """Find the secrets in the *value* of a variable or an option.

        They are the whole value if its *name* says so, members of JSON, headers, passwords in URLs, and ``password=…``
        and the like.
        """
        if is_secret_name(name) and name not in FOLDERS:
            self._learn_secret(value)
        self.learn_members(value)
        self._learn_pairs(value)
        if header := HEADER.fullmatch(value):
            self.headers([(header[1], header[2])])

    def learn_passwords(self, values: Iterable[str]) -> None:
        """Find the passwords in *values* that a person was asked for. They are marked however short they are."""
        for password in (
            password for value in values if isinstance(value, ExpandedText) for password in value.passwords
        ):
            self._learn_secret(password)
            self._add(password, named=bool(password))

    def learn_command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Find the secrets that a program is started with: ``--token …``, ``--token=…``, and its environment."""
        for before, argument in zip(["", *arguments], arguments, strict=False):
            self.learn(before if before.startswith("-") else "", argument)
            rest = argument
            while assignment := ASSIGNMENT.fullmatch(rest):  # --env=NAME=value
                name, rest = assignment.groups()
                self.learn(name, rest)
        for name, value in environment.items():
            self.learn(name, value)

    def learn_members(self, value: JSONValue, *, secret: bool = False) -> None:
        """Find the secrets in the members of JSON, also of JSON in a text, such as OpenAI's arguments of a call.

        A *secret* text is one, and so are those in a *secret* list. Any text may have what `find_secrets` finds, and
        a URL with a password.
        """
        match value:
            case str():
                if secret:
                    self._learn_secret(value)
                self._learn_text(value)
            case dict():
                secrets = secret_members(value)
                for name, inner in value.items():
                    self.learn_members(inner, secret=name in secrets)
            case list():
                for inner in value:
                    self.learn_members(inner, secret=secret)

    def _learn_text(self, value: str) -> None:
        for start, end, scheme in find_secrets(value):
            if end - start <= LONGEST:
                self._learn_secret(f"{scheme} {value[start:end]}".lstrip())
        for password in PASSWORD_IN_URL.findall(value):
            self._learn_secret(password)
            self._learn_secret(unquote(password))
        for written in [value] if JSON.match(value) else DATA.findall(value):
            with suppress(ValueError, RecursionError):  # it is no JSON
                self.learn_members(json.loads(written))

    def learn_stream(self, events: list[JSONValue]) -> None:
        """Find the secrets in the members of JSON whose text comes in pieces, such as the arguments of a call."""
        for pieces in texts_by_place(events).values():
            self.learn_members("".join(pieces))

    def _learn_secret(self, value: str) -> None:
        """Note a *value* of a secret name, and what is a secret without the rest of it: see `SEPARATOR` and `SCHEME`."""
        self._add(value)
        if JSON.match(value):
            return
        for part in map(str.strip, (value, *SEPARATOR.split(value))):
            if not part.startswith("-----"):  # the first or the last line of a key
                self._add(part)
                self._add(SCHEME.sub("", part, count=1))
                self._learn_basic(part)

    def _learn_basic(self, value: str) -> None:
        """Find the password in ``Basic …``, or the user, if there is none."""
        scheme, _, encoded = value.partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):  # it is no base64, or no text
                decoded = b64decode(encoded.strip()).decode()
                user, _, password = decoded.partition(":")
                self._add(decoded)
                self._add(password or user)

    def _learn_pairs(self, value: str) -> None:
        """Find ``password=…`` and the like."""
        for name, secret in PAIR.findall(value):
            if is_secret_parameter(name):
                self._learn_secret(secret)
                self._learn_secret(unquote_plus(secret))

    def _learn_header(self, name: str, value: str) -> None:
        if name in ("cookie", "set-cookie"):
            for cookie in value.split(";")[: 1 if name == "set-cookie" else None]:  # then come attributes
                self._add(cookie.partition("=")[2].strip(' "'))
        else:
            self._learn_secret(value)
            self._learn_pairs(value)  # "AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…"

    def _add(self, secret: str, *, named: bool = False) -> None:
        if named or could_be_secret(secret):
            self._forms |= set(encodings(secret))
            self._pattern = None

    # Describing a request or a response, which also learns

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers to record: secrets, which are marked, and `KEPT_HEADERS`."""
        kept = {}
        for name, value in ((name.lower(), value) for name, value in headers):
            if is_secret_name(name):
                kept[name] = REDACTED
                self._learn_header(name, value)
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
        if secret := parts.password or parts.username:  # some services take a key as the user
            self._learn_secret(unquote(secret))
        return urlunsplit((parts.scheme, place, parts.path, query, ""))

    def form(self, text: str) -> str:
        """The query of a URL, or the body of a form, to record: with the values of secret parameters marked."""
        kept = []
        for name, value in parse_qsl(text, keep_blank_values=True):
            secret = is_secret_parameter(name)
            if secret:
                self._learn_secret(value)
            kept.append((name, REDACTED if secret else value))
        return urlencode(kept, safe="<>:/")

    # Marking

    def text(self, text: str) -> str:
        """*text* with its secrets marked, in each of their encodings, passwords in URLs, and secret members if it is JSON."""
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
        found += [(start, end) for start, end, _ in find_secrets(text)]
        found += [match.span(1) for match in PASSWORD_IN_URL.finditer(text)]
        if JSON.match(text) or DATA.search(text):
            found += [match.span(2) for match in MEMBER.finditer(text) if match[2] and is_secret_member(match[1])]
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

    def _marked(self, value: JSONValue, *, in_texts: bool = True, secret: bool = False) -> JSONValue:
        """*value* with its secrets marked; without *in_texts*, only in names and in secret members.

        A *secret* text is one as a whole, and so are those in a *secret* list.
        """
        match value:
            case str() if secret and value:
                return REDACTED
            case str():
                return self.text(value) if in_texts else value
            case dict():
                secrets = secret_members(value)
                return {
                    self.text(name): self._marked(inner, in_texts=in_texts, secret=name in secrets)
                    for name, inner in value.items()
                }
            case list():
                return [self._marked(inner, in_texts=in_texts, secret=secret) for inner in self._joined(value)]
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


def encodings(secret: str) -> Iterator[str]:
    """The forms of *secret* in a text: as it is, in a URL (also of JavaScript), in JSON, in hexadecimal digits, in base64."""
    raw = secret.encode(errors="surrogateescape")
    yield from (secret, raw.hex(), raw.hex().upper())
    for in_url in (quote(secret, safe=""), quote(secret), quote_plus(secret), quote(secret, safe="!*'()")):
        yield from (in_url, PERCENT.sub(lambda found: found[0].lower(), in_url))
    for in_json in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield from (in_json, json.dumps(in_json)[1:-1])  # also in the JSON of a text of JSON
    for before in range(3):  # its base64 depends on where it begins in a group of three bytes
        encoded = b64encode(bytes(before) + raw).decode().rstrip("=")
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        inside = encoded[first:last]
        if len(inside) >= SHORTEST:
            yield from (inside, inside.replace("+", "-").replace("/", "_"))
