"""Checking values against the JSON Schemas of servers, in a bounded number of steps.

The `jsonschema` library does the work. It knows several drafts; 2020-12 is the default, and
`$schema` selects another. `format` is an annotation.

Schemas come from the authors of servers, and some are malicious: references to the network, cycles,
26 levels of `anyOf` with 2^26 branches, patterns that backtrack for hours. So the work is counted,
not timed: the same schema and value give the same result on every machine. Each applied keyword and
subschema costs a step, plus a share of the arrays and objects that it iterates over. `_KEYWORDS`
replaces keywords that are too slow in the library. A schema whose cost cannot be bounded is
rejected (`UncheckableSchema`). The full budget takes seconds, so a check on the event loop gets a few
steps, and is repeated in a thread if they are not enough.

Importing this module imports `jsonschema`, which takes a tenth of a second: import it on first use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has one name, and no types
from referencing import Registry, Specification
from referencing.jsonschema import specification_with

from mcp_host.errors import InvalidSchema, TooManySteps, UncheckableSchema, excerpt, quoted
from mcp_host.json_schema.patterns import MAX_WEIGHT, Pattern

MAX_INLINE_STEPS = 2_000  # steps of a check that are made on the event loop: about 20 milliseconds
MAX_STEPS = 500_000  # of one check: one to four seconds; 10,000 records of 20 members take 460,000
MAX_DEPTH = 200  # nested keywords: each takes three frames of Python's stack
MAX_ADDRESS = 1_000  # characters of one "$id" or "$ref", which the library joins repeatedly
MAX_UNEVALUATED = 256  # members or items: the library compares each with all evaluated ones

REFERENCE = 5  # steps for resolving a reference
ERROR = 3  # steps for one problem that was found
ENTRIES_PER_STEP = 16  # of an array or an object that a keyword iterates over
BITS_PER_STEP = 64  # of the operands of a division
COPIES_PER_STEP = 32  # values
LETTERS_PER_STEP = 100  # characters of a text
MOVES_PER_STEP = 400  # of a pattern's automaton; see `Pattern.weight`

MAX_PROBLEM = 500  # characters of one message
PATH_SHOWN = 120
TEXT_SHOWN = 60
LISTED = 5  # of the values to choose from

TOO_DEEP = "it nests too deeply"

DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"

T = TypeVar("T")
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class Schema:
    """A schema to check values against. It is thread-safe.

    The first check prepares it: keep the object to keep that work. Later changes of *source* have no effect.
    *max_steps* bounds a check without *steps*.
    """

    def __init__(self, source: Mapping[str, object], *, max_steps: int = MAX_STEPS) -> None:
        self.source = source
        self._max_steps = max_steps
        self._too_large = math.inf  # the size of the smallest value that exceeded the budget
        self._prepared: tuple[Any, SchemaCache] | None = None
        self._refused: UncheckableSchema | None = None

    def mismatch(self, value: object, *, steps: int | None = None, show_values: bool = True) -> str | None:
        """Why a decoded JSON value does not conform: one sentence with the path (`$.items[3].id: …`), at most
        500 characters, with the value cut short. None if it conforms.

        *steps* bounds the work: `MAX_STEPS` take seconds, a thousand some milliseconds.
        After a check without *steps* exceeded the budget, values of that size are not checked again.
        Without *show_values* the sentence contains nothing of the value but the names of members.

        Raises:
            UncheckableSchema: The schema cannot be checked, with the reason.
            TooManySteps: *steps* were not enough.
        """
        if self._refused is not None:
            raise self._refused.with_traceback(None)
        whole = steps is None
        steps = self._max_steps if steps is None else steps
        validator, cache = self._prepared or self._prepare(steps)
        if whole and _size(value, enough=self._too_large) >= self._too_large:
            raise _too_many(steps)
        try:
            return within_budget(lambda: _first_problem(validator, _copied(value), show_values), cache, steps)
        except TooManySteps:
            if whole:
                self._too_large = _size(value, enough=self._too_large)
            raise

    async def mismatch_async(self, value: object, lane: CapacityLimiter, *, show_values: bool = True) -> str | None:
        """As `mismatch`. A check of more than `MAX_INLINE_STEPS` runs in a thread of *lane*: each slows the event loop a little.

        If the caller is cancelled, the thread is left behind.

        Raises:
            UncheckableSchema: As `mismatch`.
        """
        try:
            return self.mismatch(value, steps=MAX_INLINE_STEPS, show_values=show_values)
        except TooManySteps:
            check = partial(self.mismatch, value, show_values=show_values)
            return await to_thread.run_sync(check, abandon_on_cancel=True, limiter=lane)

    def _prepare(self, steps: int) -> tuple[Any, SchemaCache]:
        cache = SchemaCache()
        try:
            self._prepared = within_budget(lambda: _prepare(self.source), cache, steps), cache
        except UncheckableSchema as exc:
            if steps >= self._max_steps or not isinstance(exc, TooManySteps):
                self._refused = exc
            raise
        return self._prepared


def _too_many(steps: int) -> TooManySteps:
    return TooManySteps(f"it takes more than {steps} steps")


@dataclass(frozen=True, slots=True)
class SchemaCache:
    """What a schema keeps between checks."""

    patterns: dict[str, Pattern] = field(default_factory=dict)
    choices: dict[int, frozenset[str]] = field(default_factory=dict)  # by the id of the list in the schema


@dataclass(slots=True)
class StepBudget:
    """The steps of one check, and their limit."""

    cache: SchemaCache
    steps: int
    spent: int = 0
    copied: int = 0
    depth: int = 0

    def spend(self, steps: int) -> None:
        self.spent += steps
        if self.spent > self.steps:
            raise _too_many(self.steps)

    def copy(self, values: int) -> None:
        self.copied += 1 + values
        self.spend(self.copied // COPIES_PER_STEP)
        self.copied %= COPIES_PER_STEP

    def pattern(self, source: str) -> Pattern:
        patterns = self.cache.patterns
        if source not in patterns:
            patterns[source] = Pattern(source)
            loaded = list(patterns.values())  # a copy, because another thread may add one
            if sum([pattern.weight for pattern in loaded]) > MAX_WEIGHT:
                raise UncheckableSchema("its patterns are too large together")
        return patterns[source]

    def matches(self, source: str, text: str) -> bool:
        pattern = self.pattern(source)
        self.spend(1 + len(text) * pattern.weight // MOVES_PER_STEP)
        return pattern.matches(text)

    def canonical(self, value: object) -> str:
        """A text that is the same for two values exactly if JSON Schema calls them equal."""
        text = _WRITER.encode(value)
        self.spend(1 + len(text) // LETTERS_PER_STEP)
        return text


BUDGET: ContextVar[StepBudget] = ContextVar("BUDGET")
_WRITER = json.JSONEncoder(sort_keys=True)


def within_budget(work: Callable[[], T], cache: SchemaCache, steps: int) -> T:
    """Run *work* with a budget of so many steps.

    Raises:
        UncheckableSchema: Any failure, because the schema caused it.
    """
    token = BUDGET.set(StepBudget(cache, steps))
    try:
        return work()
    except UncheckableSchema:
        raise
    except RecursionError:
        raise UncheckableSchema(TOO_DEEP) from None
    except Exception as exc:  # from three libraries: invalid URIs, numbers that are too large
        raise UncheckableSchema(f"{type(exc).__name__}: {excerpt(str(exc))}") from exc
    finally:
        BUDGET.reset(token)


def _size(value: object, *, enough: float) -> int:
    """The number of values and of characters in strings and names. Stops counting at *enough*."""
    size, todo = 0, [value]
    while todo and size < enough:
        part = todo.pop()
        size += 1
        match part:
            case str():
                size += len(part)
            case Mapping():
                size += sum(map(len, part))
                todo += part.values()
            case list() | tuple():
                todo += part
    return size


class _Object(dict[str, Any]):
    """An object with a short `repr()`, because the library's messages contain whole values."""

    def __repr__(self) -> str:
        return f"an object of {len(self)} members"


class _Array(list[Any]):
    def __repr__(self) -> str:
        return f"an array of {len(self)} items"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return quoted(str(self), TEXT_SHOWN)


def _copied(value: object) -> Any:
    """A copy in the classes above. 3.0 becomes 3, which is the same number in JSON Schema."""
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, Mapping):
        BUDGET.get().copy(len(value))
        return _Object({str(name): _copied(member) for name, member in value.items()})
    if isinstance(value, list | tuple):
        BUDGET.get().copy(len(value))
        return _Array([_copied(item) for item in value])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _prepare(source: Mapping[str, object]) -> Any:
    """The validator of a schema, after all checks of the schema itself."""
    root = _copied(dict(source))
    check = _SchemaCheck(_dialect(root))
    check.check_validity(root)
    check.check_subschemas(root)
    resource = check.specification.create_resource(root)
    address = resource.id() or ""
    # Crawled once, not for each "#anchor".
    resolver = _metaschemas().with_resource(address, resource).crawl().resolver(address)
    check.follow_references(root, resolver)
    return _validator_class(check.dialect)(root, registry=_metaschemas(), _resolver=resolver)


def _dialect(schema: Mapping[str, Any]) -> str:
    named = schema.get("$schema", DEFAULT_DIALECT)
    if isinstance(named, str):
        # The official URIs of drafts are http; some schemas write https.
        address = named.replace("https://json-schema.org/draft-0", "http://json-schema.org/draft-0").rstrip("#")
        known: Any = validator_for({"$schema": address}, default=Draft202012Validator)
        if known.ID_OF(known.META_SCHEMA).rstrip("#") == address:
            return address
    # "MUST handle unsupported dialects gracefully by returning an appropriate error" (2025-11-25, basic)
    raise UncheckableSchema(f"the dialect {quoted(named)} is not supported")


@cache
def _metaschemas() -> Registry[Any]:
    """The official metaschemas, without a way to retrieve others."""
    known: Registry[Any] = REGISTRY.crawl()
    return known


class _SchemaCheck:
    """Checks every subschema and every referenced schema, before there is a value."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.specification: Specification[Any] = specification_with(dialect)
        self._seen: set[int] = set()
        self._keywords: set[str] = set()

    def check_validity(self, schema: object) -> None:
        found = _metaschemas().resolver().lookup(self.dialect)
        metaschema = _validator_class(self.dialect)(found.contents, registry=_metaschemas(), _resolver=found.resolver)
        if problem := _first_problem(metaschema, schema):
            raise InvalidSchema(f"it is not a valid JSON Schema: {problem}")

    def check_subschemas(self, schema: Any) -> None:
        """Check each subschema on its own, before references are resolved."""
        todo = [schema]
        while todo:
            part = todo.pop()
            BUDGET.get().spend(1)
            if isinstance(part, dict) and id(part) not in self._seen:
                self._seen.add(id(part))
                self._check_keywords(part)
                todo += self.specification.subresources_of(part)

    def _check_keywords(self, schema: dict[str, Any]) -> None:
        if "$schema" in schema and _dialect(schema) != self.dialect:
            raise UncheckableSchema("it mixes two dialects")
        if any(len(str(schema.get(name, ""))) > MAX_ADDRESS for name in ("$id", "id", "$ref")):
            raise UncheckableSchema(f"it has an address of more than {MAX_ADDRESS} characters")
        if "$dynamicRef" in schema or "$recursiveRef" in schema:  # resolving one searches all enclosing schemas
            raise UncheckableSchema("it has a dynamic reference, which only the official metaschemas may have")
        for source in [*schema.get("patternProperties", ()), *([schema["pattern"]] if "pattern" in schema else ())]:
            BUDGET.get().pattern(source)
        self._keywords.update(schema)
        if {"unevaluatedProperties", "patternProperties"} <= self._keywords:  # the library would use `re`
            raise UncheckableSchema("it has both unevaluatedProperties and patternProperties")
        for name in ("unevaluatedProperties", "unevaluatedItems"):
            if name in schema:  # moved to the end: it evaluates the other keywords again, uncounted
                schema[name] = schema.pop(name)

    def follow_references(self, root: Any, resolver: Any) -> None:
        todo = [(root, resolver)]
        done = set()
        while todo:
            schema, resolver = todo.pop()
            if not isinstance(schema, dict) or id(schema) in done:
                continue
            done.add(id(schema))
            BUDGET.get().spend(REFERENCE)
            for part in self.specification.subresources_of(schema):
                todo.append((part, resolver.in_subresource(self.specification.create_resource(part))))
            if "$ref" in schema and schema["$ref"].rstrip("#") != self.dialect:
                target = resolver.lookup(schema["$ref"])
                # "#/components/Pet" may refer to something that is no schema
                if id(target.contents) not in self._seen:
                    self.check_validity(target.contents)
                    self.check_subschemas(target.contents)
                todo.append((target.contents, target.resolver))


@cache
def _validator_class(dialect: str) -> Any:
    """The library's validator class for a dialect, with every keyword counted."""
    library: Any = validator_for({"$schema": dialect})
    keywords = {name: _counted(name, _KEYWORDS.get(name, keyword)) for name, keyword in library.VALIDATORS.items()}
    checking: Any = extend(library, keywords)  # type: ignore[no-untyped-call]  # its stub has no types
    checking.evolve = _evolve
    checking.descend = _with_path(library.descend)
    return checking


def _evolve(validator: Any, *, schema: Any, _resolver: Any = None) -> Any:
    """As the library's `evolve`, but a `$schema` in a subschema does not select an uncounted class."""
    BUDGET.get().spend(1)
    return type(validator)(schema, registry=_metaschemas(), _resolver=_resolver or validator._resolver)


def _with_path(descend: Callable[..., Iterator[ValidationError]]) -> Callable[..., Iterator[ValidationError]]:
    """As the library's *descend*, which leaves out the last step of the path if the schema there is ``false``."""

    def descend_with_path(validator: Any, instance: object, schema: Any, path: Any = None, **rest: Any) -> Any:
        if schema is False and path is not None:
            problem = f"False schema does not allow {instance!r}"
            no_keyword: Any = None  # as the library says it; its stub does not know
            error = ValidationError(problem, no_keyword, [path], validator_value=None, instance=instance, schema=False)
            return iter([error])
        return descend(validator, instance, schema, path, **rest)

    return descend_with_path


def _counted(name: str, keyword: Keyword) -> Keyword:
    def counted(validator: Any, required: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        budget = BUDGET.get()
        entries = _entries(value) + (0 if name in _KEYWORDS else _entries(required))
        if name in ("dependentRequired", "dependencies"):
            entries += sum(map(_entries, required.values()))
        if name.startswith("unevaluated") and _entries(value) > MAX_UNEVALUATED:
            raise UncheckableSchema(f"its {name} would meet more than {MAX_UNEVALUATED} entries")
        budget.spend(1 + entries // ENTRIES_PER_STEP + (REFERENCE if name == "$ref" else 0))
        budget.depth += 1
        if budget.depth > MAX_DEPTH:
            raise UncheckableSchema(TOO_DEEP)
        try:
            for error in keyword(validator, required, value, schema) or ():
                budget.spend(ERROR + len(error.message) // LETTERS_PER_STEP)
                yield error
        finally:  # callers may stop at the first error
            budget.depth -= 1

    return counted


def _entries(value: object) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _pattern(validator: Any, source: str, value: object, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not BUDGET.get().matches(source, value):
        yield ValidationError(f"{value!r} does not match {source!r}")


def _pattern_properties(validator: Any, members: Any, value: object, schema: Any) -> Iterator[ValidationError]:
    for name, member in value.items() if isinstance(value, dict) else ():
        for source, part in members.items():
            if BUDGET.get().matches(source, name):
                yield from validator.descend(member, part, path=name, schema_path=source)


def _additional_properties(validator: Any, part: Any, value: object, schema: Any) -> Iterator[ValidationError]:
    listed, sources = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, member in value.items() if isinstance(value, dict) and part is not True else ():
        if name in listed or any(BUDGET.get().matches(source, name) for source in sources):
            continue
        if part is False:
            yield ValidationError(f"there may be no {_Text(name)!r}")
        else:
            yield from validator.descend(member, part, path=name)


def _enum(validator: Any, listed: list[object], value: object, schema: Any) -> Iterator[ValidationError]:
    budget = BUDGET.get()
    choices = budget.cache.choices.get(id(listed))
    if choices is None:
        choices = budget.cache.choices[id(listed)] = frozenset([budget.canonical(choice) for choice in listed])
    if budget.canonical(value) not in choices:
        yield ValidationError(f"{value!r} is not one of {_listed(listed)}")


def _const(validator: Any, wanted: object, value: object, schema: Any) -> Iterator[ValidationError]:
    if BUDGET.get().canonical(value) != BUDGET.get().canonical(wanted):
        yield ValidationError(f"{value!r} is not {wanted!r}")


def _unique_items(validator: Any, wanted: bool, value: object, schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(value, list) and len({BUDGET.get().canonical(item) for item in value}) < len(value):
        yield ValidationError(f"{value!r} has one of them twice")


def _multiple_of(validator: Any, unit: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Exact arithmetic: with floats, 19.99 is not a multiple of 0.01."""
    if validator.is_type(value, "number"):
        numbers = [_exact(value), _exact(unit)]
        BUDGET.get().spend(sum(n.numerator.bit_length() + n.denominator.bit_length() for n in numbers) // BITS_PER_STEP)
        if (numbers[0] / numbers[1]).denominator != 1:
            yield ValidationError(f"{value!r} is not a multiple of {unit!r}")


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


_KEYWORDS: dict[str, Keyword] = {
    "pattern": _pattern,  # `re`, see `mcp_host.json_schema.patterns`
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "enum": _enum,  # faster for many choices
    "const": _const,
    "uniqueItems": _unique_items,  # the library compares pairs: 6.8 s for 2,000 objects
    "multipleOf": _multiple_of,
    "divisibleBy": _multiple_of,
}


def _first_problem(validator: Any, value: object, show_values: bool = True) -> str | None:
    """The first error, with its path. Without *show_values* the text contains nothing of the value but names."""
    error = next(validator.iter_errors(value), None)
    if error is None:
        return None
    if not show_values and (choices := _choices(error)):
        nearest, message = error, _VIOLATIONS["enum"].format(_listed(choices))
    else:
        nearest = best_match([error]) or error  # in the most likely alternative of "anyOf"
        message = _of_alternatives(nearest, show_values) if nearest.context else _said(nearest, show_values)
    path = excerpt(nearest.json_path, PATH_SHOWN)
    return excerpt(message if path == "$" else f"{path}: {message}", MAX_PROBLEM)


def _of_alternatives(error: ValidationError, show_values: bool) -> str:
    """What is wrong with a value by each alternative, where none of them is the most likely."""
    firsts: dict[str | int, ValidationError] = {}
    for each in error.context or ():
        firsts.setdefault(next(iter(each.relative_schema_path), ""), each)  # an alternative that is False has no path
    kinds: list[object] = []
    said: list[str] = []
    for each in firsts.values():
        if each.validator == "type" and not each.relative_path:
            kinds += each.validator_value if isinstance(each.validator_value, list) else [each.validator_value]
        else:
            message = _said(each, show_values)
            said.append(f"{excerpt(each.json_path, PATH_SHOWN)}: {message}" if each.relative_path else message)
    of_types = _VIOLATIONS["type"].format(_listed([*dict.fromkeys(kinds)]))
    if not said:
        return f"{error.instance!r} is {of_types}" if show_values else of_types
    return f"fits no alternative: {'; '.join([of_types] * bool(kinds) + [*dict.fromkeys(said)][:LISTED])}"


def _said(error: ValidationError, show_values: bool) -> str:
    return error.message if show_values else _without_values(error)


def _without_values(error: ValidationError) -> str:
    """What is wrong, in terms of the schema only."""
    keyword = error.validator
    required: Any = error.validator_value
    if keyword is None:
        return "no value is allowed"
    if keyword not in _VIOLATIONS and isinstance(error.instance, dict | list):
        return error.message  # which contains names and counts
    shown = excerpt(repr(required), TEXT_SHOWN)  # raises ValueError for an integer of 5,000 digits
    if keyword in _VIOLATIONS:
        lists = keyword in ("type", "enum") and isinstance(required, list)
        return _VIOLATIONS[keyword].format(_listed(required) if lists else shown, s="" if required == 1 else "s")
    return f"it violates {quoted(keyword)}, which is {shown}"


def _choices(error: ValidationError) -> Sequence[Any]:
    """The choices, if the alternatives are constants: an enum with titles."""
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return ()
    parts: Any = error.validator_value
    is_choice = all(isinstance(part, dict) and "const" in part for part in parts)
    return [part["const"] for part in parts] if is_choice else ()


def _listed(values: Sequence[Any]) -> str:
    more = f" or {len(values) - LISTED} more" if len(values) > LISTED else ""
    return ", ".join(map(repr, values[:LISTED])) + more


_VIOLATIONS = {
    "type": "not of type {}",
    "enum": "not one of: {}",
    "const": "not {}",
    "minimum": "less than the minimum of {}",
    "maximum": "greater than the maximum of {}",
    "exclusiveMinimum": "not greater than {}",
    "exclusiveMaximum": "not less than {}",
    "multipleOf": "not a multiple of {}",
    "minLength": "shorter than {} character{s}",
    "maxLength": "longer than {} character{s}",
    "pattern": "does not match {}",
    "minItems": "fewer than {} item{s}",
    "maxItems": "more than {} item{s}",
}
"""How a value violates each keyword, whose own value goes into the braces."""
