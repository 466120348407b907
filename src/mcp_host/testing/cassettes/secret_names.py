"""Which names say that a value is a secret: of headers, variables, options, parameters of URLs and members of JSON.

A name is judged by its last two words. Words are split at separators, digits and capitals (``X-Api-Key``,
``accessToken2``), and before one of `ENDINGS` that has no separator (``GITHUBTOKEN``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from mcp_host.types.base import JSONValue

WORD = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+")  # "APIKeys" has "API" and "Keys"; "APIKEYs" is one word

NAMES = 4096  # that are judged once: the same ones come in each request

ENDINGS = (
    *("key", "token", "secret", "password", "passwd", "passphrase", "passcode"),
    *("credential", "cookie", "signature", "authorization"),
)
"""Words that are also found at the end of a longer one, and in the plural."""

FORMATS = frozenset({"pem", "json", "base"})
"""Words that are skipped at the end: ``PRIVATE_KEY_PEM``, ``CREDENTIALS_BASE64``, Rails' ``SECRET_KEY_BASE``."""

NOT_SPLIT = frozenset({"monkey", "turkey", "hockey", "donkey", "jockey", "whiskey"})
"""English words that end like a secret."""

SECRETS = frozenset(
    {
        *("secret", "password", "passwd", "pwd", "passphrase", "passcode"),
        *("credential", "cookie", "authorization", "jwt", "bearer"),
    }
)
"""Last words of names of secrets in any place."""

NOT_IN_JSON = frozenset({"key", "token", "signature", "sig", "auth", "pat", "pass"})
"""Last words of names of secrets, but not in JSON: there, the thinking of a model has a ``signature``."""

PAIRS = frozenset(
    {
        *(("connection", "string"), ("client", "assertion"), ("code", "verifier"), ("device", "code")),
        *(("auth", "code"), ("authorization", "code"), ("pass", "word"), ("pass", "phrase"), ("pass", "code")),
        ("openai", "project"),
    }
)
"""The last two words of names of secrets in any place."""

AFTER_A_WORD = frozenset({"token", "pat", "pass"})
"""Last words that also count in JSON if they are not the only one: a plain ``token`` is text in answers of providers."""

SECRET_KEYS = (
    *("access", "account", "api", "app", "auth", "encryption", "license", "master", "private", "secret"),
    *("service", "session", "shared", "signing", "ssh", "subscription"),
)
"""Words before ``key`` in JSON. Most other keys are names: ``primary_key``, ``cache_key``, ``sort_key``."""

HARMLESS_TOKENS = frozenset(
    {
        *("page", "next", "previous", "continuation", "sync", "progress"),
        *("max", "min", "total", "limit", "remaining", "reset", "used", "input", "output", "prompt", "completion"),
        *("cached", "reasoning", "thinking", "stop", "start", "end", "bos", "eos", "pad", "unk", "mask", "special"),
    }
)
"""Words before ``token`` that make it a place in a list, a progress token of MCP, or a piece of text."""

FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Variables that end like a password."""

ORGANIZATION = frozenset({"organization", "organisation"})


@lru_cache(maxsize=NAMES)
def is_secret_name(name: str) -> bool:
    """Whether a header, a variable or an option of this *name* holds a secret or the id of an organization."""
    words = _words(name)
    before, last = words[-2:]
    if last == "token" and before in HARMLESS_TOKENS:
        return False
    return last in SECRETS or last in NOT_IN_JSON or (before, last) in PAIRS or not ORGANIZATION.isdisjoint(words)


def is_secret_parameter(name: str) -> bool:
    """Whether a parameter of a URL or a form holds a secret. OAuth sends a ``code``; in JSON, that is one of an error."""
    return is_secret_name(name) or name.lower() in ("code", "assertion")


def is_secret_variable(name: str) -> bool:
    """Whether a *name* in a text is that of a secret: a member of JSON, or in capitals, a variable. ``PWD`` is a folder."""
    return name not in FOLDERS and (is_secret_member(name) or (name.isupper() and is_secret_name(name)))


def secret_members(value: Mapping[str, JSONValue]) -> set[str]:
    """The names of those members of an object that hold secrets: also of variables such as ``GH_TOKEN``.

    Its ``value`` is one if its ``name`` or ``key`` says so: ``{"name": "API_KEY", "value": …}``.
    """
    names = {name for name in value if is_secret_variable(name) and ("_" in name or is_secret_member(name))}
    by_case = {name.lower(): name for name in value}
    if "value" in by_case:
        called = [value[by_case[name]] for name in ("name", "key") if name in by_case]
        if any(isinstance(name, str) and is_secret_variable(name) for name in called):
            names.add(by_case["value"])
    return names


@lru_cache(maxsize=NAMES)
def is_secret_member(name: str) -> bool:
    """Whether a member of JSON holds a secret."""
    *words, last = _words(name)
    before = words[-1]
    if last == "key":
        return "".join(words).endswith(SECRET_KEYS)  # also in "myapikey" and "APIkey"
    if last in AFTER_A_WORD:
        return before != "" and not (last == "token" and before in HARMLESS_TOKENS)
    return last in SECRETS or (before, last) in PAIRS


def _words(name: str) -> Sequence[str]:
    """The words of *name* in lower case, at least two: the first ones are empty if there are fewer."""
    words = ["", "", *(word.lower() for word in WORD.findall(name))]
    while words[-1] in FORMATS:
        words.pop()
    singular = words[-1].removesuffix("s")
    ending = next((ending for ending in ENDINGS if singular.endswith(ending)), None)
    if ending is None or singular in NOT_SPLIT:
        return words
    inner = singular.removesuffix(ending)
    return [*words[:-1], *([inner] if inner else []), ending]
