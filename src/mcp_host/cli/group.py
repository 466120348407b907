"""The servers of ``--config``: how a command opens them, and what it says of those that cannot be used."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from mcp_host.auth import FileTokens
from mcp_host.cli.arguments import NAME, Options
from mcp_host.cli.authorization import Asking, login_of, tokens_file
from mcp_host.cli.connection import limits_of, log_line
from mcp_host.cli.inputs import KeyringAnswers, ask_for_input
from mcp_host.cli.output import ConsentMissing, UsageError, print_aside, print_error, status_line
from mcp_host.cli.transcript import reason
from mcp_host.config import Input
from mcp_host.errors import AuthError, ConnectFailed, ConnectTimeout, escaped, quoted
from mcp_host.group import ClientGroup, OnStatus, ServerState, ServerStatus
from mcp_host.group.member import NOT_READY
from mcp_host.proposed_server import ProposedServer
from mcp_host.sampling import Allow, Deny, Sampling
from mcp_host.sampling.terminal import ask_in_terminal
from mcp_host.types import LoggingMessageNotificationParams

if TYPE_CHECKING:
    from mcp_host.elicitation import Elicitation  # imported on demand

AskServer: TypeAlias = Callable[[ProposedServer], Awaitable[Allow | Deny]]
AskInput: TypeAlias = Callable[[Input], Awaitable[str | None]]

NO_CONSENT = "there is no terminal to ask in; --approve-servers agrees to the servers of this file"
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
    options: Options,
    *,
    sampling: Sampling | None,
    elicitation: Elicitation | None,
    on_status: OnStatus | None = None,
    show: Callable[[str, str], None] = print_aside,
    asking: Asking = nullcontext,
    ask: AskServer = ask_in_terminal,
    ask_input: AskInput = ask_for_input,
) -> AsyncIterator[ClientGroup]:
    """The servers of a file, those that can be used. Others are named on stderr. ``call`` starts none but that of its tool.

    *ask* is asked whether a server may be started, and *ask_input* for inputs. With ``--verbose``, *show* gets what each server logs, and
    its stderr, and then its name. The rest is as for `connected`.

    Raises:
        ConfigError: The file cannot be read.
        UsageError: It has no servers.
        CallerError: No server of it has a tool of that name.
        Exception: One of `FAILURES`: no server can be used.
    """

    async def on_log(server: str, message: LoggingMessageNotificationParams) -> None:
        show(log_line(message), server)

    def on_stderr(server: str, line: str) -> None:
        show(line, server)

    assert options.config is not None, "the caller has looked"
    group = ClientGroup.from_file(
        options.config,
        approve_servers=_server_approver(options, ask),
        ask_input=ask_input,
        answer_store=KeyringAnswers.of_person(asks_again=options.ask_again),
        tokens=FileTokens(tokens_file()),
        login=login_of(options, asking),
        sampling=sampling,
        elicitation=elicitation,
        limits=limits_of(options),
        on_log=on_log if options.verbose else None,
        on_stderr=on_stderr if options.verbose else None,
        on_status=on_status,
        wait=(options.timeout or START_WAIT) if is_conversation(options) else "all",
    )
    wanted = list(group.status())
    if not wanted:
        raise UsageError(f"there are no servers in {escaped(str(options.config))}")
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
            if not is_conversation(options):
                _check_ready([group.status()[name] for name in wanted], options)
            yield group
        finally:
            for warning in group.warnings:
                if options.verb != "call" or warning.startswith(
                    f"{wanted[0]}: "
                ):  # what is said of the others does not matter
                    print_error(f"warning: {warning}")


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


def _server_approver(options: Options, ask: AskServer) -> AskServer:
    """*ask*, which asks the person at the terminal. With ``--approve-servers`` all are agreed to, without a terminal none."""
    if options.approve_servers:
        return _agree
    return ask if sys.stdin.isatty() else _refuse


async def _agree(server: ProposedServer) -> Allow:
    return Allow()


async def _refuse(server: ProposedServer) -> Deny:
    return Deny(NO_CONSENT)
