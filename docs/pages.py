"""Parses a page of Markdown: headings, links, blocks of code and words in code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)[ ]?(.*)$")
HEADING = re.compile(r"^(#{1,6}) +(.+?) *$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r'<(?:img|source)\b[^>]*\b(?:src|srcset)="([^"]+)"')
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. *name* is the text after the language on the fence: the name of a file, or empty."""

    line: int
    language: str
    name: str
    text: str
    section: str
    """The last heading of the first or second level before it."""


@dataclass(frozen=True, slots=True)
class Page:
    """One parsed file."""

    path: Path
    blocks: Sequence[Block]
    prose: Sequence[tuple[int, str]]
    """The lines outside of blocks, each with its number."""

    @property
    def anchors(self) -> set[str]:
        """What a link may point to after the #."""
        anchors: set[str] = set()
        for _, line in self.prose:
            if found := HEADING.match(line):
                anchors.add(_unused(slug(found[2]), anchors))
        return anchors

    def links(self) -> Iterator[tuple[int, str]]:
        """Where the page leads, with the line of each link and picture."""
        for number, line in self.prose:
            text = CODE.sub("", line)
            yield from ((number, target) for target in [*LINK.findall(text), *PICTURE.findall(text)])

    def words(self) -> Iterator[tuple[int, str]]:
        """What stands in backticks, with its line."""
        for number, line in self.prose:
            yield from ((number, word) for word in CODE.findall(line))


def read(path: Path) -> Page:
    """Parse a file.

    Raises:
        ValueError: A block is not closed.
    """
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    opened: tuple[int, str, str] | None = None
    inside: list[str] = []
    section = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is not None and line == "```":
            start, language, name = opened
            blocks.append(Block(start, language, name, "".join(f"{text}\n" for text in inside), section))
            opened = None
        elif opened is not None:
            inside.append(line)
        elif fence is not None:
            opened, inside = (number, fence[1], fence[2].strip()), []
        else:
            prose.append((number, line))
            if (heading := HEADING.match(line)) and len(heading[1]) <= 2:
                section = heading[2]
    if opened is not None:
        raise ValueError(f"{path}:{opened[0]}: the block is not closed")
    return Page(path, blocks, prose)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _unused(anchor: str, taken: set[str]) -> str:
    candidates = [anchor, *(f"{anchor}-{count}" for count in range(1, len(taken) + 1))]
    return next(candidate for candidate in candidates if candidate not in taken)
