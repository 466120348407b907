"""Every schema that these tests let an adapter write is checked."""

from tests.providers.schema_rules import written_schemas_are_checked

__all__ = ["written_schemas_are_checked"]
