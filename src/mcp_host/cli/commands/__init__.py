"""The commands: what the help tells about each, what it takes, and the module here that carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mcp_host.cli.options import JSON, MODEL_NAMES, NAME


class Command(NamedTuple):
    """What the help tells about a command, and what it takes."""

    about: str
    options: tuple[str, ...] = ()
    """The fields of `Options` that it takes."""
    takes: str = ""
    """What follows the server, such as ``TOOL [ARGUMENT ...]``; what is not in brackets is needed."""
    module: str = "requests"
    """Its ``run(options)`` carries the command out."""
    ways: tuple[str, ...] = ()
    """The ways to write it, if they are others than those of `usage`."""
    changes: Mapping[str, Mapping[str, object]] = MappingProxyType({})
    """What is different about its options, such as their help."""
    is_group: bool = False
    """Whether a further word says which command it is: the module's ``COMMANDS`` has those."""

    @property
    def server(self) -> bool:
        """Whether it speaks to a server: its URL comes first, or what starts it last, or there is ``--config``."""
        return "uds" in self.options

    @property
    def program(self) -> bool:
        """Whether a program to start may come last, after ``--``."""
        return "env" in self.options

    def usage(self, verb: str) -> str:
        """The ways to write the command *verb*."""
        ways = self.ways or (
            f"{'SERVER ' if self.server else ''}{self.takes}",
            *([f"{self.takes} -- COMMAND [ARG ...]"] if self.server and self.program else []),
            *([f"--config FILE {self.takes}"] if self.server and "config" in self.options else []),
        )
        return "\n       ".join(f"{NAME} {verb} [options] {way.strip()}".rstrip() for way in ways)


AT_URL = ("verbose", "uds", "shared_resource")
LOGIN = (
    *(*AT_URL, "timeout", "era", "header", "verify", "no_verify", "cert", "key", "paste", "use_device_code"),
    *("client_id", "client_secret_env", "redirect_uri", "issuer", "issuer_alias", "authorization_param", "scope"),
)
SERVER = (*LOGIN, "env", "no_login")
SERVERS = (*SERVER, "config", "approve_servers", "ask_again")
MODEL = ("model", "api_key_file", "yes")

OWN_JSON = {"json": {"help": f"{JSON}; also for an error"}}  # its spelling is that of no protocol
OUTPUT_OF_CALL = (
    "write the images, audio and resources of the result to a file, or to a folder (with a slash at its end, if it is new);"
    " - is stdout, for one of them"
)

EXAMPLES = f"""\
demo
tools https://example.com/mcp
tools -- npx -y @modelcontextprotocol/server-everything
tools --config mcp.json
call https://example.com/mcp echo message=hi
call https://example.com/mcp echo '{{"message": "hi"}}'
call https://example.com/mcp echo message=hi --pins pins.json
call get-sum a=2 b=3 -- npx -y @modelcontextprotocol/server-everything
call --config mcp.json files__read_file path=notes.txt
call solve 'problem=2 * (3 + 4)' --model anthropic:claude-sonnet-5 -- python examples/calculator_server.py
read https://example.com/mcp file:///notes.txt
read 'demo://resource/dynamic/text/{{resourceId}}' resourceId=3 -- npx -y @modelcontextprotocol/server-everything
read --output logo.png https://example.com/mcp file:///logo.png
prompt https://example.com/mcp review file=main.py
prompt args-prompt city=Oslo -- npx -y @modelcontextprotocol/server-everything
complete https://example.com/mcp review file=ma
complete completable-prompt name= department=Sales -- npx -y @modelcontextprotocol/server-everything
chat https://example.com/mcp --model anthropic:claude-sonnet-5
chat --config mcp.json --model anthropic:claude-sonnet-5
chat --model ollama:llama3 --system 'Be brief.' -- npx -y @modelcontextprotocol/server-everything
echo 'What is 12.5 * 4?' | {NAME} chat --yes --model arithmetic -- python examples/calculator_server.py
proxy --model anthropic:claude-sonnet-5 --allow plan_dinner -- uvx planner-server
proxy --http 8000 -- uvx planner-server
proxy --config mcp.json planner files
doctor --report doctor.json
doctor --report doctor.xml -- python my_host.py
inspect -H 'Authorization=Bearer ...' https://example.com/mcp
inspect --json -- python examples/calculator_server.py
login https://example.com/mcp
login https://example.com/mcp --use-device-code
login https://example.com/mcp --paste
login https://example.com/mcp --client-id my-id --client-secret-env MY_SECRET --scope files:read
logout https://example.com/mcp
whoami https://example.com/mcp
whoami --json https://example.com/mcp
pins pins.json
pins pins.json --json
pins pins.json accept https://example.com/mcp echo
pins pins.json forget https://example.com/mcp
servers list
"""


def examples(verb: str) -> list[str]:
    """The lines of `EXAMPLES` for the command *verb*, as they are typed."""
    lines = [line if f"{NAME} " in line else f"{NAME} {line}" for line in EXAMPLES.splitlines()]
    return [line for line in lines if line.partition(f"{NAME} ")[2].split()[0] == verb]


COMMANDS: Mapping[str, Command] = {
    "demo": Command(
        "show a server that asks a model and offers it tools, over stdio and over HTTP",
        MODEL,
        module="demo",
        changes={
            "model": {
                "default": "arithmetic",
                "help": f"the model that the server uses, after asking you: {MODEL_NAMES}",
            }
        },
    ),
    "tools": Command("list the tools of a server", ("json", *SERVERS, "pins")),
    "call": Command(
        "call a tool of a server",
        ("json", *SERVERS, *MODEL, "unchecked", "pins", "output"),
        "TOOL [ARGUMENT ...]",
        changes={"output": {"help": OUTPUT_OF_CALL}},
    ),
    "read": Command(
        "read a resource of a server, or one that a template and its variables make",
        ("json", *SERVER, *MODEL, "output"),
        "URI [ARGUMENT ...]",
    ),
    "prompt": Command(
        "get a prompt of a server, and print its messages",
        ("json", *SERVER, *MODEL, "unchecked"),
        "PROMPT [ARGUMENT ...]",
    ),
    "complete": Command(
        "complete the first ARGUMENT of a prompt or a resource template; the others are chosen already",
        ("json", *SERVER),
        "PROMPT-OR-TEMPLATE [ARGUMENT ...]",
    ),
    "chat": Command(
        "talk to a model that uses the tools of a server",
        (*SERVERS, *MODEL, "pins", "system", "max_tokens", "max_tools"),
        module="chat",
        changes={
            "model": {"required": True, "help": f"the model to talk to: {MODEL_NAMES}"},
            "yes": {"help": "call tools, and let the server use the model, without asking you"},
        },
    ),
    "proxy": Command(
        "be a server for a host, in front of others: it gives the host's server a model, and speaks the host's revision",
        (
            *(*SERVERS, "model", "api_key_file", "allow", "approve", "answer_sampling", "only", "pins", "log_file"),
            *("http", "token_env", "token_issuer", "resource", "token_scope", "state_key_env"),
        ),
        "[NAME ...]",
        module="proxy",
        ways=("SERVER", "-- COMMAND [ARG ...]", "--config FILE [NAME ...]"),
        changes={"model": {"help": f"answer the server's requests for a model with this one: {MODEL_NAMES}"}},
    ),
    "doctor": Command(
        "be a server that checks its host: one that has it in its configuration, or that COMMAND starts, with a URL as last argument",
        ("json", "era", "timeout", "env", "report"),
        module="doctor",
        ways=("", "-- COMMAND [ARG ...]"),
        changes={
            **OWN_JSON,
            "era": {
                "choices": ("auto", "modern", "legacy"),
                "help": "auto, modern (2026-07-28) or legacy (2025-11-25)",
            },
            "timeout": {"help": "for each answer of the host (default: 300)"},
            "env": {"help": "given to COMMAND; NAME alone passes on a variable of the environment"},
        },
    ),
    "inspect": Command("show a server's name, capabilities, tools, resources and prompts", ("json", *SERVERS)),
    "login": Command(
        "log in to a server: in the browser of this machine, or in any other", ("json", *LOGIN), module="login"
    ),
    "logout": Command("forget the login for a server, and have its token revoked", ("json", *AT_URL), module="login"),
    "whoami": Command(
        "show the login for a server: where, as which client, with which scopes, and until when",
        ("json", *AT_URL),
        module="login",
    ),
    "pins": Command(
        "show the tools that have changed since they were pinned, and accept the changes",
        ("json", "yes"),
        "FILE [accept [SERVER [TOOL ...]] | forget SERVER [TOOL ...]]",
        module="pins",
        changes={**OWN_JSON, "yes": {"help": "accept without asking"}},
    ),
    "servers": Command(
        "show and change the servers in your file; comments and unknown keys in it stay",
        module="servers",
        is_group=True,
    ),
}
