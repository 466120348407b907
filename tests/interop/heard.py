"""What a test keeps of what it was told."""

from __future__ import annotations

from anyio import Event

from mcp_host import Change
from mcp_host.types import CallToolResult, LoggingMessageNotificationParams, TextContent


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


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
