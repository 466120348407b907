"""A terminal to ask in, and a server that wants a token. No server may have refused what a client has to prove."""

from collections.abc import Iterator

import pytest

from tests.auth.verifying import raise_refused
from tests.auth.world import site
from tests.terminal.screens import screen

__all__ = ["screen", "site"]


@pytest.fixture(autouse=True)
def nothing_refused() -> Iterator[None]:
    yield
    raise_refused()
