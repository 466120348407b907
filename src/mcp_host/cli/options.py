"""The options of the command, each in one row: its default, its names, its help, and how its text is read."""

from __future__ import annotations

import math
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from mcp_host.cli.arithmetic import MODELS
from mcp_host.cli.output import UsageError
from mcp_host.cli.parameters import Item
from mcp_host.errors import quoted
from mcp_host.limits import Limits
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.sampling.loop.host import MAX_TOKENS
from mcp_host.sampling.loop.tools import MAX_TOOLS

T = TypeVar("T")

NAME = "mcp-host"
HEADER = re.compile(r"([^\s=:]+)(?:=|:\s*)(.*)", re.DOTALL)  # no header's name has either sign, and curl takes ":"
NAMED = "NAME: VALUE"
VARIABLE = re.compile(r"([^=]+)=(.*)", re.DOTALL)
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # in the value of a header
ALIAS = re.compile(r"(https?://[^=]+)=(https?://.+)")  # of an issuer, which has no query
PARAMETER = re.compile(r"([A-Za-z0-9._-]+)=([^\ud800-\udfff]*)")  # RFC 6749, section 8.2; UTF-8

ADDRESS = re.compile(r"(?:(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:/@]+)):)?([0-9]{1,5})")  # [HOST:]PORT

MODEL_NAMES = f"{', '.join(MODELS)} (built in), or PROVIDER:NAME such as anthropic:claude-sonnet-5"
LIMITS = Limits()
MAX_PORT = 65535
JSON = "print one JSON document"


def pair(form: re.Pattern[str], text: str, shown: str = "NAME=VALUE") -> tuple[str, str]:
    """The name and the value in the *text* of an option. *shown* is the *form* in an error."""
    found = form.fullmatch(text)
    if found is None:  # not repeated in the message: it may be a secret
        raise ArgumentTypeError(f"not of the form {shown}")
    return found[1], found[2]


def variable(text: str) -> tuple[str, str | None]:
    """A variable for a program. Its value is None if only its name is given: then it is one of the environment."""
    return pair(VARIABLE, text) if "=" in text or " " in text else (text, None)


def of_environment(name: str) -> str:
    """The value of a variable of the environment.

    Raises:
        ArgumentTypeError: There is none of that name.
    """
    if (value := os.environ.get(name)) is None:
        raise ArgumentTypeError(f"the environment has no variable {quoted(name)}")
    return value


def secret_of(name: str, what: str) -> str:
    """The secret in a variable of the environment; *what* it is, in the error.

    Raises:
        UsageError: There is none of that name, or it is empty.
    """
    if not (secret := os.environ.get(name)):
        from mcp_host.config.secret_words import VARIABLE_NAME  # here, because importing it takes a while

        shown_name = f" {name}" if VARIABLE_NAME.fullmatch(name) else ""  # it may be the secret itself
        raise UsageError(f"there is no environment variable{shown_name}, which is to have {what}")
    return secret


def address(text: str) -> tuple[str, int]:
    """The host and the port to listen at."""
    found = ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > MAX_PORT:
        raise ArgumentTypeError(f"{text!r} is not of the form [HOST:]PORT, such as 8000 or [::1]:8000")
    return found[1] or found[2] or "127.0.0.1", int(found[3])


def headers(text: str) -> list[tuple[str, str]]:
    """The header in *text*, with variables of the environment in its value; or those in a file, as curl has it."""
    if text.startswith("@"):  # no header's name has it
        try:
            lines = Path(text[1:]).read_text("utf-8").splitlines()
        except (OSError, ValueError) as exc:  # the latter if it is not UTF-8, or no name of a file
            raise ArgumentTypeError(f"the file cannot be read: {exc}") from exc
        return [pair(HEADER, line.strip(), NAMED) for line in lines if line.strip()]
    name, value = pair(HEADER, text, NAMED)
    return [(name, REFERENCE.sub(lambda found: of_environment(found[1]), value))]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _number(of: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of {of}")
    return int(text)


def _model(text: str) -> str:
    if text not in MODELS and ":" not in text:
        raise ArgumentTypeError(f"there is no model {text!r}; a model is {MODEL_NAMES}")
    return text


class Option(Generic[T]):
    """An option: its default, its names, and what else argparse gets. In `Options` it is its value, or else the default."""

    def __init__(self, default: T, *flags: str, **more: Any) -> None:
        self._default = default
        self.flags = flags
        action = {"action": "store_true"} if default is False else {"action": "append"} if default == [] else {}
        self.more = {**action, **more}

    def __get__(self, instance: Options, owner: type[Options]) -> T:
        return self._default


class Options:
    """One command, as it was given: such as "call" or "servers add", with what comes after ``--``."""

    url: str | None = None
    """None where a command starts the server, or a file has the servers."""
    operands: Sequence[str] = ()
    operand = ""
    """The name of the tool, the URI of the resource and the like."""
    words: Sequence[str] = ()
    """What follows the operand."""
    items: Sequence[Item] = ()
    """These words, if they are arguments of a tool and the like."""

    def __init__(self, verb: str = "", command: Sequence[str] = ()) -> None:
        self.verb = verb
        self.command = command

    @property
    def limits(self) -> Limits:
        """The limits of a connection, with those of ``--timeout``."""
        seconds = self.timeout
        return LIMITS if seconds is None else Limits(connect_timeout=seconds, timeout=seconds, idle_timeout=seconds)

    # fmt: off
    json = Option(False, "--json", help=f"{JSON}, in the protocol's spelling; also for an error")
    verbose = Option(False, "--verbose", "-v",
        help="print what the server logs, its stderr, each step of a login, and what the model's provider says of failures, to stderr")

    # A server of the command line, or several of a file
    config = Option[Path | None](None, "--config", type=Path, metavar="FILE",
        help="use the servers of this file, of any host: JSON, TOML or YAML")
    approve_servers = Option(False, "--approve-servers",
        help="start the servers of --config that need your consent, and connect to them, without asking you; it is remembered until they change")
    ask_again = Option(False, "--ask-again", help="ask for the inputs of --config, though your keyring has them")
    timeout = Option[float | None](None, "--timeout", type=_seconds, metavar="SECONDS",
        help=f"for connecting (default: {LIMITS.connect_timeout:g}) and for a call (default: {LIMITS.timeout:g}, or {LIMITS.idle_timeout:g} without a message from the server)")
    era = Option("auto", "--era", choices=("auto", "modern", "legacy", *VERSIONS), metavar="ERA",
        help=f"auto, modern (without a handshake), legacy (with one), or a single revision like {VERSIONS[0]}; by default, the server is asked")
    env = Option[list[tuple[str, str | None]]]([], "-e", "--env", type=variable, metavar="NAME[=VALUE]",
        help="given to a command; NAME alone passes on a variable of the environment")
    header = Option[list[tuple[str, str]]]([], "-H", "--header", type=headers, action="extend", metavar="'NAME: VALUE'",
        help="sent to a URL; ${VARIABLE} in the value is of the environment, and @FILE has a header on each line: so no secret has to be on the command line")
    verify = Option[Path | None](None, "--verify", type=Path, metavar="PATH",
        help="trust the certificates of the authorities in this PEM file or folder, and no others, over https")
    no_verify = Option(False, "--no-verify",
        help="trust any server that answers at the URL, with any certificate: for tests on your own machine")
    cert = Option[Path | None](None, "--cert", type=Path, metavar="FILE",
        help="your own certificate for https, in PEM format, with its key unless there is --key")
    key = Option[Path | None](None, "--key", type=Path, metavar="FILE", help="the key of --cert, in PEM format")
    uds = Option[Path | None](None, "--uds", type=Path, metavar="PATH",
        help="connect to this unix socket, in place of the host of the URL")

    # Logging in
    no_login = Option(False, "--no-login", help="use a stored login only; by default you are asked to log in")
    paste = Option(False, "--paste", help="log in with a browser on any machine, and paste the URL it ends at")
    use_device_code = Option(False, "--use-device-code",
        help="log in on any device, and enter a code there, if the authorization server offers that")
    client_id = Option[str | None](None, "--client-id", metavar="ID",
        help="the client that you have registered; by default mcp-host registers itself")
    client_secret_env = Option[str | None](None, "--client-secret-env", metavar="NAME",
        help="the environment variable that has the client's secret")
    redirect_uri = Option[str | None](None, "--redirect-uri", metavar="URI",
        help="where this client is registered to be redirected, such as http://localhost:8080/callback")
    issuer = Option[str | None](None, "--issuer", metavar="URL",
        help="the authorization server that this client is registered at")
    issuer_alias = Option[list[tuple[str, str]]]([], "--issuer-alias", type=partial(pair, ALIAS, shown="NAME=ISSUER, both URLs"), metavar="NAME=ISSUER",
        help="log in at this issuer where the server has another name for it, such as one with a slash more")
    shared_resource = Option[list[str]]([], "--shared-resource", metavar="URL",
        help="let all servers that name this resource share one login: only if they have one owner")
    authorization_param = Option[list[tuple[str, str]]]([], "--authorization-param", type=partial(pair, PARAMETER), metavar="NAME=VALUE",
        help="added to the URL that you log in at, such as audience=https://api.example.com")
    scope = Option[list[str]]([], "--scope", metavar="SCOPE", help="ask for this scope as well, when logging in")

    # A model
    model = Option[str | None](None, "--model", type=_model, metavar="MODEL",
        help=f"let the server use this model, and ask you each time; by default it gets none. MODEL is {MODEL_NAMES}")
    api_key_file = Option[Path | None](None, "--api-key-file", type=Path, metavar="FILE",
        help=f"the key of --model is in this file, which only you may read; by default it is in the environment, or else in your keyring (keyring set {NAME} ANTHROPIC_API_KEY)")
    yes = Option(False, "--yes", "-y", help="let the server use the model without asking you; arithmetic never asks")
    system = Option[str | None](None, "--system", metavar="TEXT", help="the system prompt")
    max_tokens = Option(MAX_TOKENS, "--max-tokens", type=partial(_number, "tokens"), metavar="N",
        help=f"the most tokens that one answer may have (default: {MAX_TOKENS:,})")
    max_tools = Option(MAX_TOOLS, "--max-tools", type=partial(_number, "tools"), metavar="N",
        help=f"the most tools that a server may have: each costs tokens in every answer (default: {MAX_TOOLS})")

    # A proxy
    allow = Option[list[str]]([], "--allow", metavar="TOOL",
        help="let calls of this tool use the model without asking: a name, or a pattern such as plan_*")
    approve = Option("host", "--approve", choices=("host", "terminal", "always"),
        help="who is asked before the model answers (default: host, in a form that it shows)")
    answer_sampling = Option[Literal["auto", "always", "never"]]("auto", "--sampling", choices=("auto", "always", "never"),
        help="whether --model answers: if the host cannot (default), always, or never")
    http = Option[tuple[str, int] | None](None, "--http", type=address, metavar="[HOST:]PORT",
        help="serve Streamable HTTP, and print the URL, in place of stdin and stdout; by default on 127.0.0.1. Port 0 is any free one")
    token_env = Option[str | None](None, "--token-env", metavar="NAME",
        help="the environment variable with the bearer token that --http demands; by default it is drawn and printed, and on 127.0.0.1 there is none")
    token_issuer = Option[str | None](None, "--token-issuer", metavar="URL",
        help="the authorization server whose tokens --http demands, in place of one that all know: each user has sessions of their own")
    resource = Option[str | None](None, "--resource", metavar="URL",
        help="the proxy's URL for its clients, which tokens of --token-issuer are for; by default the one that is printed")
    token_scope = Option[list[str]]([], "--token-scope", metavar="SCOPE",
        help="demand that tokens of --token-issuer have this scope; repeatable")
    state_key_env = Option[str | None](None, "--state-key-env", metavar="NAME",
        help="the environment variable with the key, of 32 bytes at least, that several processes behind one URL share: each then takes retries of calls that another answered")
    only = Option[list[str]]([], "--only", metavar="TOOL",
        help="show the host only this tool: a name, or a pattern such as plan_*; repeatable")
    log_file = Option[Path | None](None, "--log-file", type=Path, metavar="FILE",
        help="write the warnings to this file, too, and with --verbose the rest of the log; at 1 MB it begins anew, and three old ones are kept")

    # Single commands
    report = Option[Path | None](None, "--report", type=Path, metavar="FILE",
        help="write the report to this file after each call: as JSON or JUnit XML if it ends with .json or .xml, else as text")
    unchecked = Option(False, "--unchecked", help="check nothing: send key=text as text, and take any result")
    pins = Option[Path | None](None, "--pins", type=Path, metavar="FILE",
        help="block tools that are not as pinned in FILE; the first use of a server pins its tools there")
    output = Option[str | None](None, "--output", "-o", metavar="PATH",
        help="write the contents to a file, byte for byte; - is stdout")
    all = Option(False, "--all", help="those of all hosts on this machine")
    replace = Option(False, "--replace", help="take the place of a server of the same name")
    source = Option[str | None](None, "--from", metavar="FILE-OR-HOST",
        help="a file of servers, or the files of a host")
    version = Option[str | None](None, "--version", metavar="V",
        help="of a server of a registry, by default the latest")
    registry = Option[str | None](None, "--registry", metavar="URL",
        help="by default https://registry.modelcontextprotocol.io")
    package = Option[str | None](None, "--package", choices=("npm", "pypi", "oci", "nuget", "remote"),
        help="by default the first that can be used")
    # fmt: on


OPTIONS: Mapping[str, Option[Any]] = {name: each for name, each in vars(Options).items() if isinstance(each, Option)}
