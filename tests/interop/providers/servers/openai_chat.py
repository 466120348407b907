"""OpenAI Chat Completions as a local server: https://platform.openai.com/docs/api-reference/chat/create.

``spec`` is OpenAI's published description, https://github.com/openai/openai-openapi (openapi.json).
``guide`` is https://platform.openai.com/docs/guides/.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import ClassVar

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from tests.interop.providers.scripted import Called, Said, Turn
from tests.interop.providers.servers import openai_rules as rules
from tests.interop.providers.servers.base import JSON, Heard, ModelServer, Refusal, sse

LONGEST_NAME = 64  # spec: FunctionObject.name, "with a maximum length of 64"
MISTRAL_CALL_ID = re.compile(
    "[a-zA-Z0-9]{9}"
)  # https://docs.vllm.ai/en/v0.15.0/api/vllm/tool_parsers/mistral_tool_parser/
LONGEST_CALL_ID = 40  # https://github.com/vercel/ai/issues/8132: "maximum length 40"
MAX_TOOLS = 128  # spec: CreateChatCompletionRequest.tools, "A max of 128 functions are supported"
MAX_STOPS = 4  # spec: StopConfiguration.maxItems
AUDIO_MODELS = ("gpt-4o-audio", "gpt-audio")  # guide audio: the models that take input_audio


@cache
def _described(stream: bool) -> rules.Described:
    return rules.Described(CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming)


class OpenAIChatServer(ModelServer):
    """Speaks Chat Completions. Models that begin with ``gpt-5`` or ``o`` and a digit take what reasoning models take.

    An answer has no thinking: OpenAI keeps it to itself in this API.
    """

    longest_description: ClassVar[float] = 1024  # https://github.com/getsentry/sentry-mcp/issues/106

    compatible: ClassVar[bool] = False

    def say(self, *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> None:
        super().say(*turns, decide=decide)
        self._thought: dict[str, list[str | None]] = {}  # by the id of a call, which a script may repeat
        self._made = 0

    def check(self, heard: Heard) -> None:
        body = heard.body
        if heard.path.partition("?")[0] not in ("/chat/completions", "/v1/chat/completions"):
            raise Refusal(f"Invalid URL (POST {heard.path})", status=404)
        rules.check_bearer(heard.headers, self.key)
        self._check_types(body)
        self._check_tools(body)
        self._check_messages(body["messages"], body["model"])
        self._check_format(body)
        rules.check_metadata(body.get("metadata"))
        if body.get("metadata") is not None and not body.get("store") and not self.compatible:
            # https://github.com/QwenLM/qwen-code/issues/243
            raise Refusal("The 'metadata' parameter is only allowed when 'store' is enabled.")
        _check_model(body)

    def _check_types(self, body: JSON) -> None:
        stripped = body
        if self.compatible and isinstance(body.get("messages"), list):
            messages = [
                {key: value for key, value in message.items() if key != "reasoning_content"}
                if message.get("role") == "assistant"
                else message
                for message in body["messages"]
            ]
            stripped = {**body, "messages": messages}
        _described(body.get("stream") is True).check(stripped)

    def _check_tools(self, body: JSON) -> None:
        tools = body.get("tools")
        if tools is None:
            for field in ("tool_choice", "parallel_tool_calls"):
                if body.get(field) is not None:
                    # https://github.com/openai/swarm/issues/30
                    raise Refusal(f"Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified.")
            return
        if not tools:
            raise Refusal("Invalid 'tools': empty array. Expected an array with minimum length 1.")
        if len(tools) > MAX_TOOLS:
            raise Refusal(f"Invalid 'tools': array too long. Expected an array with maximum length {MAX_TOOLS}.")
        functions = [tool["function"] for tool in tools]
        for index, function in enumerate(functions):
            rules.check_name(function["name"], f"tools[{index}].function.name", LONGEST_NAME)
            if len(function.get("description", "")) > self.longest_description:
                where = f"tools[{index}].function.description"
                raise Refusal(f"Invalid '{where}': string too long. Expected a string with maximum length 1024.")
            if "parameters" in function:
                strict = function.get("strict") is True
                rules.check_parameters(function["parameters"], function["name"], strict=strict)
        names = [function["name"] for function in functions]
        rules.check_unique(names)
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice["type"] == "function" and choice["function"]["name"] not in names:
            # spec: ChatCompletionNamedToolChoice, one of the tools
            raise Refusal("Tool choice 'function' not found in 'tools' parameter.")

    def _check_messages(self, messages: list[JSON], model: str) -> None:
        if not messages:  # spec: CreateChatCompletionRequest.messages.minItems
            raise Refusal("Invalid 'messages': empty array. Expected an array with minimum length 1.")
        open_ids: list[str] = []
        answered: list[str] = []
        for index, message in enumerate(messages):
            where = f"messages[{index}]"
            if message["role"] == "tool":
                self._check_result(message, where, open_ids, answered)
                continue
            # https://github.com/evalstate/fast-agent/issues/314
            _check_answered(open_ids, where)
            open_ids, answered = [], []
            _check_content(message, where, model)
            if message["role"] == "assistant":
                open_ids = self._check_calls(message, where, model)
        _check_answered(open_ids, "messages")

    def _check_result(self, message: JSON, where: str, open_ids: list[str], answered: list[str]) -> None:
        """spec: ChatCompletionRequestToolMessage; https://github.com/openai/openai-agents-python/issues/873."""
        if not open_ids and not answered:
            raise Refusal(
                f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                f"'tool_calls' ({where})."
            )
        call_id = message["tool_call_id"]
        if call_id in answered:
            raise Refusal(f"Duplicate value for 'tool_call_id' of '{call_id}' in {where}.")
        if call_id not in open_ids:
            raise Refusal(
                f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message "
                f"({where})."
            )
        if isinstance(message["content"], list) and not message["content"]:  # spec: minItems; text parts only: types
            raise Refusal(f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.")
        open_ids.remove(call_id)
        answered.append(call_id)

    def _check_calls(self, message: JSON, where: str, model: str) -> list[str]:
        calls = message.get("tool_calls")
        if calls is None:
            return []
        if not calls:
            raise Refusal(f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1.")
        for index, call in enumerate(calls):
            place = f"{where}.tool_calls[{index}]"
            rules.check_name(call["function"]["name"], f"{place}.function.name", LONGEST_NAME)
            if len(call["id"]) > LONGEST_CALL_ID:
                raise Refusal(f"Invalid '{place}.id': string too long. Expected maximum length {LONGEST_CALL_ID}.")
            if "mistral" in model and not MISTRAL_CALL_ID.fullmatch(call["id"]):
                raise Refusal(f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9.")
            thoughts = self._thought.get(call["id"], [None])
            if None not in thoughts and message.get("reasoning_content") not in thoughts:
                # DeepSeek, thinking_mode: without it "the API will return a 400 error"
                raise Refusal("The reasoning content from thinking mode must be passed back to the API.")
        ids = [call["id"] for call in calls]
        for call_id in ids:
            if ids.count(call_id) > 1:
                raise Refusal(f"Duplicate value for 'tool_call_id' of '{call_id}' in {where}.")
        return ids

    def _check_format(self, body: JSON) -> None:
        asked = body.get("response_format") or {}
        if asked.get("type") == "json_object":
            rules.check_json_is_asked_for(body, "messages")
        if asked.get("type") == "json_schema":
            described = asked["json_schema"]
            rules.check_name(described["name"], "response_format.json_schema.name", LONGEST_NAME)
            if described.get("strict"):
                rules.check_strict(described.get("schema"), f"response_format '{described['name']}'")

    # What it says

    def wants_stream(self, heard: Heard) -> bool:
        return heard.body.get("stream") is True

    def reply(self, said: Said, heard: Heard) -> JSON:
        message: JSON = {"role": "assistant", "content": said.text or None, "refusal": None, "annotations": []}
        if said.stop == "refusal":
            message |= {"content": None, "refusal": said.text}
        if said.thinking is not None and self.compatible:
            message["reasoning_content"] = said.thinking
        calls = self._calls(said)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(said)}
        return self._head("chat.completion", heard) | {"choices": [choice], "usage": _usage(said)}

    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        """spec: CreateChatCompletionStreamResponse."""
        head = self._head("chat.completion.chunk", heard)
        counted = (heard.body.get("stream_options") or {}).get("include_usage") is True

        def chunk(delta: JSON, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return sse(head | {"choices": [choice]} | ({"usage": None} if counted else {}))

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        if said.thinking is not None and self.compatible:
            yield from (chunk({"reasoning_content": piece}) for piece in self.pieces(said.thinking))
        field = "refusal" if said.stop == "refusal" else "content"
        yield from (chunk({field: piece}) for piece in self.pieces(said.text))
        calls = self._calls(said)
        for index, call in enumerate(calls):  # before any arguments
            opened = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
            yield chunk({"tool_calls": [{"index": index, **opened}]})
        for index, piece in rules.grow(self, said, [call["function"]["arguments"] for call in calls]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, _finish(said))
        if counted:  # spec: ChatCompletionStreamOptions.include_usage
            yield sse(head | {"choices": [], "usage": _usage(said)})
        yield b"data: [DONE]\n\n"

    def error(self, status: int, message: str) -> JSON:
        return rules.error_json(status, message)

    def _head(self, kind: str, heard: Heard) -> JSON:
        self._made += 1
        return {
            "id": f"chatcmpl-{self._made}",
            "object": kind,
            "created": 1_760_000_000,
            "model": heard.body["model"],
            "service_tier": "default",
            "system_fingerprint": None,
        }

    def _calls(self, said: Said) -> list[JSON]:
        calls = []
        for called in said.calls:
            self._made += 1
            call_id = called.id or f"call_{self._made:024}"
            self._thought.setdefault(call_id, []).append(said.thinking if self.compatible else None)
            function = {"name": called.name, "arguments": _arguments(called)}
            calls.append({"id": call_id, "type": "function", "function": function})
        return calls


class CompatibleChatServer(OpenAIChatServer):
    """Has what servers of others add: ``reasoning_content`` in answers, which must come back with their calls.

    https://api-docs.deepseek.com/guides/thinking_mode, "Tool Calls".
    """

    longest_description = math.inf

    compatible = True


def _check_answered(open_ids: list[str], where: str) -> None:
    if open_ids:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_ids)} "
            f"({where})"
        )


def _check_content(message: JSON, where: str, model: str) -> None:
    content = message.get("content")
    if content is None:
        # spec: ChatCompletionRequestAssistantMessage.content, "Required unless `tool_calls` or `function_call`"
        if message["role"] == "assistant" and not {"tool_calls", "refusal", "audio"} & set(message):
            raise Refusal(f"Invalid value for 'content': expected a string, got null. ({where})")
        return
    if not isinstance(content, list):
        return
    if not content:  # spec: minItems
        raise Refusal(f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.")
    for index, part in enumerate(content):
        _check_part(part, f"{where}.content[{index}]", model)


def _check_part(part: JSON, place: str, model: str) -> None:
    match part["type"]:
        case "image_url":
            rules.check_image(part["image_url"]["url"], f"{place}.image_url.url")
        case "input_audio":
            rules.check_base64(part["input_audio"]["data"], f"{place}.input_audio.data")
            if not model.startswith(AUDIO_MODELS):
                raise Refusal("This model does not support input_audio.")
        case "file":
            file = part["file"]
            if ("file_data" in file) == ("file_id" in file):  # guide pdf-files
                raise Refusal(f"Invalid '{place}.file': one of 'file_id' and 'file_data' is required.")
            if "file_data" in file and "filename" not in file:
                raise Refusal(f"Missing required parameter: '{place}.file.filename'.")
        case _:
            pass  # text, as the types say


def _check_model(body: JSON) -> None:
    stop = body.get("stop")
    if isinstance(stop, list) and not 1 <= len(stop) <= MAX_STOPS:
        raise Refusal(f"Invalid 'stop': expected an array of 1 to {MAX_STOPS} strings.")
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise Refusal("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    if body.get("stream_options") is not None and body.get("stream") is not True:
        # spec: ChatCompletionStreamOptions, "Only set this when you set `stream: true`"
        raise Refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    if not rules.REASONING.match(body["model"]):
        if body.get("reasoning_effort") is not None:
            raise Refusal("Unrecognized request argument supplied: reasoning_effort")
        return
    # spec: max_tokens "not compatible with o-series models"; StopConfiguration; guide reasoning
    if body.get("max_tokens") is not None:
        raise Refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
        )
    if stop is not None:
        raise Refusal("Unsupported parameter: 'stop' is not supported with this model.")
    for field in ("temperature", "top_p"):
        if body.get(field) not in (None, 1):
            raise Refusal(f"Unsupported value: '{field}' does not support {body[field]} with this model.")


def _finish(said: Said) -> str:
    if said.stop == "end":
        return "tool_calls" if said.calls else "stop"
    return {"max_tokens": "length", "content_filter": "content_filter"}.get(said.stop, "stop")


def _usage(said: Said) -> JSON:
    """spec: CompletionUsage."""
    sent, written = said.tokens
    return {
        "prompt_tokens": sent,
        "completion_tokens": written,
        "total_tokens": sent + written,
        "prompt_tokens_details": {"cached_tokens": said.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0 if said.thinking is None else min(3, written),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _arguments(called: Called) -> str:
    return called.arguments if isinstance(called.arguments, str) else json.dumps(called.arguments)
