"""What others publish, installed in a cache folder for a target of the Makefile: once for each set of pins."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

INSTALLING = 1800.0  # seconds for one step that hangs, such as a download
HEARTBEAT = 15.0  # seconds between signs of life while a step goes on


class Unusable(Exception):
    """The target cannot run here; the text says why in one sentence."""


class Cache:
    """The folder ``.TARGET/`` in the checkout, and the voice of the target while it is filled."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.folder = ROOT / f".{target}"

    def say(self, text: str) -> None:
        print(f"{self.target}: {text}", flush=True)

    def fill(self, pins: Iterable[Path], facts: Iterable[str], *steps: Callable[[], None]) -> None:
        """Do the *steps*, unless the folder holds just these *pins* for just these *facts*.

        Raises:
            Unusable: A step failed, or took too long.
        """
        fingerprint = _fingerprint(pins, facts)
        ready = self.folder / "ready"
        if ready.is_file() and ready.read_text() == fingerprint:
            return
        ready.unlink(missing_ok=True)
        self.folder.mkdir(exist_ok=True)
        for step in steps:
            step()
        ready.write_text(fingerprint)

    def install_packages(self, what: str, pinned_in: Path, *options: str) -> None:
        """The npm packages, exactly as locked in the folder *pinned_in*; no script of theirs is run."""
        folder = self.folder / "node"
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(pinned_in / name, folder / name)
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(self.folder / "npm-cache")]
        self.install(what, ["npm", "ci", *quiet, *options], folder)

    def install(self, what: str, command: Sequence[str], folder: Path, *, within: float = INSTALLING) -> None:
        """Run one step of the installation, *within* so many seconds, with a sign of life now and then.

        Raises:
            Unusable: It failed, or took too long; what it wrote is in the log that the text names.
        """
        self.say(f"installing {what}")
        log = self.folder / "install.log"
        begun = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            code = self._ends(process, what, within)
        if code != 0:
            self.say(log.read_text(errors="replace")[-4000:])
            raise Unusable(f"installing {what} failed (exit code {code}); all of its output is in {log}")
        self.say(f"installed {what} in {time.monotonic() - begun:.0f} s")

    def _ends(self, process: subprocess.Popen[bytes], what: str, within: float) -> int:
        deadline = time.monotonic() + within
        try:
            while (left := deadline - time.monotonic()) > 0:
                with suppress(subprocess.TimeoutExpired):  # then it is time for a sign of life
                    return process.wait(min(HEARTBEAT, left))
                self.say(f"still at {what}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # npm and pip start others
                process.wait()
        raise Unusable(f"{what} took longer than {within:.0f} s")


def node_version() -> str:
    """What node calls itself, like "v20.20.2".

    Raises:
        Unusable: There is no node, or no npm.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unusable(f"{program} was not found: node with npm is needed (https://nodejs.org)")
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def too_old(version: str, needed: int) -> bool:
    """Whether a node that calls itself *version* is older than *needed*, a major version."""
    return int(version.lstrip("v").split(".")[0]) < needed


def _fingerprint(pins: Iterable[Path], facts: Iterable[str]) -> str:
    digest = hashlib.sha256("\n".join([*facts, platform.platform()]).encode())
    for file in pins:
        digest.update(file.read_bytes())
    return digest.hexdigest()
