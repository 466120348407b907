"""Runs a client for the conformance suite, ends it when its time is up, and notes in a file how it ended.

The suite takes a client that a signal killed for one that ended well, and cannot end one that hangs.

    witness.py FILE SECONDS COMMAND...
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(note: Path, seconds: float, command: list[str]) -> int:
    process = subprocess.Popen(command)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        note.write_text("timeout")
        return 1
    note.write_text(str(process.returncode))
    return int(process.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
