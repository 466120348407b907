"""What both APIs of OpenAI have in common."""

from __future__ import annotations

import json

import httpx2
import openai
import pytest

from mcp_host.providers.openai import arguments_of, pdf
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.sampling import run_tool_loop
from mcp_host.types import BlobResourceContents


def test_nearly_all_of_a_request_passes_by_the_types_of_the_sdk() -> None:
    """Its comparison with them would hold up the event loop. What it needs itself are arguments; the host's fields win."""
    options = {"timeout": 5, "extra_headers": {"a": "b"}, "extra_body": {"user": "u"}}

    assert arguments_of({"model": "gpt-5.2", "input": ["hi"], **options}) == {
        "model": "gpt-5.2",
        "timeout": 5,
        "extra_headers": {"a": "b"},
        "extra_body": {"input": ["hi"], "user": "u"},
    }


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


@pytest.mark.parametrize(
    ("uri", "name"),
    [("file:///a/b.pdf", "b.pdf"), ("file:///a/b", "b.pdf"), ("http://[", "document.pdf"), ("", "document.pdf")],
)
def test_a_pdf_file_has_a_name_whatever_its_uri_is(uri: str, name: str) -> None:
    assert pdf(BlobResourceContents(uri=uri, blob="aGk="))["filename"] == name
