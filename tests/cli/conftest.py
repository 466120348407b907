"""A terminal to run the command in, and local servers of models' APIs, with a stand-in for Anthropic's SDK."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.sdks import anthropic
from tests.interop.providers.scripted import Turn
from tests.interop.providers.serve import Kind, Serve, _servers
from tests.interop.providers.serve import serve as _serve
from tests.interop.providers.servers.base import Heard
from tests.terminal.screens import screen

__all__ = ["_serve", "_servers", "screen"]


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds a small stand-in for Anthropic's SDK, in this process and in others."""
    monkeypatch.setitem(sys.modules, "anthropic", anthropic)
    monkeypatch.setenv("PYTHONPATH", str(Path(anthropic.__file__).parent))


@pytest.fixture
def serve(_serve: Serve, sdk: None) -> Serve:
    """Servers that keep no connection: the command leaves its own to the end of the process, which may be that of the tests."""

    def serving(kind: type[Kind], *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> Kind:
        server = _serve(kind, *turns, decide=decide)
        server.keeps_connections = False
        return server

    return serving
