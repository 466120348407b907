"""The matrix of docs/providers.md: each cell is what the adapter writes, or how it refuses."""

from __future__ import annotations

import json

import pytest
from pydantic_ai.models.test import TestModel

from mcp_host.errors import InputRefused
from mcp_host.providers import ProviderModel, PydanticAIModel
from mcp_host.providers.adapter import Prompt
from mcp_host.providers.names import ToolNames
from mcp_host.sampling import SamplingRequest
from mcp_host.types import CreateMessageRequestParams
from tests.providers.matrix import FEATURES, MATRIX, Cell, Wire, table

CELLS = [
    pytest.param(adapter, FEATURES[feature], cell, id=f"{name}: {feature}")
    for name, (adapter, cells) in MATRIX.items()
    for feature, cell in cells.items()
]


def written(adapter: type[ProviderModel], wire: Wire) -> str:
    """The JSON of what *adapter* writes for a request.

    Raises:
        InputRefused: It refuses the request.
    """
    params = CreateMessageRequestParams.from_wire({"maxTokens": 100, **wire})
    request = SamplingRequest(params=params, server="s")
    model = PydanticAIModel(TestModel()) if adapter is PydanticAIModel else adapter(object(), "m")
    prompt = Prompt(request, "m", ToolNames.of(request, adapter.name_rule))
    return json.dumps(model.with_options(model.write_request(prompt), prompt))


@pytest.mark.parametrize(("adapter", "wire", "cell"), CELLS)
def test_an_adapter_does_what_its_cell_says(adapter: type[ProviderModel], wire: Wire, cell: Cell) -> None:
    if cell.does == "refused":
        with pytest.raises(InputRefused) as refusal:
            written(adapter, wire)
        assert refusal.value.code == -32602
        assert cell.shows in str(refusal.value)
    else:
        assert cell.shows in written(adapter, wire)


@pytest.mark.parametrize(
    ("feature", "field"),
    [("`toolChoice` none", '"tools"'), ("stop sequences", '"END"')],
)
def test_what_is_emulated_is_not_written(feature: str, field: str) -> None:
    for adapter, cells in MATRIX.values():
        has = field in written(adapter, FEATURES[feature])
        assert has == (cells[feature].does == "yes")


def test_every_adapter_has_a_cell_for_every_feature() -> None:
    assert {name: [*cells] for name, (_, cells) in MATRIX.items()} == {name: [*FEATURES] for name in MATRIX}


def test_the_table_has_a_row_for_every_feature_and_a_column_for_every_adapter() -> None:
    rows = table().splitlines()

    assert len(rows) == 2 + len(FEATURES)
    assert {row.count(" | ") for row in rows if not row.startswith("|---")} == {len(MATRIX)}
