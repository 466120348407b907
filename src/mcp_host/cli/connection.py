"""Connecting to the server of a command, as its options say, or to those of a file."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from mcp_host.cli.console import Console, log_everything, log_line
from mcp_host.cli.options import Options, of_environment
from mcp_host.cli.output import UsageError, print_error, status_line
from mcp_host.client.client import Client
from mcp_host.client.pins import ToolPins
from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.group import ClientGroup
from mcp_host.sampling import Sampling
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio
from mcp_host.types import LoggingMessageNotificationParams

if TYPE_CHECKING:
    from mcp_host.auth import OAuth


def connected(
    options: Options, sampling: Sampling | None = None, *, pins: ToolPins | None = None, console: Console
) -> AbstractAsyncContextManager[Client | ClientGroup]:
    """A client of the server, or a group of those of ``--config``. With ``--verbose``, *console* shows what they log, and their stderr.

    Raises:
        UsageError: The URL or a header is invalid.
        McpError: As the client does, or the group.
    """
    if options.config is None:
        return _client(options, sampling, pins, console)
    from mcp_host.cli.group import opened  # here, because importing it takes a while

    return opened(options, sampling, pins, console)


@asynccontextmanager
async def _client(
    options: Options, sampling: Sampling | None, pins: ToolPins | None, console: Console
) -> AsyncIterator[Client]:
    async def on_log(message: LoggingMessageNotificationParams) -> None:
        console.show(log_line(message))

    auth, explaining = authorization_of(options, console)
    transport = transport_of(options, auth, on_stderr=console.show if options.verbose else None)
    client = Client(
        transport,
        sampling=sampling,
        elicitation=None if options.verb == "login" else console.elicitation(),
        tools=None if pins is None else ToolPolicy(pins=pins),
        limits=options.limits,
        era=options.era,
        on_log=on_log if options.verbose else None,
    )
    try:
        with explaining:
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
            console.show(auth.explain())


def authorization_of(options: Options, console: Console) -> tuple[OAuth | None, AbstractContextManager[None]]:
    """That of a URL, unless the person has passed another one, and what explains its errors."""
    if options.url is None or any(name.lower() == "authorization" for name, _ in options.header):
        return None, nullcontext()
    from mcp_host.cli.authorization import authorization, explaining  # here, because importing it takes a while

    auth = authorization(options, console)
    return auth, explaining(auth, options)


def transport_of(options: Options, auth: OAuth | None, *, on_stderr: Callable[[str], None] | None = None) -> Transport:
    """The transport to the server of the command line.

    Raises:
        UsageError: The URL or a header is invalid.
    """
    try:
        if options.url is None:
            restart = options.verb in ("chat", "proxy")  # other commands make their calls once
            return Stdio(options.command, env=environment(options), on_stderr=on_stderr, restart=restart)
        from mcp_host.transports.http import StreamableHttp  # here, because importing httpx takes a while

        cert = (options.cert, options.key) if options.cert and options.key else options.cert
        return StreamableHttp(
            options.url,
            headers=dict(options.header),
            verify=options.verify or not options.no_verify,
            cert=cert,
            uds=options.uds,
            auth=auth,
        )
    except (TypeError, ValueError) as exc:
        text = str(exc)
        raise UsageError(f"--{text}" if text.startswith(("verify", "cert", "uds")) else text) from exc


def environment(options: Options) -> dict[str, str]:
    """The variables of ``--env``, with the values that are in our own environment."""
    try:
        return {name: of_environment(name) if value is None else value for name, value in options.env}
    except ArgumentTypeError as exc:
        raise UsageError(f"--env: {exc}") from None
