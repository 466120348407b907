"""Where the clients are installed: each in an environment of its own under ``.bench/``, once for each set of pins."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

from tests.installation import ROOT, Cache, Unusable, node_version, too_old

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"
LOCK = ROOT / "requirements-dev.lock"
PACKAGE = ROOT / "src" / "mcp_host"
NODE_MAJOR = 20


def say(text: str) -> None:
    """Progress goes to stderr: stdout is for the tables."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Environment(Cache):
    """One client's part of the cache, which is filled anew only when its own pins change."""

    def __init__(self, client: str) -> None:
        super().__init__("bench")
        self.folder /= client
        self.pins = REQUIREMENTS / f"{client}.txt"  # of a peer in Python

    def say(self, text: str) -> None:
        say(text)

    @property
    def python(self) -> str:
        return str(self.folder / "python" / "bin" / "python")

    def install_python(self, what: str, *requirements: str) -> None:
        """A virtual environment with these *requirements*, as pip takes them, and nothing else."""
        venv = [sys.executable, "-m", "venv", "--clear", str(self.folder / "python")]
        self.install(f"an environment for {what}", venv, self.folder)
        pip = [self.python, "-m", "pip", "install", "--disable-pip-version-check"]
        self.install(what, [*pip, *requirements], self.folder)


OURS = Environment("ours")
MCP = Environment("mcp")
FASTMCP = Environment("fastmcp")
TYPESCRIPT = Environment("typescript")

ADAPTER = TYPESCRIPT.folder / "node" / "typescript.mjs"  # a copy, which finds its packages beside itself


def install() -> None:
    """Fill what does not hold just its pins for just this Python and node.

    Raises:
        Unusable: There is no node, or an installation failed.
    """
    version = node_version()
    if too_old(version, NODE_MAJOR):
        raise Unusable(f"node {version} is too old: {NODE_MAJOR} or later is needed (https://nodejs.org)")
    OURS.folder.parent.mkdir(exist_ok=True)
    facts = [version, sys.version, str(ROOT)]
    OURS.fill([ROOT / "pyproject.toml", LOCK], facts, _install_ours)
    MCP.fill([MCP.pins], facts, lambda: MCP.install_python("the official Python SDK", "-r", str(MCP.pins)))
    FASTMCP.fill([FASTMCP.pins], facts, lambda: FASTMCP.install_python("fastmcp", "-r", str(FASTMCP.pins)))
    node = [REQUIREMENTS / name for name in ("package.json", "package-lock.json")]
    TYPESCRIPT.fill(node, facts, lambda: TYPESCRIPT.install_packages("the official TypeScript client", REQUIREMENTS))
    _copy_ours()
    shutil.copy(HERE / "clients" / ADAPTER.name, ADAPTER)


def _install_ours() -> None:
    """What this package needs at run time, in the versions that it is developed with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    OURS.install_python("what this package needs", "--constraint", str(LOCK), *project["dependencies"])


def _copy_ours() -> None:
    """The package as it is now, so that all of a run is about one state of it, whoever goes on working."""
    packages = next((OURS.folder / "python" / "lib").glob("python*")) / "site-packages"
    shutil.rmtree(packages / PACKAGE.name, ignore_errors=True)
    shutil.copytree(PACKAGE, packages / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
