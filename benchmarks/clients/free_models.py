"""Models that cost nothing: each stands for the client of a provider's SDK, and answers at once in the JSON of its API.

So what is measured is the adapter. Requests come one after another, and each gets the same objects with another text.
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
        self._block = {"type": "text", "text": ""}
        self._reply = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": NAME,
            "content": [self._block],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7},
        }

    async def create(self, **body: Any) -> dict[str, Any]:
        self._block["text"] = self._model(len(body.get("tools", ())), len(body["messages"]))
        return self._reply


class Responses:
    """Of `openai.AsyncOpenAI`: ``responses.create``."""

    def __init__(self, model: Model) -> None:
        self.responses = self
        self._model = model
        self._part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
        self._reply = {
            "id": "resp_1",
            "object": "response",
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "model": NAME,
            "output": [
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [self._part]}
            ],
            "usage": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
        }

    async def create(self, *, extra_body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._part["text"] = self._model(len(extra_body.get("tools", ())), len(extra_body["input"]))
        return self._reply


class ChatCompletions:
    """Of `openai.AsyncOpenAI`: ``chat.completions.create``."""

    def __init__(self, model: Model) -> None:
        self.chat = self.completions = self
        self._model = model
        self._message = {"role": "assistant", "content": ""}
        self._reply = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": NAME,
            "choices": [{"index": 0, "message": self._message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }

    async def create(self, *, extra_body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._message["content"] = self._model(len(extra_body.get("tools", ())), len(extra_body["messages"]))
        return self._reply


class Gemini:
    """Of `google.genai.Client`: ``aio.models.generate_content``, and of its answer ``sdk_http_response.body``.

    The adapter parses that for each request.
    """

    BEFORE = '{"candidates":[{"content":{"role":"model","parts":[{"text":'
    AFTER = (
        f'}}]}},"finishReason":"STOP","index":0}}],"modelVersion":"{NAME}",'
        '"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":7,"totalTokenCount":18}}'
    )

    def __init__(self, model: Model) -> None:
        self.aio = self.models = self.sdk_http_response = self
        self.vertexai = False
        self.body = self._text = ""
        self._model = model

    async def generate_content(self, *, config: dict[str, Any], **_: Any) -> Gemini:
        body = config["http_options"]["extra_body"]
        tools = body["tools"][0]["functionDeclarations"] if "tools" in body else ()
        text = self._model(len(tools), len(body["contents"]))
        if text != self._text:
            self._text, self.body = text, f"{self.BEFORE}{to_json(text).decode()}{self.AFTER}"
        return self


class Ollama:
    """Of `ollama.AsyncClient`: what its ``chat`` calls."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._message = {"role": "assistant", "content": ""}
        self._reply = {
            "model": NAME,
            "created_at": "2026-11-24T00:00:00Z",
            "message": self._message,
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 11,
            "eval_count": 7,
        }

    async def chat(self) -> None:
        raise AssertionError("the adapter reads what the SDK does not know, too")

    async def _request(self, *_: object, json: dict[str, Any]) -> dict[str, Any]:
        self._message["content"] = self._model(len(json.get("tools", ())), len(json["messages"]))
        return self._reply


ADAPTERS: dict[str, Callable[[Model], ProviderModel]] = {
    "anthropic": lambda model: AnthropicModel(Anthropic(model), NAME),
    "openai": lambda model: OpenAIModel(Responses(model), NAME),
    "openai-chat": lambda model: OpenAIChatModel(ChatCompletions(model), NAME),
    "gemini": lambda model: GeminiModel(Gemini(model), NAME),
    "ollama": lambda model: OllamaModel(Ollama(model), NAME),
}
