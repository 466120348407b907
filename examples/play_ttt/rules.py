"""The rules of tic-tac-toe, and the board as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Mark: TypeAlias = Literal["X", "O"]
MARKS: tuple[Mark, Mark] = ("X", "O")

LINES = ("123", "456", "789", "147", "258", "369", "159", "357")

ROW = re.compile(r"([1-9XO]) \| ([1-9XO]) \| ([1-9XO])")


class IllegalMove(ValueError):
    """The text says what is wrong, to the player who tried it."""


@dataclass(frozen=True)
class Board:
    """A position: the nine squares, row by row. Each has a mark, or its number while it is free."""

    squares: str = "123456789"

    @property
    def turn(self) -> Mark:
        """The player to move. X begins."""
        return "X" if self.squares.count("X") == self.squares.count("O") else "O"

    @property
    def free(self) -> list[int]:
        """The numbers of the free squares."""
        return [int(square) for square in self.squares if square.isdigit()]

    @property
    def result(self) -> Mark | Literal["draw"] | None:
        """The winner, or a draw. None while the game goes on."""
        for mark in MARKS:
            if mark * 3 in self._lines():
                return mark
        return None if self.free else "draw"

    def winning(self, mark: Mark) -> list[int]:
        """The free squares that complete a line of *mark*."""
        return [square for square in self.free if mark * 3 in Board(self._with(square, mark))._lines()]

    def take(self, square: int) -> Board:
        """The position after the player to move has taken *square*.

        Raises:
            IllegalMove: The game is over, or the square is taken or not on the board.
        """
        if self.result is not None:
            raise IllegalMove("the game is over")
        if square not in self.free:
            problem = "is taken" if 1 <= square <= 9 else "is not on the board"
            raise IllegalMove(f"{square} {problem}; free: {listed(self.free)}")
        return Board(self._with(square, self.turn))

    def __str__(self) -> str:
        """Five lines of text."""
        rows = [" | ".join(self.squares[start : start + 3]) for start in (0, 3, 6)]
        return "\n---+---+---\n".join(f" {row}" for row in rows)

    def _with(self, square: int, mark: Mark) -> str:
        return self.squares.replace(str(square), mark)

    def _lines(self) -> list[str]:
        return ["".join(self.squares[int(square) - 1] for square in line) for line in LINES]


def opponent(mark: Mark) -> Mark:
    """The other player."""
    return "O" if mark == "X" else "X"


def listed(squares: Sequence[int]) -> str:
    """Squares in a sentence."""
    return ", ".join(map(str, squares)) or "none"


def read_board(text: str) -> Board | None:
    """The first board in *text*, as `Board` writes it. None if there is none."""
    rows = ROW.findall(text)[:3]
    return Board("".join(map("".join, rows))) if len(rows) == 3 else None
