"""What each adapter does with each feature of sampling: data, for the tests beside it and for docs/providers.md.

A cell is what the tests prove through the provider's SDK and a server of its API:

* mapped: it reaches the model, or comes from it, as the API has it
* emulated: the API has nothing for it, and the adapter does the same by other means, which the note names
* left out: the model is asked without it, as the note says why
* named: a text with its type and size is in its place, because the provider takes none
* refused: the request is refused with a sentence, and the provider is not asked
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["mapped", "emulated", "left out", "named", "refused"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What an adapter does with a feature."""

    state: State
    note: str = ""


MAPPED = Cell("mapped")
REFUSED = Cell("refused")
NAMED = Cell("named")

AS_TEXT = Cell("emulated", "its JSON, as text")
AFTER_RESULTS = Cell("emulated", "in a user's message after the results, which have text only")
OF_GEMINI_3 = Cell(
    "mapped",
    "since Gemini 3; otherwise, and where the call is a text, in a user's turn after the results, with a text in its place",
)
NOT_TOLD = Cell("left out", "the API does not tell")

FEATURES: dict[str, str] = {
    "user.text": "text of the user",
    "user.image": "image of the user",
    "user.audio": "audio of the user",
    "assistant.image": "image in an assistant's message",
    "result.text": "text in a tool result",
    "result.image": "image in a tool result",
    "result.audio": "audio in a tool result",
    "result.text resource": "embedded text in a tool result",
    "result.image resource": "embedded image in a tool result",
    "result.PDF resource": "embedded PDF in a tool result",
    "result.link": "resource link in a tool result",
    "result.failure": "`isError`",
    "result.picture of a failure": "image in a tool result with `isError`",
    "result.structured": "`structuredContent`",
    "systemPrompt": "system prompt",
    "maxTokens": "maximum of tokens",
    "temperature": "temperature",
    "stopSequences": "stop sequences",
    "metadata": "metadata, as the provider has it",
    "choice.auto": "tool choice `auto`",
    "choice.required": "tool choice `required`",
    "choice.none": "tool choice `none`",
    "choice.one": "one tool required",
    "choice.single": "`disable_parallel_tool_use`",
    "stop.max_tokens": "stop reason `maxTokens`",
    "stop.stop_sequence": "stop reason `stopSequence`",
    "stop.refusal": "stop reason `refusal`",
    "stop.content_filter": "stop reason `content_filter`",
    "usage.cached": "cached tokens in the usage",
    "retryAfter": "after a 429, when to ask again",
    "reasoning": "reasoning between the calls of a loop",
}
"""The features, by their id, in words."""

MATRIX: dict[str, dict[str, Cell]] = {
    "anthropic": dict.fromkeys(FEATURES, MAPPED)
    | {
        "user.audio": REFUSED,
        "assistant.image": NAMED,
        "result.audio": NAMED,
        "result.link": AS_TEXT,
        "result.picture of a failure": Cell("emulated", "after the results, which may have text only"),
        "result.structured": AS_TEXT,
        "temperature": Cell("left out", "the API has none since version 2026-10-21"),
        "stop.content_filter": Cell("emulated", "the API calls it `refusal`"),
    },
    "openai": dict.fromkeys(FEATURES, MAPPED)
    | {
        "user.audio": REFUSED,
        "assistant.image": NAMED,
        "result.audio": NAMED,
        "result.text resource": Cell("emulated", "as text, with its URI"),
        "result.link": AS_TEXT,
        "result.failure": Cell("emulated", "a line of text"),
        "result.structured": AS_TEXT,
        "temperature": Cell("left out", "models that reason take none; others get it"),
        "stopSequences": Cell("emulated", "what follows one is cut off the answer"),
        "choice.one": Cell("emulated", "an answer after the tool's JSON Schema, in the strict mode"),
        "stop.stop_sequence": Cell("emulated", "from the text"),
    },
    "openai-chat": dict.fromkeys(FEATURES, MAPPED)
    | {
        "user.audio": Cell("mapped", "to models that hear, such as gpt-audio"),
        "assistant.image": NAMED,
        "result.image": AFTER_RESULTS,
        "result.audio": AFTER_RESULTS,
        "result.text resource": Cell("emulated", "as text, with its URI"),
        "result.image resource": AFTER_RESULTS,
        "result.PDF resource": AFTER_RESULTS,
        "result.link": AS_TEXT,
        "result.failure": Cell("emulated", "a line of text"),
        "result.picture of a failure": AFTER_RESULTS,
        "result.structured": AS_TEXT,
        "metadata": Cell("refused", "unless the host stores the answers (`store`)"),
        "choice.one": Cell("emulated", "an answer after the tool's JSON Schema, in the strict mode"),
        "stop.stop_sequence": NOT_TOLD,
        "reasoning": Cell("left out", "the API keeps it to itself"),
    },
    "openai-chat compatible": dict.fromkeys(FEATURES, MAPPED)
    | {
        "user.audio": Cell("mapped", "to models that hear"),
        "assistant.image": NAMED,
        "result.image": AFTER_RESULTS,
        "result.audio": AFTER_RESULTS,
        "result.text resource": Cell("emulated", "as text, with its URI"),
        "result.image resource": AFTER_RESULTS,
        "result.PDF resource": AFTER_RESULTS,
        "result.link": AS_TEXT,
        "result.failure": Cell("emulated", "a line of text"),
        "result.picture of a failure": AFTER_RESULTS,
        "result.structured": AS_TEXT,
        "choice.none": Cell("emulated", "no tool is offered"),
        "choice.one": Cell("emulated", "only this tool is offered, and required"),
        "stop.stop_sequence": Cell("left out", "told by vLLM only"),
    },
    "gemini": dict.fromkeys(FEATURES, MAPPED)
    | {
        "assistant.image": Cell(
            "mapped",
            "since Gemini 3 while its turn is kept; otherwise in a user's message beside it, with a text in its place",
        ),
        "result.image": OF_GEMINI_3,
        "result.audio": Cell("emulated", "in a user's turn after the results, which have a text in its place"),
        "result.image resource": OF_GEMINI_3,
        "result.PDF resource": OF_GEMINI_3,
        "result.failure": Cell(
            "mapped", "or in a text, where the call is one: without its signature, it is in the present turn"
        ),
        "result.picture of a failure": OF_GEMINI_3,
        "result.text resource": Cell("emulated", "as text, with its URI"),
        "result.link": AS_TEXT,
        "result.structured": AS_TEXT,
        "metadata": Cell("refused", "except for models on Vertex AI, as labels"),
        "choice.single": Cell("emulated", "of several calls, the first is kept"),
        "stop.stop_sequence": NOT_TOLD,
        "stop.refusal": Cell("emulated", "the API has block reasons: `content_filter`"),
    },
    "ollama": dict.fromkeys(FEATURES, MAPPED)
    | {
        "user.audio": REFUSED,
        "result.audio": NAMED,
        "result.text resource": Cell("emulated", "as text, with its URI"),
        "result.PDF resource": NAMED,
        "result.link": AS_TEXT,
        "result.failure": Cell("emulated", "a line of text"),
        "result.structured": AS_TEXT,
        "metadata": REFUSED,
        "choice.required": Cell("emulated", "an answer after a JSON Schema of the calls (`format`)"),
        "choice.none": Cell("emulated", "no tool is offered"),
        "choice.one": Cell("emulated", "an answer after the tool's JSON Schema (`format`)"),
        "choice.single": Cell("emulated", "of several calls, the first is kept"),
        "stop.stop_sequence": NOT_TOLD,
        "stop.refusal": NOT_TOLD,
        "stop.content_filter": NOT_TOLD,
        "usage.cached": NOT_TOLD,
    },
    "pydantic-ai": dict.fromkeys(FEATURES, MAPPED)
    | {
        "user.audio": Cell("mapped", "to models that hear"),
        "assistant.image": NAMED,
        "result.link": AS_TEXT,
        "result.failure": Cell("mapped", "as the model's class writes it"),
        "result.structured": AS_TEXT,
        "stopSequences": Cell("mapped", "or the answer is cut there, if the model's class has none"),
        "metadata": REFUSED,
        "stop.stop_sequence": Cell("left out", "unless the provider tells it"),
        "stop.refusal": Cell("emulated", "for most providers, pydantic-ai calls it `content_filter`"),
        "reasoning": Cell("mapped", "as the provider has it"),
    },
}
"""By the adapter's name and the feature's id."""
