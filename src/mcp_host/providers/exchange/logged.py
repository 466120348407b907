"""What the log has already: a conversation that is sent again in each request repeats no warning."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class Logged:
    """The last *most* causes of warnings, as hashes: servers make them up, of any length."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hashes: dict[int, None] = {}  # the oldest first

    def new(self, causes: Iterable[T]) -> list[T]:
        """Those of *causes* that are new, each once. From now on they are not."""
        found = {hash(cause): cause for cause in causes}
        new = [cause for key, cause in found.items() if key not in self._hashes]
        self._hashes.update(dict.fromkeys(found))
        while len(self._hashes) > self._most:
            del self._hashes[next(iter(self._hashes))]
        return new
