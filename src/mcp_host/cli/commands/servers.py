"""The command that shows and changes the files of servers: ``mcp-host servers``."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mcp_host import config
from mcp_host.cli.arguments import check, take_url
from mcp_host.cli.commands import OWN_JSON, Command
from mcp_host.cli.inputs import KeyringAnswers
from mcp_host.cli.options import HEADER, NAME, NAMED, Options, pair
from mcp_host.cli.output import ExitCode, Printer, Report, UsageError, near, print_error, text_of
from mcp_host.concurrency import signals
from mcp_host.concurrency.locked_file import home_folder
from mcp_host.config.deciding import decides, shown_value
from mcp_host.config.dialects import GENERIC
from mcp_host.config.secret_words import without_secrets
from mcp_host.config.values import Value
from mcp_host.config.writer import THERE_ALREADY, check_name
from mcp_host.errors import ConfigError, escaped, quoted
from mcp_host.secret import Secret, SecretValues

REGISTRY_NAME = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/[A-Za-z0-9._-]+", re.ASCII)
KINDS: Mapping[type, str] = {config.StdioServer: "stdio", config.HttpServer: "http"}
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NO_SERVERS = f"there are no servers: {NAME} servers add adds one, {NAME} servers import takes those of other hosts"


def run(options: Options) -> Report:
    """Show or change a file of servers.

    Raises:
        UsageError: The arguments are wrong.
        ConfigError: A file cannot be read or changed.
    """
    return RUN[options.verb.removeprefix("servers ")](options)


def _list(options: Options) -> Report:
    """Show the servers of the user's file, or of all."""
    if options.all and options.config is not None:
        raise UsageError("--all and --config contradict each other: use one of them")
    places = _everywhere() if options.all else [_file(options)]
    files = list(_read(places, skip=options.all or options.config is None))
    entries = [entry for file in files for entry in file.servers]

    def show(printer: Printer) -> None:
        if sys.stdout.isatty():
            for file in [file for file in files if file.servers]:
                _show(file, printer)
        else:
            for entry in entries:
                printer.text("\t".join(_columns(entry)))

    warnings = [f"warning: {escaped(str(file.path))}: {warning}" for file in files for warning in file.warnings]
    if not entries and not options.json:
        warnings.append(NO_SERVERS)
    return Report(document={"servers": list(map(_as_json, entries))}, show=show, errors=warnings)


def _everywhere() -> Sequence[config.FoundFile]:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it has been deleted
        return config.find_servers()
    return config.find_servers(project=None if here == home_folder() else here)


def _read(places: Iterable[Path | config.FoundFile], *, skip: bool) -> Iterable[config.ServersFile]:
    """The files at *places*. With *skip*, those that cannot be read are told of, and those that are not there are not."""
    for place in places:
        if skip and isinstance(place, config.FoundFile) and not place.path.exists():
            continue
        try:
            yield config.read_servers(place)
        except ConfigError as exc:
            if not skip:
                raise
            print_error(str(exc))


def _show(file: config.ServersFile, printer: Printer) -> None:
    whose = config.DIALECTS[file.dialect].title + ("" if file.scope is None else f", {file.scope}")
    printer.line(f"{escaped(_short(file.path))} ({whose})", "bold")
    for entry in file.servers:
        notes = [without_secrets(entry.shown), _state(entry), *entry.warnings]
        printer.field(escaped(entry.name), "\n".join(filter(None, notes)))


def _short(path: Path) -> str:
    """A path for a person."""
    home = home_folder()
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)


def _state(entry: config.ServerEntry) -> str:
    """What a person should know who wants to use the server."""
    problem = "" if entry.problem is None else f"unusable: {entry.problem}"
    return ", ".join(filter(None, ("" if entry.enabled else "disabled", problem)))


def _columns(entry: config.ServerEntry) -> Sequence[str]:
    state = "enabled" if entry.enabled else "disabled"
    shown = without_secrets(entry.shown) or entry.problem or ""
    return [escaped(entry.name), _kind(entry) or "unusable", state, shown, escaped(str(entry.source.path))]


def _kind(entry: config.ServerEntry) -> str | None:
    return KINDS.get(type(entry.transport))


def _as_json(entry: config.ServerEntry) -> Mapping[str, object]:
    return {
        "name": entry.name,
        "type": _kind(entry),
        "shown": without_secrets(entry.shown),
        "enabled": entry.enabled,
        "problem": entry.problem,
        "warnings": entry.warnings,
        "file": str(entry.source.path),
        "host": entry.source.dialect,
        "scope": entry.source.scope,
    }


def _add(options: Options) -> Report:
    """Write a server down."""
    server = [*options.words, options.operand][0]
    for name, value in options.env:
        if value is None and not VARIABLE_NAME.fullmatch(name):  # not repeated in the message: it may be a secret
            raise UsageError("--env: not of the form NAME or NAME=VALUE")
    if not options.command and REGISTRY_NAME.fullmatch(server):
        return _add_from_registry(options, server)
    if options.version or options.registry or options.package:
        raise UsageError(
            "--version, --registry and --package are for a server of a registry, such as io.github.owner/name"
        )
    _write(options, _server(options))
    return _done(options, "added")


def _write(options: Options, server: config.StdioServer | config.HttpServer) -> None:
    config.add_server(_file(options), options.operand, server, replace=options.replace, source=GENERIC)


def _add_from_registry(options: Options, server: str) -> Report:
    from mcp_host.cli.registry import add_from_registry  # here, because importing it takes a while

    if options.header:
        raise UsageError("a server of a registry says which headers it wants: answer with -e NAME=VALUE")
    if not options.words:
        options.operand = server.rpartition("/")[2]
    path = _path(options)
    check_name(path, options.operand)  # this and the next before anything is asked
    names = [each.name for each in config.read_servers(path).servers] if path.exists() else []
    if not options.replace and options.operand in names:
        raise ConfigError(THERE_ALREADY, path=path, server=options.operand)
    if signals.run(add_from_registry, options, server, path, partial(_write, options)):
        return _done(options, "added")
    return Report(document={"added": None, "file": str(path)}, errors=["nothing was written"])


def _server(options: Options) -> config.StdioServer | config.HttpServer:
    """The server that the command line describes."""
    if options.command and options.words:
        raise UsageError("there are both a URL and a command: a server has one of them")
    options.url = None if options.command else take_url(list(options.words))
    check(options)
    if options.url is None:
        command, *args = options.command
        variables = {
            name: config.EnvironmentVariable(name) if value is None else Secret(value) for name, value in options.env
        }
        return config.StdioServer(command, tuple(map(Secret, args)), SecretValues(variables))
    return config.HttpServer(Secret(options.url), SecretValues({name: Secret(value) for name, value in options.header}))


def _change(what: str, change: Callable[[Path | config.FoundFile, str], None], options: Options) -> Report:
    """Change a server that is in the file."""
    change(_file(options), options.operand)
    return _done(options, what)


def _import(options: Options) -> Report:
    """Copy servers from the files of other hosts. Those that cannot be copied are said, and keep no other from it."""
    copied: list[dict[str, object]] = []
    left: list[dict[str, object]] = []
    for name, entries in _chosen(options).items():
        entry = next(iter(entries.values()))
        about: dict[str, object] = {"name": name, "from": [str(each.source.path) for each in entries.values()]}
        paths = " and ".join(escaped(str(each.source.path)) for each in entries.values())
        try:
            if len(entries) > 1:
                raise UsageError("they differ: choose one by --from")
            notes = [*_copy(options, name, entry), *_readers(options, entry)]
        except (ConfigError, UsageError) as exc:
            reason = text_of(exc).removeprefix(f"{escaped(str(_path(options)))}: server {quoted(name)}: ")
            left.append({**about, "reason": reason})
            print_error(f"{escaped(name)} of {paths} is not imported: {reason}")
            continue
        shown, told = _told(entry)
        notes = [*told, *notes]
        copied.append({**about, "shown": shown, "notes": notes})
        if not options.json:  # in one's own file it is started without consent
            Printer(sys.stdout).text("\n    ".join([f"Imported: {escaped(name)} from {paths}", shown, *notes]))
    document = {"imported": copied, "notImported": left, "file": str(_path(options))}
    return Report(document=document, code=ExitCode.USAGE if left else ExitCode.OK)


def _told(entry: config.ServerEntry) -> tuple[str, Sequence[str]]:
    """The command line or URL of *entry*, and what else decides what runs, or is given to it.

    In the user's own file no consent is asked for. So all of a command line or URL is shown that another person may have
    written, and all that goes with it, as when consent is asked for; in files of the user's other hosts, what looks like a secret is not.
    """
    if entry.source.scope not in ("project", None):
        return without_secrets(entry.shown), ()
    told: list[str] = []

    def tell(field: str, value: Value) -> None:
        kind, _, name = field.partition(".")
        if isinstance(value, Secret) and kind in ("env", "headers", "oauth", "env_file", "cwd"):
            shown = shown_value(name, value, value) if name and not decides(name) else value
            told.append(escaped(f"{field}: {shown}"))

    assert entry.transport is not None, "it has been copied"
    entry.transport.map(tell)
    if isinstance(entry.transport, config.StdioServer) and not entry.transport.cwd and entry.source.project is not None:
        told.append(escaped(f"cwd: {entry.source.project}"))  # as it is written: a project's servers are started there
    if entry.oauth is not None:
        entry.oauth.map(tell)
    return entry.shown, [*told, *entry.variables]


def _copy(options: Options, name: str, entry: config.ServerEntry) -> Sequence[str]:
    """Write *entry* into the file, and say what it lacks there, or shares with another server.

    It gets no answer that the keyring has for a server which is not in the file any more.
    """
    file, path = _file(options), _path(options)
    others = config.read_servers(file).servers if path.exists() else ()
    notes = list(config.add_server(file, name, entry, replace=options.replace))
    users = {each.key: server.name for server in others if server.name != name for each in server.inputs}
    inputs = {replace(each, path=path).key: each.id for each in entry.inputs}
    both = "both get the same answer"
    notes += [
        f"the input {quoted(id)} is one of {quoted(users[key])}, too: {both}"
        for key, id in inputs.items()
        if key in users
    ]
    if (new := inputs.keys() - users) and (keyring := KeyringAnswers.of_person()) is not None:
        signals.run(keyring.forget, new)
    return notes


def _readers(options: Options, entry: config.ServerEntry) -> Iterator[str]:
    """Whether others may read the file now, but not the one that *entry* is from: it may have secrets."""
    path = _path(options)
    if path.stat().st_mode & 0o044 and not entry.source.path.stat().st_mode & 0o044:
        yield (
            "other users may read this file, but not the one that the server is from:"
            f" chmod 600 {escaped(shlex.quote(str(path)))}"
        )


def _chosen(options: Options) -> Mapping[str, Mapping[str, config.ServerEntry]]:
    """The servers to import by name, where several files may have different ones: by their digests."""
    if not (options.words or options.source or options.all):
        raise UsageError("import which? Name servers, or pass --from FILE-OR-HOST, or --all")
    found: dict[str, dict[str, config.ServerEntry]] = {}
    for file in _read(_sources(options), skip=options.source is None):
        for entry in file.servers:
            found.setdefault(entry.name, {}).setdefault(entry.digest, entry)
    for name in options.words:
        if name not in found:
            raise UsageError(f"no other file of yours has a server {quoted(name)}{near(name, found)}")
    return {name: found[name] for name in options.words or found}


def _sources(options: Options) -> Sequence[Path | config.FoundFile]:
    """Where to import from."""
    source = options.source
    if source is not None and source not in config.DIALECTS:
        return [Path(source)]
    # A project's file only if it is named: servers in one's own file are started without consent.
    found = [place for place in _everywhere() if place.path != _path(options) and place.scope != "project"]
    return [place for place in found if source in (None, place.dialect)]


def _file(options: Options) -> Path | config.FoundFile:
    return config.user_file() if options.config is None else options.config


def _path(options: Options) -> Path:
    file = _file(options)
    return file.path if isinstance(file, config.FoundFile) else file


def _done(options: Options, what: str) -> Report:
    name, path = options.operand, str(_path(options))
    text = f"{what.capitalize()}: {escaped(name)} ({escaped(path)})"
    return Report(document={what: name, "file": path}, show=lambda printer: printer.text(text))


CHANGES: Mapping[str, Mapping[str, object]] = {
    **OWN_JSON,
    "config": {"help": f"the file of servers, by default {escaped(str(config.user_file().path))}"},
    "env": {
        "help": "given to the command; NAME alone writes a reference to the variable of the environment, and no value"
    },
    "header": {
        "type": lambda text: [pair(HEADER, text, NAMED)],
        "help": "sent to the URL; ${VARIABLE} in the value is written as a reference to the variable of the environment",
    },
    "source": {"help": f"a file of servers, or the files of one of {', '.join(config.DIALECTS)}"},
    "yes": {"help": "write it without asking"},
}
command = partial(Command, module="servers", changes=CHANGES)

COMMANDS: Mapping[str, Command] = {
    "list": command(
        "show the servers of your file, or with --all those of all hosts on this machine", ("config", "json", "all")
    ),
    "add": command(
        "write a server into your file",
        ("config", "json", "replace", "env", "header", "version", "registry", "package", "yes"),
        "NAME [URL]",
        ways=("NAME URL", "NAME -- COMMAND [ARG ...]", "[NAME] io.github.OWNER/SERVER"),
    ),
    "import": command(
        "copy servers from the files of other hosts on this machine, or from one file",
        ("config", "json", "all", "replace", "source"),
        "[NAME ...]",
        ways=("NAME ...", "--from FILE-OR-HOST", "--all"),
    ),
    "remove": command("remove a server from your file", ("config", "json"), "NAME"),
    "enable": command("switch a server on", ("config", "json"), "NAME"),
    "disable": command("switch a server off", ("config", "json"), "NAME"),
}

RUN: Mapping[str, Callable[[Options], Report]] = {
    "list": _list,
    "add": _add,
    "import": _import,
    "remove": partial(_change, "removed", config.remove_server),
    "enable": partial(_change, "enabled", partial(config.set_enabled, enabled=True)),
    "disable": partial(_change, "disabled", partial(config.set_enabled, enabled=False)),
}
