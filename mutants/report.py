"""What the suite noticed: a table by packages, and the mutants that survive."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mutants.draw import Mutant

VERDICTS = ("killed", "survived", "equivalent", "lost", "not run")


@dataclass(frozen=True)
class Result:
    """The verdict on one mutant: "killed" *by* a test, or "survived", after *ran* of the *of* tests that reach it."""

    id: int
    verdict: str
    by: str | None = None
    how: str | None = None
    ran: int | None = None
    of: int | None = None
    flaky: list[str] = field(default_factory=list)  # failed, and then not again or without the mutant, too
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.verdict == "killed":
            return f"{self.id} killed in {self.seconds} s by {self.by or 'the import'}"
        return f"{self.id} survived {self.ran} of {self.of} tests, in {self.seconds} s"


def read_results(file: Path) -> dict[int, Result]:
    """The last result for each mutant."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    results = (Result(**json.loads(line)) for line in lines)
    return {result.id: result for result in results}


def verdict(mutant: Mutant, found: Collection[int], results: Mapping[int, Result]) -> str:
    """One of `VERDICTS`: "lost" for a mutant whose statement is not in the sources any more."""
    if mutant.equivalent is not None:
        return "equivalent"
    if mutant.id not in found:
        return "lost"
    return results[mutant.id].verdict if mutant.id in results else "not run"


def report(mutants: Sequence[Mutant], found: Collection[int], results: Mapping[int, Result]) -> str:
    counts = Counter((mutant.package, verdict(mutant, found, results)) for mutant in mutants)
    rows = [f"{'':14}" + "".join(f"{name:>12}" for name in VERDICTS)]
    for package in [*sorted({mutant.package for mutant in mutants}), "all"]:
        of = [sum(counts[key] for key in counts if key[1] == name and package in (key[0], "all")) for name in VERDICTS]
        rows.append(f"{package:14}" + "".join(f"{number:12}" for number in of))
    for name in ("survived", "lost"):
        listed = [mutant for mutant in mutants if verdict(mutant, found, results) == name]
        rows += ["", f"{name}:"] * bool(listed)
        for mutant in listed:
            ran = f" ({results[mutant.id].ran} of {results[mutant.id].of} tests)" if name == "survived" else ""
            rows.append(f"  {mutant.id:3}  {mutant}{ran}")
    return "\n".join(rows)


def store(mutants: Sequence[Mutant], found: Collection[int], results: Mapping[int, Result], file: Path) -> None:
    """Write the verdicts down, for a later run to be compared with."""
    entries = []
    for mutant in mutants:
        entry: dict[str, object] = {"id": mutant.id, "verdict": verdict(mutant, found, results)}
        if (result := results.get(mutant.id)) is not None:
            entry |= {"by": result.by} if result.verdict == "killed" else {"ran": result.ran, "of": result.of}
        entries.append(entry)
    file.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n", encoding="utf-8")


def lost_kills(mutants: Sequence[Mutant], found: Collection[int], results: Mapping[int, Result], before: Path) -> str:
    """The mutants that were killed in an earlier run, whose verdicts `store` wrote, and are not in this one."""
    stored = json.loads(before.read_text(encoding="utf-8"))
    killed = {entry["id"]: entry["by"] for entry in stored if entry["verdict"] == "killed"}
    now = {mutant: verdict(mutant, found, results) for mutant in mutants if mutant.id in killed}
    lines = [
        f"  {mutant.id:3}  {mutant}: {word}; before it was killed by {killed[mutant.id] or 'the import'}"
        for mutant, word in now.items()
        if word != "killed"
    ]
    return "\n".join([f"killed before: {len(killed)}; of these not killed now: {len(lines)}", *lines])
