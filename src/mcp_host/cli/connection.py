"""Connecting to the server of a command, as its options say."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from mcp_host.cli.arguments import Options
from mcp_host.cli.output import UsageError, as_json, print_aside, print_error, status_line
from mcp_host.client.client import Client
from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.limits import Limits
from mcp_host.sampling import Sampling
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio
from mcp_host.types import LoggingMessageNotificationParams

if TYPE_CHECKING:
    from mcp_host.auth import OAuth
    from mcp_host.cli.authorization import Asking
    from mcp_host.elicitation import Elicitation  # imported on demand


@asynccontextmanager
async def connected(
    options: Options,
    *,
    sampling: Sampling | None,
    elicitation: Elicitation | None,
    tools: ToolPolicy | None = None,
    restart: bool = False,
    show: Callable[[str], None] = print_aside,
    asking: Asking = nullcontext,
) -> AsyncIterator[Client]:
    """A client of the server. With ``--verbose``, *show* gets what the server logs, and its stderr.

    A person logs in within *asking*.

    Raises:
        UsageError: The URL or a header is invalid.
        McpError: As the client does.
    """

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        show(log_line(message))

    auth = _authorization(options, asking)
    transport = _transport(options, auth, restart=restart, on_stderr=show if options.verbose else None)
    client = Client(
        transport,
        sampling=sampling,
        elicitation=elicitation,
        tools=tools,
        limits=limits_of(options),
        era=options.era,
        on_log=on_log if options.verbose else None,
    )
    try:
        with _explaining(options, auth):
            with status_line(sys.stderr) as show_status:
                show_status(f"{'starting' if options.url is None else 'connecting to'} {transport.name} ...")
                await client.connect()
            async with client:
                try:
                    if options.verbose:
                        await log_everything(client)
                    yield client
                finally:
                    for warning in client.warnings:
                        print_error(f"warning: {warning}")
    finally:
        if auth is not None and options.verbose and auth.steps:
            show(auth.explain())


def limits_of(options: Options) -> Limits:
    """The limits of a connection, with those of ``--timeout``."""
    seconds = options.timeout
    return Limits() if seconds is None else Limits(connect_timeout=seconds, timeout=seconds, idle_timeout=seconds)


async def log_everything(client: Client) -> None:
    """Have the server send all that it logs, if it can."""
    if client.server_capabilities.logging is not None:
        await client.set_log_level("debug")


def log_line(message: LoggingMessageNotificationParams) -> str:
    """What a server logs, for a person."""
    text = message.data if isinstance(message.data, str) else as_json(message.data)
    return f"{message.level} {message.logger}: {text}" if message.logger else f"{message.level}: {text}"


def _authorization(options: Options, asking: Asking) -> OAuth | None:
    """That of a URL, unless the person has passed another one."""
    if options.url is None or any(name.lower() == "authorization" for name, _ in options.header):
        return None
    from mcp_host.cli.authorization import authorization  # here, because importing it takes a while

    return authorization(options, asking)


def _explaining(options: Options, auth: OAuth | None) -> AbstractContextManager[None]:
    if options.url is None or auth is None:
        return nullcontext()
    from mcp_host.cli.authorization import explaining

    return explaining(auth, options)


def _transport(
    options: Options, auth: OAuth | None, *, restart: bool, on_stderr: Callable[[str], None] | None
) -> Transport:
    try:
        if options.url is None:
            return Stdio(options.command, env=dict(options.env), on_stderr=on_stderr, restart=restart)
        from mcp_host.transports.http import StreamableHttp  # here, because importing httpx takes a while

        cert = (options.cert, options.key) if options.cert and options.key else options.cert
        return StreamableHttp(
            options.url, headers=dict(options.header), verify=options.verify, cert=cert, uds=options.uds, auth=auth
        )
    except (TypeError, ValueError) as exc:
        text = str(exc)
        raise UsageError(f"--{text}" if text.startswith(("verify", "cert", "uds")) else text) from exc
