"""Secrets, which never reach a file: keys, cookies, ids of organisations, and what the user names."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urlsplit, urlunsplit

from mcp_host.types.base import JSONValue

REDACTED = "<redacted>"

KEPT_HEADERS = frozenset({"content-type", "accept", "anthropic-version", "anthropic-beta", "openai-beta"}) | {
    *("content-encoding", "retry-after", "retry-after-ms", "x-should-retry"),
}
"""What replaying needs, and what says which version of an API was meant. Others differ from run to run."""

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "openai-project"})
SECRET_NAME = re.compile(
    r"(^|[-_.])(api)?[-_.]?(key|token|secret|password|passwd|credentials?|signature)s?$|^sig$|organi[sz]ation", re.I
)
"""The names of headers, parameters of URLs and environment variables that hold secrets."""

ORGANISATION = re.compile(r"\borg-[A-Za-z0-9]{8,}\b")
SHORTEST = 8  # characters of a secret that is looked for everywhere: a shorter one would be found in ordinary text


class Redaction:
    """What to keep out of a file: *named* by the user, the environment's secrets, and those that `headers` and `url` see."""

    def __init__(self, named: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in named:
            if not secret:
                raise ValueError("redact has the texts to be kept out of the file")
            self._add(secret, shortest=1)
        for name, value in environment.items():
            if SECRET_NAME.search(name):
                self._add(value)

    def _add(self, secret: str, shortest: int = SHORTEST) -> None:
        if len(secret) >= shortest:
            self._forms |= set(encodings(secret))
            self._pattern = None

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers to record: what is not `KEPT_HEADERS` is left out, and a secret is marked."""
        kept = {}
        for name, value in ((name.lower(), value) for name, value in headers):
            if name in SECRET_HEADERS or SECRET_NAME.search(name):
                kept[name] = REDACTED
                for part in re.split(r"[;,\s]+", value):  # "Bearer …", "a=…; b=…"
                    self._add(part.partition("=")[2] if "=" in part.rstrip("=") else part)
            elif name in KEPT_HEADERS:
                kept[name] = value
        return dict(sorted(kept.items()))

    def url(self, url: str) -> str:
        """The URL to record: without user, password and secret parameters, nor the port of a server on this machine."""
        parts = urlsplit(url)
        query = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            secret = SECRET_NAME.search(name) is not None
            if secret:
                self._add(value)
            query.append((name, REDACTED if secret else value))
        host = parts.hostname or ""
        local = host in ("localhost", "::1") or host.startswith("127.")
        place = "localhost" if local else host if parts.port is None else f"{host}:{parts.port}"
        if parts.password:
            self._add(parts.password)
        return urlunsplit((parts.scheme, place, parts.path, urlencode(query, safe="<>:/"), ""))

    def text(self, text: str) -> str:
        """*text* with its secrets marked, in each of their encodings."""
        if self._pattern is None:
            forms = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join([REDACTED, *map(re.escape, forms), ORGANISATION.pattern]))
        return self._pattern.sub(REDACTED, text)

    def json(self, value: JSONValue) -> JSONValue:
        """*value* with the secrets in its strings and names marked."""
        return mapped(value, self.text)


def mapped(value: JSONValue, change: Callable[[str], str]) -> JSONValue:
    """*value* with each string, and each name of a member, as *change* makes it."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): mapped(inner, change) for key, inner in value.items()}
        case list():
            return [mapped(inner, change) for inner in value]
    return value


def encodings(secret: str) -> Iterator[str]:
    """*secret* as it may stand in a text: as it is, in a URL, in JSON, in hexadecimal digits, in base64."""
    raw = secret.encode(errors="surrogateescape")
    yield from (secret, quote(secret, safe=""), quote(secret), quote_plus(secret), raw.hex(), raw.hex().upper())
    yield secret.replace("\\", "\\\\").replace('"', '\\"')
    for before in range(3):  # in base64, it depends on where it begins in a group of three bytes
        encoded = b64encode(bytes(before) + raw).decode().rstrip("=")
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        inside = encoded[first:last]
        if len(inside) >= SHORTEST:
            yield from (inside, inside.replace("+", "-").replace("/", "_"))
