"""What the client's tests share: shapes of messages, and a sampling registration that answers."""

from __future__ import annotations

from typing import Any

from mcp_host import Sampling, SamplingRequest, always
from mcp_host.types import CreateMessageResult, TextContent

TOOLS: dict[str, Any] = {"tools": {}}
INFO = {"name": "s", "version": "0"}
EMPTY: dict[str, Any] = {"content": []}
QUESTION = {"messages": [{"role": "user", "content": {"type": "text", "text": "capital?"}}], "maxTokens": 5}
ADD = {"name": "add", "inputSchema": {"type": "object"}}
PARIS = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}


def text(value: str) -> TextContent:
    return TextContent(text=value)


async def say_paris(request: SamplingRequest) -> CreateMessageResult:
    return request.reply("Paris", model="m")


def sampling(**handlers: Any) -> Sampling:
    return Sampling(approve=always, **(handlers or {"with_tools": say_paris}))
