"""Google Gemini: generateContent, https://ai.google.dev/api/generate-content, on the Gemini API and on Vertex AI.

`GeminiModel` speaks the API's own JSON, because the types of the SDK drop what they do not know, and turns of the model
must go back as they came. A whole answer is asked for with ``generate_content``: the request is its ``extra_body``, and
the answer its ``sdk_http_response``. Streams have no such response, so they use the connection below the public methods.

Where the API has no field, or has rules of its own:

=============================  ======================================================================================
one tool is required           mode ANY with its name: the arguments follow its schema then. A response schema would do
                               that, too, but its text has no signature, so that Gemini 3 would not take it back
disable_parallel_tool_use      of several calls, the first is kept
an answer to be continued      ends with maxTokens: its continuation would be another request, with tokens of its own
ids of calls                   written only where the model gave one. Results are matched by name and order
files in results               inside of the function response since Gemini 3, else in a message after it
a call at the very beginning   must follow a turn of the user, so it becomes text
calls without signatures       refused by Gemini 3 in the current turn, which begins with the last message of the user
                               that is no tool result. There, they become text, and so do their results. A signature is
                               never made up: https://ai.google.dev/gemini-api/docs/thought-signatures
=============================  ======================================================================================
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, assert_never

import anyio.to_thread
from pydantic_core import to_json

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.exchange import schemas
from mcp_host.providers.exchange.clients import Sdk, private_method
from mcp_host.providers.exchange.failures import READING, ModelFailed, Unfinished, code_among, status_in, stream_of
from mcp_host.providers.exchange.file_limits import GEMINI, FileLimits
from mcp_host.providers.exchange.names import NameRule
from mcp_host.providers.exchange.replies import (
    Call,
    CountFields,
    Reply,
    ReplyBlock,
    object_in,
    read_counts,
    read_json,
)
from mcp_host.providers.exchange.requests import (
    Prompt,
    file_text,
    link_text,
    media_type,
    merged,
    no_file,
    nothing_said,
    place_of,
    refused,
    result_content,
)
from mcp_host.sampling.request import Usage
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ContentBlock, file_as_text
from mcp_host.types.sampling import END_TURN, MAX_TOKENS

PROVIDER = "gemini"

MAX_OUTPUT_TOKENS = 2**31 - 1  # maxOutputTokens is an int32
HIGHEST_TEMPERATURE = 2
MAX_STOP_SEQUENCES = 5  # "up to 5" (the API's GenerationConfig)

STOP_REASONS = {
    "STOP": END_TURN,  # with calls, too, and after a stop sequence
    "MAX_TOKENS": MAX_TOKENS,
    "CONTINUATION": MAX_TOKENS,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION", "LANGUAGE"),
        "content_filter",
    ),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), "content_filter"),
}
UNUSABLE = {
    "MALFORMED_FUNCTION_CALL": "the model called a tool in a way that cannot be read",
    "UNEXPECTED_TOOL_CALL": "the model called a tool that it was not offered",
}
"""Finish reasons after which there are no calls, although the model made some: it may do better."""
FAILED = {
    "MALFORMED_RESPONSE": "the model's answer cannot be read",
    "TOO_MANY_TOOL_CALLS": "the model called too many tools",
    "MISSING_THOUGHT_SIGNATURE": "the request has a call of a tool without its thought signature",
    "PUP_LIMITED_DISABLED": "the account is limited or disabled",
}
"""Finish reasons after which there is no answer."""

IN_PIECES = "the model's calls came in pieces: leave streamFunctionCallArguments out of the options"

OWN_TOOLS = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
"""Parts that tools of Google have left: no text of the answer, but a part of its turn."""

PLAIN = frozenset({"text", "thought"})
"""The fields of a part that can be joined with its neighbours."""

OF_TOOLS = "ofTools"  # beside the counts of `Usage`: what the model reads of the results of Google's tools
COUNTS: CountFields = {
    "promptTokenCount": "inputTokens",
    "toolUsePromptTokenCount": OF_TOOLS,
    "candidatesTokenCount": "outputTokens",
    "thoughtsTokenCount": "reasoningTokens",
    "cachedContentTokenCount": "cacheReadTokens",
}

TOP_LEVEL = frozenset(
    {
        *("cachedContent", "contents", "labels", "model", "modelArmorConfig", "safetySettings", "serviceTier", "store"),
        *("systemInstruction", "toolConfig", "tools"),
    }
)
"""The fields of a request beside ``generationConfig``."""

REPLACED = "replaced by the extra body"  # the SDK wants some contents

UNSIGNED = re.compile(r"gemini-[12]\b|gemma")
"""Models that accept calls without signatures. Newer ones refuse them."""

# https://ai.google.dev/gemini-api/docs/image-understanding, and the pages about audio, video and documents
FILES = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|audio/(wav|mpeg|aiff|aac|ogg|flac)"
    r"|video/(mp4|mpeg|mpg|mov|avi|x-flv|webm|wmv|3gpp)|application/pdf"
)
"""The types of files that Gemini reads."""

OTHER_SPELLINGS = {
    "audio/x-aiff": "audio/aiff",
    "audio/x-flac": "audio/flac",
    "video/quicktime": "video/mov",
    **dict.fromkeys(("video/vnd.avi", "video/x-msvideo"), "video/avi"),
    "video/x-ms-wmv": "video/wmv",
}
"""Of the registered types, and of those that systems write, in the place of Gemini's own."""

IN_RESPONSES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf"})
"""The types of files that a function response may hold, since Gemini 3."""

FREE_FORM = frozenset({"responseSchema", "responseJsonSchema"})  # their names are not the API's


# Requests


@dataclass(frozen=True, slots=True)
class _Written:
    """A call in the conversation: its place among those of its message, and how it was written."""

    place: int
    name: str
    id: str | None
    as_text: bool


def write_request(prompt: Prompt) -> JSONObject:
    """The fields of a GenerateContentRequest.

    Raises:
        InputRefused: Gemini cannot take something of it.
    """
    params = prompt.request.params
    config: JSONObject = {"maxOutputTokens": min(params.max_tokens, MAX_OUTPUT_TOKENS)}
    if params.temperature is not None:
        if not 0 <= params.temperature <= HIGHEST_TEMPERATURE:
            raise refused("temperature", f"0 to {HIGHEST_TEMPERATURE}, not {params.temperature:g}")
        config["temperature"] = params.temperature
    if params.stop_sequences:
        if len(params.stop_sequences) > MAX_STOP_SEQUENCES or not all(params.stop_sequences):
            raise refused("stopSequences", f"at most {MAX_STOP_SEQUENCES}, and no empty one")
        config["stopSequences"] = params.stop_sequences
    body: JSONObject = {"model": prompt.model, "contents": _contents(prompt), "generationConfig": config}
    if params.system_prompt:
        body["systemInstruction"] = {"parts": [{"text": params.system_prompt}]}
    if params.tools:
        body |= prompt.written_tools(_tools)
    if params.metadata:
        if not all(isinstance(value, str) for value in params.metadata.values()):
            raise refused("metadata", "labels only, which are texts")
        body["labels"] = params.metadata
    return body


def with_options(body: JSONObject, prompt: Prompt) -> JSONObject:
    """*body* with the host's options, which win; a None leaves the field out.

    They may be written as in the API or as in the SDK, and those of ``generationConfig`` may stand beside the others.
    """
    fields: JSONObject = {}
    config: JSONObject = {}
    for name, value in prompt.options.items():
        field = _camel(name)
        if field == "generationConfig" and isinstance(value, Mapping):
            config |= _camel_names(value)
        elif field in TOP_LEVEL:
            fields[field] = value
        else:
            config[field] = value if field in FREE_FORM else _camel_names(value)
    fields["generationConfig"] = merged(body["generationConfig"], config)
    return merged(body, fields)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def _camel_names(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            _camel(name): field if _camel(name) in FREE_FORM else _camel_names(field) for name, field in value.items()
        }
    return [_camel_names(item) for item in value] if isinstance(value, list) else value


def _tools(prompt: Prompt) -> JSONObject:
    return {
        "tools": [{"functionDeclarations": list(_declarations(prompt))}],
        "toolConfig": {"functionCallingConfig": _tool_choice(prompt)},
    }


def _declarations(prompt: Prompt) -> Iterator[JSONObject]:
    for tool in prompt.request.tools:
        declaration: JSONObject = {"name": prompt.names.write(tool.name)}
        if description := prompt.names.description(tool):
            declaration["description"] = description
        declaration["parametersJsonSchema"] = prompt.schema_of(tool, schemas.gemini)
        yield declaration


def _tool_choice(prompt: Prompt) -> JSONObject:
    request = prompt.request
    if not request.may_use_tools:
        return {"mode": "NONE"}
    if not request.must_use_tools:
        return {"mode": "AUTO"}
    if request.required_tool is None:
        return {"mode": "ANY"}
    return {"mode": "ANY", "allowedFunctionNames": [prompt.names.write(request.required_tool)]}


def _contents(prompt: Prompt) -> list[JSONObject]:
    """The conversation. Neighbours of one role are joined, because a call may not follow a turn of the model."""
    contents: list[JSONObject] = []
    for role, parts in _turns(prompt):
        if not parts:
            continue
        if contents and (last := contents[-1])["role"] == role and not _answers(last["parts"]) and not _answers(parts):
            last["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    if not contents:
        raise nothing_said()
    if contents[-1]["role"] == "model":  # "multiturn requests end with a user role or a function response"
        raise refused("messages", "no conversation that ends with an assistant's message")
    return contents


def _turns(prompt: Prompt) -> Iterator[tuple[str, list[JSONObject]]]:
    """The role and the parts of each message. The files that its results cannot hold are one of their own."""
    messages = prompt.request.params.messages
    has_calls = bool(prompt.names.provider)  # perhaps: these are the names of tools on offer, too
    signs = UNSIGNED.search(prompt.model) is None
    needs_signatures = has_calls and signs
    current: int | None = None
    calls: dict[str, _Written] = {}
    begun = False  # by the user
    for index, message in enumerate(messages):
        turn = prompt.turns.get(index)
        if isinstance(turn, dict):
            yield "model", list(_turn_parts(turn["parts"], message.tool_uses, calls))
            continue
        if has_calls and (uses := message.tool_uses):
            if current is None:
                current = _current_turn(messages) if needs_signatures else len(messages)
            as_text = not begun or index > current
            for place, use in enumerate(uses):
                calls[use.id] = _Written(place, prompt.names.write(use.name), None, as_text)
        parts, files = _parts(message, calls, index, nested=needs_signatures, signs=signs)
        role = "model" if message.role == "assistant" else "user"
        begun = begun or (role == "user" and bool(parts))
        before = bool(files) and role == "model" and bool(message.tool_uses)  # results have to follow their calls
        if before:
            yield "user", files
        yield role, parts
        if files and not before:
            yield "user", files


def _turn_parts(
    parts: Iterable[JSONObject], uses: Sequence[ToolUseContent], calls: dict[str, _Written]
) -> Iterator[JSONObject]:
    """The parts of a turn that was kept. Its calls are added to *calls*, and have the ids of *uses* where the model gave them ids."""
    place = 0
    for part in parts:
        if (call := part.get("functionCall")) is not None:
            use = uses[place]
            id = use.id if call.get("id") else None
            calls[use.id] = _Written(place, call["name"], id, False)
            place += 1
            yield part if id is None else part | {"functionCall": call | {"id": id}}
        else:
            yield part


def _current_turn(messages: Sequence[SamplingMessage]) -> int:
    """The index of the message that begins the current turn: the user's last one that is no tool result; -1 if none."""
    for index in reversed(range(len(messages))):
        if messages[index].role == "user":
            said = [block for block in messages[index].content if not isinstance(block, TextContent) or block.text]
            if said and said[0].type != "tool_result":
                return index
    return -1


def _answers(parts: Sequence[JSONObject]) -> bool:
    """Whether they answer calls. Such parts stand alone: Gemini takes what is beside them for the model's."""
    return any("functionResponse" in part for part in parts)


def _parts(
    message: SamplingMessage, calls: Mapping[str, _Written], index: int, *, nested: bool, signs: bool
) -> tuple[list[JSONObject], list[JSONObject]]:
    """The parts of a message, and those of another one of the user's: files that its results cannot hold, or those of the
    model that have lost its signatures, if it *signs*.
    """
    parts: list[JSONObject] = []
    results: list[ToolResultContent] = []
    files: list[JSONObject] = []
    for block in message.content:
        if isinstance(block, TextContent):  # most blocks
            if text := block.text:  # "must have one initialized field": an empty text is none
                parts.append({"text": text})
            continue
        match block:
            case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
                part = _file(kind, data, place_of(index))
                if signs and message.role == "assistant":  # "Image part is missing a thought_signature"
                    files.append(part)
                    part = {"text": f"[file {len(files)} of the user's message beside this one]"}
                parts.append(part)
            case ToolUseContent():
                parts.append(_call(block, calls[block.id]))
            case ToolResultContent():
                results.append(block)
            case _:
                assert_never(block)
    if results:
        results.sort(key=lambda result: calls[result.tool_use_id].place)
        for result in results:
            parts.append(_result(result, calls[result.tool_use_id], place_of(index), files, nested=nested))
    return parts, files


def _call(use: ToolUseContent, written: _Written) -> JSONObject:
    if written.as_text:
        return {"text": f"[I call the tool {written.name} with {to_json(use.input).decode()}]"}
    return {"functionCall": {"name": written.name, "args": use.input}}


def _result(
    result: ToolResultContent, call: _Written, where: str, files: list[JSONObject], *, nested: bool
) -> JSONObject:
    """The result as one part. Files that it cannot hold are added to *files*."""
    texts: list[str] = []
    inside: list[JSONObject] = []
    for block in result_content(result):
        content = _read_block(block, where)
        if isinstance(content, str):
            texts.append(content)
        elif nested and not call.as_text and content["inlineData"]["mimeType"] in IN_RESPONSES:
            inside.append(content)
        else:
            files.append(content)
            texts.append(f"[file {len(files)} of those that follow]")
    # Always a text: Gemini takes "$ref" in an object for a reference to a part of the response.
    text = "\n".join(texts)
    if call.as_text:
        return {"text": f"[the tool {call.name} {'failed' if result.is_error else 'returned'}: {text}]"}
    response: JSONObject = {"name": call.name, "response": {"error" if result.is_error else "output": text}}
    if call.id is not None:
        response["id"] = call.id
    if inside:
        response["parts"] = inside
    return {"functionResponse": response}


def _read_block(block: ContentBlock, where: str) -> str | JSONObject:
    """The text of a block, or the part that is its file."""
    match block:
        case TextContent(text=text):
            return text
        case ResourceLink():
            return link_text(block)
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return _file(kind, data, where)
        case EmbeddedResource(resource=resource):
            if not isinstance(resource, BlobResourceContents):
                return file_as_text(resource.uri, resource.text)
            if (read := file_text(resource, where)) is not None:
                return file_as_text(resource.uri, read)
            return _file(resource.mime_type or "", resource.blob, where)
    assert_never(block)


def _file(kind: str, data: str, where: str) -> JSONObject:
    kind = media_type(kind)
    kind = OTHER_SPELLINGS.get(kind, kind)
    if FILES.fullmatch(kind) is None:
        raise no_file(kind, where)
    return {"inlineData": {"mimeType": kind, "data": data}}


# Replies


def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
    """What a GenerateContentResponse says.

    Raises:
        ProviderError: It is an error, behind HTTP 200, as some proxies send it.
        SamplingError: It holds no answer.
        Unfinished: It does not have the whole answer.
    """
    if error := reply.get("error"):
        raise _failed(error, "the model failed")
    model = reply.get("modelVersion") or prompt.model
    usage = _usage(reply.get("usageMetadata"))
    candidates = reply.get("candidates") or []
    if not candidates:
        reason = (reply.get("promptFeedback") or {}).get("blockReason")
        if reason is None:
            raise Unfinished
        return Reply([], model, "content_filter", usage=usage)
    candidate = candidates[0] if len(candidates) == 1 else _of_index_0(candidates)
    reason = candidate.get("finishReason")
    if reason is None:
        raise Unfinished
    if reason in FAILED:
        raise SamplingError(f"{FAILED[reason]} ({reason})")  # the message quotes the model
    parts: list[JSONObject] = (candidate.get("content") or {}).get("parts") or []
    if reason in UNUSABLE:
        said = [block for block in _read_parts(parts) if isinstance(block, str)]
        return Reply(said, model, END_TURN, usage=usage, unusable=f"{UNUSABLE[reason]} ({reason})")
    if len(parts) > 1:
        parts = _joined(parts)
        if prompt.request.params.disable_parallel_tool_use:
            parts = _with_one_call(parts)
    content = _read_parts(parts)
    signed_files = any("inlineData" in part and "thoughtSignature" in part for part in parts)
    turn = {"role": "model", "parts": parts} if signed_files or _is_tied(content, parts, prompt) else None
    return Reply(content, model, STOP_REASONS.get(reason, reason), turn, usage, signed_files=signed_files)


def _is_tied(content: Sequence[ReplyBlock], parts: Sequence[JSONObject], prompt: Prompt) -> bool:
    """Whether its calls have to come back as they were."""
    if Call not in map(type, content):
        return False
    has_more = any("thoughtSignature" in part or part.get("thought") or part.keys() & OWN_TOOLS for part in parts)
    # Newer models always sign. What one of them did not sign, it takes back as it is, so its turn is kept, too.
    return has_more or UNSIGNED.search(prompt.model) is None


def _of_index_0(candidates: Sequence[JSONObject]) -> JSONObject:
    return next((one for one in candidates if one.get("index", 0) == 0), candidates[0])


def _with_one_call(parts: Sequence[JSONObject]) -> list[JSONObject]:
    """The parts without the calls after the first."""
    calls = [part for part in parts if "functionCall" in part]
    return [part for part in parts if "functionCall" not in part or part is calls[0]]


def _joined(parts: Iterable[JSONObject]) -> list[JSONObject]:
    """The parts, with the texts of neighbours joined. What is signed stays as it was signed."""
    joined: list[JSONObject] = []
    texts: list[str] = []
    thought: object = None
    for part in parts:
        plain = part.keys() <= PLAIN and part.get("text") is not None
        if texts and not (plain and part.get("thought") == thought):
            _add_text(joined, texts, thought)
            texts = []
        if plain:
            texts.append(part["text"])
            thought = part.get("thought")
        else:
            joined.append(part)
    _add_text(joined, texts, thought)
    return joined


def _add_text(parts: list[JSONObject], texts: Sequence[str], thought: object) -> None:
    if text := "".join(texts):
        parts.append({"text": text} if thought is None else {"text": text, "thought": thought})


def _read_parts(parts: Iterable[JSONObject]) -> list[ReplyBlock]:
    """What the parts say. Texts are joined, but not over what is between them."""
    content: list[ReplyBlock] = []
    texts: list[str] = []
    for part in parts:
        if part.get("thought") is True:
            block = None
        elif (text := part.get("text")) is not None:
            texts.append(text)
            continue
        else:
            block = _read_part(part)
        if block is not None or part.keys() & OWN_TOOLS:
            if text := "".join(texts):
                content.append(text)
            texts = []
            if block is not None:
                content.append(block)
    if text := "".join(texts):
        content.append(text)
    return content


def _read_part(part: JSONObject) -> Call | AudioContent | ImageContent | None:
    """What a part says that is no text. None if it belongs to the turn only: what tools of Google have left, a signature
    alone, or something newer."""
    match part:
        case {"functionCall": call}:
            return _read_call(call)
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith("audio/"):
            return AudioContent(data=data, mime_type=kind)
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith("image/"):
            return ImageContent(data=data, mime_type=kind)
    return None


def _read_call(call: JSONObject) -> Call:
    if "partialArgs" in call or call.get("willContinue"):
        raise SamplingError(IN_PIECES)
    return Call(call.get("id"), call.get("name"), call.get("args"))


def _usage(metadata: object) -> Usage | None:
    counts = read_counts(metadata, COUNTS)
    of_tools = counts.pop(OF_TOOLS, 0)
    if not counts:
        return None
    if of_tools and "inputTokens" in counts:
        counts["inputTokens"] += of_tools
    counts["outputTokens"] = counts.get("outputTokens", 0) + counts.get("reasoningTokens", 0)  # those of 0 are left out
    return counts


# Streams


def read_event(reply: JSONObject, event: JSONObject) -> str:
    """Add one event, a GenerateContentResponse with some more parts. They are joined when the reply is read. Fields that
    `read_reply` does not read are ignored, so a page in the place of a stream adds nothing.

    Raises:
        ProviderError: The event says that the stream failed.
    """
    if error := event.get("error"):
        raise _failed(error, "the stream failed")
    added: list[str] = []
    for candidate in event.get("candidates") or ():
        if candidate.get("index", 0) == 0:
            parts = (candidate.get("content") or {}).get("parts") or []
            first = _first(reply)
            first["content"]["parts"] += parts
            first.update({name: value for name, value in candidate.items() if name != "content"})
            added += [part["text"] for part in parts if "text" in part and not part.get("thought")]
    for name in ("promptFeedback", "usageMetadata"):
        if isinstance(event.get(name), dict):
            reply[name] = reply.get(name, {}) | event[name]
    if event.get("modelVersion"):
        reply["modelVersion"] = event["modelVersion"]
    return "".join(added)


def _failed(error: object, problem: str) -> ProviderError:
    known = object_in(error)
    return ProviderError(
        PROVIDER,
        problem,
        status=status_in(known.get("code")),
        code=code_among([known.get("status")]),
        original=ModelFailed(error),
    )


def _first(reply: JSONObject) -> JSONObject:
    candidate: JSONObject = reply.setdefault("candidates", [{"content": {"role": "model", "parts": []}}])[0]
    return candidate


class GeminiModel(ProviderModel):
    """A sampling handler that asks a Gemini model, through your `google.genai.Client`, of the Gemini API or of Vertex AI.

    *options* are fields of the request or of its ``generationConfig``, as in the API or as in the SDK:
    ``{"thinking_config": {"thinking_level": "low"}, "safety_settings": […]}``. An ``extra_body`` of the client belongs
    there, too: this one replaces it.

    The asynchronous side of the SDK needs asyncio. On trio, its blocking side runs in threads, and answers are streamed,
    unless *stream* is False: a request that is cancelled then closes its connection. Before the first part of the answer,
    or without a stream, it ends for you at once, and its thread when the provider answers.
    """

    provider = PROVIDER
    write_schema = staticmethod(schemas.gemini)
    name_rule = NameRule(re.compile("[A-Za-z_][A-Za-z0-9_.:-]{0,127}"), re.compile("[^A-Za-z0-9_.:-]"), 128)
    _sdk = Sdk("google.genai.Client()", "aio.models.generate_content")

    assistant_has_files = True

    write_request = staticmethod(write_request)
    with_options = staticmethod(with_options)
    read_reply = staticmethod(read_reply)
    read_event = staticmethod(read_event)

    def check_block(self, block: ContentBlock, where: str) -> None:
        _read_block(block, where)

    def file_limits(self) -> FileLimits:
        return GEMINI

    async def __aenter__(self) -> Self:
        await self._client.aio.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.aio.__aexit__(*exc_info)
        self._client.close()  # the blocking side

    async def request_reply(self, body: JSONObject) -> JSONObject:
        config = {
            "http_options": {"extra_body": self._fields(body)},
            "should_return_http_response": True,
            "automatic_function_calling": {"disable": True},
        }
        model = body["model"]
        # Outside of asyncio, this is asked only if there may be no stream.
        if self._may_stream or not self.must_stream(body):
            response = await self._client.aio.models.generate_content(model=model, contents=REPLACED, config=config)
        else:
            ask = partial(self._client.models.generate_content, model=model, contents=REPLACED, config=config)
            response = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
        with READING:
            reply: JSONObject = read_json(response.sdk_http_response.body)
        return reply

    def must_stream(self, body: JSONObject) -> bool:
        """Whether a request must be a stream, so that cancelling it closes the connection: outside of asyncio."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return True
        return False

    @asynccontextmanager
    async def request_events(self, body: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        path = _path(body["model"], is_vertex=self._client.vertexai)
        request = self._private("_build_request")("post", f"{path}:streamGenerateContent?alt=sse", self._fields(body))
        if self.must_stream(body):
            ask = partial(self._private("_request"), request, stream=True)
            async with _in_threads(ask) as events:
                yield events
            return
        response = await self._private("_async_request")(request, stream=True)
        try:
            with stream_of(response.response_stream):
                yield response.async_segments()
        finally:
            with anyio.CancelScope(shield=True):
                await _close(response.response_stream)

    def _fields(self, body: JSONObject) -> JSONObject:
        """The fields of a request beside the model.

        Raises:
            InputRefused: The Gemini API does not have one of them.
        """
        if "labels" in body and not self._client.vertexai:
            raise refused("metadata", "none; only models on Vertex AI do")
        fields = dict(body)
        del fields["model"]
        return fields

    def _private(self, name: str) -> Callable[..., Any]:
        """A method below the public ones, whose streams drop what the SDK does not know, and cannot be closed while a
        thread waits for them."""
        return private_method(self._client, f"_api_client.{name}", PROVIDER)


def _path(model: str, *, is_vertex: bool) -> str:
    """The path of a model, which may be written in all ways that the SDK takes."""
    if model.startswith(("models/", *(("projects/", "publishers/") if is_vertex else ("tunedModels/",)))):
        return model
    if not is_vertex:
        return f"models/{model}"
    publisher, _, name = model.rpartition("/")
    return f"publishers/{publisher or 'google'}/models/{name}"


@asynccontextmanager
async def _in_threads(ask: Callable[[], Any]) -> AsyncIterator[AsyncIterator[JSONObject]]:
    """The events of a response of the SDK's blocking side. *ask* waits for its headers."""
    responses: list[Any] = []
    left = False

    def begin() -> None:
        responses.append(ask())
        if left:
            _hang_up(responses[0].response_stream)

    async def events() -> AsyncGenerator[JSONObject]:
        waiting = responses[0].segments()
        while (event := await anyio.to_thread.run_sync(next, waiting, None, abandon_on_cancel=True)) is not None:
            yield event

    try:
        await anyio.to_thread.run_sync(begin, abandon_on_cancel=True)
        with stream_of(responses[0].response_stream):
            async with aclosing(events()) as loaded:
                yield loaded
    finally:
        left = True
        for response in responses:
            _hang_up(response.response_stream)


async def _close(response: Any) -> None:
    if hasattr(response, "aclose"):
        await response.aclose()
    else:  # of aiohttp, which the SDK prefers where it is installed
        response.close()


def _hang_up(response: Any) -> None:
    """Close a response. A thread that waits for more of it gets an error: to close a socket would not wake it."""
    if getattr(response, "is_closed", False):
        return
    connection = getattr(response, "extensions", {}).get("network_stream")
    if connection is not None:
        with suppress(OSError):  # it is closed already
            connection.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    response.close()
