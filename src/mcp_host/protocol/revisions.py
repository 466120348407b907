"""What a revision does not know yet must not be sent to it.

The types are the union of all revisions. Each class and each field carries the revision
it came with (`mcp_host.types.base.Since`), and that is all the knowledge there is: this
module only walks a message. It refuses what the older schema would refuse, and nothing
else. Every object of every schema is open, so a field that is merely newer goes through;
a content block, a message or a shape of value that the revision does not list does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args, get_origin

from mcp_host.types.base import Model, ShapeSince, Since


class Unknown(NamedTuple):
    """What a revision has no place for, when it came, and the steps that lead to it, the last one first."""

    what: str
    since: str
    steps: list[str]

    def __str__(self) -> str:
        path = "".join(reversed(self.steps)).removeprefix(".")
        return f"{self.what}{f' at {path}' if path else ''} came with revision {self.since}"


def first_unknown(message: Model, revision: str) -> str | None:
    """The first thing in *message* that *revision* has no place for, in words; None if it may be sent.

    ``ToolUseContent at content[1] came with revision 2025-11-25``
    """
    if revision > message.until:
        return f"{type(message).__name__} left after revision {message.until}"
    found = _in_model(message, revision)
    return None if found is None else str(found)


def _in_model(model: Model, revision: str) -> Unknown | None:
    if model.since > revision:
        return Unknown(type(model).__name__, model.since, [])
    given = model.model_fields_set
    for name, marks in _fields_in_question(type(model)):
        if name in given and (found := _in_field(getattr(model, name), marks, revision)) is not None:
            found.steps.append(f".{name}")
            return found
    return None


@cache
def _fields_in_question(model: type[Model]) -> Sequence[tuple[str, Sequence[Since | ShapeSince]]]:
    """The fields that have a mark, or whose values may hold something that has, each with its marks."""
    marked = {
        name: [mark for mark in field.metadata if isinstance(mark, Since | ShapeSince)]
        for name, field in model.model_fields.items()
    }
    return [
        (name, marks) for name, marks in marked.items() if marks or not _is_plain(model.model_fields[name].annotation)
    ]


def _is_plain(annotation: object) -> bool:
    """Whether all values of that type are texts, numbers and the like."""
    if get_origin(annotation) is Literal:
        return True
    members = get_args(annotation)
    return all(map(_is_plain, members)) if members else annotation in (str, int, float, bool, type(None))


def _in_field(value: object, marks: Sequence[Since | ShapeSince], revision: str) -> Unknown | None:
    for mark in marks:
        if mark.revision <= revision:
            continue
        if isinstance(mark, Since):
            return None  # an additional property there, and whatever it holds is nobody's business
        if mark.has_shape(value):
            return Unknown(mark.what, mark.revision, [])
    return _in_value(value, revision)


def _in_value(value: object, revision: str) -> Unknown | None:
    """Containers of models hold nothing else, so the first item tells whether to look at the others."""
    members: Iterable[tuple[object, object]]
    match value:
        case Model():
            return _in_model(value, revision)
        case [Model(), *_]:
            members = enumerate(value)
        case dict() if isinstance(next(iter(value.values()), None), Model):
            members = value.items()
        case _:
            return None
    for key, item in members:
        if (found := _in_value(item, revision)) is not None:
            found.steps.append(f"[{key!r}]")
            return found
    return None
