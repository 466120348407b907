"""`make machines`: `make demo` and `make test` in fresh Debian systems, each with its own Python.

Arguments are the names of releases: ``.venv/bin/python -m tests.machines.run trixie``. A system is made
by debootstrap in ``.machines/`` from Debian's own mirror, gets the checkout as it stands, without what git
ignores, and an empty HOME, and is removed afterwards; what COVERAGE=1 lets it measure comes back. From the machine around it, it has the network, where
pip finds packages and whose certificates to trust, and the folder that MCP_SPEC_DIR names: nothing cached.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.installation import ROOT, Cache, Unusable
from tests.machines.surroundings import paths, pip_settings, surroundings

HERE = Path(__file__).resolve().parent
CACHE = Cache("machines")

SYSTEMS = {"bookworm": "Debian 12", "trixie": "Debian 13", "sid": "Debian sid"}
PACKAGES = "python3,python3-venv,make,git,ca-certificates"
CHECKOUT = "srv/mcp-host"
HOME = "home/fresh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A separate namespace takes its mounts and its processes with it, however it ends.
APART = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

MAKING = 900.0  # seconds for one system; it takes one minute, and some beside a load
RUNNING = 3600.0  # seconds for the two commands, which take three minutes, and half an hour beside a heavy load


def main(names: Sequence[str]) -> int:
    try:
        require(names)
        results = [machine(name) for name in names or SYSTEMS]
    except (Unusable, KeyboardInterrupt) as exc:
        print(f"machines: {str(exc) or 'interrupted'}", file=sys.stderr)
        return 1
    return 0 if all(results) else 1


def require(names: Sequence[str]) -> None:
    """Make sure that systems can be made here.

    Raises:
        Unusable: They cannot.
    """
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise Unusable(f"there is no system {unknown[0]!r}: {', '.join(SYSTEMS)} are known")
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program) is None:
            raise Unusable(f"{program} was not found: Linux is needed, with debootstrap and util-linux")
    if os.geteuid() != 0:
        raise Unusable("root is needed: to make a system, to mount what it needs, and to enter it")


def machine(name: str) -> bool:
    """Make a system, run the two commands in it, and remove it; whether they passed.

    Raises:
        Unusable: It could not be made.
    """
    begun = time.monotonic()
    root = CACHE.folder / name
    CACHE.folder.mkdir(exist_ok=True)
    if root.exists():
        shutil.rmtree(root)
    try:
        make(name, root)
        passed = run(root)
        for measured in (root / CHECKOUT).glob(".coverage.*"):
            shutil.move(measured, ROOT)
    finally:
        shutil.rmtree(root, ignore_errors=True)  # one that was interrupted may still be writing
    took = time.monotonic() - begun
    CACHE.say(f"{SYSTEMS[name]}: make demo and make test {'passed' if passed else 'FAILED'}, {took:.0f} s in all")
    return passed


def make(name: str, root: Path) -> None:
    """Make the system, and copy into it what it needs of this one."""
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", name, str(root)]
    CACHE.install(f"{SYSTEMS[name]} ({name})", [*APART, *command], CACHE.folder, within=MAKING)
    for file in ("/etc/resolv.conf", "/etc/hosts"):
        if Path(file).exists():
            shutil.copyfile(file, f"{root}{file}")
    (root / HOME).mkdir(parents=True)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    unwanted = shutil.ignore_patterns(".git", *[pattern.rstrip("/") for pattern in ignored])
    shutil.copytree(ROOT, root / CHECKOUT, ignore=unwanted, symlinks=True)


def run(root: Path) -> bool:
    """Run the two commands; whether both passed."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    needed = {**surroundings(os.environ), **pip_settings(listed)}
    command = [*APART, "sh", str(HERE / "enter.sh"), str(root), f"/{CHECKOUT}", *paths(needed.values())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**needed, "PATH": PATH, "HOME": f"/{HOME}"})
    try:
        return process.wait(RUNNING) == 0
    except subprocess.TimeoutExpired:
        CACHE.say(f"make demo and make test took longer than {RUNNING:.0f} s")
        return False
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
