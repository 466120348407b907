"""OpenAI's Chat Completions, and the servers that speak it: vLLM, LM Studio, llama.cpp, OpenRouter, DeepSeek, …

https://developers.openai.com/api/reference/resources/chat. What the others do in another way:

====================  ==========================================================================================
``max_tokens``        they know this name; many ignore ``max_completion_tokens``, and then there is no limit
one forced tool       it is offered alone and "required": few take a tool's name, or a JSON schema, from every model
``tool_choice`` none  some ignore it, so no tool is offered
reasoning             ``reasoning_content``, ``reasoning`` or ``reasoning_details``: sent back as it came, with its calls
streams               no index for calls, whole calls at once, a finish reason before the last delta, names repeated
====================  ==========================================================================================
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from mcp_host.errors import SamplingError
from mcp_host.providers.adapter import Call, Metadata, OnDelta, Prompt, ProviderModel, Reply, Usage, as_json, refused
from mcp_host.providers.failures import unfinished
from mcp_host.providers.openai import (
    NAME_RULE,
    PROVIDER,
    Answer,
    Part,
    audio,
    call_id,
    data_url,
    fields,
    forced_tool,
    format_of,
    function_of,
    joined,
    model_failed,
    no_answer,
    own_call,
    part_of,
    pdf,
    result_parts,
    usage_counts,
)
from mcp_host.types import (
    AudioContent,
    ImageContent,
    JSONObject,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, STOP_SEQUENCE, TOOL_USE

Dialect: TypeAlias = Literal["openai", "compatible"]

OPENAI_HOSTS = (".openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")

MOST_STOPS = 4  # "Up to 4 sequences where the API will stop generating further tokens"

FINISH_REASONS = {
    "stop": END_TURN,
    "length": MAX_TOKENS,
    "model_length": MAX_TOKENS,  # Mistral
    "tool_calls": TOOL_USE,
    "function_call": TOOL_USE,
    "content_filter": "content_filter",
}
FAILURES = frozenset({"error", "insufficient_system_resource", "abort"})  # OpenRouter, DeepSeek, vLLM

REASONING = ("reasoning_content", "reasoning", "reasoning_details")
GROWING = ("content", "refusal", "reasoning_content", "reasoning")
IN_ANSWER = frozenset({"content", "refusal"})

OPEN = "_open"  # in a reply that is being folded: what has come of the message
OWN_FORMAT = "_own_format"  # before the chunks of a stream whose text is the arguments of a call


# Requests


def write_request(prompt: Prompt, dialect: Dialect = "openai") -> JSONObject:
    """The keyword arguments of ``chat.completions.create``.

    Raises:
        InputRefused: The API does not take something of it.
    """
    request = prompt.request
    is_openai = dialect == "openai"
    body = fields(prompt) | {
        "messages": list(_messages(prompt)),
        "max_completion_tokens" if is_openai else "max_tokens": request.max_tokens,
    }
    if request.stop_sequences:
        if is_openai and len(request.stop_sequences) > MOST_STOPS:
            raise refused("stopSequences", f"at most {MOST_STOPS}")
        body["stop"] = request.stop_sequences
    if is_openai and (own := format_of(prompt)) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": own}
        body.pop("parallel_tool_calls", None)  # it needs tools
    else:
        body |= _tools(prompt, is_openai=is_openai)
    return body


def _tools(prompt: Prompt, *, is_openai: bool) -> JSONObject:
    request = prompt.request
    tools: Sequence[Tool] = request.tools
    if not tools or not (is_openai or request.may_use_tools):
        return {}
    if (forced := forced_tool(prompt)) is not None:
        tools = [forced]
    written: JSONObject = {"tools": [{"type": "function", "function": function_of(tool, prompt)} for tool in tools]}
    if request.tool_choice is not None:
        written["tool_choice"] = request.tool_choice.mode or "auto"
    return written


def _messages(prompt: Prompt) -> Iterator[JSONObject]:
    if prompt.request.system_prompt:
        yield {"role": "system", "content": prompt.request.system_prompt}
    for index, message in enumerate(prompt.request.messages):
        where = f"messages[{index}]"
        turn = prompt.turns.get(index)
        if isinstance(turn, dict):
            calls = [call | {"id": call_id(call["id"])} for call in turn["tool_calls"]]
            yield turn | {"tool_calls": calls}
        elif message.role == "assistant":
            yield _assistant(message, where, prompt)
        else:
            yield from _user(message, where)


def _assistant(message: SamplingMessage, where: str, prompt: Prompt) -> JSONObject:
    calls: list[JSONObject] = []
    for block in message.content:
        if isinstance(block, ToolUseContent):
            arguments = json.dumps(block.input, ensure_ascii=False)
            function = {"name": prompt.names.write(block.name), "arguments": arguments}
            calls.append({"id": call_id(block.id), "type": "function", "function": function})
        elif not isinstance(block, TextContent):
            raise no_answer(block.type, where)
    has_text = any(isinstance(block, TextContent) for block in message.content)
    written: JSONObject = {"role": "assistant", "content": message.text if has_text else None}
    return written | {"tool_calls": calls} if calls else written


def _user(message: SamplingMessage, where: str) -> Iterator[JSONObject]:
    """A user's message, or one for each result, and one with what these cannot have: "tool" messages have text only."""
    parts: list[Part] = []
    for block in message.content:
        if isinstance(block, ToolResultContent):
            id = call_id(block.tool_use_id)
            said = result_parts(block, where)
            texts = [part for part in said if isinstance(part, str)]
            if others := [part for part in said if not isinstance(part, str)]:
                texts.append(f"[{_count(others)}: in the user's next message]")
                parts += [f"From the result of the tool call {id}:", *others]
            yield {"role": "tool", "tool_call_id": id, "content": "\n".join(texts)}
        elif not isinstance(block, ToolUseContent):
            parts.append(part_of(block, where))
    if parts:
        text = joined(parts)
        yield {"role": "user", "content": [_part(part, where) for part in parts] if text is None else text}


def _count(parts: Sequence[Part]) -> str:
    return f"{len(parts)} {'file' if len(parts) == 1 else 'files'}"


def _part(part: Part, where: str) -> JSONObject:
    match part:
        case str():
            return {"type": "text", "text": part}
        case ImageContent(data=data, mime_type=kind):
            return {"type": "image_url", "image_url": {"url": data_url(kind, data)}}
        case AudioContent():
            return {"type": "input_audio", "input_audio": audio(part, where)}
        case _:
            return {"type": "file", "file": pdf(part)}


# Replies


def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
    """What a chat completion says.

    Raises:
        ProviderError: The model failed, or the stream ended too early.
        SamplingError: It has a call of a tool that is not one of the request.
    """
    choices = reply.get("choices") or []
    choice: JSONObject = choices[0] if choices else {}
    finish_reason = choice.get("finish_reason")
    if (error := reply.get("error") or choice.get("error")) or finish_reason in FAILURES:
        raise model_failed(error or {"code": finish_reason})
    if not finish_reason:
        raise unfinished(PROVIDER)
    message: JSONObject = _whole(choice[OPEN]) if OPEN in choice else choice["message"]
    content = _read_content(message, prompt)
    stop_reason = FINISH_REASONS.get(finish_reason, finish_reason)
    if message.get("refusal"):
        stop_reason = "refusal"
    elif stop_reason == END_TURN and isinstance(choice.get("stop_reason"), str):  # vLLM: the stop sequence
        stop_reason = STOP_SEQUENCE
    calls = message.get("tool_calls") or []
    if not calls and stop_reason == END_TURN and "response_format" not in prompt.options:
        own = own_call(content, prompt) if _asked_for_json(reply, prompt) else None
        content, stop_reason = ([own], TOOL_USE) if own is not None else (content, stop_reason)
    return Reply(
        content=content,
        model=reply.get("model") or prompt.model,
        stop_reason=stop_reason,
        turn=_turn(message),
        usage=_usage(reply.get("usage") or {}),
    )
