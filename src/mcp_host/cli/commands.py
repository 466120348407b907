"""The commands that ask a server for something once: one server, or those of a file."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias, TypeVar, assert_never

from anyio import create_task_group

from mcp_host.cli.arguments import NAME, TAKE_MODEL, Options
from mcp_host.cli.connection import connected
from mcp_host.cli.files import STDOUT, bytes_of, parts_of, write_parts, write_to_stdout
from mcp_host.cli.models import approver, make_model
from mcp_host.cli.output import Printer, UsageError, as_json, near, print_aside, print_error, status_line
from mcp_host.cli.parameters import MAX_PARAMETERS, details, filled_in, parameters, prompt_schema, read_arguments
from mcp_host.cli.pins import what_changed
from mcp_host.client.client import Client
from mcp_host.client.pins import ToolPins
from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.errors import (
    MARGIN,
    McpError,
    MissingRequiredClientCapability,
    ServerError,
    ToolChanged,
    excerpt,
    quoted,
)
from mcp_host.group import ClientGroup, ServerStatus
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND
from mcp_host.sampling import Sampling
from mcp_host.terminal.fields import PARAMETERS_SHOWN, Field, signature
from mcp_host.terminal.text import NAME_SHOWN
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ProgressNotificationParams,
    Prompt,
    PromptReference,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)
from mcp_host.types.content import as_text
from mcp_host.types.tool_changes import ToolChange

if TYPE_CHECKING:
    from mcp_host.elicitation import Elicitation  # imported on demand

Item: TypeAlias = Tool | Resource | ResourceTemplate | Prompt

LINES_SHOWN = 40  # of a description in a listing
TEXT_SHOWN = 4000  # characters of one
MODEL_MISSING = "a server that asks for a model gets one by --model, such as --model anthropic:claude-sonnet-5"
NamedT = TypeVar("NamedT", Tool, Prompt)


@dataclass(frozen=True, slots=True)
class Report:
    """What a command prints.

    *document* is for programs, in the protocol's spelling; *show* prints it for people.
    *error* is there when a tool ran and failed.
    """

    document: Mapping[str, object]
    show: Callable[[Printer], None]
    error: str | None = None
    note: str | None = None
    """What may help after the *error*."""
    changed: bool = False
    """Whether a tool is not as it was pinned."""


async def run(options: Options) -> Report:
    """Connect, run the command, and close.

    Raises:
        UsageError: The URL or a header is invalid, or there is no such model.
        McpError: As the client does.
    """
    model = None if options.model is None else make_model(options.model, verbose=options.verbose)
    changes: list[ToolChange] = []

    async def keep(change: ToolChange) -> bool:
        changes.append(change)  # the file may be read-only, and not have it
        return False

    sampling = None if model is None else Sampling(with_tools=model, approve=approver(options))
    pins = None if options.pins is None else ToolPolicy(pins=ToolPins(file=options.pins, on_changed=keep))
    try:
        report = await _report(options, sampling, pins)
    except MissingRequiredClientCapability as exc:
        if "sampling" in exc.required_capabilities and options.model is None and options.verb in TAKE_MODEL:
            exc.add_note(MODEL_MISSING)
        raise
    except UsageError:
        for change in changes:
            if change.name == options.operand:
                raise ToolChanged(f"{what_changed(change)}: see {NAME} pins {options.pins}", change) from None
        raise
    return replace(report, changed=True) if changes and options.verb == "tools" else report


async def _report(options: Options, sampling: Sampling | None, pins: ToolPolicy | None) -> Report:
    if options.config is None:
        async with connected(options, sampling=sampling, elicitation=_elicitation(), tools=pins) as client:
            return await COMMANDS[options.verb](client, options)  # not restarted: a command makes its calls once
    from mcp_host.cli.group import opened  # here, because importing it takes a while

    async with opened(options, sampling=sampling, elicitation=_elicitation()) as group:
        return await GROUP_COMMANDS[options.verb](group, options)


def _elicitation() -> Elicitation | None:
    """How servers ask the person at the terminal, if there is one."""
    if not sys.stdin.isatty():
        return None
    from mcp_host.elicitation import Elicitation
    from mcp_host.elicitation.terminal import fill_in_terminal, open_in_browser

    return Elicitation(form=fill_in_terminal, url=open_in_browser)


async def _tools(client: Client | ClientGroup, options: Options) -> Report:
    tools = await client.list_tools()

    def show(printer: Printer) -> None:
        for tool in tools:
            show_item(printer, tool, indent=printer.margin)
        if not tools:
            printer.line("No tools are offered.")

    return Report({"tools": [tool.to_wire() for tool in tools]}, show)


async def _call(client: Client | ClientGroup, options: Options) -> Report:
    tool = None if options.unchecked else await _find(client.list_tools, "tool", options.operand)
    arguments = read_arguments(options.operand, {} if tool is None else tool.input_schema, options.items)
    with progress_line(sys.stderr) as on_progress:
        result = await client.call_tool(options.operand, arguments, on_progress=on_progress)
    shown = result.content
    if options.output is not None:
        shown = [block for block in shown if not isinstance(block, ImageContent | AudioContent | EmbeddedResource)]
    text = "\n".join(map(as_text, shown))
    if not result.content and result.structured_content is not None:  # such a tool "SHOULD also return" it as text
        text = as_json(result.structured_content)
    error = f"the tool reported an error\n{text}" if result.is_error else None
    note = MODEL_MISSING if error and options.model is None and "sampling" in text.casefold() else None

    def show(printer: Printer) -> None:
        if error is None and options.output == STDOUT:
            print_aside(text)
        elif error is None:
            printer.text(text)
        parts = list(parts_of(result.content))
        if options.output is not None and (parts or error is None):
            write_parts(parts, options.output)

    return Report(result.to_wire(), show, error, note)


async def _read(client: Client, options: Options) -> Report:
    uri = filled_in(options.operand, options.items)
    with progress_line(sys.stderr) as on_progress:
        result = await client.read_resource(uri, on_progress=on_progress)
    data = b"\n".join(map(bytes_of, result.contents))
    binary = [part for part in result.contents if isinstance(part, BlobResourceContents)]

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

    return Report(result.to_wire(), show)


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

    return Report(result.to_wire(), show)


async def _complete(client: Client, options: Options) -> Report:
    if not options.items:
        raise UsageError("what to complete is missing: key=beginning")
    (key, value), *given = [(item.key, str(item.value)) for item in options.items]
    is_template = "{" in options.operand
    ref = ResourceTemplateReference(uri=options.operand) if is_template else PromptReference(name=options.operand)
    result = await client.complete(ref, key, value, context=dict(given) or None)

    def show(printer: Printer) -> None:
        for each in result.completion.values:
            printer.text(each)
        if result.completion.has_more:
            print_error("the server has more completions")

    return Report(result.to_wire(), show)


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


async def _inspect(client: Client, options: Options, *, heading: str = "Server") -> Report:
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

    return Report(document, show)


async def _inspect_all(group: ClientGroup, options: Options) -> Report:
    """Each server of a file. One that cannot be inspected costs the others nothing."""
    reports: dict[str, Report] = {}

    async def inspect(status: ServerStatus) -> None:
        try:
            if status.state == "ready":
                reports[status.name] = await _inspect(
                    group.clients[status.name], options, heading=excerpt(status.name, NAME_SHOWN)
                )
                return
        except McpError as exc:
            status = replace(status, error=str(exc))
        reports[status.name] = _not_inspected(status)

    statuses = group.status()
    async with create_task_group() as tasks:
        for status in statuses.values():
            tasks.start_soon(inspect, status)

    def show(printer: Printer) -> None:
        for place, name in enumerate(statuses):
            if place:
                printer.line()
            reports[name].show(printer)

    servers = {name: {"state": status.state, **reports[name].document} for name, status in statuses.items()}
    return Report({"servers": servers}, show)


def _not_inspected(status: ServerStatus) -> Report:
    def show(printer: Printer) -> None:
        printer.line(excerpt(status.name, NAME_SHOWN), "bold")
        printer.field("state", status.state.replace("_", " "))
        if status.error is not None:
            printer.field("error", status.error)

    return Report({} if status.error is None else {"error": status.error}, show)


COMMANDS: Mapping[str, Callable[[Client, Options], Awaitable[Report]]] = {
    "tools": _tools,
    "call": _call,
    "read": _read,
    "prompt": _prompt,
    "complete": _complete,
    "inspect": _inspect,
}

GROUP_COMMANDS: Mapping[str, Callable[[ClientGroup, Options], Awaitable[Report]]] = {
    "tools": _tools,
    "call": _call,
    "inspect": _inspect_all,
}
"""Those for the servers of a file, who are used like one."""


def show_item(printer: Printer, item: Item, *, indent: int) -> None:
    """A name, with the parameters if it has any (a question mark: optional), a title, and what else there is to tell."""
    title, fields = item.title, list[Field]()
    match item:
        case Tool() | Prompt():
            fields = parameters(item.input_schema if isinstance(item, Tool) else prompt_schema(item))
            head = signature(item.name, fields)
        case Resource():
            head, title = item.uri, _with_title(item)
        case ResourceTemplate():
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


def _with_title(item: Implementation | Resource | ResourceTemplate) -> str:
    return f"{item.name} ({item.title})" if item.title else item.name


@contextmanager
def progress_line(stream: TextIO) -> Iterator[Callable[[ProgressNotificationParams], Awaitable[None]]]:
    """Show the last progress report on the status line."""
    with status_line(stream) as show:

        async def on_progress(report: ProgressNotificationParams) -> None:
            total = "" if report.total is None else f" of {report.total:g}"
            show(f"{MARGIN}{report.progress:g}{total} {report.message or ''}")

        yield on_progress
