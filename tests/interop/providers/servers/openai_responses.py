"""OpenAI Responses as a local server: https://platform.openai.com/docs/api-reference/responses/create.

``spec`` is OpenAI's published description, https://github.com/openai/openai-openapi (openapi.json).
``guide`` is https://platform.openai.com/docs/guides/.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count

from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

from tests.interop.providers.scripted import Said, Turn
from tests.interop.providers.servers import openai_rules as rules
from tests.interop.providers.servers.base import JSON, Heard, ModelServer, Refusal, sse

LONGEST_NAME = 128  # spec: FunctionToolParam.name.maxLength
LONGEST_CALL_ID = 64  # spec: FunctionCallOutputItemParam.call_id.maxLength
SMALLEST_MAX_OUTPUT = 16  # https://github.com/UKGovernmentBEIS/inspect_evals/issues/694
ID_PREFIXES = {
    "reasoning": "rs",
    "function_call": "fc",
    "message": "msg",
}  # https://github.com/jlcodes99/cockpit-tools/issues/2090
USER_PARTS = {"input_text", "input_image", "input_file"}  # spec: InputContent
ASSISTANT_PARTS = {"output_text", "refusal"}  # spec: OutputMessageContent


@cache
def _described(stream: bool) -> rules.Described:
    return rules.Described(ResponseCreateParamsStreaming if stream else ResponseCreateParamsNonStreaming)


@dataclass(frozen=True, slots=True)
class _Thought:
    """A reasoning item that the server made: what signs it, and the ids of the items that came with it."""

    encrypted: str
    followers: tuple[str, ...]
    stored: bool


class OpenAIResponsesServer(ModelServer):
    """Speaks the Responses API. Models that begin with ``gpt-5`` or ``o`` and a digit take what reasoning models take.

    An answer with thinking is a reasoning item before the rest. The API refuses it without what followed it, and
    what followed it without the item.
    """

    def say(self, *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> None:
        super().say(*turns, decide=decide)
        self._thoughts: dict[str, _Thought] = {}  # by the id of the item
        self._reasons: dict[str, list[str | None]] = {}  # ids of reasoning items, by the id of a call, which may repeat
        self._made = 0

    def check(self, heard: Heard) -> None:
        body = heard.body
        if heard.path.partition("?")[0] not in ("/responses", "/v1/responses"):
            raise Refusal(f"Invalid URL (POST {heard.path})", status=404)
        rules.check_bearer(heard.headers, self.key)
        _described(body.get("stream") is True).check(body)
        self._check_tools(body)
        if not isinstance(body.get("input"), list):
            if not body.get("input"):
                raise Refusal("Missing required parameter: 'input'.")
        else:
            self._check_input(body["input"])
        self._check_format(body)
        rules.check_metadata(body.get("metadata"))
        _check_model(body)

    def _check_tools(self, body: JSON) -> None:
        names = []
        for index, tool in enumerate(body.get("tools") or ()):
            if tool["type"] == "function":
                rules.check_name(tool["name"], f"tools[{index}].name", LONGEST_NAME)
                if tool.get("parameters") is not None:
                    # spec: FunctionToolParam.strict, "falls back to non-strict validation" if it is omitted
                    rules.check_parameters(tool["parameters"], tool["name"], strict=tool.get("strict") is True)
                names.append(tool["name"])
        rules.check_unique(names)
        choice = body.get("tool_choice")
        if choice == "required" and not body.get("tools"):
            raise Refusal("Tool choice 'required' must be specified with 'tools' parameter.")
        if isinstance(choice, dict) and choice["type"] == "function" and choice["name"] not in names:
            raise Refusal("Tool choice 'function' not found in 'tools' parameter.")  # spec: ToolChoiceFunction

    def _check_input(self, items: list[JSON]) -> None:
        if not items:
            raise Refusal("One of 'input' or 'previous_response_id' or 'prompt' must be provided.")
        _check_ids(items)
        called: list[str] = []
        answered: list[str] = []
        for index, item in enumerate(items):
            where = f"input[{index}]"
            match item.get("type", "message"):
                case "message":
                    _check_message(item, where)
                case "reasoning":
                    self._check_reasoning(item, items[index + 1 :])
                case "function_call":
                    rules.check_name(item["name"], f"{where}.name", LONGEST_NAME)
                    _check_call_id(item["call_id"], where, called)
                    self._check_is_reasoned(item, items[:index])
                case "function_call_output":
                    _check_call_id(item["call_id"], where, answered)
                    _check_output(item, where, called)
                case kind:
                    raise Refusal(f"Invalid value: '{kind}' ({where}.type).")
        for call_id in called:
            if call_id not in answered:
                # https://github.com/router-for-me/CLIProxyAPI/issues/2368
                raise Refusal(f"No tool output found for function call {call_id}.")

    def _check_reasoning(self, item: JSON, later: list[JSON]) -> None:
        """guide reasoning, "Keeping reasoning items in context"; spec: ReasoningItem.encrypted_content."""
        thought = self._thoughts.get(item["id"])
        encrypted = item.get("encrypted_content")
        if encrypted is None and (thought is None or not thought.stored):
            # https://github.com/openai/openai-agents-python/issues/919
            raise Refusal(
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try "
                "again with `store` set to true, or remove this item from your input.",
                status=404,
            )
        if encrypted is not None and (thought is None or thought.encrypted != encrypted):
            # https://github.com/openai/codex/issues/8145
            raise Refusal(f"The encrypted content for item {item['id']} could not be verified.")
        assert thought is not None
        own = [_identity(other) for other in later[: len(thought.followers)]]
        if tuple(own) != thought.followers:
            # https://github.com/openai/openai-agents-python, reasoning_item_id_policy in docs/running_agents.md
            raise Refusal(f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.")

    def _check_is_reasoned(self, call: JSON, earlier: list[JSON]) -> None:
        """https://github.com/laravel/ai/pull/1052. The API knows the call by the id of the item; here by the call_id, if its
        reasoning could come back, too."""
        reasons = self._reasons.get(call["call_id"], [None])
        if "id" not in call and not any(self._thoughts[reason].encrypted for reason in reasons if reason is not None):
            return
        if None not in reasons and not {item.get("id") for item in earlier}.intersection(reasons):
            raise Refusal(
                f"Item '{call.get('id', call['call_id'])}' of type 'function_call' was provided without its required "
                f"'reasoning' item: '{reasons[-1]}'."
            )

    def _check_format(self, body: JSON) -> None:
        asked = (body.get("text") or {}).get("format") or {}
        if asked.get("type") == "json_object":
            rules.check_json_is_asked_for(body, "input")
        if asked.get("type") == "json_schema":
            rules.check_name(asked["name"], "text.format.name", 64)  # spec: TextResponseFormatJsonSchema.name
            if asked.get("strict"):
                rules.check_strict(asked["schema"], f"response_format '{asked['name']}'")

    # What it says

    def wants_stream(self, heard: Heard) -> bool:
        return heard.body.get("stream") is True

    def reply(self, said: Said, heard: Heard) -> JSON:
        return self._response(said, heard, self._items(said, heard))

    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        """spec: ResponseStreamEvent; guide streaming-responses."""
        items = self._items(said, heard)
        whole = self._response(said, heard, items)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        numbers = count()

        def event(kind: str, **fields: object) -> bytes:
            return sse({"type": kind, "sequence_number": next(numbers), **fields}, kind)

        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        calls = [(index, item) for index, item in enumerate(items) if item["type"] == "function_call"]
        for index, item in enumerate(items):
            if item["type"] == "reasoning":
                yield from self._stream_reasoning(event, index, item)
            elif item["type"] == "message":
                yield from self._stream_message(event, index, item)
        for group in [calls] if said.interleaved else [[call] for call in calls]:
            for index, item in group:
                opened = {**item, "arguments": "", "status": "in_progress"}
                yield event("response.output_item.added", output_index=index, item=opened)
            for nth, piece in rules.grow(self, said, [item["arguments"] for _, item in group]):
                place = {"item_id": group[nth][1]["id"], "output_index": group[nth][0]}
                yield event("response.function_call_arguments.delta", **place, delta=piece)
            for index, item in group:
                fields = {"item_id": item["id"], "name": item["name"], "arguments": item["arguments"]}
                yield event("response.function_call_arguments.done", output_index=index, **fields)
                yield event("response.output_item.done", output_index=index, item=item)
        yield event(f"response.{whole['status']}", response=whole)

    def _stream_reasoning(self, event: Callable[..., bytes], index: int, item: JSON) -> Iterator[bytes]:
        # spec: "The `encrypted_content` in `response.output_item.added` may be incomplete"
        added = {**item, "summary": [], "encrypted_content": (item.get("encrypted_content") or "")[:8]}
        yield event("response.output_item.added", output_index=index, item=added)
        place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        text = item["summary"][0]["text"]
        part = {"type": "summary_text", "text": ""}
        yield event("response.reasoning_summary_part.added", **place, part=part)
        for piece in self.pieces(text):
            yield event("response.reasoning_summary_text.delta", **place, delta=piece)
        yield event("response.reasoning_summary_text.done", **place, text=text)
        yield event("response.reasoning_summary_part.done", **place, part={**part, "text": text})
        yield event("response.output_item.done", output_index=index, item=item)

    def _stream_message(self, event: Callable[..., bytes], index: int, item: JSON) -> Iterator[bytes]:
        part = item["content"][0]
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        opened = {**item, "status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=index, item=opened)
        if part["type"] == "refusal":
            yield event("response.content_part.added", **place, part={**part, "refusal": ""})
            for piece in self.pieces(part["refusal"]):
                yield event("response.refusal.delta", **place, delta=piece)
            yield event("response.refusal.done", **place, refusal=part["refusal"])
        else:
            yield event("response.content_part.added", **place, part={**part, "text": ""})
            for piece in self.pieces(part["text"]):
                yield event("response.output_text.delta", **place, delta=piece, logprobs=[])
            yield event("response.output_text.done", **place, text=part["text"], logprobs=[])
        yield event("response.content_part.done", **place, part=part)
        yield event("response.output_item.done", output_index=index, item=item)

    def error(self, status: int, message: str) -> JSON:
        return rules.error_json(status, message)

    def _id(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}_{self._made:032x}"

    def _items(self, said: Said, heard: Heard) -> list[JSON]:
        status = "incomplete" if said.stop in ("max_tokens", "content_filter") else "completed"
        items: list[JSON] = []
        if said.text or not said.calls:
            part: JSON = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
            if said.stop == "refusal":
                part = {"type": "refusal", "refusal": said.text}
            message = {"id": self._id("msg"), "type": "message", "role": "assistant", "content": [part]}
            items.append(message | {"status": status})
        for called in said.calls:
            arguments = called.arguments if isinstance(called.arguments, str) else json.dumps(called.arguments)
            call = {"type": "function_call", "call_id": called.id or self._id("call"), "name": called.name}
            items.append({"id": self._id("fc"), **call, "arguments": arguments, "status": status})
        item_id = None if said.thinking is None else self._id("rs")
        for item in items:
            if item["type"] == "function_call":
                self._reasons.setdefault(item["call_id"], []).append(item_id)
        if said.thinking is None or item_id is None:
            return items
        included = "reasoning.encrypted_content" in (heard.body.get("include") or ())  # spec: ResponseIncludable
        encrypted = f"gAAA{self.sign(item_id, said.thinking)}" if included else ""
        followers = tuple(map(_identity, items))
        self._thoughts[item_id] = _Thought(encrypted, followers, heard.body.get("store") is not False)
        thought = {"id": item_id, "type": "reasoning", "summary": [{"type": "summary_text", "text": said.thinking}]}
        return [thought | ({"encrypted_content": encrypted} if included else {}), *items]

    def _response(self, said: Said, heard: Heard, items: list[JSON]) -> JSON:
        """spec: Response."""
        body = heard.body
        reason = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}.get(said.stop)
        sent, written = said.tokens
        return {
            "id": self._id("resp"),
            "object": "response",
            "created_at": 1_760_000_000,
            "status": "completed" if reason is None else "incomplete",
            "background": False,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": body["model"],
            "output": items,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
            "service_tier": "default",
            "store": body.get("store", True),
            "temperature": body.get("temperature", 1.0),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "top_p": body.get("top_p", 1.0),
            "truncation": "disabled",
            "usage": {
                "input_tokens": sent,
                "input_tokens_details": {"cached_tokens": said.cached, "cache_write_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": 0 if said.thinking is None else min(3, written)},
                "total_tokens": sent + written,
            },
            "user": None,
        }


def _identity(item: JSON) -> str:
    """What tells an item of an answer apart, whether or not it comes back with its id."""
    if item.get("type") == "function_call":
        return f"call {item['name']} {json.loads(item['arguments'])}"
    if item.get("type", "message") == "message" and item.get("role") == "assistant":
        content = item["content"]
        parts = content if isinstance(content, str) else [part.get("text", part.get("refusal")) for part in content]
        return f"message {''.join(parts)}"
    return f"other {item.get('type')}"


def _check_ids(items: list[JSON]) -> None:
    ids = [item["id"] for item in items if item.get("id") is not None]
    for item_id in ids:
        if ids.count(item_id) > 1:
            # https://github.com/vercel/ai/issues/7883
            raise Refusal(f"Duplicate item found with id {item_id}. Remove duplicate items from your input.")
    for index, item in enumerate(items):
        prefix = ID_PREFIXES.get(item.get("type", "message"), "")
        if item.get("id") is not None and not item["id"].startswith(prefix):
            raise Refusal(f"Invalid 'input[{index}].id': '{item['id']}'. Expected an ID that begins with '{prefix}'.")


def _check_call_id(call_id: str, where: str, before: list[str]) -> None:
    if not 1 <= len(call_id) <= LONGEST_CALL_ID:
        raise Refusal(f"Invalid '{where}.call_id': string too long. Expected maximum length {LONGEST_CALL_ID}.")
    if call_id in before:  # spec: "The unique ID of the function tool call generated by the model"
        raise Refusal(f"Duplicate call_id {call_id} ({where}).")
    before.append(call_id)


def _check_output(item: JSON, where: str, called: list[str]) -> None:
    if item["call_id"] not in called:
        # https://github.com/continuedev/continue/issues/10092
        raise Refusal(f"No tool call found for function call output with call_id {item['call_id']}.")
    if isinstance(item["output"], list):
        _check_parts(item["output"], f"{where}.output", USER_PARTS)


def _check_message(item: JSON, where: str) -> None:
    if isinstance(item["content"], list):
        allowed = ASSISTANT_PARTS if item["role"] == "assistant" else USER_PARTS
        _check_parts(item["content"], f"{where}.content", allowed)


def _check_parts(parts: list[JSON], where: str, allowed: set[str]) -> None:
    for index, part in enumerate(parts):
        if part["type"] not in allowed:
            # https://github.com/jeremychone/rust-genai/pull/119
            values = ", ".join(f"'{value}'" for value in sorted(allowed))
            raise Refusal(f"Invalid value: '{part['type']}'. Supported values are: {values} ({where}[{index}]).")
        if part["type"] == "input_image":
            if (part.get("image_url") is None) == (part.get("file_id") is None):  # guide images-vision
                raise Refusal(f"Invalid '{where}[{index}]': one of 'image_url' and 'file_id' is required.")
            if part.get("image_url") is not None:
                rules.check_image(part["image_url"], f"{where}[{index}].image_url")
        if part["type"] == "input_file":
            sources = [part.get(source) is not None for source in ("file_data", "file_id", "file_url")]
            if sum(sources) != 1:  # guide pdf-files
                raise Refusal(f"Invalid '{where}[{index}]': one of 'file_data', 'file_id', 'file_url' is required.")
            if sources[0] and not part.get("filename"):
                raise Refusal(f"Missing required parameter: '{where}[{index}].filename'.")


def _check_model(body: JSON) -> None:
    if (body.get("max_output_tokens") or SMALLEST_MAX_OUTPUT) < SMALLEST_MAX_OUTPUT:
        raise Refusal(
            "Invalid 'max_output_tokens': integer below minimum value. "
            f"Expected a value >= {SMALLEST_MAX_OUTPUT}, but got {body['max_output_tokens']} instead."
        )
    reasoning = rules.REASONING.match(body["model"]) is not None
    asked = body.get("reasoning") is not None or "reasoning.encrypted_content" in (body.get("include") or ())
    if asked and not reasoning:
        # https://github.com/ddutchie/cairn/pull/127
        raise Refusal("Unsupported parameter: 'reasoning' is not supported with this model.")
    for field in ("temperature", "top_p"):
        if reasoning and body.get(field) is not None:  # guide latest-model, "GPT-5 parameter compatibility"
            raise Refusal(f"Unsupported parameter: '{field}' is not supported with this model.")
