"""The results that both servers send. Large ones are encoded once."""

from __future__ import annotations

import json
from functools import cache
from itertools import count
from typing import Any

from benchmarks.job import LINE, NAME, text_of, tool_names

REQUEST = b'{"jsonrpc":"2.0","id":"%b","method":"sampling/createMessage","params":%b}'


def encode(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def answer(message: dict[str, Any], tools: int) -> bytes:
    """The response to any request that needs no sampling."""
    match message["method"]:
        case "initialize":
            return success(message, INITIALIZED)
        case "tools/list":
            return success(message, listing(tools))
        case "tools/call":
            return success(message, call_result(message["params"]["name"], message["params"].get("arguments") or {}))
        case method:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return encode({"jsonrpc": "2.0", "id": message["id"], "error": error})


def success(message: dict[str, Any], result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(message["id"]).encode(), result)


def call_result(tool: str, arguments: dict[str, Any]) -> bytes:
    match tool:
        case "echo":
            return text_result(arguments["text"])
        case "text":
            return long_text(arguments["size"])
        case "count":
            return text_result(str(arguments["to"]))
    raise ValueError(f"there is no tool {tool}")


def text_result(text: str) -> bytes:
    return encode({"content": [{"type": "text", "text": text}]})


@cache
def long_text(size: int) -> bytes:
    return text_result(text_of(size))


@cache
def listing(tools: int) -> bytes:
    return encode({"tools": [tool(name) for name in tool_names(tools)]})


def tool(name: str) -> dict[str, Any]:
    """A typical tool: three described parameters, about half a kilobyte."""
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


def sampling_params(call: dict[str, Any], number: int) -> bytes:
    """The parameters of the sampling request with this *number* in a call.

    As in a tool loop, the history is that of the request before; only its last message is new.
    """
    arguments = call["params"]["arguments"]
    last = text_message("user", f"Question {number}: what is the capital of France?")
    return b'{"messages":[%b%b],%b}' % (history(arguments["messages"] - 1), encode(last), options(arguments["tools"]))


def text_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": text}}


@cache
def history(messages: int) -> bytes:
    """So many messages in turns, an assistant's last, each followed by a comma."""
    roles = ["user", "assistant"]
    turns = (text_message(roles[(number + messages) % 2], f"{number}: {LINE}") for number in range(messages))
    return b"".join(encode(turn) + b"," for turn in turns)


@cache
def options(tools: int) -> bytes:
    """What a sampling request has beside its messages, without the braces."""
    params: dict[str, Any] = {"maxTokens": 100}
    if tools:
        params |= {"tools": [tool(f"search_{number}") for number in range(tools)], "toolChoice": {"mode": "auto"}}
    return encode(params)[1:-1]


def sampled_text(message: dict[str, Any]) -> bytes:
    """The result of a call, made of the client's last sampling response: the model's text, or the error."""
    if "error" in message:
        return text_result(f"refused: {message['error']['message']}")
    content = message["result"]["content"]
    return text_result((content[0] if isinstance(content, list) else content)["text"])


class SamplingCalls:
    """The calls that send sampling requests, several each, and wait for the responses."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[dict[str, Any], int]] = {}
        self._ids = count(1)

    def request(self, call: dict[str, Any], number: int = 1) -> bytes:
        """The sampling request with this *number* that belongs to *call*."""
        id = f"question-{next(self._ids)}"
        self._waiting[id] = call, number
        return REQUEST % (id.encode(), sampling_params(call, number))

    def receive(self, message: dict[str, Any]) -> tuple[dict[str, Any], bytes, bool]:
        """A sampling response: its call, what to send next, and whether that is the call's result."""
        call, number = self._waiting.pop(message["id"])
        if number < call["params"]["arguments"]["times"]:
            return call, self.request(call, number + 1), False
        return call, success(call, sampled_text(message)), True


INITIALIZED = encode(
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": NAME, "version": "1"},
    }
)
