"""Elicitation: a server asks the user, with a form or with a URL to visit."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from mcp_host.types.base import DECIDES, Array, JSONObject, Meta, Model, Number
from mcp_host.types.messages import TaskAugmentedRequestParams
from mcp_host.types.revisions import SINCE_2025_11_25, ShapeSince

# fmt: off
__all__ = [
    "BooleanSchema", "ElicitRequestFormParams", "ElicitRequestParams", "ElicitRequestURLParams", "ElicitResult",
    "ElicitationForm", "EnumOption", "EnumSchema", "LegacyTitledEnumSchema", "MultiSelectEnumSchema", "NumberSchema",
    "PrimitiveSchemaDefinition", "SingleSelectEnumSchema", "StringSchema", "TitledItems", "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema", "UntitledItems", "UntitledMultiSelectEnumSchema", "UntitledSingleSelectEnumSchema",
]
# fmt: on


class _FieldSchema(Model, since="2025-06-18"):
    """What the schemas of all form fields have."""

    type: str
    title: str | None = None
    description: str | None = None


class StringSchema(_FieldSchema, since="2025-06-18"):
    """A text field."""

    type: Literal["string"] = "string"
    min_length: int | None = None
    max_length: int | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    default: Annotated[str | None, SINCE_2025_11_25] = None


class NumberSchema(_FieldSchema, since="2025-06-18"):
    """A number field; with the *type* ``integer`` it allows no fractions."""

    type: Literal["number", "integer"]
    minimum: Number | None = None
    maximum: Number | None = None
    default: Annotated[Number | None, SINCE_2025_11_25] = None


class BooleanSchema(_FieldSchema, since="2025-06-18"):
    """A checkbox."""

    type: Literal["boolean"] = "boolean"
    default: bool | None = None


class LegacyTitledEnumSchema(_FieldSchema, since="2025-06-18"):
    """A choice of one, with the titles in a separate list; the only choice before 2025-11-25."""

    type: Literal["string"] = "string"
    enum: Array[str]
    enum_names: Array[str] | None = None
    default: Annotated[str | None, SINCE_2025_11_25] = None


class UntitledSingleSelectEnumSchema(_FieldSchema, since="2025-11-25"):
    """A choice of one."""

    type: Literal["string"] = "string"
    enum: Array[str]
    default: str | None = None


class EnumOption(Model, since="2025-11-25"):
    """A value and the title to show for it."""

    const: str
    title: str


class TitledSingleSelectEnumSchema(_FieldSchema, since="2025-11-25"):
    """A choice of one, each with a title."""

    type: Literal["string"] = "string"
    one_of: Array[EnumOption]
    default: str | None = None


class UntitledItems(Model, since="2025-11-25"):
    """The values to choose from."""

    type: Literal["string"] = "string"
    enum: Array[str]


class TitledItems(Model, since="2025-11-25"):
    """The values to choose from, each with a title."""

    any_of: Array[EnumOption]


class UntitledMultiSelectEnumSchema(_FieldSchema, since="2025-11-25"):
    """A choice of several."""

    type: Literal["array"] = "array"
    min_items: int | None = None
    max_items: int | None = None
    items: UntitledItems
    default: Array[str] | None = None


class TitledMultiSelectEnumSchema(_FieldSchema, since="2025-11-25"):
    """A choice of several, each with a title."""

    type: Literal["array"] = "array"
    min_items: int | None = None
    max_items: int | None = None
    items: TitledItems
    default: Array[str] | None = None


SingleSelectEnumSchema: TypeAlias = Annotated[
    TitledSingleSelectEnumSchema | UntitledSingleSelectEnumSchema, Field(union_mode="left_to_right")
]
MultiSelectEnumSchema: TypeAlias = Annotated[
    TitledMultiSelectEnumSchema | UntitledMultiSelectEnumSchema, Field(union_mode="left_to_right")
]


def _kind(schema: object) -> str:
    """The name of the class for a field's schema, from its type and the keyword that lists the choices."""
    if isinstance(schema, Model):
        return type(schema).__name__
    if not isinstance(schema, dict):
        return "StringSchema"
    match schema.get("type"):
        case "number" | "integer":
            return "NumberSchema"
        case "boolean":
            return "BooleanSchema"
        case "array":
            titled = "anyOf" in schema["items"] if isinstance(schema.get("items"), dict) else False
            return "TitledMultiSelectEnumSchema" if titled else "UntitledMultiSelectEnumSchema"
    if "oneOf" in schema:
        return "TitledSingleSelectEnumSchema"
    if "enumNames" in schema:
        return "LegacyTitledEnumSchema"
    return "UntitledSingleSelectEnumSchema" if "enum" in schema else "StringSchema"


EnumSchema: TypeAlias = Annotated[
    Annotated[UntitledSingleSelectEnumSchema, Tag("UntitledSingleSelectEnumSchema")]
    | Annotated[TitledSingleSelectEnumSchema, Tag("TitledSingleSelectEnumSchema")]
    | Annotated[UntitledMultiSelectEnumSchema, Tag("UntitledMultiSelectEnumSchema")]
    | Annotated[TitledMultiSelectEnumSchema, Tag("TitledMultiSelectEnumSchema")]
    | Annotated[LegacyTitledEnumSchema, Tag("LegacyTitledEnumSchema")],
    Discriminator(_kind),
]
PrimitiveSchemaDefinition: TypeAlias = Annotated[
    Annotated[StringSchema, Tag("StringSchema")]
    | Annotated[NumberSchema, Tag("NumberSchema")]
    | Annotated[BooleanSchema, Tag("BooleanSchema")]
    | Annotated[UntitledSingleSelectEnumSchema, Tag("UntitledSingleSelectEnumSchema")]
    | Annotated[TitledSingleSelectEnumSchema, Tag("TitledSingleSelectEnumSchema")]
    | Annotated[UntitledMultiSelectEnumSchema, Tag("UntitledMultiSelectEnumSchema")]
    | Annotated[TitledMultiSelectEnumSchema, Tag("TitledMultiSelectEnumSchema")]
    | Annotated[LegacyTitledEnumSchema, Tag("LegacyTitledEnumSchema")],
    Discriminator(_kind),
]


class ElicitationForm(Model, since="2025-06-18"):
    """The fields of a form, by name: a typed reading of ``requested_schema``."""

    type: Literal["object"] = "object"
    properties: dict[str, PrimitiveSchemaDefinition]
    required: Array[str] | None = None


def _has_multiple_choice(schema: object) -> bool:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    fields = properties.values() if isinstance(properties, dict) else ()
    return any(isinstance(field, dict) and field.get("type") == "array" for field in fields)


class ElicitRequestFormParams(TaskAugmentedRequestParams, since="2025-06-18", tolerant=True):
    """Ask the user to fill in a form; *requested_schema* is a plain dict, exactly as the server sent it.

    ``ElicitationForm.from_wire(params.requested_schema)`` reads it field by field.
    """

    mode: Annotated[Literal["form"] | None, SINCE_2025_11_25, DECIDES] = None
    message: str
    requested_schema: Annotated[JSONObject, ShapeSince("2025-11-25", "a choice of several", _has_multiple_choice)]


class ElicitRequestURLParams(TaskAugmentedRequestParams, since="2025-11-25", tolerant=True):
    """Ask the user to visit a URL; in 2025-11-25 a notification with the *elicitation_id* follows when they are done."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: Annotated[str | None, DECIDES] = None


def _mode(params: object) -> str:
    """A missing mode means a form. An unknown one is read as a form, too, whose error message names it."""
    mode = params.get("mode") if isinstance(params, dict) else getattr(params, "mode", None)
    return "url" if mode == "url" else "form"


ElicitRequestParams: TypeAlias = Annotated[
    Annotated[ElicitRequestFormParams, Tag("form")] | Annotated[ElicitRequestURLParams, Tag("url")],
    Discriminator(_mode),
]


def _has_lists(content: object) -> bool:
    return isinstance(content, dict) and any(isinstance(value, list) for value in content.values())


class ElicitResult(Model, since="2025-06-18"):
    """The user's answer; *content* has the values of an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    content: Annotated[
        dict[str, str | bool | Number | list[str]] | None, ShapeSince("2025-11-25", "a choice of several", _has_lists)
    ] = None
    meta: Meta = None
