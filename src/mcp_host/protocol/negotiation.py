"""Agreeing on a revision, from what a server answers to the opening move."""

from __future__ import annotations

from mcp_host.errors import UnsupportedVersion, quoted
from mcp_host.protocol.eras import Legacy
from mcp_host.protocol.jsonrpc import Failure

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that begin with `initialize`, the preferred one first."""


def accept(version: object) -> Legacy:
    """The era of the revision that a server chose in its answer to `initialize`.

    "If the client does not support the version in the server's response, it
    SHOULD disconnect" (2025-11-25, basic/lifecycle).
    """
    if version in HANDSHAKE_VERSIONS:
        return Legacy(str(version))
    ours = ", ".join(HANDSHAKE_VERSIONS)
    raise UnsupportedVersion(f"the server insists on protocol version {quoted(version)}; we speak {ours}")


def counter_offer(refusal: Failure) -> str | None:
    """A revision in common that a server names when it refuses ours.

    The specification shows this as an error with `data.supported`; most servers
    answer `initialize` with a version of their own instead.
    """
    supported = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    if not isinstance(supported, list):
        return None
    return next((version for version in HANDSHAKE_VERSIONS if version in supported), None)
