"""Words that look like secrets: errors do not repeat those of a command line, and what is shown of a file has none."""

from __future__ import annotations

import re

HIDDEN = "***"
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,60}")

_WORD = r"[A-Za-z0-9_+/=.~-]"
_PREFIXES = (
    *("sk-", "sk_", "rk_", "pk_live_", "gh[opsur]_", "github_pat_", "glpat-", "xox[a-z]-", "xapp-", "AKIA", "ASIA"),
    *("AIza", "ya29[.]", "hf_", "npm_", "pypi-", "dop_v1_", "shpat_", "eyJ"),  # the last is of each JWT
)
_NAMES = r"(?:secret|token|password|passwd|credentials?|api[_-]?key|authorization)"  # at the end of a longer one, too
_ARGUMENT = r"""(?:'[^']*'|"[^"]*"|[^\s'"]+)+"""  # of a command line, as a shell takes it
_RANDOM = r"(?=(?:[A-Za-z_+=-]*[0-9]){3})(?=[0-9A-Z_+=-]*[a-z])(?=[0-9a-z_+=-]*[A-Z])"  # digits, and both cases
_LOOKS_SECRET = (
    (re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_PREFIXES)}){_WORD}{{8,}}"), HIDDEN),
    (re.compile(rf"\b(bearer|basic|dpop)(\s+){_WORD}{{6,}}", re.IGNORECASE), rf"\1\2{HIDDEN}"),
    (re.compile(r"(://)[^\s/@'\"]+@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"(?<!\S)(--?(?:[\w-]*[-_])?{_NAMES}\s+)(?!-){_ARGUMENT}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"(?<![A-Za-z0-9])({_NAMES})(\s*[=:]\s*)[^\s'\"&,]+", re.IGNORECASE), rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?<![A-Za-z0-9_+/=-]){_RANDOM}[A-Za-z0-9_+=-]{{20,}}"), HIDDEN),
)
"""Known prefixes of keys, credentials of a scheme, those of a URL, values of telling names, and long random words."""


def without_secrets(text: str) -> str:
    """*text* with `HIDDEN` in the place of what looks like a secret."""
    for pattern, replacement in _LOOKS_SECRET:
        text = pattern.sub(replacement, text)
    return text
