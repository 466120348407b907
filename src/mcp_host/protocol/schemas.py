"""Checking values against the JSON Schemas of strangers, in a bounded number of steps.

JSON Schema 2020-12, unless `$schema` names 2019-09 or drafts 4, 6 or 7. `format` is an annotation.

A schema comes from whoever wrote the server, and some are traps: references to the network, circles,
26 levels of `anyOf` that fan out into 2^26 branches, patterns that never end. So everything is counted,
and nothing is timed: the same schema and value give the same verdict on every machine.

Schemas are checked for validity, and references are resolved (`referencing`, by the authors of
`jsonschema`, in a registry that has the official metaschemas and cannot retrieve anything), once and
before the first value. The evaluation itself is ours. Wrapped in counters, `jsonschema` 4.26 leaves too
many ways around them: a subschema with its own `$schema` is evaluated by the library's own class;
`uniqueItems` compares 2,000 objects pairwise, in 6.8 s; every branch of `anyOf` that fails writes the
whole value into a message; and `pattern` and three more keywords run Python's `re`. Ours is also twice
as fast, which matters on an event loop: 10,000 records of 4 members take a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from mcp_host.errors import excerpt
from mcp_host.protocol import keywords
from mcp_host.protocol.evaluation import Dialect, Evaluation, Mismatch, Prepared, UncheckableSchema
from mcp_host.protocol.pattern_syntax import UnsupportedPattern
from mcp_host.protocol.patterns import Budget, BudgetExhausted, Pattern

if TYPE_CHECKING:
    from referencing import Registry
    from referencing._core import Resolver

__all__ = ["Schema", "UncheckableSchema", "compile_schema"]

MAX_STEPS = 500_000  # of one check: two seconds at worst; 10,000 records of 20 members take 220,000
MAX_NODES = 100_000  # JSON values that one schema is made of
MAX_NESTING = 80  # arrays and objects within each other in a schema: about 40 schemas within schemas
MAX_SUBSCHEMAS = 2_500
MAX_PATTERNS = 256
MAX_PATTERN_NODES = 50_000  # of all their automata; a pattern for a UUID takes 40
MAX_PROBLEM = 500  # characters of one message

DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
DIALECTS = {
    dialect.uri.partition("://")[2]: dialect
    for dialect in (
        Dialect(DEFAULT_DIALECT, keywords.DRAFT_2020, contains_evaluates=True),
        Dialect("https://json-schema.org/draft/2019-09/schema", keywords.DRAFT_2019),
        Dialect("http://json-schema.org/draft-07/schema", keywords.DRAFT_7, ref_stands_alone=True),
        Dialect("http://json-schema.org/draft-06/schema", keywords.DRAFT_6, ref_stands_alone=True),
        Dialect("http://json-schema.org/draft-04/schema", keywords.DRAFT_4, "id", ref_stands_alone=True),
    )
}


class Schema:
    """A schema to check values against. Made by `compile_schema`."""

    __slots__ = ("_prepared", "_refused", "_written")

    def __init__(self, written: Mapping[str, object]) -> None:
        self._written = written
        self._prepared: Prepared | None = None
        self._refused: str | None = None

    def mismatch(self, value: object) -> str | None:
        """Why decoded JSON does not conform: one sentence with the path (`$.items[3].id: …`), at most
        500 characters, with the value cut short. None when it conforms.

        Raises:
            UncheckableSchema: Nobody knows, because of the schema, with the reason.
        """
        if self._refused is not None:
            raise UncheckableSchema(self._refused)
        try:
            if self._prepared is None:
                self._prepared = _prepare(self._written)
        except UncheckableSchema as exc:
            self._refused = str(exc)
            raise
        return _text(_evaluate(self._prepared, value))

    def problem(self, value: object) -> str | None:
        """As `mismatch()`, with the reason why the schema cannot be checked as one more problem."""
        try:
            return self.mismatch(value)
        except UncheckableSchema as exc:
            return f"its schema cannot be checked: {exc}"


def compile_schema(schema: Mapping[str, object]) -> Schema:
    """Take a schema to check values against. Costs nothing: the work is done once, at the first value.

    Keep the result, it is the cache; a schema that changes later is not read again.
    """
    return Schema(schema)


def _text(mismatch: Mismatch | None) -> str | None:
    return None if mismatch is None else excerpt(str(mismatch), MAX_PROBLEM)


def _evaluate(prepared: Prepared, value: object) -> Mismatch | None:
    try:
        return Evaluation(prepared, Budget(MAX_STEPS)).run(value)
    except BudgetExhausted:
        raise UncheckableSchema(f"it takes more than {MAX_STEPS} steps") from None
    except RecursionError:
        raise UncheckableSchema("it nests too deeply") from None


def _prepare(written: Mapping[str, object]) -> Prepared:
    """Everything that can be known about a schema before there is a value."""
    from referencing.jsonschema import specification_with

    root = _copied(dict(written), MAX_NESTING, Budget(MAX_NODES))
    dialect = _dialect(root)
    _check_validity(root, dialect)
    specification = specification_with(dialect.uri)
    try:
        scope = _registry().resolver_with_root(specification.create_resource(root))
        prepared = Prepared(dialect, specification, root, scope)
        _Survey(prepared).walk()
    except UncheckableSchema:
        raise
    except Exception as exc:  # whatever the resolver stumbles over, the stranger's addresses are what it was
        raise UncheckableSchema(f"its references cannot be resolved: {excerpt(str(exc))}") from exc
    return prepared


def _copied(value: object, nesting: int, nodes: Budget) -> Any:
    """Our own copy of the schema: it stays as it is, and there is only JSON in it."""
    if nesting == 0:
        raise UncheckableSchema(f"it nests more than {MAX_NESTING} deep")
    try:
        nodes.spend()
    except BudgetExhausted:
        raise UncheckableSchema(f"it has more than {MAX_NODES} parts") from None
    if isinstance(value, dict):
        return {str(name): _copied(member, nesting - 1, nodes) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item, nesting - 1, nodes) for item in value]
    return value


def _dialect(schema: Mapping[str, Any]) -> Dialect:
    named = schema.get("$schema", DEFAULT_DIALECT)
    dialect = DIALECTS.get(named.partition("://")[2].rstrip("#")) if isinstance(named, str) else None
    if dialect is None:
        # "MUST handle unsupported dialects gracefully by returning an appropriate error" (2025-11-25, basic)
        raise UncheckableSchema(f"the dialect {excerpt(str(named), 100)} is not supported")
    return dialect


def _check_validity(schema: object, dialect: Dialect) -> None:
    if mismatch := _evaluate(_metaschema(dialect.uri), schema):
        raise UncheckableSchema(f"it is not a valid JSON Schema: {_text(mismatch)}")


@cache
def _registry() -> Registry[Any]:
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has one name, and no types

    known: Registry[Any] = REGISTRY.crawl()  # with all their anchors, and without a way to retrieve more
    return known


@cache
def _metaschema(uri: str) -> Prepared:
    from referencing.jsonschema import specification_with

    resolved = _registry().resolver().lookup(uri)
    dialect = DIALECTS[uri.partition("://")[2]]
    prepared = Prepared(dialect, specification_with(uri), resolved.contents, resolved.resolver)
    _Survey(prepared, trusted=True).walk()
    return prepared


class _Survey:
    """Visits every schema within a schema, and every one that is referred to, whether a value leads there or not."""

    def __init__(self, prepared: Prepared, *, trusted: bool = False) -> None:
        self._prepared = prepared
        self._trusted = trusted
        self._nodes = Budget(MAX_PATTERN_NODES)
        self._seen: set[int] = set()
        self._referred: list[tuple[Any, Resolver[Any]]] = []

    def walk(self) -> None:
        self._visit(self._prepared.root, self._prepared.scope)
        while self._referred:
            target, scope = self._referred.pop()
            if id(target) not in self._seen:
                # "#/components/Pet" may lead to where no schema is expected, and so to something that is none
                if not self._trusted:
                    _check_validity(target, self._prepared.dialect)
                self._visit(target, scope)

    def _visit(self, schema: Any, scope: Resolver[Any]) -> None:
        todo = [(schema, scope)]
        while todo:
            schema, scope = todo.pop()
            if not isinstance(schema, dict) or id(schema) in self._seen:
                continue
            self._seen.add(id(schema))
            if len(self._seen) > MAX_SUBSCHEMAS:
                raise UncheckableSchema(f"it consists of more than {MAX_SUBSCHEMAS} schemas")
            self._note(schema, scope)
            todo += [(part, self._prepared.inside(part, scope)) for part in self._parts(schema)]

    def _parts(self, schema: dict[str, Any]) -> Iterator[Any]:
        yield from self._prepared.specification.subresources_of(schema)

    def _note(self, schema: dict[str, Any], scope: Resolver[Any]) -> None:
        prepared = self._prepared
        if "$schema" in schema and _dialect(schema) is not prepared.dialect:
            raise UncheckableSchema("it mixes two dialects")
        if "pattern" in schema:
            self._compile(schema["pattern"])
        for source in schema.get("patternProperties", ()):
            self._compile(source)
        prepared.tracking |= "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if name not in schema or name not in prepared.dialect.keywords:
                continue
            target = scope.lookup(schema[name])
            self._referred.append((target.contents, target.resolver))
            if name == "$ref":
                prepared.targets[id(schema)] = target
            elif self._trusted:
                # Nothing extends the official metaschemas: what is outermost there is always their root.
                prepared.targets[id(schema)] = prepared.scope.lookup("#")
            else:
                prepared.dynamic = True

    def _compile(self, source: str) -> None:
        patterns = self._prepared.patterns
        if source not in patterns:
            try:
                patterns[source] = Pattern(source)
                self._nodes.spend(patterns[source].size)
            except UnsupportedPattern as exc:
                raise UncheckableSchema(f'the pattern "{excerpt(source, 100)}" cannot be matched: {exc}') from exc
            except BudgetExhausted:
                raise UncheckableSchema("its patterns are too large together") from None
        if len(patterns) > MAX_PATTERNS:
            raise UncheckableSchema(f"it has more than {MAX_PATTERNS} patterns")
