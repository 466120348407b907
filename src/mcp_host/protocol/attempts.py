"""Which attempts a client makes to connect, in which order, and what it remembers of each server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    ServerError,
    quoted,
)

EraName: TypeAlias = Literal["modern", "legacy"]

ERAS: tuple[EraName, ...] = get_args(EraName)

SAMPLING_TOOLS = "sampling.tools"
SAMPLING_CONTEXT = "sampling.context"
ELICITATION_URL = "elicitation.url"
ELICITATION_FORM = "elicitation.form"
OPTIONAL = (SAMPLING_TOOLS, SAMPLING_CONTEXT, ELICITATION_URL, ELICITATION_FORM)

Offers: TypeAlias = frozenset[str]
"""Which of `OPTIONAL` to advertise.

Strict servers reject capabilities that they do not know: those of 2025-11-25, and some any `elicitation`.
"""

CAPABILITY_REJECTED_STATUSES = frozenset({400, 422, 500})  # how strict servers answer an unknown field over HTTP
RETRY_SHARE = 1 / 3  # of `connect_timeout`, added after silence: a server that is only slow has used all of it by then


class EraCache:
    """Remembers the era of each server, so that a client waits for a silent server only once.

    Pass one to several clients to share what they learn. `export` returns a plain dict that
    you can save as JSON and pass to the next `EraCache`. Servers are identified by URL (without
    user, password and query) or by a digest of the command line; no secret is kept. A wrong
    entry is replaced: while connecting, or after a timeout by the next connection
    (2026-07-28, basic/versioning).

    Raises:
        ValueError: *known* is not what `export` returns.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._known: dict[str, EraName] = {}
        if not isinstance(known, Mapping | None):
            raise ValueError(f"known is a mapping of servers to eras, as export() returns it, not {quoted(known)}")
        for server, name in (known or {}).items():
            era = next((era for era in ERAS if era == name), None)
            if era is None:
                raise ValueError(f"the era of a server is one of {', '.join(ERAS)}, not {quoted(name)}")
            self._known[server] = era

    def export(self) -> dict[str, str]:
        """All entries: the era by server."""
        return dict(self._known)

    def get(self, server: str) -> EraName | None:
        """The era of *server*, if known."""
        return self._known.get(server)

    def set(self, server: str, era: EraName) -> None:
        """Remember the era of *server*."""
        self._known[server] = era

    def forget(self, server: str) -> None:
        """Drop the entry of *server*."""
        self._known.pop(server, None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to open a connection."""

    assumed: EraName | None
    """The era that the server is assumed to speak; None to probe."""
    offers: Offers
    limit: float
    """Seconds until the attempt fails."""
    corrected: bool = False
    """Whether an earlier attempt assumed the wrong era."""


class WrongEra(ConnectFailed):
    """The assumed era was wrong. The next attempt assumes *instead*."""

    def __init__(self, failure: McpError, instead: EraName | None) -> None:
        super().__init__(str(failure))
        self.failure = as_connect_failure(failure)
        self.instead = instead


class NoAnswer(ConnectTimeout):
    """The server runs but did not answer `initialize`: perhaps because of a capability that it does not know."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = ConnectTimeout(message)
        """The error for the application."""


class Attempts:
    """The attempts at one connection, within *limit* seconds in all (the attempt after silence gets a third more).

    *offers* are tried in order, the largest first. *assumed* is the era that the server is assumed to speak.
    """

    def __init__(self, offers: Sequence[Offers], assumed: EraName | None, limit: float) -> None:
        self.failure: McpError | None = None
        """Why the first offer failed. This is the error to raise if all fail: then the offers were not the reason."""
        self._offers = list(offers)
        self._left = self._limit = limit
        self.current = Attempt(assumed, self._offers[0], limit)

    def next(self, failure: McpError, spent: float = 0.0) -> Attempt | None:
        """The attempt to make after the current one failed with *failure* in *spent* seconds; None to give up."""
        self._left -= spent
        assumed = self.current.assumed
        if isinstance(failure, WrongEra):
            if not self.current.corrected and self._left > 0:
                self.current = replace(self.current, assumed=failure.instead, limit=self._left, corrected=True)
                return self.current
            failure = failure.failure
        self.failure = self.failure or (failure.failure if isinstance(failure, NoAnswer) else failure)
        self._offers = self._offers[1:] if _may_reject_capabilities(failure) else []
        if isinstance(failure, NoAnswer):  # one more attempt, with the least; hardly any server is silent about forms
            forms = ELICITATION_FORM in self.current.offers
            self._offers = [offers for offers in self._offers if (ELICITATION_FORM in offers) == forms][-1:]
            self._left = self._limit * RETRY_SHARE
        if not self._offers or self._left <= 0:
            return None
        self.current = Attempt(assumed, self._offers[0], self._left)
        return self.current


def as_connect_failure(error: McpError) -> McpError:
    """*error* as `ConnectFailed`, if the connection closed before it was established."""
    if not isinstance(error, ConnectionClosed) or isinstance(error, ConnectFailed):
        return error
    failed = ConnectFailed(str(error), may_have_run=error.may_have_run, exit_code=error.exit_code, stderr=error.stderr)
    failed.__cause__ = error
    return failed


def _may_reject_capabilities(failure: McpError) -> bool:
    """Whether the server may have failed because of a capability: strict servers reject it, crash or stay silent."""
    match failure:
        case HttpStatusError(status=status):
            return status in CAPABILITY_REJECTED_STATUSES
        case ConnectFailed(may_have_run=may_have_run):
            return may_have_run  # the process or connection ended after the server had read a message
    return isinstance(failure, ServerError | NoAnswer)
