"""Anthropic Messages: https://docs.claude.com/en/api/messages.

Rules that no description of the API has in one place, and that requests are written after:

- a text is not empty, and not white space only; the last text of a final assistant's message does not end with white space
- images and documents come from the user, alone or in tool results; in a result with ``is_error`` there is only text,
  and at least one
- tool calls in the conversation need a list of tools
- since version 2026-10-21 there is no temperature, and the SDK does not know it. It is left out: MCP names no scale
  for what a server suggests, and most servers would otherwise be refused
- ``max_tokens`` counts the thinking, too
- with ``"thinking": {"type": "enabled"}``, the tool choice is "auto" or "none", and a turn that goes on after tool
  results begins with its thinking
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, assert_never

from mcp_host.errors import ProviderError
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.exchange import schemas
from mcp_host.providers.exchange.clients import Sdk
from mcp_host.providers.exchange.failures import ModelFailed, Unfinished, code_among, says_overloaded, stream_of
from mcp_host.providers.exchange.file_limits import FileLimits, claude_limits
from mcp_host.providers.exchange.names import NameRule
from mcp_host.providers.exchange.replies import (
    Call,
    CountFields,
    Reply,
    ReplyBlock,
    arguments_in,
    as_events,
    as_json,
    count_of,
    object_in,
    read_counts,
)
from mcp_host.providers.exchange.requests import (
    Prompt,
    file_text,
    files_elsewhere,
    files_of,
    link_text,
    media_type,
    merged,
    no_file,
    not_of_assistant,
    nothing_said,
    other_id,
    place_of,
    refused,
    result_content,
)
from mcp_host.providers.exchange.streams import Show, unwinding
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
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ContentBlock, file_as_text
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, STOP_SEQUENCE, TOOL_USE

PROVIDER = "anthropic"

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF = "application/pdf"
MAX_TITLE = 500  # characters of a document's title
NO_MESSAGE = "The tool failed, without a message."  # a result with is_error has a text

ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")

MAX_TOKENS_AT_ONCE = 8192  # the SDK refuses to ask for more without a stream, for some models; for others for 21,333

NO_PREFILL = re.compile(r"claude-(opus|sonnet|haiku)-4-[6-9]\b|claude-[a-z]+-([5-9]|\d\d)\b")
"""Models that do not go on from an assistant's message: https://platform.claude.com/docs/en/about-claude/models/migration-guide."""

PAUSED = frozenset({"pause_turn", "compaction"})
"""Stop reasons after which the turn goes on if it is sent back: Anthropic's own tools took long, or it has summarized the
conversation."""
MAX_PAUSES = 8  # of one turn: it ends with this stop reason after them

APART = ("compaction", "advisor_message")  # iterations that the counts of a message leave out

THINKING = frozenset({"thinking", "redacted_thinking"})

STOP_REASONS = {
    "end_turn": END_TURN,
    "max_tokens": MAX_TOKENS,
    "model_context_window_exceeded": MAX_TOKENS,
    "stop_sequence": STOP_SEQUENCE,
    "tool_use": TOOL_USE,
}
"""Others, such as ``refusal``, are passed on."""

COUNTS: CountFields = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "output_tokens_details": {"thinking_tokens": "reasoningTokens"},
    "cache_read_input_tokens": "cacheReadTokens",
    "cache_creation_input_tokens": "cacheWriteTokens",
}

TEXT_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""What grows in a stream: the field of a delta, by its type."""

WHOLE_DELTAS = frozenset({"signature_delta", "compaction_delta"})
"""Deltas of what does not grow. Their fields are those of the block."""

OPEN = "_open"  # in a reply that is being folded: the parts of the texts of its blocks, by index and field


# Requests


def write_request(prompt: Prompt) -> JSONObject:
    """The keyword arguments of ``messages.create``.

    Raises:
        InputRefused: The API does not take something of it.
    """
    params = prompt.request.params
    body: JSONObject = {"model": prompt.model, "max_tokens": params.max_tokens, "messages": _messages(prompt)}
    if params.system_prompt and not params.system_prompt.isspace():
        body["system"] = params.system_prompt
    if params.stop_sequences:
        for index, text in enumerate(params.stop_sequences):
            if not text or text.isspace():
                raise refused(f"stopSequences[{index}]", "no stop sequence of white space")
        body["stop_sequences"] = params.stop_sequences
    if params.metadata:
        body["metadata"] = _metadata(params.metadata)
    if prompt.names.provider:
        body |= prompt.written_tools(_tools)
    return body


def with_options(body: JSONObject, prompt: Prompt) -> JSONObject:
    """*body* with the host's options, as far as the API takes them together.

    ``max_tokens`` is for the answer; the budget of the thinking is added. Thinking with a budget is off for a request that
    requires a tool, and in the rest of a turn whose thinking is lost.
    """
    body = merged(body, prompt.options)
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return body
    choice = body.get("tool_choice")
    is_forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    if is_forced or _has_lost_thinking(body["messages"], prompt):
        return {**body, "thinking": {"type": "disabled"}}
    budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and "max_tokens" not in prompt.options:
        return {**body, "max_tokens": body["max_tokens"] + budget}
    return body


def _has_lost_thinking(messages: Sequence[JSONObject], prompt: Prompt) -> bool:
    """Whether the turn that goes on after tool results began without thinking, or has lost some of it."""
    if prompt.has_lost_turn:
        return True
    turn: list[JSONObject] = []  # what the assistant said since then
    for message in reversed(messages):
        kinds = [block["type"] for block in message["content"]]
        if message["role"] == "user" and "tool_result" not in kinds:
            break
        if message["role"] == "assistant":
            turn.append(message)
    return bool(turn) and turn[-1]["content"][0]["type"] not in THINKING


def _messages(prompt: Prompt) -> list[JSONObject]:
    messages: list[JSONObject] = []
    for index, message in enumerate(prompt.request.messages):
        turn = prompt.turns.get(index)
        content = _turn(turn, message) if isinstance(turn, list) else _content(message, index, prompt)
        if content:  # a message of empty texts says nothing
            messages.append({"role": message.role, "content": content})
    if not messages:
        raise nothing_said()
    last = messages[-1]
    if last["role"] == "assistant":
        if NO_PREFILL.search(prompt.model):
            raise refused("messages", "no conversation that ends with an assistant's message")
        if (text := last["content"][-1])["type"] == "text":  # the answer goes on from it
            last["content"][-1] = {**text, "text": text["text"].rstrip()}
    return messages


def _turn(turn: Sequence[JSONObject], message: SamplingMessage) -> list[JSONObject]:
    """A turn that was kept, with the ids of the calls in its message."""
    uses = iter(message.tool_uses)
    return [block | {"id": _id(next(uses).id)} if block["type"] == "tool_use" else block for block in turn]


def _content(message: SamplingMessage, index: int, prompt: Prompt) -> list[JSONObject]:
    content: list[JSONObject] = []
    after: list[JSONObject] = []  # the results, which come first
    for block in message.content:
        if isinstance(block, TextContent):  # most blocks
            content += _text(block.text)
            continue
        where = place_of(index)
        match block:
            case ToolUseContent():
                name, arguments = prompt.names.write(block.name), _arguments(block.name, block.input, prompt)
                content.append({"type": "tool_use", "id": _id(block.id), "name": name, "input": arguments})
            case ToolResultContent():
                result, more = _result(block, where)
                content.append(result)
                after += more
            case ImageContent() | AudioContent():
                if message.role == "assistant":
                    raise not_of_assistant(block.type, where)
                content += _block(block, where)
            case _:
                assert_never(block)
    return content + after


def _text(text: str) -> list[JSONObject]:
    return [{"type": "text", "text": text}] if text and not text.isspace() else []


def _block(block: ContentBlock, where: str) -> list[JSONObject]:
    """What a user's message or a tool's result has, as none or one block of the API."""
    match block:
        case TextContent(text=text):
            return _text(text)
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return [_file(data, media_type(kind), "", where)]
        case ResourceLink():
            return _text(link_text(block))
        case EmbeddedResource(resource=resource):
            if not isinstance(resource, BlobResourceContents):
                return _document(resource.text, resource.uri)
            if (read := file_text(resource, where)) is not None:
                return _document(read, resource.uri)
            return [_file(resource.blob, media_type(resource.mime_type), resource.uri, where)]
    assert_never(block)


def _file(data: str, kind: str, uri: str, where: str) -> JSONObject:
    if kind == PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": data}, **_title(uri)}
    if kind.startswith("audio/"):
        raise refused(where, "no audio")
    if kind not in IMAGES:
        raise no_file(kind, where)
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _document(text: str, uri: str) -> list[JSONObject]:
    if not text or text.isspace():
        return _text(f"[{uri or 'a resource'} is empty]")
    source = {"type": "text", "media_type": "text/plain", "data": text}
    return [{"type": "document", "source": source, **_title(uri)}]


def _title(uri: str) -> JSONObject:
    return {"title": uri[:MAX_TITLE]} if uri else {}


def _result(result: ToolResultContent, where: str) -> tuple[JSONObject, list[JSONObject]]:
    """A tool's result, and what has to come after all results."""
    content = [written for block in result_content(result) for written in _block(block, where)]
    after: list[JSONObject] = []
    block: JSONObject = {"type": "tool_result", "tool_use_id": _id(result.tool_use_id)}
    if result.is_error:
        content = [_as_text(written) for written in content]
        files = [written for written in content if written["type"] != "text"]
        content = [written for written in content if written["type"] == "text"] or _text(NO_MESSAGE)
        if files:
            content += _text(files_elsewhere(len(files), "after the results"))
            after = [*_text(files_of(block["tool_use_id"])), *files]
        block["is_error"] = True
    if content:
        block["content"] = content
    return block, after


def _as_text(block: JSONObject) -> JSONObject:
    """A document of text as a text, and anything else as it is."""
    match block:
        case {"type": "document", "source": {"type": "text", "data": text}}:
            [written] = _text(file_as_text(block.get("title", ""), text))
            return written
    return block


def _id(id: str) -> str:
    """An id of a tool call; one that the API does not take as another that is the same each time."""
    return id if ID.fullmatch(id) else other_id(id)


def _tools(prompt: Prompt) -> JSONObject:
    if tools := prompt.request.tools:
        choice = _tool_choice(prompt)
        return {"tools": [_tool(tool, prompt) for tool in tools]} | ({"tool_choice": choice} if choice else {})
    called = prompt.names.provider.values()  # in the conversation
    stubs = [{"name": name, "input_schema": {"type": "object"}} for name in called]
    return {"tools": stubs, "tool_choice": {"type": "none"}}


def _tool(tool: Tool, prompt: Prompt) -> JSONObject:
    written: JSONObject = {
        "name": prompt.names.write(tool.name),
        "input_schema": prompt.schema_of(tool, schemas.anthropic),
    }
    if description := prompt.names.description(tool):
        written["description"] = description
    return written


def _arguments(name: str, arguments: JSONObject, prompt: Prompt, *, back: bool = False) -> JSONObject:
    """The arguments of a call, under the names that the properties have at Anthropic, or *back* under those of the tool."""
    tool = next((tool for tool in prompt.request.tools if tool.name == name), None)
    names = {} if tool is None else _argument_names(tool, prompt)
    if back:
        names = {written: name for name, written in names.items()}
    return {names.get(name, name): value for name, value in arguments.items()} if names else arguments


def _argument_names(tool: Tool, prompt: Prompt) -> Mapping[str, str]:
    kept = {} if prompt.offer is None else prompt.offer.argument_names
    if tool.name not in kept:  # each call of the conversation asks
        kept[tool.name] = schemas.anthropic_names(tool.input_schema)
    return kept[tool.name]


def _tool_choice(prompt: Prompt) -> JSONObject | None:
    request = prompt.request
    if not request.may_use_tools:
        return {"type": "none"}
    choice: JSONObject = {"type": "auto"}
    if request.required_tool is not None:
        choice = {"type": "tool", "name": prompt.names.write(request.required_tool)}
    elif request.must_use_tools:
        choice = {"type": "any"}
    if request.params.disable_parallel_tool_use:
        choice["disable_parallel_tool_use"] = True
    elif request.tool_choice is None:
        return None
    return choice


def _metadata(metadata: JSONObject) -> JSONObject:
    user = metadata.get("user_id")
    if metadata.keys() != {"user_id"} or not isinstance(user, str):
        raise refused("metadata", "only a user_id, which is a text")
    return {"user_id": user}


# Replies


def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
    """What a message of the API says.

    Raises:
        ProviderError: It is an error, behind HTTP 200, as some proxies send it.
        Unfinished: It does not have the whole answer.
    """
    if reply.get("type") == "error":
        error = reply.get("error")
        found = [object_in(error).get("type")]
        raise ProviderError(
            PROVIDER,
            "the model failed",
            code=code_among(found),
            transient=says_overloaded(found),
            original=ModelFailed(error),
        )
    stop_reason = reply.get("stop_reason")
    if OPEN in reply or not isinstance(stop_reason, str):
        raise Unfinished
    content: list[ReplyBlock] = []
    more: dict[int, list[str]] = {}  # by the place of a text that citations divide: how it goes on
    turn: list[JSONObject] = []
    has_hidden = False
    for block in reply["content"]:
        match block["type"]:
            case "text":
                if not (text := block["text"]):
                    continue
                if turn and turn[-1]["type"] == "text":
                    more.setdefault(len(content) - 1, []).append(text)
                else:
                    content.append(text)
            case "tool_use":
                name, arguments = block.get("name"), block.get("input")
                if isinstance(arguments, dict) and isinstance(name, str):
                    arguments = _arguments(prompt.names.back(name), arguments, prompt, back=True)
                content.append(Call(block.get("id"), name, arguments))
            case _:  # thinking, and what the tools that Anthropic runs have left
                has_hidden = True
        turn.append(block)
    for place, texts in more.items():
        content[place] = f"{content[place]}{''.join(texts)}"
    return Reply(
        content=content,
        model=reply.get("model") or prompt.model,
        stop_reason=STOP_REASONS.get(stop_reason, stop_reason),
        turn=turn if has_hidden else None,
        usage=_usage(reply.get("usage")),
    )


def is_paused(reply: JSONObject) -> bool:
    """Whether its turn goes on if it is sent back."""
    return reply.get("stop_reason") in PAUSED and OPEN not in reply


def resumed(body: JSONObject, reply: JSONObject) -> JSONObject:
    """*body* with the paused turn so far, after which it goes on: https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools."""
    container = reply.get("container")
    more = {"container": container["id"]} if isinstance(container, dict) else {}
    return {**body, "messages": [*body["messages"], {"role": "assistant", "content": reply["content"]}], **more}


def joined(paused: JSONObject, reply: JSONObject) -> JSONObject:
    """A paused turn and how it went on, as one reply."""
    usage = _added(_spent(paused.get("usage")), _spent(reply.get("usage")))
    return {**reply, "content": [*paused["content"], *(reply.get("content") or ())], "usage": usage}


def _spent(counts: object) -> JSONObject:
    """The counts of a usage, with those that it has only in its iterations: what a compaction took, or an advisor."""
    usage = object_in(counts)
    if "iterations" not in usage:
        return usage
    iterations = usage["iterations"]
    spent = {name: count for name, count in usage.items() if name != "iterations"}
    for iteration in iterations if isinstance(iterations, list) else ():
        if object_in(iteration).get("type") in APART:
            spent = _added(spent, iteration)
    return spent


def _added(before: JSONObject, after: JSONObject) -> JSONObject:
    """The counts of two usages, field by field; a count that only one of them has stays as it is."""
    usage = before | after
    for name, count in before.items():
        match after.get(name):
            case None:
                usage[name] = count
            case dict() as more:
                usage[name] = _added(object_in(count), more)
            case more if count is not None:
                usage[name] = (count_of(count) or 0) + (count_of(more) or 0)
    return usage


def _usage(usage: object) -> Usage | None:
    counts = read_counts(_spent(usage), COUNTS)
    if "inputTokens" in counts:  # what is not in the cache
        counts["inputTokens"] += counts.get("cacheReadTokens", 0) + counts.get("cacheWriteTokens", 0)
    return counts or None


# Streams: https://docs.claude.com/en/docs/build-with-claude/streaming


def read_event(reply: JSONObject, event: JSONObject) -> str:
    """Add one event of a stream.

    Until the message stops, the texts of its blocks are lists of parts: joining them at each delta would take
    quadratic time. Events of unknown types are ignored.
    """
    match event["type"]:
        case "content_block_delta" if OPEN in reply:
            return _add_delta(reply, event["index"], event["delta"])
        case "content_block_start" if OPEN in reply:
            block = dict(event["content_block"])
            reply[OPEN][event["index"]] = (block, {})
            if block["type"] == "fallback":
                reply["model"] = block["to"]["model"]
            if block["type"] == "text":
                block["text"] = text = block.get("text") or ""
                return text
        case "message_start":
            reply.update(event["message"])
            reply["content"], reply[OPEN] = [], {}
        case "message_delta":
            reply.update(_told(event["delta"]))
            reply["usage"] = object_in(reply.get("usage")) | _told(object_in(event.get("usage")))
        case "message_stop" if OPEN in reply:
            blocks = reply.pop(OPEN)
            reply["content"] = [_whole(*blocks[index]) for index in sorted(blocks)]
    return ""


def _told(fields: JSONObject) -> JSONObject:
    """The fields that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


def _add_delta(reply: JSONObject, index: int, delta: JSONObject) -> str:
    block, parts = reply[OPEN][index]
    kind = delta["type"]
    if (field := TEXT_FIELDS.get(kind)) is not None:
        text: str = delta[field]
        parts.setdefault(field, []).append(text)
        return text if field == "text" else ""
    if kind in WHOLE_DELTAS:
        block.update({name: value for name, value in delta.items() if name != "type"})
    elif kind == "citations_delta":
        parts.setdefault("citations", []).append(delta["citation"])
    return ""


def _whole(block: JSONObject, parts: dict[str, list[Any]]) -> JSONObject:
    for name, pieces in parts.items():
        match name:
            case "partial_json":
                if text := "".join(pieces):
                    block["input"] = _input(text)
            case "citations":
                block[name] = [*(block.get(name) or ()), *pieces]
            case _:
                block[name] = (block.get(name) or "") + "".join(pieces)
    return block


def _input(text: str) -> object:
    """The object that the text is; the text itself if it is none, which is an error unless the answer was cut off."""
    read = arguments_in(text)
    return text if read is None else read


class AnthropicModel(ProviderModel):
    """A model of Anthropic's Messages API: ``AnthropicModel(anthropic.AsyncAnthropic(), "claude-sonnet-5")``.

    *client* is an async client of the SDK ``anthropic``, for the API itself, Bedrock or Vertex. *options* are arguments of
    its ``messages.create``; fields that this does not name stand in ``extra_body``. To let the model think,
    set *options*: ``{"thinking": {"type": "enabled", "budget_tokens": 2048}}``. The budget is added to the tokens that
    a request asks for. A turn that pauses, because Anthropic's own tools (`options`) take long or after a compaction, is
    continued here, in a few requests that each may have the tokens that the server asked for.
    """

    provider = PROVIDER
    name_rule = NameRule(re.compile("[a-zA-Z0-9_-]{1,128}"), re.compile("[^a-zA-Z0-9_-]"), 128)
    write_schema = staticmethod(schemas.anthropic)
    _sdk = Sdk("anthropic.AsyncAnthropic()", "messages.create")

    write_request = staticmethod(write_request)
    with_options = staticmethod(with_options)
    read_reply = staticmethod(read_reply)
    read_event = staticmethod(read_event)

    def prepare_tools(self, prompt: Prompt) -> None:
        for tool in prompt.request.tools:
            _argument_names(tool, prompt)

    def check_block(self, block: ContentBlock, where: str) -> None:
        _block(block, where)

    def file_limits(self) -> FileLimits:
        return claude_limits(self._client)

    def must_stream(self, body: JSONObject) -> bool:
        """Whether the SDK refuses to ask without a stream, because the answer may take more than ten minutes."""
        max_tokens: int = body["max_tokens"]
        return max_tokens > MAX_TOKENS_AT_ONCE

    async def request_reply(self, body: JSONObject) -> JSONObject:
        create: Callable[..., Awaitable[object]] = self._client.messages.create
        reply = as_json(await create(**body))
        return await self._continued(body, reply, lambda body: create(**body)) if is_paused(reply) else reply

    async def fold_events(self, body: JSONObject, show: Show) -> JSONObject:
        fold = super().fold_events
        return await self._continued(body, await fold(body, show), lambda body: fold(body, show))

    async def _continued(
        self, body: JSONObject, reply: JSONObject, ask: Callable[[JSONObject], Awaitable[object]]
    ) -> JSONObject:
        """*reply* to *body*, with how its turn goes on after each pause. *ask* sends a request."""
        for _ in range(MAX_PAUSES):
            if not is_paused(reply):
                break
            reply = joined(reply, as_json(await ask(resumed(body, reply))))
        return reply

    @asynccontextmanager
    async def request_events(self, body: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        async with await self._client.messages.create(**body, stream=True) as events:
            with stream_of(events):
                async with unwinding(as_events(events), events) as read:
                    yield read
