"""Agreeing on a revision, from what a server answers to the opening move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError, NoCommonVersion, Unauthorized, excerpt, quoted
from mcp_host.protocol.eras import Legacy
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Failure,
    Params,
    Success,
)

LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that begin with `initialize`, the preferred one first."""
MODERN_VERSIONS = ("2026-07-28",)
"""The revisions without a handshake, the preferred one first."""
VERSIONS = MODERN_VERSIONS + LEGACY_VERSIONS

MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
"""Errors that only a modern server knows."""

GATEWAY_STATUSES = frozenset({502, 503, 504})
"""What a gateway says of a server that it does not reach."""


@dataclass(frozen=True, slots=True)
class AllowedVersions:
    """Which revisions a client may speak, the preferred ones first. An empty half is never tried."""

    modern: tuple[str, ...]
    legacy: tuple[str, ...]

    @classmethod
    def of(cls, era: str) -> AllowedVersions:
        """*era* is "auto", "modern", "legacy" or a single version.

        Raises:
            ValueError: It is none of these.
        """
        match era:
            case "auto":
                return cls(MODERN_VERSIONS, LEGACY_VERSIONS)
            case "modern":
                return cls(MODERN_VERSIONS, ())
            case "legacy":
                return cls((), LEGACY_VERSIONS)
        if era not in VERSIONS:
            raise ValueError(f'era is "auto", "modern", "legacy" or one of {", ".join(VERSIONS)}, not {era!r}')
        return cls(_only(era, MODERN_VERSIONS), _only(era, LEGACY_VERSIONS))

    @property
    def both_eras(self) -> bool:
        """Whether it is to be found out which kind of revision the server speaks."""
        return bool(self.modern and self.legacy)

    def __str__(self) -> str:
        return ", ".join(self.modern + self.legacy)


@dataclass(frozen=True, slots=True)
class UseModern:
    """The server speaks *version*, without a handshake. *discovered* is what it said of itself, if it did."""

    version: str
    discovered: Params | None = None


@dataclass(frozen=True, slots=True)
class UseLegacy:
    """Begin with `initialize`. *because* is what the server said instead of a modern answer."""

    because: str
    failure: McpError | None = None
    """What became of the probe, where that is the error to report should there be no handshake either."""


EraChoice: TypeAlias = UseModern | UseLegacy
ProbeReply: TypeAlias = Success | Failure | McpError
"""What came back for a probe: a response, or what its channel raised."""


def choose_era(reply: ProbeReply, allowed_versions: AllowedVersions) -> EraChoice:
    """What the answer to `server/discover` says of the server.

    "The fallback MUST NOT be keyed to one specific error code" (2026-07-28,
    basic/transports/stdio): whatever is not recognizably modern means legacy.

    A connection that broke over the probe, and a server that failed over it (5xx), are like anything
    else that is not modern: "Anything else identifies a legacy server" (2026-07-28, basic/versioning).

    Raises:
        Unauthorized, HttpStatusError, ConnectionClosed: *reply* itself, where it says nothing of
            the era: 401 and 403, a gateway that does not reach the server (`GATEWAY_STATUSES`), a probe that never left;
            and any failure where the plan allows no handshake.
        NoCommonVersion: The server is modern, and speaks nothing that the plan allows.
    """
    match reply:
        case Unauthorized() | ConnectionClosed(may_have_run=False):
            raise reply
        case Success(result=result) if _is_discovery(result):
            return _chosen(result.get("supportedVersions", allowed_versions.modern), allowed_versions, result)
        case Failure(code=code) | HttpStatusError(code=code) if code == UNSUPPORTED_PROTOCOL_VERSION:
            return _chosen(
                reply.data.get("supported") if isinstance(reply.data, dict) else None, allowed_versions, None
            )
        case Failure(code=code) | HttpStatusError(code=code) if code in MODERN_ERRORS:
            return UseModern(allowed_versions.modern[0])
        case HttpStatusError(status=status) if status in GATEWAY_STATUSES:
            raise reply
        case ConnectionClosed() as failure:
            return _legacy(failure, allowed_versions)
        case HttpStatusError(status=status) as failure if status >= 500:
            return _legacy(failure, allowed_versions)
    return UseLegacy(_words(reply))


def accept_version(version: object, allowed_versions: AllowedVersions) -> Legacy:
    """The era of the revision that a server chose in its answer to `initialize`.

    "If the client does not support the version in the server's response, it
    SHOULD disconnect" (2025-11-25, basic/lifecycle).
    """
    if version in allowed_versions.legacy:
        return Legacy(str(version))
    ours = ", ".join(allowed_versions.legacy)
    raise NoCommonVersion(f"the server insists on protocol version {quoted(version)}; we speak {ours}")


def common_version(refusal: Failure | HttpStatusError, allowed_versions: AllowedVersions) -> str | None:
    """A revision in common that a server names when it refuses ours.

    The specification shows this as an error with `data.supported`; most servers
    answer `initialize` with a version of their own instead.

    Raises:
        NoCommonVersion: The server is a modern one, which shakes no hands in any revision of the plan.
    """
    supported = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    offer = _first(allowed_versions.legacy, supported)
    if offer is None and refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
        raise NoCommonVersion(f"the server speaks {quoted(supported)}; we speak {', '.join(allowed_versions.legacy)}")
    return offer


def _chosen(offered: object, allowed_versions: AllowedVersions, discovered: Params | None) -> EraChoice:
    if (version := _first(allowed_versions.modern, offered)) is not None:
        return UseModern(version, discovered)
    if _first(allowed_versions.legacy, offered) is not None:
        return UseLegacy("it offers no modern revision that we speak")
    if not _is_list_of_versions(offered):
        return UseLegacy(f"a malformed list of versions, {quoted(offered)}")
    raise NoCommonVersion(f"the server speaks {quoted(offered)}; we speak {allowed_versions}")


def _first(ours: Iterable[str], offered: object) -> str | None:
    return (
        next((version for version in ours if version in offered), None) if isinstance(offered, list | tuple) else None
    )


def _is_discovery(result: Params) -> bool:
    """Whether it can be a result of server/discover: a finished one, or one that names versions."""
    kind: object = result.get("resultType", "complete")
    return kind == "complete" and ("resultType" in result or "supportedVersions" in result)


def _legacy(failure: McpError, allowed_versions: AllowedVersions) -> UseLegacy:
    if not allowed_versions.legacy:
        raise failure
    return UseLegacy(str(failure), failure)


def _is_list_of_versions(offered: object) -> bool:
    return isinstance(offered, list | tuple) and bool(offered) and all(isinstance(each, str) for each in offered)


def _only(version: str, versions: tuple[str, ...]) -> tuple[str, ...]:
    return (version,) if version in versions else ()


def _words(reply: ProbeReply) -> str:
    match reply:
        case Success():
            return "a result that is none of server/discover"
        case Failure(code=code, message=message):
            return f"{excerpt(message)} ({code})"
    return str(reply)
