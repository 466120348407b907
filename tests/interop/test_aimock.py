"""Every adapter against `@copilotkit/aimock`, which speaks the APIs of models and was written by another project."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anthropic
import ollama
import openai
import pytest
from anyio import fail_after
from google import genai

from mcp_host import SamplingRequest, run_tool_loop
from mcp_host.errors import ProviderError
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.ollama import OllamaModel
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.types import CreateMessageRequestParams
from tests.interop.processes import SERVERS, HttpServer, aimock, free_port

KEY = "sk-aimock-key"
IN_TIME = 25.0  # seconds for a few requests to a server on this machine

Connect = Callable[[str, str], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def _anthropic(url: str, key: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        yield client


@asynccontextmanager
async def _openai(url: str, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        yield client


@asynccontextmanager
async def _gemini(url: str, key: str) -> AsyncIterator[genai.Client]:
    options = genai.types.HttpOptions(base_url=url, api_version="v1beta")  # the server has no v1
    client = genai.Client(api_key=key, http_options=options)
    with client:  # on trio the adapter uses the blocking side, which has sockets of its own
        async with client.aio:
            yield client


@asynccontextmanager
async def _ollama(url: str, key: str) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=url, headers={"Authorization": f"Bearer {key}"}) as client:
        yield client


ADAPTERS: dict[str, tuple[Connect, type[ProviderModel], str]] = {
    "Anthropic": (_anthropic, AnthropicModel, "claude-sonnet-5"),
    "OpenAI Responses": (_openai, OpenAIModel, "gpt-5.2"),
    "OpenAI Chat Completions": (_openai, OpenAIChatModel, "gpt-4o"),
    "Gemini": (_gemini, GeminiModel, "gemini-2.5-flash"),
    "Ollama": (_ollama, OllamaModel, "qwen3"),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    command = aimock(SERVERS / "aimock.json", port)
    with HttpServer(command, port, ready="listening on", env={"AIMOCK_API_KEYS": KEY}):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    streamed: bool = request.param
    return streamed


@pytest.fixture(params=ADAPTERS)
async def model(request: pytest.FixtureRequest, url: str, stream: bool) -> AsyncIterator[ProviderModel]:
    connect, adapter, name = ADAPTERS[request.param]
    async with connect(url, KEY) as client:
        yield adapter(client, name, stream=stream)


def _ask(text: str) -> SamplingRequest:
    wire = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 100}
    return SamplingRequest(params=CreateMessageRequestParams.from_wire(wire), server="test")


async def add(a: int, b: int) -> int:
    return a + b


async def test_a_text_is_the_text_of_the_model(model: ProviderModel) -> None:
    with fail_after(IN_TIME):
        answer = await model(_ask("Say hello"))

    assert answer.text == "Hello from the mock, which says a few words more."
    assert answer.stop_reason == "endTurn"


@pytest.mark.parametrize("kind", ADAPTERS)
async def test_the_text_of_a_stream_comes_in_pieces(kind: str, url: str) -> None:
    connect, adapter, name = ADAPTERS[kind]
    pieces: list[str] = []
    with fail_after(IN_TIME):
        async with connect(url, KEY) as client:
            answer = await adapter(client, name, on_delta=lambda delta: pieces.append(delta.text))(_ask("Say hello"))

    assert len(pieces) > 1
    assert "".join(pieces) == answer.text


async def test_parallel_calls_are_made_and_answered(model: ProviderModel) -> None:
    """The server thinks, says something, and calls a tool twice."""
    with fail_after(IN_TIME):
        result = await run_tool_loop(model, "Add both", tools=[add])

    assert result.text == "3 and 70."
    assert [(call.use.name, call.use.input, call.result.text) for step in result.steps for call in step.calls] == [
        ("add", {"a": 1, "b": 2}, "3"),
        ("add", {"a": 30, "b": 40}, "70"),
    ]


async def test_calls_of_one_turn_after_the_other_are_made_and_answered(model: ProviderModel) -> None:
    with fail_after(IN_TIME):
        result = await run_tool_loop(model, "Step by step", tools=[add])

    assert result.text == "4."
    assert [len(step.calls) for step in result.steps] == [1, 1, 0]


@pytest.mark.parametrize(("text", "status", "retry_after"), [("Too often", 429, 1), ("Out of order", 500, None)])
async def test_an_error_has_its_status_and_no_text_of_the_server(
    model: ProviderModel, text: str, status: int, retry_after: float | None
) -> None:
    with fail_after(IN_TIME), pytest.raises(ProviderError) as caught:
        await model(_ask(text))

    assert (caught.value.status, caught.value.transient) == (status, True)
    if not isinstance(model, OllamaModel):  # the error of its SDK has no headers
        assert caught.value.retry_after == retry_after
    assert "Slow down" not in str(caught.value)
    assert "It broke" not in str(caught.value)


@pytest.mark.parametrize("kind", ADAPTERS)
async def test_a_wrong_key_is_an_error_that_does_not_tell_it(kind: str, url: str, stream: bool) -> None:
    connect, adapter, name = ADAPTERS[kind]
    with fail_after(IN_TIME):
        async with connect(url, "sk-wrong-key") as client:
            with pytest.raises(ProviderError) as caught:
                await adapter(client, name, stream=stream)(_ask("Say hello"))

    assert (caught.value.status, caught.value.transient) == (401, False)
    assert "sk-wrong-key" not in str(caught.value)


@pytest.mark.parametrize("kind", ADAPTERS)
async def test_a_stream_that_is_cut_off_is_an_error_and_no_answer(kind: str, url: str) -> None:
    connect, adapter, name = ADAPTERS[kind]
    with fail_after(IN_TIME):
        async with connect(url, KEY) as client:
            with pytest.raises(ProviderError) as caught:
                await adapter(client, name, stream=True)(_ask("Cut off"))

    assert caught.value.transient
