"""A model by its name: ``model("anthropic:claude-sonnet-5")`` makes the client of the provider's SDK and the adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from os import environ
from typing import Any

from mcp_host.errors import excerpt, quoted
from mcp_host.providers.adapter import ProviderModel


@dataclass(frozen=True, slots=True)
class Provider:
    """How to make the client and the adapter of one provider. Nothing is imported before it is needed."""

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
    """Attributes of the client, one of which is set if it has a key: for an SDK that does not say so until it is used."""
    base_url: str = ""
    """The environment variable with the URL of another server of the same API, such as a local one, which may need no key."""


OPENAI_KEYS = ("OPENAI_API_KEY",)

PROVIDERS = {
    "anthropic": Provider(
        *("anthropic", "AsyncAnthropic", "anthropic.AnthropicModel", "anthropic"),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        credentials=("api_key", "auth_token", "credentials"),
    ),
    "openai": Provider(
        *("openai", "AsyncOpenAI", "openai_responses.OpenAIModel", "openai", OPENAI_KEYS), base_url="OPENAI_BASE_URL"
    ),
    "openai-chat": Provider(
        *("openai", "AsyncOpenAI", "openai_chat.OpenAIChatModel", "openai", OPENAI_KEYS), base_url="OPENAI_BASE_URL"
    ),
    "gemini": Provider(
        *("google.genai", "Client", "gemini.GeminiModel", "google-genai"), keys=("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "ollama": Provider("ollama", "AsyncClient", "ollama.OllamaModel", "ollama"),
}

PYDANTIC_AI = "pydantic-ai"

LIKENESS = 0.75  # of a name to the one that is suggested: that of "nope" to "openai" is 0.6


def model(name: str, /, **arguments: Any) -> ProviderModel:
    """The model called *name*: ``anthropic:claude-sonnet-5``, ``openai:gpt-6``, ``gemini:…`` or ``ollama:…``.

    ``openai:`` is OpenAI's Responses API; ``openai-chat:`` is its Chat Completions API, which many other servers speak.
    ``pydantic-ai:groq:llama-4`` is any model of pydantic-ai by the name that it has there.

    The client is made here by the provider's SDK, which has to be installed and reads its own environment variables:
    ``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY``, ``OPENAI_BASE_URL``, ``GEMINI_API_KEY``, ``OLLAMA_HOST`` and so on. Another server at
    ``OPENAI_BASE_URL``, such as a local one, may do without a key.
    *arguments* are those of the adapter: `options`, `stream` and so on.

    ``async with model(...) as m:`` closes the client at the end. A program that uses the model until it exits need not.

    Raises:
        TypeError: *name* is no text.
        ValueError: There is no such provider, its name is missing, or the SDK finds no key. The text says which
            variable to set.
        ImportError: The SDK is not installed. The text says how to install it.
    """
    if not isinstance(name, str):
        raise TypeError(f"name has to be a text such as anthropic:claude-sonnet-5, not {type(name).__name__}")
    prefix, colon, its_name = name.partition(":")
    if not colon or not its_name or prefix not in (*PROVIDERS, PYDANTIC_AI):
        raise ValueError(_no_such_model(name, prefix if colon else ""))
    if prefix == PYDANTIC_AI:
        return _pydantic_ai_model(its_name, **arguments)
    client = _client(PROVIDERS[prefix])
    module, _, adapter = PROVIDERS[prefix].adapter.partition(".")
    make: Callable[..., ProviderModel] = getattr(import_module(f"mcp_host.providers.{module}"), adapter)
    return make(client, its_name, **arguments)


def _no_such_model(name: str, prefix: str) -> str:
    known = [*PROVIDERS, PYDANTIC_AI]
    listed = f"the providers are {', '.join(known)}"
    if prefix in known:
        return f"{quoted(name)} names no model of {prefix}"
    if not prefix:
        return f"{quoted(name)} names no provider: write anthropic:{name.strip(':') or 'claude-sonnet-5'}, for instance; {listed}"
    near = "".join(f"; did you mean {match!r}?" for match in get_close_matches(prefix, known, 1, LIKENESS))
    return f"there is no provider {quoted(prefix)}{near or f': {listed}'}"


def _client(provider: Provider) -> object:
    """The client of the SDK, made from the environment."""
    client: object = None
    has_key = any(environ.get(key) for key in provider.keys)
    # Another server may need no key. The SDK does not do without one.
    arguments = {"api_key": "none"} if environ.get(provider.base_url) and not has_key else {}
    try:
        client = getattr(import_module(provider.sdk), provider.client)(**arguments)
    except ImportError as exc:
        raise ImportError(f"the SDK {provider.package} is not installed: pip install {provider.package}") from exc
    except Exception as exc:
        if has_key or not provider.keys:
            raise ValueError(f"the SDK {provider.package} makes no client: {excerpt(str(exc))}") from exc
    if client is None or (provider.credentials and not any(getattr(client, name) for name in provider.credentials)):
        variables = " or ".join(provider.keys)
        raise ValueError(f"the SDK {provider.package} finds no key: set the environment variable {variables}")
    return client


def _pydantic_ai_model(name: str, **arguments: Any) -> ProviderModel:
    from mcp_host.providers.pydantic_ai import PydanticAIModel

    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as exc:
        raise ImportError("pydantic-ai is not installed: pip install pydantic-ai-slim") from exc
    try:
        its_model = infer_model(name)
    except ImportError as exc:  # its text says what to install
        raise ImportError(f"pydantic-ai: {exc}") from exc
    except UserError as exc:
        raise ValueError(f"pydantic-ai: {exc}") from exc
    return PydanticAIModel(its_model, **arguments)
