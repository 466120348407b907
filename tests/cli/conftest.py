"""A terminal to run the command in, and local servers of models' APIs."""

from tests.providers.conftest import _servers, serve
from tests.terminal.screens import screen

__all__ = ["_servers", "screen", "serve"]
