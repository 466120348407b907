"""The names under which a group offers the tools and prompts of its servers, such as ``github__create_issue``.

Each name is a function of the server's and the tool's own name alone: it is the same in every run, independent of
other servers and of the order in which they answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mcp_host.client.tool_policy import DIGEST, LONGEST_NAME, name_digest, safe_name

SEPARATOR = "__"
LONGEST_PREFIX = 30  # characters of it, before the separator

_PREFIX = re.compile(r"[a-zA-Z](_?[a-zA-Z0-9-])*")  # without the separator in it, nor an end that would lengthen it
_OTHERS = re.compile(r"[^a-zA-Z0-9-]+")
_DIGEST = re.compile(rf"_[0-9a-f]{{{DIGEST}}}\Z")


def server_prefix(server: str) -> str:
    """What the names of *server*'s tools begin with, before the separator.

    That is its name, if that begins with a letter and has letters, digits, ``-`` and single ``_`` of ASCII, 30 at most.
    Else it is made of these, with a digest of the name at its end: so no two servers have the same prefix.
    """
    if len(server) <= LONGEST_PREFIX and _PREFIX.fullmatch(server):
        return server
    letters = _OTHERS.sub("_", server).strip("_")
    if not letters[:1].isalpha():
        letters = f"server_{letters}"
    return f"{letters[: LONGEST_PREFIX - DIGEST - 1].rstrip('_')}_{name_digest(server)}"


def group_name(server: str, name: str) -> str:
    """The name of *server*'s tool or prompt *name* in a group: 64 characters at most that every provider of models takes."""
    prefix = server_prefix(server) + SEPARATOR
    return prefix + safe_name(name, LONGEST_NAME - len(prefix))


def may_be_shortened(name: str) -> bool:
    """Whether *name*, one in a group, may have a digest in the place of what the server calls it."""
    return _DIGEST.search(name) is not None


def own_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """The server's *names* by those in a group, in the order of the alphabet: a server may list them in another one each time.

    A server can name a tool as another of its tools is shortened. Of two that would be called the same, the one is kept
    whose name is not changed, or else the first in the alphabet.
    """
    kept: dict[str, str] = {}
    for name in sorted(names, reverse=True):
        named = group_name(server, name)
        if named not in kept or not named.endswith(SEPARATOR + kept[named]):
            kept[named] = name
    return dict(sorted(kept.items()))
