"""Prompts for `write_request`, random splits of texts, and texts that count comparisons."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mcp_host.errors import InputRefused
from mcp_host.providers.exchange.names import NameRule, ToolNames
from mcp_host.providers.exchange.requests import Prompt
from mcp_host.sampling import SamplingRequest
from mcp_host.types import CreateMessageRequestParams

USER = {"role": "user", "content": {"type": "text", "text": "Hi"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
STRICT = {**SCHEMA, "additionalProperties": False}
ADD = {"name": "add", "description": "Adds", "inputSchema": SCHEMA}
NOW = {"name": "now", "inputSchema": {"type": "object"}}
PNG = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
WAV = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}


def names_of(request: SamplingRequest, rule: NameRule) -> ToolNames:
    """The names of the tools on offer, and of those that the conversation calls."""
    return ToolNames.of_offered(request.tools, rule).and_called(request, rule)


def prompt(
    *messages: dict[str, Any],
    rule: NameRule,
    model: str,
    options: dict[str, object] | None = None,
    turns: dict[int, object] | None = None,
    **params: Any,
) -> Prompt:
    wire = {"messages": list(messages or (USER,)), "maxTokens": 100, **params}
    request = SamplingRequest(params=CreateMessageRequestParams.from_wire(wire), server="s")
    return Prompt(request, model, names_of(request, rule), options or {}, turns or {})


def deep_schema(levels: int = 102) -> dict[str, Any]:
    """A schema with schemas in it: one more than are read, or so many."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def said(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def use(id: str, name: str = "add", **input: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result_of(id: str, *content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": list(content), **fields}


def resource(**contents: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a", **contents}}


def used(id: str = "c1", name: str = "add", **input: object) -> dict[str, Any]:
    return said("assistant", use(id, name, **input))


def result(*content: dict[str, Any], id: str = "c1", **fields: Any) -> dict[str, Any]:
    return said("user", result_of(id, *content, **fields))


def refusal(write_request: Callable[[Prompt], object], asked: Prompt) -> str:
    """Why *asked* is refused."""
    with pytest.raises(InputRefused) as refused:
        write_request(asked)
    assert refused.value.code == -32602
    return str(refused.value)


def pieces(chance: random.Random, words: str) -> list[str]:
    """*words*, cut at up to five random places. Pieces may be empty."""
    cuts = sorted(chance.choices(range(len(words) + 1), k=chance.randrange(6)))
    return [words[start:end] for start, end in zip([0, *cuts], [*cuts, len(words)], strict=True)]


class Counted(str):
    """A text that counts how often texts of its class are compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)
