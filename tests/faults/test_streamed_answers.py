"""Answers of models that come as streams."""

from __future__ import annotations

import json
from typing import Any

from mcp_host import SamplingRequest
from mcp_host.providers import OpenAIChatModel
from mcp_host.types import CreateMessageRequestParams
from tests.faults.asking import ask, tool
from tests.faults.fault import fault
from tests.providers.chat_client import ChatClient

TOWN = "Aix" * 20_000


def chunk(finish: str | None = None, **delta: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n"


def piece(arguments: str, **first: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function"} if first else {}
    return {"tool_calls": [{"index": 0, **call, "function": {**first, "arguments": arguments}}]}


@fault("S07")
async def test_deltas_after_the_finish_reason_and_long_arguments_of_calls_are_kept() -> None:
    arguments = json.dumps({"town": TOWN})
    body = chunk(content="Let me") + chunk("tool_calls", **piece(arguments[:30_000], name="weather"))
    body += chunk(content=" see.") + chunk(**piece(arguments[30_000:])) + "data: [DONE]\n\n"
    params = CreateMessageRequestParams.from_wire(ask(tools=[tool("weather")]))
    model = OpenAIChatModel(ChatClient(body), "qwen3", stream=True)

    answer = await model(SamplingRequest(params=params, server="s"))

    assert answer.text == "Let me see."
    assert [(use.name, use.input) for use in answer.tool_uses] == [("weather", {"town": TOWN})]
