"""A terminal to run the command in, and local servers of models' APIs."""

import pytest

from tests.providers.conftest import _servers, serve
from tests.terminal.screens import screen

__all__ = ["_servers", "screen", "serve"]


@pytest.fixture
def anyio_backend() -> str:
    """That of the tests. The command runs on asyncio in any case."""
    return "asyncio"
