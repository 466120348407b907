"""Checking values against the JSON Schemas of strangers, in a bounded number of steps.

The `jsonschema` library evaluates. Drafts are those that it knows, 2020-12 unless `$schema` names
another; `format` is an annotation.

A schema comes from whoever wrote the server, and some are traps: references to the network, circles,
26 levels of `anyOf` that fan out into 2^26 branches, patterns that never end. So everything is counted,
and nothing is timed: the same schema and value give the same verdict on every machine. Each keyword and
each subschema that is applied costs a step, plus its share of the arrays and objects that it may walk
through; `_OWN` replaces the keywords whose cost in the library is out of proportion. What cannot be
bounded is refused, and said (`UncheckableSchema`). Seconds are too long for an event loop all the same:
there a check is given a few steps, and if they do not suffice it is made again in a thread.

Importing this module imports `jsonschema`, which takes a tenth of a second: import it when there is a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has one name, and no types
from referencing import Registry, Specification
from referencing.jsonschema import specification_with

from mcp_host.errors import TooManySteps, UncheckableSchema, quoted
from mcp_host.json_schema.problems import TEXT_SHOWN, first_problem, listed_briefly
from mcp_host.json_schema.steps import LETTERS_PER_STEP, RUN, TOO_DEEP, Memory, counted, too_many

MAX_STEPS = 500_000  # of one check: two to four seconds; 10,000 records of 20 members take 460,000
MAX_DEPTH = 200  # keywords within keywords that are being applied: three frames of Python's stack each
MAX_ADDRESS = 1_000  # characters of one "$id" or "$ref", which are joined with each other again and again
MAX_UNEVALUATED = 256  # members or items: the library's unevaluated… compares each with all that are evaluated

REFERENCE = 5  # steps that looking one up costs
ERROR = 3
ENTRIES_PER_STEP = 16  # of an array or an object that a keyword walks through
BITS_PER_STEP = 64  # of numbers that are divided

DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _Object(dict[str, Any]):
    """JSON that is written in a few words, however large it is: the library's messages repeat whole values."""

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
    """Our own copy, in the classes above. 3.0 becomes 3, for to JSON Schema they are the same."""
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, Mapping):
        RUN.get().copy(len(value))
        return _Object({str(name): _copied(member) for name, member in value.items()})
    if isinstance(value, list | tuple):
        RUN.get().copy(len(value))
        return _Array([_copied(item) for item in value])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


class Schema:
    """A schema to check values against, in any number of threads. Made by `compile_schema`."""

    def __init__(self, written: Mapping[str, object], most_steps: int = MAX_STEPS) -> None:
        self.written = written
        self._most_steps = most_steps
        self._too_large = math.inf  # the size of the smallest value that took more than so many
        self._prepared: tuple[Any, Memory] | None = None
        self._refused: UncheckableSchema | None = None

    def mismatch(self, value: object, *, steps: int | None = None, revealing: bool = True) -> str | None:
        """Why decoded JSON does not conform: one sentence with the path (`$.items[3].id: …`), at most
        500 characters, with the value cut short. None when it conforms.

        *steps* bounds the work; `MAX_STEPS` take seconds, and a thousand take some milliseconds.
        Where all of them did not suffice, a value that is as large is not checked again.
        Not *revealing*, the sentence repeats nothing of the value but the names of its members.

        Raises:
            UncheckableSchema: Nobody knows, because of the schema, with the reason.
            TooManySteps: Nor does anybody know here, and with more steps somebody might.
        """
        if self._refused is not None:
            raise self._refused.with_traceback(None)
        whole = steps is None
        steps = self._most_steps if steps is None else steps
        validator, memory = self._prepared or self._prepare(steps)
        if whole and _size(value, enough=self._too_large) >= self._too_large:
            raise too_many(steps)
        try:
            return counted(lambda: first_problem(validator, _copied(value), revealing), memory, steps)
        except TooManySteps:
            if whole:
                self._too_large = _size(value, enough=self._too_large)
            raise

    def problem(self, value: object) -> str | None:
        """As `mismatch()`, with the reason why the schema cannot be checked as one more problem."""
        try:
            return self.mismatch(value)
        except UncheckableSchema as exc:
            return f"its schema cannot be checked: {exc}"

    def _prepare(self, steps: int) -> tuple[Any, Memory]:
        memory = Memory()
        try:
            self._prepared = counted(lambda: _prepare(self.written), memory, steps), memory
        except UncheckableSchema as exc:
            if steps >= self._most_steps or not isinstance(exc, TooManySteps):
                self._refused = exc
            raise
        return self._prepared


def compile_schema(schema: Mapping[str, object], *, most_steps: int = MAX_STEPS) -> Schema:
    """Take a schema to check values against. Costs nothing: the work is done once, at the first value.

    Keep the result, it is the cache; a schema that changes later is not read again.
    *most_steps* bounds a check that is given no other bound.
    """
    return Schema(schema, most_steps)


def _size(value: object, *, enough: float) -> int:
    """How much there is to check: values, and letters of texts and names. Counts no further than *enough*."""
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


def _prepare(written: Mapping[str, object]) -> Any:
    """The validator of a schema, after everything that can be known before there is a value."""
    root = _copied(dict(written))
    survey = _Survey(_dialect(root))
    survey.check_validity(root)
    survey.look_through(root)
    resource = survey.specification.create_resource(root)
    address = resource.id() or ""
    # Crawled here, and not once more at each "#anchor".
    resolver = _known().with_resource(address, resource).crawl().resolver(address)
    survey.follow(root, resolver)
    return _checking(survey.dialect)(root, registry=_known(), _resolver=resolver)


def _dialect(schema: Mapping[str, Any]) -> str:
    named = schema.get("$schema", DEFAULT_DIALECT)
    if isinstance(named, str):
        # Drafts are known by their http address, which some write as https.
        address = named.replace("https://json-schema.org/draft-0", "http://json-schema.org/draft-0").rstrip("#")
        known: Any = validator_for({"$schema": address}, default=Draft202012Validator)
        if known.ID_OF(known.META_SCHEMA).rstrip("#") == address:
            return address
    # "MUST handle unsupported dialects gracefully by returning an appropriate error" (2025-11-25, basic)
    raise UncheckableSchema(f"the dialect {quoted(named)} is not supported")


@cache
def _known() -> Registry[Any]:
    """The official metaschemas, and no way to retrieve more."""
    known: Registry[Any] = REGISTRY.crawl()
    return known


class _Survey:
    """Visits every schema within a schema, and every one that is referred to, whether a value leads there or not."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.specification: Specification[Any] = specification_with(dialect)
        self._seen: set[int] = set()
        self._words: set[str] = set()

    def check_validity(self, schema: object) -> None:
        found = _known().resolver().lookup(self.dialect)
        metaschema = _checking(self.dialect)(found.contents, registry=_known(), _resolver=found.resolver)
        if problem := first_problem(metaschema, schema):
            raise UncheckableSchema(f"it is not a valid JSON Schema: {problem}")

    def look_through(self, schema: Any) -> None:
        """Note what each schema within *schema* asks for, before anything is resolved."""
        todo = [schema]
        while todo:
            part = todo.pop()
            RUN.get().spend(1)
            if isinstance(part, dict) and id(part) not in self._seen:
                self._seen.add(id(part))
                self._note(part)
                todo += self.specification.subresources_of(part)

    def _note(self, schema: dict[str, Any]) -> None:
        if "$schema" in schema and _dialect(schema) != self.dialect:
            raise UncheckableSchema("it mixes two dialects")
        if any(len(str(schema.get(name, ""))) > MAX_ADDRESS for name in ("$id", "id", "$ref")):
            raise UncheckableSchema(f"it has an address of more than {MAX_ADDRESS} characters")
        if "$dynamicRef" in schema or "$recursiveRef" in schema:  # each is looked up along the whole way to it
            raise UncheckableSchema("it refers dynamically, which only the official metaschemas may")
        for source in [*schema.get("patternProperties", ()), *([schema["pattern"]] if "pattern" in schema else ())]:
            RUN.get().pattern(source)
        self._words.update(schema)
        if {"unevaluatedProperties", "patternProperties"} <= self._words:  # there the library runs `re`
            raise UncheckableSchema("it has both unevaluatedProperties and patternProperties")
        for name in ("unevaluatedProperties", "unevaluatedItems"):
            if name in schema:  # it looks into the others uncounted: they go first, and are
                schema[name] = schema.pop(name)

    def follow(self, root: Any, resolver: Any) -> None:
        todo = [(root, resolver)]
        done = set()
        while todo:
            schema, resolver = todo.pop()
            if not isinstance(schema, dict) or id(schema) in done:
                continue
            done.add(id(schema))
            RUN.get().spend(REFERENCE)
            for part in self.specification.subresources_of(schema):
                todo.append((part, resolver.in_subresource(self.specification.create_resource(part))))
            if "$ref" in schema and schema["$ref"].rstrip("#") != self.dialect:
                target = resolver.lookup(schema["$ref"])
                # "#/components/Pet" may lead to where no schema is expected, and so to something that is none
                if id(target.contents) not in self._seen:
                    self.check_validity(target.contents)
                    self.look_through(target.contents)
                todo.append((target.contents, target.resolver))


@cache
def _checking(dialect: str) -> Any:
    """The library's class for a dialect, with every keyword counted."""
    library: Any = validator_for({"$schema": dialect})
    keywords = {name: _bounded(name, _OWN.get(name, keyword)) for name, keyword in library.VALIDATORS.items()}
    checking: Any = extend(library, keywords)  # type: ignore[no-untyped-call]  # its stub has no types
    checking.evolve = _evolve
    return checking


def _evolve(validator: Any, *, schema: Any, _resolver: Any = None) -> Any:
    """Apply a subschema: as the library's own, but a `$schema` in it does not bring in a class that does not count."""
    RUN.get().spend(1)
    return type(validator)(schema, registry=_known(), _resolver=_resolver or validator._resolver)


def _bounded(name: str, keyword: Keyword) -> Keyword:
    def bounded(validator: Any, demand: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        run = RUN.get()
        entries = _entries(value) + (0 if name in _OWN else _entries(demand))
        if name in ("dependentRequired", "dependencies"):
            entries += sum(map(_entries, demand.values()))
        if name.startswith("unevaluated") and _entries(value) > MAX_UNEVALUATED:
            raise UncheckableSchema(f"its {name} would meet more than {MAX_UNEVALUATED} entries")
        run.spend(1 + entries // ENTRIES_PER_STEP + (REFERENCE if name == "$ref" else 0))
        run.depth += 1
        if run.depth > MAX_DEPTH:
            raise UncheckableSchema(TOO_DEEP)
        try:
            for error in keyword(validator, demand, value, schema) or ():
                run.spend(ERROR + len(error.message) // LETTERS_PER_STEP)
                yield error
        finally:  # many ask for the first error only
            run.depth -= 1

    return bounded


def _entries(value: object) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _pattern(validator: Any, source: str, value: object, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not RUN.get().found(source, value):
        yield ValidationError(f"{value!r} does not match {source!r}")


def _pattern_properties(validator: Any, members: Any, value: object, schema: Any) -> Iterator[ValidationError]:
    for name, member in value.items() if isinstance(value, dict) else ():
        for source, part in members.items():
            if RUN.get().found(source, name):
                yield from validator.descend(member, part, path=name, schema_path=source)


def _additional_properties(validator: Any, part: Any, value: object, schema: Any) -> Iterator[ValidationError]:
    listed, sources = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, member in value.items() if isinstance(value, dict) and part is not True else ():
        if name in listed or any(RUN.get().found(source, name) for source in sources):
            continue
        if part is False:  # said in fewer words than the library's
            yield ValidationError(f"there may be no {_Text(name)!r}")
        else:
            yield from validator.descend(member, part, path=name)


def _enum(validator: Any, listed: list[object], value: object, schema: Any) -> Iterator[ValidationError]:
    run = RUN.get()
    choices = run.memory.choices.get(id(listed))
    if choices is None:
        choices = run.memory.choices[id(listed)] = frozenset([run.canonical(choice) for choice in listed])
    if run.canonical(value) not in choices:
        yield ValidationError(f"{value!r} is not one of {listed_briefly(listed)}")


def _const(validator: Any, wanted: object, value: object, schema: Any) -> Iterator[ValidationError]:
    if RUN.get().canonical(value) != RUN.get().canonical(wanted):
        yield ValidationError(f"{value!r} is not {wanted!r}")


def _unique_items(validator: Any, wanted: bool, value: object, schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(value, list) and len({RUN.get().canonical(item) for item in value}) < len(value):
        yield ValidationError(f"{value!r} has one of them twice")


def _multiple_of(validator: Any, unit: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Exactly: to the library's floats, 19.99 is no multiple of 0.01."""
    if validator.is_type(value, "number"):
        numbers = [_exact(value), _exact(unit)]
        RUN.get().spend(sum(n.numerator.bit_length() + n.denominator.bit_length() for n in numbers) // BITS_PER_STEP)
        if (numbers[0] / numbers[1]).denominator != 1:
            yield ValidationError(f"{value!r} is not a multiple of {unit!r}")


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


_OWN: dict[str, Keyword] = {
    "pattern": _pattern,  # `re`, see `mcp_host.json_schema.patterns`
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "enum": _enum,  # one comparison for each choice
    "const": _const,
    "uniqueItems": _unique_items,  # pairwise: 6.8 s for 2,000 objects
    "multipleOf": _multiple_of,
    "divisibleBy": _multiple_of,
}
