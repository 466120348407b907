"""Streams that say they are terminals."""

from __future__ import annotations

from io import StringIO


class Terminal(StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True
