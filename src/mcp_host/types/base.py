"""The base of all types: reading and writing JSON."""

from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, PydanticUndefined

from mcp_host.base_errors import QUOTED, ProtocolError, excerpt

# fmt: off
__all__ = [
    "REVISIONS", "JSONArray", "JSONObject", "JSONValue", "Model",
]
# fmt: on

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""The supported revisions, oldest first. Their order is that of the strings."""


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

    *since* is the first revision whose schema has the class.
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
    _constants: ClassVar[dict[str, object]] = {}

    def __init__(self, /, **data: object) -> None:
        try:
            self.__pydantic_validator__.validate_python({**self._constants, **data}, self_instance=self)
        except ValidationError as exc:
            raise ValueError(_first_problem(type(self), exc, data)) from None

    # Without this attribute pydantic calls __init__ for every model that it reads, which is slower.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # a function's own attribute

    def __init_subclass__(cls, *, since: str = REVISIONS[0], **config: object) -> None:
        super().__init_subclass__()
        cls.since = since

    @classmethod
    def __pydantic_init_subclass__(cls, **config: object) -> None:
        """Make constants required fields, which `__init__` fills in.

        As defaults they would not be written, and a message without its ``type`` or
        ``method`` would be valid.
        """
        cls._constants = dict(cls._constants)
        for name, field in cls.model_fields.items():
            if field.default is not None and field.default is not PydanticUndefined:
                cls._constants[name] = field.default
                field.default = PydanticUndefined

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read decoded JSON.

        Raises:
            ProtocolError: One sentence with the path and the reason of the first error,
                ``malformed CallToolResult: content.0.text: Input should be a valid string``.
        """
        try:
            return cls.__pydantic_validator__.validate_python(value, by_alias=True, by_name=False)  # type: ignore[no-any-return]
        except ValidationError as exc:
            raise ProtocolError(_first_problem(cls, exc, value)) from None

    @classmethod
    def list_from_wire(cls, values: list[object]) -> list[Self]:
        """Read a list of JSON objects, faster than with a `from_wire` for each.

        Raises:
            ProtocolError: One of them is malformed.
        """
        try:
            return _reader_of_lists(cls).validate_python(values, by_alias=True, by_name=False)
        except ValidationError as exc:
            raise ProtocolError(f"malformed {cls.__name__} in a list") from exc

    def to_wire(self) -> dict[str, object]:
        """The JSON object to send, without fields that were not given."""
        wire: dict[str, object] = self.__pydantic_serializer__.to_python(
            self, by_alias=True, exclude_unset=True, warnings=False
        )
        return wire


def given(**fields: object) -> dict[str, Any]:
    """The fields that are not None. A `Model` writes a field that was set to None as null."""
    return {name: value for name, value in fields.items() if value is not None}


@cache
def _reader_of_lists(model: type[ModelT]) -> TypeAdapter[list[ModelT]]:
    return TypeAdapter(Array[model])  # type: ignore[valid-type]  # a variable to type checkers


def _first_problem(cls: type[Model], exc: ValidationError, value: object) -> str:
    error = exc.errors(include_url=False, include_input=False)[0]
    path = excerpt(".".join(_path(error, value)), QUOTED)
    tag = str(error.get("ctx", {}).get("tag", ""))
    reason = error["msg"].replace(tag, excerpt(tag, QUOTED)) if tag else error["msg"]
    return ": ".join([f"malformed {cls.__name__}", *filter(None, [path]), reason])


def _path(error: ErrorDetails, value: object) -> list[str]:
    """The keys and indexes that lead to the error, without the names of union members."""
    path = []
    loc = error["loc"]
    for depth, step in enumerate(loc, start=1):
        match value, step:
            case dict(), _ if step in value:
                value = value[step]
            case list(), int():
                value = value[step]
            case _ if error["type"] != "missing" or depth < len(loc):
                continue
        path.append(str(step))
    return path
