"""Texts of models, whole and in the pieces of a stream: halves of characters, thinking, and stop sequences.

JSON can have half of a character (``"\\ud83d"``), which nothing can write. A character beyond U+FFFF is a pair of halves
in JSON. A stream may have one half in each of two pieces, and the parts of a stop sequence in several.

Open models write their thinking into the text, before the answer: ``<think>…</think>``. Most servers separate it. The
prompt templates of DeepSeek-R1, QwQ and Qwen3-Thinking end with the first mark, so that the text has only the second.
Nothing in the text tells that from an answer about the mark, and a stream cannot wait for it: the host has to say so,
as for vLLM (``--reasoning-parser``) and the AI SDK (``startWithReasoning``).
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Protocol

THINKING, ANSWER = "<think>", "</think>"  # what begins after each
MAX_SPACES = 16  # before the thinking

BEGINS_WITH_THINKING = re.compile(rf"\s{{0,{MAX_SPACES}}}{THINKING}")


class Pieces(Protocol):
    """Takes a text in pieces, and gives another in pieces. The whole answer has the rest of it."""

    def add(self, piece: str) -> str:
        """What is known of the other text after *piece*, and was not before."""


def paired(text: str) -> str:
    """*text* with each pair of halves as the character that it is."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


class ReadablePieces:
    """The pieces of a text as it comes, `readable`: a half waits for the next piece."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-16-le")("replace")

    def add(self, piece: str) -> str:
        return self._decoder.decode(piece.encode("utf-16-le", "surrogatepass"))


def without_thinking(text: str, *, has_begun: bool = False) -> str:
    """*text* without the thinking that it begins with; *text* itself if it begins with none. Thinking without an end is the
    whole text. With *has_begun*, the first mark is in the prompt.
    """
    if not text or not (has_begun or BEGINS_WITH_THINKING.match(text)):
        return text
    return text.partition(ANSWER)[2].lstrip()


class PiecesWithoutThinking:
    """The pieces of a text as it comes, without the thinking that it begins with: what may be its mark waits for the next piece."""

    def __init__(self, *, has_begun: bool = False) -> None:
        self._waiting = ""
        # The mark to wait for; "" for the first character of the answer.
        self._mark: str | None = ANSWER if has_begun else THINKING

    def add(self, piece: str) -> str:
        if self._mark is None:
            return piece
        self._waiting += piece
        if self._mark == THINKING:
            text = self._waiting.lstrip()
            if len(self._waiting) - len(text) > MAX_SPACES or not (
                text.startswith(THINKING) or THINKING.startswith(text)
            ):
                return self._rest()
            if len(text) < len(THINKING):
                return ""
            self._waiting, self._mark = text[len(THINKING) :], ANSWER
        if self._mark == ANSWER:
            _, mark, answer = self._waiting.partition(ANSWER)
            if not mark:
                self._waiting = self._waiting[1 - len(ANSWER) :]
                return ""
            self._waiting, self._mark = answer, ""
        self._waiting = self._waiting.lstrip()
        return self._rest() if self._waiting else ""

    def _rest(self) -> str:
        """What waits, which is of the answer, as is all that follows."""
        text, self._waiting, self._mark = self._waiting, "", None
        return text


def place_of_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of *stops* begins in *text*. None if it has none of them."""
    return min([place for stop in stops if (place := text.find(stop)) >= 0], default=None)


class PiecesUpToStop:
    """The pieces of a text as it comes, up to the first of *stops*: what may be the beginning of one waits for the next piece."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=1)
        self._waiting = ""
        self._has_stopped = False

    def add(self, piece: str) -> str:
        if self._has_stopped:
            return ""
        self._waiting += piece
        end = max(len(self._waiting) - self._longest + 1, 0)  # before it begins no stop sequence that is not there yet
        place = place_of_stop(self._waiting, self._stops)
        if place is not None and place <= end:
            end = place
            self._has_stopped = True
        taken, self._waiting = self._waiting[:end], self._waiting[end:]
        return taken
