"""Reading the command line."""

from __future__ import annotations

import re
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from pydantic_core import from_json

from mcp_host.cli.arithmetic import MODELS
from mcp_host.cli.commands import COMMANDS, SERVER, Command, examples
from mcp_host.cli.options import NAME, OPTIONS, Options
from mcp_host.cli.output import ExitCode, UsageError, near
from mcp_host.cli.parameters import Item
from mcp_host.errors import ConfigError, escaped, quoted
from mcp_host.version import __version__

ABOUT = "a host for MCP servers: show what they offer, call their tools, let them use a model"

TARGET = """\
SERVER is the URL of a server. To start a server instead, leave it out and put
the command last, after --
"""

SERVERS = """\
With --config FILE, the servers are those of a file such as mcp.json, which you
have for another host. Their tools are called like github__create_issue.
"""

ARGUMENTS = """\
ARGUMENT is one of
  key=text     a value, read by the schema of the tool: 3 is a number where it
               takes numbers, and text where it takes text. Repeat the key for a
               list. Prompts and resource templates take text only.
  key:=JSON    a value that is JSON, such as size:=[3,4]
  key=@FILE    the text of a file (- for stdin); key:=@FILE for a file of JSON
  JSON         one JSON object with several arguments
Names and values are checked before anything is sent.
"""

ITEMS = "[ARGUMENT ...]"

FOR_ALL_SERVERS = {"verbose", "timeout", "no_login", "paste", "use_device_code"}
OF_ONE_SERVER = [name for name in SERVER if name not in FOR_ALL_SERVERS]
"""Options that say something of the server on the command line, and are not for those of a file."""
OF_URL = ("cert", "key", "uds", "verify", "no_verify")
EXCLUSIVE = (("no_login", "paste", "use_device_code"), ("verify", "no_verify"), ("token_env", "token_issuer"))
DEFAULTS = Options()

# fmt: off
CONTRADICTIONS: Sequence[tuple[Callable[[Options], object], str]] = (
    (lambda given: given.command and given.verb in ("login", "logout", "whoami"),
     "only a URL needs a login; a program gets its secrets by --env"),
    (lambda given: (given.approve_servers or given.ask_again) and given.config is None,
     "--approve-servers and --ask-again are for the servers of --config"),
    (lambda given: given.header and given.url is None, "headers are for a URL; a command takes --env"),
    (lambda given: given.env and given.url is not None, "--env is for a command; a URL takes --header"),
    (lambda given: given.key and not given.cert and given.url is not None, "--key is for a --cert"),
    (lambda given: (given.client_secret_env is not None or given.issuer is not None) and not given.client_id,
     "--client-secret-env and --issuer are for a --client-id"),
    (lambda given: given.authorization_param and given.use_device_code,
     "--authorization-param is for a login in a browser: --use-device-code has no URL that takes it"),
    (lambda given: given.redirect_uri is not None and given.use_device_code,
     "--redirect-uri is for a login in a browser: --use-device-code redirects to nowhere"),
    (lambda given: given.api_key_file is not None and (given.model is None or given.model in MODELS),
     "--api-key-file is for a --model of a provider"),
    (lambda given: given.token_env is not None and given.http is None, "--token-env is for --http"),
    (lambda given: given.token_issuer is not None and given.http is None, "--token-issuer is for --http"),
    (lambda given: given.resource is not None and given.token_issuer is None, "--resource is for --token-issuer"),
    (lambda given: given.token_scope and given.token_issuer is None, "--token-scope is for --token-issuer"),
    (lambda given: given.state_key_env is not None and given.http is None, "--state-key-env is for --http"),
    (lambda given: given.json and given.output is not None,
     "--output writes the contents, and --json prints a document: use one of them"),
)
# fmt: on
"""What is wrong with options that are right by themselves, and what to say then."""

URL = re.compile(r"https?://", re.IGNORECASE)
SURROGATE = re.compile("[\ud800-\udfff]")  # as Python decodes arguments that are not UTF-8
STDIN = re.compile(r"[^=]+=@-")
ITEM = re.compile(r"([^=]+?)(:?=)(@?)(.*)", re.DOTALL)


def parse(argv: Sequence[str], commands: Mapping[str, Command] = COMMANDS, group: str = "") -> Options:
    """Read the command line, or of one of the *commands* of a *group* what follows its name.

    Raises:
        UsageError: It is wrong.
        SystemExit: It asked for help or the version, which has been printed.
    """
    if not argv or argv[0] not in commands:
        _stop(argv[:1], commands, group)
    verb, command, rest = f"{group} {argv[0]}".strip(), commands[argv[0]], argv[1:]
    if command.is_group:
        return parse(rest or ["list"], import_module(f"mcp_host.cli.commands.{command.module}").COMMANDS, verb)
    cut = rest.index("--") if "--" in rest else len(rest)
    options = Options(verb, rest[cut + 1 :])
    parser = parser_of(verb, command, options)
    try:
        parser.parse_intermixed_args(rest[:cut], options)
        if cut < len(rest):
            _check_command(options.command, command)
        for word in rest if group else options.operands:  # a file gets all words
            if SURROGATE.search(word):
                raise UsageError(f"{quoted(word)} is not UTF-8")
        _read_operands(options, command)
    except UsageError as exc:
        raise UsageError(f"{exc} (see {parser.prog} --help)") from exc.__cause__
    return options


def _stop(words: Sequence[str], commands: Mapping[str, Command], group: str) -> NoReturn:
    """Print the help or the version and exit, or report that there is no such command."""
    parser, names = parser_of_all(commands, group), ", ".join(commands)
    word = words[0] if words else ""
    if word in ("help", "-h", "--help", "--version"):
        parser.parse_args(["--help"] if word == "help" else words)
    if not words:
        problem = f"a command is missing ({names})"
    elif word.startswith("-") and word != "--":
        problem = f"{quoted(word)} stands before the command: options come after it ({names})"
    else:
        problem = f"{quoted(word)} is no command ({names}){near(word, commands)}"
    raise UsageError(f"{problem} (see {parser.prog} --help)")


def _check_command(words: Sequence[str], command: Command) -> None:
    """Check what comes after ``--``."""
    if not command.program and not command.server:
        raise UsageError("no server takes part in this")
    if not words:
        raise UsageError("there is no command after --")
    if URL.match(words[0]):
        raise UsageError(f"{words[0]!r} is a URL, which goes without --: a command comes after that")


def _read_operands(options: Options, command: Command) -> None:
    operands = list(options.operands)
    if command.server:
        if options.config is not None:
            _check_config(options, operands)
        elif not options.command:
            options.url = take_url(operands, program=command.program, file="config" in command.options)
        check(options)
    first, *more = command.takes.split() or [""]
    if first and not first.startswith("["):
        if not operands:
            raise UsageError(f"{first} is missing")
        options.operand = operands.pop(0)
    options.words = operands
    if command.takes.endswith(ITEMS):
        options.items = _items(operands)
    elif "..." not in command.takes and len(operands) > len(more):
        hint = "; a command for the server comes after --" if command.server else ""
        raise UsageError(f"unexpected argument {operands[len(more)]!r}{hint}")


def take_url(operands: list[str], *, program: bool = True, file: bool = False) -> str:
    """The URL of a server, which is the first of *operands*, in place of which there may also be a *program* or a *file*.

    Raises:
        UsageError: It is missing, or no URL.
    """
    if not operands:
        or_program = ", or the command that starts it after --" if program else ""
        or_file = f", or a file of servers: --config {_own_file()}" if file else ""
        raise UsageError(f"there is no server: give its URL{or_program}{or_file}")
    if not URL.match(operands[0]):
        raise UsageError(f"{operands[0]!r} is no http(s) URL; a command that starts a server comes after --")
    return operands.pop(0)


def _own_file() -> str:
    """The person's own file, if there are servers in it."""
    from mcp_host.config import read_servers, user_file  # here, because importing it takes a while

    with suppress(ConfigError):
        own = user_file()
        if read_servers(own).servers:
            return escaped(shlex.quote(str(own.path)))
    return "FILE"


def _check_config(options: Options, operands: Sequence[str]) -> None:
    if options.command or any(map(URL.match, operands[:1])):
        raise UsageError("--config has the servers: leave out the URL, or the command after --")
    for name in OF_ONE_SERVER:
        if _is_given(options, name):
            raise UsageError(f"{_flag(name)} is for a server on the command line, and not for those of --config")


def check(options: Options) -> None:
    """Check options that are right by themselves.

    Raises:
        UsageError: They contradict each other.
    """
    for is_wrong, problem in CONTRADICTIONS:
        if is_wrong(options):
            raise UsageError(problem)
    for names in EXCLUSIVE:
        if len(given := [_flag(name) for name in names if getattr(options, name)]) > 1:
            raise UsageError(f"{' and '.join(given)} contradict each other: use one of them")
    for name in OF_URL:
        if options.url is None and _is_given(options, name):
            raise UsageError(f"{_flag(name)} is for a URL: a command is connected to by its stdin and stdout")


def _is_given(options: Options, name: str) -> bool:
    return bool(getattr(options, name) != getattr(DEFAULTS, name))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _items(operands: Sequence[str]) -> list[Item]:
    if len([operand for operand in operands if STDIN.fullmatch(operand)]) > 1:
        raise UsageError("only one argument can be read from stdin")
    return [item for operand in operands for item in _items_in(operand)]


def _items_in(operand: str) -> Iterator[Item]:
    """The arguments in one operand."""
    if operand.lstrip().startswith(("{", "[")):
        arguments = _json(operand, "the arguments are")
        if not isinstance(arguments, dict):
            raise UsageError('the arguments must be a JSON object, like {"name": "value"}')
        yield from (Item(key, value, is_json=True) for key, value in arguments.items())
        return
    found = ITEM.fullmatch(operand)
    if found is None:
        raise UsageError(f"{operand!r} is no argument: write key=text, key:=JSON or one JSON object")
    key, sign, is_file, text = found.groups()
    if is_file:
        try:
            text = (sys.stdin.buffer.read() if text == "-" else Path(text).read_bytes()).decode()
        except (OSError, ValueError) as exc:  # the latter if it is not UTF-8, or no name of a file
            raise UsageError(f"{key!r} is to be read from a file, which fails: {exc}") from exc
    is_json = sign == ":="
    yield Item(key, _json(text, f"{key!r} is") if is_json else text, is_json)


def _json(text: str, subject: str) -> object:
    try:
        value: object = from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        raise UsageError(f"{subject} not JSON: {exc}") from exc
    return value


class Parser(ArgumentParser):
    """A parser whose errors are `UsageError`."""

    def error(self, message: str) -> NoReturn:
        """One sentence, where argparse prints the usage and exits."""
        raise UsageError(message)


def _parser(verb: str, usage: str, about: str, notes: Sequence[str]) -> Parser:
    return Parser(
        prog=f"{NAME} {verb}".rstrip(),
        usage=usage,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog="\n".join(filter(None, notes)),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,  # else a new option breaks scripts
    )


def parser_of_all(commands: Mapping[str, Command], group: str = "") -> Parser:
    """The parser whose help lists *commands*: all, or those of a *group*."""
    listed = "".join(f"  {verb:<10}{command.about}\n" for verb, command in commands.items())
    notes = [f"commands (each has its own --help):\n{listed}"]
    if not group:
        codes = "".join(f"  {code:<10}{code.meaning}\n" for code in ExitCode)
        notes += [TARGET, _examples([examples(verb)[0] for verb in commands]), f"exit codes:\n{codes}"]
    usage = f"{NAME} {group} COMMAND ...".replace("  ", " ")
    parser = _parser(group, usage, COMMANDS[group].about if group else ABOUT, notes)
    if not group:
        parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    return parser


def parser_of(verb: str, command: Command, options: Options) -> Parser:
    """The parser for what follows *verb*. *options* gets the command's own defaults."""
    notes = (
        TARGET if command.server and command.program else "",
        SERVERS if command.server and "config" in command.options else "",
        ARGUMENTS if command.takes.endswith(ITEMS) else "",
        _examples(examples(verb)),
    )
    parser = _parser(verb, command.usage(verb), command.about, notes)
    parser.add_argument("operands", nargs="*", help=SUPPRESS)
    for name, option in OPTIONS.items():
        if name in command.options:
            more = {**option.more, **command.changes.get(name, {})}
            if "default" in more:
                setattr(options, name, more["default"])
            parser.add_argument(*option.flags, dest=name, **more)
    return parser


def _examples(lines: Sequence[str]) -> str:
    return "".join(["examples:\n", *[f"  {line}\n" for line in lines]]) if lines else ""
