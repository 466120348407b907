"""Requests to test with, and sessions to answer them."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after

from mcp_host.errors import InputRefused
from mcp_host.sampling import (
    Approve,
    Handler,
    OuterCall,
    Sampling,
    SamplingLimits,
    SamplingMode,
    SamplingRequest,
    SamplingSession,
    always,
)
from mcp_host.types import CreateMessageRequestParams

Wire = dict[str, Any]

ADD: Wire = {"name": "add", "inputSchema": {"type": "object"}}
MULTIPLY: Wire = {"name": "multiply", "inputSchema": {"type": "object"}}


def text(words: str = "hello") -> Wire:
    return {"type": "text", "text": words}


def user(*blocks: Wire) -> Wire:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Wire) -> Wire:
    return {"role": "assistant", "content": list(blocks)}


def use(id: str, name: str = "add", **arguments: object) -> Wire:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, *blocks: Wire, **more: object) -> Wire:
    return {"type": "tool_result", "toolUseId": id, "content": list(blocks), **more}


def wire(*messages: Wire, **fields: object) -> Wire:
    """The parameters of a request: those of a plain question, with *fields* on top."""
    return {"messages": list(messages) or [user(text())], "maxTokens": 100, **fields}


def request(
    *messages: Wire,
    server: str = "calculator",
    outer: OuterCall | None = None,
    mode: SamplingMode = "with_tools",
    session: object = None,
    unknown_caller: bool = False,
    **fields: object,
) -> SamplingRequest:
    """What a handler would be given for `wire(*messages, **fields)`."""
    params = CreateMessageRequestParams.from_wire(wire(*messages, **fields))
    given: dict[str, Any] = {"mode": mode, "session": session, "unknown_caller": unknown_caller}
    return SamplingRequest(params=params, server=server, outer=outer, **given)


class Approver:
    """Gives the same *decision* on everything, and keeps what it was asked about."""

    def __init__(self, decision: object) -> None:
        self._decision = decision
        self.asked: list[Any] = []

    async def __call__(self, asked: object) -> Any:
        self.asked.append(asked)
        return self._decision


def session(handler: Handler, *, approve: Approve = always, limits: SamplingLimits | None = None) -> SamplingSession:
    return Sampling(with_tools=handler, approve=approve, limits=limits).session(server="calculator", knows_tools=True)


async def refused(asked: SamplingSession, params: Wire) -> InputRefused:
    with fail_after(25), pytest.raises(InputRefused) as refusal:
        await asked.answer(params, None)
    assert refusal.value.data is None
    return refusal.value


def said(refusal: InputRefused) -> tuple[int, str]:
    return refusal.code, str(refusal)
