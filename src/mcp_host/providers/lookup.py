"""A model by its name: ``model("anthropic:claude-sonnet-5")`` makes the client of the provider's SDK and the adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from os import environ
from typing import Any

from mcp_host.errors import excerpt, quoted
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.exchange.clients import KEYS
from mcp_host.secret import Secret, SecretValues


@dataclass(frozen=True, slots=True)
class Provider:
    """How to make the client and the adapter of one provider. The modules are imported when a model is made."""

    sdk: str
    """The module of the SDK."""
    client: str
    """The class of its async client, which reads the environment."""
    adapter: str
    """The module here, and its class."""
    package: str
    """What to install."""
    keys: Sequence[str] = ()
    """The environment variables that may have the key."""
    credentials: Sequence[str] = ()
    """Attributes of the client, one of which is set if it has a key: for an SDK that makes a client without one."""
    base_url: str = ""
    """The environment variable with the URL of another server, such as a local one, which may need no key."""
    key_in_header: bool = False
    """Whether the client takes a key as a header only."""


class KeyNotFound(ValueError):
    """No key was passed, and the SDK finds none."""

    def __init__(self, provider: Provider) -> None:
        variables = " or ".join(provider.keys)
        super().__init__(f"the SDK {provider.package} finds no key: set the environment variable {variables}")
        self.variables = provider.keys


OPENAI = Provider(
    sdk="openai",
    client="AsyncOpenAI",
    adapter="openai_responses.OpenAIModel",
    package="openai",
    keys=KEYS["openai"],
    base_url="OPENAI_BASE_URL",
)

PROVIDERS = {
    "anthropic": Provider(
        sdk="anthropic",
        client="AsyncAnthropic",
        adapter="anthropic.AnthropicModel",
        package="anthropic",
        keys=KEYS["anthropic"],
        credentials=("api_key", "auth_token", "credentials"),
    ),
    "openai": OPENAI,
    "openai-chat": replace(OPENAI, adapter="openai_chat.OpenAIChatModel"),
    "gemini": Provider(
        sdk="google.genai",
        client="Client",
        adapter="gemini.GeminiModel",
        package="google-genai",
        keys=KEYS["gemini"],
    ),
    "ollama": Provider(
        sdk="ollama", client="AsyncClient", adapter="ollama.OllamaModel", package="ollama", key_in_header=True
    ),
}

PYDANTIC_AI = "pydantic-ai"

MIN_SIMILARITY = 0.75  # of a name and the one that is suggested; "nope" and "openai" have 0.6


def model(name: str, /, *, retry: bool = True, api_key: str | None = None, **arguments: Any) -> ProviderModel:
    """The model called *name*: ``anthropic:claude-sonnet-5``, ``openai:gpt-6``, ``gemini:…`` or ``ollama:…``.

    ``openai:`` is OpenAI's Responses API; ``openai-chat:`` is its Chat Completions API, which many other servers speak.
    ``pydantic-ai:groq:llama-4`` is any model of pydantic-ai by the name that it has there.

    The client is made here by the provider's SDK, which has to be installed and reads its own environment variables:
    ``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY``, ``OPENAI_BASE_URL``, ``GEMINI_API_KEY``, ``OLLAMA_HOST`` and so on.
    With ``OPENAI_BASE_URL``, no key is needed: a local server may work without one.
    With *api_key*, no key of the environment is used; pydantic-ai takes none here.
    *arguments* are those of the adapter: `options`, `stream` and so on.

    The SDKs of Anthropic and OpenAI ask again after a failure that may pass. Before that, Anthropic's waits as long as the
    provider wants, and OpenAI's up to two minutes; nothing tells you. With *retry* false they ask once, and `ProviderError.retry_after` says
    how long to wait.

    ``async with model(...) as m:`` closes the client at the end. A program that uses the model until it exits need not.

    Raises:
        TypeError: *name* is not a text.
        ValueError: *name* has no known provider or no model, or the SDK finds no key. The text says what to write, or
            which variable to set. Or pydantic-ai gets an *api_key*.
        ImportError: The SDK is not installed. The text says how to install it.
    """
    if not isinstance(name, str):
        raise TypeError(f"name has to be a text such as anthropic:claude-sonnet-5, not {type(name).__name__}")
    prefix, colon, model_name = name.partition(":")
    if not colon or not model_name or prefix not in (*PROVIDERS, PYDANTIC_AI):
        raise ValueError(_unknown_name(name, prefix if colon else ""))
    if prefix == PYDANTIC_AI:
        if api_key is not None:  # a gateway's would reach the provider behind it
            raise ValueError("pydantic-ai finds its keys itself: set the environment variable of its provider")
        return _pydantic_ai_model(model_name, retry=retry, **arguments)
    client = _client(PROVIDERS[prefix], None if api_key is None else Secret(api_key))
    if not retry:
        _ask_once(client)
    module, _, adapter = PROVIDERS[prefix].adapter.partition(".")
    make: Callable[..., ProviderModel] = getattr(import_module(f"mcp_host.providers.{module}"), adapter)
    return make(client, model_name, **arguments)


def _unknown_name(name: str, prefix: str) -> str:
    """What is wrong with *name*, and what to write."""
    known = [*PROVIDERS, PYDANTIC_AI]
    listed = f"the providers are {', '.join(known)}"
    if prefix in known:
        return f"{quoted(name)} names no model: write {prefix}:NAME"
    if not prefix:
        return f"{quoted(name)} names no provider: write anthropic:{name.strip(':') or 'claude-sonnet-5'}, for instance; {listed}"
    near = "".join(f"; did you mean {match!r}?" for match in get_close_matches(prefix, known, 1, MIN_SIMILARITY))
    return f"there is no provider {quoted(prefix)}{near or f': {listed}'}"


def _client(provider: Provider, api_key: Secret | None) -> object:
    """The client of the SDK, made from the environment, but for its key if there is an *api_key*."""
    client: object = None
    has_key = any(environ.get(key) for key in provider.keys)
    arguments: dict[str, object] = {}
    if api_key is not None:
        header = SecretValues({"authorization": f"Bearer {api_key}"})
        arguments = {"headers": header} if provider.key_in_header else {"api_key": api_key}
    elif environ.get(provider.base_url) and not has_key:
        arguments = {"api_key": "none"}  # a local server may need none, but the SDK requires one
    try:
        client = getattr(import_module(provider.sdk), provider.client)(**arguments)
    except ImportError as exc:
        raise ImportError(f"the SDK {provider.package} is not installed: pip install {provider.package}") from exc
    except Exception as exc:
        if has_key or arguments or not provider.keys:  # otherwise the missing key is the reason
            raise ValueError(f"the SDK {provider.package} makes no client: {excerpt(str(exc))}") from exc
    found = [getattr(client, name, None) for name in provider.credentials]  # older SDKs do not have all of them
    if client is None or (found and not any(found)):
        raise KeyNotFound(provider)
    return client


def _ask_once(client: Any) -> None:
    """Turn the retries of an SDK off. Those of Google and Ollama have none by default."""
    if hasattr(client, "max_retries"):
        client.max_retries = 0


def _pydantic_ai_model(name: str, *, retry: bool, **arguments: Any) -> ProviderModel:
    from mcp_host.providers.pydantic_ai import PydanticAIModel

    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as exc:
        raise ImportError("pydantic-ai is not installed: pip install pydantic-ai-slim") from exc
    try:
        pydantic_ai_model = infer_model(name)
    except ImportError as exc:  # its text says what to install
        raise ImportError(f"pydantic-ai: {exc}") from exc
    except UserError as exc:
        raise ValueError(f"pydantic-ai: {exc}") from exc
    if not retry:
        _ask_once(getattr(pydantic_ai_model, "client", None))
    return PydanticAIModel(pydantic_ai_model, **arguments)
