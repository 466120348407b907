"""What may stand on the command line, and what it means."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from pydantic_core import from_json

from mcp_host.cli.models import MODELS, Model
from mcp_host.cli.output import MEANINGS
from mcp_host.limits import Limits
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.version import __version__

NAME = "mcp-host"

TARGET = """\
SERVER is the URL of a server, or stands for a command that starts one: the
command comes last, after --
"""

EXAMPLES: Mapping[str, str] = {
    "demo": """\
  mcp-host demo
""",
    "tools": """\
  mcp-host tools https://example.com/mcp
  mcp-host tools -- npx -y @modelcontextprotocol/server-everything
""",
    "call": """\
  mcp-host call https://example.com/mcp echo '{"message": "hi"}'
  mcp-host call echo '{"message": "hi"}' -- npx -y @modelcontextprotocol/server-everything
  mcp-host call solve '{"problem": "2 * (3 + 4)"}' --model arithmetic -- python examples/calculator_server.py
""",
    "inspect": """\
  mcp-host inspect -H 'Authorization=Bearer ...' https://example.com/mcp
  mcp-host inspect --json -- python examples/calculator_server.py
""",
}

ABOUT: Mapping[str, str] = {
    "demo": "watch a server ask a model for help and lend it tools, over stdio and over HTTP",
    "tools": "list the tools of a server",
    "call": "call a tool of a server",
    "inspect": "show all that a server says of itself and offers",
}

WORDS: Mapping[str, str] = {"demo": "", "tools": "SERVER", "call": "SERVER TOOL [JSON]", "inspect": "SERVER"}
"""What each command takes besides options, where the server is a URL. A command for one comes after all of it."""

URL = re.compile(r"https?://", re.IGNORECASE)
HEADER = re.compile(r"([^\s=:]+)(?:=|:\s*)(.*)", re.DOTALL)  # no header's name holds either sign, and curl takes ":"
VARIABLE = re.compile(r"([^=]+)=(.*)", re.DOTALL)

CHOICES = f"the models there are: {', '.join(MODELS)}; those of providers come in a later release"

DEFAULTS = Limits()
PATIENCE = (
    f"how long a connection may take ({DEFAULTS.connect_timeout:g} by default), and a call ({DEFAULTS.timeout:g},"
    f" or {DEFAULTS.idle_timeout:g} without a word of the server)"
)

ERAS = (
    "auto, modern (without a handshake), legacy (with one), or a single revision like"
    f" {VERSIONS[0]}; by default the server is asked"
)

KINDS: Mapping[type, str] = {
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


class UsageError(Exception):
    """The command line makes no sense; the text says why, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One command, as it was given. *url* is None where *command* starts the server."""

    verb: str
    url: str | None = None
    command: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    era: str = "auto"
    json: bool = False
    model: Model | None = None
    tool: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)


def parse(argv: Sequence[str]) -> Options:
    """Read the command line.

    Raises:
        UsageError: It makes no sense.
        SystemExit: It asked for help or the version, which has been printed.
    """
    if not argv or argv[0] not in ABOUT:
        _everything().parse_args(argv)  # which knows --help and --version, and what else to say
    verb, rest = argv[0], argv[1:]
    cut = rest.index("--") if "--" in rest else len(rest)
    command = rest[cut + 1 :]
    parser = _parser(verb)
    given = parser.parse_intermixed_args(rest[:cut])
    if verb == "demo":
        return Options(verb=verb, model=given.model)
    if cut < len(rest) and not command:
        parser.error("there is no command after --")
    words = list(given.words)
    url = None if command else _take_url(words, parser)
    options = Options(
        verb=verb,
        url=url,
        command=command,
        headers=dict(given.header),
        env=dict(given.env),
        timeout=given.timeout,
        era=given.era,
        json=given.json,
    )
    _check_fit(options, parser)
    if verb == "call":
        tool, arguments = _take_call(words, parser)
        options = replace(options, tool=tool, arguments=arguments, model=given.model)
    if words:
        parser.error(f"{words[0]!r} is one word too many; a command for the server comes after --")
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, where argparse prints the usage and exits."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def _everything() -> _Parser:
    commands = "\n".join(f"  {verb:<10}{about}" for verb, about in ABOUT.items())
    codes = "\n".join(f"  {code:<10}{meaning}" for code, meaning in MEANINGS.items())
    examples = "".join(EXAMPLES.values())
    parser = _Parser(
        prog=NAME,
        usage=f"{NAME} COMMAND ...",
        description="A host for MCP servers: see what they offer, call their tools, lend them a model.",
        epilog=f"commands (each has its own --help):\n{commands}\n\n{TARGET}\nexamples:\n{examples}\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    parser.add_argument("verb", metavar="COMMAND", choices=ABOUT, help=argparse.SUPPRESS)
    return parser


def _parser(verb: str) -> _Parser:
    words = WORDS[verb]
    by_command = words.replace("SERVER", "").strip()
    usages = [f"{NAME} {verb} [options] {words}".rstrip()]
    if words:
        usages.append(" ".join(filter(None, [f"{NAME} {verb} [options]", by_command, "-- COMMAND [ARG ...]"])))
    parser = _Parser(
        prog=f"{NAME} {verb}",
        usage="\n       ".join(usages),
        description=f"{ABOUT[verb].capitalize()}.",
        epilog=(f"{TARGET}\n" if words else "") + f"examples:\n{EXAMPLES[verb]}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if words:
        parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
        _add_server_options(parser)
    if verb == "demo":
        parser.add_argument("--model", type=_model, default="arithmetic", metavar="NAME", help=CHOICES)
    if verb == "call":
        lend = "let the server use this model, for as much as it wants; otherwise it gets none"
        parser.add_argument("--model", type=_model, metavar="NAME", help=f"{lend}; {CHOICES}")
    return parser


def _add_server_options(parser: _Parser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="print one JSON document, in the spelling of the protocol")
    add("--timeout", type=_seconds, metavar="SECONDS", help=PATIENCE)
    add("--era", choices=("auto", "modern", "legacy", *VERSIONS), default="auto", metavar="ERA", help=ERAS)
    add("-H", "--header", type=_header, action="append", default=[], metavar="NAME=VALUE", help="sent to a URL")
    add("-e", "--env", type=_variable, action="append", default=[], metavar="NAME=VALUE", help="given to a command")


def _take_url(words: list[str], parser: _Parser) -> str:
    if not words:
        parser.error("there is no server: give its URL, or the command that starts it after --")
    if not URL.match(words[0]):
        parser.error(f"{words[0]!r} is no http(s) URL; a command that starts a server comes after --")
    return words.pop(0)


def _check_fit(options: Options, parser: _Parser) -> None:
    """Options that would do nothing are mistakes."""
    if options.headers and options.url is None:
        parser.error("headers are for a URL; a command takes --env")
    if options.env and options.url is not None:
        parser.error("--env is for a command; a URL takes --header")


def _take_call(words: list[str], parser: _Parser) -> tuple[str, Mapping[str, object]]:
    if not words:
        parser.error("there is no tool to call")
    tool = words.pop(0)
    return tool, _arguments(words.pop(0), parser) if words else {}


def _arguments(text: str, parser: _Parser) -> Mapping[str, object]:
    try:
        arguments: object = from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        parser.error(f"the arguments are not JSON: {exc}")
    if not isinstance(arguments, dict):
        parser.error(f'the arguments are a JSON object, like {{"name": "value"}}, and this is {KINDS[type(arguments)]}')
    return arguments


def _header(text: str) -> tuple[str, str]:
    return _pair(HEADER, text)


def _variable(text: str) -> tuple[str, str]:
    return _pair(VARIABLE, text)


def _pair(form: re.Pattern[str], text: str) -> tuple[str, str]:
    found = form.fullmatch(text)
    if found is None:  # not repeated in the message: it may be a secret
        raise argparse.ArgumentTypeError("not of the form NAME=VALUE")
    return found[1], found[2]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _model(text: str) -> Model:
    if text not in MODELS:
        raise argparse.ArgumentTypeError(f"there is no model {text!r}; {CHOICES}")
    return MODELS[text]
