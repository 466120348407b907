"""Who a server is: the name that the host gave it, and beside it what the server calls itself."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_host.errors import INVISIBLE, excerpt, quoted
from mcp_host.types import Implementation

MAX_NAME = 64  # characters of the name that a host gives a server: one line shows it, with room for a claim
THIS_PROGRAM = "this program"  # in place of a server's name, for functions of the host: rules may go by it
CLAIM_SHOWN = 60  # characters of what a server calls itself


def check_server_name(name: object) -> str:
    """*name*, if a host may call a server so: one line of 1 to 64 visible characters, with spaces only inside.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty, too long, has space around it, or a character that cannot be seen; or it is "this program".
    """
    if not isinstance(name, str):
        raise TypeError(f"name is what you call the server, a text, not {type(name).__name__}")
    if not 1 <= len(name) <= MAX_NAME:
        raise ValueError(f"the name of a server has 1 to {MAX_NAME} characters, not {len(name)}: {quoted(name)}")
    if name != name.strip() or not name.isprintable() or INVISIBLE.search(name):
        raise ValueError(f"the name of a server is visible characters, with spaces only inside: {name!a}")
    if name.casefold() == THIS_PROGRAM:
        raise ValueError(
            f"{quoted(name)} is what approvals call the functions of the host: give the server another name"
        )
    return name


def with_claim(server: str, info: Implementation | None) -> str:
    """*server*, and after it what it calls itself, marked as its claim: ``github (calls itself "weather 1.2")``.

    One line, safe to print. A server that calls itself *server*, or nothing, has no claim.
    """
    if info is None or (own := info.title or info.name) == server:
        return server
    claim = excerpt(f"{own} {info.version}".strip(), CLAIM_SHOWN).replace(
        '"', "'"
    )  # so that it cannot end the quotation
    return f'{server} (calls itself "{claim}")'


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What facts about a server are kept under, and what it is."""

    key: str
    """The name that the host gave it, or else its *identity*."""
    identity: str
    """That of its transport."""
    program: str
    """The name of its transport."""

    @property
    def described(self) -> str:
        """Program or URL and identity, for a person: ``uvx shop@1.2 (uvx 0123456789abcdef)``."""
        return self.identity if self.program in self.identity else f"{self.program} ({self.identity})"
