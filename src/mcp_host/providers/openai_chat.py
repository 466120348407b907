"""OpenAI's Chat Completions, and the servers that speak it: vLLM, LM Studio, llama.cpp, OpenRouter, DeepSeek, …

https://developers.openai.com/api/reference/resources/chat. What the others do in another way:

====================  ==========================================================================================
``max_tokens``        they know this name; many ignore ``max_completion_tokens``, and then there is no limit
one forced tool       it is offered alone and "required": few take a tool's name, or a JSON schema, from every model
``tool_choice`` none  some ignore it, so no tool is offered
reasoning             ``reasoning_content``, ``reasoning``, ``reasoning_details`` or parts of the content: sent back as
                      it came, with its calls
streams               no index for calls, whole calls at once, a finish reason before the last delta, names repeated
finish reason         none, also of whole answers; or one of another API
usage                 ``completion_tokens`` without the reasoning, which only ``total_tokens`` has
====================  ==========================================================================================
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Literal, TypeAlias, Unpack, get_args
from urllib.parse import urlsplit

from anyio import move_on_after

from mcp_host.errors import SamplingError
from mcp_host.protocol.sse import Event, EventDecoder, LastEvent
from mcp_host.providers.adapter import Arguments, ProviderModel
from mcp_host.providers.exchange.clients import Sdk
from mcp_host.providers.exchange.failures import READING, Empty, Unfinished, Unreadable, stream_of
from mcp_host.providers.exchange.file_limits import NO_LIMITS, OPENAI, FileLimits
from mcp_host.providers.exchange.replies import (
    Call,
    CountFields,
    Reply,
    ReplyBlock,
    arguments_in,
    as_json,
    count_of,
    object_in,
    read_counts,
    stopped,
    text_arguments,
)
from mcp_host.providers.exchange.requests import (
    Prompt,
    files_elsewhere,
    files_of,
    not_of_assistant,
    nothing_said,
    other_id,
    place_of,
    refused,
    says_something,
)
from mcp_host.providers.exchange.streams import unwinding
from mcp_host.providers.exchange.texts import without_thinking
from mcp_host.providers.openai import (
    NAME_RULE,
    PROVIDER,
    Part,
    arguments_of,
    audio,
    call_id,
    content_of,
    cut_description,
    data_url,
    fields,
    forced_tool,
    format_of,
    function_of,
    model_failed,
    own_call,
    part_of,
    pdf,
    reasons,
    result_parts,
    tell_of_function,
    use_of_tools,
)
from mcp_host.providers.openai_chat_calls import StreamedCalls
from mcp_host.sampling.request import Usage
from mcp_host.types import (
    AudioContent,
    ImageContent,
    JSONObject,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.content import ContentBlock
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, STOP_SEQUENCE, TOOL_USE

Dialect: TypeAlias = Literal["openai", "compatible"]

OPENAI_HOSTS = (".openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")

MAX_TOOLS = 128  # "A max of 128 functions are supported": https://platform.openai.com/docs/api-reference/chat/create
MAX_STOPS = 4  # "Up to 4 sequences where the API will stop": more are applied to the answer

FINISH_REASONS = {  # in lower case
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "complete"), END_TURN),  # Together, TGI, Claude, Cohere
    **dict.fromkeys(("length", "model_length", "max_tokens"), MAX_TOKENS),  # Mistral, Claude
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), TOOL_USE),
    "stop_sequence": STOP_SEQUENCE,
    "content_filter": "content_filter",
}
FAILURES = frozenset({"error", "insufficient_system_resource", "abort"})  # OpenRouter, DeepSeek, vLLM

TOTAL = "total"  # beside the counts of `Usage`
CACHE_READ: CountFields = {  # OpenAI and Moonshot, DeepSeek, Mistral
    "cached_tokens": "cacheReadTokens",
    "prompt_cache_hit_tokens": "cacheReadTokens",
    "num_cached_tokens": "cacheReadTokens",
}
CACHE_WRITE: CountFields = {  # OpenAI, Alibaba
    "cache_write_tokens": "cacheWriteTokens",
    "cache_creation_input_tokens": "cacheWriteTokens",
}
COUNTS: CountFields = {
    "prompt_tokens": "inputTokens",
    "completion_tokens": "outputTokens",
    "total_tokens": TOTAL,
    **CACHE_READ,
    "prompt_tokens_details": {**CACHE_READ, **CACHE_WRITE},
    "completion_tokens_details": {"reasoning_tokens": "reasoningTokens"},
}

DETAILS = "reasoning_details"
REASONING = ("reasoning_content", "reasoning", DETAILS)
GROWING = ("refusal", "reasoning_content", "reasoning")
TEXTS = frozenset({"text", "output_text"})  # types of parts
GROWING_PARTS = {
    **dict.fromkeys(TEXTS, "text"),
    "thinking": "thinking",  # Mistral: a list of parts
    "reasoning.text": "text",  # OpenRouter
    "reasoning.summary": "summary",
}
"""What grows in the parts of a message, by their type."""

# https://docs.vllm.ai/en/v0.15.0/api/vllm/tool_parsers/mistral_tool_parser/: its API and its tokenizer refuse other ids
MISTRAL = re.compile("mi[sx]tral|ministral|magistral|codestral|devstral|pixtral|voxtral", re.IGNORECASE)
MISTRAL_ID_LENGTH = 9
MISTRAL_ID = re.compile(f"[a-zA-Z0-9]{{{MISTRAL_ID_LENGTH}}}")

# https://vllm.ai/blog/2025-10-28-kimi-k2-accuracy, https://github.com/exo-explore/exo/issues/2281: ids are in its prompt, it
# repeats their form, and servers read the names of tools from them. Moonshot's own API renames the ids of each request
KIMI = re.compile("kimi", re.IGNORECASE)

# DeepSeek, Moonshot and Xiaomi refuse calls without ``reasoning_content``, for which an empty one is enough. Groq, Cerebras
# and Mistral refuse the field. Which of them wrote a turn that is forgotten, only the name of the model tells
WANTS_REASONING = re.compile("deepseek|kimi|mimo", re.IGNORECASE)

DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,60});base64,([A-Za-z0-9+/=]*)")

MAX_CHUNK = 64 * 1024 * 1024  # bytes: a chunk may have an image

DONE = b"[DONE]"

END_TIMEOUT = 1.0  # seconds for the end of a response after its last chunk: then the connection can be used again

OPEN = "_open"  # in a reply that is being folded: what has come of the message
CALLS = "_calls"  # in what has come of a message: its `StreamedCalls`
NOT_DONE = "_not_done"  # in a reply that is being folded: its stream ended without ``[DONE]``
IS_COUNTED = "_is_counted"  # in a reply that is being folded: whether its usage came after the last delta


# Requests


def write_request(prompt: Prompt, dialect: Dialect = "openai") -> JSONObject:
    """The keyword arguments of ``chat.completions.create``.

    Raises:
        InputRefused: The API does not take something of it.
    """
    params = prompt.request.params
    is_openai = dialect == "openai"
    body = fields(prompt, is_openai=is_openai)
    body["messages"] = _messages(prompt, is_openai=is_openai)
    body["max_completion_tokens" if is_openai else "max_tokens"] = params.max_tokens
    if is_openai and params.metadata and not prompt.options.get("store"):
        raise refused("metadata", "none unless the host stores the answers (store)")
    if params.stop_sequences:
        stops = [stop for stop in params.stop_sequences if stop]
        if stops and len(stops) <= MAX_STOPS and not (is_openai and reasons(prompt.model)):
            body["stop"] = stops
    if params.tools:
        if is_openai and (own := format_of(prompt)) is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": own}
        else:
            body |= prompt.written_tools(partial(_tools, is_openai=is_openai))
    return body


def _tools(prompt: Prompt, *, is_openai: bool) -> JSONObject:
    request = prompt.request
    if is_openai:
        tell_of_function(prompt)
    elif not request.may_use_tools:
        return {}
    forced = forced_tool(prompt)
    tools = request.tools if forced is None else [forced]
    if is_openai and len(tools) > MAX_TOOLS:
        raise refused("tools", f"{MAX_TOOLS} at most, not {len(tools)}")
    functions = [function_of(tool, prompt) for tool in tools]
    if is_openai:
        for function in functions:
            cut_description(function)
    return {"tools": [{"type": "function", "function": function} for function in functions], **use_of_tools(request)}


def _messages(prompt: Prompt, *, is_openai: bool) -> list[JSONObject]:
    params = prompt.request.params
    messages: list[JSONObject] = []
    ids: dict[str, str] = {}  # of calls, as the model takes them
    numbers = count()
    has_left_out = False  # since the last message
    if params.system_prompt:
        messages.append({"role": "system", "content": params.system_prompt})
    for index, message in enumerate(params.messages):
        if isinstance(message, UserMessage):
            written = _user(message, index, ids)
            if has_left_out and written and messages and messages[-1]["role"] == written[0]["role"]:
                written[0] = _joined(messages.pop(), written[0])
            has_left_out = has_left_out and not written
            messages += written
            continue
        ids |= {use.id: _id(use, next(numbers), prompt) for use in message.tool_uses}
        turn = prompt.turns.get(index)
        if isinstance(turn, dict):
            calls = zip(turn["tool_calls"], message.tool_uses, strict=True)
            messages.append(turn | {"tool_calls": [call | {"id": ids[use.id]} for call, use in calls]})
            has_left_out = False
        else:
            wanted = index in prompt.lost and not is_openai and WANTS_REASONING.search(prompt.model)
            lost = {"reasoning_content": ""} if wanted else {}
            said = _assistant(message, index, prompt, ids)
            has_left_out = not (said["content"] or "tool_calls" in said)
            if not has_left_out:
                messages.append(said | lost)
    if all(message["role"] == "system" for message in messages):
        raise nothing_said()
    return messages


def _joined(before: JSONObject, after: JSONObject) -> JSONObject:
    """Two messages of the user as one: what the assistant said between them is left out, and some servers want roles to alternate."""
    contents = [before["content"], after["content"]]
    if all(isinstance(content, str) for content in contents):
        return before | {"content": "\n".join(contents)}
    lists = [[_part(content, "")] if isinstance(content, str) else content for content in contents]
    return before | {"content": [part for parts in lists for part in parts]}


def _assistant(message: SamplingMessage, index: int, prompt: Prompt, ids: Mapping[str, str]) -> JSONObject:
    calls: list[JSONObject] = []
    for block in message.content:
        if isinstance(block, ToolUseContent):
            arguments = json.dumps(block.input, ensure_ascii=False)
            function = {"name": prompt.names.write(block.name), "arguments": arguments}
            calls.append({"id": ids[block.id], "type": "function", "function": function})
        elif not isinstance(block, TextContent):
            raise not_of_assistant(block.type, place_of(index))
    texts = [block.text for block in message.content if isinstance(block, TextContent) and says_something(block.text)]
    written: JSONObject = {"role": "assistant", "content": "\n".join(texts) or None}
    return written | {"tool_calls": calls} if calls else written


def _user(message: UserMessage, index: int, ids: Mapping[str, str]) -> list[JSONObject]:
    """A user's message, or one for each result, and one with what these cannot have: "tool" messages have text only."""
    messages: list[JSONObject] = []
    parts: list[Part] = []
    for block in message.content:
        if isinstance(block, TextContent):  # most blocks
            if says_something(block.text):
                parts.append(block.text)
        elif isinstance(block, ToolResultContent):
            id = ids[block.tool_use_id]
            said = result_parts(block, place_of(index))
            texts = [part for part in said if isinstance(part, str)]
            if others := [part for part in said if not isinstance(part, str)]:
                texts.append(files_elsewhere(len(others), "in the user's next message"))
                parts += [files_of(id), *others]
            messages.append({"role": "tool", "tool_call_id": id, "content": "\n".join(texts)})
        else:
            parts.append(part_of(block, place_of(index)))
    if parts:
        messages.append({"role": "user", "content": content_of(parts, _part, index)})
    return messages


def _id(call: ToolUseContent, number: int, prompt: Prompt) -> str:
    """The id of a tool call, as the model takes it. *number* is the place of the call in the conversation."""
    if KIMI.search(prompt.model):
        return f"functions.{prompt.names.write(call.name)}:{number}"
    if MISTRAL.search(prompt.model):
        return call.id if MISTRAL_ID.fullmatch(call.id) else other_id(call.id)[-MISTRAL_ID_LENGTH:]
    return call_id(call.id)


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


def read_reply(
    reply: JSONObject, prompt: Prompt, dialect: Dialect = "openai", *, starts_with_reasoning: bool = False
) -> Reply:
    """What a chat completion says.

    Raises:
        ProviderError: The model failed.
        Unfinished: It does not have the whole answer.
        SamplingError: It has the address of an image, a data: URL of something else, or a call that no server of MCP
            can answer.
    """
    choices = reply.get("choices") or []
    choice: JSONObject = choices[0] if choices else {}
    finish_reason: str = choice.get("finish_reason") or ""
    known = finish_reason.lower()
    if error := reply.get("error") or choice.get("error"):
        raise model_failed(error)
    if known in FAILURES:
        raise model_failed({"finish_reason": finish_reason}, known, "server_error")
    if reply.get("object") == "error":
        raise model_failed(reply)
    if OPEN not in reply and not choice:
        raise Unfinished
    message: JSONObject = _whole(reply[OPEN]) if OPEN in reply else choice["message"]
    calls = [_with_function(call) for call in _calls(message)]
    written = _text(message.get("content"))
    text = without_thinking(written, has_begun=starts_with_reasoning and not _is_format(written, prompt, dialect))
    content = _read_message(text, message, calls, prompt)
    usage = _usage(reply.get("usage"))
    reason = FINISH_REASONS.get(known, finish_reason)
    if not reason:
        is_whole = NOT_DONE not in reply and reply.get(IS_COUNTED, True) and content and _are_whole(calls)
        if usage is None or not is_whole:
            raise Unfinished  # a server that is cut off itself may say [DONE], but has not counted all that it sent
        reason = MAX_TOKENS if _is_cut(usage, prompt) else END_TURN
    elif NOT_DONE in reply and reason == TOOL_USE and not (calls and _are_whole(calls)):
        raise Unfinished  # some servers send the finish reason before the last deltas
    stop_reason = _stop_reason(reason, choice, message, calls)
    if prompt.request.params.stop_sequences:
        content, stop_reason = stopped(content, stop_reason, prompt)
    elif stop_reason == END_TURN and dialect == "openai" and (own := own_call(content, prompt)) is not None:
        content, stop_reason = [own], TOOL_USE
    return Reply(
        content=content,
        model=reply.get("model") or prompt.model,
        stop_reason=stop_reason,
        turn=_turn(message, calls, has_thoughts=text is not written) if calls else None,
        usage=usage,
    )


def _is_format(text: str, prompt: Prompt, dialect: Dialect) -> bool:
    """Whether a text is JSON that was asked for. A model that always thinks does not then: the format holds from the first word."""
    if not text.lstrip().startswith("{"):
        return False
    return "response_format" in prompt.options or (dialect == "openai" and format_of(prompt) is not None)


def _are_whole(calls: Sequence[JSONObject]) -> bool:
    """Whether calls have all of their arguments."""
    return all(arguments_in(_written(call["function"].get("arguments"))) is not None for call in calls)


def _is_cut(usage: Usage, prompt: Prompt) -> bool:
    """Whether an answer has all tokens that it may have. The host's options may say how many."""
    limits = [count_of(prompt.options.get(name)) for name in ("max_tokens", "max_completion_tokens")]
    limit = limits[0] or limits[1] or prompt.request.max_tokens
    return usage.get("outputTokens", 0) >= limit


def _stop_reason(reason: str, choice: JSONObject, message: JSONObject, calls: Sequence[JSONObject]) -> str:
    if message.get("refusal"):
        return "refusal"
    if reason in (END_TURN, TOOL_USE):
        reason = TOOL_USE if calls else END_TURN
    if reason == END_TURN and isinstance(choice.get("stop_reason"), str):  # vLLM: the stop sequence
        return STOP_SEQUENCE
    return reason


def _read_message(text: str, message: JSONObject, calls: Sequence[JSONObject], prompt: Prompt) -> list[ReplyBlock]:
    content: list[ReplyBlock] = [text] if text else []
    if refusal := message.get("refusal"):
        content.append(refusal)
    if (spoken := message.get("audio") or {}).get("data"):  # Snowflake has an empty one
        settings = prompt.options.get("audio")
        sound = settings.get("format") if isinstance(settings, Mapping) else None
        content.append(AudioContent(data=spoken["data"], mime_type=f"audio/{sound or 'wav'}"))
        if spoken.get("transcript"):
            content.append(spoken["transcript"])
    for image in message.get("images") or ():  # OpenRouter
        content.append(_read_image(image["image_url"]["url"]))
    for call in calls:
        if call.get("type") == "custom":
            raise SamplingError("the model called a custom tool, which only the host's options can have offered")
        function = call["function"]
        content.append(Call(call.get("id"), function.get("name"), text_arguments(function.get("arguments"))))
    return content


def _read_image(url: str) -> ImageContent:
    """The image that a URL holds.

    Raises:
        SamplingError: It holds none that is in base64: nothing is fetched.
    """
    match = DATA_URL.fullmatch(url)
    if match is None:
        if url[:5].lower() == "data:":
            raise SamplingError("the model answered with a data: URL that is no image in base64")
        raise SamplingError("the model answered with the address of an image, and nothing is fetched")
    return ImageContent(data=match[2], mime_type=match[1])


def _text(content: object) -> str:
    """The text of a message."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in _parts(content) if part.get("type") in TEXTS)


def _parts(content: object) -> Sequence[JSONObject]:
    """The parts of a message, which may be one text, or one part. Those that are no text are thinking."""
    match content:
        case str() if content:
            return [{"type": "text", "text": content}]
        case dict():
            return [content]
        case list():
            return content
    return ()


def _turn(message: JSONObject, calls: Sequence[JSONObject], *, has_thoughts: bool) -> JSONObject | None:
    """The message, to be sent back with the results of its *calls*, if MCP has no place for all of it: its text
    *has_thoughts*, or there are others.

    https://api-docs.deepseek.com/guides/thinking_mode: without ``reasoning_content`` the next request is refused, also if
    it is empty.
    https://openrouter.ai/docs/use-cases/reasoning-tokens: ``reasoning_details`` come back unmodified, and then without
    ``reasoning``, which repeats them. Gemini's signatures are in the calls (``extra_content``).
    """
    reasoning = {name: message[name] for name in REASONING if message.get(name) not in (None, [])}
    if DETAILS in reasoning:
        reasoning.pop("reasoning", None)
    has_thoughts = has_thoughts or any(part.get("type") not in TEXTS for part in _parts(message.get("content")))
    is_signed = any(call.keys() - {"function", "id", "index", "type"} for call in calls)
    if not (reasoning or has_thoughts or is_signed):
        return None
    kept = [
        {"type": "function"}
        | {name: value for name, value in call.items() if name != "index"}
        | {"function": {**call["function"], "arguments": _written(call["function"].get("arguments"))}}
        for call in calls
    ]
    return {"role": "assistant", "content": message.get("content"), **reasoning, "tool_calls": kept}


def _calls(message: JSONObject) -> Sequence[JSONObject]:
    """The calls of a message. Servers of 2023 have one ``function_call``, without an id; Snowflake has an empty one."""
    calls: Sequence[JSONObject] = message.get("tool_calls") or ()
    if not calls and (function := message.get("function_call")) and any(function.values()):
        return [{"function": function}]
    return calls


def _with_function(call: object) -> JSONObject:
    """A call of some open models may be null, or have no function."""
    call = object_in(call)
    return call if isinstance(call.get("function"), dict) else {**call, "function": {}}


def _written(arguments: object) -> str:
    """The arguments of a call as each server takes them back: the text of an object."""
    arguments = text_arguments(arguments) or {}
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _usage(usage: object) -> Usage | None:
    """The counts. xAI and Gemini count the reasoning, which the model wrote too, in ``total_tokens`` only. Gemini does not
    say how many tokens it takes; where a server does, the total may have others that the model did not write.
    """
    counts = read_counts(usage, COUNTS)
    both = counts.pop(TOTAL, 0)
    more = both - counts.get("inputTokens", both) - counts.get("outputTokens", both)
    if more > 0:
        counts["outputTokens"] += min(more, counts.get("reasoningTokens", more))
    return counts or None


# Streams: https://developers.openai.com/api/reference/resources/chat/subresources/completions/streaming-events


def read_event(reply: JSONObject, event: JSONObject) -> str:
    """Add one chunk of a stream. Texts stay lists of pieces until the reply is read: joining them each time takes
    quadratic time. A delta counts whether it comes before the finish reason or after it. Some servers send a whole message,
    which counts if there were no deltas.

    Raises:
        ProviderError: The chunk says that the model failed.
    """
    if event.get("error") or event.get("object") == "error":  # of older servers with vLLM: the event itself
        raise model_failed(event.get("error") or event)
    for name in ("id", "model", "usage", NOT_DONE):
        if event.get(name):
            reply[name] = event[name]
    said = ""
    goes_on = False
    for choice in event.get("choices") or ():
        if not choice.get("index"):
            kept = reply.setdefault("choices", [{}])[0]
            kept |= {name: choice[name] for name in ("finish_reason", "stop_reason", "error") if choice.get(name)}
            message, delta = reply.setdefault(OPEN, {}), choice.get("delta") or {}
            said += _add_delta(message, delta)
            goes_on = bool(said or delta.get("refusal") or _calls(delta))
            if not message:
                said += _add_delta(message, choice.get("message") or {})
    if goes_on or event.get("usage"):
        reply[IS_COUNTED] = not goes_on  # some servers count with each delta
    return said


def _add_delta(message: JSONObject, delta: JSONObject) -> str:
    """Add a delta to what has come of a message. Returns what it adds to the text.

    A refusal, and what is said in audio, come after the text in the answer, and in a stream at any time.
    """
    for name in GROWING:
        if (piece := delta.get(name)) is not None:  # it may stay empty
            message.setdefault(name, []).append(_text(piece))
    for name, parts in (("content", _parts(delta.get("content"))), (DETAILS, delta.get(DETAILS) or ())):
        for part in parts:
            _add_part(message.setdefault(name, []), part)
    if images := delta.get("images"):
        message.setdefault("images", []).extend(images)
    for name, heard in (delta.get("audio") or {}).items():
        if name in ("data", "transcript") and heard:
            message.setdefault("audio", {}).setdefault(name, []).append(heard)
    for call in _calls(delta):
        message.setdefault(CALLS, StreamedCalls()).add(call)
    return _text(delta.get("content"))


def _add_part(parts: list[JSONObject], delta: JSONObject) -> None:
    """A part goes on with the last, if both are of one type that grows, and of one index."""
    last = parts[-1] if parts else {}
    kind = delta.get("type")
    field = GROWING_PARTS.get(str(kind))
    if field is None:
        parts.append(delta)
        return
    piece = delta.get(field)
    pieces = piece if isinstance(piece, list) else [piece or ""]
    if (last.get("type"), last.get("index")) != (kind, delta.get("index")):
        parts.append({**delta, field: [*pieces]})
        return
    last[field] += pieces
    last.update({name: value for name, value in delta.items() if name != field and value is not None})


def _whole(message: JSONObject) -> JSONObject:
    """The message that has been folded, as it is without a stream."""
    whole: JSONObject = {"role": "assistant"}
    whole |= {name: "".join(message[name]) for name in GROWING if name in message}
    whole["images"] = message.get("images")
    for name in ("content", DETAILS):
        whole[name] = [_whole_part(part) for part in message.get(name, ())]
    if all(part.get("type") in TEXTS for part in whole["content"]):
        whole["content"] = _text(whole["content"]) or None
    if (spoken := message.get("audio")) and "data" in spoken:
        data = b64encode(b"".join(map(b64decode, spoken["data"]))).decode()
        whole["audio"] = {"data": data, "transcript": "".join(spoken.get("transcript", ()))}
    if CALLS in message:
        whole["tool_calls"] = message[CALLS].whole()
    return whole


def _whole_part(part: JSONObject) -> JSONObject:
    """A part with its text, if it has grown in pieces of one."""
    field = GROWING_PARTS.get(str(part.get("type")), "")
    pieces = part.get(field)
    return {**part, field: "".join(pieces)} if pieces and isinstance(pieces[0], str) else part


class OpenAIChatModel(ProviderModel):
    """A model of OpenAI's Chat Completions, or of a server that speaks it: ``OpenAIChatModel(client, "qwen3")``.

    *client* is an async client of the SDK ``openai``: ``AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="-")``
    for vLLM, for example. For OpenAI itself, prefer `OpenAIModel`, which keeps the reasoning between calls.

    *dialect* is ``openai`` or ``compatible``. The default is ``openai`` for clients of OpenAI and Azure, and
    ``compatible`` for others: ``max_tokens`` instead of ``max_completion_tokens``, a single forced tool as a required
    function instead of a JSON schema, no tools if none may be called.

    *starts_with_reasoning* is for a model that always thinks, from the first word, behind a server that does not
    separate it: what it writes up to ``</think>`` is no part of the answer, also without a ``<think>`` before it. An answer
    without a ``</think>`` is empty.

    The other arguments are those of `ProviderModel`.

    Raises:
        ValueError: There is no such dialect.
    """

    provider = PROVIDER
    name_rule = NAME_RULE
    cuts_at_stops = True
    thinks_in_text = True
    _sdk = Sdk("openai.AsyncOpenAI()", "chat.completions.create")

    def __init__(
        self,
        client: Any,
        model: str,
        *,
        dialect: Dialect | None = None,
        starts_with_reasoning: bool = False,
        **arguments: Unpack[Arguments],
    ) -> None:
        super().__init__(client, model, **arguments)
        self._starts_with_reasoning = starts_with_reasoning
        if dialect is not None and dialect not in get_args(Dialect):
            raise ValueError(f'dialect is "openai" or "compatible", not {dialect!r}')
        self._dialect: Dialect = dialect or dialect_of(client)

    def write_request(self, prompt: Prompt) -> JSONObject:
        return write_request(prompt, self._dialect)

    def read_reply(self, reply: JSONObject, prompt: Prompt) -> Reply:
        return read_reply(reply, prompt, self._dialect, starts_with_reasoning=self._starts_with_reasoning)

    def check_block(self, block: ContentBlock, where: str) -> None:
        part = part_of(block, where)
        if isinstance(part, AudioContent):  # the only part that is refused when it is written
            _part(part, where)

    read_event = staticmethod(read_event)

    def file_limits(self) -> FileLimits:
        return OPENAI if self._dialect == "openai" else NO_LIMITS

    def call_is_text(self, prompt: Prompt) -> bool:
        """Whether the answer has to be the arguments of the only tool, in the strict mode."""
        return self._dialect == "openai" and format_of(prompt) is not None

    async def request_reply(self, body: JSONObject) -> JSONObject:
        return as_json(await self._client.chat.completions.create(messages=[], **arguments_of(body)))

    @asynccontextmanager
    async def request_events(self, body: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        if "stream_options" not in self._options:
            body = {**body, "stream_options": {"include_usage": True}}
        create = self._client.chat.completions.with_streaming_response.create
        async with create(messages=[], **arguments_of(body), stream=True) as response:
            with stream_of(response):
                async with unwinding(response.iter_bytes(), response) as received, aclosing(chunks(received)) as read:
                    yield read


def dialect_of(client: Any) -> Dialect:
    """The dialect of the server that an SDK's client asks."""
    host = urlsplit(str(getattr(client, "base_url", ""))).hostname or ""
    return "openai" if f".{host}".endswith(OPENAI_HOSTS) or "Azure" in type(client).__name__ else "compatible"


async def chunks(received: AsyncIterator[bytes], *, end_timeout: float = END_TIMEOUT) -> AsyncGenerator[JSONObject]:
    """The chunks of a response, to its end, for which it has *end_timeout* seconds after the last one. The SDK's own
    stream leaves generators open after the last chunk, of which trio warns.

    The end is ``[DONE]``. Some servers do not send it: then the last chunk says so, and the reply is whole if it has a
    finish reason, see `read_reply`.

    Raises:
        Unfinished: The response ended in the middle of a chunk.
    """
    decoder = EventDecoder(MAX_CHUNK, LastEvent())
    has_begun = has_chunk = False
    reply: list[bytes] = []  # one JSON object: of servers that know no streams, and errors of others
    async for some in received:
        if reply or (not has_begun and some.lstrip()[:1] == b"{"):
            reply.append(some)
            continue
        has_begun = has_begun or not some.isspace()
        for event in filter(None, decoder.feed(some)):
            if event.data.startswith(DONE):
                with move_on_after(end_timeout):
                    async for _ in received:
                        pass
                return
            has_chunk = True
            yield _read_chunk(event)
    if reply:
        yield _read_whole(reply)
        return
    for chunk in _last_chunks(decoder, has_chunk=has_chunk):
        yield chunk


def _read_whole(parts: Sequence[bytes]) -> JSONObject:
    """A whole reply, where a stream was asked for, as a chunk."""
    with READING:
        return _as_object(json.loads(b"".join(parts)))


def _last_chunks(decoder: EventDecoder, *, has_chunk: bool) -> Iterator[JSONObject]:
    """The last chunk, if its blank line is missing, and what says that there was no ``[DONE]``."""
    for event in decoder.end():
        if event.data.startswith(DONE):
            return
        try:
            last = _read_chunk(event)
        except Unreadable:
            raise (Unfinished if has_chunk else Empty) from None
        has_chunk = True
        yield last
    if has_chunk:
        yield {NOT_DONE: True}


def _read_chunk(event: Event) -> JSONObject:
    with READING:
        chunk = _as_object(json.loads(event.data))
        return {"error": chunk.get("error") or chunk} if event.type == "error" else chunk


def _as_object(value: object) -> JSONObject:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value
