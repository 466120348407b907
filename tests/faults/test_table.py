"""The catalogue of faults is complete: each row has a test, or a reason why not."""

from __future__ import annotations

from tests.faults.catalogue import ROWS, UNTESTED
from tests.faults.marked import marked


def test_every_row_has_a_test_or_a_reason() -> None:
    tested = marked().keys()

    assert tested | UNTESTED.keys() == ROWS.keys()
    assert tested & UNTESTED.keys() == set()
