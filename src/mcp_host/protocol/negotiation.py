"""Choosing the protocol revision from the server's first answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from mcp_host.errors import (
    ConnectionClosed,
    HttpStatusError,
    McpError,
    NoCommonVersion,
    ServerError,
    Unauthorized,
    quoted,
)
from mcp_host.protocol.eras import Legacy
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Params,
    Success,
)

LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that start with `initialize`, the preferred one first."""
MODERN_VERSIONS = ("2026-07-28",)
"""The revisions without a handshake, the preferred one first."""
VERSIONS = MODERN_VERSIONS + LEGACY_VERSIONS

MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
"""Error codes that only a modern server sends."""

GATEWAY_STATUSES = frozenset({502, 503, 504})
"""HTTP statuses of a gateway that cannot reach the server."""


@dataclass(frozen=True, slots=True)
class AllowedVersions:
    """The revisions that a client may use, the preferred ones first. An empty tuple excludes that era."""

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
        return cls((era,), ()) if era in MODERN_VERSIONS else cls((), (era,))

    @property
    def both_eras(self) -> bool:
        """Whether the server's answer decides which era is used."""
        return bool(self.modern and self.legacy)

    def __str__(self) -> str:
        return ", ".join(self.modern + self.legacy)


@dataclass(frozen=True, slots=True)
class UseModern:
    """Send requests in *version*, without a handshake. *discovered* is the server's `server/discover` result, if any."""

    version: str
    discovered: Params | None = None


@dataclass(frozen=True, slots=True)
class UseLegacy:
    """Start with `initialize`. *reason* is what the server sent instead of a modern answer."""

    reason: str
    failure: McpError | None = None
    """The error of the probe, to be raised if `initialize` fails, too."""


EraChoice: TypeAlias = UseModern | UseLegacy


def choose_era(reply: Success | McpError, allowed_versions: AllowedVersions) -> EraChoice:
    """Choose the era from the reply to `server/discover`, or the error that the request raised.

    "The fallback MUST NOT be keyed to one specific error code" (2026-07-28, basic/transports/stdio),
    so every reply that is not recognizably modern means legacy. A connection that broke during the
    probe and a 5xx do, too: "Anything else identifies a legacy server" (2026-07-28, basic/versioning).

    Raises:
        Unauthorized, HttpStatusError, ConnectionClosed: *reply* itself, if it does not tell the era:
            401 and 403, an unreachable server (`GATEWAY_STATUSES`), a probe that was never sent;
            also a 5xx or a broken connection where no legacy version is allowed.
        NoCommonVersion: The server is modern and supports none of *allowed_versions*.
    """
    match reply:
        case Unauthorized() | ConnectionClosed(may_have_run=False):
            raise reply
        case Success(result=result) if _is_discovery(result):
            return _choose_version(result.get("supportedVersions", allowed_versions.modern), allowed_versions, result)
        case ServerError(code=code) if code == UNSUPPORTED_PROTOCOL_VERSION:
            return _choose_version(_supported(reply), allowed_versions, None)
        case ServerError(code=code) if code in MODERN_ERRORS:
            return UseModern(allowed_versions.modern[0])
        case HttpStatusError(status=status) if status in GATEWAY_STATUSES:
            raise reply
        case HttpStatusError(status=status) if status < 500:
            return UseLegacy(str(reply))
        case ConnectionClosed() | HttpStatusError():
            if not allowed_versions.legacy:
                raise reply
            return UseLegacy(str(reply), reply)
        case Success():
            return UseLegacy("a result that does not fit server/discover")
    return UseLegacy(str(reply))


def accept_version(version: object, allowed_versions: AllowedVersions) -> Legacy:
    """The era of the version that a server chose in its answer to `initialize`.

    "If the client does not support the version in the server's response, it
    SHOULD disconnect" (2025-11-25, basic/lifecycle).
    """
    if version in allowed_versions.legacy:
        return Legacy(str(version))
    ours = ", ".join(allowed_versions.legacy)
    raise NoCommonVersion(f"the server insists on protocol version {quoted(version)}; we speak {ours}")


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
        raise NoCommonVersion(f"the server speaks {quoted(supported)}; we speak {', '.join(allowed_versions.legacy)}")
    return version


def _choose_version(offered: object, allowed_versions: AllowedVersions, discovered: Params | None) -> EraChoice:
    if (version := _first(allowed_versions.modern, offered)) is not None:
        return UseModern(version, discovered)
    if _first(allowed_versions.legacy, offered) is not None:
        return UseLegacy("it offers no modern revision that we speak")
    if isinstance(offered, list | tuple) and offered and all(isinstance(each, str) for each in offered):
        raise NoCommonVersion(f"the server speaks {quoted(offered)}; we speak {allowed_versions}")
    return UseLegacy(f"a malformed list of versions, {quoted(offered)}")


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
