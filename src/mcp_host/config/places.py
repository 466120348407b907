"""Where hosts keep their files of servers, by platform."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from mcp_host.concurrency.locked_file import folder_of_user, home_folder
from mcp_host.config.dialects import GENERIC
from mcp_host.config.values import Scope

Base: TypeAlias = Literal["home", "config", "appdata", "project", "system"]
Platform: TypeAlias = Literal["linux", "darwin", "win32"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host has a file. *path* is from *base*; *platforms* are those where it is, or all."""

    dialect: str
    scope: Scope
    base: Base
    path: str
    platforms: tuple[Platform, ...] = ("linux", "darwin", "win32")
    of_project: bool = False
    """Whether the file has a part for each project, under ``projects`` and its path."""

    @property
    def parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.path).parts


CLINE = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
PLACES = (
    Place("claude-code", "managed", "system", "etc/claude-code/managed-mcp.json", ("linux",)),
    Place("claude-code", "managed", "system", "Library/Application Support/ClaudeCode/managed-mcp.json", ("darwin",)),
    Place("claude-code", "managed", "system", "Program Files/ClaudeCode/managed-mcp.json", ("win32",)),
    Place("gemini-cli", "managed", "system", "etc/gemini-cli/settings.json", ("linux",)),
    Place("gemini-cli", "managed", "system", "Library/Application Support/GeminiCli/settings.json", ("darwin",)),
    Place("gemini-cli", "managed", "system", "ProgramData/gemini-cli/settings.json", ("win32",)),
    Place("claude-code", "local", "home", ".claude.json", of_project=True),
    Place("claude-code", "project", "project", ".mcp.json"),
    Place("vscode", "project", "project", ".vscode/mcp.json"),
    Place("cursor", "project", "project", ".cursor/mcp.json"),
    Place("zed", "project", "project", ".zed/settings.json"),
    Place("gemini-cli", "project", "project", ".gemini/settings.json"),
    Place("codex", "project", "project", ".codex/config.toml"),
    Place("opencode", "project", "project", "opencode.json"),
    Place("opencode", "project", "project", "opencode.jsonc"),
    Place(GENERIC, "project", "project", "mcp.json"),
    Place(GENERIC, "user", "config", "mcp-host/mcp.json", ("linux", "darwin")),
    Place(GENERIC, "user", "appdata", "mcp-host/mcp.json", ("win32",)),
    Place("claude-code", "user", "home", ".claude.json"),
    Place("claude-desktop", "user", "appdata", "Claude/claude_desktop_config.json"),
    Place("vscode", "user", "appdata", "Code/User/mcp.json"),
    Place("vscode", "user", "home", ".copilot/mcp-config.json"),
    Place("cursor", "user", "home", ".cursor/mcp.json"),
    Place("windsurf", "user", "home", ".codeium/windsurf/mcp_config.json"),
    Place("zed", "user", "config", "zed/settings.json", ("linux", "darwin")),
    Place("zed", "user", "appdata", "Zed/settings.json", ("win32",)),
    Place("cline", "user", "appdata", CLINE),
    Place("cline", "user", "home", ".cline/mcp.json"),
    Place("gemini-cli", "user", "home", ".gemini/settings.json"),
    Place("lm-studio", "user", "home", ".lmstudio/mcp.json"),
    Place("goose", "user", "config", "goose/config.yaml", ("linux", "darwin")),
    Place("goose", "user", "appdata", "Block/goose/config/config.yaml", ("win32",)),
    Place("codex", "user", "home", ".codex/config.toml"),
    Place("opencode", "user", "config", "opencode/opencode.json"),
    Place("opencode", "user", "config", "opencode/opencode.jsonc"),
    Place("inspector", "user", "home", ".mcp-inspector/mcp.json"),
)
"""The files of all hosts, those of the narrower scope first."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of servers, for `read_servers`: its dialect and scope, as far as its path tells.

    *section* are the keys that lead to the part of the file that is read. *project* is the folder of the project that it is for.
    """

    path: Path
    dialect: str | None = None
    scope: Scope | None = None
    section: tuple[str, ...] = ()
    project: Path | None = None


def find_servers(
    *,
    home: str | os.PathLike[str] | None = None,
    project: str | os.PathLike[str] | None = None,
    platform: str = sys.platform,
    environment: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> list[FoundFile]:
    """The files that the hosts on this machine keep their servers in, as far as they are there. None is read.

    They are in the order in which their servers go before others of the same name (`merge_servers`): those of the
    administrator, of this user for *project*, of *project* itself, and of the user. Without *project*, only the first and the last.

    *home* is the user's folder. *platform* is one of "linux", "darwin" and "win32", and *root* where the administrator's
    files are: "/" or the system's drive. *environment* has ``APPDATA``, ``XDG_CONFIG_HOME`` and ``CODEX_HOME``, if these are set.
    """
    environment = os.environ if environment is None else environment
    bases = _bases(home_folder() if home is None else Path(home), platform, environment, root)
    if project is not None:
        bases["project"] = Path(project)
    return [file for file in _files(bases, platform, environment) if file.path.is_file()]


def user_file(
    *,
    home: str | os.PathLike[str] | None = None,
    platform: str = sys.platform,
    environment: Mapping[str, str] | None = None,
) -> FoundFile:
    """The user's own file of servers for hosts that are made with this library, which may not be there yet.

    It is ``~/.config/mcp-host/mcp.json``, on Windows ``%APPDATA%\\mcp-host\\mcp.json``. The arguments are those of `find_servers`.
    """
    environment = os.environ if environment is None else environment
    bases = _bases(home_folder() if home is None else Path(home), platform, environment, None)
    return next(file for file in _files(bases, platform, environment) if file.dialect == GENERIC)


def _bases(
    home: Path, platform: str, environment: Mapping[str, str], root: str | os.PathLike[str] | None
) -> dict[Base, Path]:
    config = folder_of_user(environment, "XDG_CONFIG_HOME", home / ".config")
    appdata = {
        "win32": folder_of_user(environment, "APPDATA", home / "AppData/Roaming"),
        "darwin": home / "Library/Application Support",
    }
    system = Path(environment.get("SystemDrive", "C:") + "/") if platform == "win32" else Path("/")
    return {
        "home": home,
        "config": config if platform == "linux" else home / ".config",
        "appdata": appdata.get(platform, config),
        "system": system if root is None else Path(root),
    }


def _files(bases: Mapping[Base, Path], platform: str, environment: Mapping[str, str]) -> Iterator[FoundFile]:
    """The files of `PLACES` that are on this platform, whether they are there or not."""
    for place in PLACES:
        project = bases.get("project") if place.scope in ("local", "project") else None
        if place.base not in bases or platform not in place.platforms or (place.of_project and project is None):
            continue
        path = bases[place.base] / place.path
        if place.dialect == "codex" and place.scope == "user":
            path = folder_of_user(environment, "CODEX_HOME", path.parent) / path.name
        section = ("projects", str(_absolute(project))) if place.of_project and project else ()
        yield FoundFile(path, place.dialect, place.scope, section, project)


def place_of(path: Path, home: Path | None = None) -> FoundFile:
    """The file at *path*, with what the path tells: its dialect and whose it is. *home* is the user's folder.

    The name of a file and of its folders tells its dialect. It is the user's or the administrator's only if it is where this machine
    has such files: a project may have folders of any name, and its servers are not started without consent.
    """
    whole = _absolute(path)
    home = home_folder() if home is None else home
    own = user_file(home=home)
    if whole == own.path.absolute():
        return FoundFile(path, own.dialect, own.scope)
    places = [place for place in PLACES if place.dialect != GENERIC and not place.of_project]
    ends = [place for place in places if whole.parts[-len(place.parts) :] == place.parts]
    if ends:
        bases = _bases(home, sys.platform, os.environ, None)
        at_home = [place for place in ends if bases.get(place.base) == whole.parents[len(place.parts) - 1]]
        of_project = [place for place in ends if place.base == "project"]  # in a folder called as that of a host, too
        known = at_home + of_project
        [place, *_] = known or ends
        return FoundFile(path, place.dialect, place.scope if known else None)
    dialects = {place.dialect for place in PLACES if place.parts[-1] == path.name}
    return FoundFile(path, dialects.pop() if len(dialects) == 1 else None, None)


def _absolute(path: Path) -> Path:
    """*path* from the root, if there is still a folder that it is relative to. If not, no file is there."""
    with suppress(FileNotFoundError):
        return path.absolute()
    return path


def project_of(path: Path) -> Path:
    """The folder of the project that has this file: that of the file, or the one above ``.vscode`` and the like."""
    folder = path.absolute().parent
    hides_itself = path.name.startswith(".")  # such as .dotfiles/.mcp.json: no host hides a file in its own folder
    return folder.parent if folder.name.startswith(".") and not hides_itself else folder
