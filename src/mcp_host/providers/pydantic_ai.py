"""Any model of pydantic-ai: https://ai.pydantic.dev/models/overview/.

Messages are written and read as the JSON of pydantic-ai's own messages (`ModelMessagesTypeAdapter`), and become its
classes only when the model is asked.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from contextlib import asynccontextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, Unpack, assert_never

from pydantic import TypeAdapter

from mcp_host.errors import InputRefused, SamplingError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.providers.adapter import Arguments, ProviderModel
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.file_limits import BEDROCK, GEMINI, NO_LIMITS, OPENAI, FileLimits, claude_limits
from mcp_host.providers.exchange.names import NameRule
from mcp_host.providers.exchange.replies import (
    Call,
    CountFields,
    Reply,
    ReplyBlock,
    read_counts,
    stopped,
    text_arguments,
)
from mcp_host.providers.exchange.requests import (
    Prompt,
    blocks_but_texts,
    file_in,
    file_text,
    link_text,
    media_type,
    merged,
    no_file,
    not_of_assistant,
    nothing_said,
    place_of,
    refused,
    result_content,
    written_blocks,
)
from mcp_host.providers.openai import call_id, cut_description, function_of
from mcp_host.sampling.repeated import reads_only
from mcp_host.sampling.request import SamplingRequest, Usage
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.content import ContentBlock, file_as_text
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, STOP_SEQUENCE, TOOL_USE, SamplingMessageContentBlock

PROVIDER = "pydantic-ai"

CANNOT_TAKE = "this model does not take all of this request: the type of a file, or a setting"

FILES = re.compile(r"image/(png|jpeg|webp|gif)|audio/(wav|mpeg)|application/pdf")
"""The types of files that most providers read. Many classes pass on others, and the API refuses the whole request."""

FILE_LIMITS = {
    "azure": OPENAI,
    "bedrock": BEDROCK,
    "google": GEMINI,
    "google-gla": GEMINI,
    "google-vertex": GEMINI,
    "openai": OPENAI,
}
"""By the system of a model; Claude's depend on the client."""

STOP_REASONS = {"stop": END_TURN, "length": MAX_TOKENS, "tool_call": TOOL_USE, "content_filter": "content_filter"}
NATIVE_STOP_REASONS = {"stop_sequence": STOP_SEQUENCE, "refusal": "refusal"}
"""Of some providers, which pydantic-ai calls a stop and a content filter."""

OF_RESPONSES = ("kind", "parts", "model_name", "provider_name", "provider_url", "canonical_system", "provider_details")
"""The fields of a response that models read when it is sent back. They prove whose signatures it has."""

EMULATED = frozenset({"stop_sequences", "parallel_tool_calls"})
"""Settings that `read_reply` stands in for: it cuts the answer at a stop sequence, and keeps the first call."""

CHAT_COMPLETIONS = "OpenAIChatModel"  # the class of models whose provider may be OpenAI or Azure

THINKING = "anthropic_thinking"  # the setting with which Claude thinks

UNSUPPORTED = ("Unsupported", "Unknown media type")  # how the text begins of what it raises for the type of a file

ENDED = "response ended without"  # what it says of a stream without a first event

WITHOUT_DETAILS = frozenset({"xai"})
"""Providers whose own finish reason pydantic-ai does not pass on; it says nothing for them if there was none."""

COUNTS: CountFields = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "output_reasoning_tokens": "reasoningTokens",
    "cache_read_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
}
ALWAYS_COUNTED = ("inputTokens", "outputTokens")  # 0 of another may mean that the provider does not say

IN_JSON = {*OF_RESPONSES, "state", "finish_reason"}
"""The fields of a response that are read as JSON. For the usage pydantic takes as long as for all of them, and its counts
are numbers already."""


# Requests


def write_request(prompt: Prompt) -> JSONObject:
    """The fields of pydantic-ai's `ModelSettings`, and ``messages`` and ``tools``.

    Raises:
        InputRefused: pydantic-ai has no place for something of it.
    """
    params = prompt.request.params
    if params.metadata:
        raise refused("metadata", "none")
    body: JSONObject = {"messages": _messages(prompt), "max_tokens": params.max_tokens}
    if params.temperature is not None:
        body["temperature"] = params.temperature
    if params.stop_sequences:
        body["stop_sequences"] = params.stop_sequences
    if params.tools:
        body |= prompt.written_tools(_tools)
    elif names := prompt.names.provider:  # some APIs want the tools of the conversation
        body["tools"] = [{"name": name, "parameters_json_schema": {"type": "object"}} for name in names.values()]
        body["tool_choice"] = "none"
    return body


def with_options(body: JSONObject, prompt: Prompt) -> JSONObject:
    """*body* with the host's options, as far as Anthropic's API takes them together: the rules are those of `anthropic`."""
    body = merged(body, prompt.options)
    thinking = body.get(THINKING)
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return body
    is_forced = body.get("tool_choice") not in (None, "auto", "none")
    if is_forced or _has_lost_thinking(body["messages"], prompt):
        return {**body, THINKING: {"type": "disabled"}}
    budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and "max_tokens" not in prompt.options:
        return {**body, "max_tokens": body["max_tokens"] + budget}
    return body


def _has_lost_thinking(messages: Sequence[JSONObject], prompt: Prompt) -> bool:
    """Whether the turn that goes on after tool results began without thinking, or has lost some of it."""
    first: JSONObject | None = None  # what the model said at its beginning
    for message in reversed(messages):
        if message["kind"] == "response":
            first = message
        elif all(part["part_kind"] != "tool-return" for part in message["parts"]):
            break
    return prompt.has_lost_turn or (first is not None and first["parts"][0]["part_kind"] != "thinking")


def _tools(prompt: Prompt) -> JSONObject:
    request = prompt.request
    written: JSONObject = {"tools": [_tool(tool, prompt) for tool in request.tools]}
    if not request.may_use_tools:
        written["tool_choice"] = "none"
    elif request.required_tool is not None:
        written["tool_choice"] = [prompt.names.write(request.required_tool)]
    elif request.must_use_tools:
        written["tool_choice"] = "required"
    if request.params.disable_parallel_tool_use:
        written["parallel_tool_calls"] = False
    return written


def _messages(prompt: Prompt) -> list[JSONObject]:
    params = prompt.request.params
    messages: list[JSONObject] = []
    called = {
        use.id: use.name for message in params.messages if message.role == "assistant" for use in message.tool_uses
    }
    for index, message in enumerate(params.messages):
        where = place_of(index)
        turn = prompt.turns.get(index)
        if isinstance(turn, dict):
            messages.append(turn | {"parts": list(_turn_parts(turn["parts"], message))})
        elif isinstance(message, UserMessage):
            if parts := _asked(message, where, prompt, called):
                messages.append({"kind": "request", "parts": parts})
        elif parts := [part for block in message.content for part in _said(block, where, prompt)]:
            messages.append({"kind": "response", "parts": parts})
    if not messages:
        raise nothing_said()
    if params.system_prompt:
        for written in messages:
            if written["kind"] == "request":
                written["instructions"] = params.system_prompt
    return messages


def _turn_parts(parts: Sequence[JSONObject], message: SamplingMessage) -> Iterator[JSONObject]:
    """The parts of a turn that was kept, with the ids of the calls in its message."""
    uses = iter(message.tool_uses)
    for part in parts:
        yield part | {"tool_call_id": call_id(next(uses).id)} if part["part_kind"] == "tool-call" else part


def _said(block: SamplingMessageContentBlock, where: str, prompt: Prompt) -> list[JSONObject]:
    """What the model said, as parts of a response."""
    match block:
        case TextContent(text=text):
            return [{"part_kind": "text", "content": text}] if text else []
        case ToolUseContent(id=id, name=name, input=arguments):
            call = {"part_kind": "tool-call", "tool_name": prompt.names.write(name), "args": arguments}
            return [{**call, "tool_call_id": call_id(id)}]
        case ImageContent() | AudioContent() | ToolResultContent():
            raise not_of_assistant(block.type, where)
    assert_never(block)


def _asked(message: UserMessage, where: str, prompt: Prompt, called: dict[str, str]) -> list[JSONObject]:
    """A user's message, as parts of a request: tool results, or one prompt."""
    parts: list[JSONObject] = []
    content: list[str | JSONObject] = []
    for block in message.content:
        match block:
            case ToolResultContent(tool_use_id=id):
                written = {"part_kind": "tool-return", "tool_name": prompt.names.write(called[id])}
                written["tool_call_id"] = call_id(id)
                result = _plain(_content(result_content(block), where))
                parts.append({**written, "content": result, "outcome": "failed" if block.is_error else "success"})
            case _:
                content += _content([block], where)
    if content:
        parts.append({"part_kind": "user-prompt", "content": _plain(content)})
    return parts


def _content(blocks: Sequence[ContentBlock], where: str) -> list[str | JSONObject]:
    written: list[str | JSONObject] = []
    for block in blocks:
        match block:
            case TextContent(text=text):
                written += [text] if text else []
            case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
                written.append(_binary(data, kind, where))
            case ResourceLink():
                written.append(link_text(block))
            case EmbeddedResource(resource=resource):
                if not isinstance(resource, BlobResourceContents):
                    written.append(file_as_text(resource.uri, resource.text))
                elif (read := file_text(resource, where)) is not None:
                    written.append(file_as_text(resource.uri, read))
                else:
                    written.append(_binary(resource.blob, resource.mime_type, where))
            case _:
                assert_never(block)
    return written


def _binary(data: str, kind: str | None, where: str) -> JSONObject:
    written = media_type(kind)
    if FILES.fullmatch(written) is None:
        raise no_file(written, where)
    return {"kind": "binary", "data": data, "media_type": written}


def _refused_types(request: SamplingRequest, refusal: BaseException | None) -> set[str]:
    """The types of files in the conversation that a model's class has refused.

    Its text names one, or "audio"; otherwise it has no place for files, or only for images.
    """
    types = {
        kind
        for _, block in blocks_but_texts(request)
        for inner in (block.content if isinstance(block, ToolResultContent) else [block])
        if not isinstance(inner, ToolUseContent) and (kind := _type(inner))
    }
    text = str(refusal).lower()
    if named := {kind for kind in types if kind in text}:
        return named
    if isinstance(refusal, _sdk().UserError):  # of a setting
        return set()
    is_audio = {kind for kind in types if kind.startswith("audio/")}
    return (
        (is_audio if "audio" in text else set()) or {kind for kind in types if not kind.startswith("image/")} or types
    )


def _type(block: ContentBlock) -> str:
    """The type of a file that is not written as text; "" of other blocks."""
    file = file_in(block)
    kind = "" if file is None else media_type(file[1])
    return kind if FILES.fullmatch(kind) else ""


def _plain(content: list[str | JSONObject]) -> object:
    """Texts alone as one text: models write a list of them as JSON."""
    texts = [item for item in content if isinstance(item, str)]
    return "\n".join(texts) if len(texts) == len(content) else content


def _tool(tool: Tool, prompt: Prompt) -> JSONObject:
    """A tool, with a schema that all providers take: the strictest are OpenAI's, and those that follow it."""
    written = function_of(tool, prompt)
    written["parameters_json_schema"] = written.pop("parameters")
    return written


# Replies


def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
    """What a response of pydantic-ai says.

    Raises:
        Unfinished: It is not complete.
        SamplingError: It has something that an answer cannot have.
    """
    if reply.get("state") not in ("complete", "suspended"):
        raise Unfinished
    if (reason := reply["finish_reason"]) == "error":
        raise SamplingError("the model ended its answer with an error")
    native = (reply.get("provider_details") or {}).get("finish_reason", "")
    parts: list[JSONObject] = reply["parts"]
    if prompt.request.params.disable_parallel_tool_use:
        calls = [part for part in parts if part["part_kind"] == "tool-call"]
        parts = [part for part in parts if part["part_kind"] != "tool-call" or part is calls[0]]
    content: list[ReplyBlock] = []
    has_hidden = False
    for part in parts:
        if (block := _read_part(part)) is not None:
            content.append(block)
        if part["part_kind"] not in ("text", "tool-call") or _has_more(part):
            has_hidden = True
    turn = None
    if has_hidden:
        turn = {name: reply[name] for name in OF_RESPONSES if reply.get(name) is not None} | {"parts": parts}
    stop_reason = NATIVE_STOP_REASONS.get(native) or STOP_REASONS.get(reason, END_TURN)
    if stop_reason == TOOL_USE and not any(isinstance(item, Call) for item in content):
        stop_reason = END_TURN  # some servers say so without a call
    content, stop_reason = stopped(content, stop_reason, prompt)
    return Reply(
        content=content,
        model=reply["model_name"] or prompt.model,
        stop_reason="pause_turn" if reply["state"] == "suspended" else stop_reason,
        turn=turn,
        usage=_usage(reply.get("usage")),
    )


def _read_part(part: JSONObject) -> ReplyBlock | None:
    match part["part_kind"]:
        case "text":
            return part["content"] or None
        case "tool-call":
            return Call(part["tool_call_id"], part.get("tool_name"), text_arguments(part["args"]))
        case "file":
            return _read_file(part["content"])
        case "speech":
            raise SamplingError("the model answered with speech")
    return None  # thinking, and what the provider's own tools have left


def _read_file(content: JSONObject) -> ImageContent | AudioContent:
    data, kind = content["data"], content["media_type"]
    if kind.startswith("image/"):
        return ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return AudioContent(data=data, mime_type=kind)
    raise SamplingError("the model answered with a file that is neither an image nor audio")


def _has_more(part: JSONObject) -> bool:
    """Whether the provider wants more of this part back than its text or its call."""
    return part.get("id") is not None or bool(part.get("provider_details"))


def _usage(usage: object) -> Usage | None:
    counts = read_counts(usage, COUNTS)
    if not any(counts.values()):
        return None  # some models do not say
    return {name: count for name, count in counts.items() if count or name in ALWAYS_COUNTED}


def read_event(reply: JSONObject, event: JSONObject) -> str:
    """Add one event of a stream: a ``text``, or at the end the whole ``response``, which pydantic-ai puts together."""
    reply.update(event.get("response") or {})
    text: str = event.get("text", "")
    return text


class PydanticAIModel(ProviderModel):
    """A model of pydantic-ai, for providers that have no adapter here: ``PydanticAIModel(GroqModel("llama-4"))``.

    *model* is an instance of one of its model classes, with the provider's client that you gave it. *options* are
    fields of its `ModelSettings`, such as ``{"thinking": "high"}``. What it cannot send, the model's class refuses or,
    as it does with the temperature of some models, leaves out.

    The other arguments are those of `ProviderModel`.

    Raises:
        TypeError: *model* is something else.
    """

    provider = PROVIDER
    cuts_at_stops = True
    name_rule = NameRule(re.compile("[a-zA-Z_][a-zA-Z0-9_-]{0,63}"), re.compile("[^a-zA-Z0-9_-]"), 64)

    def __init__(self, model: Any, **arguments: Unpack[Arguments]) -> None:
        name = getattr(model, "model_name", None)
        if not isinstance(name, str):
            raise TypeError(f"model has to be a model of pydantic-ai, not {type(model).__name__}")
        super().__init__(model, name, **arguments)

    write_request = staticmethod(write_request)
    with_options = staticmethod(with_options)
    read_reply = staticmethod(read_reply)
    read_event = staticmethod(read_event)

    def check_block(self, block: ContentBlock, where: str) -> None:
        _content([block], where)

    def file_limits(self) -> FileLimits:
        system = getattr(self._client, "system", "")
        if system == "anthropic":
            return claude_limits(getattr(self._client, "client", None))
        return FILE_LIMITS.get(system, NO_LIMITS)

    _defined: tuple[object, Sequence[Any]] = (None, ())
    """The tools of the last request, and what they are in pydantic-ai."""

    @reads_only
    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        while True:
            try:
                return await super().__call__(request)
            except InputRefused as exc:
                cause = exc.__cause__
                if not (refused_types := _refused_types(request, cause)):
                    raise
            request = self._without_files(request, refused_types, cause)

    def _without_files(self, request: SamplingRequest, types: Set[str], cause: BaseException | None) -> SamplingRequest:
        """*request* with texts in the place of files of these *types*, which the model's class has refused."""

        def write(block: ContentBlock, index: int) -> ContentBlock:
            if (kind := _type(block)) in types:
                raise no_file(kind, place_of(index)) from cause
            return block

        notes: list[str] = []
        request = written_blocks(request, blocks_but_texts(request), write, notes)
        self._told.warn(request, self._model, notes)
        return request

    async def request_reply(self, body: JSONObject) -> JSONObject:
        with REFUSING:
            return _dump(await _sdk().model_request(self._client, **self._arguments(body)))

    @asynccontextmanager
    async def request_events(self, body: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        sdk = _sdk()
        with REFUSING:
            try:
                async with sdk.model_request_stream(self._client, **self._arguments(body)) as events:
                    yield _texts(events)
            except sdk.UnexpectedModelBehavior as exc:
                if ENDED in str(exc):
                    raise Unfinished from exc
                raise

    def _arguments(self, body: JSONObject) -> JSONObject:
        """The arguments of pydantic-ai's direct requests."""
        sdk = _sdk()
        not_settings = {"messages", "tools"} | (self._client.unsupported_settings & EMULATED)
        settings = {name: value for name, value in body.items() if name not in not_settings}
        tools = body.get("tools", ())
        if self._defined[0] is not tools:  # `Prompt.written_tools` has the same while a server repeats them
            # Not strict: pydantic-ai would infer it, also of schemas that OpenAI's strict mode refuses.
            written = [{"strict": False, **tool} for tool in tools]
            for tool in written if type(self._client).__name__ == CHAT_COMPLETIONS else ():
                cut_description(tool)
            self._defined = (tools, [sdk.ToolDefinition(**tool) for tool in written])
        return {
            "messages": sdk.ModelMessagesTypeAdapter.validate_python(body["messages"]),
            "model_settings": settings,
            "model_request_parameters": sdk.ModelRequestParameters(function_tools=[*self._defined[1]]),
        }


@cache
def _sdk() -> SimpleNamespace:
    """What is used of pydantic-ai, imported once: the statements take time in each request."""
    from pydantic_ai.direct import model_request, model_request_stream
    from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return SimpleNamespace(
        model_request=model_request,
        model_request_stream=model_request_stream,
        UnexpectedModelBehavior=UnexpectedModelBehavior,
        UserError=UserError,
        ModelMessagesTypeAdapter=ModelMessagesTypeAdapter,
        ModelRequestParameters=ModelRequestParameters,
        ToolDefinition=ToolDefinition,
        response=TypeAdapter(ModelResponse),
    )


class _Refusing:
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, (RuntimeError, ValueError)):  # the bases of what pydantic-ai raises
            is_refusal = isinstance(exc, (_sdk().UserError, NotImplementedError))
            if is_refusal or (type(exc) in (RuntimeError, ValueError) and str(exc).startswith(UNSUPPORTED)):
                raise InputRefused(INVALID_PARAMS, CANNOT_TAKE) from exc


REFUSING = _Refusing()
"""Refuse what pydantic-ai refuses before it asks. Its text may name settings of the host, so the server gets another.

Raises:
    InputRefused: It did.
"""


def _dump(response: Any) -> JSONObject:
    dumped: JSONObject = _sdk().response.dump_python(response, mode="json", include=IN_JSON)
    dumped["usage"] = {field: getattr(response.usage, field) for field in COUNTS}
    return dumped


async def _texts(events: Any) -> AsyncIterator[JSONObject]:
    async for event in events:
        match event.event_kind:
            case "part_start" if event.part.part_kind == "text":
                yield {"text": event.part.content}
            case "part_delta" if event.delta.part_delta_kind == "text":
                yield {"text": event.delta.content_delta}
    response = _dump(events.get())
    if not _has_ended(response):
        response["state"] = "incomplete"
    yield {"response": response}


def _has_ended(response: JSONObject) -> bool:
    """Whether the provider has said why a streamed answer ended.

    pydantic-ai takes any end of a connection for the end of the answer, and of Chat Completions it then says "stop". What
    the provider itself has said is in *provider_details*. Models without a provider, such as those for tests, say nothing.
    """
    if not response.get("provider_url"):
        return True
    reason = response.get("finish_reason")
    native = (response.get("provider_details") or {}).get("finish_reason")
    return bool(native) or (reason is not None and (reason != "stop" or response["provider_name"] in WITHOUT_DETAILS))
