"""The commands that ask a server for something once: one server, or those of a file."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeAlias, TypeVar, assert_never

import anyio

from mcp_host import types
from mcp_host.cli.arithmetic import Model
from mcp_host.cli.commands import COMMANDS
from mcp_host.cli.commands.pins import blocked
from mcp_host.cli.connection import connected
from mcp_host.cli.console import Console
from mcp_host.cli.files import STDOUT, bytes_of, parts_of, write_parts, write_to_stdout
from mcp_host.cli.models import approver, make_model
from mcp_host.cli.options import Options
from mcp_host.cli.output import (
    ExitCode,
    Printer,
    Report,
    UsageError,
    as_json,
    near,
    print_aside,
    print_error,
    status_line,
)
from mcp_host.cli.parameters import MAX_PARAMETERS, details, filled_in, parameters, prompt_schema, read_arguments
from mcp_host.client.client import Client
from mcp_host.client.pins import ToolPins
from mcp_host.concurrency import signals
from mcp_host.errors import (
    MARGIN,
    CallerError,
    McpError,
    MissingRequiredClientCapability,
    ServerError,
    excerpt,
    quoted,
)
from mcp_host.group import ClientGroup, ServerStatus, group_name
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND
from mcp_host.sampling import Sampling
from mcp_host.terminal.fields import PARAMETERS_SHOWN, Field, signature
from mcp_host.terminal.text import NAME_SHOWN
from mcp_host.types.content import as_text
from mcp_host.types.tool_changes import ToolChange

Item: TypeAlias = types.Tool | types.Resource | types.ResourceTemplate | types.Prompt

LINES_SHOWN = 40  # of a description in a listing
TEXT_SHOWN = 4000  # characters of one
MODEL_MISSING = "a server that asks for a model gets one by --model, such as --model anthropic:claude-sonnet-5"
NamedT = TypeVar("NamedT", types.Tool, types.Prompt)


def run(options: Options) -> Report:
    """Connect, run the command, and close.

    Raises:
        UsageError: The URL or a header is invalid, or there is no such model.
        McpError: As the client does.
    """
    return signals.run(_run, None if options.model is None else make_model(options), options)


async def _run(model: Model | None, options: Options) -> Report:
    console = Console()
    changes: list[ToolChange] = []

    async def keep(change: ToolChange) -> bool:
        changes.append(change)  # the file may be read-only, and not have it
        return False

    sampling = None if model is None else Sampling(with_tools=model, approve=approver(options, console))
    pins = None if options.pins is None else ToolPins(file=options.pins, on_changed=keep)
    try:
        async with connected(options, sampling, pins=pins, console=console) as client:
            report = await REQUESTS[options.verb](client, options)
    except MissingRequiredClientCapability as exc:
        might = options.model is None and "model" in COMMANDS[options.verb].options
        if might and "sampling" in exc.required_capabilities:
            exc.add_note(MODEL_MISSING)
        raise
    except (UsageError, CallerError):  # the tool is not listed
        for change in changes:
            name = change.name if options.config is None else group_name(change.server, change.name)
            if name == options.operand:
                raise blocked(change, options) from None
        raise
    return replace(report, code=ExitCode.TOOL_CHANGED) if changes and options.verb == "tools" else report


async def _tools(client: Client | ClientGroup, options: Options) -> Report:
    tools = await client.list_tools()

    return Report(document={"tools": [tool.to_wire() for tool in tools]}, show=partial(show_tools, tools))


async def _call(client: Client | ClientGroup, options: Options) -> Report:
    tool = None if options.unchecked else await _find(client.list_tools, "tool", options.operand)
    arguments = read_arguments(options.operand, {} if tool is None else tool.input_schema, options.items)
    with progress_line(sys.stderr) as on_progress:
        result = await client.call_tool(options.operand, arguments, on_progress=on_progress)
    shown = result.content
    if options.output is not None:
        files = types.ImageContent | types.AudioContent | types.EmbeddedResource
        shown = [block for block in shown if not isinstance(block, files)]
    text = "\n".join(map(as_text, shown))
    if not result.content and result.structured_content is not None:  # such a tool "SHOULD also return" it as text
        text = as_json(result.structured_content)
    errors = [f"the tool reported an error\n{text}"] if result.is_error else []
    if errors and options.model is None and "sampling" in text.casefold():
        errors.append(MODEL_MISSING)

    def show(printer: Printer) -> None:
        if not errors and options.output == STDOUT:
            print_aside(text)
        elif not errors:
            printer.text(text)
        parts = list(parts_of(result.content))
        if options.output is not None and (parts or not errors):
            write_parts(parts, options.output)

    code = ExitCode.TOOL_ERROR if errors else ExitCode.OK
    return Report(document=result.to_wire(), show=show, errors=errors, code=code)


async def _read(client: Client, options: Options) -> Report:
    uri = filled_in(options.operand, options.items)
    with progress_line(sys.stderr) as on_progress:
        result = await client.read_resource(uri, on_progress=on_progress)
    data = b"\n".join(map(bytes_of, result.contents))
    binary = [part for part in result.contents if isinstance(part, types.BlobResourceContents)]

    def show(printer: Printer) -> None:
        if binary and len(result.contents) > 1:
            raise UsageError(f"{quoted(uri)} has {len(result.contents)} parts, and not all are text: use --json")
        if options.output not in (None, STDOUT):
            try:
                Path(options.output).write_bytes(data)
            except OSError as exc:
                raise UsageError(f"cannot write the contents: {exc}") from exc
        elif binary or not sys.stdout.isatty():
            write_to_stdout(data, binary[0].mime_type if binary else None, quoted(uri))
        else:
            printer.text(data.decode())

    return Report(document=result.to_wire(), show=show)


async def _prompt(client: Client, options: Options) -> Report:
    prompt = None if options.unchecked else await _find(client.list_prompts, "prompt", options.operand)
    values = read_arguments(options.operand, {} if prompt is None else prompt_schema(prompt), options.items)
    arguments = {key: value if isinstance(value, str) else as_json(value) for key, value in values.items()}
    with progress_line(sys.stderr) as on_progress:
        result = await client.get_prompt(options.operand, arguments, on_progress=on_progress)

    def show(printer: Printer) -> None:
        if result.description:
            printer.paragraph(result.description)
        for message in result.messages:
            printer.field(message.role, as_text(message.content), prose=True)

    return Report(document=result.to_wire(), show=show)


async def _complete(client: Client, options: Options) -> Report:
    if not options.items:
        raise UsageError("what to complete is missing: key=beginning")
    (key, value), *given = [(item.key, str(item.value)) for item in options.items]
    name = options.operand
    ref = types.ResourceTemplateReference(uri=name) if "{" in name else types.PromptReference(name=name)
    result = await client.complete(ref, key, value, context=dict(given) or None)

    def show(printer: Printer) -> None:
        for each in result.completion.values:
            printer.text(each)
        if result.completion.has_more:
            print_error("the server has more completions")

    return Report(document=result.to_wire(), show=show)


async def _find(list_items: Callable[[], Awaitable[Sequence[NamedT]]], kind: str, name: str) -> NamedT | None:
    """The tool or prompt of that name; None if the server cannot list them."""
    try:
        items = {item.name: item for item in await list_items()}
    except ServerError as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        return None
    if name not in items:
        raise UsageError(f"the server has no {kind} {quoted(name)}{near(name, items)}")
    return items[name]


LISTS: Mapping[str, tuple[str, str, Callable[[Client], Awaitable[Sequence[Item]]]]] = {
    "tools": ("Tools", "tools", Client.list_tools),
    "resources": ("Resources", "resources", Client.list_resources),
    "resourceTemplates": ("Resource templates", "resources", Client.list_resource_templates),
    "prompts": ("Prompts", "prompts", Client.list_prompts),
}
"""What `inspect` lists: a heading, the capability of the server, and the client's method."""


async def _inspect(client: Client, *, heading: str = "Server") -> Report:
    info, version, instructions = client.server_info, client.protocol_version, client.instructions
    capabilities = client.server_capabilities
    lists: dict[str, Sequence[Item]] = {}
    for name, (_, capability, list_items) in LISTS.items():
        if getattr(capabilities, capability) is not None:
            try:
                lists[name] = await list_items(client)
            except ServerError as exc:
                if exc.code != METHOD_NOT_FOUND:  # many servers with resources have no templates
                    raise
    document: dict[str, object] = {
        "protocolVersion": version,
        "serverInfo": info.to_wire(),
        "capabilities": capabilities.to_wire(),
        **({} if instructions is None else {"instructions": instructions}),
        **{name: [item.to_wire() for item in items] for name, items in lists.items()},
    }

    def show(printer: Printer) -> None:
        printer.line(heading, "bold")
        printer.field("calls itself", _bounded(_with_title(info)))
        printer.field("version", _bounded(info.version))
        printer.field("revision", version)
        printer.field("capabilities", _bounded(as_json(capabilities.to_wire())))
        if instructions is not None:
            printer.field("instructions", _bounded(instructions))
        for name, items in lists.items():
            printer.heading(f"{LISTS[name][0]} ({len(items)})")
            for item in items:
                show_item(printer, item, indent=4)

    return Report(document=document, show=show)


async def _inspect_any(client: Client | ClientGroup, options: Options) -> Report:
    return await (_inspect_all(client) if isinstance(client, ClientGroup) else _inspect(client))


async def _inspect_all(group: ClientGroup) -> Report:
    """Each server of a file. One that cannot be inspected costs the others nothing."""
    reports: dict[str, Report] = {}

    async def inspect(status: ServerStatus) -> None:
        try:
            if status.state == "ready":
                name = excerpt(status.name, NAME_SHOWN)
                reports[status.name] = await _inspect(group.clients[status.name], heading=name)
                return
        except McpError as exc:
            status = replace(status, error=str(exc))
        reports[status.name] = _not_inspected(status)

    statuses = group.status()
    async with anyio.create_task_group() as tasks:
        for status in statuses.values():
            tasks.start_soon(inspect, status)

    def show(printer: Printer) -> None:
        for place, name in enumerate(statuses):
            if place:
                printer.line()
            reports[name].show(printer)

    servers = {name: {"state": status.state, **reports[name].document} for name, status in statuses.items()}
    return Report(document={"servers": servers}, show=show)


def _not_inspected(status: ServerStatus) -> Report:
    def show(printer: Printer) -> None:
        printer.line(excerpt(status.name, NAME_SHOWN), "bold")
        printer.field("state", status.state.replace("_", " "))
        if status.error is not None:
            printer.field("error", status.error)

    return Report(document={} if status.error is None else {"error": status.error}, show=show)


REQUESTS: Mapping[str, Callable[[Any, Options], Awaitable[Report]]] = {
    "tools": _tools,
    "call": _call,
    "read": _read,
    "prompt": _prompt,
    "complete": _complete,
    "inspect": _inspect_any,
}
"""Those that take ``--config`` get a client or a group, the others a client."""


def show_tools(tools: Sequence[types.Tool], printer: Printer) -> None:
    """Show all *tools*, or that there is none."""
    for tool in tools:
        show_item(printer, tool, indent=printer.margin)
    if not tools:
        printer.line("No tools are offered.")


def show_item(printer: Printer, item: Item, *, indent: int) -> None:
    """A name, with the parameters if it has any (a question mark: optional), a title, and what else there is to tell."""
    title, fields = item.title, list[Field]()
    match item:
        case types.Tool() | types.Prompt():
            fields = parameters(item.input_schema if isinstance(item, types.Tool) else prompt_schema(item))
            head = signature(item.name, fields)
        case types.Resource():
            head, title = item.uri, _with_title(item)
        case types.ResourceTemplate():
            head, title = item.uri_template, _with_title(item)
        case _:
            assert_never(item)
    printer.paragraph(_bounded(head), "bold", indent=indent, hang=8)
    for text in filter(None, (title, item.description)):
        printer.paragraph(_bounded(text), indent=indent + 4)
    for index, field in enumerate(fields[:MAX_PARAMETERS]):
        about, more = _bounded(field.description or ""), details(field, in_signature=index < PARAMETERS_SHOWN)
        if about or more:
            text = f"{about} ({', '.join(more)})" if about and more else about or ", ".join(more)
            printer.paragraph(f"{excerpt(field.name, NAME_SHOWN)}: {text}", indent=indent + 4, hang=4)
    if len(fields) > MAX_PARAMETERS:
        printer.paragraph(f"and {len(fields) - MAX_PARAMETERS} more", indent=indent + 4)


def _bounded(text: str) -> str:
    """The beginning of a long text."""
    lines = text.strip().splitlines()
    shown = "\n".join(lines[:LINES_SHOWN])[:TEXT_SHOWN]
    is_whole = len(lines) <= LINES_SHOWN and len(text) <= TEXT_SHOWN
    return shown if is_whole else f"{shown}\n... ({len(text):,} characters in all)"


def _with_title(item: types.Implementation | types.Resource | types.ResourceTemplate) -> str:
    return f"{item.name} ({item.title})" if item.title else item.name


@contextmanager
def progress_line(stream: TextIO) -> Iterator[Callable[[types.ProgressNotificationParams], Awaitable[None]]]:
    """Show the last progress report on the status line."""
    with status_line(stream) as show:

        async def on_progress(report: types.ProgressNotificationParams) -> None:
            total = "" if report.total is None else f" of {report.total:g}"
            show(f"{MARGIN}{report.progress:g}{total} {report.message or ''}")

        yield on_progress
