"""The servers of ``--config``: how a command opens them, and what it says of those that cannot be used."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Unpack

from mcp_host.auth import FileTokens
from mcp_host.cli.authorization import login_of, tokens_file
from mcp_host.cli.console import Console, log_everything, log_line
from mcp_host.cli.inputs import KeyringAnswers, ask_for_input
from mcp_host.cli.options import NAME, Options
from mcp_host.cli.output import ConsentMissing, UsageError, near, print_aside, print_error, status_line
from mcp_host.cli.transcript import reason
from mcp_host.client.client import Client
from mcp_host.client.pins import ToolPins
from mcp_host.errors import AuthError, ConnectFailed, ConnectTimeout, McpError, escaped, quoted
from mcp_host.group import ClientGroup, ServerOptions, ServerState, ServerStatus
from mcp_host.group.member import NOT_READY
from mcp_host.group.options import GroupOptions
from mcp_host.limits import Limits
from mcp_host.sampling import Deny, Sampling
from mcp_host.sampling.proposed_server import ProposedServer
from mcp_host.sampling.terminal import ask_in_terminal
from mcp_host.transports.stdio import Stdio
from mcp_host.types import LoggingMessageNotificationParams

NO_CONSENT = (
    f"there is no terminal to ask in: run {NAME} tools --config FILE in one, or add --approve-servers, which agrees to all"
    " servers of this file"
)
WANTS_LOGIN = re.compile(r"https?://\S+(?= needs a login)")
START_WAIT = 5.0  # seconds until a conversation begins with the servers that are ready by then, without --timeout

FAILURES: Mapping[ServerState, Callable[[str], Exception]] = {
    "connecting": ConnectTimeout,
    "down": ConnectFailed,
    "needs_login": AuthError,
    "needs_consent": ConsentMissing,
    "disabled": UsageError,
}
"""How a command fails because its server is in such a state."""


@asynccontextmanager
async def opened(
    options: Options, sampling: Sampling | None, pins: ToolPins | None, console: Console
) -> AsyncIterator[ClientGroup]:
    """The servers of a file, those that can be used. Others are named on stderr. ``call`` starts none but that of its tool.

    Raises:
        ConfigError: The file cannot be read.
        UsageError: It has no servers.
        CallerError: No server of it has a tool of that name.
        Exception: One of `FAILURES`: no server can be used.
    """
    verbose = _Verbose(console) if options.verbose else None
    group = _group(
        options,
        console,
        sampling=sampling,
        elicitation=console.elicitation(),
        limits=options.limits,
        pins=pins,
        on_log=verbose.on_log if verbose else None,
        on_stderr=verbose.on_stderr if verbose else None,
        on_status=verbose.on_status if verbose else console.show_status,
        wait=(options.timeout or START_WAIT) if is_conversation(options) else "all",
    )
    wanted = list(group.status())
    if options.verb == "call":
        wanted = [group.server_of(options.operand)]
        for name in group.status().keys() - {*wanted}:
            await group.disable(name)
    async with AsyncExitStack() as stack:
        with status_line(sys.stderr) as show_status:
            show_status(f"connecting to {', '.join(wanted)} ...")
            await stack.enter_async_context(group)
        try:
            if options.verb == "call":
                await _log_in(group, wanted[0], options)
            if verbose is not None:
                await verbose.log_everything(group)
            if not is_conversation(options):
                _check_ready([group.status()[name] for name in wanted], options)
            yield group
        finally:
            about = f"{wanted[0]}: " if options.verb == "call" else ""  # what is said of the others does not matter
            for warning in group.warnings:
                if warning.startswith(about):
                    print_error(f"warning: {warning}")


async def prepared(options: Options, console: Console, limits: Limits) -> dict[str, ServerOptions]:
    """The servers of a file for a proxy, those of the names that were given or all. The log names those that cannot be used.

    Raises:
        ConfigError: The file cannot be read.
        UsageError: It has no servers, or none of that name.
        Exception: One of `FAILURES`: no server can be used.
    """
    group = _group(options, console, limits=limits)
    names = options.words or list(group.status())
    for name in names:
        if name not in group.status():
            file = escaped(str(options.config))
            raise UsageError(f"there is no server {quoted(name)} in {file}{near(name, group.status())}")
    for name in group.status().keys() - {*names}:
        await group.disable(name)
    servers = await group.prepare()
    if not servers:
        first = group.status()[names[0]]
        raise FAILURES[first.state](problem(first))
    return {name: _with_stderr(name, server) for name, server in servers.items()}


def _with_stderr(name: str, server: ServerOptions) -> ServerOptions:
    """*server*, whose stderr is printed."""
    if not isinstance(server.server, Stdio):
        return server
    return replace(server, server=replace(server.server, on_stderr=partial(print_aside, server=name)))


def _group(options: Options, console: Console, **more: Unpack[GroupOptions]) -> ClientGroup:
    assert options.config is not None, "the caller has looked"
    group = ClientGroup.from_file(
        options.config,
        approve_servers=console.decider(ask_in_terminal, _refuse, agrees=options.approve_servers),
        ask_input=console.with_keyboard(ask_for_input),
        answer_store=KeyringAnswers.of_person(asks_again=options.ask_again),
        tokens=FileTokens(tokens_file()),
        login=login_of(options, console),
        **more,
    )
    if not group.status():
        raise UsageError(f"there are no servers in {escaped(str(options.config))}")
    return group


class _Verbose:
    """What ``--verbose`` shows of the servers of a file: their stderr, and all that they log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._group: ClientGroup | None = None
        self._asked = set[Client]()

    async def on_log(self, server: str, message: LoggingMessageNotificationParams) -> None:
        self._console.show(log_line(message), server)

    def on_stderr(self, server: str, line: str) -> None:
        self._console.show(line, server)

    async def on_status(self, status: ServerStatus) -> None:
        await self._console.show_status(status)
        if self._group is not None:
            await self.log_everything(self._group)

    async def log_everything(self, group: ClientGroup) -> None:
        """Have the servers that are ready send all that they log. A client asks again for that after it has reconnected."""
        self._group = group
        for server, client in group.clients.items():
            if group.status()[server].state != "ready" or client in self._asked:
                continue
            self._asked.add(client)
            try:
                await log_everything(client)
            except McpError as exc:
                self._console.show(f"its log level cannot be set: {exc}", server)


def is_conversation(options: Options) -> bool:
    """Whether a person talks to the model, and sees what becomes of the servers."""
    return options.verb == "chat" and sys.stdin.isatty()


async def _log_in(group: ClientGroup, name: str, options: Options) -> None:
    """Ask the person to log in, if the server wants that."""
    if group.status()[name].state == "needs_login" and sys.stdin.isatty() and not options.no_login:
        await group.log_in(name)


def _check_ready(statuses: Sequence[ServerStatus], options: Options) -> None:
    """Name those that are not ready on stderr, unless the command shows them. Only ``call`` misses what the file has switched off.

    Raises:
        Exception: One of `FAILURES`: none is ready.
    """
    missed = [each for each in statuses if each.state != "disabled" or each.error is not None or options.verb == "call"]
    down = [status for status in missed if status.state != "ready"]
    if not missed:
        raise UsageError("all servers of the file are disabled")
    if len(down) == len(missed):
        last = down.pop()
        for status in down:
            print_error(problem(status))
        raise FAILURES[last.state](problem(last))
    for status in down if options.verb != "inspect" else ():
        print_error(problem(status))


def problem(status: ServerStatus) -> str:
    """Why a server cannot be used."""
    why = reason(status)
    if found := WANTS_LOGIN.match(why):
        why = f"run {NAME} login {found[0]}"
    return ": ".join(filter(None, [f"the server {quoted(status.name)} {NOT_READY[status.state]}", why]))


async def _refuse(server: ProposedServer) -> Deny:
    return Deny(NO_CONSENT)
