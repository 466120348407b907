"""A server over stdio that asks what a call tells it to ask, and models that record their requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from mcp_host import Client, Sampling, SamplingRequest, Stdio, always
from mcp_host.types import CreateMessageResult
from tests.transports.children import python

Wire: TypeAlias = dict[str, Any]

ASKER = """
asked = 0
calls = []

def request():
    while not calls:
        keep(read())
    return calls.pop(0)

def response():
    while "method" in (message := read()):
        keep(message)
    return message

def keep(message):
    if message.get("method") == "tools/call":
        calls.append(message)

while True:
    call = request()
    answers = []
    for params in call["params"]["arguments"]["asks"]:
        asked += 1
        say({"id": f"q-{asked}", "method": "sampling/createMessage", "params": params})
        answers.append(response())
        assert answers[-1]["id"] == f"q-{asked}"
    reply(call, text(json.dumps(answers)))
"""


class Model:
    """Says "Paris", or what a test wants, and remembers what it was asked."""

    def __init__(self, says: str = "Paris") -> None:
        self.says = says
        self.asked: list[SamplingRequest] = []

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.asked.append(request)
        return request.reply(self.says)


def sampling(model: Any) -> Sampling:
    """Sampling with tools by *model*; every request is approved."""
    return Sampling(with_tools=model, approve=always)


@asynccontextmanager
async def asker(body: str = ASKER, **options: Any) -> AsyncIterator[Client]:
    """A client of such a server, or of one that runs *body* after the handshake."""
    async with Client(Stdio(python(body)), **{"era": "legacy", **options}) as client:
        yield client


async def answers(client: Client, *asks: Wire) -> list[Wire]:
    """Have the server ask these, one after the other; what it heard, without the envelope."""
    heard = json.loads((await client.call_tool("ask", {"asks": list(asks)})).text)
    return [{key: value for key, value in answer.items() if key not in ("jsonrpc", "id")} for answer in heard]


# What is asked


def ask(*messages: Wire, **more: Any) -> Wire:
    """The params of a request; one plain question unless there are *messages*."""
    return {"messages": list(messages) or [user(words("Capital of France?"))], "maxTokens": 100} | more


def user(*content: Wire) -> Wire:
    return {"role": "user", "content": list(content)}


def words(value: str) -> Wire:
    return {"type": "text", "text": value}


PARIS = {
    "result": {
        "role": "assistant",
        "content": {"type": "text", "text": "Paris"},
        "model": "unknown",
        "stopReason": "endTurn",
    }
}
