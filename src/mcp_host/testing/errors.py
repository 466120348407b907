"""The exception of cassettes."""

from __future__ import annotations

from mcp_host.errors import CallerError


class CassetteError(CallerError):
    """A cassette cannot be used as it is: a request is not in it, it is missing or broken, or it was not used up."""
