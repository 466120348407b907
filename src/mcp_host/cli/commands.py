"""The commands that speak to one server."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TextIO, TypeAlias, TypeVar

from mcp_host.cli.arguments import Options, UsageError
from mcp_host.cli.outcomes import complain
from mcp_host.cli.page import Page, clean
from mcp_host.cli.reports import CallResult, Document, Inspection, ToolList
from mcp_host.client.client import Client
from mcp_host.errors import ServerError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND
from mcp_host.sampling import Sampling, always
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio
from mcp_host.types import ProgressNotificationParams

T = TypeVar("T")


class Report(Protocol):
    """What came of a command. *complaint* is what a tool said that ran and failed."""

    @property
    def complaint(self) -> str | None: ...
    def document(self) -> Document: ...
    def tell(self, page: Page) -> None: ...


Command: TypeAlias = Callable[[Client, Options], Awaitable[Report]]


async def run(options: Options) -> Report:
    """Connect, carry out the command, and close.

    Raises:
        UsageError: The URL or a header is none.
        McpError: As the client.
    """
    client = Client(_transport(options), sampling=_sampling(options), limits=_limits(options), era=options.era)
    async with client:
        try:
            return await COMMANDS[options.verb](client, options)
        finally:
            for warning in client.warnings:
                complain(sys.stderr, f"warning: {warning}")


async def _tools(client: Client, options: Options) -> ToolList:
    return ToolList(await client.list_tools())


async def _call(client: Client, options: Options) -> CallResult:
    with Progress(sys.stderr) as progress:
        return CallResult(await client.call_tool(options.tool, options.arguments, on_progress=progress.show))


async def _inspect(client: Client, options: Options) -> Inspection:
    offers = client.server_capabilities
    return Inspection(
        version=client.protocol_version,
        info=client.server_info,
        capabilities=offers,
        instructions=client.instructions,
        tools=await _listed(offers.tools, client.list_tools),
        resources=await _listed(offers.resources, client.list_resources),
        templates=await _listed(offers.resources, client.list_resource_templates),
        prompts=await _listed(offers.prompts, client.list_prompts),
    )


COMMANDS: Mapping[str, Command] = {"tools": _tools, "call": _call, "inspect": _inspect}


async def _listed(capability: object, ask: Callable[[], Awaitable[list[T]]]) -> list[T] | None:
    """The list, if the server advertises such a thing and knows how to list it (many know no templates)."""
    if capability is None:
        return None
    try:
        return await ask()
    except ServerError as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        return None


def _transport(options: Options) -> Transport:
    try:
        if options.url is None:
            return Stdio(options.command, env=options.env)
        from mcp_host.transports.http import StreamableHttp  # here, because importing httpx takes a while

        return StreamableHttp(options.url, headers=options.headers)
    except (TypeError, ValueError) as exc:
        raise UsageError(str(exc)) from exc


def _sampling(options: Options) -> Sampling | None:
    return None if options.model is None else Sampling(with_tools=options.model, approve=always)


def _limits(options: Options) -> Limits:
    if (seconds := options.timeout) is None:
        return Limits()
    return Limits(connect_timeout=seconds, timeout=seconds, idle_timeout=seconds)


class Progress:
    """The last report of progress, on one line of a terminal that is wiped in the end; nowhere else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shows = stream.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._write("")

    async def show(self, report: ProgressNotificationParams) -> None:
        """Show *report*."""
        total = "" if report.total is None else f" of {report.total:g}"
        self._write(f"{report.progress:g}{total} {report.message or ''}")

    def _write(self, text: str) -> None:
        if self._shows:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{clean(text)[:width]}\x1b[K")
            self._stream.flush()
