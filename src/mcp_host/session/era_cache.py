"""What is known of servers from earlier connections: which of them shake hands, and which do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from mcp_host.errors import quoted

EraName: TypeAlias = Literal["modern", "legacy"]

ERAS: tuple[EraName, ...] = get_args(EraName)


class EraCache:
    """Remembers the era of each server, so that a server which is silent about it is waited for only once.

    Pass one to several clients to share what they learn. `export` gives a plain dict, to be
    saved as JSON and handed to the next `EraCache`. A server is remembered by its URL (without
    user, password and query) or by a digest of its command line; no secret is kept. A verdict
    that turns out wrong is replaced: while connecting, or after a timeout by the next connection
    (2026-07-28, basic/versioning).

    Raises:
        ValueError: *known* is nothing that `export` gives: a file may have been written by somebody else.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._known: dict[str, EraName] = {}
        if not isinstance(known, Mapping | None):
            raise ValueError(f"what is known of servers is an object, as export() gives it, not {quoted(known)}")
        for server, said in (known or {}).items():
            era = next((era for era in ERAS if era == said), None)
            if era is None:
                raise ValueError(f"the era of a server is one of {', '.join(ERAS)}, not {quoted(said)}")
            self._known[server] = era

    def export(self) -> dict[str, str]:
        """Everything that is known, by server."""
        return dict(self._known)

    def of(self, server: str) -> EraName | None:
        """What is known of *server*, if anything is."""
        return self._known.get(server)

    def note(self, server: str, era: EraName) -> None:
        """Remember that *server* has turned out to speak like this."""
        self._known[server] = era

    def forget(self, server: str) -> None:
        """What was believed of *server* did not hold."""
        self._known.pop(server, None)
