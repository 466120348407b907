"""OpenAI's adapter on Azure."""

from __future__ import annotations

import json

import httpx2
import openai

from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.sampling import run_tool_loop


async def test_a_model_on_azure_is_asked_at_its_deployment() -> None:
    heard: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(request)
        message = {"role": "assistant", "content": "Hello."}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "model": "gpt", "choices": choices})

    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http,
        openai.AsyncAzureOpenAI(
            azure_endpoint="https://example.openai.azure.com", api_key="k", api_version="2026-10-01", http_client=http
        ) as client,
    ):
        result = await run_tool_loop(OpenAIChatModel(client, "mine"), "Hi.")

    [request] = heard
    assert result.text == "Hello."
    assert request.url.path == "/openai/deployments/mine/chat/completions"
    assert json.loads(request.content) == {
        "messages": [{"role": "user", "content": "Hi."}],
        "model": "mine",
        "max_completion_tokens": 4096,
    }
