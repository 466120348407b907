"""What both APIs of OpenAI have in common: names, ids, kinds of content, metadata, and the native strict mode."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, assert_never
from urllib.parse import unquote, urlsplit

from mcp_host.errors import ProviderError, quoted
from mcp_host.providers.exchange import schemas
from mcp_host.providers.exchange.failures import ModelFailed, code_among, says_overloaded
from mcp_host.providers.exchange.names import NameRule
from mcp_host.providers.exchange.replies import Call, ReplyBlock, arguments_in
from mcp_host.providers.exchange.requests import (
    Prompt,
    file_text,
    link_text,
    media_type,
    no_file,
    other_id,
    place_of,
    refused,
    result_content,
)
from mcp_host.sampling.request import SamplingRequest
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
)
from mcp_host.types.content import ContentBlock, file_as_text

logger = logging.getLogger(__name__)

PROVIDER = "openai"

NAME_RULE = NameRule(re.compile("[a-zA-Z0-9_-]{1,64}"), re.compile("[^a-zA-Z0-9_-]"), 64)

# https://developers.openai.com/api/docs/guides/images-vision, …/audio, …/file-inputs
IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}
PDF = "application/pdf"

NOT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-5[.\d]*-chat)")

STATUS = re.compile("[45][0-9]{2}")

MAX_ID = 40  # characters of a call's id at Chat Completions of some models; 64 elsewhere
MAX_DESCRIPTION = (
    1024  # of a function, at OpenAI and Azure: "string too long. Expected a string with maximum length 1024"
)
MAX_METADATA = (16, 64, 512)  # pairs, and characters of a key and of a value

FAILED = "The tool failed:"  # neither API has a field for it

ARGUMENTS = ("model", "extra_headers", "extra_query", "timeout")  # those of the SDK's methods that it needs itself

Part: TypeAlias = str | ImageContent | AudioContent | BlobResourceContents
"""A text, an image that the API takes, a sound, or a PDF file."""


def part_of(block: ContentBlock, where: str) -> Part:
    """What a model gets of a block.

    Raises:
        InputRefused: It is of a type that no API of OpenAI takes.
    """
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return _file(data, media_type(kind), "", where)
        case ResourceLink():
            return link_text(block)
        case EmbeddedResource(resource=resource):
            if not isinstance(resource, BlobResourceContents):
                return file_as_text(resource.uri, resource.text)
            if (read := file_text(resource, where)) is not None:
                return file_as_text(resource.uri, read)
            return _file(resource.blob, media_type(resource.mime_type), resource.uri, where)
    assert_never(block)


def _file(data: str, kind: str, uri: str, where: str) -> Part:
    if kind == PDF:
        return BlobResourceContents(uri=uri, mime_type=kind, blob=data)
    if kind.startswith("audio/"):
        return AudioContent(data=data, mime_type=kind)
    if kind not in IMAGES:
        raise no_file(kind, where)
    return ImageContent(data=data, mime_type=kind)


def result_parts(result: ToolResultContent, where: str) -> list[Part]:
    """What a model gets of a tool's result."""
    parts = [part for block in result_content(result) if (part := part_of(block, where)) != ""]
    return [FAILED, *parts] if result.is_error else parts


def content_of(parts: Sequence[Part], write: Callable[[Part, str], JSONObject], index: int) -> str | list[JSONObject]:
    """The parts of the message with this *index* as one text; as *write* writes each if they are not all text."""
    texts: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            return [write(part, place_of(index)) for part in parts]
        texts.append(part)
    return "\n".join(texts)


def data_url(kind: str, data: str) -> str:
    return f"data:{kind};base64,{data}"


def pdf(resource: BlobResourceContents) -> JSONObject:
    """A PDF file, which needs a name."""
    try:
        path = urlsplit(resource.uri).path
    except ValueError:  # no URI: http://[
        path = ""
    name = unquote(path).rpartition("/")[2] or "document"
    return {
        "filename": name if name.lower().endswith(".pdf") else f"{name}.pdf",
        "file_data": data_url(PDF, resource.blob),
    }


def audio(block: AudioContent, where: str) -> JSONObject:
    if (written := AUDIO_FORMATS.get(media_type(block.mime_type))) is None:
        raise refused(where, f"wav and mp3, not {quoted(block.mime_type)}")
    return {"data": block.data, "format": written}


def call_id(id: str) -> str:
    """The id of a tool call; the same other one each time if it is too long."""
    return id if 0 < len(id) <= MAX_ID else other_id(id)


@lru_cache(maxsize=64)  # each request asks
def reasons(model: str) -> bool:
    """Whether a model reasons: all new ones do. Those take neither a temperature nor stop sequences.

    Others take no encrypted reasoning: "Encrypted content is not supported with this model".
    """
    return NOT_REASONING.match(model) is None


def fields(prompt: Prompt, *, is_openai: bool) -> JSONObject:
    """The fields of a request that both APIs have. A model of OpenAI that reasons takes no temperature.

    Raises:
        InputRefused: The API does not take one of their values.
    """
    params = prompt.request.params
    body: JSONObject = {"model": prompt.model}
    if params.temperature is not None:
        if not 0 <= params.temperature <= 2:
            raise refused("temperature", f"0 to 2, not {params.temperature:g}")
        if not (is_openai and reasons(prompt.model)):
            body["temperature"] = params.temperature
    if params.metadata:
        body["metadata"] = _metadata(params.metadata)
    return body


def _metadata(metadata: JSONObject) -> JSONObject:
    pairs, key, value = MAX_METADATA
    if len(metadata) > pairs:
        raise refused("metadata", f"at most {pairs} pairs")
    for name, text in metadata.items():
        if not isinstance(text, str) or len(name) > key or len(text) > value:
            raise refused("metadata", f"only texts of {value} characters, under names of {key}: not {quoted(name)}")
    return metadata


def forced_tool(prompt: Prompt) -> Tool | None:
    """The only tool that the answer may call, and has to."""
    request = prompt.request
    if request.required_tool is not None:
        return next(tool for tool in request.tools if tool.name == request.required_tool)
    return request.tools[0] if request.must_use_tools and len(request.tools) == 1 else None


def format_of(prompt: Prompt) -> JSONObject | None:
    """The JSON schema for the strict mode, in which the whole text of the answer is the arguments of the forced tool.

    None if no single tool is forced, if the strict mode cannot say what its schema says, or if a stop sequence could
    cut the JSON.
    """
    if prompt.request.params.tool_choice is None:  # as in most requests
        return None
    tool = _tool_for_format(prompt)
    if tool is None:
        return None
    try:
        schema = schemas.strict(tool.input_schema)
    except (ValueError, RecursionError):
        return None
    if schema is None:
        return None
    written: JSONObject = {"name": prompt.names.write(tool.name), "schema": schema, "strict": True}
    if description := prompt.names.description(tool):
        written["description"] = description
    return written


def _tool_for_format(prompt: Prompt) -> Tool | None:
    """The forced tool, if it may be the format of the text, should the strict mode take its schema."""
    if prompt.request.stop_sequences:
        return None
    if not prompt.options.keys().isdisjoint({"text", "response_format", "tools", "tool_choice"}):
        return None
    return forced_tool(prompt)


def own_call(content: Sequence[ReplyBlock], prompt: Prompt) -> Call | None:
    """The call of the forced tool, if the text of the answer is its arguments: not all models keep to the format."""
    text = "".join([block for block in content if isinstance(block, str)])
    own = format_of(prompt) if text else None
    if own is None or (arguments := arguments_in(text)) is None:
        return None
    tool = forced_tool(prompt)
    assert tool is not None, "the format is its schema"
    schemas.drop_absent(tool.input_schema, arguments)
    return Call(None, own["name"], arguments)


def tell_of_function(prompt: Prompt) -> None:
    """Log that a forced tool is a function, whose arguments need not conform, because the strict mode cannot say its schema."""
    tool = _tool_for_format(prompt)
    if tool is not None:
        logger.info("the inputSchema of %s is too rich for OpenAI's strict mode: it is a function", quoted(tool.name))


def function_of(tool: Tool, prompt: Prompt) -> JSONObject:
    """A tool as a function."""
    parameters = prompt.schema_of(tool, schemas.function)
    written: JSONObject = {"name": prompt.names.write(tool.name), "parameters": parameters}
    if description := prompt.names.description(tool):
        written["description"] = description
    return written


def cut_description(written: JSONObject) -> None:
    """Cut the description of a function, with a note, to what OpenAI's Chat Completions take."""
    description = written.get("description", "")
    if len(description) > MAX_DESCRIPTION:
        note = f"\n[cut: the description has {len(description)} characters]"
        written["description"] = f"{description[: MAX_DESCRIPTION - len(note)]}{note}"


def use_of_tools(request: SamplingRequest) -> JSONObject:
    """The fields that both APIs have for how the tools may be used."""
    use: JSONObject = {}
    if request.tool_choice is not None:
        use["tool_choice"] = request.tool_choice.mode or "auto"
    if request.may_use_tools and request.params.disable_parallel_tool_use:
        use["parallel_tool_calls"] = False
    return use


def model_failed(error: object, *codes: str) -> ProviderError:
    """The error for a reply, or an event, that says that the model failed. Its text has only the code of *error*, or the
    first of the *codes* that are known without it.

    Behind HTTP 200, the code of many servers is the HTTP status that they would have sent.
    """
    found = codes or ([error.get(name) for name in ("code", "type")] if isinstance(error, dict) else [])
    status = next((int(text) for text in map(str, found) if STATUS.fullmatch(text)), None)
    return ProviderError(
        PROVIDER,
        "the model failed",
        status=status,
        code=code_among(found),
        transient=status is None and says_overloaded(found),
        original=ModelFailed(error) if error else None,
    )


def arguments_of(body: JSONObject) -> JSONObject:
    """*body* as keyword arguments of the SDK's methods: nearly all of it in ``extra_body``, which is sent as it is.

    Other arguments are compared with the SDK's types, part by part: that takes 65 ms for a conversation with 40 tool
    calls, and nothing else runs in the event loop meanwhile.
    """
    fields, arguments = body.copy(), {}
    for name in ARGUMENTS:
        if name in fields:
            arguments[name] = fields.pop(name)
    fields |= fields.pop("extra_body", {})
    arguments["extra_body"] = fields
    return arguments
