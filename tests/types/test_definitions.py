"""The classes have all definitions and fields of the five official schemas, and their first revisions."""

from __future__ import annotations

import pytest

import mcp_host.types
from mcp_host.types.base import Model
from mcp_host.types.revisions import Since
from tests import spec
from tests.types.places import properties_of

pytestmark = spec.needs_spec

# Annotated held nothing but annotations, and is gone since 2025-03-26; Python needs the name for itself.
RENAMED = {"Annotated": "Annotations"}

# Ours alone: the bases of the others, and the stand-in for blocks that no schema has.
NOT_IN_THE_SCHEMA = {"InputCall", "Model", "ResultResponse", "TypedNotification", "TypedRequest", "UnknownContent"}


def classes() -> list[type[Model]]:
    exported = [getattr(mcp_host.types, name) for name in dir(mcp_host.types)]
    models = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, Model)]
    return [model for model in models if model.__name__ not in NOT_IN_THE_SCHEMA]


def revisions_of(cls: type[Model]) -> list[str]:
    return [revision for revision in spec.REVISIONS if properties_of(cls, revision) is not None]


def first_with(cls: type[Model], wire_name: str) -> str | None:
    having = [revision for revision in spec.REVISIONS if wire_name in (properties_of(cls, revision) or ())]
    return having[0] if having else None


@pytest.mark.parametrize("revision", spec.REVISIONS)
def test_every_definition_of_a_revision_can_be_imported(revision: str) -> None:
    names = {RENAMED.get(name, name) for name in spec.definitions(revision)}

    assert names - set(dir(mcp_host.types)) == set()


def test_a_class_names_its_first_revision() -> None:
    assert {cls: cls.since for cls in classes()} == {cls: revisions_of(cls)[0] for cls in classes()}


def test_a_class_has_the_fields_of_all_revisions_each_with_its_first_one(subtests: pytest.Subtests) -> None:
    for cls in classes():
        with subtests.test(cls=cls):
            cls.model_rebuild()  # older pydantics give fields their aliases only when they build a class
            ours = {}
            for field in cls.model_fields.values():
                marks = [mark.revision for mark in field.metadata if isinstance(mark, Since)]
                ours[field.alias] = max([cls.since, *marks])
            last = revisions_of(cls)[-1]
            ours = {
                name: since for name, since in ours.items() if since <= last
            }  # inherited, but too late for this one
            theirs = set().union(*(properties_of(cls, revision) or () for revision in spec.REVISIONS)) - {"$schema"}

            assert ours == {name: first_with(cls, name) for name in theirs}
