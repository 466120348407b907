"""Servers, scripted peers and scripted models to test agent hosts with, and recordings of real ones; without a network."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mcp_host.errors import NotDeclared
from mcp_host.functions import ToolError
from mcp_host.serving.errors import ClientError, RequestError
from mcp_host.testing.context import Context
from mcp_host.testing.errors import CassetteError
from mcp_host.testing.model import ScriptedModel
from mcp_host.testing.scripted import ScriptedPeer
from mcp_host.testing.server import Server

if TYPE_CHECKING:
    from mcp_host.testing.cassettes.cassette import Cassette, RecordMode

__all__ = [
    "Cassette",
    "CassetteError",
    "ClientError",
    "Context",
    "NotDeclared",
    "RecordMode",
    "RequestError",
    "ScriptedModel",
    "ScriptedPeer",
    "Server",
    "ToolError",
]

_CASSETTES = frozenset({"Cassette", "RecordMode"})


def __getattr__(name: str) -> object:
    if name in _CASSETTES:  # servers that are written with this package need none
        return getattr(import_module("mcp_host.testing.cassettes.cassette"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
