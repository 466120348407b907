"""Models that cost nothing: each stands for the client of a provider's SDK, and answers at once in the JSON of its API.

So what is measured is the adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from benchmarks.clients.drive import Model
from mcp_host.providers import AnthropicModel, GeminiModel, OllamaModel, OpenAIChatModel, OpenAIModel
from mcp_host.providers.adapter import ProviderModel

NAME = "free"


class Anthropic:
    """Of `anthropic.AsyncAnthropic`: ``messages.create``."""

    def __init__(self, model: Model) -> None:
        self.messages = self
        self._model = model

    async def create(self, **body: Any) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": NAME,
            "content": [{"type": "text", "text": self._model(len(body.get("tools", ())), len(body["messages"]))}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7},
        }


class Responses:
    """Of `openai.AsyncOpenAI`: ``responses.create``."""

    def __init__(self, model: Model) -> None:
        self.responses = self
        self._model = model

    async def create(self, *, extra_body: dict[str, Any], **_: Any) -> dict[str, Any]:
        text = self._model(len(extra_body.get("tools", ())), len(extra_body["input"]))
        part = {"type": "output_text", "text": text, "annotations": []}
        return {
            "id": "resp_1",
            "object": "response",
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "model": NAME,
            "output": [
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            ],
            "usage": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
        }


class ChatCompletions:
    """Of `openai.AsyncOpenAI`: ``chat.completions.create``."""

    def __init__(self, model: Model) -> None:
        self.chat = self.completions = self
        self._model = model

    async def create(self, *, extra_body: dict[str, Any], **_: Any) -> dict[str, Any]:
        text = self._model(len(extra_body.get("tools", ())), len(extra_body["messages"]))
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": NAME,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }


class Gemini:
    """Of `google.genai.Client`: ``aio.models.generate_content``, and of its answer ``sdk_http_response.body``.

    Each request has another text there, which the adapter parses.
    """

    BEFORE = '{"candidates":[{"content":{"role":"model","parts":[{"text":'
    AFTER = (
        f'}}]}},"finishReason":"STOP","index":0}}],"modelVersion":"{NAME}",'
        '"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":7,"totalTokenCount":18}}'
    )

    def __init__(self, model: Model) -> None:
        self.aio = self.models = self.sdk_http_response = self
        self.vertexai = False
        self.body = ""
        self._model = model

    async def generate_content(self, *, config: dict[str, Any], **_: Any) -> Gemini:
        body = config["http_options"]["extra_body"]
        tools = body["tools"][0]["functionDeclarations"] if "tools" in body else ()
        text = to_json(self._model(len(tools), len(body["contents"]))).decode()
        self.body = f"{self.BEFORE}{text}{self.AFTER}"
        return self


class Ollama:
    """Of `ollama.AsyncClient`: what its ``chat`` calls."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def chat(self) -> None:
        raise AssertionError("the adapter reads what the SDK does not know, too")

    async def _request(self, *_: object, json: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": NAME,
            "created_at": "2026-11-24T00:00:00Z",
            "message": {
                "role": "assistant",
                "content": self._model(len(json.get("tools", ())), len(json["messages"])),
            },
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 11,
            "eval_count": 7,
        }


ADAPTERS: dict[str, Callable[[Model], ProviderModel]] = {
    "anthropic": lambda model: AnthropicModel(Anthropic(model), NAME),
    "openai": lambda model: OpenAIModel(Responses(model), NAME),
    "openai-chat": lambda model: OpenAIChatModel(ChatCompletions(model), NAME),
    "gemini": lambda model: GeminiModel(Gemini(model), NAME),
    "ollama": lambda model: OllamaModel(Ollama(model), NAME),
}
