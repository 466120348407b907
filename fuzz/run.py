"""`make fuzz`: every target for its share of the time. What makes one fail is kept, and fails the whole."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from fuzz.targets import TARGETS, examples

HOME = Path(__file__).parent.parent / ".fuzz"
MOST = 60.0  # seconds for one input: each is a matter of milliseconds, on a machine that has time
MEMORY = 1024  # MiB


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=150, help="for all targets together")
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    options = parser.parse_args()
    print(f"{'target':14}{'inputs':>12}{'features':>10}{'MiB':>6}")
    era_cache = [fuzz(target, options.seconds / len(options.targets)) for target in options.targets]
    return 0 if all(era_cache) else 1


def fuzz(target: str, seconds: float) -> bool:
    """Fuzz *target* and print a line about it; whether nothing was found."""
    corpus, failures, log = HOME / "corpus" / target, HOME / "failures", HOME / f"{target}.log"
    for folder in (corpus, failures):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate([*TARGETS[target].seeds, *examples(target)]):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds:.0f}", f"-timeout={MOST:.0f}", f"-rss_limit_mb={MEMORY}", "-max_len=4096"]
    output = ["-print_final_stats=1", f"-artifact_prefix={failures / target}-"]
    with log.open("wb") as written:
        ended = subprocess.run(
            [sys.executable, "-m", "fuzz.one", target, *limits, *output, str(corpus)],
            stdout=written,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = log.read_text(encoding="utf-8", errors="replace")
    print(f"{target:14}{_last(said, 'number_of_executed_units: +'):>12}{_last(said, 'ft: '):>10}", end="")
    print(f"{_last(said, 'peak_rss_mb: +'):>6}", "" if ended.returncode == 0 else f"FAILED: see {log} and {failures}")
    return ended.returncode == 0


def _last(text: str, label: str) -> str:
    found = re.findall(label + r"(\d+)", text)
    return found[-1] if found else "-"


if __name__ == "__main__":
    sys.exit(main())
