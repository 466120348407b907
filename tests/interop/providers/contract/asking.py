"""Writing sampling requests for an adapter, and conversations with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mcp_host.errors import InputRefused
from mcp_host.providers.adapter import ProviderModel
from mcp_host.sampling import SamplingRequest
from mcp_host.sampling.request import ModelAnswer
from mcp_host.types import CreateMessageRequestParams
from tests.interop.providers.servers.base import ModelServer

Wire = dict[str, Any]

ADD: Wire = {
    "name": "add",
    "description": "Adds two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
LOOK: Wire = {"name": "look", "inputSchema": {"type": "object", "properties": {"at": {"type": "string"}}}}


def text(words: str) -> Wire:
    return {"type": "text", "text": words}


def user(*content: Wire | str) -> Wire:
    return {"role": "user", "content": [text(block) if isinstance(block, str) else block for block in content]}


def assistant(*content: Wire | str) -> Wire:
    return user(*content) | {"role": "assistant"}


def used(id: str, name: str = "add", **arguments: object) -> Wire:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, *content: Wire | str, **more: object) -> Wire:
    blocks = [text(block) if isinstance(block, str) else block for block in content]
    return {"type": "tool_result", "toolUseId": id, "content": blocks, **more}


def after(*content: Wire | str, **more: object) -> list[Wire]:
    """A conversation in which the assistant called the tool `add`, and this is the result."""
    return [user("Add them."), assistant(used("call_a", a=1, b=2)), user(result("call_a", *content, **more))]


def request(*messages: Wire, **params: object) -> SamplingRequest:
    wire = {"messages": [*messages] or [user("Hello")], "maxTokens": 100, **params}
    return SamplingRequest(params=CreateMessageRequestParams.from_wire(wire), server="server")


async def ask(model: ProviderModel, *messages: Wire, **params: object) -> ModelAnswer:
    """What the adapter answers to a request."""
    answer = await model(request(*messages, **params))
    assert isinstance(answer, ModelAnswer)
    return answer


@contextmanager
def refused(server: ModelServer, where: str) -> Iterator[None]:
    """The request is refused with a sentence that begins with *where* it is wrong, and the provider hears nothing."""
    with pytest.raises(InputRefused) as caught:
        yield

    assert caught.value.code == -32602
    assert str(caught.value).startswith(where)
    assert server.heard == []
