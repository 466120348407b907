"""Local servers of the models' APIs, for the SDKs themselves."""

from tests.interop.providers.serve import _servers, serve
from tests.providers.schema_rules import written_schemas_are_checked
from tests.testing.conftest import library, provider

__all__ = ["_servers", "library", "provider", "serve", "written_schemas_are_checked"]
