"""A model by its name: the client of the provider's SDK is made from the environment."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_host.errors import ProviderError
from mcp_host.providers import PydanticAIModel, model
from mcp_host.providers.lookup import PROVIDERS
from mcp_host.types import CreateMessageResult
from tests.providers.conftest import Serve
from tests.providers.scripted import Failed, Said
from tests.providers.servers.anthropic import AnthropicServer
from tests.providers.servers.base import ModelServer
from tests.providers.servers.gemini import GeminiServer
from tests.providers.servers.ollama import OllamaServer
from tests.providers.servers.openai_chat import CompatibleChatServer
from tests.providers.servers.openai_responses import OpenAIResponsesServer
from tests.sampling.asking import request

VARIABLES = [variable for provider in PROVIDERS.values() for variable in provider.keys]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An environment without keys, and a home without the SDKs' own files."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.filterwarnings(  # OpenAI's SDK leaves its generators after ``[DONE]``; trio warns of it
    "ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning"
)
@pytest.mark.parametrize(
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

    model(name, retry=False)


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


@pytest.mark.parametrize(
    ("name", "sdk", "package"),
    [
        ("anthropic:claude-sonnet-5", "anthropic", "anthropic"),
        ("openai:gpt-6", "openai", "openai"),
        ("gemini:gemini-4-pro", "google.genai", "google-genai"),
        ("ollama:qwen4", "ollama", "ollama"),
    ],
)
def test_an_sdk_that_is_not_installed_is_named_with_what_to_install(
    name: str, sdk: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, sdk, None)

    with pytest.raises(ImportError, match=f"^the SDK {package} is not installed: pip install {package}$"):
        model(name)


def test_pydantic_ai_that_is_not_installed_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)

    with pytest.raises(ImportError, match=r"^pydantic-ai is not installed: pip install pydantic-ai-slim$"):
        model("pydantic-ai:test")


def test_an_sdk_that_pydantic_ai_misses_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)

    with pytest.raises(ImportError, match=r"^pydantic-ai: .*pydantic-ai-slim\[groq\]"):
        model("pydantic-ai:groq:llama-4")


@pytest.mark.parametrize(("name", "kind"), [(None, "NoneType"), (b"ollama:m", "bytes")])
def test_a_name_that_is_no_text_is_an_error(name: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^name has to be a text such as anthropic:claude-sonnet-5, not {kind}$"):
        model(name)


def test_an_environment_that_the_sdk_cannot_use_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://localhost:port")

    with pytest.raises(ValueError, match=r"^the SDK ollama makes no client: .*'port'"):
        model("ollama:qwen4")


def test_a_wrong_url_of_a_server_without_a_key_is_told_and_not_a_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:port")

    with pytest.raises(ValueError, match=r"^the SDK openai makes no client: .*'port'"):
        model("openai-chat:qwen4")


def test_a_missing_key_is_named_also_by_an_older_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of older releases, such as anthropic 0.49, have no attribute ``credentials``."""
    older = SimpleNamespace(AsyncAnthropic=lambda: SimpleNamespace(api_key=None, auth_token=None))
    monkeypatch.setitem(sys.modules, "anthropic", older)

    with pytest.raises(
        ValueError, match=r"^the SDK anthropic finds no key: set the environment variable ANTHROPIC_API"
    ):
        model("anthropic:claude-sonnet-5")


KNOWN = "anthropic, openai, openai-chat, gemini, ollama, pydantic-ai"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("antropic:claude-sonnet-5", "there is no provider 'antropic'; did you mean 'anthropic'?"),
        ("openai_chat:gpt-6", "there is no provider 'openai_chat'; did you mean 'openai-chat'?"),
        ("nope:x", f"there is no provider 'nope': the providers are {KNOWN}"),
        ("acme:m", f"there is no provider 'acme': the providers are {KNOWN}"),
        (
            "claude-sonnet-5",
            "'claude-sonnet-5' names no provider: write anthropic:claude-sonnet-5, for instance; "
            f"the providers are {KNOWN}",
        ),
        ("", f"'' names no provider: write anthropic:claude-sonnet-5, for instance; the providers are {KNOWN}"),
        (":m", f"':m' names no provider: write anthropic:m, for instance; the providers are {KNOWN}"),
        ("anthropic:", "'anthropic:' names no model: write anthropic:NAME"),
        ("pydantic-ai:", "'pydantic-ai:' names no model: write pydantic-ai:NAME"),
        ("pydantic-ai:acme:m", "pydantic-ai: Unknown model: acme:m"),
    ],
)
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name: str, says: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        model(name)

    assert str(error.value) == says


def test_an_argument_that_the_adapter_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")

    with pytest.raises(TypeError, match="temprature"):
        model("anthropic:claude-sonnet-5", temprature=1)
