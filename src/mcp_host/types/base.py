"""The base of all types: reading and writing JSON."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, PydanticUndefined, SchemaValidator, core_schema

from mcp_host.base_errors import QUOTED, ProtocolError, excerpt

# fmt: off
__all__ = [
    "REVISIONS", "JSONArray", "JSONObject", "JSONValue", "Model",
]
# fmt: on

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""The supported revisions, oldest first. Their order is that of the strings."""


logger = logging.getLogger(__name__)

FREE_FORM = frozenset({"structuredContent", "inputSchema", "outputSchema", "input", "metadata", "data", "params"})
"""Members that are kept as JSON, or are read later and counted then."""

MAX_REPAIRED = 2_000  # items of arrays in what is read once more, which takes up to ten times as long

REPAIRED = "read without what is malformed; the first: %s"

SHOULD_BE = "Input should be "  # how most errors of pydantic begin

Item = TypeVar("Item")
ModelT = TypeVar("ModelT", bound="Model")


class _FirstErrorOnly:
    """A malicious list may have a million invalid items, and an error for each would take gigabytes."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return {**handler(source), "fail_fast": True}


FIRST_ERROR_ONLY = _FirstErrorOnly()  # pydantic's FailFast is not hashable, so it cannot be part of a union
Array: TypeAlias = Annotated[list[Item], FIRST_ERROR_ONLY]
# Any, not object: type checkers accept a caller's dict[str, str] as dict[str, Any], but not as dict[str, object].
JSONObject: TypeAlias = dict[str, Any]
JSONArray: TypeAlias = list[Any]
JSONValue: TypeAlias = object  # any decoded JSON
Meta: TypeAlias = JSONObject | None
Number: TypeAlias = int | float  # 50 stays an int and is never written as 50.0


class Decides(NamedTuple):
    """Marks an optional field that a tolerant class does not leave out: without it, the value would mean something else."""


DECIDES = Decides()


class Strictly(NamedTuple):
    """A check of a value that is made at the strict reading only, not where a tolerant class is read once more."""

    check: Callable[[Any], Any]

    def __call__(self, value: object) -> object:
        return self.check(value)


def wire_name(name: str) -> str:
    """The schema's spelling of a Python field name: ``max_tokens`` is ``maxTokens``, ``meta`` is ``_meta``."""
    if name == "meta":
        return "_meta"
    head, *tail = name.split("_")
    return head + "".join([part.capitalize() for part in tail])


class Model(BaseModel):
    """The base of every type: frozen, strict, and open for unknown fields.

    Field names are snake_case in Python and camelCase in JSON. Unknown fields are kept
    (``model_extra``) and written again. A field that was not given is not written;
    an explicit ``None`` is written as ``null``. Constants such as ``type`` and ``method``
    are optional in Python, always written, and required when reading.

    *since* is the first revision whose schema has the class. A *tolerant* class, and what is in it, is read without
    optional fields that are malformed, but those that are marked with `DECIDES`, and with null as an empty list.
    """

    model_config = ConfigDict(
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        extra="allow",
        frozen=True,
        strict=True,
        defer_build=True,  # a host uses a few dozen of these classes: the others do not slow its start
    )

    since: ClassVar[str] = REVISIONS[0]
    tolerant: ClassVar[bool] = False
    _is_frequent: ClassVar[bool] = False
    """Whether a server may send any number: what was malformed is then no warning, and logged once in a process."""
    _constants: ClassVar[dict[str, object]] = {}

    def __init__(self, /, **data: object) -> None:
        try:
            self.__pydantic_validator__.validate_python({**self._constants, **data}, self_instance=self)
        except ValidationError as exc:
            raise ValueError(_first_problem(type(self), exc, data)) from None

    # Without this attribute pydantic calls __init__ for every model that it reads, which is slower.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # a function's own attribute

    def __init_subclass__(cls, *, since: str = REVISIONS[0], tolerant: bool = False) -> None:
        super().__init_subclass__()
        cls.since = since
        cls.tolerant = cls.tolerant or tolerant

    @classmethod
    def __pydantic_init_subclass__(cls, **config: object) -> None:
        """Make constants required fields, which `__init__` fills in.

        As defaults they would not be written, and a message without its ``type`` or
        ``method`` would be valid.
        """
        cls._constants = dict(cls._constants)
        for name, field in cls.model_fields.items():
            if field.default not in (None, PydanticUndefined):
                cls._constants[name] = field.default
                field.default = PydanticUndefined

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read decoded JSON. If it has malformed optional fields that a *tolerant* class leaves out, a warning names the first.

        Raises:
            ProtocolError: One sentence with the path and the reason of the first error,
                ``malformed CallToolResult: content.0.text: Input should be a valid string``.
        """
        try:
            return cls.__pydantic_validator__.validate_python(value, by_alias=True, by_name=False)  # type: ignore[no-any-return]
        except ValidationError as exc:
            problem = _first_problem(cls, exc, value)
        read: Self = cls._repaired(value, problem)
        return read

    @classmethod
    def list_from_wire(cls, values: list[object]) -> list[Self]:
        """Read a list of JSON objects, faster than with a `from_wire` for each, and with one warning for all.

        Raises:
            ProtocolError: One of them is malformed.
        """
        try:
            return _reader_of_lists(cls).validate_python(values, by_alias=True, by_name=False)
        except ValidationError as exc:
            problem = _first_problem(cls, exc, values)
        read: list[Self] = cls._repaired(values, problem, many=True)
        return read

    @classmethod
    def _repaired(cls, value: object, problem: str, *, many: bool = False) -> Any:
        """Read a *value* or many, with a *problem*, once more, if the class is tolerant and the value not too long."""
        if cls.tolerant and _has_many_items(value):
            problem += f" (in more than {MAX_REPAIRED:,} items, nothing malformed is left out)"
        elif cls.tolerant:
            try:
                read = _tolerant_reader(cls, many=many).validate_python(value, by_alias=True, by_name=False)
            except ValidationError as exc:
                problem = _first_problem(cls, exc, value)
            else:
                if not any(item._is_unread() for item in (read if many else [read])):
                    if cls._is_frequent:
                        _log_once(problem)
                    else:
                        logger.warning(REPAIRED, problem)
                    return read
        raise ProtocolError(problem)

    @classmethod
    def _mended(cls, value: object) -> object:
        """What is read in place of *value* in a tolerant class."""
        return {} if value == [] else value

    def _is_unread(self) -> bool:
        """Whether nothing could be read of what matters: then the whole is malformed."""
        return False

    def to_wire(self) -> dict[str, object]:
        """The JSON object to send, without fields that were not given."""
        wire: dict[str, object] = self.__pydantic_serializer__.to_python(
            self, by_alias=True, exclude_unset=True, warnings=False
        )
        return wire


def copy_of(model: ModelT) -> ModelT:
    """A copy that shares no object or array with *model*: for code that may change what it gets in place."""
    return type(model).from_wire(model.to_wire())


def _has_many_items(value: object) -> bool:
    found = 0
    parts = [value]
    while parts and found <= MAX_REPAIRED:
        part = parts.pop()
        if isinstance(part, dict):
            parts += [member for name, member in part.items() if name not in FREE_FORM]
        elif isinstance(part, list):
            found += len(part)
            if found <= MAX_REPAIRED:
                parts += part
    return found > MAX_REPAIRED


@lru_cache(maxsize=256)
def _log_once(problem: str) -> None:
    logger.debug(REPAIRED, problem)


def given(**fields: object) -> dict[str, Any]:
    """The fields that are not None. A `Model` writes a field that was set to None as null."""
    return {name: value for name, value in fields.items() if value is not None}


@cache
def _tolerant_reader(cls: type[Model], *, many: bool = False) -> SchemaValidator:
    """Reads what `from_wire` does, and numbers and booleans that are written as texts.

    ``[]`` for ``{}``, which PHP writes for an empty array. ``null`` for ``[]``, which Go writes for an empty slice.
    """
    cls.model_rebuild()  # does nothing if it is built
    schema = _tolerant(cls.__pydantic_core_schema__)
    if many:
        schema = core_schema.list_schema(schema, fail_fast=True)
    # A text such as "nan" is no number that could be written as JSON again.
    return SchemaValidator(schema, {"extra_fields_behavior": "allow", "allow_inf_nan": False})


def _tolerant(schema: Any, strict: Iterable[str] = ()) -> Any:
    """The schema of pydantic with defaults for what is malformed in optional fields, but for those in *strict*."""
    match schema:
        case list():
            return [_tolerant(part, strict) for part in schema]
        case {"type": "model", "cls": cls}:
            deciding = {name for name, field in cls.model_fields.items() if DECIDES in field.metadata}
            # Not a schema of a model: pydantic-core would take the strict validator that the class has already.
            read = partial(_made, cls)
            inner = core_schema.no_info_before_validator_function(cls._mended, _tolerant(schema["schema"], deciding))
            return core_schema.no_info_after_validator_function(read, inner, ref=schema.get("ref"))
        case {"type": "dict"}:
            return core_schema.no_info_before_validator_function(Model._mended, schema)
        case {"type": "list", "items_schema": items}:
            return core_schema.no_info_before_validator_function(_list, {**schema, "items_schema": _tolerant(items)})
        case {"type": "function-after", "function": {"function": Strictly()}, "schema": unchecked}:
            return _tolerant(unchecked)
        case {"type": "model-fields", "fields": fields}:
            return {**schema, "fields": {name: _field(name, field, strict) for name, field in fields.items()}}
        case dict():
            kept = ("metadata", "config", "serialization", "function")
            return {key: part if key in kept else _tolerant(part, strict) for key, part in schema.items()}
    return schema


def _field(name: str, field: Any, strict: Iterable[str]) -> Any:
    tolerant = _tolerant(field)
    if tolerant["schema"]["type"] == "default" and name not in strict:
        tolerant["schema"]["on_error"] = "default"
    return tolerant


def _list(value: object) -> object:
    return [] if value is None else value


def _made(cls: type[ModelT], read: tuple[dict[str, Any], dict[str, Any], set[str]]) -> ModelT:
    """The object with what the validator of its fields has read. A field that was left out is not written as null."""
    fields, extra, names = read
    made = cls.__new__(cls)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_extra__", extra)
    object.__setattr__(
        made, "__pydantic_fields_set__", {name for name in names if name in extra or fields[name] is not None}
    )
    object.__setattr__(made, "__pydantic_private__", None)
    return made


@cache
def _reader_of_lists(model: type[ModelT]) -> TypeAdapter[list[ModelT]]:
    return TypeAdapter(Array[model])  # type: ignore[valid-type]  # a variable to type checkers


def _first_problem(cls: type[Model], exc: ValidationError, value: object) -> str:
    error, *more = exc.errors(include_url=False, include_input=False)
    path = _path(error, value)
    tag = str(error.get("ctx", {}).get("tag", ""))
    reason = error["msg"].replace(tag, excerpt(tag, QUOTED)) if tag else error["msg"]
    if reason.startswith(SHOULD_BE):  # also what else it may be, in a union
        same = [
            other["msg"] for other in more if other["loc"][:-1] == error["loc"][:-1] and _path(other, value) == path
        ]
        shapes = [message.removeprefix(SHOULD_BE) for message in (reason, *same) if message.startswith(SHOULD_BE)]
        reason = SHOULD_BE + " or ".join(dict.fromkeys(shapes))
    return ": ".join([f"malformed {cls.__name__}", *filter(None, [excerpt(".".join(path), QUOTED)]), reason])


def _path(error: ErrorDetails, value: object) -> list[str]:
    """The keys and indexes that lead to the error, without the names of union members."""
    steps = error["loc"]
    if error["type"] == "missing":
        return [*_followed(steps[:-1], value), str(steps[-1])]
    return _followed(steps, value)


def _followed(steps: Sequence[str | int], value: object) -> list[str]:
    """The longest way into *value* that goes only through *steps*: the name of a union's member may also be a key."""
    if not steps:
        return []
    step, *rest = steps
    without = _followed(rest, value)
    match value, step:
        case dict(), _ if step in value:
            inner = value[step]
        case list(), int() if step < len(value):
            inner = value[step]
        case _:
            return without
    return max(without, [str(step), *_followed(rest, inner)], key=len)
