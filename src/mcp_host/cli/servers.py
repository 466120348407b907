"""The command that shows and changes the files of servers: ``mcp-host servers``."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from mcp_host.cli.arguments import HEADER, NAME, SURROGATE, URL, VARIABLE, Parser, pair
from mcp_host.cli.output import ExitCode, Printer, UsageError, near, print_error, print_json, text_of
from mcp_host.config import (
    DIALECTS,
    EnvironmentVariable,
    FoundFile,
    HttpServer,
    ServerEntry,
    ServersFile,
    StdioServer,
    add_server,
    find_servers,
    read_servers,
    remove_server,
    set_enabled,
    user_file,
)
from mcp_host.config.dialects import GENERIC
from mcp_host.config.secret_words import without_secrets
from mcp_host.config.values import Value
from mcp_host.config.writer import THERE_ALREADY, check_name
from mcp_host.errors import ConfigError, escaped, quoted
from mcp_host.transports._http.secret import Secret, SecretValues

CONFIG_HELP = "the file of servers, by default {}"
ENV_HELP = "given to the command; NAME alone writes a reference to the variable of the environment, and no value"
HEADER_HELP = "sent to the URL; ${VARIABLE} in the value is written as a reference to the variable of the environment"
FROM_HELP = f"a file of servers, or the files of one of {', '.join(DIALECTS)}"
REPLACE_HELP = "take the place of a server of the same name"
REGISTRY_NAME = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/[A-Za-z0-9._-]+", re.ASCII)
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Options(argparse.Namespace):
    """What was given to one of the commands."""

    run: Callable[[Options, Printer], ExitCode]
    config: Path | None
    json: bool
    all: bool
    name: str
    url: str | None
    command: Sequence[str]
    env: list[tuple[str, Value]]
    header: list[tuple[str, str]]
    replace: bool
    enabled: bool
    names: Sequence[str]
    source: str | None
    version: str | None
    registry: str | None
    package: str | None
    yes: bool

    @property
    def file(self) -> Path | FoundFile:
        return user_file() if self.config is None else self.config


def run(argv: Sequence[str], printer: Printer) -> ExitCode:
    """Do what *argv* says, which is what follows ``servers``. Nothing is ``list``.

    Raises:
        UsageError: It is wrong.
        ConfigError: A file cannot be read or changed.
        SystemExit: It asked for help, which has been printed.
    """
    argv = argv or ["list"]
    cut = argv.index("--") if "--" in argv else len(argv)
    parser, parsers = _parsers()
    if argv[0] not in parsers:
        parser.parse_args(argv[:cut])  # prints the help, or says what is wrong
    parser = parsers[argv[0]]
    options = parser.parse_intermixed_args(argv[1:cut], Options(command=argv[cut + 1 :]))
    for word in argv:
        if SURROGATE.search(word):
            parser.error(f"{quoted(word)} is not UTF-8")
    if cut < len(argv) and (options.run is not _add or not options.command):
        parser.error("there is no command after --" if options.run is _add else "only add takes a command after --")
    return options.run(options, printer)


def _list(options: Options, printer: Printer) -> ExitCode:
    """Show the servers of the user's file, or of all."""
    if options.all and options.config is not None:
        raise UsageError("--all and --config contradict each other: use one of them")
    files = list(_read(_everywhere() if options.all else [options.file], skip=options.all or options.config is None))
    if options.json:
        print_json({"servers": [_as_json(entry) for file in files for entry in file.servers]})
    elif sys.stdout.isatty():
        for file in [file for file in files if file.servers]:
            _show(file, printer)
    else:
        for entry in [entry for file in files for entry in file.servers]:
            printer.text("\t".join(_columns(entry)))
    for file in files:
        for warning in file.warnings:
            print_error(f"warning: {escaped(str(file.path))}: {warning}")
    if not any(file.servers for file in files) and not options.json:
        print_error(
            f"there are no servers: {NAME} servers add adds one, {NAME} servers import takes those of other hosts"
        )
    return ExitCode.OK


def _everywhere() -> Sequence[FoundFile]:
    here = Path.cwd()
    return find_servers(project=None if here == Path.home() else here)


def _read(places: Iterable[Path | FoundFile], *, skip: bool) -> Iterable[ServersFile]:
    """The files at *places*. With *skip*, those that cannot be read are told of, and those that are not there are not."""
    for place in places:
        if skip and isinstance(place, FoundFile) and not place.path.exists():
            continue
        try:
            yield read_servers(place)
        except ConfigError as exc:
            if not skip:
                raise
            print_error(str(exc))


def _show(file: ServersFile, printer: Printer) -> None:
    whose = DIALECTS[file.dialect].title + ("" if file.scope is None else f", {file.scope}")
    printer.line(f"{escaped(_short(file.path))} ({whose})", "bold")
    for entry in file.servers:
        notes = [without_secrets(entry.shown), _state(entry), *entry.warnings]
        printer.field(escaped(entry.name), "\n".join(filter(None, notes)))


def _short(path: Path) -> str:
    """A path for a person."""
    home = Path.home()
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)


def _state(entry: ServerEntry) -> str:
    """What a person should know who wants to use the server."""
    problem = "" if entry.problem is None else f"unusable: {entry.problem}"
    return ", ".join(filter(None, ("" if entry.enabled else "disabled", problem)))


def _columns(entry: ServerEntry) -> Sequence[str]:
    state = "enabled" if entry.enabled else "disabled"
    shown = without_secrets(entry.shown) or entry.problem or ""
    return [escaped(entry.name), _kind(entry) or "unusable", state, shown, escaped(str(entry.source.path))]


def _kind(entry: ServerEntry) -> str | None:
    kinds = {StdioServer: "stdio", HttpServer: "http"}
    return None if entry.transport is None else kinds[type(entry.transport)]


def _as_json(entry: ServerEntry) -> Mapping[str, object]:
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


def _add(options: Options, printer: Printer) -> ExitCode:
    """Write a server down."""
    if not options.command and REGISTRY_NAME.fullmatch(options.url or options.name):
        return _add_from_registry(options, printer)
    if options.version or options.registry or options.package:
        raise UsageError(
            "--version, --registry and --package are for a server of a registry, such as io.github.owner/name"
        )
    add_server(options.file, options.name, _server(options), replace=options.replace, source=GENERIC)
    return _done(options, printer, "added", "Added")


def _add_from_registry(options: Options, printer: Printer) -> ExitCode:
    from mcp_host.cli.registry import Wanted, add_from_registry  # here, because importing it takes a while

    if options.header:
        raise UsageError("a server of a registry says which headers it wants: answer with -e NAME=VALUE")
    server = options.url or options.name
    options.name = options.name if options.url else server.rpartition("/")[2]
    path = _path(options)
    check_name(path, options.name)  # this and the next before anything is asked
    if not options.replace and path.exists() and any(each.name == options.name for each in read_servers(path).servers):
        raise ConfigError(THERE_ALREADY, path=path, server=options.name)

    def write(found: StdioServer | HttpServer) -> None:
        add_server(options.file, options.name, found, replace=options.replace, source=GENERIC)

    wanted = Wanted(
        server=server,
        name=options.name,
        file=path,
        write=write,
        keeps_inputs=options.config is None,
        version=options.version,
        registry=options.registry,
        kind=options.package,
        given=options.env,
        quiet=options.json,
        yes=options.yes,
    )
    if anyio.run(add_from_registry, wanted, printer):
        return _done(options, printer, "added", "Added")
    print_error("nothing was written")
    return ExitCode.OK


def _server(options: Options) -> StdioServer | HttpServer:
    """The server that the command line describes."""
    if options.command and options.url is not None:
        raise UsageError("there are both a URL and a command: a server has one of them")
    if options.command:
        if options.header:
            raise UsageError("headers are for a URL; a command takes --env")
        command, *args = options.command
        return StdioServer(command, tuple(map(Secret, args)), SecretValues(options.env))
    if options.url is None:
        raise UsageError("there is no server: give its URL, or the command that starts it after --")
    if not URL.match(options.url):
        raise UsageError(f"{options.url!r} is no http(s) URL; a command that starts a server comes after --")
    if options.env:
        raise UsageError("--env is for a command; a URL takes --header")
    headers = {name: Secret(value) for name, value in options.header}
    return HttpServer(Secret(options.url), SecretValues(headers))


def _remove(options: Options, printer: Printer) -> ExitCode:
    """Remove a server."""
    remove_server(options.file, options.name)
    return _done(options, printer, "removed", "Removed")


def _switch(options: Options, printer: Printer) -> ExitCode:
    """Switch a server on or off."""
    set_enabled(options.file, options.name, options.enabled)
    return _done(options, printer, *(("enabled", "Enabled") if options.enabled else ("disabled", "Disabled")))


def _import(options: Options, printer: Printer) -> ExitCode:
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
            notes = [*add_server(options.file, name, entry, replace=options.replace), *_readers(options, entry)]
        except (ConfigError, UsageError) as exc:
            reason = text_of(exc).removeprefix(f"{escaped(str(_path(options)))}: server {quoted(name)}: ")
            left.append({**about, "reason": reason})
            print_error(f"{escaped(name)} of {paths} is not imported: {reason}")
            continue
        copied.append({**about, "notes": notes})
        if not options.json:
            printer.text("\n    ".join([f"Imported: {escaped(name)} from {paths}", *notes]))
    if options.json:
        print_json({"imported": copied, "notImported": left, "file": str(_path(options))})
    return ExitCode.USAGE if left else ExitCode.OK


def _readers(options: Options, entry: ServerEntry) -> Iterator[str]:
    """Whether others may read the file now, but not the one that *entry* is from: it may have secrets."""
    path = _path(options)
    if path.stat().st_mode & 0o044 and not entry.source.path.stat().st_mode & 0o044:
        yield (
            "other users may read this file, but not the one that the server is from:"
            f" chmod 600 {escaped(shlex.quote(str(path)))}"
        )


def _chosen(options: Options) -> Mapping[str, Mapping[str, ServerEntry]]:
    """The servers to import by name, where several files may have different ones: by their digests."""
    if not (options.names or options.source or options.all):
        raise UsageError("import which? Name servers, or pass --from FILE-OR-HOST, or --all")
    found: dict[str, dict[str, ServerEntry]] = {}
    for file in _read(_sources(options), skip=options.source is None):
        for entry in file.servers:
            found.setdefault(entry.name, {}).setdefault(entry.digest, entry)
    for name in options.names:
        if name not in found:
            raise UsageError(f"no other file has a server {quoted(name)}{near(name, found)}")
    return {name: found[name] for name in options.names or found}


def _sources(options: Options) -> Sequence[Path | FoundFile]:
    """Where to import from."""
    source = options.source
    if source is not None and source not in DIALECTS:
        return [Path(source)]
    found = [place for place in _everywhere() if place.path != _path(options)]
    return [place for place in found if source in (None, place.dialect)]


def _path(options: Options) -> Path:
    return options.file.path if isinstance(options.file, FoundFile) else options.file


def _done(options: Options, printer: Printer, key: str, word: str) -> ExitCode:
    path = str(_path(options))
    if options.json:
        print_json({key: options.name, "file": path})
    else:
        printer.text(f"{word}: {escaped(options.name)} ({escaped(path)})")
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class Command:
    """What one of the commands does, and what it takes."""

    run: Callable[[Options, Printer], ExitCode]
    about: str
    usage: str = ""
    """One on each line."""
    options: Mapping[str, object] = field(default_factory=dict)
    """What the run gets besides what was given."""


COMMANDS: Mapping[str, Command] = {
    "list": Command(
        _list,
        "show the servers of your file, or with --all those of all hosts on this machine",
    ),
    "add": Command(
        _add,
        "write a server into your file",
        "add [options] NAME URL\nadd [options] NAME -- COMMAND [ARG ...]\nadd [options] [NAME] io.github.OWNER/SERVER",
    ),
    "import": Command(
        _import,
        "copy servers from the files of other hosts on this machine, or from one file",
        "import [options] NAME ...\nimport [options] --from FILE-OR-HOST\nimport [options] --all",
    ),
    "remove": Command(_remove, "remove a server from your file", "remove [options] NAME"),
    "enable": Command(_switch, "switch a server on", "enable [options] NAME", {"enabled": True}),
    "disable": Command(_switch, "switch a server off", "disable [options] NAME", {"enabled": False}),
}


def _parsers() -> tuple[Parser, Mapping[str, Parser]]:
    """The parser of ``servers``, and those of its commands: options may stand between their arguments, which it could not have."""
    parser = Parser(
        prog=f"{NAME} servers",
        description="Show and change the servers in your file. Comments and unknown keys in it stay.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    parsers: dict[str, Parser] = {}
    for verb, command in COMMANDS.items():
        usage = f"\n       {NAME} servers ".join(command.usage.splitlines())
        each = parsers[verb] = commands.add_parser(
            verb,
            help=command.about,
            usage=f"{NAME} servers {usage or f'{verb} [options]'}",
            description=f"{command.about[0].upper()}{command.about[1:]}.",
            allow_abbrev=False,
        )
        each.set_defaults(run=command.run, **command.options)
        each.add_argument(
            "--config", type=Path, metavar="FILE", help=CONFIG_HELP.format(escaped(str(user_file().path)))
        )
        each.add_argument("--json", action="store_true", help="print one JSON document; also for an error")
        if command.run in (_list, _import):
            each.add_argument("--all", action="store_true", help="those of all hosts on this machine")
        else:
            each.add_argument("name", metavar="NAME", help=argparse.SUPPRESS)
        if command.run in (_add, _import):
            each.add_argument("--replace", action="store_true", help=REPLACE_HELP)
        if command.run is _add:
            _add_server_options(each)
        if command.run is _import:
            each.add_argument("names", nargs="*", metavar="NAME", help=argparse.SUPPRESS)
            each.add_argument("--from", dest="source", metavar="FILE-OR-HOST", help=FROM_HELP)
    return parser, parsers


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("url", nargs="?", metavar="URL", help=argparse.SUPPRESS)
    add("-e", "--env", type=_variable, action="append", default=[], metavar="NAME[=VALUE]", help=ENV_HELP)
    add("-H", "--header", type=_header, action="append", default=[], metavar="'NAME: VALUE'", help=HEADER_HELP)
    add("--version", metavar="V", help="of a server of a registry, by default the latest")
    add("--registry", metavar="URL", help="by default https://registry.modelcontextprotocol.io")
    add("--package", choices=("npm", "pypi", "oci", "nuget", "remote"), help="by default the first that can be used")
    add("--yes", "-y", action="store_true", help="write it without asking")


def _header(text: str) -> tuple[str, str]:
    return pair(HEADER, text)


def _variable(text: str) -> tuple[str, Value]:
    if "=" in text:
        name, value = pair(VARIABLE, text)
        return name, Secret(value)
    if not VARIABLE_NAME.fullmatch(text):  # not repeated in the message: it may be a secret
        raise argparse.ArgumentTypeError("not of the form NAME or NAME=VALUE")
    return text, EnvironmentVariable(text)
