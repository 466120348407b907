"""Ollama: https://docs.ollama.com/api/chat.

`OllamaModel` speaks the API's own JSON through the private method on which all methods of the SDK's client stand. The
public ``chat`` drops what the class `ollama.Tool` does not have: the JSON Schema of a tool below its first level. It
drops fields of the model's turns, too, and takes text for the path of an image: a server could name a file of yours.

The API has no tool choice, so it is emulated:

=======================  =======================================================================================
none                     the tools are not sent
required, or one tool    ``format`` is the schema of the call, and the system prompt has the tools. The answer is JSON,
                         and read as the call
disable_parallel_        of several calls, the first is kept
tool_use
=======================  =======================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Unpack, assert_never

from mcp_host.providers.adapter import Arguments, ProviderModel
from mcp_host.providers.exchange import schemas
from mcp_host.providers.exchange.clients import Sdk, private_method
from mcp_host.providers.exchange.failures import Unfinished, Unreadable
from mcp_host.providers.exchange.names import NameRule
from mcp_host.providers.exchange.replies import (
    Call,
    Reply,
    ReplyBlock,
    arguments_in,
    count_of,
    object_in,
    text_arguments,
)
from mcp_host.providers.exchange.requests import (
    Prompt,
    WriteSchema,
    file_text,
    link_text,
    media_type,
    merged,
    no_file,
    nothing_said,
    place_of,
    refused,
    result_content,
    says_something,
)
from mcp_host.providers.exchange.texts import without_thinking
from mcp_host.sampling.request import SamplingRequest, Usage
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ContentBlock, file_as_text
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, SamplingMessageContentBlock

PROVIDER = "ollama"

# https://github.com/ollama/ollama/issues/1526, …/2456: the request fails with others, or hangs
IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"})
"""The types of images that its engines read; no API says which."""

MAX_NUM_PREDICT = 2**31 - 1  # num_predict is an int32 in the runner

STOP_REASONS = {"stop": END_TURN, "length": MAX_TOKENS}  # after a stop sequence, it is "stop", too

TEXT_FIELDS = ("content", "thinking")  # of a message: a text, or the pieces of one in a stream

REQUEST_FIELDS = frozenset(
    {"model", "messages", "tools", "format", "options", "stream", "think", "keep_alive", "logprobs", "top_logprobs"}
)
"""The fields of a request. Others are its ``options``."""


# Requests


def write_request(prompt: Prompt) -> JSONObject:
    """The fields of a ChatRequest.

    Raises:
        InputRefused: Ollama cannot take something of it.
    """
    params = prompt.request.params
    if params.metadata:
        raise refused("metadata", "none")
    options: JSONObject = {"num_predict": min(params.max_tokens, MAX_NUM_PREDICT)}
    if params.temperature is not None:
        options["temperature"] = params.temperature
    if params.stop_sequences:
        options["stop"] = params.stop_sequences
    messages: list[JSONObject] = []
    body: JSONObject = {"model": prompt.model, "messages": messages, "options": options}
    system = [params.system_prompt] if params.system_prompt else []
    if params.tools:
        tools = prompt.written_tools(_tools)
        body |= tools["fields"]
        system += tools["instructions"]
    if system:
        messages.append({"role": "system", "content": "\n\n".join(system)})
    messages += _messages(prompt)
    return body


def with_options(body: JSONObject, prompt: Prompt) -> JSONObject:
    """*body* with the host's options, which win; a None leaves the field out. Parameters of the model may stand beside the fields."""
    fields: JSONObject = {}
    options: JSONObject = {}
    for name, value in prompt.options.items():
        if name == "options" and isinstance(value, dict):
            options |= value
        elif name in REQUEST_FIELDS:
            fields[name] = value
        else:
            options[name] = value
    fields["options"] = merged(body["options"], options)
    return merged(body, fields)


def _tools(prompt: Prompt) -> JSONObject:
    """What the tools on offer add to a request: the ``fields`` of it, and the ``instructions`` of its system prompt."""
    request = prompt.request
    if required := _required(request):
        return {"fields": {"format": _format(required, prompt)}, "instructions": [_instructions(required)]}
    fields = {"tools": [_tool(tool, prompt) for tool in request.tools]} if request.may_use_tools else {}
    return {"fields": fields, "instructions": []}


def _required(request: SamplingRequest) -> Sequence[Tool]:
    """The tools of which the answer must call one; empty if it need not."""
    if not request.must_use_tools:
        return ()
    named = request.required_tool
    return [tool for tool in request.tools if named is None or tool.name == named]


def _format(tools: Sequence[Tool], prompt: Prompt) -> JSONObject:
    written = [prompt.schema_of(tool, schemas.format_of_object) for tool in tools]
    if len(written) == 1:
        return written[0]
    calls: list[JSONObject] = []
    definitions: JSONObject = {}
    for index, (tool, schema) in enumerate(zip(tools, written, strict=True)):
        arguments, its_own = schemas.without_definitions(schema, prefix=f"{index}_")  # references lead to the root
        definitions |= its_own
        properties = {"name": {"type": "string", "enum": [tool.name]}, "arguments": arguments}
        calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"]})
    return {"anyOf": calls, "$defs": definitions} if definitions else {"anyOf": calls}


def _instructions(tools: Sequence[Tool]) -> str:
    """What the model must know of tools that it cannot be offered: ``format`` applies to the whole answer."""
    if len(tools) == 1:
        wanted = "Call this tool. Answer with the JSON of its arguments only."
    else:
        wanted = 'Call one of these tools. Answer with its JSON only: {"name": …, "arguments": …}.'
    described = [
        {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema} for tool in tools
    ]
    written = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in described]
    return "\n".join([wanted, *written])


def _tool(tool: Tool, prompt: Prompt) -> JSONObject:
    function: JSONObject = {"name": tool.name, "parameters": prompt.schema_of(tool, schemas.function)}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _messages(prompt: Prompt) -> list[JSONObject]:
    messages: list[JSONObject] = []
    called: dict[str, tuple[int, str]] = {}  # by its id: the place of a call, and the name of its tool
    for index, message in enumerate(prompt.request.params.messages):
        if message.role == "assistant":
            for use in message.tool_uses:
                called[use.id] = (len(called), use.name)
        turn = prompt.turns.get(index)
        if called and (results := [block for block in message.content if isinstance(block, ToolResultContent)]):
            results.sort(key=lambda result: called[result.tool_use_id])
            messages += [_result(result, called[result.tool_use_id][1], index) for result in results]
        elif isinstance(turn, dict):
            messages.append(turn)
        else:
            content = _content(message.content, place_of(index))
            if any(content.values()):  # a message of empty texts says nothing
                messages.append({"role": message.role, **content})
    if not messages:
        raise nothing_said()
    return messages


def _result(result: ToolResultContent, name: str, index: int) -> JSONObject:
    failed = [TextContent(text="The tool failed:")] if result.is_error else []
    return {"role": "tool", "tool_name": name, **_content([*failed, *result_content(result)], place_of(index))}


def _content(blocks: Sequence[SamplingMessageContentBlock | ContentBlock], where: str) -> JSONObject:
    """The texts, joined, the images as base64, and the calls."""
    texts: list[str] = []
    images: list[str] = []
    calls: list[JSONObject] = []
    for block in blocks:
        if isinstance(block, TextContent):  # most blocks
            if says_something(block.text):
                texts.append(block.text)
            continue
        match block:
            case ImageContent(data=data, mime_type=kind):
                images.append(_image(data, kind, where))
            case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=str(kind))) if _is_image(kind):
                images.append(_image(data, kind, where))
            case ToolUseContent(name=name, input=arguments):
                calls.append({"function": {"name": name, "arguments": arguments}})
            case _:
                texts.append(_text(block, where))
    content: JSONObject = {"content": "\n".join(texts)}
    if images:
        content["images"] = images
    if calls:
        content["tool_calls"] = calls
    return content


def _is_image(kind: str) -> bool:
    return media_type(kind).startswith("image/")


def _image(data: str, kind: str, where: str) -> str:
    written = media_type(kind)
    if written not in IMAGES:
        raise no_file(written, where)
    return data


def _text(block: AudioContent | ResourceLink | EmbeddedResource | ToolResultContent, where: str) -> str:
    """What the model reads of a block that is written as text."""
    assert not isinstance(block, ToolResultContent), "written by _result"
    match block:
        case AudioContent():
            raise refused(where, "no audio")
        case ResourceLink():
            return link_text(block)
        case EmbeddedResource(resource=resource):
            if not isinstance(resource, BlobResourceContents):
                return file_as_text(resource.uri, resource.text)
            if (read := file_text(resource, where)) is None:
                raise no_file(media_type(resource.mime_type), where)
            return file_as_text(resource.uri, read)
    assert_never(block)


# Replies


def read_reply(reply: JSONObject, prompt: Prompt, *, starts_with_reasoning: bool = False) -> Reply:
    """What a ChatResponse says.

    Raises:
        Unfinished: It does not have the whole answer.
    """
    if not reply.get("done"):
        raise Unfinished
    message: JSONObject = dict(reply["message"])
    for name in TEXT_FIELDS:
        if (pieces := message.get(name)) and not isinstance(pieces, str):  # of a stream
            message[name] = "".join(pieces)
    reason = reply.get("done_reason") or "stop"
    stop_reason = STOP_REASONS.get(reason, reason)
    written: str = message.get("content") or ""
    calls: list[JSONObject] = message.get("tool_calls") or []
    params = prompt.request.params
    tools = _required(prompt.request) if params.tools and not calls else ()
    is_format = (tools or "format" in prompt.options) and written.lstrip().startswith(
        "{"
    )  # from the first word, also of a model that always thinks
    text = without_thinking(written, has_begun=starts_with_reasoning and not is_format)
    has_thoughts = bool(message.get("thinking")) or text is not written
    if tools and stop_reason != MAX_TOKENS and (required := _read_call(text, tools)):
        calls = [required]
        message |= {"content": written.removesuffix(text), "tool_calls": calls}  # the thinking
        text = ""
    if calls and params.disable_parallel_tool_use:
        message["tool_calls"] = calls = calls[:1]
    content: list[ReplyBlock] = [text] if text else []
    for call in calls:
        function = object_in(object_in(call).get("function"))
        content.append(Call(None, function.get("name"), text_arguments(function.get("arguments"))))
    return Reply(
        content,
        reply.get("model") or prompt.model,
        stop_reason,
        message if calls and has_thoughts else None,
        _usage(reply),
    )


def _read_call(text: str, tools: Sequence[Tool]) -> JSONObject | None:
    """The call that an answer in the format of `_format` is; None if the model wrote something else."""
    match [tool.name for tool in tools], arguments_in(text):
        case [name], arguments:
            pass
        case _, {"name": str(name), "arguments": written}:
            arguments = arguments_in(written)
        case _:
            return None
    return None if arguments is None else {"function": {"name": name, "arguments": arguments}}


def _usage(reply: JSONObject) -> Usage | None:
    if "eval_count" not in reply:
        return None
    # a prompt that is cached has no count
    counts = {"inputTokens": reply.get("prompt_eval_count", 0), "outputTokens": reply["eval_count"]}
    return {name: count for name, value in counts.items() if (count := count_of(value)) is not None} or None


# Streams


def read_event(reply: JSONObject, event: JSONObject) -> str:
    """Add one event, a ChatResponse with the next piece of the message.

    The texts of the message are lists of pieces: joining them at each event would take quadratic time.

    Raises:
        ValueError: It is another object: a page in the place of a stream is read as an event, too.
    """
    if event.keys().isdisjoint(("message", "done")):
        raise ValueError("no ChatResponse")
    message = reply.setdefault("message", {})
    added = event.get("message") or {}
    for name, value in added.items():
        if name in TEXT_FIELDS:
            message.setdefault(name, []).append(value or "")
        elif isinstance(value, list):
            message.setdefault(name, []).extend(value)
        else:
            message[name] = value
    reply.update({name: value for name, value in event.items() if name != "message"})
    return added.get("content") or ""


class OllamaModel(ProviderModel):
    """A sampling handler that asks a model of Ollama, through your `ollama.AsyncClient`.

    *options* are fields of the request or parameters of the model: ``{"think": True, "num_ctx": 16384}``.

    *starts_with_reasoning* is for a model that always thinks, from the first word, and whose template Ollama does not
    know: what it writes up to ``</think>`` is no part of the answer, also without a ``<think>`` before it. An answer without
    a ``</think>`` is empty.

    The other arguments are those of `ProviderModel`.
    """

    provider = PROVIDER
    thinks_in_text = True  # models whose template Ollama does not know
    name_rule = NameRule(re.compile(".+", re.DOTALL), re.compile(r"(?!)"), 2**31)  # any
    _sdk = Sdk("ollama.AsyncClient()", "chat")
    _not_found = "is the model's name right, and is it pulled?"

    assistant_has_files = True

    write_request = staticmethod(write_request)
    with_options = staticmethod(with_options)
    read_event = staticmethod(read_event)

    def __init__(
        self, client: Any, model: str, *, starts_with_reasoning: bool = False, **arguments: Unpack[Arguments]
    ) -> None:
        super().__init__(client, model, **arguments)
        self._starts_with_reasoning = starts_with_reasoning

    def schema_writer(self, request: SamplingRequest) -> WriteSchema:
        return schemas.format_of_object if _required(request) else self.write_schema

    def prepare_tools(self, prompt: Prompt) -> None:
        prompt.written_tools(_tools)

    def check_block(self, block: ContentBlock, where: str) -> None:
        _content([block], where)

    def read_reply(self, reply: JSONObject, prompt: Prompt) -> Reply:
        return read_reply(reply, prompt, starts_with_reasoning=self._starts_with_reasoning)

    async def request_reply(self, body: JSONObject) -> JSONObject:
        try:
            reply: JSONObject = await self._ask(dict, "POST", "/api/chat", json=body | {"stream": False})
        except TypeError as exc:
            raise Unreadable from exc  # its JSON is no object
        return reply

    @asynccontextmanager
    async def request_events(self, body: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        events = await self._ask(dict, "POST", "/api/chat", json=body | {"stream": True}, stream=True)
        try:
            async with aclosing(events):
                yield events
        except AttributeError as exc:
            raise Unreadable from exc  # a line is JSON, and no object
        except json.JSONDecodeError as exc:
            if exc.doc.strip():
                raise  # a line that was cut, or of a page
            raise Unreadable from exc  # an empty line: a page has some, a stream none

    def call_is_text(self, prompt: Prompt) -> bool:
        """Whether a tool is required."""
        return bool(_required(prompt.request))

    @property
    def _ask(self) -> Callable[..., Any]:
        return private_method(self._client, "_request", PROVIDER)
