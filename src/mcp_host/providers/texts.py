"""Texts of models that have halves of characters, which JSON can have (``"\\ud83d"``), and nothing can write.

A character beyond U+FFFF is a pair of them in JSON. A stream may have one half in each of two pieces.
"""

from __future__ import annotations

from codecs import getincrementaldecoder


def paired(text: str) -> str:
    """*text* with each pair of halves as the character that it is."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def readable(text: str) -> str:
    """The same, and U+FFFD in the place of each half that is alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class ReadablePieces:
    """The pieces of a text as it comes, `readable`: a half waits for the next piece."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-16-le")("replace")

    def add(self, piece: str) -> str:
        return self._decoder.decode(piece.encode("utf-16-le", "surrogatepass"))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)
