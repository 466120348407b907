"""`mcp-host demo`: a server asks our model and offers it tools, first over stdio (2025-11-25), then over HTTP (2026-07-28)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import NamedTuple

from anyio import IncompleteRead, fail_after, open_process
from anyio import run as run_async
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_host.cli.arithmetic import Model
from mcp_host.cli.console import Console
from mcp_host.cli.models import Approver, approver, make_model
from mcp_host.cli.options import Options
from mcp_host.cli.output import Printer, Report, as_json
from mcp_host.client.client import Client
from mcp_host.errors import ConnectFailed
from mcp_host.sampling import Sampling, SamplingRequest
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio
from mcp_host.types import CreateMessageResult, ToolResultContent, ToolUseContent
from mcp_host.types.content import ReceivedContent, as_text
from mcp_host.types.sampling import SamplingMessageContentBlock

SERVER = "calculator_server.py"
PROBLEM = "What is (3 + 4) * (10 - 4) / 2?"
MAX_URL = 1000  # bytes; it is one on 127.0.0.1
STARTUP_TIMEOUT = 20.0  # seconds for the server to listen; a cold machine takes some to import everything


def server_script() -> Path:
    """The example server: beside this module in an installed package, among the examples in a checkout."""
    installed = Path(__file__).with_name(SERVER)
    return installed if installed.exists() else Path(__file__).parents[4] / "examples" / SERVER


def run(options: Options) -> Report:
    """Show a server that asks the model of *options*.

    Raises:
        UsageError: There is no such model.
    """
    run_async(_show, make_model(options), approver(options, Console()), Printer(sys.stdout))
    return Report()


async def _show(model: Model, approve: Approver, printer: Printer) -> None:
    """Call the same tool over stdio and over HTTP, in one era each, and print every message."""
    script = server_script()
    printer.line("1. Over stdio, with a handshake: the server is a child process", "bold")
    printer.line(f"   python {SERVER}", "dim")
    await _call(Stdio([sys.executable, str(script)]), "legacy", HANDSHAKE, model, approve, printer)
    printer.line()
    printer.line("2. Over HTTP, without one: the same server, as a service", "bold")
    if find_spec("uvicorn") is None:
        printer.line("   needs uvicorn, which is not installed: pip install 'mcp-host[testing]'", "dim")
        return
    printer.line(f"   python {SERVER} --http", "dim")
    async with _http_server(script) as url:
        from mcp_host.transports.http import StreamableHttp  # here, because importing httpx takes a while

        printer.line(f"   {url}", "dim")
        await _call(StreamableHttp(url), "modern", STATELESS, model, approve, printer)


@asynccontextmanager
async def _http_server(script: Path, *, startup_timeout: float = STARTUP_TIMEOUT) -> AsyncIterator[str]:
    """Run the example server over HTTP. It prints its URL first, which is yielded."""
    async with await open_process([sys.executable, str(script), "--http"], stdin=DEVNULL, stderr=None) as process:
        assert process.stdout is not None, "it is a pipe by default"
        try:
            try:
                with fail_after(startup_timeout):
                    line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", MAX_URL)
            except IncompleteRead as exc:
                raise ConnectFailed(f"{SERVER} --http ended before it served") from exc
            except TimeoutError as exc:
                raise ConnectFailed(f"{SERVER} --http did not start within {startup_timeout:g} s") from exc
            yield line.decode().strip()
        finally:
            with suppress(ProcessLookupError):  # Ctrl-C has ended it already
                process.terminate()


class Headings(NamedTuple):
    """What is printed above the messages; the two eras send different ones."""

    first_request: str
    sampling_request: str
    answer: str


HANDSHAKE = Headings(
    "initialize",
    "server -> host: sampling/createMessage, a request for our model",
    "host -> server: our model's answer",
)
STATELESS = Headings(
    "server/discover",
    "server -> host: a result that asks for sampling/createMessage, a request for our model",
    "host -> server: tools/call once more, with our model's answer",
)


async def _call(
    transport: Transport, era: str, headings: Headings, model: Model, approve: Approver, printer: Printer
) -> None:
    sampling = Sampling(with_tools=PrintingModel(model, printer, headings), approve=approve)
    async with Client(transport, name="calculator", sampling=sampling, era=era) as client:
        printer.heading(f"host -> server: {headings.first_request}")
        printer.field("capabilities", as_json({"sampling": sampling.capability()}))
        printer.heading(f"server -> host: the result of {headings.first_request}")
        printer.field("server", f"{client.server_info.name} {client.server_info.version}")
        printer.field("revision", client.protocol_version)
        printer.field("capabilities", as_json(client.server_capabilities.to_wire()))
        printer.heading("host -> server: tools/call")
        printer.field("tool", "solve")
        printer.field("arguments", as_json({"problem": PROBLEM}))
        result = await client.call_tool("solve", {"problem": PROBLEM})
        printer.heading("server -> host: the tool's result")
        _print_content(printer, "content", result.content)
        printer.field("isError", as_json(bool(result.is_error)))


class PrintingModel:
    """A sampling handler for one conversation. It prints each request, and the answer of *model*."""

    def __init__(self, model: Model, printer: Printer, headings: Headings) -> None:
        self._model = model
        self._printer = printer
        self._headings = headings
        self._printed = 0  # messages of the conversation

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        printer = self._printer
        printer.heading(self._headings.sampling_request)
        if self._printed:
            printer.field("messages", f"{self._printed} as before, and")
        for message in request.messages[self._printed :]:
            _print_content(printer, message.role, message.content)
        self._printed = len(request.messages) + 1  # our answer comes back as a message
        printer.field("tools", ", ".join(tool.name for tool in request.tools) or "none")
        answer = await self._model(request)
        printer.heading(self._headings.answer)
        _print_content(printer, answer.role, answer.content)
        printer.field("model", answer.model)
        printer.field("stopReason", answer.stop_reason or "none")
        return answer


def _print_content(
    printer: Printer, label: str, blocks: Iterable[SamplingMessageContentBlock | ReceivedContent]
) -> None:
    for block in blocks:
        match block:
            case ToolUseContent(id=id, name=name, input=arguments):
                printer.field("tool_use", f"{name} {as_json(arguments)} ({id})", "cyan")
            case ToolResultContent(tool_use_id=id, text=text, is_error=is_error):
                printer.field("tool_result", f"{'error: ' if is_error else ''}{text} ({id})", "cyan")
            case _:
                printer.field(label, as_text(block), "green")
