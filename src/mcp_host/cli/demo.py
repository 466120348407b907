"""`mcp-host demo`: a server asks our model to answer with tools, by requests over stdio and in results over HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import assert_never

from anyio import IncompleteRead, move_on_after, open_process
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_host.cli.models import Model
from mcp_host.cli.output import Page, compact
from mcp_host.client.client import Client
from mcp_host.errors import ConnectFailed
from mcp_host.sampling import Sampling, SamplingRequest, always
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio
from mcp_host.types import (
    AudioContent,
    CallToolResult,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import in_words
from mcp_host.types.conversation import SamplingMessageContentBlock

SERVER = "calculator_server.py"
PROBLEM = "What is (3 + 4) * (10 - 4) / 2?"
LONGEST_LINE = 1000  # bytes of a URL on 127.0.0.1
STARTING = 20.0  # seconds for the server to listen; a cold machine takes some to import everything


def server_script() -> Path:
    """The example server: beside this module in an installed package, among the examples in a checkout."""
    installed = Path(__file__).with_name(SERVER)
    return installed if installed.exists() else Path(__file__).parents[3] / "examples" / SERVER


async def run(model: Model, page: Page) -> None:
    """Run the whole dialogue over both transports, each in an era of its own, and tell it on *page*."""
    script = server_script()
    page.line("1. Over stdio, with a handshake: the server is a child process of ours", "bold")
    page.line(f"   python {SERVER}", "dim")
    page.line()
    await _dialogue(Stdio([sys.executable, str(script)]), "legacy", HANDSHAKE, model, page)
    page.line()
    page.line("2. Over HTTP, without one: the same server, as a service", "bold")
    if find_spec("uvicorn") is None:
        page.line("   needs uvicorn, which is not installed: pip install 'mcp-host[testing]'", "dim")
        return
    page.line(f"   python {SERVER} --http", "dim")
    async with _serving(script) as url:
        from mcp_host.transports.http import StreamableHttp  # here, because importing httpx takes a while

        page.line(f"   {url}", "dim")
        page.line()
        await _dialogue(StreamableHttp(url), "modern", STATELESS, model, page)


@asynccontextmanager
async def _serving(script: Path) -> AsyncIterator[str]:
    """Run the example over HTTP; the URL that it prints first."""
    async with await open_process([sys.executable, str(script), "--http"], stdin=DEVNULL, stderr=None) as process:
        try:
            yield await _first_line(process)
        finally:
            with suppress(ProcessLookupError):  # Ctrl-C has ended it already
                process.terminate()


async def _first_line(process: Process) -> str:
    assert process.stdout is not None, "it is a pipe by default"
    with move_on_after(STARTING):
        try:
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", LONGEST_LINE)
        except IncompleteRead as exc:
            raise ConnectFailed(f"{SERVER} --http ended before it served") from exc
        return line.decode().strip()
    raise ConnectFailed(f"{SERVER} --http did not start within {STARTING:g} s")


async def _dialogue(transport: Transport, era: str, manner: Manner, model: Model, page: Page) -> None:
    sampling = Sampling(with_tools=Narrated(model, page, manner), approve=always)
    async with Client(transport, sampling=sampling, era=era) as client:
        tell_opening(page, client, sampling, manner)
        arguments = {"problem": PROBLEM}
        tell_call(page, "solve", arguments)
        tell_result(page, await client.call_tool("solve", arguments))


@dataclass(frozen=True, slots=True)
class Manner:
    """How the two sides speak, in words: what opens the conversation, and how a question travels."""

    opening: str
    welcome: str
    question: str
    answer: str


HANDSHAKE = Manner(
    opening="host -> server: initialize",
    welcome="server -> host: the handshake's answer",
    question="server -> host: sampling/createMessage, a question for our model",
    answer="host -> server: our model's answer",
)
STATELESS = Manner(
    opening="host -> server: server/discover",
    welcome="server -> host: what it says of itself",
    question="server -> host: a result that asks for sampling/createMessage, a question for our model",
    answer="host -> server: tools/call once more, with our model's answer",
)


class Narrated:
    """A sampling handler for one conversation, that tells what it is asked and what *model* answers."""

    def __init__(self, model: Model, page: Page, manner: Manner) -> None:
        self._model = model
        self._page = page
        self._manner = manner
        self._told = 0

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self._tell_request(request)
        answer = await self._model(request)
        self._tell_answer(answer)
        return answer

    def _tell_request(self, request: SamplingRequest) -> None:
        page = self._page
        page.line()
        page.line(self._manner.question, "bold")
        if request.system_prompt is not None:
            page.field("system", request.system_prompt)
        new = request.messages[self._told :]
        if self._told:
            page.field("messages", f"the {self._told} from before and {len(new)} new")
        for message in new:
            _tell_message(page, message)
        self._told = len(request.messages) + 1  # what we answer comes back as a message
        page.field("tools", ", ".join(map(_signature, request.tools)) or "none")

    def _tell_answer(self, answer: CreateMessageResult) -> None:
        self._page.line()
        self._page.line(self._manner.answer, "bold")
        self._page.field("model", answer.model)
        _tell_blocks(self._page, answer.role, answer.content)
        self._page.field("stopReason", answer.stop_reason or "none", "green")


def tell_opening(page: Page, client: Client, sampling: Sampling, manner: Manner) -> None:
    """What the two sides advertised to each other."""
    page.line(manner.opening, "bold")
    page.field("advertises", compact({"sampling": sampling.capability()}), "cyan")
    page.line()
    page.line(manner.welcome, "bold")
    info = client.server_info
    page.field("server", f"{info.name} {info.version}")
    page.field("revision", client.protocol_version)
    page.field("advertises", compact(client.server_capabilities.to_wire()))
    if client.instructions:
        page.field("instructions", client.instructions)


def tell_call(page: Page, tool: str, arguments: object) -> None:
    """What we ask the server."""
    page.line()
    page.line("host -> server: tools/call", "bold")
    page.field("tool", tool)
    page.field("arguments", compact(arguments))


def tell_result(page: Page, result: CallToolResult) -> None:
    """What came of it in the end."""
    page.line()
    page.line("server -> host: the tool's result", "bold")
    for block in result.content:
        page.field("text" if isinstance(block, TextContent) else "content", in_words(block), "green")
    if result.is_error:
        page.field("isError", "true", "red")


def _tell_message(page: Page, message: SamplingMessage) -> None:
    _tell_blocks(page, message.role, message.content)


def _tell_blocks(page: Page, role: str, blocks: Sequence[SamplingMessageContentBlock]) -> None:
    for block in blocks:
        match block:
            case TextContent(text=text):
                page.field("text" if role == "assistant" else role, text, "green" if role == "assistant" else None)
            case ToolUseContent(id=id, name=name, input=arguments):
                page.field("tool_use", f"{name} {compact(arguments)} ({id})", "cyan")
            case ToolResultContent(tool_use_id=id, content=content, is_error=is_error):
                said = " ".join(map(in_words, content))
                page.field("tool_result", f"{'error: ' if is_error else ''}{said} ({id})", "cyan")
            case ImageContent() | AudioContent():
                page.field(role, in_words(block))
            case _:
                assert_never(block)


def _signature(tool: Tool) -> str:
    properties = tool.input_schema.get("properties")
    return f"{tool.name}({', '.join(properties) if isinstance(properties, dict) else ''})"
