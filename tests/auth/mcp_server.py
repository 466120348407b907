"""An MCP server of both eras, for the protected server of a world."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

OPENING = {
    "capabilities": {"tools": {"listChanged": True}},
    "supportedVersions": ["2026-07-28"],
    "protocolVersion": "2025-11-25",
    "serverInfo": {"name": "protected", "version": "0"},
}
RESULTS = {"server/discover": OPENING, "initialize": OPENING, "tools/call": {"content": []}, "ping": {}}


class Answers:
    """It answers at once, except where a subclass does something else in `respond`."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = json.loads(await Request(scope, receive).body() or b"{}")
        method = message.get("method", scope["method"])
        self.methods.append(method)
        response = await self.respond(method, message)
        if response is None and (result := RESULTS.get(method)) is not None:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            response = JSONResponse(answer, headers={"mcp-session-id": "s"} if method == "initialize" else None)
        await (response or Response(status_code=405 if method == "GET" else 202))(scope, receive, send)

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        """Another response to a request: to one with *method* in its *message*, or to a GET."""
