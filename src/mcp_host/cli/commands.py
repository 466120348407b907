"""The commands that speak to one server."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TextIO, TypeAlias, TypeVar

from mcp_host.cli.arguments import Options, UsageError
from mcp_host.cli.output import Page, clean, compact, complain
from mcp_host.client.client import Client
from mcp_host.errors import ServerError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND
from mcp_host.sampling import Sampling, always
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio
from mcp_host.types import (
    CallToolResult,
    Implementation,
    ProgressNotificationParams,
    Prompt,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from mcp_host.types.base import Model
from mcp_host.types.content import in_words

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


Document: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolList:
    """The answer to `mcp-host tools`."""

    tools: Sequence[Tool]
    complaint: ClassVar[None] = None

    def document(self) -> Document:
        """``{"tools": [...]}``, each as the server wrote it."""
        return {"tools": _wire(self.tools)}

    def tell(self, page: Page) -> None:
        for tool in self.tools:
            tell_tool(page, tool)
        if not self.tools:
            page.line("This server offers no tools.")


@dataclass(frozen=True, slots=True)
class CallResult:
    """The answer to `mcp-host call`."""

    result: CallToolResult

    @property
    def complaint(self) -> str | None:
        return f"the tool reported an error\n{self.text()}" if self.result.is_error else None

    def document(self) -> Document:
        """The tool's result as the server wrote it: ``{"content": [...], "isError": ..., ...}``."""
        return self.result.to_wire()

    def tell(self, page: Page) -> None:
        page.text(self.text())

    def text(self) -> str:
        """What the tool said; a tool that returns structured content "SHOULD also return" it as text."""
        result = self.result
        if not result.content and result.structured_content is not None:
            return compact(result.structured_content)
        return "\n".join(map(in_words, result.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The answer to `mcp-host inspect`. A list is None where the server does not advertise its kind."""

    version: str
    info: Implementation
    capabilities: ServerCapabilities
    instructions: str | None
    tools: Sequence[Tool] | None
    resources: Sequence[Resource] | None
    templates: Sequence[ResourceTemplate] | None
    prompts: Sequence[Prompt] | None
    complaint: ClassVar[None] = None

    def document(self) -> Document:
        """The handshake and the lists under the protocol's own names; what is not there is absent."""
        lists = {
            "tools": self.tools,
            "resources": self.resources,
            "resourceTemplates": self.templates,
            "prompts": self.prompts,
        }
        return {
            "protocolVersion": self.version,
            "serverInfo": self.info.to_wire(),
            "capabilities": self.capabilities.to_wire(),
            **({} if self.instructions is None else {"instructions": self.instructions}),
            **{name: _wire(items) for name, items in lists.items() if items is not None},
        }

    def tell(self, page: Page) -> None:
        page.line("Server", "bold")
        page.field("name", _titled(self.info))
        page.field("version", self.info.version)
        page.field("revision", self.version)
        page.field("capabilities", compact(self.capabilities.to_wire()))
        if self.instructions is not None:
            page.field("instructions", self.instructions)
        if self.tools is not None:
            _heading(page, "Tools", self.tools)
            for tool in self.tools:
                tell_tool(page, tool, indent=4)
        self._tell_resources(page)
        if self.prompts is not None:
            _heading(page, "Prompts", self.prompts)
            for prompt in self.prompts:
                blanks = [f"{blank.name}{'' if blank.required else '?'}" for blank in prompt.arguments or []]
                _tell_item(page, f"{prompt.name}({', '.join(blanks)})", prompt.title, prompt.description)

    def _tell_resources(self, page: Page) -> None:
        if self.resources is not None:
            _heading(page, "Resources", self.resources)
            for resource in self.resources:
                _tell_item(page, resource.uri, _titled(resource), resource.description)
        if self.templates is not None:
            _heading(page, "Resource templates", self.templates)
            for template in self.templates:
                _tell_item(page, template.uri_template, _titled(template), template.description)


def tell_tool(page: Page, tool: Tool, *, indent: int = 0) -> None:
    """A tool with its arguments; those with a question mark may be left out."""
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    required = required if isinstance(required, list) else []
    names = [
        f"{name}{'' if name in required else '?'}: {_type(schema)}"
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    _tell_item(page, f"{tool.name}({', '.join(names)})", tool.title, tool.description, indent=indent)


def _tell_item(page: Page, head: str, title: str | None, about: str | None, *, indent: int = 4) -> None:
    page.paragraph(head, "bold", indent=indent)
    for text in filter(None, (title, about)):
        page.paragraph(text, indent=indent + 4)


def _heading(page: Page, name: str, items: Sequence[object]) -> None:
    page.line()
    page.line(f"{name} ({len(items)})", "bold")


def _titled(named: Implementation | Resource | ResourceTemplate) -> str:
    return f"{named.name} ({named.title})" if named.title else named.name


def _type(schema: object) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else "any"


def _wire(items: Sequence[Model]) -> list[Document]:
    return [item.to_wire() for item in items]
