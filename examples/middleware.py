"""Put functions around each request: ask before a tool runs, add metadata, and see what goes by."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

from mcp_host import Allow, Client, Deny
from mcp_host.errors import CallDenied
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, Exchange, add_meta, approve_tool_calls, retry, tap

SERVER = Path(__file__).with_name("hello_server.py")


def show(exchange: Exchange) -> None:
    outcome = type(exchange.error).__name__ if exchange.error else "a result"
    print(f"{exchange.request.method}: {outcome}")


async def approve(request: ClientRequest) -> Allow | Deny:
    """Rules, or a person. What the server says of the tool is in `request.tool`, once it is listed."""
    known = request.tool is not None and request.params.get("arguments") != {"name": "Eve"}
    return Allow() if known else Deny("not on the list")


async def politely(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
    """Middleware of your own: it may change the request and the result, or answer by itself."""
    result = await call_next(request)
    if request.method == "tools/call":
        result["content"].append({"type": "text", "text": "How do you do?"})
    return result


async def main() -> None:
    middleware = [tap(show), politely, retry(), add_meta({"com.example/tenant": "red"}), approve_tool_calls(approve)]
    async with Client([sys.executable, SERVER], middleware=middleware) as client:
        await client.list_tools()
        print((await client.call_tool("greet", {"name": "Ada"})).text)
        try:
            await client.call_tool("greet", {"name": "Eve"})
        except CallDenied as exc:
            print("denied:", exc.reason)


if __name__ == "__main__":
    anyio.run(main)
