"""Anthropic Messages, from its published description: no line here was written with our adapter in sight.

Where a rule comes from stands beside it:

* [messages]: https://platform.claude.com/docs/en/api/messages, and the types of the official SDK, which are generated from it
* [errors]: https://platform.claude.com/docs/en/api/errors
* [streaming]: https://platform.claude.com/docs/en/build-with-claude/streaming
* [thinking]: https://platform.claude.com/docs/en/build-with-claude/thinking, and .../thinking-tool-workflows
* [tools]: https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls, and .../define-tools
* [vision]: https://platform.claude.com/docs/en/build-with-claude/vision
* [versions]: https://platform.claude.com/docs/en/api/versioning, and .../api/migration-2026-10-21
* [models]: https://platform.claude.com/docs/en/about-claude/models/migration-guide
* [seen]: an answer of the real API that users published; the issue is named
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.interop.providers.scripted import Said
from tests.interop.providers.servers.base import JSON, Heard, ModelServer, Refusal, only, sse
from tests.interop.providers.servers.schema_rules import problem_of

# [messages]
FIELDS = (
    "cache_control", "container", "diagnostics", "inference_geo", "max_tokens", "messages", "metadata", "model",
    "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "thinking", "tool_choice", "tools",
)  # fmt: skip
# [versions]: "The temperature, top_p, and top_k request parameters are removed" since 2026-10-21
VERSIONS = {"2026-10-21": FIELDS, "2023-06-01": (*FIELDS, "temperature", "top_k", "top_p")}
# [models]: "Setting temperature, top_p or top_k returns a 400 error" since Opus 4.7; prefills fail, too
NEW_MODELS = re.compile(r"claude-(opus-4-[78]|(opus|sonnet|haiku|fable)-5)")

# [messages]: the fields of each block that a client may send
BLOCKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ("cache_control", "citations")),
    "image": (("source",), ("cache_control", "transformations")),
    "document": (("source",), ("cache_control", "citations", "context", "title")),
    "search_result": (("content", "source", "title"), ("cache_control", "citations")),
    "thinking": (("signature", "thinking"), ()),
    "redacted_thinking": (("data",), ()),
    "tool_use": (("id", "input", "name"), ("cache_control", "caller", "toolset_name")),
    "tool_result": (("tool_use_id",), ("cache_control", "content", "is_error", "toolset_name")),
}
IN_USER = ("text", "image", "document", "search_result", "tool_result")
IN_ASSISTANT = ("text", "thinking", "redacted_thinking", "tool_use")
IN_TOOL_RESULT = ("text", "image", "document", "search_result")

# [messages]: the sources of images and documents
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "image": {"base64": ("data", "media_type"), "url": ("url",), "file": ("file_id",)},
    "document": {
        "base64": ("data", "media_type"),
        "text": ("data", "media_type"),
        "content": ("content",),
        "url": ("url",),
        "file": ("file_id",),
    },
}
MEDIA_TYPES = {
    ("image", "base64"): ("image/jpeg", "image/png", "image/gif", "image/webp"),
    ("document", "base64"): ("application/pdf",),
    ("document", "text"): ("text/plain",),
}
MAGIC = {"image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG\r\n\x1a\n", "image/gif": b"GIF8", "image/webp": b"RIFF"}

# [errors]
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

TOOL_NAME = r"^[a-zA-Z0-9_-]{1,128}$"  # [tools]
TOOL_ID = r"^[a-zA-Z0-9_-]+$"  # [seen] farion1231/cc-switch#1181
PROPERTY = r"^[a-zA-Z0-9_.-]{1,64}$"  # [seen] anthropics/claude-code#79418


def matches(value: object, pattern: str, where: str) -> str:
    if not isinstance(value, str):
        raise Refusal(f"{where}: Input should be a valid string")
    if not re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value):
        raise Refusal(f"{where}: String should match pattern '{pattern}'")
    return value


def check_text(block: JSON, where: str) -> None:
    if not isinstance(block["text"], str):
        raise Refusal(f"{where}.text: Input should be a valid string")
    if not block["text"]:  # [seen] anthropics/claude-code#59812
        raise Refusal("messages: text content blocks must be non-empty")
    if not block["text"].strip():  # [seen] anthropics/claude-code#23440
        raise Refusal("messages: text content blocks must contain non-whitespace text")


def check_source(kind: str, source: Any, where: str) -> None:
    if not isinstance(source, dict) or source.get("type") not in SOURCES[kind]:
        raise Refusal(f"{where}.source: Input tag does not match any of the expected tags: {[*SOURCES[kind]]}")
    fields = SOURCES[kind][source["type"]]
    only(source, ("type", *fields), f"{where}.source.{source['type']}.")
    for name in fields:
        if name not in source:
            raise Refusal(f"{where}.source.{source['type']}.{name}: Field required")
    allowed = MEDIA_TYPES.get((kind, source["type"]))
    if allowed is not None and source["media_type"] not in allowed:
        raise Refusal(f"{where}.source.{source['type']}.media_type: Input should be {' or '.join(allowed)}")
    if source["type"] == "base64":
        try:
            data = base64.b64decode(source["data"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise Refusal(f"{where}.source.base64.data: Input should be valid base64") from None
        if not data.startswith(MAGIC.get(source["media_type"], b"")):  # [vision]
            raise Refusal(f"{where}.source.base64: the data does not look like {source['media_type']}")
        if len(source["data"]) > 10 * 2**20:  # [vision]: "10 MB (base64-encoded) per image"
            raise Refusal(f"{where}.source.base64: image exceeds 10 MB maximum")


def check_block(block: Any, allowed: tuple[str, ...], where: str) -> None:
    """[messages]"""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in allowed:
        raise Refusal(f"{where}: Input tag {kind!r} does not match any of the expected tags: {', '.join(allowed)}")
    required, optional = BLOCKS[kind]
    only(block, ("type", *required, *optional), f"{where}.{kind}.")
    for name in required:
        if name not in block:
            raise Refusal(f"{where}.{kind}.{name}: Field required")
    where = f"{where}.{kind}"
    match kind:
        case "text":
            check_text(block, where)
        case "image" | "document":
            check_source(kind, block["source"], where)
        case "tool_use":
            matches(block["id"], TOOL_ID, f"{where}.id")
            matches(block["name"], TOOL_NAME, f"{where}.name")
            if not isinstance(block["input"], dict):
                raise Refusal(f"{where}.input: Input should be a valid dictionary")
        case "tool_result":
            check_tool_result(block, where)


def check_tool_result(block: JSON, where: str) -> None:
    matches(block["tool_use_id"], TOOL_ID, f"{where}.tool_use_id")
    if not isinstance(block.get("is_error", False), bool):
        raise Refusal(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refusal(f"{where}.content: Input should be a valid string or a valid list")
    for number, inner in enumerate(content):
        check_block(inner, IN_TOOL_RESULT, f"{where}.content.{number}")
    # [seen] vellum-ai/vellum-assistant#18387
    if block.get("is_error") and any(inner["type"] != "text" for inner in content):
        raise Refusal(f'{where}: all content must be type "text" if `is_error` is true')


def blocks_of(message: Any, where: str) -> list[JSON]:
    """[messages]: "content may be either a single string or an array of content blocks"."""
    if not isinstance(message, dict):
        raise Refusal(f"{where}: Input should be a valid dictionary")
    only(message, ("role", "content"), f"{where}.")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise Refusal(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise Refusal(f"{where}.content: Field required")
    if not content:  # [seen] anthropics/claude-code#6774
        raise Refusal(
            f"{where}: all messages must have non-empty content except for the optional final assistant message"
        )
    allowed = {"user": IN_USER, "assistant": IN_ASSISTANT, "system": ("text",)}[role]
    for number, block in enumerate(content):
        check_block(block, allowed, f"{where}.content.{number}")
    return content


def check_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, dict):
        raise Refusal(f"{where}: Input should be a valid dictionary")
    if schema.get("type") != "object":  # [messages]
        raise Refusal(
            f"{where}.type: Field required" if "type" not in schema else f"{where}.type: Input should be 'object'"
        )
    if {"oneOf", "allOf", "anyOf"} & set(schema):  # [seen] anthropics/claude-code#40075
        raise Refusal(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if (
        problem := problem_of(schema)
    ) is not None:  # [messages]: "JSON schema" of https://json-schema.org/draft/2020-12
        raise Refusal(f"{where}: {problem}")
    # [seen] aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws#709: at the top level only
    for name in schema.get("properties") or {}:
        matches(name, PROPERTY, f"{where}.properties")


def check_tools(body: JSON) -> None:
    names: list[str] = []
    for number, tool in enumerate(body.get("tools", [])):
        where = f"tools.{number}.custom"
        only(
            tool,
            (
                "type", "name", "description", "input_schema", "allowed_callers", "cache_control", "defer_loading",
                "eager_input_streaming", "input_examples", "strict",
            ),
            f"{where}.",
        )  # fmt: skip
        names.append(matches(tool.get("name"), TOOL_NAME, f"{where}.name"))
        check_schema(tool.get("input_schema"), f"{where}.input_schema")
        if not isinstance(tool.get("description", ""), str):
            raise Refusal(f"{where}.description: Input should be a valid string")
    if len(set(names)) != len(names):  # [tools]
        raise Refusal("tools: Tool names must be unique.")
    if (choice := body.get("tool_choice")) is not None:
        check_tool_choice(choice, names, body)


def check_tool_choice(choice: Any, names: list[str], body: JSON) -> None:
    fields = {  # [messages]
        "auto": ("type", "disable_parallel_tool_use"),
        "any": ("type", "disable_parallel_tool_use"),
        "tool": ("type", "name", "disable_parallel_tool_use"),
        "none": ("type",),
    }
    if not isinstance(choice, dict) or choice.get("type") not in fields:
        raise Refusal("tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'")
    only(choice, fields[choice["type"]], f"tool_choice.{choice['type']}.")
    if not names:  # [messages]: "How the model should use the provided tools"
        raise Refusal("tool_choice: tool_choice may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise Refusal(f"tool_choice.tool: Tool {choice.get('name')!r} not found in provided tools")
    # [thinking]: "tool_choice options that force tool use return an error with manual extended thinking"
    if choice["type"] in ("any", "tool") and (body.get("thinking") or {}).get("type") == "enabled":
        raise Refusal("Thinking may not be enabled when tool_choice forces tool use.")


def check_thinking(body: JSON) -> None:
    thinking = body["thinking"]
    fields = {"enabled": ("budget_tokens", "display"), "adaptive": ("display",), "disabled": ()}  # [messages]
    if not isinstance(thinking, dict) or thinking.get("type") not in fields:
        raise Refusal("thinking: Input tag does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'")
    kind = thinking["type"]
    only(thinking, ("type", *fields[kind]), f"thinking.{kind}.")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:  # [messages]: "Must be ≥1024 and less than max_tokens"
            raise Refusal("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if kind != "disabled" and body.get("temperature", 1) != 1:  # [thinking]: not with changed temperature
        raise Refusal("`temperature` may only be set to 1 when thinking is enabled.")


def check_pairs(turns: list[tuple[str, list[JSON]]]) -> None:
    """[tools]: results follow the calls at once, come first in their message, and there is one for each call."""
    seen: list[str] = []
    calls: list[str] = []
    for index, (_, blocks) in enumerate(turns):
        check_results(blocks, calls, f"messages.{index}")
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        seen += calls
        if len(set(seen)) != len(seen):
            raise Refusal(f"messages.{index}: `tool_use` ids must be unique")
    if calls:
        raise Refusal("messages: `tool_use` ids were found without `tool_result` blocks immediately after")


def check_results(blocks: list[JSON], calls: list[str], where: str) -> None:
    """[tools]: the results in a message, for the *calls* in the message before."""
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if missing := [call for call in calls if call not in results]:
        raise Refusal(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}."
            " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
    if unknown := [result for result in results if result not in calls]:
        raise Refusal(f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(unknown)}.")
    if len(set(results)) != len(results):
        raise Refusal(
            f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with an id"
        )
    if any(block["type"] == "tool_result" for block in blocks[len(results) :]):
        raise Refusal(f"{where}: `tool_result` blocks must come first in the content of a user message")


def merged(messages: Any) -> list[tuple[str, list[JSON]]]:
    """[messages]: "Consecutive user or assistant turns in your request will be combined into a single turn."."""
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages: at least one message is required")
    turns: list[tuple[str, list[JSON]]] = []
    for number, message in enumerate(messages):
        blocks = blocks_of(message, f"messages.{number}")
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], [*blocks]))
    return turns


def check_settings(body: JSON) -> None:
    if not isinstance(body["model"], str) or not body["model"]:
        raise Refusal("model: Input should be a valid string")
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 0:
        raise Refusal("max_tokens: Input should be greater than or equal to 0")
    for sequence in body.get("stop_sequences", []):
        if not sequence.strip():  # [seen] BerriAI/litellm#3286
            raise Refusal("stop_sequences: each stop sequence must contain non-whitespace")
    only(body.get("metadata", {}), ("user_id",), "metadata.")
    only(body.get("output_config", {}), ("effort", "format"), "output_config.")
    system = body.get("system", "")
    if not isinstance(system, str):
        for number, block in enumerate(system):
            check_block(block, ("text",), f"system.{number}")
    if not isinstance(body.get("stream", False), bool):
        raise Refusal("stream: Input should be a valid boolean")


def check_temperature(body: JSON) -> None:
    temperature = body.get("temperature")
    if temperature is None:
        return
    if NEW_MODELS.match(body["model"]):  # [models]; [seen] sipeed/picoclaw#2939
        raise Refusal("`temperature` is deprecated for this model.")
    if not 0 <= temperature <= 1:  # [messages], of models that have it
        raise Refusal("temperature: range: 0..1")


class AnthropicServer(ModelServer):
    """The server behind ``AsyncAnthropic(base_url=server.url, api_key=server.key)``."""

    key = "sk-ant-api03-0123456789abcdef"

    def say(self, *turns: Any, **how: Any) -> None:
        super().say(*turns, **how)
        self._thought: dict[str, list[list[JSON]]] = {}  # what came before calls of thinking answers, by their id

    def check(self, heard: Heard) -> None:
        headers = heard.headers
        if self.key not in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer ")):
            raise Refusal("invalid API key", status=401)
        if headers.get("anthropic-version") not in VERSIONS:
            raise Refusal("anthropic-version: header is required")
        if heard.path != "/v1/messages":
            raise Refusal(f"Not found: {heard.path}", status=404)
        body = heard.body
        if len(json.dumps(body)) > 32 * 2**20:  # [errors]
            raise Refusal("Request exceeds the maximum size", status=413)
        only(body, VERSIONS[headers["anthropic-version"]], "")
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                raise Refusal(f"{name}: Field required")
        check_settings(body)
        check_temperature(body)
        if body.get("thinking") is not None:
            check_thinking(body)
        check_tools(body)
        turns = merged(body["messages"])
        check_pairs(turns)
        if turns[-1][0] == "assistant" and NEW_MODELS.match(body["model"]):  # [errors]: prefill
            raise Refusal(
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )
        self._check_thoughts(turns, body)

    def _check_thoughts(self, turns: list[tuple[str, list[JSON]]], body: JSON) -> None:
        """[thinking]: "Pass thinking blocks back complete and unmodified", in their order, before the calls."""
        on = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        # "preserve them for the last assistant turn": a tool loop is one turn, which began with what the user said last
        began = max(
            (n for n, (role, blocks) in enumerate(turns) if role == "user" and blocks[-1]["type"] != "tool_result"),
            default=-1,
        )
        for index, (_, blocks) in enumerate(turns):
            where = f"messages.{index}.content"
            for number, block in enumerate(blocks):
                if block["type"] == "thinking" and block["signature"] != self.sign("thinking", block["thinking"]):
                    raise Refusal(f"{where}.{number}: Invalid `signature` in `thinking` block")
                if block["type"] == "redacted_thinking" and not self._is_own(block["data"]):
                    raise Refusal(f"{where}.{number}: Invalid `data` in `redacted_thinking` block")
            if on and index > began:
                self._check_complete(blocks, where)

    def _check_complete(self, blocks: list[JSON], where: str) -> None:
        """A turn of the tool loop has the thinking that it was said with, and has it first."""
        thoughts = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
        if thoughts and blocks[0] not in thoughts:  # [seen] anthropics/claude-code#20691
            raise Refusal(
                f"{where}.0: If an assistant message contains any thinking blocks, the first block must be"
                f" `thinking` or `redacted_thinking`. Found `{blocks[0]['type']}`."
            )
        for block in blocks:
            if block["type"] != "tool_use" or block["id"] not in self._thought:
                continue
            if not thoughts:  # [seen] anthropics/claude-code#12894
                raise Refusal(
                    f"{where}.0.type: Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`."
                    " When `thinking` is enabled, a final `assistant` message must start with a thinking block"
                    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
                )
            if thoughts not in self._thought[block["id"]]:  # [seen] anthropics/claude-code#63267
                raise Refusal(
                    f"{where}.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be"
                    " modified. These blocks must remain as they were in the original response."
                )

    def _is_own(self, data: str) -> bool:
        thought, _, signature = data.rpartition(".")
        return signature == self.sign("redacted", thought)

    def wants_stream(self, heard: Heard) -> bool:
        return bool(heard.body.get("stream"))

    def reply(self, said: Said, heard: Heard) -> JSON:
        content = self._content(said)
        for block in content:
            if block["type"] == "tool_use" and isinstance(block["input"], str):
                block["input"] = json.loads(block["input"])  # an answer that is not streamed has no broken arguments
        return self._message(said, heard) | {"content": content} | self._end(said, heard) | {"usage": self._usage(said)}

    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        """[streaming]: message_start, blocks with start, deltas and stop, message_delta, message_stop; pings anywhere."""
        start = self._usage(said) | {"output_tokens": 1}
        start.pop("output_tokens_details", None)
        message = self._message(said, heard) | {"stop_reason": None, "stop_sequence": None, "usage": start}
        yield sse({"type": "message_start", "message": message}, "message_start")
        blocks = [self._block(index, block) for index, block in enumerate(self._content(said))]
        yield sse({"type": "ping"}, "ping")
        yield from _interleaved(blocks) if said.interleaved else (event for block in blocks for event in block)
        yield sse({"type": "ping"}, "ping")
        usage = self._usage(said)
        del usage["cache_creation"], usage["service_tier"]
        yield sse({"type": "message_delta", "delta": self._end(said, heard), "usage": usage}, "message_delta")
        yield sse({"type": "message_stop"}, "message_stop")

    def error(self, status: int, message: str) -> JSON:
        """[errors]"""
        kind = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {
            "type": "error",
            "error": {"type": kind, "message": message},
            "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
        }

    def _message(self, said: Said, heard: Heard) -> JSON:
        return {
            "id": f"msg_01{self._serial()}",
            "type": "message",
            "role": "assistant",
            "model": heard.body["model"],
            "content": [],
        }

    def _serial(self) -> str:
        return "".join(self._random.choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789", k=22))

    def _content(self, said: Said) -> list[JSON]:
        content: list[JSON] = []
        if said.thinking is not None:
            content.append(self._thinking(said.thinking, redacted=said.redacted))
        thoughts = [*content]
        if said.text:
            content.append({"type": "text", "text": said.text})
        for call in said.calls:
            id = f"toolu_01{self._serial()}" if call.id is None else call.id
            if thoughts:
                self._thought.setdefault(id, []).append(thoughts)
            arguments = call.arguments if isinstance(call.arguments, str) else {**call.arguments}
            content.append({"type": "tool_use", "id": id, "name": call.name, "input": arguments})
        return content

    def _thinking(self, text: str, *, redacted: bool) -> JSON:
        if redacted:
            data = base64.b64encode(text.encode()).decode()
            return {"type": "redacted_thinking", "data": f"{data}.{self.sign('redacted', data)}"}
        return {"type": "thinking", "thinking": text, "signature": self.sign("thinking", text)}

    def _block(self, index: int, block: JSON) -> list[bytes]:
        """[streaming]: the events of one content block."""
        start, deltas = block, []
        match block:
            case {"type": "text"}:
                start = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in self.pieces(block["text"])]
            case {"type": "thinking"}:
                start = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in self.pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case {"type": "tool_use"}:
                start = block | {"input": {}}
                given = block["input"]
                text = given if isinstance(given, str) else json.dumps(given) if given else ""
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *self.pieces(text)]]
        return [
            sse({"type": "content_block_start", "index": index, "content_block": start}, "content_block_start"),
            *(
                sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
                for delta in deltas
            ),
            sse({"type": "content_block_stop", "index": index}, "content_block_stop"),
        ]

    def _end(self, said: Said, heard: Heard) -> JSON:
        """[messages]: the stop reason, and what belongs to it."""
        end: JSON = {
            "stop_reason": "tool_use" if said.calls else "end_turn",
            "stop_sequence": None,
            "stop_details": None,
        }
        match said.stop:
            case "max_tokens":
                end["stop_reason"] = "max_tokens"
            case "stop_sequence":
                end["stop_reason"] = "stop_sequence"
                end["stop_sequence"] = heard.body["stop_sequences"][0]
            case "refusal" | "content_filter":  # the API has one for both
                end["stop_reason"] = "refusal"
                end["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
        return end

    def _usage(self, said: Said) -> JSON:
        """[messages]: "Total input tokens [...] is the summation of" the three kinds of input tokens."""
        given, made = said.tokens
        usage: JSON = {
            "input_tokens": given - said.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": said.cached,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": made,
            "service_tier": "standard",
        }
        if said.thinking is not None:
            usage["output_tokens_details"] = {"thinking_tokens": made // 2}
        return usage


def _interleaved(blocks: list[list[bytes]]) -> Iterator[bytes]:
    """One event of each block in turn: "Each content block will have an index"."""
    rest = [iter(block) for block in blocks]
    while rest:
        for block in [*rest]:
            event = next(block, None)
            if event is None:
                rest.remove(block)
            else:
                yield event
