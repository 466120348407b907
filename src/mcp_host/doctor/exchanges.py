"""What is sent to a host: each row is an exchange, which shows whether one or several rules are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcp_host.protocol.jsonrpc import Params

Outgoing: TypeAlias = tuple[str, Params]
"""The method and the params of a request or notification."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
FEW_TOKENS = 16  # the smallest number that OpenAI's Responses API takes
PROGRESS_TOKEN = "mcp-host-doctor"
URL = "https://modelcontextprotocol.io/specification"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Some messages to the host, one after the other unless they are sent *together*."""

    messages: Sequence[Outgoing] = ()
    needs: str = ""
    """The capability that the host must have declared."""
    lacks: str = ""
    """The capability that the host must not have declared: the exchange shows that it refuses."""
    legacy: bool = False
    """Whether it is only possible until 2025-11-25: then a server sends requests and notifications at any time."""
    together: bool = False
    cancels: bool = False
    """Whether the first request is cancelled right after it was sent."""

    @property
    def requests(self) -> int:
        """How many answers are expected."""
        return len([method for method, _ in self.messages if not is_notification(method)])


def is_notification(method: str) -> bool:
    return method.startswith("notifications/")


def said(role: str, *blocks: Params | str) -> Params:
    """A message of a conversation: one block by itself, several as an array."""
    content: list[Params] = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return {"role": role, "content": content[0] if len(content) == 1 else content}


def sample(*messages: Params, **more: Any) -> Outgoing:
    return "sampling/createMessage", {"messages": list(messages), "maxTokens": 200, **more}


def elicit(message: str, **more: Any) -> Outgoing:
    return "elicitation/create", {"message": f"mcp-host doctor: {message}", **more}


def form(message: str, properties: Params, *required: str) -> Outgoing:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return elicit(message, mode="form", requestedSchema=schema)


PING: Outgoing = ("ping", {})
ROOTS: Outgoing = ("roots/list", {})

WEATHER: Params = {
    "name": "get_weather",
    "description": "The weather in one city.",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city"}},
        "required": ["city"],
    },
}
RICH: Params = {
    "name": "book_trip",
    "description": "Book a trip.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "from": {"$ref": "#/$defs/place"},
            "to": {"$ref": "#/$defs/place"},
            "class": {"enum": ["first", "second"]},
            "seats": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        },
        "required": ["from", "to"],
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    },
}
QUESTION = said("user", "What is the weather in Paris and in Oslo? Use the tool for both cities.")


def use(id: str, city: str) -> Params:
    return {"type": "tool_use", "id": id, "name": "get_weather", "input": {"city": city}}


def result(id: str, *blocks: Params | str, **more: Any) -> Params:
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return {"type": "tool_result", "toolUseId": id, "content": content, **more}


USES = said("assistant", use("call_1", "Paris"), use("call_2", "Oslo"))
RESULTS = (result("call_1", "18 °C"), result("call_2", "9 °C"))

FIELDS: Mapping[str, Params] = {
    "text": {"type": "string", "minLength": 2, "maxLength": 20},
    "email": {"type": "string", "format": "email"},
    "uri": {"type": "string", "format": "uri"},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
    "number": {"type": "number", "minimum": 0, "maximum": 100},
    "integer": {"type": "integer", "minimum": 0, "maximum": 100},
    "boolean": {"type": "boolean"},
    "choice": {"type": "string", "enum": ["red", "green"]},
    "titled-choice": {
        "type": "string",
        "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
    },
    "choices": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["red", "green"]}},
    "titled-choices": {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
    },
}
"""A field of each type of the specification."""

NAME: Params = {"name": {"type": "string", "title": "Any text"}}
DEFAULTS: Params = {
    "name": {"type": "string", "default": "Ada"},
    "count": {"type": "integer", "default": 3},
    "sure": {"type": "boolean", "default": True},
}

# fmt: off
EXCHANGES: Mapping[str, Exchange] = {
    "call": Exchange(),

    "ping": Exchange([PING], legacy=True),
    "unknown-method": Exchange([("mcp-host/unknown", {}), PING], legacy=True),
    "unknown-notification": Exchange([("notifications/mcp-host/unknown", {}), PING], legacy=True),
    "unknown-cancelled": Exchange([("notifications/cancelled", {"requestId": "mcp-host-unknown"}), PING], legacy=True),
    "tools-changed": Exchange([("notifications/tools/list_changed", {}), PING], legacy=True),

    "roots": Exchange([ROOTS], "roots"),

    "sampling": Exchange([sample(said("user", "Reply with one word."))], "sampling"),
    "few-tokens": Exchange([sample(said("user", "Count to one thousand, in words."), maxTokens=FEW_TOKENS)], "sampling"),
    "preferences": Exchange([sample(said("user", "Say hello."), systemPrompt="Answer in French.", temperature=0.5,
        stopSequences=["\n\n"], metadata={"mcp-host": "doctor"}, modelPreferences={
            "hints": [{"name": "no-such-model"}, {}], "costPriority": 0, "speedPriority": 0.5, "intelligencePriority": 1,
        })], "sampling"),
    "context": Exchange([sample(said("user", "Say hello."), includeContext="thisServer")], "sampling.context"),
    "turns": Exchange([sample(said("user", "My name is Ada."), said("assistant", "Hello, Ada."), said("user", "What is my name?"))], "sampling"),
    "several-blocks": Exchange([sample(said("user", "One.", "Two.", "How many words were that?"))], "sampling"),
    "meta": Exchange([sample(said("user", "Say hello."), _meta={"com.example/doctor": {"any": ["value", 1, None]}})], "sampling"),
    "image": Exchange([sample(said("user", {"type": "image", "data": PIXEL, "mimeType": "image/png"}, "Which color?"))], "sampling"),
    "audio": Exchange([sample(said("user", {"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}, "What do you hear?"))], "sampling"),
    "sampling-progress": Exchange([sample(said("user", "Say hello."), _meta={"progressToken": PROGRESS_TOKEN})], "sampling", legacy=True),
    "parallel": Exchange([sample(said("user", "Reply with one letter.")), sample(said("user", "Reply with one digit."))], "sampling", together=True),

    "tool-choice-required": Exchange([sample(QUESTION, tools=[WEATHER], toolChoice={"mode": "required"})], "sampling.tools"),
    "tool-choice-none": Exchange([sample(QUESTION, tools=[WEATHER], toolChoice={"mode": "none"})], "sampling.tools"),
    "tool-choice-auto": Exchange([sample(QUESTION, tools=[WEATHER], toolChoice={"mode": "auto"})], "sampling.tools"),
    "tool-choice-absent": Exchange([sample(QUESTION, tools=[WEATHER, RICH])], "sampling.tools"),
    "tool-results": Exchange([sample(QUESTION, USES, said("user", *RESULTS), tools=[WEATHER])], "sampling.tools"),
    "tool-errors": Exchange([sample(QUESTION, USES, said("user", result("call_1", "no such city", isError=True),
        result("call_2", "cold", {"type": "image", "data": PIXEL, "mimeType": "image/png"}, structuredContent={"celsius": 9})),
        tools=[WEATHER])], "sampling.tools"),

    "form": Exchange([form("fill in every field, and accept.", dict(FIELDS), *FIELDS)], "elicitation.form"),
    "form-without-mode": Exchange([elicit("enter any text, and accept.", requestedSchema={"type": "object", "properties": NAME})], "elicitation.form"),
    "form-defaults": Exchange([form("accept this form as it is.", DEFAULTS)], "elicitation.form"),
    "form-decline": Exchange([form("decline this form.", NAME)], "elicitation.form"),
    "form-cancel": Exchange([form("close this form without an answer.", NAME)], "elicitation.form"),
    "url": Exchange([elicit("open this page, or decline.", mode="url", url=URL, elicitationId="mcp-host-doctor")], "elicitation.url"),
    "unknown-elicitation": Exchange([("notifications/elicitation/complete", {"elicitationId": "mcp-host-unknown"}), PING], "elicitation.url", legacy=True),

    # What a host should refuse. Since 2026-07-28 each ends the call, so these come last.
    "cancelled": Exchange([sample(said("user", "Count to one hundred, in words.")), PING], "sampling", legacy=True, cancels=True),
    "denied": Exchange([sample(said("user", "mcp-host doctor: please REJECT this request, if you are asked."))], "sampling", legacy=True),
    "unknown-content": Exchange([sample(said("user", {"type": "hologram", "data": PIXEL}))], "sampling"),
    "missing-result": Exchange([sample(QUESTION, USES, said("user", RESULTS[0]), tools=[WEATHER])], "sampling.tools"),
    "mixed-results": Exchange([sample(QUESTION, USES, said("user", "Here they are:", *RESULTS), tools=[WEATHER])], "sampling.tools"),
    "orphan-result": Exchange([sample(QUESTION, said("user", result("call_9", "18 °C")), tools=[WEATHER])], "sampling.tools"),
    "undeclared-tools": Exchange([sample(QUESTION, tools=[WEATHER])], "sampling", "sampling.tools"),
    "undeclared-url": Exchange([elicit("you should not see this.", mode="url", url=URL, elicitationId="mcp-host-doctor-2")], "elicitation", "elicitation.url", legacy=True),
    "undeclared-form": Exchange([form("you should not see this.", NAME)], "elicitation", "elicitation.form", legacy=True),
    "undeclared-roots": Exchange([ROOTS], "", "roots", legacy=True),
}
# fmt: on
