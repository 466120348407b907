"""A local server that wants a token."""

from tests.auth.world import site

__all__ = ["site"]
