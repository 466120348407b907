"""Local servers of models' APIs, and one that wants a token."""

from tests.auth.world import site
from tests.providers.conftest import _servers, serve

__all__ = ["_servers", "serve", "site"]
