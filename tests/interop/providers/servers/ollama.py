"""Ollama's chat API as a local server: https://docs.ollama.com/api/chat.

``spec`` is Ollama's published description, https://github.com/ollama/ollama/blob/main/docs/openapi.yaml.
``docs`` is https://docs.ollama.com/. ``source`` is https://github.com/ollama/ollama (Go).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tests.interop.providers.scripted import Said, Turn
from tests.interop.providers.servers.base import JSON, Heard, ModelServer, Refusal, only
from tests.interop.providers.servers.schema_rules import problem_of

# spec: ChatRequest
REQUEST = (
    "model",
    "messages",
    "tools",
    "format",
    "options",
    "stream",
    "think",
    "keep_alive",
    "logprobs",
    "top_logprobs",
)
# spec: ChatMessage; docs capabilities/tool-calling (tool_name), capabilities/thinking; source api/types.go (tool_call_id)
MESSAGE = ("role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id")
ROLES = ("system", "user", "assistant", "tool")  # spec: ChatMessage.role
LEVELS = ("low", "medium", "high")  # spec: ChatRequest.think

INTEGERS = ("num_keep", "seed", "num_predict", "top_k", "repeat_last_n", "num_ctx", "num_batch", "num_gpu", "main_gpu")
NUMBERS = ("top_p", "min_p", "typical_p", "temperature", "repeat_penalty", "presence_penalty", "frequency_penalty")
OPTIONS: dict[str, tuple[type, ...]] = {  # spec: ModelOptions; source api/types.go, Options and Runner
    **dict.fromkeys((*INTEGERS, "num_thread", "draft_num_predict"), (int,)),
    **dict.fromkeys(NUMBERS, (int, float)),
    "use_mmap": (bool,),
    "stop": (list,),
}


class OllamaServer(ModelServer):
    """Speaks ``/api/chat``. A model that thought refuses its calls without their thinking.

    Ollama itself ignores fields that it does not know, and calls whose thinking is missing. Here both are refused:
    what is ignored is lost.
    """

    stream_type: ClassVar[str] = "application/x-ndjson"

    def say(self, *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> None:
        super().say(*turns, decide=decide)
        self._thoughts: list[tuple[list[JSON], str]] = []  # calls, with the thinking that they came with
        self._made = 0

    def check(self, heard: Heard) -> None:
        body = heard.body
        if heard.path != "/api/chat":
            raise Refusal("404 page not found", status=404)
        only(body, REQUEST, "")
        if not isinstance(body.get("model"), str) or not body["model"]:
            raise Refusal("model is required")
        for field in ("stream", "logprobs"):
            _check_type(body, field, (bool,), "ChatRequest")
        _check_type(body, "messages", (list,), "ChatRequest")
        self._check_tools(body)
        self._check_messages(body.get("messages") or [])
        _check_options(body.get("options"))
        check_format(body.get("format"))
        think = body.get("think")
        if think is not None and not isinstance(think, bool) and think not in LEVELS:
            raise Refusal(f'invalid think value: {think!r} (must be "high", "medium", "low", true, or false)')

    def _check_tools(self, body: JSON) -> None:
        """spec: ToolDefinition."""
        for tool in body.get("tools") or ():
            only(tool, ("type", "function"), "tools.")
            if tool.get("type") != "function":
                raise Refusal("tools.type: must be 'function'")
            function = tool["function"]
            only(function, ("name", "description", "parameters"), "tools.function.")
            if not isinstance(function.get("name"), str) or not function["name"]:
                raise Refusal("tools.function.name is required")
            if not isinstance(function.get("parameters"), dict) or function["parameters"].get("type") != "object":
                raise Refusal("tools.function.parameters: must be a JSON Schema of an object")
            if (problem := problem_of(function["parameters"])) is not None:
                raise Refusal(f"tools.function.parameters: {problem}")

    def _check_messages(self, messages: list[JSON]) -> None:
        """docs capabilities/tool-calling: a message for each call, in order, with its tool_name."""
        waiting: list[str] = []  # names of tools whose results are to come
        for message in messages:
            _check_fields(message)
            if message["role"] == "tool":
                name = waiting.pop(0) if waiting else None
                if name is None or message.get("tool_name") != name:
                    raise Refusal(f"the result of {name!r} is expected, not of {message.get('tool_name')!r}")
                continue
            if waiting:
                break
            waiting = self._check_calls(message)
        if waiting:
            raise Refusal(f"there is no result of {', '.join(waiting)}")

    def _check_calls(self, message: JSON) -> list[str]:
        """spec: ToolCall."""
        calls = message.get("tool_calls") or []
        for call in calls:
            only(call, ("id", "type", "function"), "messages.tool_calls.")
            only(call["function"], ("index", "name", "arguments"), "messages.tool_calls.function.")
            if not isinstance(call["function"].get("name"), str):
                raise Refusal("messages.tool_calls.function.name is required")
            _check_type(call["function"], "arguments", (dict,), "ChatRequest.messages.tool_calls.function")
        if calls:
            plain = list(map(_plain, calls))
            thoughts = [thinking for said, thinking in self._thoughts if said == plain]
            if thoughts and message.get("thinking") not in thoughts:
                # docs capabilities/thinking and tool-calling: the whole message of the answer is appended
                raise Refusal("the message with these tool_calls had another thinking")
        return [call["function"]["name"] for call in calls]

    # What it says

    def wants_stream(self, heard: Heard) -> bool:
        return heard.body.get("stream") is not False  # spec: ChatRequest.stream.default is true

    def reply(self, said: Said, heard: Heard) -> JSON:
        """spec: ChatResponse."""
        message: JSON = {"role": "assistant", "content": said.text}
        if said.thinking is not None:
            message["thinking"] = said.thinking
        calls = self._calls(said)
        if calls:
            message["tool_calls"] = calls
        return self._head(heard) | {"message": message} | _end(said)

    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        """spec: ChatStreamEvent; docs capabilities/streaming. A call is whole, in a message of its own."""

        def line(**fields: Any) -> bytes:
            return _line(self._head(heard) | {"message": {"role": "assistant", "content": "", **fields}, "done": False})

        yield from (line(thinking=piece) for piece in self.pieces(said.thinking or ""))
        yield from (line(content=piece) for piece in self.pieces(said.text))
        yield from (line(tool_calls=[call]) for call in self._calls(said))
        yield _line(self._head(heard) | {"message": {"role": "assistant", "content": ""}} | _end(said))

    def error(self, status: int, message: str) -> JSON:
        """docs api/errors."""
        return {"error": message}

    def _head(self, heard: Heard) -> JSON:
        return {"model": heard.body["model"], "created_at": "2026-11-01T12:00:00.123456789Z"}

    def _calls(self, said: Said) -> list[JSON]:
        calls = []
        for index, called in enumerate(said.calls):
            assert not isinstance(called.arguments, str), "Ollama's arguments are an object"
            self._made += 1
            function = {"index": index, "name": called.name, "arguments": dict(called.arguments)}
            calls.append({"id": called.id or f"call_{self._made:08x}", "function": function})
        if calls and said.thinking is not None:
            self._thoughts.append((list(map(_plain, calls)), said.thinking))
        return calls


def _plain(call: JSON) -> JSON:
    """A call as every client sends it back: not all keep its id and its index."""
    return {"name": call["function"]["name"], "arguments": call["function"].get("arguments")}


def _check_fields(message: JSON) -> None:
    """spec: ChatMessage."""
    only(message, MESSAGE, "messages.")
    role = message.get("role")
    if role not in ROLES:
        raise Refusal(f"invalid role: {role!r}, must be one of {list(ROLES)}")
    for field in ("content", "thinking", "tool_name", "tool_call_id"):
        _check_type(message, field, (str,), "ChatRequest.messages")
    _check_images(message.get("images"))
    if role == "tool" and "content" not in message:
        raise Refusal("a message with role 'tool' has content")
    if role != "tool" and {"tool_name", "tool_call_id"} & set(message):
        raise Refusal(f"tool_name is for messages with role 'tool', not {role!r}")
    if role != "assistant" and {"thinking", "tool_calls"} & set(message):
        raise Refusal(f"thinking and tool_calls are for messages with role 'assistant', not {role!r}")


def _check_type(value: JSON, field: str, kinds: tuple[type, ...], where: str) -> None:
    """source: what Go cannot unmarshal."""
    if value.get(field) is not None and not isinstance(value[field], kinds):
        kind = type(value[field]).__name__
        raise Refusal(f"json: cannot unmarshal {kind} into Go struct field {where}.{field} of type {kinds[0].__name__}")


def _check_images(images: object) -> None:
    """spec: ChatMessage.images, base64 without a ``data:`` prefix."""
    if images is None:
        return
    if not isinstance(images, list):
        raise Refusal("json: cannot unmarshal into Go struct field ChatRequest.messages.images")
    for image in images:
        try:
            base64.b64decode(image, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise Refusal("illegal base64 data at input byte 0") from None


def _check_options(options: Any) -> None:
    """spec: ModelOptions; source api/types.go, Options.FromMap."""
    if options is None:
        return
    if not isinstance(options, dict):
        raise Refusal("json: cannot unmarshal into Go struct field ChatRequest.options of type map[string]interface")
    only(options, list(OPTIONS), "options.")
    for name, value in options.items():
        if isinstance(value, bool) != (OPTIONS[name] == (bool,)) or not isinstance(value, OPTIONS[name]):
            raise Refusal(f"option {name!r} must be of type {OPTIONS[name][-1].__name__}")
    if not all(isinstance(stop, str) for stop in options.get("stop", [])):
        raise Refusal("option 'stop' must be of an array of strings")


def check_format(asked: object) -> None:
    """spec: ChatRequest.format; docs capabilities/structured-outputs."""
    if asked not in (None, "", "json") and not isinstance(asked, dict):
        raise Refusal(f'invalid format: {asked!r}; expected "json" or a valid JSON Schema object')
    if isinstance(asked, dict) and (problem := problem_of(asked)) is not None:
        raise Refusal(f"invalid format: {problem}")


def _end(said: Said) -> JSON:
    """spec: ChatResponse. Ollama has no word for refusals and filters, nor for stop sequences."""
    sent, written = said.tokens
    return {
        "done": True,
        "done_reason": "length" if said.stop == "max_tokens" else "stop",
        "total_duration": 5191566416,
        "load_duration": 2154458,
        "prompt_eval_count": sent,
        "prompt_eval_duration": 383809000,
        "eval_count": written,
        "eval_duration": 4799921000,
    }


def _line(data: JSON) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"
