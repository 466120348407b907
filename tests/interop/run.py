"""`make interop`: install the servers that others wrote, then run the tests against them.

Arguments go to pytest: ``.venv/bin/python tests/interop/run.py -k sampling``. What is
installed stays in ``.interop/`` and is installed anew when a pin changes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".interop"

PINS = [HERE / "package.json", HERE / "package-lock.json", HERE / "requirements.txt"]
NODE_MAJOR = 20

INSTALLING = 300.0  # seconds for one step; each takes a tenth of that on a slow machine
HEARTBEAT = 15.0  # seconds between signs of life while a step goes on
TESTING = 480.0  # seconds for all the tests, which bound their own waits far below
LEAVING = 30.0  # seconds for an interrupted pytest to end what it began


class Unusable(Exception):
    """Interop cannot run here; the text says why in one sentence."""


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
    fingerprint = fingerprint_of(PINS, [version, sys.version, str(ROOT)])
    ready = CACHE / "ready"
    if ready.is_file() and ready.read_text() == fingerprint:
        return
    ready.unlink(missing_ok=True)
    CACHE.mkdir(exist_ok=True)
    install_packages()
    install_environment()
    ready.write_text(fingerprint)


def node_version() -> str:
    """What node calls itself, "v20.20.2" or later."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unusable(
                f"{program} was not found: node {NODE_MAJOR} or later with npm is needed (https://nodejs.org)"
            )
    version = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < NODE_MAJOR:
        raise Unusable(f"node {version} is too old: {NODE_MAJOR} or later is needed (https://nodejs.org)")
    return version


def fingerprint_of(files: Iterable[Path], facts: Iterable[str]) -> str:
    digest = hashlib.sha256("\n".join([*facts, platform.platform()]).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def install_packages() -> None:
    """The npm packages, exactly as locked; no script of theirs is run."""
    folder = CACHE / "node"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder / name)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(CACHE / "npm-cache")]
    step("the npm servers", ["npm", "ci", *options], folder)


def install_environment() -> None:
    """A virtual environment with the official Python SDK, and this package beside it."""
    folder = CACHE / "python"
    step("a virtual environment", [sys.executable, "-m", "venv", "--clear", str(folder)], CACHE)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    step("the official Python SDK", [*pip, "-r", str(HERE / "requirements.txt")], CACHE)
    step("this package beside it", [*pip, "--no-deps", "--editable", str(ROOT)], CACHE)


def step(what: str, command: Sequence[str], folder: Path) -> None:
    """Run one step of the installation, with a sign of life now and then.

    Raises:
        Unusable: It failed, or took too long; what it wrote is in the log that the text names.
    """
    print(f"interop: installing {what} (once)", flush=True)
    log = CACHE / "install.log"
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        code = ends_within(process, INSTALLING, what)
    if code != 0:
        print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
        raise Unusable(f"installing {what} failed (exit code {code}); all of its output is in {log}")
    print(f"interop: installed {what} in {time.monotonic() - begun:.0f} s", flush=True)


def ends_within(process: subprocess.Popen[bytes], seconds: float, what: str) -> int:
    deadline = time.monotonic() + seconds
    try:
        while (left := deadline - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):  # then it is time for a sign of life
                return process.wait(min(HEARTBEAT, left))
            print(f"interop: still at {what}", flush=True)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # npm and pip start others
            process.wait()
    raise Unusable(f"{what} took longer than {seconds:.0f} s")


def test(arguments: Sequence[str]) -> int:
    """Run pytest on this folder, which collects nothing unless told where the servers are."""
    chosen = any(Path(argument.partition("::")[0]).exists() for argument in arguments)
    where = [] if chosen else [str(HERE)]
    command = [sys.executable, "-m", "pytest", "--quiet", "--tb=short", "--durations=5", *arguments, *where]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "MCP_INTEROP": str(CACHE)})
    try:
        return process.wait(TESTING)
    except subprocess.TimeoutExpired:
        print(f"interop: the tests took longer than {TESTING:.0f} s", file=sys.stderr)
        process.send_signal(signal.SIGINT)  # pytest then leaves its fixtures, which end the servers
    except KeyboardInterrupt:
        pass  # which the terminal has sent to pytest, too
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVING)
    process.kill()
    process.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
