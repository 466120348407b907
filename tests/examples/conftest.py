"""Local servers of models' APIs."""

from tests.providers.conftest import _servers, serve

__all__ = ["_servers", "serve"]
