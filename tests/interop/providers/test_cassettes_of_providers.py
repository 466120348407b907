"""The calculator's dialogue and a game of tic-tac-toe with each provider, replayed from the files in `cassettes`.

They were recorded against the local servers of these tests, not against the providers. To record them again:
``RECORD_CASSETTES=1 python -m tests.interop.run -k cassettes_of_providers``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import anthropic
import ollama
import openai
import pytest
from anyio import fail_after
from google import genai
from play_ttt.server import make_server

from mcp_host import Client, Elicitation, FormRequest, Handler, Sampling, Stdio, always
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.ollama import OllamaModel
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.testing import Cassette
from mcp_host.types import ElicitResult
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import Heard, ModelServer
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.ollama import OllamaServer
from tests.interop.providers.servers.openai_chat import OpenAIChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer

ROOT = Path(__file__).parent
RECORDS = "RECORD_CASSETTES" in os.environ
CALCULATOR = Stdio([sys.executable, str(ROOT.parent / "examples" / "calculator_server.py")])
KEY = "sk-local-0123456789abcdef"


class Provider(NamedTuple):
    """How to speak to a provider's API: its name, the local server, and an adapter over the SDK."""

    name: str
    server: type[ModelServer]
    model: Callable[[Cassette, str, str], AbstractAsyncContextManager[Handler]]


@asynccontextmanager
async def anthropic_model(cassette: Cassette, url: str, key: str) -> AsyncIterator[Handler]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, http_client=cassette.http_client()) as client:
        yield AnthropicModel(client, "claude-sonnet-5")


@asynccontextmanager
async def openai_model(cassette: Cassette, url: str, key: str) -> AsyncIterator[Handler]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, http_client=cassette.http_client()) as client:
        yield OpenAIModel(client, "gpt-5.6")


@asynccontextmanager
async def openai_chat_model(cassette: Cassette, url: str, key: str) -> AsyncIterator[Handler]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, http_client=cassette.http_client()) as client:
        yield OpenAIChatModel(client, "gpt-5.6", dialect="openai")


@asynccontextmanager
async def gemini_model(cassette: Cassette, url: str, key: str) -> AsyncIterator[Handler]:
    transport = {"transport": cassette.http_transport()}
    options = genai.types.HttpOptions(base_url=url, client_args=transport, async_client_args=transport)
    client = genai.Client(api_key=key, http_options=options)
    with client:  # the blocking side, which the adapter uses on trio; its answers are streams there
        async with client.aio:
            yield GeminiModel(client, "gemini-3-flash", stream=True)


@asynccontextmanager
async def ollama_model(cassette: Cassette, url: str, key: str) -> AsyncIterator[Handler]:
    transport = cassette.http_transport("httpx")
    async with transport:
        yield OllamaModel(ollama.AsyncClient(host=url, transport=transport), "qwen3")


PROVIDERS = [
    Provider("anthropic", AnthropicServer, anthropic_model),
    Provider("openai", OpenAIResponsesServer, openai_model),
    Provider("openai-chat", OpenAIChatServer, openai_chat_model),
    Provider("gemini", GeminiServer, gemini_model),
    Provider("ollama", OllamaServer, ollama_model),
]

CALCULATES = (
    Said(calls=[Called("add", {"a": 3, "b": 4}), Called("subtract", {"a": 10, "b": 4})]),
    Said(calls=[Called("multiply", {"a": 7, "b": 6})]),
    Said(calls=[Called("divide", {"a": 42, "b": 2})]),
    Said(text="21"),
)


def calculates() -> Callable[[Heard], Said]:
    turns = iter(CALCULATES)
    return lambda heard: next(turns)


def plays() -> Callable[[Heard], Said]:
    """A strategy and a legal move in turn: a move in the tool that is the form, where one is offered, else as JSON."""
    squares = iter((1, 2, 3))

    def decide(heard: Heard) -> Said:
        offered = re.findall(r'"name": "(\w+)"', json.dumps(heard.body.get("tools", [])))
        if "play_offensive" in json.dumps([heard.body.get("tools"), heard.body.get("format")]):
            return Said(calls=[Called("play_offensive")])
        move = {"square": next(squares), "remark": ""}
        return Said(calls=[Called(offered[0], move)]) if offered else Said(text=json.dumps(move))

    return decide


@asynccontextmanager
async def recorded(
    provider: Provider, name: str, decide: Callable[[Heard], Said]
) -> AsyncIterator[tuple[Cassette, Handler]]:
    """The cassette *name* of a provider, and the model behind it, which *decide* speaks for when it is recorded."""
    note = f"Recorded against a local server that speaks {provider.name}'s wire format, not against the provider."
    path = ROOT / "cassettes" / name / f"{provider.name}.json"
    server = provider.server()
    with server.running() if RECORDS else nullcontext():
        server.say(decide=decide)
        key = server.key if RECORDS else KEY
        with (
            fail_after(60),
            Cassette(path, record_mode="all" if RECORDS else "none", require_all=True, note=note) as cassette,
        ):
            async with provider.model(cassette, server.url or "http://127.0.0.1:1", key) as model:
                yield cassette, model
        assert server.refusals == []


each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=[provider.name for provider in PROVIDERS])


@each_provider
async def test_the_calculators_dialogue_is_replayed_with_each_provider(provider: Provider) -> None:
    async with recorded(provider, "calculator", calculates()) as (cassette, model):
        sampling = Sampling(with_tools=model, approve=always)
        async with Client(cassette.transport(CALCULATOR), sampling=sampling) as client:
            result = await client.call_tool("solve", {"problem": "What is (3 + 4) * (10 - 4) / 2?"})

    assert result.text == "21"


@each_provider
async def test_a_game_of_tic_tac_toe_is_replayed_with_each_provider(provider: Provider) -> None:
    squares = iter(["4", "5"])

    def play(request: FormRequest) -> ElicitResult:
        return ElicitResult(action="accept", content={"square": next(squares)})

    async with recorded(provider, "play_ttt", plays()) as (cassette, model):
        sampling = Sampling(with_tools=model, approve=always)
        transport = cassette.transport(make_server(lambda: "X"))
        async with Client(transport, sampling=sampling, elicitation=Elicitation(form=play)) as client:
            result = await client.call_tool("play_ttt")

    assert result.text.startswith("The model wins with X.")


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("cassettes/*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_each_file_says_what_it_was_recorded_against_and_has_no_key(path: Path) -> None:
    text = path.read_text()

    assert '\n  "note": "Recorded against a local server that speaks ' in text
    assert [provider.name for provider in PROVIDERS if provider.server.key in text] == []
