"""A sampling handler that asks the provider of these tests over HTTP, with a client of httpx or httpx2."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

import httpx

from mcp_host import SamplingRequest
from mcp_host.types import CreateMessageResult, TextContent, ToolResultContent, ToolUseContent

KEY = "sk-provider-0123456789"


class Asking:
    """As adapters do, it gives calls ids of its own, and keys under `_meta` that are new in each run."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self._kept: dict[str, str] = {}

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        messages = [self._message(message.role, message.content) for message in request.messages]
        body = {"model": "small", "messages": messages}
        response = await self._client.post(f"{self._url}/messages", json=body, headers={"x-api-key": KEY})
        content = [self._block(block) for block in response.raise_for_status().json()["content"]]
        calls = any(isinstance(block, ToolUseContent) for block in content)
        return CreateMessageResult(content=content, model="small", stop_reason="toolUse" if calls else "endTurn")

    def _block(self, block: dict[str, Any]) -> TextContent | ToolUseContent:
        if block["type"] == "text":
            return TextContent(text=block["text"])
        key, id = token_hex(8), token_hex(8)
        self._kept[key] = block["id"]
        return ToolUseContent(id=id, name=block["name"], input=block["input"], meta={"mcp-host/reasoning": key})

    def _message(self, role: str, content: Any) -> dict[str, Any]:
        match content[0]:
            case TextContent(text=text):
                return {"role": role, "content": text}
            case ToolUseContent(name=name, input=arguments, meta=meta):
                assert meta is not None, "the server keeps it"
                call = {"type": "tool_use", "id": self._kept[meta["mcp-host/reasoning"]], "name": name}
                return {"role": role, "content": [call | {"input": arguments}]}
            case ToolResultContent(text=text):
                [id] = list(self._kept.values())[-1:]
                return {"role": role, "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}
        raise AssertionError(content)
