"""Installs the clients: each in its own environment under ``.bench/``, once for each set of pins."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path

from tests.installation import ROOT, Cache, Unusable, node_version, too_old

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"
LOCK = ROOT / "requirements" / "dev.lock"
PACKAGE = ROOT / "src" / "mcp_host"
NODE_MAJOR = 20
EXTRAS = ("otel", "testing")  # of this package


def say(text: str) -> None:
    """Progress goes to stderr: stdout is for the tables."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Environment(Cache):
    """One client's environment, which is reinstalled only when its own pins change."""

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

ADAPTER = TYPESCRIPT.folder / "node" / "typescript.mjs"  # a copy, beside its node_modules


def install(clients: Collection[str]) -> None:
    """Install those of the *clients* whose pins, Python or node have changed.

    Raises:
        Unusable: An installation failed, or the TypeScript client is measured and there is no node.
    """
    OURS.folder.parent.mkdir(exist_ok=True)
    facts = [sys.version, str(ROOT)]
    if "ours" in clients:
        OURS.fill([ROOT / "pyproject.toml", LOCK], [*facts, *EXTRAS], _install_ours)
        _copy_ours()
    if "mcp" in clients:
        MCP.fill([MCP.pins], facts, lambda: MCP.install_python("the official Python SDK", "-r", str(MCP.pins)))
    if "fastmcp" in clients:
        FASTMCP.fill([FASTMCP.pins], facts, lambda: FASTMCP.install_python("fastmcp", "-r", str(FASTMCP.pins)))
    if "typescript" in clients:
        _install_typescript(facts)


def _install_typescript(facts: list[str]) -> None:
    version = node_version()
    if too_old(version, NODE_MAJOR):
        raise Unusable(f"node {version} is too old: {NODE_MAJOR} or later is needed (https://nodejs.org)")
    pins = [REQUIREMENTS / name for name in ("package.json", "package-lock.json")]
    what = "the official TypeScript client"
    TYPESCRIPT.fill(pins, [*facts, version], lambda: TYPESCRIPT.install_packages(what, REQUIREMENTS))
    shutil.copy(HERE / "clients" / ADAPTER.name, ADAPTER)


def _install_ours() -> None:
    """What this package needs at run time, with `EXTRAS` and OpenTelemetry, in the versions that it is developed with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra])
    needed = [*project["dependencies"], *extras, "opentelemetry-sdk"]
    OURS.install_python("what this package needs", "--constraint", str(LOCK), *needed)


def _copy_ours() -> None:
    """A copy of the package, so that edits during a run do not change what is measured."""
    packages = next((OURS.folder / "python" / "lib").glob("python*")) / "site-packages"
    shutil.rmtree(packages / PACKAGE.name, ignore_errors=True)
    shutil.copytree(PACKAGE, packages / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
