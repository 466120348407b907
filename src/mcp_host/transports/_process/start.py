"""Starting a server as a child process, on each platform in its own way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcp_host.errors import ConnectFailed
from mcp_host.transports._process.child import Child

if sys.platform == "win32":
    from mcp_host.transports._process.windows import start_child
else:
    from mcp_host.transports._process.posix import start_child

if sys.platform == "win32":
    INHERITED = (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
else:
    INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The only environment variables that a server inherits. Others may be secrets, and servers are other people's code."""


async def start(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None, *, server: str | None = None
) -> Child:
    """Start *command* with pipes to its standard streams. Errors say the name that the host gave the *server*.

    Raises:
        ConnectFailed: There is no such command, or the system cannot run it.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # Some shells export functions as variables, which the next shell runs.
    safe = {name: value for name, value in inherited.items() if not value.startswith("()")}
    try:
        return await start_child(command, safe | dict(env or {}), cwd)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        subject = "" if server is None else f"{server}: "
        text = f"{subject}cannot start {command[0]!r}: {_reason(exc, cwd)}"
        # Reports of errors show the variables of frames, and those of `subprocess` hold the environment.
        raise ConnectFailed(text, may_have_run=False) from exc.with_traceback(None)


def _reason(exc: Exception, cwd: str | Path | None) -> str:
    if isinstance(exc, FileNotFoundError) and exc.filename != cwd and os.path.isfile(Path(cwd or "", exc.filename)):
        return "the file is there, but not the interpreter that its first line names"
    return str(exc)
