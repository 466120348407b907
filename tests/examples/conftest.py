"""A terminal, and a local server that wants a token."""

from tests.auth.world import site
from tests.terminal.screens import screen

__all__ = ["screen", "site"]
