"""A terminal to ask in."""

from tests.terminal.screens import screen

__all__ = ["screen"]
