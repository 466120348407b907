"""Adapters: sampling handlers that ask real models, through your own client of the provider's SDK."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_host.providers.adapter import ProviderModel
    from mcp_host.providers.anthropic import AnthropicModel
    from mcp_host.providers.choice import AllowModels, Choice, Model, Models
    from mcp_host.providers.exchange.reasoning import ReasoningStore
    from mcp_host.providers.exchange.streams import Delta, OnDelta
    from mcp_host.providers.gemini import GeminiModel
    from mcp_host.providers.lookup import model
    from mcp_host.providers.ollama import OllamaModel
    from mcp_host.providers.openai_chat import OpenAIChatModel
    from mcp_host.providers.openai_responses import OpenAIModel
    from mcp_host.providers.pydantic_ai import PydanticAIModel
    from mcp_host.sampling.request import ModelAnswer, Usage

__all__ = [
    "AllowModels",
    "AnthropicModel",
    "Choice",
    "Delta",
    "GeminiModel",
    "Model",
    "ModelAnswer",
    "Models",
    "OllamaModel",
    "OnDelta",
    "OpenAIChatModel",
    "OpenAIModel",
    "ProviderModel",
    "PydanticAIModel",
    "ReasoningStore",
    "Usage",
    "model",
]


# Imported on first use, by module: a host uses one or two of them.
_ON_DEMAND = {
    "mcp_host.providers.adapter": ("ProviderModel",),
    "mcp_host.providers.anthropic": ("AnthropicModel",),
    "mcp_host.providers.choice": ("AllowModels", "Choice", "Model", "Models"),
    "mcp_host.providers.gemini": ("GeminiModel",),
    "mcp_host.providers.lookup": ("model",),
    "mcp_host.providers.ollama": ("OllamaModel",),
    "mcp_host.providers.openai_chat": ("OpenAIChatModel",),
    "mcp_host.providers.openai_responses": ("OpenAIModel",),
    "mcp_host.providers.pydantic_ai": ("PydanticAIModel",),
    "mcp_host.providers.exchange.reasoning": ("ReasoningStore",),
    "mcp_host.providers.exchange.streams": ("Delta", "OnDelta"),
    "mcp_host.sampling.request": ("ModelAnswer", "Usage"),
}


def __getattr__(name: str) -> object:
    for module, names in _ON_DEMAND.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(module), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # as in `mcp_host`
