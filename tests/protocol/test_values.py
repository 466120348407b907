"""How many values JSON has, and lists in portions of them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mcp_host.protocol.values import count_values, has_too_many_values, portions
from mcp_host.types.base import FREE_FORM
from tests.extent import saturated

values = st.recursive(
    st.none() | st.text(max_size=3),
    lambda value: st.lists(value) | st.dictionaries(st.sampled_from(["a", "b", *FREE_FORM]), value),
    max_leaves=20,
)


def counted(value: object) -> int:
    match value:
        case list():
            return len(value) + sum(map(counted, value))
        case dict():
            return len(value) + sum(counted(member) for name, member in value.items() if name not in FREE_FORM)
    return 0


@saturated
@given(values, st.integers(0, 30))
def test_members_and_items_are_counted_but_for_those_of_what_is_kept_as_json(value: object, most: int) -> None:
    assert count_values(value, math.inf) == counted(value)
    assert (count_values(value, most) > most) == (counted(value) > most)


@saturated
@given(st.lists(values), st.integers(1, 4), st.integers(1, 9))
def test_a_list_in_portions_is_the_list_and_no_portion_is_larger_than_it_must_be(
    items: list[object], length: int, most: int
) -> None:
    parts = list(portions(items, length, most))

    assert [item for part in parts for item in part.items] == items
    assert [part.start for part in parts] == [sum(len(part.items) for part in parts[:n]) for n in range(len(parts))]
    for part in parts:
        assert 1 <= len(part.items) <= length
        assert part.values <= most or len(part.items) == 1
        assert (part.values > most) == (counted(part.items) > most)


def test_only_what_is_read_at_once_can_have_too_many_values() -> None:
    assert has_too_many_values("tools/call", {"content": [0, 0]}, 2)
    assert not has_too_many_values("tools/call", {"content": [0, 0]}, 3)
    assert not has_too_many_values("tools/list", {"tools": [0, 0]}, 2)
    assert not has_too_many_values("acme/any", {"a": [0, 0]}, 2)
