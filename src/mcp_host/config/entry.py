"""One server of a file: what it is, unexpanded, and how it becomes a transport."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar

from mcp_host.concurrency.locked_file import home_folder
from mcp_host.concurrency.tasks import awaited
from mcp_host.config.deciding import decides, names_host, shown_value
from mcp_host.config.dialects import DIALECTS
from mcp_host.config.fields import bounded
from mcp_host.config.formats.dotenv import parse_env_file
from mcp_host.config.values import Change, HttpServer, Input, OAuthSettings, Source, StdioServer, ToolFilter, Value
from mcp_host.config.variables import Expansion, NotSet, Values
from mcp_host.errors import ConfigError, escaped
from mcp_host.handlers import as_async
from mcp_host.secret import HIDDEN, ExpandedProgram, Secret, SecretValues
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio

T = TypeVar("T")
R = TypeVar("R")
AskInput: TypeAlias = Callable[[Input], Awaitable[str | None] | str | None]
"""Asks a person for an input of a file. None: there is no answer."""

STORE = "the store of answers"
EVERY_TOOL = ToolFilter()
MAX_LENGTH = (
    2 * 1024 * 1024
)  # characters of the values of a server: Linux takes no longer command line with its environment

# What is hidden before or behind the host of a URL says nothing of the host.
_HIDDEN_SCHEME = re.compile(rf"\A[^/?#]*{re.escape(HIDDEN)}[^/?#]*//")
_HIDDEN_PORT = re.compile(rf":[^:/?#@]*{re.escape(HIDDEN)}[^:/?#@]*(?=[/?#]|\Z)")
_LETTERS = "zhiddenz"  # in a host, in the place of `HIDDEN`

Form: TypeAlias = Literal["text", "shown", "settled"]
"""One of the forms of an `Expansion`."""
FORMS: tuple[Form, ...] = ("text", "shown", "settled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedServer:
    """A server with the values of its variables, ready to connect to.

    *shown* is its command line or URL (with its unix socket) with ``**********`` in the place of what variables hid: values of the environment,
    of files and of passwords. *digest* tells two command lines or URLs apart, with their secrets.
    *warnings* are those of the expansion.
    """

    transport: Transport
    oauth: OAuthSettings | None = field(repr=False)  # any of its texts may be a variable
    shown: str = field(repr=False)  # arguments and URLs may have secrets without a variable
    digest: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPreview:
    """What a server will be, for a person who decides whether to use it.

    *shown* is as for `ExpandedServer`, with ``${input:id}`` in the place of inputs. *cwd* is the folder that it is started in (None: that of
    this process), and *env_file* the path of the file with more variables. *variables* are those of the environment, or the headers,
    that the file gives it: their names, and what may be shown of the values. *deciding* are the names of those that can decide
    what is run, such as PATH, or where it sends what it gets, such as OPENAI_BASE_URL: what the files say of the one, and of the
    hosts in the other, is shown. *host* is the one that is connected to, in ASCII, as far as the
    files say it. *links* are those among the files of values: ``headers.X-Key: key.txt leads to /home/u/.token``; *reads_project* says
    whether one of these files is in the folder of the project.
    `expand` makes of it what was shown. *digest* is of all this, of the inputs, and of what the files say in the place of what is hidden, also of the login; values that the
    environment gives to variables or headers may change.
    """

    shown: str
    variables: Mapping[str, str] = field(repr=False)
    digest: str
    cwd: str | None = None
    env_file: str | None = None
    deciding: tuple[str, ...] = ()
    host: str | None = None
    links: tuple[str, ...] = ()
    reads_project: bool = False
    _expander: _Expander = field(repr=False, compare=False)

    def expand(self, answers: Mapping[Input, str] | None = None) -> ExpandedServer:
        """The server that was shown, with the *answers* of `ask_inputs` in it. Nothing else of it is looked up again.

        Raises:
            ConfigError: There is no answer, or it leads to something else than was shown.
        """
        return self._expander.answered(answers or {}).expanded()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """A server as a file describes it. Nothing is expanded or started.

    *transport* is None if it is of a kind that is not supported, or cannot be read: then *problem* says why. The
    others are as the file has them, or None if it says nothing: *timeout* for one call and *connect_timeout* in seconds,
    *tools* that the file lets through, *oauth* for logging in. *inputs* are those that its values ask for, and
    *variables* where all of its variables are from, such as ``headers.Authorization: the variable TOKEN``.

    *warnings* say what in the entry is unknown or not obeyed. No entry grants an approval: what a file says of that is
    among the warnings. *digest* is of the entry as it is written, in any order of its keys: consent given to the
    one does not hold for another.
    """

    name: str
    transport: StdioServer | HttpServer | None
    source: Source
    digest: str
    enabled: bool = True
    timeout: float | None = None
    connect_timeout: float | None = None
    tools: ToolFilter = EVERY_TOOL
    oauth: OAuthSettings | None = None
    title: str | None = None
    description: str | None = None
    inputs: tuple[Input, ...] = ()
    variables: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def shown(self) -> str:
        """Its command line, or its URL and unix socket, unexpanded."""
        return "" if self.transport is None else _shown(self.transport)

    def error(self, reason: str, field: str | None = None) -> ConfigError:
        """An error that names the file and this server."""
        return ConfigError(reason, path=self.source.path, server=self.name, field=field)

    def expand(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        answers: Mapping[Input, str] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> ExpandedServer:
        """The server with its variables expanded, in the forms that its dialect has. It may read small files, and blocks.

        *environment* is that of this process by default. *answers* are those of `ask_inputs`. *workspace* is the folder
        for ``${workspaceFolder}``: by default that of the project, if the file is a project's. *home* is the user's.
        Relative paths are from the workspace, or else from the folder of this file. Servers of a project are started
        in its folder, if the file names no other: links are followed. What a variable gives is not expanded again, and keys are
        not expanded at all.

        Raises:
            ConfigError: A variable has no value, a file cannot be read, or the server cannot be used.
        """
        return _Expander(self, self._values(environment, answers or {}, workspace, home)).expanded()

    def preview(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> ServerPreview:
        """What `expand` will give, as far as it is known before the inputs are asked for. The rest is as for `expand`.

        Raises:
            ConfigError: A variable has no value, a file cannot be read, or the server cannot be used.
        """
        # What stands for an answer is no secret.
        shown = {each.id: replace(each, password=False) for each in self.inputs}
        placeholders = {each: f"${{input:{id}}}" for id, each in shown.items()}
        values = self._values(environment, placeholders, workspace, home)
        return _Expander(self, replace(values, inputs=shown)).preview()

    def _described(self) -> StdioServer | HttpServer:
        if self.transport is None:
            raise self.error(self.problem or "it has no transport")
        return self.transport

    def _values(
        self,
        environment: Mapping[str, str] | None,
        answers: Mapping[Input, str],
        workspace: str | os.PathLike[str] | None,
        home: str | os.PathLike[str] | None,
    ) -> Values:
        folder = self.source.project if workspace is None else Path(workspace)
        if folder is not None:
            folder = folder.absolute()  # what is relative to it would be so twice
        return Values(
            forms=DIALECTS[self.source.dialect].forms,
            environment=dict(os.environ if environment is None else environment),
            home=str(home_folder()) if home is None else os.path.abspath(home),
            workspace=None if folder is None else os.fspath(folder),
            folder=self.source.path.absolute().parent if folder is None else folder,
            inputs={each.id: each for each in self.inputs},
            answers=answers,
        )


class _Expander:
    """The expansion of one entry."""

    def __init__(self, entry: ServerEntry, values: Values) -> None:
        self._entry = entry
        self._values = values
        self._warnings: dict[str, None] = {}
        self._expansions: dict[str, Expansion | None] = {}
        self._length = 0

    def answered(self, answers: Mapping[Input, str]) -> _Expander:
        """The same, with *answers*: what was looked up is not looked up again."""
        inputs = {each.id: each for each in self._entry.inputs}
        return _Expander(self._entry, replace(self._values, inputs=inputs, answers=answers, reads_more=False))

    def expanded(self) -> ExpandedServer:
        server = self._entry._described()
        real, shown = self._changed(server, "text"), _shown(self._changed(server, "shown"))
        oauth = None if self._entry.oauth is None else self._entry.oauth.map(self._each("text"))
        transport = self._stdio(real) if isinstance(real, StdioServer) else self._http(real)
        warnings = bounded(self._warnings)
        digest_of_it = digest(_identity(real))
        return ExpandedServer(transport=transport, oauth=oauth, shown=shown, digest=digest_of_it, warnings=warnings)

    def preview(self) -> ServerPreview:
        server = self._entry._described()
        real, shown, settled = (self._changed(server, form) for form in FORMS)
        inputs = {each.id: (each.type, each.default, each.options, each.password) for each in self._entry.inputs}
        given = [sorted(self._entry.variables), inputs]
        login = self._entry.oauth and self._entry.oauth.map(self._each("settled"))
        if isinstance(shown, HttpServer):
            assert isinstance(settled, HttpServer), "it is of the same kind"
            settings = [] if login is None else [getattr(login, each.name) for each in fields(login)]
            return ServerPreview(
                shown=_shown(shown),
                variables=_in_order(_told(_secrets(shown.headers), _secrets(settled.headers))),
                digest=digest([_identity(real), _of_files(_secrets(settled.headers), {}), settings, given]),
                host=_host(settled),
                links=self._links(),
                reads_project=self._values.reads_project,
                _expander=self,
            )
        assert isinstance(real, StdioServer), "it is of the same kind"
        assert isinstance(settled, StdioServer), "it is of the same kind"
        more = self._env_file(real.env_file)
        env = _secrets(settled.env)
        given_values = {**more, **env}
        told = _told({**dict.fromkeys(more, HIDDEN), **_secrets(shown.env)}, given_values)
        told |= {name: value for name, value in given_values.items() if decides(name)}
        deciding = {name: value for name, value in given_values.items() if decides(name) or names_host(name, value)}
        env_file = None if shown.env_file is None else os.fspath(self._values.folder / shown.env_file)
        return ServerPreview(
            shown=_shown(shown),
            variables=_in_order(told),
            digest=digest([_identity(real), real.cwd, real.env_file, _of_files(env, more), given]),
            cwd=None if shown.cwd is None else escaped(shown.cwd),
            env_file=None if env_file is None else escaped(env_file),
            deciding=tuple(_in_order(deciding)),
            links=self._links(),
            reads_project=self._values.reads_project,
            _expander=self,
        )

    def _links(self) -> tuple[str, ...]:
        found = self._values.links.items()
        return tuple(escaped(f"{link} leads to {target}") for link, target in found if target is not None)

    def _changed(self, server: StdioServer | HttpServer, form: Form) -> StdioServer | HttpServer:
        """The server with each of its values in one form, and with the real place of its folder or socket: what is shown is used."""
        changed = server.map(self._each(form))
        follow = partial(self._checked, self._values.real_path)
        if isinstance(changed, HttpServer):
            return changed if changed.uds is None else replace(changed, uds=follow("socket", changed.uds))
        is_project = self._entry.source.scope in ("local", "project")
        cwd = self._values.workspace if is_project and changed.cwd is None else changed.cwd
        return replace(changed, cwd=None if cwd is None else follow("cwd", cwd))

    def _each(self, form: Form) -> Change:
        """Makes of each value one of the forms of its `Expansion`."""

        def change(name: str, value: Value) -> Secret | None:
            if name not in self._expansions:
                self._expansions[name] = self._expansion(name, value)
            expansion = self._expansions[name]
            changed: Secret | None = getattr(expansion, form, None)
            return changed

        return change

    def _expansion(self, name: str, value: Value) -> Expansion | None:
        expansion = self._checked(self._values.expand, name, value)
        if expansion is None:
            self._warnings[f"{name}: it is left out, since the environment has no such variable"] = None
            return None
        self._length += len(expansion.text)
        if self._length > MAX_LENGTH:
            raise self._entry.error(f"its values become longer than {MAX_LENGTH:,} characters")
        return expansion

    def _checked(self, read: Callable[[str, T], R], name: str, value: T) -> R:
        """What *read* makes of the field *name*. An error names the server, too."""
        reason = ""
        try:
            return read(name, value)
        except NotSet as exc:
            reason = str(exc)
        raise self._entry.error(reason, name)

    def _stdio(self, server: StdioServer) -> Stdio:
        env = SecretValues({**self._env_file(server.env_file), **_secrets(server.env)})
        reason, field = "", None
        try:
            return Stdio([self._program(server), *server.args], env=env or None, cwd=server.cwd)
        except TypeError as exc:  # it quotes no argument, and nor does the other
            reason, field = str(exc), "command"
        except ValueError as exc:  # it names what cannot be encoded
            reason = str(exc)
        raise self._entry.error(reason, field)

    def _program(self, server: StdioServer) -> str:
        described = self._entry._described()
        assert isinstance(described, StdioServer), "it is of the same kind"
        written = described.command
        return written if written == server.command else ExpandedProgram(server.command, written)

    def _env_file(self, path: str | None) -> SecretValues[str]:
        if path is None:
            return SecretValues()
        variables, bad = parse_env_file(self._checked(self._values.read, "env_file", path))
        self._warnings |= {f"env_file: its line {line} is no variable": None for line in bad}
        return SecretValues(variables)

    def _http(self, server: HttpServer) -> Transport:
        from mcp_host.transports.http import StreamableHttp  # not needed for stdio

        field, reason = "url", ""
        try:
            StreamableHttp(server.url, uds=server.uds)
            field = "headers"
            return StreamableHttp(server.url, headers=_secrets(server.headers) or None, uds=server.uds)
        except ValueError as exc:  # it quotes no value
            reason = str(exc)
        raise self._entry.error(reason, field)


class AnswerStore(Protocol):
    """Where answers are kept, by `Input.key`: `KeyringTokens` of `mcp_host.auth`, or another of its stores."""

    async def load(self, key: str) -> str | None: ...

    async def swap(self, key: str, old: str | None, new: str | None) -> bool: ...


async def ask_inputs(
    entries: Iterable[ServerEntry], ask: AskInput, *, store: AnswerStore | None = None
) -> dict[Input, str]:
    """Ask for the inputs of *entries*, each once, one after the other. Pass the answers to `ServerEntry.expand`.

    *ask* is an async function, or a plain one, which is called in a thread. Inputs for which it returns None have no answer;
    so have those of types that are not supported, for which it is not called, and answers that are not among the options.

    A *store* keeps the answers, so that nothing in it is asked for again: ``store=KeyringTokens("my-host")``. To have an
    input asked for again, call ``await store.take(input.key)``.
    """
    asking = as_async(ask, argument="ask", shape="(input: Input) -> str | None")
    answers: dict[Input, str] = {}
    for each in dict.fromkeys(each for entry in entries for each in entry.inputs if each.is_supported):
        saved = None if store is None else await awaited(store.load(each.key), STORE)
        answer = saved if saved is not None and each.accepts(saved) else await awaited(asking(each), "the question")
        if answer is not None and each.accepts(answer):
            answers[each] = Secret(answer)
            if store is not None and answer != saved:
                await awaited(store.swap(each.key, saved, answer), STORE)
    return answers


def digest(value: object) -> str:
    """A digest of data, in any order of its keys."""
    return sha256(dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def _secrets(values: Mapping[str, Value]) -> SecretValues[str]:
    """The values of a server that is expanded, by name."""
    return SecretValues({name: value for name, value in values.items() if isinstance(value, Secret)})


def _of_files(values: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Those of *values*, and of *more* from a file, of which the files say more than where they are from, which is among the variables of the entry."""
    return {name: value for name, value in {**more, **values}.items() if values.get(name) != HIDDEN}


def _identity(server: StdioServer | HttpServer) -> list[str | None]:
    """What tells one server from another: its command line, or its URL."""
    return [server.command, *server.args] if isinstance(server, StdioServer) else [server.url, server.uds]


def _shown(server: StdioServer | HttpServer) -> str:
    if isinstance(server, StdioServer):
        return escaped(shlex.join([server.command, *server.args]))
    return escaped(str.__str__(server.url) + ("" if server.uds is None else f" at {server.uds}"))


def _host(server: HttpServer) -> str | None:
    """The host that is connected to, if the URL has one and no socket takes its place: readers of a URL may find another one."""
    from mcp_host.transports._http.url import parse_url  # not needed for stdio

    url = _HIDDEN_PORT.sub("", _HIDDEN_SCHEME.sub("https://", server.url)).replace(HIDDEN, _LETTERS)
    try:
        return None if server.uds else parse_url(url).raw_host.decode().replace(_LETTERS, HIDDEN)
    except ValueError:  # it is not known before the variables are
        return None


def _told(shown: Mapping[str, str], settled: Mapping[str, str]) -> dict[str, str]:
    """What a person is told of these values: what the file itself has may be a secret too."""
    return {name: shown_value(name, value, settled[name]) for name, value in shown.items()}


def _in_order(values: Mapping[str, str]) -> dict[str, str]:
    return {escaped(name): escaped(str.__str__(values[name])) for name in sorted(values)}
