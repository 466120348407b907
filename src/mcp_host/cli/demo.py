"""`mcp-host demo`: a server asks our model to answer with tools, by requests over stdio and in results over HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL

from anyio import IncompleteRead, move_on_after, open_process
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_host.cli.models import Model
from mcp_host.cli.narration import HANDSHAKE, STATELESS, Manner, Narrated, tell_call, tell_opening, tell_result
from mcp_host.cli.page import Page
from mcp_host.client.client import Client
from mcp_host.errors import ConnectFailed
from mcp_host.sampling import Sampling, always
from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio

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
