"""The official examples, read and written again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

import mcp_host.types
from mcp_host.types.base import Model
from tests import spec

pytestmark = spec.needs_spec


def exact(value: object) -> object:
    """JSON in a form whose equality tells 1 from 1.0 and from True."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return type(value).__name__, value


def read_and_write(type_name: str, value: object) -> object:
    kind: Any = getattr(mcp_host.types, type_name)
    if isinstance(kind, type) and issubclass(kind, Model):
        return kind.from_wire(value).to_wire()
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    return adapter.dump_python(
        adapter.validate_python(value, by_alias=True, by_name=False), by_alias=True, exclude_unset=True
    )


@pytest.mark.parametrize("name", spec.example_names())
def test_an_official_example_is_written_as_it_was_read(name: str) -> None:
    value = spec.example(name)

    assert exact(read_and_write(name.split("/")[0], value)) == exact(value)


def test_there_are_129_official_examples() -> None:
    assert len(spec.example_names()) == 129


@pytest.mark.parametrize(("one", "other"), [(50, 50.0), (True, 1), ([0], [False])])
def test_the_comparison_of_examples_distinguishes_types(one: object, other: object) -> None:
    assert exact(one) != exact(other)
