"""What each adapter does with each thing that a request may have: the table of docs/providers.md, which tests prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mcp_host.providers import (
    AnthropicModel,
    GeminiModel,
    OllamaModel,
    OpenAIChatModel,
    OpenAIModel,
    ProviderModel,
    PydanticAIModel,
)

Wire = dict[str, Any]

PNG = "iVBORw0KGgo="
WAV = "UklGRiQAAABXQVZF"
PDF = "JVBERi0xLjc="
ZIP = "UEsDBBQAAAA="

ADD: Wire = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
SAID: Wire = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}


def said(*blocks: Wire, role: str = "user") -> Wire:
    return {"messages": [{"role": role, "content": list(blocks)}, SAID]}


def returned(*blocks: Wire, **fields: object) -> Wire:
    """A request with a tool's result."""
    use = {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "toolUseId": "call_1", "content": list(blocks), **fields}
    messages = [SAID, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {"messages": messages, "tools": [ADD]}


def text(words: str) -> Wire:
    return {"type": "text", "text": words}


def image(kind: str = "image/png", data: str = PNG) -> Wire:
    return {"type": "image", "mimeType": kind, "data": data}


def resource(**contents: str) -> Wire:
    return {"type": "resource", "resource": {"uri": "file:///notes", **contents}}


AUDIO = {"type": "audio", "mimeType": "audio/wav", "data": WAV}
LINK = {"type": "resource_link", "uri": "file:///tides", "name": "tides"}

FEATURES: Mapping[str, Wire] = {
    "text": said(text("Look.")),
    "image": said(image()),
    "audio": said(AUDIO),
    "image of the model, sent back": {"messages": [SAID, said(image(), role="assistant")["messages"][0], SAID]},
    "tool call and result": returned(text("three")),
    "image in a result": returned(image()),
    "audio in a result": returned(AUDIO),
    "text resource in a result": returned(resource(text="the notes")),
    "PDF in a result": returned(resource(blob=PDF, mimeType="application/pdf")),
    "other file in a result": returned(resource(blob=ZIP, mimeType="application/zip")),
    "resource link in a result": returned(LINK),
    "`structuredContent` without text": returned(structuredContent={"sum": 303}),
    "`isError`": returned(text("overflow"), isError=True),
    "system prompt": {"messages": [SAID], "systemPrompt": "Be brief."},
    "temperature": {"messages": [SAID], "temperature": 0.5},
    "stop sequences": {"messages": [SAID], "stopSequences": ["END"]},
    "metadata": {"messages": [SAID], "metadata": {"anything": "else"}},
    "`toolChoice` required": {"messages": [SAID], "tools": [ADD], "toolChoice": {"mode": "required"}},
    "`toolChoice` none": {"messages": [SAID], "tools": [ADD], "toolChoice": {"mode": "none"}},
    "`toolChoice` of one tool": {"messages": [SAID], "tools": [ADD], "toolChoice": {"type": "tool", "name": "add"}},
    "`disable_parallel_tool_use`": {
        "messages": [SAID],
        "tools": [ADD],
        "toolChoice": {"mode": "auto", "disable_parallel_tool_use": True},
    },
}
"""What a request has, and one that has it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What an adapter does with a feature. *shows* is JSON of the written request, or of the text of the refusal."""

    does: Literal["yes", "emulated", "refused", "left out"]
    how: str = ""
    shows: str = ""


def yes(shows: str, how: str = "") -> Cell:
    return Cell("yes", how, shows)


def emulated(how: str, shows: str) -> Cell:
    return Cell("emulated", how, shows)


def refused(says: str, how: str = "") -> Cell:
    return Cell("refused", how, says)


NO_IMAGE = refused("messages[1]: this model takes no image in an assistant's message")
NO_AUDIO = refused("messages[2]: this model takes no audio")
AS_JSON = emulated("JSON as text", r"{\"sum\":303}")
LINK_AS_JSON = emulated("JSON as text", r"\"uri\":\"file:///tides\"")

MATRIX: Mapping[str, tuple[type[ProviderModel], Mapping[str, Cell]]] = {
    "Anthropic": (
        AnthropicModel,
        {
            "text": yes('"Look."'),
            "image": yes(PNG, "JPEG, PNG, GIF, WebP"),
            "audio": refused("messages[0]: this model takes no audio"),
            "image of the model, sent back": NO_IMAGE,
            "tool call and result": yes('"three"'),
            "image in a result": yes(PNG, "JPEG, PNG, GIF, WebP"),
            "audio in a result": NO_AUDIO,
            "text resource in a result": yes('"the notes"', "a document with its URI as the title"),
            "PDF in a result": yes(PDF),
            "other file in a result": refused("messages[2]: this model takes no application/zip"),
            "resource link in a result": LINK_AS_JSON,
            "`structuredContent` without text": AS_JSON,
            "`isError`": yes('"is_error": true'),
            "system prompt": yes('"system": "Be brief."'),
            "temperature": Cell("left out", "the API has none", '"max_tokens"'),
            "stop sequences": yes('"stop_sequences": ["END"]'),
            "metadata": refused("metadata: this model takes only a user_id", "anything but a `user_id`"),
            "`toolChoice` required": yes('"tool_choice": {"type": "any"}'),
            "`toolChoice` none": yes('"tool_choice": {"type": "none"}'),
            "`toolChoice` of one tool": yes('"tool_choice": {"type": "tool", "name": "add"}'),
            "`disable_parallel_tool_use`": yes('"disable_parallel_tool_use": true'),
        },
    ),
    "OpenAI Responses": (
        OpenAIModel,
        {
            "text": yes('"Look."'),
            "image": yes(PNG),
            "audio": refused("messages[0]: this model takes no audio"),
            "image of the model, sent back": NO_IMAGE,
            "tool call and result": yes('"three"'),
            "image in a result": yes(PNG),
            "audio in a result": NO_AUDIO,
            "text resource in a result": emulated("text, after its URI", r"file:///notes:\nthe notes"),
            "PDF in a result": yes(PDF),
            "other file in a result": refused("messages[2]: this model takes no 'application/zip'"),
            "resource link in a result": LINK_AS_JSON,
            "`structuredContent` without text": AS_JSON,
            "`isError`": emulated("text says so", r"The tool failed:\noverflow"),
            "system prompt": yes('"instructions": "Be brief."'),
            "temperature": Cell("left out", "models that reason take none", '"max_output_tokens"'),
            "stop sequences": emulated("the answer is cut there", '"max_output_tokens"'),
            "metadata": yes('"metadata": {"anything": "else"}'),
            "`toolChoice` required": yes('"tool_choice": "required"'),
            "`toolChoice` none": yes('"tool_choice": "none"'),
            "`toolChoice` of one tool": yes('"tool_choice": {"type": "function", "name": "add"}'),
            "`disable_parallel_tool_use`": yes('"parallel_tool_calls": false'),
        },
    ),
    "OpenAI Chat": (
        OpenAIChatModel,
        {
            "text": yes('"Look."'),
            "image": yes(PNG),
            "audio": yes(WAV, "WAV, MP3"),
            "image of the model, sent back": NO_IMAGE,
            "tool call and result": yes('"three"'),
            "image in a result": emulated("in a user's message after it", PNG),
            "audio in a result": emulated("in a user's message after it", WAV),
            "text resource in a result": emulated("text, after its URI", r"file:///notes:\nthe notes"),
            "PDF in a result": emulated("in a user's message after it", PDF),
            "other file in a result": refused("messages[2]: this model takes no 'application/zip'"),
            "resource link in a result": LINK_AS_JSON,
            "`structuredContent` without text": AS_JSON,
            "`isError`": emulated("text says so", r"The tool failed:\noverflow"),
            "system prompt": yes('{"role": "system", "content": "Be brief."}'),
            "temperature": yes('"temperature": 0.5', "not for models of OpenAI that reason"),
            "stop sequences": yes('"stop": ["END"]', "for models of OpenAI that reason, the answer is cut there"),
            "metadata": yes('"metadata": {"anything": "else"}'),
            "`toolChoice` required": yes('"tool_choice": "required"'),
            "`toolChoice` none": emulated("no tools are sent", '"max_tokens": 100}'),
            "`toolChoice` of one tool": emulated("only that tool is sent", '"tool_choice": "required"'),
            "`disable_parallel_tool_use`": yes('"parallel_tool_calls": false'),
        },
    ),
    "Gemini": (
        GeminiModel,
        {
            "text": yes('"Look."'),
            "image": yes(PNG),
            "audio": yes(WAV),
            "image of the model, sent back": yes(PNG),
            "tool call and result": yes("three", "as text if the call has lost its signature"),
            "image in a result": yes(PNG),
            "audio in a result": yes(WAV),
            "text resource in a result": emulated("text, after its URI", r"file:///notes:\nthe notes"),
            "PDF in a result": yes(PDF),
            "other file in a result": refused("messages[2]: this model takes no application/zip"),
            "resource link in a result": LINK_AS_JSON,
            "`structuredContent` without text": AS_JSON,
            "`isError`": yes("overflow"),
            "system prompt": yes('"systemInstruction": {"parts": [{"text": "Be brief."}]}'),
            "temperature": yes('"temperature": 0.5'),
            "stop sequences": yes('"stopSequences": ["END"]'),
            "metadata": yes('"labels": {"anything": "else"}', "as labels"),
            "`toolChoice` required": yes('{"mode": "ANY"}'),
            "`toolChoice` none": yes('{"mode": "NONE"}'),
            "`toolChoice` of one tool": yes('{"mode": "ANY", "allowedFunctionNames": ["add"]}'),
            "`disable_parallel_tool_use`": emulated("the first call is kept", '{"mode": "AUTO"}'),
        },
    ),
    "Ollama": (
        OllamaModel,
        {
            "text": yes('"Look."'),
            "image": yes(PNG),
            "audio": refused("messages[0]: this model takes no audio"),
            "image of the model, sent back": yes(PNG),
            "tool call and result": yes('"three"'),
            "image in a result": yes(PNG),
            "audio in a result": NO_AUDIO,
            "text resource in a result": emulated("text, after its URI", r"file:///notes:\nthe notes"),
            "PDF in a result": refused("messages[2]: this model takes no application/pdf"),
            "other file in a result": refused("messages[2]: this model takes no application/zip"),
            "resource link in a result": LINK_AS_JSON,
            "`structuredContent` without text": AS_JSON,
            "`isError`": emulated("text says so", r"The tool failed:\noverflow"),
            "system prompt": yes('{"role": "system", "content": "Be brief."}'),
            "temperature": yes('"temperature": 0.5'),
            "stop sequences": yes('"stop": ["END"]'),
            "metadata": refused("metadata: this model takes none"),
            "`toolChoice` required": emulated("the answer is JSON of the arguments", '"format": '),
            "`toolChoice` none": emulated("no tools are sent", '{"num_predict": 100}}'),
            "`toolChoice` of one tool": emulated("the answer is JSON of the arguments", '"format": '),
            "`disable_parallel_tool_use`": emulated("the first call is kept", '"tools": '),
        },
    ),
    "pydantic-ai": (
        PydanticAIModel,
        {
            "text": yes('"Look."'),
            "image": yes(PNG),
            "audio": yes(WAV),
            "image of the model, sent back": NO_IMAGE,
            "tool call and result": yes('"three"'),
            "image in a result": yes(PNG),
            "audio in a result": yes(WAV),
            "text resource in a result": emulated("text, after its URI", r"file:///notes:\nthe notes"),
            "PDF in a result": yes(PDF),
            "other file in a result": yes(ZIP),
            "resource link in a result": LINK_AS_JSON,
            "`structuredContent` without text": AS_JSON,
            "`isError`": yes('"outcome": "failed"'),
            "system prompt": yes('"instructions": "Be brief."'),
            "temperature": yes('"temperature": 0.5'),
            "stop sequences": yes('"stop_sequences": ["END"]', "or refused, if the model has none"),
            "metadata": refused("metadata: this model takes none"),
            "`toolChoice` required": yes('"tool_choice": "required"'),
            "`toolChoice` none": yes('"tool_choice": "none"'),
            "`toolChoice` of one tool": yes('"tool_choice": ["add"]'),
            "`disable_parallel_tool_use`": yes('"parallel_tool_calls": false', "or the first call is kept"),
        },
    ),
}
"""By the name of the adapter: its class, and a cell for each of `FEATURES`."""


def table() -> str:
    """The matrix as Markdown."""
    lines = [f"| | {' | '.join(MATRIX)} |", f"|---|{'---|' * len(MATRIX)}"]
    for feature in FEATURES:
        cells = [cells[feature] for _, cells in MATRIX.values()]
        written = [f"{cell.does}: {cell.how}" if cell.how else cell.does for cell in cells]
        lines.append(f"| {feature} | {' | '.join(written)} |")
    return "\n".join(lines) + "\n"
