"""A terminal to run the command in."""

from tests.terminal.screens import screen

__all__ = ["screen"]
