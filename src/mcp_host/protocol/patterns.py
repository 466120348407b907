"""Regular expressions of strangers, matched without backtracking and in steps that are counted.

Python's `re` backtracks, and holds the interpreter's lock while it does: `(a+)+$` on 40 letters
stops the whole process, and no timeout can fire. What else was weighed:

- an analysis that lets only harmless patterns through to `re`: one hole in it is a frozen host,
  and even `\\s+$` takes a minute on 100 kB of blanks, because a search begins anew at every blank;
- google-re2: linear, but a compiled dependency for a corner of the library, and no lookahead;
- a worker process that can be killed: a process to start, to feed and to watch, and an `await` in pure code.

A simulation of the automaton (Thompson's construction) needs none of that: it looks at each
character once, and there at no more states than the pattern is long. So the pattern is ours to read as
well: in the dialect that JSON Schema asks for, ECMA-262 with its u flag, instead of Python's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeAlias, TypeVar, assert_never

from mcp_host.protocol.pattern_syntax import (
    WORD,
    Ahead,
    Char,
    Choice,
    Edge,
    Matcher,
    Node,
    Repeat,
    Series,
    UnsupportedPattern,
    read,
)

MAX_PROGRAM = 10_000  # nodes of the automaton: `.{0,1000}` makes 2,000 of them
MAX_REMEMBERED = 10_000  # numbers of nodes in the moves that one pattern remembers, about 400 kB
CHARACTERS_PER_STEP = 8  # a remembered move takes an eighth of the time of a step
ACCEPTED = (-1,)

T = TypeVar("T")
Moves: TypeAlias = dict[tuple[tuple[int, ...], str], tuple[int, ...]]


class BudgetExhausted(Exception):
    """The work was not done within the steps that were granted."""


class Budget:
    """Steps that may still be taken."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise BudgetExhausted


class Pattern:
    """A pattern that is ready to be searched for.

    Raises:
        UnsupportedPattern: It cannot be matched here, with the reason.
    """

    def __init__(self, source: str) -> None:
        self._program = Program()
        self._start = self._program.write(read(source), self._program.accept)

    @property
    def size(self) -> int:
        """How many nodes its automaton has."""
        return self._program.size

    def found_in(self, text: str, budget: Budget) -> bool:
        """Whether any part of *text* matches.

        Raises:
            BudgetExhausted: It would take more steps than are left.
        """
        return self._program.run(self._start, text, 0, budget, anywhere=True)


class Program:
    """The automaton: nodes that point at nodes, written from the pattern's end to its beginning."""

    def __init__(self) -> None:
        self._takes: dict[int, tuple[Matcher, int]] = {}  # one character, and on
        self._forks: dict[int, tuple[int, int]] = {}
        self._edges: dict[int, tuple[str, int]] = {}
        self._aheads: dict[int, tuple[int, bool, int]] = {}
        self._moves: dict[tuple[int, ...], Moves] = {}
        self._room = MAX_REMEMBERED
        self._steady = True
        self.size = 0
        self.accept = self._new()

    def _new(self) -> int:
        """The number of one more node. Counts as well what writes no node, such as `(){1000}`."""
        self.size += 1
        if self.size > MAX_PROGRAM:
            raise UnsupportedPattern(f"its repetitions amount to more than {MAX_PROGRAM} steps")
        return self.size

    def write(self, tree: Node, then: int) -> int:
        """Write *tree* so that *then* follows it; return where it begins."""
        match tree:
            case Char(accepts):
                return self._put(self._takes, (accepts, then))
            case Edge(kind):
                self._steady = self._steady and kind in ("start", "end")
                return self._put(self._edges, (kind, then))
            case Ahead(part, negated):
                self._steady = False
                return self._put(self._aheads, (self.write(part, self.accept), negated, then))
            case Series(parts):
                for part in reversed(parts):
                    then = self.write(part, then)
                self._new()
                return then
            case Choice(options):
                return reduce(self._fork, [self.write(option, then) for option in options])
            case Repeat(part, least, most):
                return self._repeat(part, least, most, then)
        assert_never(tree)

    def _put(self, table: dict[int, T], entry: T) -> int:
        here = self._new()
        table[here] = entry
        return here

    def _fork(self, one: int, other: int) -> int:
        return self._put(self._forks, (one, other))

    def _repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._new()
            self._forks[loop] = self.write(part, loop), then
            then = loop
        else:
            after = then
            for _ in range(most - least):  # x{0,3} as (x(x(x)?)?)?: from each of them it is one step to the end
                then = self._fork(self.write(part, then), after)
        for _ in range(least):
            then = self.write(part, then)
        return then

    def run(self, start: int, text: str, at: int, budget: Budget, *, anywhere: bool) -> bool:
        """Whether what begins at *start* matches from *at* on (or, *anywhere*, from any later place)."""
        budget.spend((len(text) - at) // CHARACTERS_PER_STEP + 2)
        anchored = self._edges.get(start, ("", 0))[0] == "start"
        again = (start,) if anywhere and not anchored else ()
        moves = self._moves.setdefault(again, {})
        alive: tuple[int, ...] = (start,)
        place = at
        while True:
            key = alive, text[place : place + 1]
            alive = moves.get(key, ()) if place else ()
            if not alive:
                alive = self._move(key[0], again, text, place, budget)
                self._remember(moves, key, alive, place)
            if alive in (ACCEPTED, ()):
                return alive == ACCEPTED
            place += 1

    def _move(
        self, alive: tuple[int, ...], again: tuple[int, ...], text: str, place: int, budget: Budget
    ) -> tuple[int, ...]:
        """The nodes that are alive behind the character at *place*."""
        takes = self._reach(list(alive), text, place, budget)
        if takes is None:
            return ACCEPTED
        if place == len(text):
            return ()
        return tuple(dict.fromkeys(then for accepts, then in takes if accepts(text[place]))) + again

    def _remember(self, moves: Moves, key: tuple[tuple[int, ...], str], alive: tuple[int, ...], place: int) -> None:
        """Within a text a move depends on the character alone, unless something looks to its left or ahead."""
        if place and self._steady and self._room > 0:
            moves[key] = alive
            self._room -= len(key[0]) + len(alive)

    def _reach(self, alive: list[int], text: str, place: int, budget: Budget) -> list[tuple[Matcher, int]] | None:
        """The characters that could come next, from all nodes in *alive*; None where the end is reached."""
        seen: set[int] = set()
        takes = []
        while alive:
            here = alive.pop()
            if here in seen:
                continue
            seen.add(here)
            budget.spend()
            if here == self.accept:
                return None
            if take := self._takes.get(here):
                takes.append(take)
            elif fork := self._forks.get(here):
                alive += fork
            else:
                alive += self._passed(here, text, place, budget)
        return takes

    def _passed(self, here: int, text: str, place: int, budget: Budget) -> tuple[int, ...]:
        """What lies behind an edge or a look ahead, where it lets through."""
        if here in self._edges:
            kind, then = self._edges[here]
            return (then,) if AT_EDGE[kind](text, place) else ()
        start, negated, then = self._aheads[here]
        return (then,) if self.run(start, text, place, budget, anywhere=False) is not negated else ()


def _on_boundary(text: str, place: int) -> bool:
    return (place > 0 and text[place - 1] in WORD) is not (place < len(text) and text[place] in WORD)


AT_EDGE: dict[str, Callable[[str, int], bool]] = {
    "start": lambda text, place: place == 0,
    "end": lambda text, place: place == len(text),
    "b": _on_boundary,
    "B": lambda text, place: not _on_boundary(text, place),
}
