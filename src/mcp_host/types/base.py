"""How every type reads and writes JSON, and since which revision of the protocol it exists."""

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
"""The revisions these types are the union of, oldest first. They are dates, so they sort as text."""


Item = TypeVar("Item")
ModelT = TypeVar("ModelT", bound="Model")


class _FirstErrorOnly:
    """A hostile list may hold a million wrong items, and an error for each of them would take gigabytes."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return {**handler(source), "fail_fast": True}


FIRST_ERROR_ONLY = _FirstErrorOnly()  # pydantic's own FailFast cannot be hashed, and so not stand in a union
Array: TypeAlias = Annotated[list[Item], FIRST_ERROR_ONLY]
# Any, not object: a dict[str, str] of the caller's is a dict[str, Any] to a type checker, but no dict[str, object].
JSONObject: TypeAlias = dict[str, Any]
JSONArray: TypeAlias = list[Any]
JSONValue: TypeAlias = object  # whatever the JSON decoder returns
Meta: TypeAlias = JSONObject | None
Number: TypeAlias = int | float  # the kind is kept: 50 stays 50 and is never written as 50.0


def wire_name(name: str) -> str:
    """The schema's spelling of a Python field name: ``max_tokens`` is ``maxTokens``, ``meta`` is ``_meta``."""
    if name == "meta":
        return "_meta"
    head, *tail = name.split("_")
    return head + "".join([part.capitalize() for part in tail])


class Model(BaseModel):
    """The base of every type: frozen, strict about kinds, and open for fields it does not know.

    Python spells fields in snake_case, the wire in camelCase. Unknown fields are kept
    (``model_extra``) and written again. A field that was never given is not written;
    an explicit ``None`` is written as ``null``. Constants such as ``type`` and ``method``
    need not be given in Python, are always written, and are demanded of the wire.

    *since* and *until* are the first and the last revision whose schema has the class.
    """

    model_config = ConfigDict(
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        extra="allow",
        frozen=True,
        strict=True,
        defer_build=True,  # a host uses a few dozen of these classes: the others must not slow its start
    )

    since: ClassVar[str] = REVISIONS[0]
    until: ClassVar[str] = REVISIONS[-1]
    _constants: ClassVar[dict[str, object]] = {}

    def __init__(self, /, **data: object) -> None:
        try:
            self.__pydantic_validator__.validate_python({**self._constants, **data}, self_instance=self)
        except ValidationError as exc:
            raise ValueError(_first_problem(type(self), exc, data)) from None

    # Without this mark pydantic would call __init__ for every model it reads from the
    # wire, nested ones included. Should pydantic forget the mark, reading gets slower.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # a function's own attribute

    def __init_subclass__(cls, *, since: str = REVISIONS[0], until: str = REVISIONS[-1], **config: object) -> None:
        super().__init_subclass__()
        cls.since, cls.until = since, until

    @classmethod
    def __pydantic_init_subclass__(cls, **config: object) -> None:
        """Take the constants out of pydantic's hands before it builds the class.

        Left to pydantic, a default counts as "not given" and would not be written,
        and a message without its ``type`` or ``method`` would pass as a good one.
        """
        cls._constants = dict(cls._constants)
        for name, field in cls.model_fields.items():
            if field.default is not None and field.default is not PydanticUndefined:
                cls._constants[name] = field.default
                field.default = PydanticUndefined

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read decoded JSON, in the wire's own spelling.

        Raises:
            ProtocolError: One sentence with the path and the reason of the first problem,
                ``malformed CallToolResult: content.0.text: Input should be a valid string``.
        """
        try:
            return cls.__pydantic_validator__.validate_python(value, by_alias=True, by_name=False)  # type: ignore[no-any-return]
        except ValidationError as exc:
            raise ProtocolError(_first_problem(cls, exc, value)) from None

    @classmethod
    def list_from_wire(cls, values: list[object]) -> list[Self]:
        """Read several at once, which takes half as long as one by one.

        Raises:
            ProtocolError: One of them is malformed.
        """
        try:
            return _reader_of_lists(cls).validate_python(values, by_alias=True, by_name=False)
        except ValidationError as exc:
            raise ProtocolError(f"malformed {cls.__name__} in a list") from exc

    def to_wire(self) -> dict[str, object]:
        """The JSON object to send, in the wire's spelling, with nothing that was never given."""
        wire: dict[str, object] = self.__pydantic_serializer__.to_python(
            self, by_alias=True, exclude_unset=True, warnings=False
        )
        return wire


@cache
def _reader_of_lists(model: type[ModelT]) -> TypeAdapter[list[ModelT]]:
    return TypeAdapter(Array[model])  # type: ignore[valid-type]  # a variable, to a type checker


def _first_problem(cls: type[Model], exc: ValidationError, value: object) -> str:
    error = exc.errors(include_url=False, include_input=False)[0]
    path = excerpt(".".join(_path(error, value)), QUOTED)
    tag = str(error.get("ctx", {}).get("tag", ""))
    reason = error["msg"].replace(tag, excerpt(tag, QUOTED)) if tag else error["msg"]
    return ": ".join([f"malformed {cls.__name__}", *filter(None, [path]), reason])


def _path(error: ErrorDetails, value: object) -> list[str]:
    """The keys and indexes that lead to the problem, without the names of union members in between."""
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
