"""Which attempts a client makes to connect, and which revision the server's answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    NoCommonVersion,
    ServerError,
    Unauthorized,
    quoted,
)
from mcp_host.protocol.eras import ELICITATION_FORM, Era, Legacy
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Params,
    Success,
)

EraName: TypeAlias = Literal["modern", "legacy"]

ERAS: tuple[EraName, ...] = get_args(EraName)

LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that start with `initialize`, the preferred one first."""
MODERN_VERSIONS = ("2026-07-28",)
"""The revisions without a handshake, the preferred one first."""
VERSIONS = MODERN_VERSIONS + LEGACY_VERSIONS

MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
"""Error codes that only a modern server sends."""

PASSING_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses that tell nothing about a server: of a limit of requests, or of a gateway that cannot reach it."""

OTHER_ERA_STATUSES = frozenset({400, 404, 422})
"""HTTP statuses by which servers refuse requests of the other era: they miss a session, or have one."""

MODERN_REFUSALS = frozenset({HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY})
"""Error codes with such a status in the modern era: they are about the request."""

CAPABILITY_REJECTED_STATUSES = frozenset({400, 422, 500})  # how strict servers answer an unknown field over HTTP
RETRY_SHARE = 1 / 3  # of `connect_timeout`, added after silence: a server that is only slow has used all of it by then

Offers: TypeAlias = frozenset[str]
"""Which of the `OPTIONAL` capabilities to advertise."""


class EraCache:
    """Remembers the era of each server, so that a client waits for a silent server only once.

    Pass one to several clients to share what they learn. `export` returns a plain dict that
    you can save as JSON and pass to the next `EraCache`. Servers are identified by the name that
    you gave them, or else by URL (without user, password and query) or by a digest of the command line; no secret is kept. A wrong
    entry is replaced: while connecting, when a server over HTTP speaks another era than before, or after a timeout by
    the next connection (2026-07-28, basic/versioning).

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


class AllowedVersions(NamedTuple):
    """The revisions that a client may use, the preferred ones first. An empty tuple excludes that era."""

    modern: tuple[str, ...]
    legacy: tuple[str, ...]

    @classmethod
    def of(cls, era: str) -> AllowedVersions:
        """*era* is "auto", "modern", "legacy" or a single version.

        Raises:
            ValueError: It is none of these.
        """
        choices = {
            "auto": cls(MODERN_VERSIONS, LEGACY_VERSIONS),
            "modern": cls(MODERN_VERSIONS, ()),
            "legacy": cls((), LEGACY_VERSIONS),
            **{version: cls((version,), ()) for version in MODERN_VERSIONS},
            **{version: cls((), (version,)) for version in LEGACY_VERSIONS},
        }
        if era not in choices:
            raise ValueError(f'era is "auto", "modern", "legacy" or one of {", ".join(VERSIONS)}, not {era!r}')
        return choices[era]

    @property
    def both_eras(self) -> bool:
        """Whether the server's answer decides which era is used."""
        return bool(self.modern and self.legacy)

    def __str__(self) -> str:
        return ", ".join(self.modern + self.legacy)


class UseModern(NamedTuple):
    """Send requests in *version*, without a handshake. *discovered* is the server's `server/discover` result, if any."""

    version: str
    discovered: Params | None = None


class UseLegacy(NamedTuple):
    """Start with `initialize`. *reason* is what the server sent instead of a modern answer."""

    reason: str
    failure: McpError | None = None
    """The error of the probe, to be raised if `initialize` fails, too."""

    @property
    def is_guess(self) -> bool:
        """Whether the failure tells nothing about the era: a gateway may refuse what only the probe requests, or for now."""
        return isinstance(self.failure, Unauthorized) or (
            isinstance(self.failure, HttpStatusError) and self.failure.status in PASSING_STATUSES
        )


EraChoice: TypeAlias = UseModern | UseLegacy


def choose_era(reply: Success | McpError, allowed_versions: AllowedVersions) -> EraChoice:
    """Choose the era from the reply to `server/discover`, or the error that the request raised.

    "The fallback MUST NOT be keyed to one specific error code" (2026-07-28, basic/transports/stdio),
    so every reply that is not recognizably modern means legacy. A connection that broke during the
    probe, a 5xx and a 429 do, too: "Anything else identifies a legacy server" (2026-07-28, basic/versioning).
    So do 403, and 401 if a credential was sent: some gateways let only known methods pass.

    Raises:
        Unauthorized, HttpStatusError, ConnectionClosed: *reply* itself: 401 without a credential,
            a probe that was never sent; also a 5xx, a 403, a refused credential or a broken connection
            where no legacy version is allowed.
        NoCommonVersion: The server is modern and supports none of *allowed_versions*.
    """
    match reply:
        case Unauthorized(status=status, credential_sent=sent, code=code) if (
            status == 401 and not sent
        ) or code in MODERN_ERRORS:
            raise reply
        case ConnectionClosed(may_have_run=False):
            raise reply
        case Success(result=result) if _is_discovery(result):
            return _choose_version(result.get("supportedVersions", allowed_versions.modern), allowed_versions, result)
        case ServerError(code=code) if code == UNSUPPORTED_PROTOCOL_VERSION:
            return _choose_version(_supported(reply), allowed_versions, None)
        case ServerError(code=code) if code in MODERN_ERRORS:
            return UseModern(allowed_versions.modern[0])
        case HttpStatusError(transient=False) if not isinstance(reply, Unauthorized):
            return UseLegacy(str(reply))
        case ConnectionClosed() | HttpStatusError():
            if not allowed_versions.legacy:
                raise reply
            return UseLegacy(str(reply), reply)
        case Success():
            return UseLegacy("a result that does not fit server/discover")
    return UseLegacy(str(reply))


def may_be_of_other_era(refusal: McpError, era: Era) -> bool:
    """Whether a server may refuse a request of *era* so because another server, without that era, has taken its place.

    Only its answer to `server/discover` tells.
    """
    match refusal:
        case NoCommonVersion():
            return True
        case Unauthorized():
            return False
        case ServerError(code=code) if code == UNSUPPORTED_PROTOCOL_VERSION:
            return True
        case ServerError(code=code) if code in MODERN_ERRORS:
            return isinstance(era, Legacy)
        case HttpStatusError(status=status, code=code):
            return status in OTHER_ERA_STATUSES and (isinstance(era, Legacy) or code not in MODERN_REFUSALS)
    return False


def is_era(choice: EraChoice, era: Era) -> bool:
    """Whether *choice* is *era*, in this version if it is modern."""
    if isinstance(choice, UseLegacy):
        return isinstance(era, Legacy)
    return choice.version == era.version


def accept_version(version: object, allowed_versions: AllowedVersions) -> Legacy:
    """The era of the version that a server chose in its answer to `initialize`.

    "If the client does not support the version in the server's response, it
    SHOULD disconnect" (2025-11-25, basic/lifecycle).
    """
    if version in allowed_versions.legacy:
        return Legacy(str(version))
    raise _no_common_version(f"chose protocol version {quoted(version)}", allowed_versions.legacy)


def common_version(error: ServerError, allowed_versions: AllowedVersions) -> str | None:
    """An allowed legacy version from the error by which a server rejects ours.

    The specification shows the list in `data.supported`. Most servers send no error,
    but answer `initialize` with another version.

    Raises:
        NoCommonVersion: The server is modern and supports none of the legacy versions.
    """
    supported = _supported(error)
    version = _first(allowed_versions.legacy, supported)
    if version is None and error.code == UNSUPPORTED_PROTOCOL_VERSION:
        raise _no_common_version(f"supports protocol versions {quoted(supported)}", allowed_versions.legacy)
    return version


def _choose_version(offered: object, allowed_versions: AllowedVersions, discovered: Params | None) -> EraChoice:
    if (version := _first(allowed_versions.modern, offered)) is not None:
        return UseModern(version, discovered)
    if _first(allowed_versions.legacy, offered) is not None:
        return UseLegacy("it supports none of the client's modern versions")
    if isinstance(offered, list | tuple) and offered and all(isinstance(each, str) for each in offered):
        raise _no_common_version(
            f"supports protocol versions {quoted(offered)}", allowed_versions.modern + allowed_versions.legacy
        )
    return UseLegacy(f"a malformed list of versions, {quoted(offered)}")


def _no_common_version(server: str, ours: Iterable[str]) -> NoCommonVersion:
    return NoCommonVersion(f"the server {server}; this client supports {', '.join(ours)}")


def _supported(error: ServerError) -> object:
    return error.data.get("supported") if isinstance(error.data, dict) else None


def _first(ours: Iterable[str], offered: object) -> str | None:
    if not isinstance(offered, list | tuple):
        return None
    return next((version for version in ours if version in offered), None)


def _is_discovery(result: Params) -> bool:
    """Whether this can be a result of server/discover: it is complete, or lists versions."""
    kind: object = result.get("resultType", "complete")
    return kind == "complete" and ("resultType" in result or "supportedVersions" in result)


class Attempt(NamedTuple):
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


class ConnectionBroke(ConnectFailed):
    """A connection over a network broke: nothing may be wrong with the server, and with what it was offered."""

    def __init__(self, failure: McpError) -> None:
        super().__init__(str(failure))
        self.failure = failure
        """The error for the application."""


class Attempts:
    """The attempts at one connection, within *limit* seconds in all (the attempt after silence gets a third more).

    *offers* are tried in order, the largest first. If a network breaks, the same is tried once more. *assumed* is the era that the server is assumed to speak.
    """

    def __init__(self, offers: Sequence[Offers], assumed: EraName | None, limit: float) -> None:
        self.failure: McpError | None = None
        """Why the first offer failed. This is the error to raise if all fail: then the offers were not the reason."""
        self._offers = list(offers)
        self._left = self._limit = limit
        self._repeated = False
        self.current = Attempt(assumed, self._offers[0], limit)

    def next(self, failure: McpError, spent: float = 0.0) -> Attempt | None:
        """The attempt to make after the current one failed with *failure* in *spent* seconds; None to give up."""
        self._left -= spent
        assumed = self.current.assumed
        if isinstance(failure, WrongEra):
            if not self.current.corrected and self._left > 0:
                self.current = self.current._replace(assumed=failure.instead, limit=self._left, corrected=True)
                return self.current
            failure = failure.failure
        self.failure = self.failure or (failure.failure if isinstance(failure, NoAnswer | ConnectionBroke) else failure)
        if isinstance(failure, ConnectionBroke) and not self._repeated and self._left > 0:
            self._repeated = True
            self.current = self.current._replace(limit=self._left)
            return self.current
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
