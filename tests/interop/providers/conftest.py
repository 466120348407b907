"""Local servers of the models' APIs, for the SDKs themselves."""

from tests.providers.conftest import _servers, serve
from tests.testing.conftest import library, provider

__all__ = ["_servers", "library", "provider", "serve"]
