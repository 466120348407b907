"""What both servers say: the results, encoded once where they are large."""

from __future__ import annotations

import json
from functools import cache
from itertools import count
from typing import Any

from benchmarks.job import NAME, names_of, text_of

PROMPT = {"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def answer(message: dict[str, Any], tools: int) -> bytes:
    """The answer to any request but those that the server has questions about."""
    match message["method"]:
        case "initialize":
            return success(message, INITIALIZED)
        case "tools/list":
            return success(message, listing(tools))
        case "tools/call":
            return success(message, called(message["params"]["name"], message["params"].get("arguments") or {}))
        case method:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return encode({"jsonrpc": "2.0", "id": message["id"], "error": error})


def success(message: dict[str, Any], result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(message["id"]).encode(), result)


def called(tool: str, arguments: dict[str, Any]) -> bytes:
    match tool:
        case "echo":
            return said(arguments["text"])
        case "text":
            return text(arguments["size"])
        case "count":
            return said(str(arguments["to"]))
    raise ValueError(f"there is no tool {tool}")


def said(words: str) -> bytes:
    return encode({"content": [{"type": "text", "text": words}]})


@cache
def text(size: int) -> bytes:
    return said(text_of(size))


@cache
def listing(tools: int) -> bytes:
    return encode({"tools": [offer(name) for name in names_of(tools)]})


def offer(name: str) -> dict[str, Any]:
    """A tool as servers have them: a few described parameters, about half a kilobyte."""
    properties = {
        "query": {"type": "string", "description": "What to look for, in plain words"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10, "description": "How many at most"},
        "order": {"type": "string", "enum": ["newest", "oldest", "best"], "description": "What comes first"},
    }
    return {
        "name": name,
        "description": f"Searches the collection that is called {name}, and says where it found what fits best.",
        "inputSchema": {"type": "object", "properties": properties},
    }


def question(id: str, tools: int) -> bytes:
    """A sampling request under *id*, with so many tools."""
    return encode({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": asking(tools)})


@cache
def asking(tools: int) -> dict[str, Any]:
    """The parameters of a sampling request."""
    params: dict[str, Any] = {"messages": [PROMPT], "maxTokens": 100}
    if tools:
        lent = [offer(f"search_{number}") for number in range(tools)]
        params |= {"tools": lent, "toolChoice": {"mode": "auto"}}
    return params


def thought(message: dict[str, Any]) -> bytes:
    """The result of a call whose sampling request was answered by *message*: what the model said, or the error."""
    if "error" in message:
        return said(f"refused: {message['error']['message']}")
    content = message["result"]["content"]
    return said((content[0] if isinstance(content, list) else content)["text"])


class Questions:
    """The calls that have the model asked, several times each, and the answers that they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[dict[str, Any], int]] = {}
        self._ids = count(1)

    def ask(self, call: dict[str, Any], already: int = 0) -> bytes:
        """The next question that belongs to *call*."""
        id = f"question-{next(self._ids)}"
        self._waiting[id] = call, already + 1
        return question(id, call["params"]["arguments"]["tools"])

    def hear(self, message: dict[str, Any]) -> tuple[dict[str, Any], bytes, bool]:
        """An answer of the model: the call it belongs to, what to send next, and whether that is the call's result."""
        call, asked = self._waiting.pop(message["id"])
        if asked < call["params"]["arguments"]["times"]:
            return call, self.ask(call, asked), False
        return call, success(call, thought(message)), True


INITIALIZED = encode(
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": NAME, "version": "1"},
    }
)
