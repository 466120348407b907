"""Gemini's adapter through the SDK."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from google import genai

from mcp_host.errors import InputRefused
from mcp_host.providers.exchange.replies import Reply
from mcp_host.providers.exchange.requests import Prompt
from mcp_host.providers.gemini import GeminiModel, read_reply, write_request
from mcp_host.sampling.request import ModelAnswer
from mcp_host.types import JSONObject
from tests.extent import on_both
from tests.interop.providers.scripted import Failed, Said, Stalled
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.gemini import GeminiServer
from tests.providers.test_gemini import ASKED, prompt

pytestmark = on_both  # the adapter uses one side of the SDK in asyncio, and the other outside of it


def client(server: GeminiServer, **more: Any) -> Any:
    return genai.Client(**{"api_key": server.key, "http_options": {"base_url": server.url}, **more})


NEWER: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "a", "aura": {"b": 1}},
                    {"functionCall": {"name": "add", "args": {}, "mood": 1}, "thoughtSignature": "c2ln+/=="},
                ],
            },
            "finishReason": "BRAND_NEW",
        }
    ],
    "modelVersion": "gemini-9",
    "era": "next",
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_the_sdk_does_not_know_is_neither_warned_of_nor_lost(serve: Serve, stream: bool) -> None:
    """Warnings are errors in these tests."""
    server = serve(GeminiServer, Failed(status=200, body=json.dumps(NEWER)))
    read: list[Reply] = []

    class Model(GeminiModel):
        @staticmethod
        def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
            read.append(read_reply(reply, prompt))
            return read[-1]

    async with Model(client(server), "gemini-3-pro", stream=stream) as model:
        answer = await model(ASKED.request)

    assert isinstance(answer, ModelAnswer)
    assert (answer.text, [use.name for use in answer.tool_uses], answer.stop_reason) == ("a", ["add"], "toolUse")
    assert [(reply.stop_reason, reply.turn) for reply in read] == [("BRAND_NEW", NEWER["candidates"][0]["content"])]


@pytest.mark.parametrize("stream", [None, False], ids=["streamed outside of asyncio", "whole"])
async def test_an_answer_is_streamed_outside_of_asyncio(
    serve: Serve, stream: bool | None, anyio_backend_name: str
) -> None:
    """The headers of a stream come at once: from then on, cancelling can close the connection."""
    server = serve(GeminiServer, Said(text="Hello"))
    async with GeminiModel(client(server), "gemini-3-pro", stream=stream) as model:
        answer = await model(prompt().request)

    method = "streamGenerateContent?alt=sse" if stream is None and anyio_backend_name == "trio" else "generateContent"
    assert isinstance(answer, ModelAnswer)
    assert answer.text == "Hello"
    assert [heard.path.rpartition(":")[2] for heard in server.heard] == [method]


async def test_a_stream_that_is_left_early_is_closed(serve: Serve) -> None:
    server = serve(GeminiServer, Stalled(said=Said(text="a long answer " * 20), events=5))
    async with GeminiModel(client(server), "gemini-3-pro") as model:
        async with model.request_events(write_request(prompt())) as events:
            await anext(events)
        assert await anyio.to_thread.run_sync(server.unfinished.wait, 5)


async def test_cancelling_closes_the_connection_while_a_thread_waits_for_the_answer(serve: Serve) -> None:
    server = serve(GeminiServer, Stalled(said=Said(text="a long answer " * 20), events=5))
    async with GeminiModel(client(server), "gemini-3-pro", stream=True) as model:
        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(model, prompt().request)
                assert await anyio.to_thread.run_sync(server.stalled.wait, 5)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(server.unfinished.wait, 5)


async def test_metadata_are_refused_but_on_vertex(serve: Serve) -> None:
    server = serve(GeminiServer)
    async with GeminiModel(client(server), "gemini-3-pro") as model:
        with pytest.raises(InputRefused, match="metadata: this model takes none; only models on Vertex AI do"):
            await model(prompt(metadata={"team": "a"}).request)

    assert server.heard == []


async def test_an_answer_that_could_be_continued_is_one_request_and_ends_with_max_tokens(serve: Serve) -> None:
    """The SDK would go on, for more tokens than the server asked for."""
    part = {"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": "CONTINUATION"}
    body = json.dumps({"candidates": [{**part, "continuationToken": "AA=="}]})
    server = serve(GeminiServer, *[Failed(status=200, body=body)] * 2)
    async with GeminiModel(client(server), "gemini-3-pro") as model:
        answer = await model(prompt().request)

    assert (answer.text, answer.stop_reason, len(server.heard)) == ("a", "maxTokens", 1)
