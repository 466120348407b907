"""`make interop`: install the servers and clients that others wrote, then run the tests with them.

Arguments go to pytest: ``.venv/bin/python -m tests.interop.run -k sampling``. What is
installed stays in ``.interop/`` and is installed anew when a pin changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.installation import ROOT, Cache, Unusable, node_version, too_old

HERE = Path(__file__).resolve().parent
CACHE = Cache("interop")

ENVIRONMENTS = {"python": HERE / "requirements.txt", "python-v1": HERE / "requirements-v1.txt"}
PINS = [HERE / "package.json", HERE / "package-lock.json", *ENVIRONMENTS.values()]
NODE_MAJOR = 20

LEAVING = 30.0  # seconds for an interrupted pytest to end what it began


def main(arguments: Sequence[str]) -> int:
    try:
        install()
    except Unusable as exc:
        print(f"interop: {exc}", file=sys.stderr)
        return 1
    return test(arguments)


def install() -> None:
    """Fill the cache, unless it holds just these pins for just this Python and node."""
    version = node_version()
    if too_old(version, NODE_MAJOR):
        raise Unusable(f"node {version} is too old: {NODE_MAJOR} or later is needed (https://nodejs.org)")
    CACHE.fill(PINS, [version, sys.version, str(ROOT)], install_packages, install_environments)


def install_packages() -> None:
    CACHE.install_packages("the npm servers", HERE)


def install_environments() -> None:
    """A virtual environment for each version of the official Python SDK, with what is built on it, and this package."""
    for name, pins in ENVIRONMENTS.items():
        folder = CACHE.folder / name
        CACHE.install("a virtual environment", [sys.executable, "-m", "venv", "--clear", str(folder)], CACHE.folder)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
        CACHE.install(f"the official Python SDK ({pins.name})", [*pip, "-r", str(pins)], CACHE.folder)
        CACHE.install("this package beside it", [*pip, "--no-deps", "--editable", str(ROOT)], CACHE.folder)


def test(arguments: Sequence[str]) -> int:
    """Run pytest on this folder, which collects nothing unless told where the servers are. Each test has its own bound."""
    chosen = any(Path(argument.partition("::")[0]).exists() for argument in arguments)
    where = [] if chosen else [str(HERE)]
    run = ["-m", "coverage", "run", "-m"] if os.environ.get("COVERAGE") else ["-m"]
    command = [sys.executable, *run, "pytest", "--quiet", "--tb=short", "--durations=5", *arguments, *where]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "MCP_INTEROP": str(CACHE.folder)})
    try:
        return process.wait()
    except KeyboardInterrupt:  # which the terminal has sent to pytest, too: its fixtures end the servers
        pass
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVING)
    process.kill()
    process.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
