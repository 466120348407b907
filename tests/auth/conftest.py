"""A terminal to ask in, and a server that wants a token."""

from tests.auth.world import site
from tests.terminal.screens import screen

__all__ = ["screen", "site"]
