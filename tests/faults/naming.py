"""A table that is gone through in one helper: which of its rows went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming(row: str) -> Iterator[None]:
    """Have what goes wrong in here say which *row* it was."""
    try:
        yield
    except BaseException as error:  # that of pytest.raises() is no Exception
        error.add_note(f"the row is {row!a}")
        raise
