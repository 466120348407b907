"""Parsing the command line."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from pydantic_core import from_json

from mcp_host.cli.arithmetic import MODELS
from mcp_host.cli.output import ExitCode, UsageError, near
from mcp_host.cli.parameters import Item
from mcp_host.errors import quoted
from mcp_host.limits import Limits
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.sampling.loop.host import MAX_TOKENS
from mcp_host.sampling.loop.tools import MAX_TOOLS
from mcp_host.version import __version__

NAME = "mcp-host"

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


class Command(NamedTuple):
    """What the help tells about a command, and what it takes besides options."""

    about: str
    examples: str
    """One on each line."""
    server: bool = True
    """Whether it speaks to one server."""
    program: bool = True
    """Whether that may be a program to start, and not only a URL."""
    operand: str = ""
    """The name of what it takes after the server, such as TOOL."""
    arguments: bool = False
    """Whether arguments such as ``key=text`` may follow."""
    words: str = ""
    """What else may follow, if anything."""

    def usage(self, verb: str) -> str:
        """The ways to write the command *verb*."""
        rest = f" {self.operand} {'[ARGUMENT ...]' if self.arguments else self.words}".rstrip()
        ways = [f"SERVER{rest}" if self.server else rest.strip()]
        if self.program and self.server:
            ways.append(f"{rest} -- COMMAND [ARG ...]".strip())
        if verb in TAKE_CONFIG:
            ways.append(f"--config FILE{rest}")
        return "\n       ".join(f"{NAME} {verb} [options] {way}".rstrip() for way in ways)


COMMANDS: Mapping[str, Command] = {
    "demo": Command(
        "show a server that asks a model and offers it tools, over stdio and over HTTP",
        "demo",
        server=False,
    ),
    "tools": Command(
        "list the tools of a server",
        """\
tools https://example.com/mcp
tools -- npx -y @modelcontextprotocol/server-everything
tools --config mcp.json""",
    ),
    "call": Command(
        "call a tool of a server",
        """\
call https://example.com/mcp echo message=hi
call https://example.com/mcp echo '{"message": "hi"}'
call get-sum a=2 b=3 -- npx -y @modelcontextprotocol/server-everything
call --config mcp.json files__read_file path=notes.txt
call solve 'problem=2 * (3 + 4)' --model anthropic:claude-sonnet-5 -- python examples/calculator_server.py""",
        operand="TOOL",
        arguments=True,
    ),
    "read": Command(
        "read a resource of a server, or one that a template and its variables make",
        """\
read https://example.com/mcp file:///notes.txt
read 'demo://resource/dynamic/text/{resourceId}' resourceId=3 -- npx -y @modelcontextprotocol/server-everything
read --output logo.png https://example.com/mcp file:///logo.png""",
        operand="URI",
        arguments=True,
    ),
    "prompt": Command(
        "get a prompt of a server, and print its messages",
        """\
prompt https://example.com/mcp review file=main.py
prompt args-prompt city=Oslo -- npx -y @modelcontextprotocol/server-everything""",
        operand="PROMPT",
        arguments=True,
    ),
    "complete": Command(
        "complete the first ARGUMENT of a prompt or a resource template; the others are chosen already",
        """\
complete https://example.com/mcp review file=ma
complete completable-prompt name= department=Sales -- npx -y @modelcontextprotocol/server-everything""",
        operand="PROMPT-OR-TEMPLATE",
        arguments=True,
    ),
    "chat": Command(
        "talk to a model that uses the tools of a server",
        """\
chat https://example.com/mcp --model anthropic:claude-sonnet-5
chat --config mcp.json --model anthropic:claude-sonnet-5
chat --model ollama:llama3 --system 'Be brief.' -- npx -y @modelcontextprotocol/server-everything
echo 'What is 12.5 * 4?' | mcp-host chat --yes --model arithmetic -- python examples/calculator_server.py""",
    ),
    "inspect": Command(
        "show a server's name, capabilities, tools, resources and prompts",
        """\
inspect -H 'Authorization=Bearer ...' https://example.com/mcp
inspect --json -- python examples/calculator_server.py""",
    ),
    "login": Command(
        "log in to a server: in the browser of this machine, or in any other",
        """\
login https://example.com/mcp
login https://example.com/mcp --use-device-code
login https://example.com/mcp --paste
login https://example.com/mcp --client-id my-id --client-secret-env MY_SECRET --scope files:read""",
        program=False,
    ),
    "logout": Command(
        "forget the login for a server, and have its token revoked",
        "logout https://example.com/mcp",
        program=False,
    ),
    "whoami": Command(
        "show the login for a server: where, as which client, with which scopes, and until when",
        """\
whoami https://example.com/mcp
whoami --json https://example.com/mcp""",
        program=False,
    ),
    "pins": Command(
        "show the tools that have changed since they were pinned, and accept the changes",
        """\
call https://example.com/mcp echo message=hi --pins pins.json
pins pins.json
pins pins.json --json
pins pins.json accept https://example.com/mcp echo
pins pins.json forget https://example.com/mcp""",
        server=False,
        operand="FILE",
        words="[accept [SERVER [TOOL ...]] | forget SERVER [TOOL ...]]",
    ),
    "servers": Command("show and change the servers in your file", "servers list", server=False),
}

TAKE_CONFIG = frozenset({"tools", "call", "chat", "inspect"})
"""The commands with ``--config``."""
OF_ONE_SERVER = (
    *("header", "verify", "cert", "key", "uds", "env", "era", "pins", "client_id", "client_secret_env", "redirect_uri"),
    *("issuer", "issuer_alias", "shared_resource", "authorization_param", "scope"),
)
"""Options that say something of the server on the command line."""

TAKE_MODEL = frozenset({"demo", "call", "read", "prompt", "chat"})
"""The commands with ``--model``."""

URL = re.compile(r"https?://", re.IGNORECASE)
HEADER = re.compile(r"([^\s=:]+)(?:=|:\s*)(.*)", re.DOTALL)  # no header's name has either sign, and curl takes ":"
VARIABLE = re.compile(r"([^=]+)=(.*)", re.DOTALL)
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # in the value of a header
ALIAS = re.compile(r"(https?://[^=]+)=(https?://.+)")  # of an issuer, which has no query
PARAMETER = re.compile(r"([A-Za-z0-9._-]+)=([^\ud800-\udfff]*)")  # RFC 6749, section 8.2; UTF-8
SURROGATE = re.compile("[\ud800-\udfff]")  # as Python decodes arguments that are not UTF-8
STDIN = re.compile(r"[^=]+=@-")
ITEM = re.compile(r"([^=]+?)(:?=)(@?)(.*)", re.DOTALL)

MODEL_NAMES = f"{', '.join(MODELS)} (built in), or PROVIDER:NAME such as anthropic:claude-sonnet-5"

DEFAULTS = Limits()
TIMEOUT_HELP = (
    f"for connecting (default: {DEFAULTS.connect_timeout:g}) and for a call (default: {DEFAULTS.timeout:g},"
    f" or {DEFAULTS.idle_timeout:g} without a message from the server)"
)

REDIRECT_HELP = "where this client is registered to be redirected, such as http://localhost:8080/callback"
PARAMETER_HELP = "added to the URL that you log in at, such as audience=https://api.example.com"
ALIAS_HELP = "log in at this issuer where the server has another name for it, such as one with a slash more"
SHARED_HELP = "let all servers that name this resource share one login: only if they have one owner"

MAX_TOOLS_HELP = f"the most tools that a server may have: each costs tokens in every answer (default: {MAX_TOOLS})"
MAX_TOKENS_HELP = f"the most tokens that one answer may have (default: {MAX_TOKENS:,})"

PINS_HELP = "block tools that are not as pinned in FILE; the first use of a server pins its tools there"

OUTPUT_HELP = {
    "read": "write the contents to a file, byte for byte; - is stdout",
    "call": (
        "write the images, audio and resources of the result to a file, or to a folder (with a slash at its end, if it is"
        " new); - is stdout, for one of them"
    ),
}

CONFIG_HELP = "use the servers of this file, of any host: JSON, TOML or YAML"
APPROVE_SERVERS_HELP = (
    "start the servers of --config that need your consent, and connect to them, without asking you; it is remembered until they"
    " change"
)

VERBOSE_HELP = "print what the server logs, its stderr, each step of a login, and what the model's provider says of failures, to stderr"

ALLOW_HELP = "let the server use the model without asking you; arithmetic never asks"

DEVICE_HELP = "log in on any device, and enter a code there, if the authorization server offers that"

HEADER_HELP = (
    "sent to a URL; ${VARIABLE} in the value is of the environment, and @FILE has a header on each line:"
    " so no secret has to be on the command line"
)
ENV_HELP = "given to a command; NAME alone passes on a variable of the environment"
VERIFY_HELP = "trust the certificates of the authorities in this PEM file or folder, and no others, over https"
NO_VERIFY_HELP = "trust any server that answers at the URL, with any certificate: for tests on your own machine"
CERT_HELP = "your own certificate for https, in PEM format, with its key unless there is --key"
UDS_HELP = "connect to this unix socket, in place of the host of the URL"

ERA_HELP = (
    "auto, modern (without a handshake), legacy (with one), or a single revision like"
    f" {VERSIONS[0]}; by default, the server is asked"
)


class Options(argparse.Namespace):
    """One command, as it was given. *url* is None where *command* starts the server, or *config* has the servers."""

    verb: str
    command: Sequence[str]
    url: str | None
    config: Path | None
    approve_servers: bool
    ask_again: bool
    header: list[tuple[str, str]]
    verify: Path | bool
    cert: Path | None
    key: Path | None
    uds: Path | None
    env: list[tuple[str, str]]
    timeout: float | None
    era: str
    json: bool
    verbose: bool
    model: str | None
    system: str | None
    max_tokens: int
    max_tools: int
    unchecked: bool
    output: str | None
    pins: Path | None
    yes: bool
    no_login: bool
    paste: bool
    use_device_code: bool
    client_id: str | None
    client_secret_env: str | None
    redirect_uri: str | None
    issuer: str | None
    issuer_alias: list[tuple[str, str]]
    shared_resource: list[str]
    authorization_param: list[tuple[str, str]]
    scope: list[str]
    operand: str
    """The name of the tool, the URI of the resource and the like."""
    items: Sequence[Item]
    words: Sequence[str]
    """What follows the operand."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line.

    Raises:
        UsageError: It is wrong.
        SystemExit: It asked for help or the version, which has been printed.
    """
    if not argv or argv[0] not in COMMANDS:
        _stop(argv[:1])
    verb, rest = argv[0], argv[1:]
    command = COMMANDS[verb]
    cut = rest.index("--") if "--" in rest else len(rest)
    parser = _parser(verb)
    options = parser.parse_intermixed_args(rest[:cut], Options(verb=verb, command=rest[cut + 1 :]))
    if cut < len(rest):
        _check_command(options.command, command, parser)
    operands: list[str] = options.operands
    if command.server:
        is_url = options.config is None and not options.command
        options.url = _take_url(operands, command, parser) if is_url else None
        _check_options(options, operands, parser)
    for operand in operands:
        if SURROGATE.search(operand):
            parser.error(f"{quoted(operand)} is not UTF-8")
    if command.operand:
        if not operands:
            parser.error(f"{command.operand} is missing")
        options.operand = operands.pop(0)
    options.words = operands
    if command.arguments:
        options.items = _arguments(operands, parser)
    elif operands and not command.words:
        more = "; a command for the server comes after --" if command.server else ""
        parser.error(f"unexpected argument {operands[0]!r}{more}")
    return options


def _check_command(words: Sequence[str], command: Command, parser: Parser) -> None:
    """Check what comes after ``--``."""
    if not command.server:
        parser.error("no server takes part in this")
    if not words:
        parser.error("there is no command after --")
    if URL.match(words[0]):
        parser.error(f"{words[0]!r} is a URL, which goes without --: a command comes after that")


def _check_options(options: Options, operands: Sequence[str], parser: Parser) -> None:
    if options.config is not None:
        if options.command or any(map(URL.match, operands[:1])):
            parser.error("--config has the servers: leave out the URL, or the command after --")
        for name in OF_ONE_SERVER:
            if getattr(options, name, None) != parser.get_default(name):
                option = "no-verify" if name == "verify" and not options.verify else name.replace("_", "-")
                parser.error(f"--{option} is for a server on the command line, and not for those of --config")
    for is_wrong, problem in _contradictions(options):
        if is_wrong:
            parser.error(problem)


def _contradictions(options: Options) -> Iterator[tuple[object, str]]:
    """What may be wrong with options that are right by themselves: whether it is, and what to say then."""
    is_program, needs_url = options.url is None, "{} for a URL: a command is connected to by its stdin and stdout"
    yield (
        options.command and not COMMANDS[options.verb].program,
        "only a URL needs a login; a program gets its secrets by --env",
    )
    of_config = options.approve_servers or options.ask_again
    yield of_config and options.config is None, "--approve-servers and --ask-again are for the servers of --config"
    yield options.header and is_program, "headers are for a URL; a command takes --env"
    yield options.env and not is_program, "--env is for a command; a URL takes --header"
    for name in ("cert", "key", "uds"):
        yield getattr(options, name) is not None and is_program, needs_url.format(f"--{name} is")
    yield options.verify is not True and is_program, needs_url.format("--verify and --no-verify are")
    yield options.key is not None and options.cert is None, "--key is for a --cert"
    yield (
        not options.client_id and (options.client_secret_env is not None or options.issuer is not None),
        "--client-secret-env and --issuer are for a --client-id",
    )
    yield (
        options.authorization_param and options.use_device_code,
        "--authorization-param is for a login in a browser: --use-device-code has no URL that takes it",
    )
    yield (
        options.redirect_uri is not None and options.use_device_code,
        "--redirect-uri is for a login in a browser: --use-device-code redirects to nowhere",
    )
    ways = {"--no-login": options.no_login, "--paste": options.paste, "--use-device-code": options.use_device_code}
    given = [name for name, is_given in ways.items() if is_given]
    yield len(given) > 1, f"{' and '.join(given)} contradict each other: use one of them"
    yield (
        options.json and options.output is not None,
        "--output writes the contents, and --json prints a document: use one of them",
    )


def _stop(argv: Sequence[str]) -> NoReturn:
    """Print the help or the version and exit, or report that there is no command."""
    parser, names = _main_parser(), ", ".join(COMMANDS)
    if not argv:
        parser.error(f"a command is missing ({names})")
    if argv[0] in ("help", "-h", "--help", "--version"):
        parser.parse_args(["--help"] if argv[0] == "help" else argv)
    if argv[0].startswith("-") and argv[0] != "--":
        parser.error(f"{quoted(argv[0])} stands before the command: options come after it ({names})")
    parser.error(f"{quoted(argv[0])} is no command ({names}){near(argv[0], COMMANDS)}")


def _take_url(operands: list[str], command: Command, parser: Parser) -> str:
    if not operands:
        program = ", or the command that starts it after --" if command.program else ""
        parser.error(f"there is no server: give its URL{program}")
    if not URL.match(operands[0]):
        parser.error(f"{operands[0]!r} is no http(s) URL; a command that starts a server comes after --")
    return operands.pop(0)


def _arguments(operands: Sequence[str], parser: Parser) -> list[Item]:
    if len([operand for operand in operands if STDIN.fullmatch(operand)]) > 1:
        parser.error("only one argument can be read from stdin")
    return [item for operand in operands for item in _items(operand, parser)]


def _items(operand: str, parser: Parser) -> Iterator[Item]:
    """The arguments in one operand."""
    if operand.lstrip().startswith(("{", "[")):
        arguments = _json(operand, "the arguments are", parser)
        if not isinstance(arguments, dict):
            parser.error('the arguments must be a JSON object, like {"name": "value"}')
        yield from (Item(key, value, is_json=True) for key, value in arguments.items())
        return
    found = ITEM.fullmatch(operand)
    if found is None:
        parser.error(f"{operand!r} is no argument: write key=text, key:=JSON or one JSON object")
    key, sign, is_file, text = found.groups()
    if is_file:
        try:
            text = (sys.stdin.buffer.read() if text == "-" else Path(text).read_bytes()).decode()
        except (OSError, ValueError) as exc:  # the latter if it is not UTF-8, or no name of a file
            parser.error(f"{key!r} is to be read from a file, which fails: {exc}")
    is_json = sign == ":="
    yield Item(key, _json(text, f"{key!r} is", parser) if is_json else text, is_json)


def _json(text: str, subject: str, parser: Parser) -> object:
    try:
        value: object = from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        parser.error(f"{subject} not JSON: {exc}")
    return value


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `UsageError`."""

    def error(self, message: str) -> NoReturn:
        """One sentence, where argparse prints the usage and exits."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def _main_parser() -> Parser:
    commands = "\n".join(f"  {verb:<10}{command.about}" for verb, command in COMMANDS.items())
    codes = "\n".join(f"  {code:<10}{code.meaning}" for code in ExitCode)
    examples = _examples(*[command.examples.splitlines()[0] for command in COMMANDS.values()])
    parser = Parser(
        prog=NAME,
        usage=f"{NAME} COMMAND ...",
        description="A host for MCP servers: show what they offer, call their tools, let them use a model.",
        epilog=f"commands (each has its own --help):\n{commands}\n\n{TARGET}\n{examples}\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    return parser


def _examples(*lines: str) -> str:
    return "".join(["examples:\n", *[f"  {NAME} {line}\n" for line in lines]])


def _parser(verb: str) -> Parser:
    command = COMMANDS[verb]
    notes = (
        TARGET if command.server and command.program else "",
        SERVERS if verb in TAKE_CONFIG else "",
        ARGUMENTS if command.arguments else "",
        _examples(*command.examples.splitlines()),
    )
    parser = Parser(
        prog=f"{NAME} {verb}",
        usage=command.usage(verb),
        description=f"{command.about[0].upper()}{command.about[1:]}.",
        epilog="\n".join(filter(None, notes)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # else a new option breaks scripts
    )
    parser.set_defaults(model=None, output=None, pins=None, json=False, yes=False, header=[], env=[])
    parser.set_defaults(no_login=False, paste=False, use_device_code=False)
    parser.set_defaults(client_id=None, client_secret_env=None, issuer=None, issuer_alias=[], scope=[])
    parser.set_defaults(redirect_uri=None, authorization_param=[])
    parser.set_defaults(verify=True, cert=None, key=None, uds=None, config=None, approve_servers=False, ask_again=False)
    parser.add_argument("operands", nargs="*", help=argparse.SUPPRESS)
    if command.server:
        _add_output_options(parser, json=verb != "chat")
        parser.add_argument("--shared-resource", action="append", default=[], metavar="URL", help=SHARED_HELP)
        parser.add_argument("--uds", type=Path, metavar="PATH", help=UDS_HELP)
    if command.server and verb not in ("logout", "whoami"):
        _add_server_options(parser, program=command.program, config=verb in TAKE_CONFIG)
    if verb in TAKE_MODEL:
        _add_model_options(parser, verb)
    add = parser.add_argument
    if verb in ("call", "prompt"):
        add("--unchecked", action="store_true", help="check nothing: send key=text as text, and take any result")
    if verb in ("tools", "call"):
        add("--pins", type=Path, metavar="FILE", help=PINS_HELP)
    if verb == "pins":
        add("--json", action="store_true", help="print one JSON document; also for an error")
        add("--yes", "-y", action="store_true", help="accept without asking")
    if verb in OUTPUT_HELP:
        add("--output", "-o", metavar="PATH", help=OUTPUT_HELP[verb])
    return parser


def _add_output_options(parser: Parser, *, json: bool) -> None:
    add = parser.add_argument
    if json:
        add(
            "--json", action="store_true", help="print one JSON document, in the protocol's spelling; also for an error"
        )
    add("--verbose", "-v", action="store_true", help=VERBOSE_HELP)


def _add_server_options(parser: Parser, *, program: bool, config: bool) -> None:
    add = parser.add_argument
    if config:
        add("--config", type=Path, metavar="FILE", help=CONFIG_HELP)
        add("--approve-servers", action="store_true", help=APPROVE_SERVERS_HELP)
        add("--ask-again", action="store_true", help="ask for the inputs of --config, though your keyring has them")
    add("--timeout", type=_seconds, metavar="SECONDS", help=TIMEOUT_HELP)
    add("--era", choices=("auto", "modern", "legacy", *VERSIONS), default="auto", metavar="ERA", help=ERA_HELP)
    add("-H", "--header", type=_headers, action="extend", default=[], metavar="'NAME: VALUE'", help=HEADER_HELP)
    trusted = parser.add_mutually_exclusive_group()
    trusted.add_argument("--verify", type=Path, default=True, metavar="PATH", help=VERIFY_HELP)
    trusted.add_argument("--no-verify", action="store_const", dest="verify", const=False, help=NO_VERIFY_HELP)
    add("--cert", type=Path, metavar="FILE", help=CERT_HELP)
    add("--key", type=Path, metavar="FILE", help="the key of --cert, in PEM format")
    if program:
        add("-e", "--env", type=_variable, action="append", default=[], metavar="NAME[=VALUE]", help=ENV_HELP)
        add("--no-login", action="store_true", help="use a stored login only; by default you are asked to log in")
    add("--paste", action="store_true", help="log in with a browser on any machine, and paste the URL it ends at")
    add("--use-device-code", action="store_true", help=DEVICE_HELP)
    add("--client-id", metavar="ID", help="the client that you have registered; by default mcp-host registers itself")
    add("--redirect-uri", metavar="URI", help=REDIRECT_HELP)
    add("--issuer", metavar="URL", help="the authorization server that this client is registered at")
    alias = partial(pair, ALIAS)
    add("--issuer-alias", type=alias, action="append", default=[], metavar="NAME=ISSUER", help=ALIAS_HELP)
    parameter = partial(pair, PARAMETER)
    add(
        "--authorization-param",
        type=parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=PARAMETER_HELP,
    )
    add("--client-secret-env", metavar="NAME", help="the environment variable that has the client's secret")
    add("--scope", action="append", default=[], metavar="SCOPE", help="ask for this scope as well, when logging in")


def _add_model_options(parser: Parser, verb: str) -> None:
    add = partial(parser.add_argument, "--model", type=_model, metavar="MODEL")
    allow = partial(parser.add_argument, "--yes", "-y", action="store_true")
    match verb:
        case "demo":
            add(default="arithmetic", help=f"the model that the server uses, after asking you: {MODEL_NAMES}")
            allow(help=ALLOW_HELP)
        case "chat":
            add(required=True, help=f"the model to talk to: {MODEL_NAMES}")
            parser.add_argument("--system", metavar="TEXT", help="the system prompt")
            parser.add_argument("--max-tokens", type=_tokens, default=MAX_TOKENS, metavar="N", help=MAX_TOKENS_HELP)
            parser.add_argument("--max-tools", type=_tools, default=MAX_TOOLS, metavar="N", help=MAX_TOOLS_HELP)
            allow(help="call tools, and let the server use the model, without asking you")
        case _:
            use = "let the server use this model, and ask you each time; by default it gets none"
            add(help=f"{use}. MODEL is {MODEL_NAMES}")
            allow(help=ALLOW_HELP)


def pair(form: re.Pattern[str], text: str) -> tuple[str, str]:
    """The name and the value in the *text* of an option."""
    found = form.fullmatch(text)
    if found is None:  # not repeated in the message: it may be a secret
        raise argparse.ArgumentTypeError("not of the form NAME=VALUE")
    return found[1], found[2]


def _variable(text: str) -> tuple[str, str]:
    """A variable for a program: as it is given, or of this process."""
    return pair(VARIABLE, text) if "=" in text else (text, _of_environment(text))


def _of_environment(name: str) -> str:
    if (value := os.environ.get(name)) is None:
        raise argparse.ArgumentTypeError(f"the environment has no variable {quoted(name)}")
    return value


def _headers(text: str) -> list[tuple[str, str]]:
    """The header in *text*, with variables of the environment in its value; or those in a file, as curl has it."""
    if text.startswith("@"):  # no header's name has it
        try:
            lines = Path(text[1:]).read_text("utf-8").splitlines()
        except (OSError, ValueError) as exc:  # the latter if it is not UTF-8, or no name of a file
            raise argparse.ArgumentTypeError(f"the file cannot be read: {exc}") from exc
        return [pair(HEADER, line.strip()) for line in lines if line.strip()]
    name, value = pair(HEADER, text)
    return [(name, REFERENCE.sub(lambda found: _of_environment(found[1]), value))]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _tokens(text: str) -> int:
    return _number(text, "tokens")


def _tools(text: str) -> int:
    return _number(text, "tools")


def _number(text: str, of: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {of}")
    return int(text)


def _model(text: str) -> str:
    if text not in MODELS and ":" not in text:
        raise argparse.ArgumentTypeError(f"there is no model {text!r}; a model is {MODEL_NAMES}")
    return text
