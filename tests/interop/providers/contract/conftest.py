"""Each test of the contract runs with each adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.providers.contract.adapters import ADAPTERS, Adapter

STREAMED = Path(__file__).with_name("test_answers.py")
# pydantic-ai leaves these generators of a stream open, after ``[DONE]``. trio warns of it.
GENERATORS = [
    r"openai\._streaming\.(AsyncStream|SSEDecoder)",
    r"httpx2\._models\.Response\.aiter_bytes",
    r"httpcore2\._async\.connection_pool\.PoolByteStream",
]
LEFT_OPEN = pytest.mark.filterwarnings(f"ignore:Async generator '({'|'.join(GENERATORS)}):ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        by_trio = "pydantic-ai" in item.name and "trio" in item.name
        if item.path == STREAMED and by_trio and "whole" not in item.name:
            item.add_marker(LEFT_OPEN)


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    adapter: Adapter = request.param
    return adapter
