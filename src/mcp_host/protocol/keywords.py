"""What each keyword of JSON Schema demands of a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from mcp_host.protocol.evaluation import Evaluation, Here, Mismatch, canonical, shown

Keyword: TypeAlias = Callable[[Evaluation, Any, Any, Here], Mismatch | None]

LOOKUPS_PER_STEP = 16  # looking up a name takes a sixteenth of the time of a step


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


KINDS: dict[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or float.is_integer(value)),  # type: ignore[arg-type]  # a float by then
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _type(run: Evaluation, kinds: str | list[str], value: object, here: Here) -> Mismatch | None:
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if any(KINDS[kind](value) for kind in kinds):
        return None
    return Mismatch(f"{shown(value)} is not of type {' or '.join(kinds)}")


def _enum(run: Evaluation, choices: list[object], value: object, here: Here) -> Mismatch | None:
    if canonical(value, run.budget) in run.choices(choices):
        return None
    return Mismatch(f"{shown(value)} is not one of {_some(choices)}")


def _const(run: Evaluation, wanted: object, value: object, here: Here) -> Mismatch | None:
    if canonical(value, run.budget) == canonical(wanted, run.budget):
        return None
    return Mismatch(f"{shown(value)} is not {shown(wanted)}")


def _some(values: Iterable[object]) -> str:
    first, rest = list(values)[:5], len(list(values)) - 5
    return ", ".join(map(shown, first)) + (f" or {rest} more" if rest > 0 else "")


def _bound(words: str, broken: Callable[[Any, Any], bool], measure: Callable[[Any], Any], kind: str) -> Keyword:
    """A keyword that compares one number of the value with its own."""
    fits = KINDS[kind]

    def keyword(run: Evaluation, bound: Any, value: Any, here: Here) -> Mismatch | None:
        if not fits(value) or isinstance(bound, bool) or not broken(measure(value), bound):
            return None
        return Mismatch(f"{shown(value)} {words} {shown(bound)}")

    return keyword


def _less(one: Any, other: Any) -> bool:
    return bool(one < other)


def _more(one: Any, other: Any) -> bool:
    return bool(one > other)


def _itself(value: Any) -> Any:
    return value


def _in_draft_4(plain: Keyword, strict: Keyword, switch: str) -> Keyword:
    """Draft 4 has `exclusiveMinimum: true` beside `minimum`."""

    def keyword(run: Evaluation, bound: Any, value: Any, here: Here) -> Mismatch | None:
        return (strict if here.schema.get(switch) is True else plain)(run, bound, value, here)

    return keyword


def _multiple_of(run: Evaluation, unit: float, value: Any, here: Here) -> Mismatch | None:
    if not _is_number(value):
        return None
    try:
        whole = (_exact(value) / _exact(unit)).denominator == 1
    except (ValueError, OverflowError):  # not a number, or infinite: nothing that JSON can say
        whole = False
    return None if whole else Mismatch(f"{shown(value)} is not a multiple of {shown(unit)}")


def _exact(number: float) -> Fraction:
    """The number as it was written: 0.0075 is 75 times 0.0001, though no two floats say so."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _pattern(run: Evaluation, source: str, value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, str) or run.found(source, value):
        return None
    return Mismatch(f"{shown(value)} does not match the pattern {shown(source)}")


def _required(run: Evaluation, names: list[str], value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, dict):
        return None
    run.budget.spend(len(names) // LOOKUPS_PER_STEP)
    for name in names:
        if name not in value:
            return Mismatch(f"{shown(name)} is missing")
    return None


def _properties(run: Evaluation, members: Mapping[str, Any], value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, dict):
        return None
    run.budget.spend(len(members) // LOOKUPS_PER_STEP)
    for name, schema in members.items():
        if name in value and (mismatch := run.below(schema, value, name, here)):
            return mismatch
    return None


def _pattern_properties(run: Evaluation, members: Mapping[str, Any], value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, dict):
        return None
    for source, schema in members.items():
        for name in value:
            if run.found(source, name) and (mismatch := run.below(schema, value, name, here)):
                return mismatch
    return None


def _additional_properties(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, dict):
        return None
    run.budget.spend(len(value) // LOOKUPS_PER_STEP)
    listed = here.schema.get("properties", {})
    sources = here.schema.get("patternProperties", {})
    for name in value:
        if name in listed or any(run.found(source, name) for source in sources):
            continue
        if mismatch := _one_more(run, schema, value, name, here):
            return mismatch
    return None


def _one_more(run: Evaluation, schema: Any, value: Any, key: Any, here: Here) -> Mismatch | None:
    """A member or an item that the rest of the schema does not mention."""
    if schema is False:
        return Mismatch(f"there may be no {shown(key)}" if isinstance(key, str) else f"there may be no item {key}")
    return run.below(schema, value, key, here)


def _property_names(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, dict):
        return None
    for name in value:
        if mismatch := run.check(schema, name, run.inside(schema, here.scope)):
            return Mismatch(f"the name {shown(name)} is not allowed: {mismatch.reason}")
    return None


def _unevaluated_properties(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    return _unevaluated(run, schema, value, list(value), here) if isinstance(value, dict) else None


def _unevaluated_items(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    return _unevaluated(run, schema, value, range(len(value)), here) if isinstance(value, list) else None


def _unevaluated(run: Evaluation, schema: Any, value: Any, keys: Iterable[Any], here: Here) -> Mismatch | None:
    run.budget.spend(len(value) // LOOKUPS_PER_STEP)
    for key in keys:
        if key not in here.met and (mismatch := _one_more(run, schema, value, key, here)):
            return mismatch
    return None


def _items_from(first: int, run: Evaluation, schema: Any, value: list[Any], here: Here) -> Mismatch | None:
    for index in range(first, len(value)):
        if mismatch := _one_more(run, schema, value, index, here):
            return mismatch
    return None


def _prefix_items(run: Evaluation, schemas: list[Any], value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, list):
        return None
    for index, schema in enumerate(schemas[: len(value)]):
        if mismatch := run.below(schema, value, index, here):
            return mismatch
    return None


def _items(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, list):
        return None
    return _items_from(len(here.schema.get("prefixItems", ())), run, schema, value, here)


def _items_until_2019(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    if isinstance(schema, list):
        return _prefix_items(run, schema, value, here)
    return _items_from(0, run, schema, value, here) if isinstance(value, list) else None


def _additional_items(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    listed = here.schema.get("items")
    if not isinstance(value, list) or not isinstance(listed, list):
        return None
    return _items_from(len(listed), run, schema, value, here)


def _contains(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    if not isinstance(value, list):
        return None
    scope = run.inside(schema, here.scope)
    fitting = [index for index, item in enumerate(value) if run.check(schema, item, scope) is None]
    if run.dialect.contains_evaluates:
        here.met.update(fitting)
    least, most = here.schema.get("minContains", 1), here.schema.get("maxContains", len(value))
    if least <= len(fitting) <= most:
        return None
    return Mismatch(f"{len(fitting)} of {shown(value)} are as contains demands, instead of {least} to {most}")


def _unique_items(run: Evaluation, wanted: bool, value: object, here: Here) -> Mismatch | None:
    if not wanted or not isinstance(value, list):
        return None
    first: dict[str, int] = {}
    for index, item in enumerate(value):
        before = first.setdefault(canonical(item, run.budget), index)
        if before != index:
            return Mismatch(f"items {before} and {index} are the same")
    return None


def _dependent_required(run: Evaluation, needs: Mapping[str, Any], value: object, here: Here) -> Mismatch | None:
    for name, names in _present(run, needs, value):
        if mismatch := _required(run, names, value, here):
            return Mismatch(f"{mismatch.reason}, and {shown(name)} needs it")
    return None


def _dependent_schemas(run: Evaluation, needs: Mapping[str, Any], value: object, here: Here) -> Mismatch | None:
    for _, schema in _present(run, needs, value):
        if mismatch := run.also(schema, value, here):
            return mismatch
    return None


def _dependencies(run: Evaluation, needs: Mapping[str, Any], value: object, here: Here) -> Mismatch | None:
    """Until draft 7 one keyword was both."""
    for name, need in needs.items():
        keyword = _dependent_required if isinstance(need, list) else _dependent_schemas
        if mismatch := keyword(run, {name: need}, value, here):
            return mismatch
    return None


def _present(run: Evaluation, needs: Mapping[str, Any], value: object) -> list[tuple[str, Any]]:
    run.budget.spend(len(needs) // LOOKUPS_PER_STEP)
    return [(name, need) for name, need in needs.items() if name in value] if isinstance(value, dict) else []


def _all_of(run: Evaluation, schemas: list[Any], value: object, here: Here) -> Mismatch | None:
    for schema in schemas:
        if mismatch := run.also(schema, value, here):
            return mismatch
    return None


def _any_of(run: Evaluation, schemas: list[Any], value: object, here: Here) -> Mismatch | None:
    nearest: Mismatch | None = None
    fits = False
    for schema in schemas:
        mismatch = run.also(schema, value, here)
        fits = fits or mismatch is None
        if fits and not run.tracking:
            return None
        nearest = _nearer(nearest, mismatch)
    return None if fits else _none_of("anyOf", schemas, nearest)


def _one_of(run: Evaluation, schemas: list[Any], value: object, here: Here) -> Mismatch | None:
    nearest: Mismatch | None = None
    fitting = []
    for index, schema in enumerate(schemas):
        mismatch = run.also(schema, value, here)
        nearest = _nearer(nearest, mismatch)
        if mismatch is None:
            fitting.append(index)
        if len(fitting) > 1:
            return Mismatch(f"{shown(value)} fits alternatives {fitting[0]} and {index} of oneOf, not only one")
    return None if fitting else _none_of("oneOf", schemas, nearest)


def _nearer(one: Mismatch | None, other: Mismatch | None) -> Mismatch | None:
    """The alternative that got further is more likely the one that was meant."""
    return one if other is None or (one is not None and len(one.path) >= len(other.path)) else other


def _none_of(keyword: str, schemas: list[Any], nearest: Mismatch | None) -> Mismatch:
    hint = f"; nearest: {nearest}" if nearest is not None else ""
    return Mismatch(f"it fits none of the {len(schemas)} alternatives of {keyword}{hint}")


def _not(run: Evaluation, schema: Any, value: object, here: Here) -> Mismatch | None:
    if run.check(schema, value, run.inside(schema, here.scope)) is not None:
        return None
    return Mismatch(f'{shown(value)} is what "not" excludes')


def _if(run: Evaluation, condition: Any, value: object, here: Here) -> Mismatch | None:
    branch = "then" if run.also(condition, value, here) is None else "else"
    return run.also(here.schema.get(branch, True), value, here)


def _ref(run: Evaluation, ref: str, value: object, here: Here) -> Mismatch | None:
    return run.follow(run.resolve(ref, here), value, here)


def _recursive_ref(run: Evaluation, ref: str, value: object, here: Here) -> Mismatch | None:
    return run.follow(run.resolve_recursive(here), value, here)


_minimum = _bound("is less than the minimum,", _less, _itself, "number")
_maximum = _bound("is more than the maximum,", _more, _itself, "number")
_above = _bound("is not more than", lambda one, other: bool(one <= other), _itself, "number")
_below = _bound("is not less than", lambda one, other: bool(one >= other), _itself, "number")

DRAFT_4: dict[str, Keyword] = {
    "type": _type,
    "enum": _enum,
    "multipleOf": _multiple_of,
    "minimum": _in_draft_4(_minimum, _above, "exclusiveMinimum"),
    "maximum": _in_draft_4(_maximum, _below, "exclusiveMaximum"),
    "minLength": _bound("is shorter than", _less, len, "string"),
    "maxLength": _bound("is longer than", _more, len, "string"),
    "pattern": _pattern,
    "minItems": _bound("has fewer items than", _less, len, "array"),
    "maxItems": _bound("has more items than", _more, len, "array"),
    "uniqueItems": _unique_items,
    "items": _items_until_2019,
    "additionalItems": _additional_items,
    "minProperties": _bound("has fewer members than", _less, len, "object"),
    "maxProperties": _bound("has more members than", _more, len, "object"),
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "dependencies": _dependencies,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "$ref": _ref,
}
DRAFT_6: dict[str, Keyword] = {
    **DRAFT_4,
    "minimum": _minimum,
    "maximum": _maximum,
    "exclusiveMinimum": _above,
    "exclusiveMaximum": _below,
    "const": _const,
    "contains": _contains,
    "propertyNames": _property_names,
}
DRAFT_7: dict[str, Keyword] = {**DRAFT_6, "if": _if}
DRAFT_2019: dict[str, Keyword] = {
    **{name: keyword for name, keyword in DRAFT_7.items() if name != "dependencies"},
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
    "$recursiveRef": _recursive_ref,
}
DRAFT_2020: dict[str, Keyword] = {
    **{name: keyword for name, keyword in DRAFT_2019.items() if name not in ("additionalItems", "$recursiveRef")},
    "items": _items,
    "prefixItems": _prefix_items,
    "$dynamicRef": _ref,
}
