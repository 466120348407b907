"""A terminal to run the command in, and local servers of models' APIs."""

from collections.abc import Callable

import pytest

from tests.providers.conftest import Kind, Serve, _servers
from tests.providers.conftest import serve as _serve
from tests.providers.scripted import Turn
from tests.providers.servers.base import Heard
from tests.terminal.screens import screen

__all__ = ["_serve", "_servers", "screen"]


@pytest.fixture
def serve(_serve: Serve) -> Serve:
    """Servers that keep no connection: the command leaves its own to the end of the process, which may be that of the tests."""

    def serving(kind: type[Kind], *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> Kind:
        server = _serve(kind, *turns, decide=decide)
        server.keeps_connections = False
        return server

    return serving
