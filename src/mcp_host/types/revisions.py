"""Since which revision types and fields exist, and what in a message is too new for a revision.

The types are the union of all revisions. Each class and each field carries the revision that
introduced it. `first_unknown` refuses what the older schema would refuse, and nothing else:
every object of every schema is open, so a newer field is fine; a newer content block, message or
shape of value is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, get_args

from mcp_host.types.base import REVISIONS, Model


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


@cache
def _fields_to_check(model: type[Model], revision: str) -> Mapping[str, Sequence[ShapeSince]]:
    """The fields in which something may be newer than *revision*, each with the shapes that are."""
    fields = {}
    for name, field_marks in marks(model).items():
        newer = [mark for mark in field_marks if mark.revision > revision]
        shapes = [mark for mark in newer if isinstance(mark, ShapeSince)]
        # If the field itself is newer, its value is not checked: to the older revision it is an unknown field,
        # as `icons` of a tool is to 2025-06-18, and unknown fields may hold anything.
        if len(shapes) == len(newer) and (shapes or _may_hold_newer(model.model_fields[name].annotation, revision)):
            fields[name] = shapes
    return fields


def _may_hold_newer(annotation: object, revision: str) -> bool:
    """Whether a model is among the types, and it or what is in it may be newer than *revision*."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation.since > revision or bool(_fields_to_check(annotation, revision))
    return any(_may_hold_newer(member, revision) for member in get_args(annotation))


def first_unknown(message: Model, revision: str) -> str | None:
    """The first part of *message* that *revision* does not allow, as a sentence; None if there is none.

    ``ToolUseContent at content[1] came with revision 2025-11-25``
    """
    if revision == REVISIONS[-1] or (found := _find(message, revision)) is None:
        return None
    what, since, path = found
    at = f" at {path.removeprefix('.')}" if path else ""
    return f"{what}{at} came with revision {since}"


def _find(value: object, revision: str) -> tuple[str, str, str] | None:
    """What is newer than *revision*: its name, its own revision, and the path that leads to it from *value*."""
    members: Iterable[tuple[object, object]] = ()
    match value:
        case Model():
            return _find_in_model(value, revision)
        case [Model(), *_]:  # a container of models holds nothing else, so looking at its first item is enough
            members = enumerate(value)
        case dict() if isinstance(next(iter(value.values()), None), Model):
            members = value.items()
    for key, item in members:
        if (found := _find(item, revision)) is not None:
            what, since, path = found
            return what, since, f"[{key!r}]{path}"
    return None


def _find_in_model(model: Model, revision: str) -> tuple[str, str, str] | None:
    if model.since > revision:
        return type(model).__name__, model.since, ""
    for name, shapes in _fields_to_check(type(model), revision).items():
        if name not in model.model_fields_set:
            continue
        value = getattr(model, name)
        for shape in shapes:
            if shape.has_shape(value):
                return shape.what, shape.revision, f".{name}"
        if (found := _find(value, revision)) is not None:
            what, since, path = found
            return what, since, f".{name}{path}"
    return None
