"""A model by its name, with the SDKs themselves."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mcp_host.errors import ProviderError
from mcp_host.providers import PydanticAIModel, model
from mcp_host.providers.lookup import PROVIDERS
from mcp_host.types import CreateMessageResult
from tests.interop.providers.scripted import Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import ModelServer
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.ollama import OllamaServer
from tests.interop.providers.servers.openai_chat import CompatibleChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer
from tests.providers.test_lookup import no_keys
from tests.sampling.asking import request

__all__ = ["no_keys"]


BY_NAME = pytest.mark.parametrize(
    ("name", "kind", "key", "url", "path"),
    [
        ("anthropic:claude-sonnet-5", AnthropicServer, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
        ("openai:gpt-5.2", OpenAIResponsesServer, "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
        ("openai-chat:qwen4", CompatibleChatServer, "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
        ("gemini:gemini-3-pro", GeminiServer, "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
        ("ollama:qwen4", OllamaServer, "OLLAMA_API_KEY", "OLLAMA_HOST", ""),
    ],
    ids=[*PROVIDERS],
)


@pytest.mark.filterwarnings(  # OpenAI's SDK leaves its generators after ``[DONE]``; trio warns of it
    "ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning"
)
@BY_NAME
async def test_a_model_by_its_name_asks_through_the_sdk_and_closes_its_client(
    name: str,
    kind: type[ModelServer],
    key: str,
    url: str,
    path: str,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that is left open is a warning, which fails the test."""
    server = serve(kind, Said(text="hi"), Said(text="hi again"))
    monkeypatch.setenv(key, server.key)
    monkeypatch.setenv(url, f"{server.url}{path}")
    shown: list[str] = []

    async with (
        model(name, stream=False) as asked,
        model(name, on_delta=lambda delta: shown.append(delta.text)) as streams,
    ):
        answers = [await asked(request()), await streams(request())]

    assert [answer.text for answer in answers] == ["hi", "hi again"]
    assert "".join(shown) == "hi again"


@BY_NAME
async def test_a_key_that_is_passed_takes_the_place_of_that_of_the_environment(
    name: str,
    kind: type[ModelServer],
    key: str,
    url: str,
    path: str,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server takes its own key only; Ollama's takes any."""
    server = serve(kind, Said(text="hi"))
    monkeypatch.setenv(key, "another")
    monkeypatch.setenv(url, f"{server.url}{path}")

    async with model(name, api_key=server.key, stream=False) as asked:
        assert (await asked(request())).text == "hi"


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-5", "pydantic-ai:anthropic:claude-sonnet-5"])
@pytest.mark.parametrize("retry", [True, False])
async def test_without_retry_a_failure_that_may_pass_is_raised_at_once(
    name: str, retry: bool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the SDK asks again, after the time that the provider wants."""
    failed = Failed(status=429, retry_after="0.001")
    server = serve(AnthropicServer, failed, failed, failed, Said(text="hi"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", server.key)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)

    async with model(name, retry=retry) as asked:
        with pytest.raises(ProviderError) as failure:
            await asked(request())

    assert failure.value.retry_after == 0.001
    assert len(server.heard) == (3 if retry else 1)


@pytest.mark.parametrize("name", ["gemini:gemini-4-pro", "ollama:qwen4", "pydantic-ai:test"])
def test_without_retry_an_sdk_that_does_not_retry_stays_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "key")

    made: Any = model(name, retry=False)

    client = getattr(made._client, "client", made._client)  # pydantic-ai's model may have one
    assert not hasattr(client, "max_retries")


async def test_options_go_to_the_adapter(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(AnthropicServer, Said(text="hi"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", server.key)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)

    async with model("anthropic:claude-sonnet-5", options={"service_tier": "standard_only"}) as asked:
        await asked(request())

    assert (server.last["model"], server.last["service_tier"]) == ("claude-sonnet-5", "standard_only")


async def test_a_model_of_pydantic_ai_has_the_name_that_it_has_there() -> None:
    async with model("pydantic-ai:test", stream=True) as asked:
        answer = await asked(request())

    assert isinstance(asked, PydanticAIModel)
    assert isinstance(answer, CreateMessageResult)
    assert (answer.text, answer.model) == ("success (no tool calls)", "test")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "anthropic:claude-sonnet-5",
            "the SDK anthropic finds no key: set the environment variable ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
        ),
        ("openai:gpt-6", "the SDK openai finds no key: set the environment variable OPENAI_API_KEY"),
        ("openai-chat:llama", "the SDK openai finds no key: set the environment variable OPENAI_API_KEY"),
        (
            "gemini:gemini-4-pro",
            "the SDK google-genai finds no key: set the environment variable GEMINI_API_KEY or GOOGLE_API_KEY",
        ),
    ],
)
def test_a_missing_key_is_named_at_once(name: str, says: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        model(name)

    assert str(error.value) == says


def test_a_missing_key_of_pydantic_ai_is_named_by_pydantic_ai() -> None:
    with pytest.raises(ValueError, match=r"^pydantic-ai: Set the `OPENAI_API_KEY` environment variable"):
        model("pydantic-ai:openai:gpt-6")


def test_a_model_that_pydantic_ai_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match=r"^pydantic-ai: Unknown model: acme:m$"):
        model("pydantic-ai:acme:m")


def test_an_sdk_that_pydantic_ai_misses_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)

    with pytest.raises(ImportError, match=r"^pydantic-ai: .*pydantic-ai-slim\[groq\]"):
        model("pydantic-ai:groq:llama-4")


def test_an_environment_that_the_sdk_cannot_use_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://localhost:port")

    with pytest.raises(ValueError, match=r"^the SDK ollama makes no client: .*'port'"):
        model("ollama:qwen4")


def test_a_wrong_url_of_a_server_without_a_key_is_told_and_not_a_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:port")

    with pytest.raises(ValueError, match=r"^the SDK openai makes no client: .*'port'"):
        model("openai-chat:qwen4")
