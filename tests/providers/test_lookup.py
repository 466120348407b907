"""A model by its name: the client of the provider's SDK is made from the environment."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_host.providers import model
from mcp_host.providers.lookup import PROVIDERS

VARIABLES = [variable for provider in PROVIDERS.values() for variable in provider.keys]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An environment without keys, and a home without the SDKs' own files."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


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


@pytest.mark.parametrize(("name", "kind"), [(None, "NoneType"), (b"ollama:m", "bytes")])
def test_a_name_that_is_no_text_is_an_error(name: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^name has to be a text such as anthropic:claude-sonnet-5, not {kind}$"):
        model(name)


def test_a_missing_key_is_named_also_by_an_older_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of older releases, such as anthropic 0.49, have no attribute ``credentials``."""
    older = SimpleNamespace(AsyncAnthropic=lambda: SimpleNamespace(api_key=None, auth_token=None))
    monkeypatch.setitem(sys.modules, "anthropic", older)

    with pytest.raises(
        ValueError, match=r"^the SDK anthropic finds no key: set the environment variable ANTHROPIC_API"
    ):
        model("anthropic:claude-sonnet-5")


@pytest.mark.parametrize(
    ("name", "sdk", "client", "arguments"),
    [
        ("openai:gpt-6", "openai", "AsyncOpenAI", {"api_key": "sk-test"}),
        ("ollama:qwen4", "ollama", "AsyncClient", {"headers": {"authorization": "Bearer sk-test"}}),
    ],
)
def test_a_key_that_is_passed_is_the_sdks(
    name: str, sdk: str, client: str, arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for another server, which without it gets none."""
    made: list[dict[str, object]] = []

    def make(**arguments: object) -> SimpleNamespace:
        made.append(arguments)
        return SimpleNamespace(responses=SimpleNamespace(create=make), chat=make)

    monkeypatch.setitem(sys.modules, sdk, SimpleNamespace(**{client: make}))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    model(name, api_key="sk-test")

    assert made == [arguments]
    assert "sk-test" not in repr(made)


def test_pydantic_ai_finds_its_keys_itself() -> None:
    with pytest.raises(ValueError, match=r"^pydantic-ai finds its keys itself: set the environment variable of its"):
        model("pydantic-ai:groq:llama-4", api_key="sk-test")


KNOWN = "anthropic, openai, openai-chat, gemini, ollama, pydantic-ai"


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, str]] = [
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
    ]
    for name, says in table:
        with subtests.test(name=name):
            with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
                model(name)

            assert str(error.value) == says


def test_an_argument_that_the_adapter_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    sdk = SimpleNamespace(AsyncAnthropic=lambda: SimpleNamespace(api_key="key"))
    monkeypatch.setitem(sys.modules, "anthropic", sdk)

    with pytest.raises(TypeError, match="temprature"):
        model("anthropic:claude-sonnet-5", temprature=1)
