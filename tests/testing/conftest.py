"""What the tests of cassettes share: a provider of models, and the two libraries that speak to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testing.cassettes.provider import Library, Provider, serve


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serve(Provider()) as provider:
        yield provider


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Library:
    name: Library = request.param
    return name
