"""What a command line runs, told without an argument that may be a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PARTS_SHOWN = 3  # of a path: enough to tell the folders of two servers apart, without all above them
TARGET_SHOWN = 64  # characters
TARGET = re.compile(r"[\w@.~+/\\:\[\],=<>!-]+")  # a package, a module, an image or a path, and no URL, see `_shown`
VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]{0,60})=(?!=)")  # as for a shell; ``==`` is before a version


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that runs what an argument names.

    The first argument that is no option names it, after *subcommands*, of which there has to be one. *flags* are options
    without a value, *values* are options with one, and the value of a *named* option is what is run. After any other
    option nothing is told: the next argument may be its value, and a secret.
    """

    subcommands: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    scripts: bool = field(default=False, kw_only=True)
    """Whether it runs files, relative to the working folder."""


def _launcher(
    subcommands: str = "", flags: str = "", values: str = "", named: str = "", *, scripts: bool = False
) -> Launcher:
    words = (frozenset(each.split()) for each in (subcommands, flags, values, named))
    return Launcher(*words, scripts=scripts)


PYTHON = _launcher("", "-u -B -E -I -O -OO -P -s -S -v -q", "-W -X", "-m", scripts=True)
NODE = _launcher(
    "", "--no-warnings --enable-source-maps --inspect", "-r --require --import --loader --env-file", scripts=True
)
UV_VALUES = (
    "--from --with --with-editable --python -p --index --index-url --extra-index-url --directory --project --env-file"
)
UV_FLAGS = "-q --quiet -v --verbose -U --upgrade --refresh --isolated --offline --no-cache -n --frozen --locked --no-sync --no-project"
NPX = _launcher("", "-y --yes -q --quiet --no-install --prefer-offline", "-p --package --registry")
CONTAINERS = _launcher(
    "run",
    "-i -t -it -ti -d --rm --interactive --tty --init --privileged --read-only",
    "-e --env --env-file -v --volume --mount --name --network --net -p --publish -w --workdir -u --user --platform"
    " --entrypoint --pull --label -l --add-host --hostname -h --memory -m --cpus --gpus --cap-add --cap-drop --security-opt",
)
SCRIPTS = _launcher(scripts=True)

LAUNCHERS: Mapping[str, Launcher] = {
    "python": PYTHON,
    "pythonw": PYTHON,
    "pypy": PYTHON,
    "node": NODE,
    "tsx": NODE,
    "npx": NPX,
    "bunx": NPX,
    "npm": _launcher("exec", "-y --yes -q --quiet -s --silent", "-p --package --registry --prefix"),
    "pnpm": _launcher("dlx exec", "-s --silent", "--package -C --dir"),
    "yarn": _launcher("dlx", "-q --quiet", "-p --package"),
    "bun": _launcher("run x", "-i --silent --bun", "--cwd --env-file", scripts=True),
    "deno": _launcher(
        "run",
        "-A --allow-all --allow-net --allow-read --allow-write --allow-env --allow-run --no-prompt -q --quiet",
        "-c --config --import-map",
        scripts=True,
    ),
    "uvx": _launcher("", UV_FLAGS, UV_VALUES),
    "uv": _launcher("run tool", UV_FLAGS, UV_VALUES, "-m --module", scripts=True),
    "pipx": _launcher("run", "-q --quiet -v --verbose --no-cache", "--spec --python --index-url --pip-args"),
    "docker": CONTAINERS,
    "podman": CONTAINERS,
    "java": _launcher("", "-server", "-cp -classpath --class-path", "-jar", scripts=True),
    "dotnet": _launcher("run", "--no-build --no-restore", "-c --configuration", "--project", scripts=True),
    "go": _launcher("run", "-race", "-C -tags", scripts=True),
    **dict.fromkeys(("sh", "bash", "zsh", "ruby", "perl", "php", "ts-node"), SCRIPTS),
}
"""By the name of the program, without a version and a suffix."""

NAME = re.compile(r"(?P<name>.+?)[\d.]*(\.(exe|cmd|bat))?", re.IGNORECASE)


def program_of(command: Sequence[str], cwd: str = "") -> str:
    """The program's name, and what it runs if it is there to run others: ``python server.py``, ``npx @scope/server@1.2``.

    *cwd* is the folder of a script with a relative path.
    """
    program, *arguments = command
    name = Path(program).name
    found = NAME.fullmatch(name)
    launcher = LAUNCHERS.get(found["name"].lower()) if found is not None else None
    target = None if launcher is None else _target(launcher, arguments, cwd)
    return name if target is None else f"{name} {target}"


def _target(launcher: Launcher, arguments: Iterable[str], cwd: str) -> str | None:
    rest = iter(arguments)
    awaited = launcher.subcommands
    for argument in rest:
        if argument in launcher.named:
            shown = _shown(next(rest, ""))
            return None if shown is None else f"{argument} {shown}"
        if argument in launcher.values:
            next(rest, None)
        elif argument in launcher.subcommands:
            awaited = frozenset()
        elif argument == "--" or argument in launcher.flags or (argument.startswith("--") and "=" in argument):
            continue
        elif argument.startswith("-") or awaited:
            return None
        else:
            is_script = launcher.scripts and cwd and not Path(argument).is_absolute()
            return _shown(f"{Path(cwd).name}/{argument}" if is_script else argument)
    return None


def _shown(target: str) -> str | None:
    """*target*, or the end of a long path; None if it may be more than a package, a module, an image or a path, or a variable's value."""
    if TARGET.fullmatch(target) is None or "://" in target or VARIABLE.match(target):
        return None
    parts = re.split(r"[/\\]", target)
    if len([*filter(None, parts)]) > PARTS_SHOWN:
        target = "/".join(["…", *parts[-PARTS_SHOWN:]])
    return target if len(target) <= TARGET_SHOWN else f"…{target[-TARGET_SHOWN + 1 :]}"
