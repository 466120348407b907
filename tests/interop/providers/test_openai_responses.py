"""Responses through the SDK."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from mcp_host import run_tool_loop
from mcp_host.providers import OpenAIModel
from mcp_host.providers.exchange.replies import Call, Reply
from mcp_host.providers.exchange.requests import Prompt
from mcp_host.providers.openai_responses import read_event, read_reply
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer
from tests.providers.prompts import ADD, NOW, PNG, USER, result
from tests.providers.test_openai_responses import prompt


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")
async def test_a_loop_through_the_sdk_keeps_the_reasoning(serve: Serve, stream: bool) -> None:
    first = Said(text="Let me see.", calls=(Called("add", {"a": 1}), Called("now")), thinking="Sums.")
    server = serve(OpenAIResponsesServer, first, Said(text="Done."))
    heard: list[str] = []
    async with openai.AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1", max_retries=0) as client:
        model = OpenAIModel(client, "gpt-5.6", stream=stream, on_delta=None)
        asked = prompt(tools=[ADD, NOW])
        body = model.write_request(asked)
        reply: dict[str, Any] = {}
        if stream:
            async with model.request_events(body) as events:
                async for event in events:
                    heard.append(read_event(reply, event))
        else:
            reply = await model.request_reply(body)
        read: Reply = model.read_reply(reply, asked)
        calls = [block for block in read.content if isinstance(block, Call)]
        blocks: list[object] = [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}} for call in calls]
        results = [result(PNG, id=str(call.id))["content"][0] for call in calls]
        conversation: list[dict[str, Any]] = [
            USER,
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results},
        ]
        request = prompt(*conversation, tools=[ADD, NOW], turns={1: read.turn}).request
        last = await model.request_reply(
            model.write_request(prompt(*conversation, tools=[ADD, NOW], turns={1: read.turn}))
        )

    assert len(calls) == 2
    assert "".join(heard) == ("Let me see." if stream else "")
    assert read_reply(last, Prompt(request, "gpt-5.6", asked.names)).content == ["Done."]


async def test_a_loop_without_encrypted_reasoning_is_not_refused(serve: Serve) -> None:
    """As with deployments at Azure that have none: "Item with id 'rs_1' not found"."""
    server = serve(OpenAIResponsesServer, Said(calls=(Called("double", {"a": 1}),), thinking="Sums."), Said(text="2"))

    def double(a: int) -> int:
        return 2 * a

    async with openai.AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1", max_retries=0) as client:
        model = OpenAIModel(client, "gpt-5.6", options={"include": None})
        result = await run_tool_loop(model, "Double 1.", tools=[double])

    assert (result.ended, result.text) == ("answered", "2")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")
async def test_a_forced_tool_through_the_sdk_is_a_call_and_no_text(serve: Serve, stream: bool) -> None:
    server = serve(OpenAIResponsesServer, Said(text='{"a": 1}'))
    heard: list[str] = []
    async with openai.AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1", max_retries=0) as client:
        model = OpenAIModel(client, "gpt-5.6", on_delta=(lambda delta: heard.append(delta.text)) if stream else None)
        answer = await model(prompt(tools=[ADD], toolChoice={"mode": "required"}).request)

    assert ([use.input for use in answer.tool_uses], heard) == ([{"a": 1}], [])
