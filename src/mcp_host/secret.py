"""Secrets in the variables of a frame: what reports of errors show of them, as Sentry does, is their repr, which hides them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self, TypeAlias, TypeVar

from pydantic import AfterValidator

HIDDEN = "**********"

T = TypeVar("T")


class Secret(str):
    """A text that is a secret. It is sent like any other; what is made of it is a plain text, so that is wrapped again."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


class ExpandedText(Secret):
    """A text of a file after expansion: *passwords* are the answers in it that were asked for as such."""

    __slots__ = ("passwords",)
    passwords: tuple[Secret, ...]

    def __new__(cls, text: str, passwords: Iterable[str] = ()) -> Self:
        made = super().__new__(cls, text)
        made.passwords = tuple(map(Secret, passwords))
        return made


class ExpandedProgram(Secret):
    """The program of a file after expansion. Errors and names have it as it is *written*, with its variables."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, text: str, written: str = HIDDEN) -> Self:
        made = super().__new__(cls, text)
        made.written = written
        return made

    def __repr__(self) -> str:
        return repr(self.written)


class SecretBytes(bytes):
    """The bytes of a body that has secrets in it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


class SecretValues(dict[str, T]):
    """A mapping whose values are secrets, also those inside them. Its repr has the names."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {HIDDEN!r}' for name in self)}}}"


SecretText: TypeAlias = Annotated[str, AfterValidator(Secret)]
"""The type of a field that is a `Secret`, also when it has been read from a store."""

PrivateJwk: TypeAlias = Annotated[dict[str, Any], AfterValidator(SecretValues)]
"""The type of a field that is a private key (a JWK)."""


def as_secret(value: object) -> str | None:
    """*value* as a `Secret`; None if it is no text, or an empty one."""
    return Secret(value) if isinstance(value, str) and value else None
