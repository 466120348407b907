"""WWW-Authenticate: how a server says that it wants a token, and which one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

MAX_TEXT = 16 * 1024  # characters of all headers that are read; servers limit a head to 8 or 16 KiB

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
PART = re.compile(
    r"[\s,]+"  # an alternative, no prefix of the others: many commas would take quadratic time
    rf'|(?P<name>{TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)(?:"|$)|(?P<value>[^\s,"=][^\s,"]*))'
    rf"|(?P<scheme>{TOKEN})(?=[\s,]|$)"
    r"|[^\s,]+"  # the token68 of another scheme, or garbage
)

SCOPE = re.compile(r"[!#-\[\]-~]+")  # RFC 6749, section 3.3
INSUFFICIENT_SCOPE = "insufficient_scope"
SCHEMES = ("bearer", "dpop")
OTHER_SCHEMES = {"basic": "Basic", "digest": "Digest", "negotiate": "Negotiate", "ntlm": "NTLM"}
"""Schemes that no token answers, as they are written."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge (RFC 9110, section 11.6.1). *scheme* and the names of *parameters* are in lower case."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> str | None:
        """Such as ``invalid_token`` or ``insufficient_scope`` (RFC 6750, section 3.1)."""
        return self.parameters.get("error")

    @property
    def wanted(self) -> str:
        """What the server wants, for messages."""
        return OTHER_SCHEMES.get(self.scheme, "a token")

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that the request needs. None if the server does not say."""
        scope = self.parameters.get("scope")
        return tuple(dict.fromkeys(scope.split())) or None if scope is not None else None

    @property
    def resource_metadata(self) -> str | None:
        """Where the metadata of the protected resource is (RFC 9728, section 5.1)."""
        return self.parameters.get("resource_metadata") or None


def check_scope(scope: str) -> None:
    """Raise `ValueError` if it cannot be one."""
    if not SCOPE.fullmatch(scope):
        raise ValueError(f'{scope!r} is no scope: it has to be of visible ASCII characters without " and \\')


NO_CHALLENGE = Challenge("bearer")


def token_challenge(headers: Iterable[str]) -> Challenge:
    """The challenge among WWW-Authenticate *headers* that a token answers; an empty one if there is none.

    If all are of `OTHER_SCHEMES`, it is the first, without its parameters.

    A server that takes both kinds of tokens says so with one challenge each: the parameters of the first win.
    """
    parameters: dict[str, str] = {}
    schemes = []
    for challenge in challenges(headers):
        schemes.append(challenge.scheme)
        if challenge.scheme in SCHEMES:
            for name, value in challenge.parameters.items():
                parameters.setdefault(name, value)
    if schemes and OTHER_SCHEMES.keys() >= set(schemes):
        return Challenge(schemes[0])
    return Challenge("bearer", parameters) if parameters else NO_CHALLENGE


def challenges(headers: Iterable[str]) -> Iterator[Challenge]:
    """All challenges in WWW-Authenticate *headers*, of which a header may have several. Garbage is skipped."""
    text = ", ".join(headers)[:MAX_TEXT]
    scheme: str | None = None
    parameters: dict[str, str] = {}
    for part in PART.finditer(text):
        if part["scheme"] is not None:
            if scheme is not None:
                yield Challenge(scheme, parameters)
            scheme, parameters = part["scheme"].lower(), {}
        elif part["name"] is not None:
            quoted = part["quoted"]
            value = part["value"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(part["name"].lower(), value)
    if scheme is not None:
        yield Challenge(scheme, parameters)
