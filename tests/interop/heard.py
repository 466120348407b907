"""What a test keeps of what it was told."""

from __future__ import annotations

import json

from anyio import Event

from mcp_host import Change, Client
from mcp_host.types import CallToolResult, LoggingMessageNotificationParams, TextContent
from tests.interop.processes import HttpServer


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def reported(result: CallToolResult) -> object:
    """What the server's tool says it received, which it says twice: as text and as structured content."""
    assert result.is_error is not True, result.content
    (text,) = texts(result)
    assert json.loads(text) == result.structured_content
    return result.structured_content


async def all_heard(client: Client, http: HttpServer) -> None:
    """Wait until the server's output tells of everything that *client* has asked so far."""
    before = http.count("heard prompts/get")
    await client.get_prompt("greeting", {"name": "Ann"})
    http.says("heard prompts/get", times=before + 1)


class Changes:
    """An *on_change* that keeps the changes of one method; *any* is set at the first."""

    def __init__(self, method: str) -> None:
        self.kept: list[Change] = []
        self.any = Event()
        self._method = method

    async def __call__(self, change: Change) -> None:
        if change.method == self._method:
            self.kept.append(change)
            self.any.set()


class Logs:
    """An *on_log* that keeps every line; *enough* is set when one contains *wanted*."""

    def __init__(self, wanted: str) -> None:
        self.lines: list[str] = []
        self.enough = Event()
        self._wanted = wanted

    async def __call__(self, message: LoggingMessageNotificationParams) -> None:
        self.lines.append(f"{message.level}: {message.data}")
        if self._wanted in self.lines[-1]:
            self.enough.set()
