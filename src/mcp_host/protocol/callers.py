"""Which callers of an application are the same: what is one caller's, such as a private result, is for no other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

VALUES = frozenset({str, bytes, int, UUID})
"""Types whose equal values are the same caller. A class of the application may compare as it likes, and change."""


@dataclass(frozen=True, slots=True, eq=False)
class _Object:
    """A caller that is the same as itself only."""

    caller: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self.caller is other.caller

    def __hash__(self) -> int:
        return id(self.caller)


def caller_key(caller: object) -> Hashable:
    """Equal for the same *caller*: the same object, or equal `VALUES` of one type, or tuples of these."""
    kind: type[Any] = type(caller)
    if kind in VALUES:
        return kind, caller
    if isinstance(caller, tuple) and kind is tuple:
        return kind, *map(caller_key, caller)
    return _Object(caller)
