"""Since which revision types and fields exist, and what in a message is too new for a revision.

The types are the union of all revisions. Each class and each field carries the revision that
introduced it. `first_unknown` refuses what the older schema would refuse, and nothing else:
every object of every schema is open, so a newer field is fine; a newer content block, message or
shape of value is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, get_args, get_origin

from mcp_host.types.base import Model


class Since(NamedTuple):
    """Marks a field that is newer than its class: ``Annotated[str | None, Since("2025-06-18")]``."""

    revision: str


class ShapeSince(NamedTuple):
    """Marks a field whose value may have a shape that earlier revisions refuse; *what* names that shape."""

    revision: str
    what: str
    has_shape: Callable[[object], bool]


Mark: TypeAlias = Since | ShapeSince

SINCE_2025_03_26 = Since("2025-03-26")
SINCE_2025_06_18 = Since("2025-06-18")
SINCE_2025_11_25 = Since("2025-11-25")
SINCE_2026_07_28 = Since("2026-07-28")

NOT_AN_OBJECT = ShapeSince(
    "2026-07-28", "a value that is not an object", lambda value: value is not None and not isinstance(value, dict)
)


@cache
def marks(model: type[Model]) -> dict[str, Sequence[Mark]]:
    """The marks of each field."""
    return {
        name: [mark for mark in field.metadata if isinstance(mark, Mark)] for name, field in model.model_fields.items()
    }


class _Unknown(NamedTuple):
    what: str
    since: str
    path: str = ""


def first_unknown(message: Model, revision: str) -> str | None:
    """The first part of *message* that *revision* does not allow, as a sentence; None if there is none.

    ``ToolUseContent at content[1] came with revision 2025-11-25``
    """
    if revision > message.until:
        return f"{type(message).__name__} was removed after revision {message.until}"
    if (found := _in_value(message, revision)) is None:
        return None
    at = f" at {found.path.removeprefix('.')}" if found.path else ""
    return f"{found.what}{at} came with revision {found.since}"


def _in_value(value: object, revision: str) -> _Unknown | None:
    members: Iterable[tuple[object, object]]
    match value:
        case Model():
            return _in_model(value, revision)
        case [Model(), *_]:  # a container of models holds nothing else, so looking at its first item is enough
            members = enumerate(value)
        case dict() if isinstance(next(iter(value.values()), None), Model):
            members = value.items()
        case _:
            return None
    for key, item in members:
        if (found := _in_value(item, revision)) is not None:
            return found._replace(path=f"[{key!r}]{found.path}")
    return None


def _in_model(model: Model, revision: str) -> _Unknown | None:
    if model.since > revision:
        return _Unknown(type(model).__name__, model.since)
    for name in _fields_to_check(type(model)):
        if name in model.model_fields_set and (found := _in_field(model, name, revision)) is not None:
            return found._replace(path=f".{name}{found.path}")
    return None


def _in_field(model: Model, name: str, revision: str) -> _Unknown | None:
    value = getattr(model, name)
    for mark in marks(type(model))[name]:
        if mark.revision <= revision:
            continue
        if isinstance(mark, Since):
            return None  # to that revision an additional property, which may hold anything
        if mark.has_shape(value):
            return _Unknown(mark.what, mark.revision)
    return _in_value(value, revision)


@cache
def _fields_to_check(model: type[Model]) -> Sequence[str]:
    """The fields that have a mark, or whose values may hold something that has one."""
    return [
        name for name, marked in marks(model).items() if marked or not _is_plain(model.model_fields[name].annotation)
    ]


def _is_plain(annotation: object) -> bool:
    """Whether all values of that type are strings, numbers, booleans or null."""
    if get_origin(annotation) is Literal:
        return True
    members = get_args(annotation)
    return all(map(_is_plain, members)) if members else annotation in (str, int, float, bool, type(None))
