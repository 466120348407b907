"""Holds each schema that an adapter writes to JSON Schema 2020-12 and to the rules that its provider publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.exchange import schemas
from mcp_host.providers.gemini import GeminiModel
from tests.interop.providers.servers import openai_rules
from tests.interop.providers.servers.anthropic import check_schema
from tests.interop.providers.servers.gemini import check_json_schema
from tests.interop.providers.servers.ollama import check_format

Write = Callable[[dict[str, Any]], Any]

CHECKS: dict[Write, Callable[[Any], None]] = {
    schemas.function: lambda written: openai_rules.check_parameters(written, "t", strict=False),
    schemas.strict: lambda written: None if written is None else openai_rules.check_strict(written, "t"),
    schemas.gemini: lambda written: check_json_schema(written, "t"),
    schemas.anthropic: lambda written: check_schema(written, "t"),
    schemas.format_of_object: check_format,
}
"""By the function of `schemas`. Each raises `Refusal`."""


@pytest.fixture(autouse=True)
def written_schemas_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test fails at the first schema that its provider would refuse."""

    def checked(write: Write) -> Write:
        def write_and_check(schema: dict[str, Any]) -> Any:
            written = write(schema)
            CHECKS[write](written)
            return written

        return write_and_check

    for write in CHECKS:
        monkeypatch.setattr(schemas, write.__name__, checked(write))
    for model, write in ((AnthropicModel, schemas.anthropic), (GeminiModel, schemas.gemini)):
        monkeypatch.setattr(model, "write_schema", staticmethod(write))
