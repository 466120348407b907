"""OpenAI's Responses API: https://developers.openai.com/api/reference/resources/responses.

Nothing is stored at OpenAI (``store`` is false), so reasoning is sent back encrypted: the whole output of a turn, as it
was. A turn whose reasoning is lost is written from its message, and has calls without the ids that tie them to it.

The API has no stop sequences. They are applied to the answer: what follows one is dropped, and was paid for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any, assert_never

from mcp_host.errors import SamplingError
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.exchange.clients import Sdk
from mcp_host.providers.exchange.failures import Unfinished, stream_of
from mcp_host.providers.exchange.file_limits import OPENAI, FileLimits
from mcp_host.providers.exchange.replies import (
    Call,
    CountFields,
    Reply,
    ReplyBlock,
    as_events,
    as_json,
    read_counts,
    stopped,
    text_arguments,
)
from mcp_host.providers.exchange.requests import (
    Prompt,
    not_of_assistant,
    nothing_said,
    place_of,
    refused,
    says_something,
)
from mcp_host.providers.exchange.streams import unwinding
from mcp_host.providers.openai import (
    NAME_RULE,
    PROVIDER,
    Part,
    arguments_of,
    call_id,
    content_of,
    data_url,
    fields,
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
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    ImageContent,
    JSONObject,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.content import ContentBlock
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, TOOL_USE

LEAST_TOKENS = 16  # max_output_tokens: "integer below minimum value"

ENCRYPTED = "reasoning.encrypted_content"

PLAIN = frozenset({"message", "function_call"})  # what MCP has a place for
FOR_HOST = frozenset(
    {
        *("apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request"),
        *("shell_call", "tool_search_call"),
    }
)
"""Calls that no server of MCP can answer. A model writes them only if the host's options have such tools."""

HOSTED = frozenset({"custom_tool_call", "shell_call", "tool_search_call"})  # some: xAI and OpenAI may run the tool

KIND = itemgetter("type")  # of an item

TIED = frozenset({"phase", "namespace", "caller", "async"})
"""Fields of messages and calls that MCP has no place for, and that OpenAI wants back."""

OF_REFERENCE = frozenset({"type", "id", "summary", "status"})
"""Fields of reasoning from which no model could go on."""

COUNTS: CountFields = {
    "input_tokens": "inputTokens",
    "input_tokens_details": {"cached_tokens": "cacheReadTokens", "cache_write_tokens": "cacheWriteTokens"},
    "output_tokens": "outputTokens",
    "output_tokens_details": {"reasoning_tokens": "reasoningTokens"},
}

OPEN = "_open"  # in a reply that is being folded: its items, by index
PLACES = "_places"  # beside them: the index of each item, by its id

DELTAS = {
    "response.output_text.delta": "output_text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_text.delta": "reasoning_text",
    "response.reasoning_summary_text.delta": "summary_text",
}
DONE = {
    "response.output_text.done": ("output_text", "text"),
    "response.refusal.done": ("refusal", "refusal"),
    "response.function_call_arguments.done": ("arguments", "arguments"),
    "response.reasoning_text.done": ("reasoning_text", "text"),
    "response.reasoning_summary_text.done": ("summary_text", "text"),
}
IN_ANSWER = frozenset({"output_text", "refusal"})


# Requests


def write_request(prompt: Prompt) -> JSONObject:
    """The keyword arguments of ``responses.create``.

    Raises:
        InputRefused: The API does not take something of it.
    """
    params = prompt.request.params
    if params.max_tokens < LEAST_TOKENS:
        raise refused("maxTokens", f"at least {LEAST_TOKENS}, not {params.max_tokens}")
    body = fields(prompt, is_openai=True)
    body["input"] = _input(prompt)
    body["max_output_tokens"] = params.max_tokens
    body["store"] = False
    if reasons(prompt.model):
        body["include"] = [ENCRYPTED]
    if params.system_prompt:
        body["instructions"] = params.system_prompt
    if params.tools:
        own = format_of(prompt)
        body |= prompt.written_tools(_tools) if own is None else {"text": {"format": {"type": "json_schema", **own}}}
    return body


def _tools(prompt: Prompt) -> JSONObject:
    request = prompt.request
    tell_of_function(prompt)
    tools = [{"type": "function", **function_of(tool, prompt), "strict": False} for tool in request.tools]
    written = {"tools": tools, **use_of_tools(request)}
    if request.required_tool is not None:
        written["tool_choice"] = {"type": "function", "name": prompt.names.write(request.required_tool)}
    return written


def _input(prompt: Prompt) -> list[JSONObject]:
    items: list[JSONObject] = []
    for index, message in enumerate(prompt.request.params.messages):
        if isinstance(message, UserMessage):
            items += _user(message, index)
        elif isinstance(turn := prompt.turns.get(index), list):
            items += _again(turn, message, index, prompt)
        else:
            items += _assistant(message, index, prompt)
    if not items:
        raise nothing_said()
    return items


def _again(turn: Sequence[JSONObject], message: SamplingMessage, index: int, prompt: Prompt) -> Iterator[JSONObject]:
    """An assistant's turn that was kept."""
    uses = iter(message.tool_uses)
    for item in turn:
        yield item | {"call_id": call_id(next(uses).id)} if item["type"] == "function_call" else item
    if all(item["type"] != "function_call" for item in turn):  # its call is the JSON of its last message
        yield from _assistant(message.model_copy(update={"content": message.tool_uses}), index, prompt)


def _user(message: UserMessage, index: int) -> list[JSONObject]:
    items: list[JSONObject] = []
    parts: list[Part] = []
    for block in message.content:
        if isinstance(block, TextContent):  # most blocks
            if says_something(block.text):
                parts.append(block.text)
        elif isinstance(block, ToolResultContent):
            output = content_of(result_parts(block, place_of(index)), _part, index)
            items.append({"type": "function_call_output", "call_id": call_id(block.tool_use_id), "output": output})
        else:
            parts.append(part_of(block, place_of(index)))
    if parts:
        items.append({"role": "user", "content": content_of(parts, _part, index)})
    return items


def _assistant(message: SamplingMessage, index: int, prompt: Prompt) -> Iterator[JSONObject]:
    for block in message.content:
        match block:
            case TextContent(text=text):
                if says_something(text):
                    yield {"role": "assistant", "content": text}
            case ToolUseContent(id=id, name=name, input=arguments):
                written = json.dumps(arguments, ensure_ascii=False)
                call = {"call_id": call_id(id), "name": prompt.names.write(name), "arguments": written}
                yield {"type": "function_call", **call}
            case ImageContent() | AudioContent() | ToolResultContent():
                raise not_of_assistant(block.type, place_of(index))
            case _:
                assert_never(block)


def _part(part: Part, where: str) -> JSONObject:
    match part:
        case str():
            return {"type": "input_text", "text": part}
        case ImageContent(data=data, mime_type=kind):
            return {"type": "input_image", "detail": "auto", "image_url": data_url(kind, data)}
        case BlobResourceContents():
            return {"type": "input_file", **pdf(part)}
        case AudioContent():
            raise refused(where, "no audio at the Responses API")
    assert_never(part)


# Replies


def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
    """What a response says.

    Raises:
        ProviderError: The model failed.
        Unfinished: It does not have the whole answer.
        SamplingError: It waits for a call that no server of MCP can answer.
    """
    if reply.get("error") or reply.get("status") == "failed":
        raise model_failed(reply.get("error"))
    if OPEN in reply or "output" not in reply or reply.get("status") in ("queued", "in_progress", "cancelled"):
        raise Unfinished
    output: list[JSONObject] = reply["output"]
    kinds = {*map(KIND, output)}
    if not kinds <= PLAIN:
        _check_calls(output)
    content, has_refused = _read_output(output)
    stop_reason = _stop_reason(reply, has_refused, has_calls="function_call" in kinds)
    params = prompt.request.params
    if params.stop_sequences:
        content, stop_reason = stopped(content, stop_reason, prompt)
    elif params.tool_choice is not None and stop_reason == END_TURN:
        *before, last = [item for item in output if item["type"] == "message"] or [{"type": "message", "content": []}]
        if (own := own_call(_read_output([last])[0], prompt)) is not None:
            content, stop_reason = [*_read_output(before)[0], own], TOOL_USE  # before are comments
    kept = output if prompt.options.get("store") else _without_references(output)
    return Reply(
        content=content,
        model=reply.get("model") or prompt.model,
        stop_reason=stop_reason,
        turn=_turn(kept) if not {*map(KIND, kept)} <= PLAIN or _is_tied(kept) else None,
        usage=read_counts(reply.get("usage"), COUNTS) or None,
    )


def _read_output(output: Sequence[JSONObject]) -> tuple[list[ReplyBlock], bool]:
    """The content of an output, and whether there is a refusal in it."""
    content: list[ReplyBlock] = []
    has_refused = False
    for item in output:
        match item["type"]:
            case "message":
                said = item.get("content")
                if isinstance(said, str):  # of some servers
                    said = [{"type": "output_text", "text": said}]
                for part in said or ():  # those of newer types may have no text
                    is_refusal = part["type"] == "refusal"
                    has_refused |= is_refusal
                    if text := part.get("refusal" if is_refusal else "text"):
                        content.append(text)
            case "function_call":
                content.append(Call(item.get("call_id"), item.get("name"), text_arguments(item.get("arguments"))))
            case "image_generation_call" if item.get("result"):
                kind = f"image/{item.get('output_format') or 'png'}"
                content.append(ImageContent(data=item["result"], mime_type=kind))
    return content, has_refused


def _check_calls(output: Sequence[JSONObject]) -> None:
    """Check that no call waits for the host. Those of tools that the provider runs are followed by what they led to.

    Raises:
        SamplingError: There is such a call.
    """
    led_to_more = False
    for item in reversed(output):
        kind = item["type"]
        if kind in FOR_HOST and not (kind in HOSTED and led_to_more):
            raise SamplingError(f"the model wrote a {kind}, which only the host's options can have asked for")
        led_to_more |= kind != "function_call"


def _stop_reason(reply: JSONObject, has_refused: bool, *, has_calls: bool) -> str:
    if reply.get("status") == "incomplete":
        reason = (reply.get("incomplete_details") or {}).get("reason")
        return "content_filter" if reason == "content_filter" else MAX_TOKENS
    if has_refused:
        return "refusal"
    return TOOL_USE if has_calls else END_TURN


def _without_references(output: Sequence[JSONObject]) -> Sequence[JSONObject]:
    """The items that can be sent back, as nothing is stored. If reasoning came without its encrypted content, these are
    texts and calls, without the ids that tie them to it.

    "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
    """
    if not any(map(_is_reference, output)):
        return output
    return [{name: item[name] for name in item if name != "id"} for item in output if item["type"] in PLAIN]


def _is_reference(item: JSONObject) -> bool:
    return item["type"] == "reasoning" and {name for name in item if item[name]} <= OF_REFERENCE


def _is_tied(output: Sequence[JSONObject]) -> bool:
    """Whether an item has one of the fields that OpenAI wants back."""
    for item in output:
        for name in TIED & item.keys():
            if item[name] is not None:
                return True
    return False


def _turn(output: Sequence[JSONObject]) -> list[JSONObject]:
    """The output, to be sent back: MCP has no place for all of it."""
    return [{name: value for name, value in item.items() if value is not None} for item in output]


# Streams: https://developers.openai.com/api/reference/resources/responses/streaming-events


def read_event(reply: JSONObject, event: JSONObject) -> str:
    """Add one event of a stream. Until the response ends, texts are lists of pieces: joining them each time takes
    quadratic time. Events of unknown types are ignored.

    Raises:
        ProviderError: The event says that the model failed.
    """
    kind = event["type"]
    if kind in DELTAS:
        name = DELTAS[kind]
        _pieces(reply, event, name).append(event["delta"])
        return event["delta"] if name in IN_ANSWER else ""
    if kind in DONE:
        name, key = DONE[kind]
        pieces = _pieces(reply, event, name)
        is_new = not pieces and name in IN_ANSWER
        pieces[:] = [event[key]]
        return event[key] if is_new else ""
    match kind:
        case "response.created":
            reply.update(event["response"])
            reply.setdefault(OPEN, {})
        case "response.output_item.added" | "response.output_item.done":
            slot = _slot(reply, event)
            slot["item"] = event["item"]
            slot["is_done"] = kind.endswith("done")
        case "response.completed" | "response.incomplete" | "response.failed":
            slots = reply.pop(OPEN, {})
            reply.pop(PLACES, None)
            reply.update(event["response"])
            reply["output"] = _output(slots, event["response"].get("output") or [])
            if kind != "response.failed" and not any(map(_is_shown, slots.values())):
                return "".join([block for block in _read_output(reply["output"])[0] if isinstance(block, str)])
        case "error":
            raise model_failed(event.get("error") or event)
    return ""


def _slot(reply: JSONObject, event: JSONObject) -> JSONObject:
    """What is known of the item of *event*: itself, and the pieces of its texts."""
    slots: dict[int, JSONObject] = reply.setdefault(OPEN, {})
    index = event.get("output_index")
    places: dict[object, int] = reply.setdefault(PLACES, {})
    id = event.get("item_id") or (event.get("item") or {}).get("id")
    if index is None:  # of other servers
        index = places.get(id, len(slots))
    places.setdefault(id, index)
    found: JSONObject = slots.setdefault(index, {"item": {}, "is_done": False, "pieces": {}})
    return found


def _pieces(reply: JSONObject, event: JSONObject, name: str) -> list[str]:
    index = event.get("content_index") or event.get("summary_index") or 0
    found: list[str] = _slot(reply, event)["pieces"].setdefault((name, index), [])
    return found


def _is_shown(slot: JSONObject) -> bool:
    """Whether events had a text of the item that is in the answer. Some servers send only the end of a response."""
    return any(name in IN_ANSWER for name, _ in slot["pieces"])


def _output(slots: dict[int, JSONObject], last: Sequence[JSONObject]) -> list[JSONObject]:
    """The items of a response that has ended: as they were when each was done, as its end says them, or as folded. Some
    servers leave the texts out of what is done, and have them in the end."""
    if not last:
        return [_whole(slots[index]) for index in sorted(slots)]
    done = {index: _whole(slot) for index, slot in slots.items() if slot["is_done"]}
    return [
        {name: value or item.get(name, value) for name, value in done.get(index, item).items()}
        for index, item in enumerate(last)
    ]


def _whole(slot: JSONObject) -> JSONObject:
    """An item with its texts: those from the pieces, unless it was done. Some servers leave them out of what is done."""
    item: JSONObject = slot["item"] or {"type": "message", "role": "assistant"}
    texts: dict[str, Any] = {}
    for (name, _), pieces in sorted(slot["pieces"].items(), key=lambda entry: entry[0][1]):
        text = "".join(pieces)
        if name == "arguments":
            texts[name] = text
        else:
            field = "summary" if name == "summary_text" else "content"
            texts.setdefault(field, []).append({"type": name, "refusal" if name == "refusal" else "text": text})
    return item | {name: text for name, text in texts.items() if not (slot["is_done"] and item.get(name))}


class OpenAIModel(ProviderModel):
    """A model of OpenAI's Responses API: ``OpenAIModel(openai.AsyncOpenAI(), "gpt-5.6")``.

    *client* is an async client of the SDK ``openai``, or ``AsyncAzureOpenAI``. For other servers that speak OpenAI's
    language there is `OpenAIChatModel`. Models that do not reason are known by name. For others that refuse encrypted
    reasoning, such as some deployments at Azure, set *options*: ``{"include": None}``.
    """

    provider = PROVIDER
    name_rule = NAME_RULE
    cuts_at_stops = True
    _sdk = Sdk("openai.AsyncOpenAI()", "responses.create")

    write_request = staticmethod(write_request)
    read_reply = staticmethod(read_reply)
    read_event = staticmethod(read_event)

    def check_block(self, block: ContentBlock, where: str) -> None:
        part = part_of(block, where)
        if isinstance(part, AudioContent):  # the only part that is refused when it is written
            _part(part, where)

    def file_limits(self) -> FileLimits:
        return OPENAI

    def call_is_text(self, prompt: Prompt) -> bool:
        """Whether the answer has to be the arguments of the only tool, in the strict mode."""
        return format_of(prompt) is not None

    async def request_reply(self, body: JSONObject) -> JSONObject:
        return as_json(await self._client.responses.create(**arguments_of(body)))

    @asynccontextmanager
    async def request_events(self, body: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        async with await self._client.responses.create(**arguments_of(body), stream=True) as events:
            with stream_of(events):
                async with unwinding(as_events(events), events) as read:
                    yield read
