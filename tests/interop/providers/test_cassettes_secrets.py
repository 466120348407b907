"""Turns with reasoning and secrets are found again in a replay, as each provider sends them, streamed or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anthropic
import ollama
import openai
import pytest
from anyio import fail_after
from google import genai

from mcp_host import Client, Handler, Sampling, always
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.ollama import OllamaModel
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.testing import Cassette, Context, RecordMode, Server
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import ModelServer
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.ollama import OllamaServer
from tests.interop.providers.servers.openai_chat import CompatibleChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer

OF_ENVIRONMENT = "sk-QZXJVKWYBQPGF"
OF_LINES = 'JQZV"XWKQ\nÄÖÜß\\\tÖÄßÜ\nVQXJZKWY\n'


class Provider(NamedTuple):
    """A provider's local server, and an adapter over the SDK for a cassette, a URL, a key, and whether to stream."""

    server: type[ModelServer]
    model: Callable[[Cassette, str, str, bool], AbstractAsyncContextManager[Handler]]


@asynccontextmanager
async def anthropic_model(cassette: Cassette, url: str, key: str, stream: bool) -> AsyncIterator[Handler]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, http_client=cassette.http_client()) as client:
        yield AnthropicModel(client, "claude-sonnet-5", stream=stream, options={"thinking": {"type": "adaptive"}})


@asynccontextmanager
async def openai_model(cassette: Cassette, url: str, key: str, stream: bool) -> AsyncIterator[Handler]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, http_client=cassette.http_client()) as client:
        yield OpenAIModel(client, "gpt-5.2", stream=stream, options={"reasoning": {"effort": "high"}})


@asynccontextmanager
async def openai_chat_model(cassette: Cassette, url: str, key: str, stream: bool) -> AsyncIterator[Handler]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, http_client=cassette.http_client()) as client:
        yield OpenAIChatModel(client, "qwen3", stream=stream)


@asynccontextmanager
async def gemini_model(cassette: Cassette, url: str, key: str, stream: bool) -> AsyncIterator[Handler]:
    transport = {"transport": cassette.http_transport()}
    options = genai.types.HttpOptions(base_url=url, client_args=transport, async_client_args=transport)
    client = genai.Client(api_key=key, http_options=options)
    with client:  # the blocking side, which the adapter uses on trio
        async with client.aio:
            yield GeminiModel(client, "gemini-3-flash", stream=stream)


@asynccontextmanager
async def ollama_model(cassette: Cassette, url: str, key: str, stream: bool) -> AsyncIterator[Handler]:
    transport = cassette.http_transport("httpx")
    async with transport:
        client = ollama.AsyncClient(host=url, transport=transport)
        yield OllamaModel(client, "qwen3", stream=stream, options={"think": True})


PROVIDERS = {
    "anthropic": Provider(AnthropicServer, anthropic_model),
    "openai": Provider(OpenAIResponsesServer, openai_model),
    "openai-chat": Provider(CompatibleChatServer, openai_chat_model),
    "gemini": Provider(GeminiServer, gemini_model),
    "ollama": Provider(OllamaServer, ollama_model),
}

TURNS = {
    "key of the environment": Said(
        thinking="Hm.", text=f"With {OF_ENVIRONMENT}.", calls=[Called("login", {"user": OF_ENVIRONMENT})]
    ),
    "password": Said(thinking="Hm.", calls=[Called("login", {"user": "a", "password": "QZXJVKWYBQ"})]),
    "short password": Said(thinking="Hm.", calls=[Called("login", {"user": "a", "password": "QZXJ"})]),
    "lines of a key": Said(
        thinking="Hm.", text=f"With {OF_LINES}.", calls=[Called("login", {"user": OF_LINES, "password": OF_LINES})]
    ),
}
"""What the model says first, with a secret of each kind."""

server = Server("accounts")


def login(user: str, password: str = "") -> str:
    return "You are in."


@server.tool
async def solve(problem: str, context: Context) -> str:
    return (await context.sample_loop(problem, tools=[login])).text


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_turn_with_reasoning_and_a_secret_is_replayed_and_the_secret_is_not_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, turn: str
) -> None:
    """Each provider with each turn, half of them as streams."""
    provider = PROVIDERS[name]
    stream = ([*PROVIDERS].index(name) + [*TURNS].index(turn)) % 2 == 1
    monkeypatch.setenv("SOME_API_KEY", OF_ENVIRONMENT)
    monkeypatch.setenv("SOME_PRIVATE_KEY", OF_LINES)
    path = tmp_path / "cassette.json"

    async def solved(record_mode: RecordMode, url: str, key: str) -> str:
        with fail_after(60), Cassette(path, record_mode=record_mode, require_all=True) as cassette:
            async with provider.model(cassette, url, key, stream) as model:
                sampling = Sampling(with_tools=model, approve=always)
                async with Client(cassette.transport(server), sampling=sampling) as client:
                    return (await client.call_tool("solve", {"problem": "Who am I?"})).text

    api = provider.server()
    with api.running():
        api.say(TURNS[turn], Said(text="Ada."))
        assert await solved("once", api.url, api.key) == "Ada."
    monkeypatch.delenv("SOME_API_KEY")
    monkeypatch.delenv("SOME_PRIVATE_KEY")

    assert api.refusals == []
    assert await solved("none", "http://127.0.0.1:1", api.key) == "Ada."
    text = path.read_text()
    secrets = [OF_ENVIRONMENT, OF_LINES, "QZXJVKWYBQ"]
    parts = {secret[start : start + 4] for secret in secrets for start in range(3, len(secret) - 3)}
    assert [part for part in parts if part in text] == []
