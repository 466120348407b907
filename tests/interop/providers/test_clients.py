"""The client that an adapter gets is checked when the adapter is made."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import anthropic
import ollama
import openai
import pytest
from google import genai

from mcp_host.providers import AnthropicModel, GeminiModel, OllamaModel, OpenAIChatModel, OpenAIModel
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.exchange.clients import Sdk

ADAPTERS = {
    AnthropicModel: "anthropic.AsyncAnthropic()",
    OpenAIModel: "openai.AsyncOpenAI()",
    OpenAIChatModel: "openai.AsyncOpenAI()",
    GeminiModel: "google.genai.Client()",
    OllamaModel: "ollama.AsyncClient()",
}

each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)

AZURE: Any = {"api_key": "k", "azure_endpoint": "https://example.com", "api_version": "1"}
AWS: Any = {"aws_region": "r", "aws_access_key": "a", "aws_secret_key": "s"}


@pytest.mark.parametrize(
    ("adapter", "client"),
    [
        (AnthropicModel, anthropic.AsyncAnthropic(api_key="k")),
        (AnthropicModel, anthropic.AsyncAnthropicBedrock(**AWS)),
        (AnthropicModel, anthropic.AsyncAnthropicVertex(region="r", project_id="p", access_token="t")),
        (AnthropicModel, anthropic.AsyncAnthropic(api_key="k").with_options(timeout=1)),
        (OpenAIModel, openai.AsyncOpenAI(api_key="k")),
        (OpenAIModel, openai.AsyncAzureOpenAI(**AZURE)),
        (OpenAIChatModel, openai.AsyncOpenAI(api_key="k")),
        (OpenAIChatModel, openai.AsyncAzureOpenAI(**AZURE)),
        (GeminiModel, genai.Client(api_key="k")),
        (OllamaModel, ollama.AsyncClient()),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else value.__name__,
)
def test_every_async_client_of_the_sdk_is_one(adapter: type[ProviderModel], client: object) -> None:
    made: Any = adapter(client, "m")

    assert made._client is client


@pytest.mark.parametrize(
    ("adapter", "client"),
    [
        (AnthropicModel, anthropic.Anthropic(api_key="k")),
        (AnthropicModel, anthropic.AnthropicBedrock(**AWS)),
        (OpenAIModel, openai.OpenAI(api_key="k")),
        (OpenAIModel, openai.AzureOpenAI(**AZURE)),
        (OpenAIChatModel, openai.OpenAI(api_key="k")),
        (OllamaModel, ollama.Client()),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else value.__name__,
)
async def test_a_blocking_client_is_refused_before_it_asks_anything(adapter: type[ProviderModel], client: Any) -> None:
    with pytest.raises(TypeError) as raised:
        async with adapter(client, "m"):
            pytest.fail("it is no context manager either")  # pragma: no cover

    name = type(client).__name__
    assert str(raised.value) == f"client is a blocking {name}: pass an async one, such as {ADAPTERS[adapter]}"


@each_adapter
@pytest.mark.parametrize(
    ("client", "kind"),
    [("sk-secret", "str"), (None, "NoneType"), (genai.Client(api_key="k").aio, "AsyncClient"), (SimpleNamespace(), "SimpleNamespace")],
    ids=["a text", "None", "a side of Google's", "no methods"],
)  # fmt: skip
def test_what_is_no_client_is_refused_with_what_to_pass(
    adapter: type[ProviderModel], client: object, kind: str
) -> None:
    with pytest.raises(TypeError) as raised:
        adapter(client, "m")

    assert str(raised.value) == f"client has to be an async client such as {ADAPTERS[adapter]}, not {kind}"


@each_adapter
def test_the_client_of_another_provider_is_refused(adapter: type[ProviderModel]) -> None:
    clients = [anthropic.AsyncAnthropic(api_key="k"), openai.AsyncOpenAI(api_key="k"), ollama.AsyncClient()]
    others = [client for client in clients if type(client).__name__ not in ADAPTERS[adapter]]
    others += [] if adapter is GeminiModel else [genai.Client(api_key="k")]

    for client in others if adapter is not OllamaModel else clients[:2]:
        with pytest.raises(TypeError, match=f"not {type(client).__name__}$"):
            adapter(client, "m")


def test_a_class_is_no_client() -> None:
    with pytest.raises(TypeError) as raised:
        AnthropicModel(anthropic.AsyncAnthropic, "m")

    assert str(raised.value) == (
        "client is the class AsyncAnthropic: pass an object of it, such as anthropic.AsyncAnthropic()"
    )


@pytest.mark.parametrize(
    ("model", "kind"), [(None, "NoneType"), (anthropic.AsyncAnthropic(api_key="k"), "AsyncAnthropic")]
)
def test_the_name_of_a_model_is_a_text(model: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^model has to be the model's name, a text, not {kind}$"):
        AnthropicModel(anthropic.AsyncAnthropic(api_key="k"), model)


async def create(**body: object) -> object:
    raise NotImplementedError


def instrumented(function: Any, *, wraps: bool) -> Any:
    """As tools that observe the SDKs replace a method."""

    def call(*args: object, **arguments: object) -> object:
        return function(*args, **arguments)

    return functools.wraps(function)(call) if wraps else call


@pytest.mark.parametrize(
    "method",
    [
        create,
        lambda **body: create(**body),
        functools.partial(create),
        AsyncMock(),
        MagicMock(),
        instrumented(anthropic.AsyncAnthropic(api_key="k").messages.create, wraps=True),
        instrumented(anthropic.AsyncAnthropic(api_key="k").messages.create, wraps=False),
    ],
    ids=["a fake", "gives an awaitable", "partial", "AsyncMock", "MagicMock", "wrapped", "replaced"],
)
def test_any_object_with_the_method_is_a_client(method: object) -> None:
    Sdk("anthropic.AsyncAnthropic()", "messages.create").check(SimpleNamespace(messages=SimpleNamespace(create=method)))
