"""Chat Completions through the SDK."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import openai
import pytest
from anyio import fail_after

from mcp_host.errors import ProviderError
from mcp_host.providers import OpenAIChatModel
from mcp_host.providers.exchange.replies import Call
from mcp_host.providers.openai_chat import Dialect
from tests.interop.providers.scripted import Broken, Called, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.openai_chat import CompatibleChatServer, OpenAIChatServer
from tests.providers.prompts import ADD, NOW, PNG, USER, result
from tests.providers.test_openai_chat import DIALECTS, prompt


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_loop_through_the_sdk_keeps_the_reasoning(serve: Serve, stream: bool) -> None:
    first = Said(text="Let me see.", calls=(Called("add", {"a": 1}), Called("now")), thinking="Sums.", interleaved=True)
    server = serve(CompatibleChatServer, first, Said(text="Done."))
    asked = prompt(tools=[ADD, NOW])
    heard = ""
    async with openai.AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1", max_retries=0) as client:
        model = OpenAIChatModel(client, "deepseek-chat")
        reply: dict[str, Any] = {}
        if stream:
            async with model.request_events(model.write_request(asked)) as events:
                async for event in events:
                    heard += model.read_event(reply, event)
        else:
            reply = await model.request_reply(model.write_request(asked))
        read = model.read_reply(reply, asked)
        calls = [block for block in read.content if isinstance(block, Call)]
        blocks: list[object] = [{"type": "tool_use", "id": use.id, "name": use.name, "input": {}} for use in calls]
        results = [result(PNG, id=str(use.id))["content"][0] for use in calls]
        conversation: list[dict[str, Any]] = [
            USER,
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results},
        ]
        again = prompt(*conversation, tools=[ADD, NOW], turns={1: read.turn})
        last = model.read_reply(await model.request_reply(model.write_request(again)), again)

    assert [(use.name, use.arguments) for use in calls] == [("add", '{"a": 1}'), ("now", "{}")]
    assert heard == ("Let me see." if stream else "")
    assert read.usage is not None
    assert last.content == ["Done."]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_forced_tool_through_the_sdk_is_a_call_and_no_text(
    serve: Serve, stream: bool, dialect: Dialect
) -> None:
    forced = Said(text='{"a": 1}') if dialect == "openai" else Said(calls=[Called("add", {"a": 1})])
    server = serve(OpenAIChatServer, forced)
    heard: list[str] = []
    async with openai.AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1", max_retries=0) as client:
        on_delta = (lambda delta: heard.append(delta.text)) if stream else None
        model = OpenAIChatModel(client, "gpt-4.1", dialect=dialect, on_delta=on_delta)
        answer = await model(prompt(tools=[ADD], toolChoice={"mode": "required"}).request)

    assert ([use.input for use in answer.tool_uses], heard) == ([{"a": 1}], [])


@pytest.mark.backends("trio")
@pytest.mark.parametrize("chunk", ["{nope}", "[]"], ids=["no JSON", "no object"])
async def test_a_chunk_that_cannot_be_read_leaves_no_generator_open(serve: Serve, chunk: str) -> None:
    """Trio warns of each."""
    server = serve(CompatibleChatServer)
    server.say(Broken(said=Said(text="a long answer " * 20), events=4, error=f"data: {chunk}\n\n".encode()))
    async with openai.AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1", max_retries=0) as client:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with fail_after(25), pytest.raises(ProviderError, match="the reply cannot be read"):
                await OpenAIChatModel(client, "qwen3", stream=True)(prompt().request)
            gc.collect()

    assert [str(warning.message) for warning in warned if "generator" in str(warning.message)] == []
