"""The parts of a server's entry in a file, unexpanded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from mcp_host.secret import Secret, SecretValues

TextT = TypeVar("TextT", Secret, str, str | None)
Scope: TypeAlias = Literal["managed", "local", "project", "user"]
"""Whose file it is: the administrator's, the user's for one project, the project's own, or the user's."""


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A value that is a variable of the environment: the file has its *name*. *prefix* is put before it.

    An *optional* one that is not set is left out.
    """

    name: str
    prefix: str = ""
    optional: bool = False


Value: TypeAlias = Secret | EnvironmentVariable
Change: TypeAlias = Callable[[str, Value], Secret | None]
"""Gets the name of a field, like ``env.TOKEN``, and its value. None leaves it out."""


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started: its command line, environment and folder.

    *env_file* is a file with more variables; those in *env* win.
    """

    command: str
    args: tuple[Secret, ...] = ()
    env: Mapping[str, Value] = field(default_factory=SecretValues)
    env_file: str | None = None
    cwd: str | None = None

    def map(self, change: Change) -> StdioServer:
        """The server with each of its values changed. Names of variables stay."""
        return replace(
            self,
            command=_changed("command", self.command, change),
            args=tuple(_changed(f"args[{index}]", each, change) for index, each in enumerate(self.args)),
            env=_mapped("env", self.env, change),
            env_file=_changed("env_file", self.env_file, change),
            cwd=_changed("cwd", self.cwd, change),
        )


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server over Streamable HTTP. *uds* is the path of a unix socket to connect to, in place of the URL's host."""

    url: Secret
    headers: Mapping[str, Value] = field(default_factory=SecretValues)
    uds: str | None = None

    def map(self, change: Change) -> HttpServer:
        """The server with each of its values changed. Names of headers stay."""
        return replace(
            self,
            url=_changed("url", self.url, change),
            headers=_mapped("headers", self.headers, change),
            uds=_changed("socket", self.uds, change),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How to log in to a server, as far as the file says: None is what it does not say. *enabled* is False if it forbids it."""

    enabled: bool = True
    client_id: str | None = None
    client_secret: Secret | None = None
    scopes: tuple[str, ...] | None = None
    redirect_uri: str | None = None
    callback_port: int | None = None
    metadata_url: str | None = None
    authorization_url: str | None = None
    token_url: str | None = None
    resource: str | None = None

    def map(self, change: Change) -> OAuthSettings:
        """The settings with each of their texts changed."""
        texts = {each.name: text for each in fields(self) if isinstance(text := getattr(self, each.name), str)}
        changed: dict[str, Any] = {name: _changed(f"oauth.{name}", text, change) for name, text in texts.items()}
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """The tools that the file lets through, by the server's names: those in *allow* (None is all) but for *exclude*."""

    allow: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()

    def allows(self, name: str) -> bool:
        """Whether the file lets the tool *name* through."""
        return (self.allow is None or name in self.allow) and name not in self.exclude


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A value that the file wants asked for: ``${input:id}``.

    *type* is "promptString" or "pickString", which has *options*. *default* is to be proposed. A *password* is
    not to be shown. Two files may have inputs of the same *id*, so *path* tells them apart.
    """

    path: Path
    id: str
    type: str = "promptString"
    description: str = ""
    default: str | None = None
    password: bool = False
    options: tuple[str, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Whether it can be asked for. A "command" of an editor cannot be run."""
        return self.type in ("promptString", "pickString")

    @property
    def key(self) -> str:
        """The key of its answer in a store."""
        return f"input {self.id} of {self.path.absolute()}"

    def accepts(self, answer: str) -> bool:
        """Whether *answer* is one of the options, if there are any."""
        return not self.options or answer in self.options


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a server is from: the file, its dialect, whose it is (None if that is not known), and the folder of its project."""

    path: Path
    dialect: str
    scope: Scope | None = None
    project: Path | None = None


def _mapped(name: str, values: Mapping[str, Value], change: Change) -> Mapping[str, Value]:
    changed = {key: change(f"{name}.{key}", value) for key, value in values.items()}
    return SecretValues({key: value for key, value in changed.items() if value is not None})


def _changed(name: str, text: TextT, change: Change) -> TextT:
    """*text*, changed: as a `Secret` only if it is one. The repr of others shows them, such as paths."""
    if text is None:
        return text
    changed = change(name, Secret(text)) or Secret()
    if isinstance(text, Secret):
        return changed
    return str.__str__(changed)
