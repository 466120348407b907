"""What a client tries, in which order, until a connection to its server stands."""

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
from mcp_host.protocol.eras import Legacy, Modern

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


CAPABILITY_REJECTED_STATUSES = frozenset({400, 422, 500})  # what a strict server may say by HTTP to an unknown field
RETRY_SHARE = 1 / 3  # of `connect_timeout`, added after silence: a server that is merely slow has had all of it by then


@dataclass(frozen=True, slots=True)
class Offers:
    """What is advertised of the client capabilities that strict servers do not know.

    All came with 2025-11-25, but for forms: those are older, and yet some servers refuse `elicitation` altogether.
    """

    sampling_tools: bool = False
    sampling_context: bool = False
    elicitation_modes: bool = False
    elicitation_forms: bool = False

    def __str__(self) -> str:
        offered = {
            "sampling.tools": self.sampling_tools,
            "sampling.context": self.sampling_context,
            "elicitation.url": self.elicitation_modes,
            "elicitation.form": self.elicitation_forms,
        }
        return " and ".join(name for name, is_offered in offered.items() if is_offered)

    def within(self, era: Legacy | type[Modern]) -> Offers:
        """What *era* has words for."""
        return Offers(
            sampling_tools=self.sampling_tools and era.samples_with_tools,
            sampling_context=self.sampling_context and era.declares_context_support,
            elicitation_modes=self.elicitation_modes and era.declares_elicitation_modes,
            elicitation_forms=self.elicitation_forms,
        )

    def without(self, others: Offers) -> Offers:
        """What is offered here and not in *others*."""
        return Offers(
            sampling_tools=self.sampling_tools and not others.sampling_tools,
            sampling_context=self.sampling_context and not others.sampling_context,
            elicitation_modes=self.elicitation_modes and not others.elicitation_modes,
            elicitation_forms=self.elicitation_forms and not others.elicitation_forms,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to open a connection."""

    assumed: EraName | None
    """Which era the server is believed to speak; None to find out."""
    offers: Offers
    limit: float
    """Seconds until it has to succeed."""
    corrected: bool = False
    """Whether another era was assumed at first, which turned out wrong."""


class WrongEra(ConnectFailed):
    """What was assumed of the server's era does not hold. An attempt that assumes *instead* may do better."""

    def __init__(self, failure: McpError, instead: EraName | None) -> None:
        super().__init__(str(failure))
        self.failure = never_came_up(failure)
        self.instead = instead


class NoAnswer(ConnectTimeout):
    """The server runs, and does not answer `initialize`: perhaps over a capability that it does not know."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = ConnectTimeout(message)
        """What it is to the application."""


class Attempts:
    """The attempts at one connection, within *limit* seconds together; one that follows silence has a share on top.

    *offers* are what to advertise, the most first; *assumed* is the era that the server is believed to speak.
    """

    def __init__(self, offers: Sequence[Offers], assumed: EraName | None, limit: float) -> None:
        self.failure: McpError | None = None
        """Why the first offer failed. It stands if no other succeeds: then what was offered was not the reason."""
        self._offers = list(offers)
        self._assumed = assumed
        self._left = self._limit = limit
        self.current = self._attempt()

    def _attempt(self) -> Attempt:
        return Attempt(self._assumed, self._offers[0], self._left)

    def next(self, failure: McpError, spent: float = 0.0) -> Attempt | None:
        """The attempt to make after *failure* of the current one, if there is one that may do better.

        *spent* is how many seconds that one took.
        """
        self._left -= spent
        if isinstance(failure, WrongEra):
            if not self.current.corrected and self._left > 0:
                self._assumed = failure.instead  # also by those that follow
                self.current = replace(self.current, assumed=failure.instead, limit=self._left, corrected=True)
                return self.current
            failure = failure.failure
        self.failure = self.failure or (failure.failure if isinstance(failure, NoAnswer) else failure)
        self._offers = self._offers[1:] if may_be_the_offers(failure) else []
        if isinstance(failure, NoAnswer):
            self._offers, self._left = self._least_with_forms()[-1:], self._limit * RETRY_SHARE  # only one more
        if not self._offers or self._left <= 0:
            return None
        self.current = self._attempt()
        return self.current

    def _least_with_forms(self) -> list[Offers]:
        """What is left to offer without giving up forms, which hardly any server falls silent over."""
        return [each for each in self._offers if each.elicitation_forms == self.current.offers.elicitation_forms]


def never_came_up(error: McpError) -> McpError:
    """*error* as it is called before the connection is there."""
    if not isinstance(error, ConnectionClosed) or isinstance(error, ConnectFailed):
        return error
    failed = ConnectFailed(str(error), may_have_run=error.may_have_run, exit_code=error.exit_code, stderr=error.stderr)
    failed.__cause__ = error
    return failed


def may_be_the_offers(failure: McpError) -> bool:
    """Whether connecting may have failed over a capability: strict servers refuse one, die of it or fall silent."""
    match failure:
        case HttpStatusError(status=status):
            return status in CAPABILITY_REJECTED_STATUSES
        case ConnectFailed(may_have_run=may_have_run):
            return may_have_run  # a process that has ended, or a connection that has, after the server heard of any
    return isinstance(failure, ServerError | NoAnswer)
