"""Texts that can be sent: without half of a character, which no encoding can write.

Python has such texts where bytes were no UTF-8: the name of a file, as `os.listdir` gives it.
"""

from typing import TypeVar

from pydantic_core import to_json

from mcp_host.types.base import Model

ModelT = TypeVar("ModelT", bound=Model)


def readable(text: str) -> str:
    """*text* with each pair of halves as the character that it is, and U+FFFD in the place of each half that is alone."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def readable_json(value: object) -> object:
    """*value* of JSON with texts and names that are `readable`; itself if they are."""
    return _readable(value) if _has_halves(value) else value


def readable_model(model: ModelT) -> ModelT:
    """*model* with texts that are `readable`; itself if they are."""
    return type(model).from_wire(_readable(model.to_wire())) if _has_halves(model) else model


def _has_halves(value: object) -> bool:
    """Whether a text of *value* has half of a character. What cannot be written for another reason stays as it is."""
    try:
        to_json(value)
    except ValueError as exc:
        return "surrogates not allowed" in str(exc)
    return False


def _readable(value: object) -> object:
    match value:
        case str():
            return readable(value)
        case list() | tuple():
            return [_readable(item) for item in value]
        case dict():
            return {_readable(name): _readable(item) for name, item in value.items()}
    return value
