"""What a schema allows, and each official example, is written as it was read; what a client sends is valid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

import mcp_host.types
from mcp_host.types import TypedNotification, TypedRequest
from mcp_host.types.base import Model
from tests import spec
from tests.extent import THOROUGH
from tests.types.instances import instances

pytestmark = spec.needs_spec

CLIENT_SAYS = ("ClientRequest", "ClientNotification", "ClientResult", "InputResponse")

few_but_large = settings(
    max_examples=80 if THOROUGH else 25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def exact(value: object) -> object:
    """JSON in a form whose equality tells 1 from 1.0 and from True."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return type(value).__name__, value


def drawn(data: st.DataObject, revision: str, names: list[str]) -> tuple[str, type[Model], dict[str, Any]]:
    """A message as it travels: schemas before 2025-11-25 leave the envelope of typed messages to JSONRPCRequest."""
    name = data.draw(st.sampled_from(names))
    kind = model(name)
    assert kind is not None
    value = by_its_role(data.draw(instances(revision, name)))
    if issubclass(kind, TypedRequest):
        value = {"jsonrpc": "2.0", "id": 1, **value}
    if issubclass(kind, TypedNotification):
        value = {"jsonrpc": "2.0", **value}
    return name, kind, value


def by_its_role(value: Any) -> Any:
    """The schema allows what its specification forbids, and our types refuse: an answer of the user, and blocks of the
    other role or beside tool results."""
    if isinstance(value, list):
        return [by_its_role(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: by_its_role(item) for key, item in value.items()}
    if {"content", "model", "role"} <= value.keys():
        value["role"] = "assistant"
    if {"content", "role"} <= value.keys():
        blocks = value["content"] if isinstance(value["content"], list) else [value["content"]]
        other = "tool_result" if value["role"] == "assistant" else "tool_use"
        own = [block for block in blocks if block["type"] != other]
        own = [block for block in own if block["type"] == "tool_result"] or own
        return value if own == blocks else {**value, "content": own}
    return value


def model(name: str) -> type[Model] | None:
    kind = getattr(mcp_host.types, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Model) else None


def readable(revision: str) -> list[str]:
    return [name for name in spec.definitions(revision) if model(name)]


def said_by_a_client(revision: str) -> list[str]:
    unions = [spec.definitions(revision).get(name, {}) for name in CLIENT_SAYS]
    members = {part["$ref"].split("/")[-1] for union in unions for part in union.get("anyOf", [])}
    return sorted({*members, "CancelledNotification"})  # the only notification of 2026-07-28: no union there


def lone_blocks_bare(value: object) -> object:
    """A list of one sampling block is written as that block: the one thing that is not written as it was read."""
    if isinstance(value, list):
        return [lone_blocks_bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    if "role" in value and isinstance(content, list) and len(content) == 1:
        value = {**value, "content": content[0]}
    return {key: lone_blocks_bare(item) for key, item in value.items()}


@pytest.mark.parametrize("revision", spec.REVISIONS)
@few_but_large
@given(data=st.data())
def test_every_value_that_a_schema_allows_round_trips(revision: str, data: st.DataObject) -> None:
    _, kind, value = drawn(data, revision, readable(revision))

    assert exact(lone_blocks_bare(kind.from_wire(value).to_wire())) == exact(lone_blocks_bare(value))


@pytest.mark.parametrize("revision", spec.REVISIONS)
@few_but_large
@given(data=st.data())
def test_every_message_of_a_client_is_valid(revision: str, data: st.DataObject) -> None:
    name, kind, value = drawn(data, revision, said_by_a_client(revision))

    spec.assert_valid(revision, name, kind.from_wire(value).to_wire())


# The examples


def read_and_write(type_name: str, value: object) -> object:
    if (kind := model(type_name)) is not None:
        return kind.from_wire(value).to_wire()
    adapter: TypeAdapter[object] = TypeAdapter(getattr(mcp_host.types, type_name))
    read = adapter.validate_python(value, by_alias=True, by_name=False)
    return adapter.dump_python(read, by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("name", spec.example_names())
def test_an_official_example_is_written_as_it_was_read(name: str) -> None:
    value = spec.example(name)

    assert exact(read_and_write(name.split("/")[0], value)) == exact(value)


def test_there_are_129_official_examples() -> None:
    assert len(spec.example_names()) == 129


@pytest.mark.parametrize(("one", "other"), [(50, 50.0), (True, 1), ([0], [False])])
def test_the_comparison_of_examples_distinguishes_types(one: object, other: object) -> None:
    assert exact(one) != exact(other)
