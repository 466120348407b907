"""Walking a value and a schema side by side, until the first thing that does not agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_host.errors import McpError, excerpt
from mcp_host.protocol.patterns import Budget, Pattern

if TYPE_CHECKING:
    from referencing import Resource, Specification
    from referencing._core import Resolved, Resolver

MAX_DEPTH = 200  # schemas within schemas that are being applied: 3 to 5 frames of Python's stack each
SHOWN = 60  # characters of a value or a name in a message
PATH_SHOWN = 120

Plan: TypeAlias = "list[tuple[Callable[[Evaluation, Any, Any, Here], Mismatch | None], Any]]"


class UncheckableSchema(McpError):
    """A schema that no value can be checked against: invalid, remote, cyclic or too costly.

    It stays inside the package. What a *server* sent is then refused, in an error that carries
    it (`InvalidToolOutput.result`), for schemas that cannot be resolved "SHOULD be rejected rather
    than silently treated as permissive" (2026-07-28, basic). What *we* send to the schema's own
    author goes out unchecked, with a line in the log: the check would have been a courtesy.
    """


@dataclass(slots=True)
class Mismatch:
    """Why a value does not conform. *path* leads to the place, innermost step first."""

    reason: str
    path: list[str | int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{_json_path(self.path)}: {self.reason}" if self.path else self.reason


def _json_path(path: list[str | int]) -> str:
    steps = "".join([f".{step}" if isinstance(step, str) else f"[{step}]" for step in reversed(path)])
    return "$" + excerpt(steps, PATH_SHOWN)


def shown(value: object) -> str:
    """A value in a message: never more than a few words, however large it is."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return f'"{excerpt(value, SHOWN)}"'
        case int() if value.bit_length() > 4 * SHOWN:
            return f"a number of {value.bit_length()} bits"
        case int() | float():
            return str(value)
        case list():
            return f"an array of {len(value)} items"
        case dict():
            return f"an object of {len(value)} members"
    return f"a Python {type(value).__name__}"


def canonical(value: object, budget: Budget) -> str:
    """A text that two values share exactly when JSON Schema calls them equal: 1 and 1.0, but not 1 and true.

    A text, because Python's hashes of numbers are no secret: an array of numbers whose hashes
    collide would make any set of them quadratic.
    """
    budget.spend()
    match value:
        case str():
            budget.spend(len(value) // 4096)  # copying text is fast
            return f'"{len(value)}:{value}'
        case None | True | False:
            return repr(value)
        case int():
            return hex(value)
        case float():
            return hex(int(value)) if value.is_integer() else value.hex()
        case list():
            return "[" + ",".join([canonical(item, budget) for item in value]) + "]"
        case dict():
            members = [canonical(name, budget) + canonical(value[name], budget) for name in sorted(value)]
            return "{" + ",".join(members) + "}"
    return f"{type(value).__name__} {id(value)}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version of JSON Schema."""

    uri: str
    keywords: Mapping[str, Callable[[Evaluation, Any, Any, Here], Mismatch | None]]
    id_keyword: str = "$id"
    ref_stands_alone: bool = False  # until draft 7, "$ref" hides all its siblings
    contains_evaluates: bool = False  # since 2020-12 unevaluatedItems knows what contains has met

    def plan(self, schema: Mapping[str, Any]) -> Plan:
        """The keywords of a schema, in an order that works."""
        if self.ref_stands_alone and "$ref" in schema:
            return [(self.keywords["$ref"], schema["$ref"])]
        known = [name for name in schema if name in self.keywords]
        known.sort(key=lambda name: name.startswith("unevaluated"))  # they ask what all others have met
        return [(self.keywords[name], schema[name]) for name in known]


@dataclass(slots=True)
class Prepared:
    """A schema that has been looked through. What is keyed by `id` belongs to dicts that live in *root*."""

    dialect: Dialect
    specification: Specification[Any]
    root: Any
    scope: Resolver[Any]
    dynamic: bool = False
    tracking: bool = False
    targets: dict[int, Resolved[Any]] = field(default_factory=dict)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)
    choices: dict[int, frozenset[str]] = field(default_factory=dict)

    def resource(self, schema: Any) -> Resource[Any]:
        return self.specification.create_resource(schema)

    def inside(self, schema: Any, scope: Resolver[Any]) -> Resolver[Any]:
        """Where references point from inside *schema*, which may have an address of its own."""
        if isinstance(schema, dict) and self.dialect.id_keyword in schema:
            return scope.in_subresource(self.resource(schema))
        return scope


@dataclass(slots=True)
class Here:
    """One schema while it is being applied; *met* are the names and indexes that it has looked at."""

    schema: Mapping[str, Any]
    scope: Resolver[Any]
    met: set[str | int]


class Evaluation:
    """One value being checked."""

    def __init__(self, prepared: Prepared, budget: Budget) -> None:
        self.budget = budget
        self.dialect = prepared.dialect
        self.tracking = prepared.tracking  # whether anybody will ask what has been met
        self._prepared = prepared
        self._depth = 0
        self._following: set[tuple[int, int]] = set()

    def run(self, value: object) -> Mismatch | None:
        return self.check(self._prepared.root, value, self._prepared.scope)

    def check(
        self, schema: Any, value: object, scope: Resolver[Any], met: set[str | int] | None = None
    ) -> Mismatch | None:
        """Apply *schema*, which *scope* is inside of already."""
        if isinstance(schema, bool):
            self.budget.spend()
            return None if schema else Mismatch(f"{shown(value)} is not allowed here")
        plan = self._prepared.plans.get(id(schema))
        if plan is None:
            plan = self._prepared.plans[id(schema)] = self.dialect.plan(schema)
        self.budget.spend(1 + len(plan) // 4)
        if self._depth >= MAX_DEPTH:
            raise UncheckableSchema(f"it nests more than {MAX_DEPTH} schemas")
        here = Here(schema, scope, set() if met is None else met)
        mismatch = None
        self._depth += 1
        for keyword, demand in plan:
            mismatch = keyword(self, demand, value, here)
            if mismatch is not None:
                break
        self._depth -= 1
        return mismatch

    def below(self, schema: Any, value: Any, key: Any, here: Here) -> Mismatch | None:
        """Apply *schema* to a member or an item of *value*."""
        if self.tracking:
            here.met.add(key)
        mismatch = self.check(schema, value[key], self.inside(schema, here.scope))
        if mismatch is not None:
            mismatch.path.append(key)
        return mismatch

    def also(self, schema: Any, value: object, here: Here, scope: Resolver[Any] | None = None) -> Mismatch | None:
        """Apply one more schema to the value itself. What it has met counts here, if it agrees."""
        met: set[str | int] = set()
        mismatch = self.check(schema, value, scope or self.inside(schema, here.scope), met)
        if met and mismatch is None:
            self.budget.spend(len(met))
            here.met.update(met)
        return mismatch

    def inside(self, schema: Any, scope: Resolver[Any]) -> Resolver[Any]:
        return self._prepared.inside(schema, scope)

    def follow(self, target: Resolved[Any], value: object, here: Here) -> Mismatch | None:
        """Apply the schema that a reference points to."""
        step = id(target.contents), id(value)
        if step in self._following:
            raise UncheckableSchema("its references go round in a circle")
        self._following.add(step)
        mismatch = self.also(target.contents, value, here, target.resolver)
        self._following.discard(step)
        return mismatch

    def resolve(self, ref: str, here: Here) -> Resolved[Any]:
        known = None if self._prepared.dynamic else self._prepared.targets.get(id(here.schema))
        return here.scope.lookup(ref) if known is None else known

    def resolve_recursive(self, here: Here) -> Resolved[Any]:
        from referencing.jsonschema import lookup_recursive_ref

        known = None if self._prepared.dynamic else self._prepared.targets.get(id(here.schema))
        return lookup_recursive_ref(here.scope) if known is None else known

    def found(self, source: str, text: str) -> bool:
        return self._prepared.patterns[source].found_in(text, self.budget)

    def choices(self, values: list[object]) -> frozenset[str]:
        """An enum's values, written canonically once for each schema."""
        known = self._prepared.choices.get(id(values))
        if known is None:
            known = frozenset([canonical(value, self.budget) for value in values])
            self._prepared.choices[id(values)] = known
        return known
