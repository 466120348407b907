"""In every Python of the venv during a run: imports the instrumented package, and answers its mutants.

A `.pth` file imports this module at the start of each process. What a process has to do is in
a file that is named by its id, or by that of the nearest of its ancestors: most servers are started without our environment.
"""

from __future__ import annotations

import builtins
import marshal
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, ".mutants")
CODE, ROLES = os.path.join(FOLDER, "code"), os.path.join(FOLDER, "roles")
REACHED, DURATIONS = os.path.join(FOLDER, "reached"), os.path.join(FOLDER, "durations.json")

NONE = -1  # no mutant
RECORDING = "record "

active = NONE
test: str | None = None  # that is recorded: "" while modules are imported; None where nothing is
_seen: set[tuple[str, int]] = set()


def reached(mutant: int) -> bool:
    """Whether this mutant is the active one. Called at the place of each mutant, as a builtin."""
    if test is not None and (test, mutant) not in _seen:
        _seen.add((test, mutant))
        file = os.open(REACHED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{mutant} {test}\n".encode())
        os.close(file)
    return mutant == active


def take(role: str) -> None:
    """Take a role, and give it to the processes that this one will start."""
    global active, test
    with open(os.path.join(ROLES, str(os.getpid())), "w") as file:
        file.write(role)
    active, test = (NONE, role.removeprefix(RECORDING)) if role.startswith(RECORDING) else (int(role), None)


def install() -> None:
    """Take the role of the nearest ancestor that has one; without any, do nothing."""
    global active, test
    process = os.getpid()
    while process > 1:
        try:
            with open(os.path.join(ROLES, str(process))) as file:
                role = file.read()
            break
        except FileNotFoundError:
            process = _parent(process)
    else:
        return
    active, test = (NONE, role.removeprefix(RECORDING)) if role.startswith(RECORDING) else (int(role or NONE), None)
    instrument()


def instrument() -> None:
    builtins.mutant_is_reached = reached  # type: ignore[attr-defined]  # any name that no module has
    sys.meta_path.insert(0, Finder())


def _parent(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


class Finder(PathFinder):
    """Finds the package where it is, and loads what was compiled from its instrumented sources."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "mcp_host" or not os.path.exists(os.path.join(CODE, fullname)):
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and spec.origin.startswith(os.path.join(ROOT, "src")):
            spec.loader = Loader(fullname, spec.origin)
        return spec


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        with open(os.path.join(CODE, fullname), "rb") as file:
            code = marshal.load(file)
        assert isinstance(code, CodeType)
        return code
