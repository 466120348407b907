"""Finding secrets in a text by their form: keys of known services, private keys, headers, URLs and variables.

The prefixes are those that the services document, as far as recordings of MCP servers and models may have them. Lists
that are kept, such as that of gitleaks, have hundreds more. No library is used: detect-secrets had its last release in
2024, and credsweeper installs thirty packages, among them onnxruntime.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mcp_host.testing.cassettes.secret_names import is_secret_parameter, is_secret_variable

SHORTEST = 8  # characters of a secret that is marked everywhere: shorter ones would be found in ordinary text
PLAIN_WORD = re.compile("(?=.{1,16}$)[a-z]+(_[a-z]+)*")  # "password", "created_at": a name in any schema, and no key

KEYS: dict[str, str] = {
    "OpenAI, Anthropic, OpenRouter, DeepSeek and others": r"sk-(?=[\w-]*\d)[\w-]{16,}",
    "Google": r"AIza[\w-]{30,}|GOCSPX-[\w-]{20,}|ya29\.[\w.-]{20,}",
    "other providers of models": r"(?:hf|gsk|r8)_[A-Za-z0-9]{20,}|(?:xai|pplx|nvapi)-[\w-]{20,}",
    "GitHub": r"gh[opusr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}",
    "GitLab": r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[\w.-]{16,}",
    "Slack": r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",
    "AWS": r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "Stripe": r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,}",
    "package indexes": r"npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}",
    "clouds and tools": r"dop_v1_[a-f0-9]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{16,}"
    r"|(?:lin_api|figd|ntn|sntrys|sntryu|dckr_pat|tskey)[_-][\w+/=-]{16,}|hv[sb]\.[\w-]{20,}|PMAK-[\w-]{20,}",
    "age": r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
    "JSON Web Tokens": r"eyJ[\w-]{8,}(?:\.[\w-]+){2,4}",
}
"""How keys look, by the service that gives them."""

LINE = r"(?:\\+[rn]|\s)"  # the end of a line, also in the text of JSON
PRIVATE_KEY = rf"""
    -----BEGIN\ [A-Z0-9 ]*PRIVATE\ KEY(?:\ BLOCK)?-----
    {LINE}+ (?:[A-Z][\w-]*:\ [^\n\\]*{LINE}+)*      # of an encrypted key
    (?P<private>[A-Za-z0-9+/=]{{16,}}(?:{LINE}+[A-Za-z0-9+/=]+)*)
"""
USER = r"""://(?P<user>[^\s/@:"'<>\\]+):?@"""  # of a URL: some services take a key as the user, with no password
PARAMETER = r"""[?&#](?P<parameter>[\w.%-]+)=(?P<argument>[^\s&#"'<>\\]+)"""
VARIABLE = r"""^(?:export\ +|set\ +)?(?P<variable>[A-Z][A-Z0-9_]*)=["']?(?P<content>[^"'\\<>\n]+)"""
BY_SCHEME = r"\b(?P<kind>(?i:bearer|basic))\ +(?P<credential>[\w.~+/=-]+)"
FORMS = [
    re.compile("|".join(rf"(?<![A-Za-z0-9_-])(?:{key})" for key in KEYS.values())),
    *(re.compile(form, re.VERBOSE | re.MULTILINE) for form in (PRIVATE_KEY, USER, PARAMETER, VARIABLE, BY_SCHEME)),
]
NAME = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]+)["'\\]*\s*[:=]\s*["'\\]*(?P<scheme>(?:(?i:bearer|basic|token) +)?)""")
VALUE = re.compile(r"""[^\s"'\\<>,;&)\]}]+""")
LONGEST_LABEL = 500  # characters of a value that is no secret, and may begin with another name


class Found(NamedTuple):
    """A secret in a text, and the scheme before it, if it is an authorization: ``Basic``."""

    start: int
    end: int
    scheme: str = ""


def find_secrets(text: str) -> Iterator[Found]:
    """The secrets in *text*, in no order; some may overlap."""
    for form in FORMS:
        for match in form.finditer(text):
            yield from _secret_of(match)
    yield from _named(text)


def _named(text: str) -> Iterator[Found]:
    """What follows the names of secrets. What follows another name may be one of these: ``Failed: token=…``."""
    end = 0
    for match in NAME.finditer(text):
        name = match["name"]
        if match.start() < end or not is_secret_variable(name) or (value := VALUE.match(text, match.end())) is None:
            continue
        # In prose and in code, what follows such a name is often a word, a type or a function.
        if could_be_secret(value[0]) and (re.search(r"\d", value[0]) or name.lower().endswith("authorization")):
            yield Found(*value.span(), match["scheme"].strip())
        elif len(value[0]) <= LONGEST_LABEL:
            continue
        end = value.end()


def _secret_of(match: re.Match[str]) -> Iterator[Found]:
    match match.groupdict():
        case {"private": _}:
            yield Found(*match.span("private"))
        case {"user": str(user)} if could_be_secret(user):
            yield Found(*match.span("user"))
        case {"parameter": str(name)} if is_secret_parameter(name):
            yield Found(*match.span("argument"))
        case {"variable": str(name)} if is_secret_variable(name):
            yield Found(*match.span("content"))
        case {"kind": str(kind), "credential": str(value)} if could_be_secret(value):
            yield Found(*match.span("credential"), kind)
        case groups if not groups:  # a key
            yield Found(*match.span())


def could_be_secret(text: str) -> bool:
    """Whether *text* is too long for an ordinary word."""
    return len(text) >= SHORTEST and not PLAIN_WORD.fullmatch(text)
