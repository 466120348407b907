"""Each test of the contract runs with each adapter."""

from __future__ import annotations

import pytest

from tests.interop.providers.contract.adapters import ADAPTERS, Adapter

# pydantic-ai leaves the SDK's generators open: after ``[DONE]``, or when cancelled. trio warns of it.
LEFT_OPEN = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.name.count("pydantic-ai") and item.name.count("trio"):
            item.add_marker(LEFT_OPEN)


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    adapter: Adapter = request.param
    return adapter
