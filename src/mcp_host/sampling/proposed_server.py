"""A server that a file brings, as a person is asked about it before it is started for the first time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedServer:
    """A server of a file that needs consent. Its texts are those of the file: control characters in them are escaped.

    *name* and *path* are the server's and its file's; *scope* is whose file it is, such as "project", or None if that is not known.
    *kind* is "command" if the server is started on this machine, or "url". *written* is its command line or URL (with its unix socket) as
    the file has it, and *expanded* what it becomes, with ``**********`` for what may be secret, and ``${input:id}`` for what is asked for
    later. *cwd* is the folder that it is started in (None: that of this process), and *env_file* the path of the file with more variables.
    *variables* are those of the environment (or the headers) that the files give it, with what may be shown of their values, and
    *deciding* the names of those that can decide what is run, such as PATH and NODE_OPTIONS, or where it sends what it gets, such as
    OPENAI_BASE_URL: show their values. *host* is the one that is
    connected to, in ASCII, which readers of the URL may not find: ``evil.example`` for ``https://good.example@evil.example``.
    *expansions* say which values of yours it gets, and where: ``headers.X-Key: the variable TOKEN``, ``args[0]: the input key``; and where
    links lead: ``env_file: .env leads to /home/u/.env``. *settings* are the rest of its entry, such as ``timeout: 5.0 seconds``.
    *warnings* say what in its entry is not obeyed, such as a sandbox.

    *previous* is the one that was agreed to under this name, in this file, if it has changed since: the beginning of *expanded* then.
    *digest* is of all that the person agrees to, with what is hidden of the command line or URL and of the files. If it changes, the
    server needs consent again.
    """

    name: str
    path: Path
    scope: Literal["managed", "local", "project", "user"] | None
    kind: Literal["command", "url"]
    written: str
    expanded: str
    cwd: str | None = None
    env_file: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    deciding: tuple[str, ...] = ()
    host: str | None = None
    expansions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    digest: str
    previous: str | None = None
