"""Each test of the contract runs with each adapter."""

from __future__ import annotations

import pytest

from tests.providers.contract.adapters import ADAPTERS, Adapter


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    adapter: Adapter = request.param
    return adapter
