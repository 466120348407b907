"""What goes to a provider: the prompt that `write_request` writes, and how its parts are checked and written."""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import attrgetter, is_
from typing import Self, TypeAlias

from anyio import CapacityLimiter, to_thread
from pydantic_core import to_json

from mcp_host.errors import InputRefused, excerpt, quoted
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, check_numbers
from mcp_host.providers.exchange.file_types import type_by_bytes
from mcp_host.providers.exchange.logged import Logged
from mcp_host.providers.exchange.names import NameRule, ToolNames
from mcp_host.providers.exchange.reasoning import Conversation
from mcp_host.sampling.loop.results import texts_repeat
from mcp_host.sampling.repeated import ReadOnlyTools
from mcp_host.sampling.request import SamplingRequest, log_subject
from mcp_host.sampling.validation import decoded_size
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    CreateMessageRequestParams,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import link_fields
from mcp_host.types.sampling import SamplingMessageContentBlock

logger = logging.getLogger(__name__)

MAX_TEMPERATURE = 1000  # more than any model takes: 10**4000 is a number of JSON, and none of an SDK

BASE64 = re.compile("[A-Za-z0-9+/]*+={0,2}")
PLAIN = str.maketrans("-_", "+/", "\r\n")
WRITTEN_AT_ONCE = 32_768  # bytes of tools: cleaning their schemas takes up to 30 ms. More are written in a thread
MAX_TOLD = 1024  # notes that a model keeps, not to repeat a warning
MAX_DEPTH = 254  # of nested objects and lists: `to_json` writes no more

TEXT_FILES = re.compile(r"text/.+|application/((.+\+)?(json|xml)|(x-)?yaml|toml)")

SPELLINGS = {
    "image/jpg": "image/jpeg",
    **dict.fromkeys(("audio/wave", "audio/x-wav", "audio/vnd.wave"), "audio/wav"),
    **dict.fromkeys(("audio/mp3", "audio/x-mp3"), "audio/mpeg"),
}
"""How the APIs write the types of files that have several names."""

WriteSchema: TypeAlias = Callable[[JSONObject], JSONObject]
"""Makes of any schema one that the provider takes, or raises ValueError."""

TERMS = attrgetter("name", "description", "input_schema")  # what a provider gets of a tool

Block: TypeAlias = ContentBlock | SamplingMessageContentBlock
WriteBlock: TypeAlias = Callable[[ContentBlock, int], ContentBlock]
"""What becomes of a block of the message with this index. It raises InputRefused for a file that cannot be taken."""


class Offer:
    """The tools of a request, and how they may be used. A server repeats them in each request of a loop, and what
    depends on them alone is done once: an adapter keeps the offer of its last request.
    """

    def __init__(
        self,
        tools: list[Tool],
        terms: bytes,
        use: bytes,
        names: ToolNames,
        schemas: Mapping[str, JSONObject],
        left_out: Mapping[str, str],
        write: WriteSchema,
    ) -> None:
        self._tools = tools
        self._terms = terms
        self._use = use
        self.write = write
        """What has made the schemas."""
        self.names = names
        """Of the tools on offer."""
        self.schemas = schemas
        """Of the arguments, as the provider takes them, by the name of the tool."""
        self.left_out = left_out
        """Why tools are left out, which the provider cannot take, by their names."""
        self.written: JSONObject | None = None
        """What `Prompt.written_tools` has kept."""
        self.argument_names: dict[str, Mapping[str, str]] = {}
        """The other names of arguments that an adapter has kept, by the name of the tool."""

    @classmethod
    async def of(
        cls,
        request: SamplingRequest,
        rule: NameRule,
        write: WriteSchema,
        last: Offer | None,
        prepare: Callable[[Offer], object],
    ) -> Offer:
        """The offer of *request*: *last*, if it is the same. *write* is what the adapter makes of schemas, and *prepare* may
        keep with a large offer what else takes long.

        They are compared as JSON: Python takes 1 for True, and lists may have changed in place. `ReadOnlyTools` do not
        change. A tool that cannot be written is left out, with a warning: it must not cost the conversation.
        Large tools are written in a thread. If the caller is cancelled, it is left behind.
        """
        tools = request.tools
        use = to_json([request.tool_choice, request.params.disable_parallel_tool_use])
        is_same_use = last is not None and last._use == use
        if is_same_use and last is not None and last._tools is tools and isinstance(tools, ReadOnlyTools):
            return last
        terms = b""
        with suppress(ValueError):  # one of them has values that JSON does not have
            terms = to_json([*map(TERMS, tools)])
        if last is not None and terms and last._terms == terms and is_same_use:
            last._tools = tools
            return last
        if 0 < len(terms) <= WRITTEN_AT_ONCE:
            return cls._written(request, rule, write, last, terms, use)

        def written() -> Offer:
            offer = cls._written(request, rule, write, last, terms, use)
            prepare(offer)
            return offer

        return await to_thread.run_sync(written, abandon_on_cancel=True, limiter=CapacityLimiter(1))

    @classmethod
    def _written(
        cls,
        request: SamplingRequest,
        rule: NameRule,
        write: WriteSchema,
        last: Offer | None,
        terms: bytes,
        use: bytes,
    ) -> Offer:
        tools = request.tools
        if last is not None and terms and last._terms == terms and last.write is write:
            schemas, left_out = last.schemas, last.left_out
        else:
            schemas, left_out = _written_schemas(tools, write)
            for name, problem in left_out.items():
                if last is None or last.left_out.get(name) != problem:
                    logger.warning("%s: a tool is left out: %s", log_subject(request.server), problem)
        names = ToolNames.of_offered([tool for tool in tools if tool.name not in left_out], rule)
        return cls(tools, terms, use, names, schemas, left_out, write)

    def without_left_out(self, request: SamplingRequest) -> SamplingRequest:
        """*request* without the tools that are left out.

        Raises:
            InputRefused: The answer has to call one of them.
        """
        if not self.left_out:
            return request
        kept = [tool for tool in request.tools if tool.name not in self.left_out]
        problem = self.left_out.get(request.required_tool or "")
        if problem is None and request.must_use_tools and not kept:
            problem = next(iter(self.left_out.values()))
        if problem is not None:
            raise InputRefused(INVALID_PARAMS, problem)
        update = {"tools": kept} if kept else {"tools": None, "tool_choice": None}
        return replace(request, params=request.params.model_copy(update=update))


def _written_schemas(tools: Sequence[Tool], write: WriteSchema) -> tuple[dict[str, JSONObject], dict[str, str]]:
    """The schemas of the tools, and what is wrong with others, by the name of the tool."""
    schemas: dict[str, JSONObject] = {}
    problems: dict[str, str] = {}
    for tool in tools:
        try:
            if problem := _json_problem([TERMS(tool)]):  # in a list, as all of them are
                raise refused(f"the tool {quoted(tool.name)}", problem)
            schemas[tool.name] = input_schema(tool, write)
        except InputRefused as exc:
            problems[tool.name] = str(exc)
    return schemas, problems


@dataclass(slots=True)
class Prompt:
    """One request for a model: what `write_request` writes, and what `read_reply` needs to know of it.

    *turns* are assistant's turns of the provider (`Reply.turn`), by the index of their message in the request. They
    replace what the message says, but for the ids of its calls: a provider may repeat those that are in the turn.
    *lost* are the messages whose turn was kept once and cannot be restored. *names* maps tool names both ways, and has
    those of the conversation, too. *options* are the host's fields of the provider's request, for what depends on them;
    `ProviderModel.with_options` merges them afterwards.
    """

    request: SamplingRequest
    model: str
    names: ToolNames
    options: Mapping[str, object] = field(default_factory=dict)
    turns: Mapping[int, object] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    offer: Offer | None = None
    """None without tools."""
    conversation: Conversation | None = None
    """What it was before turns were restored; None if none was looked for."""

    @property
    def has_lost_turn(self) -> bool:
        """Whether a lost turn is one of those that go on: after the last message of the user that is not a tool's result."""
        asked = [
            index
            for index, message in enumerate(self.request.messages)
            if message.role == "user" and not any(isinstance(block, ToolResultContent) for block in message.content)
        ]
        return max(self.lost, default=-1) > max(asked, default=-1)

    def written_tools(self, write: Callable[[Self], JSONObject]) -> JSONObject:
        """The fields that *write* makes of the tools on offer and their use, and of nothing else but the adapter's own settings."""
        if self.offer is None:
            return write(self)
        if self.offer.written is None:
            self.offer.written = write(self)
        return self.offer.written

    def schema_of(self, tool: Tool, write: WriteSchema) -> JSONObject:
        """The schema of a tool's arguments, as *write* of `schemas` makes it, or has made it for the offer.

        Raises:
            InputRefused: That cannot be made. The text names the tool.
        """
        kept = None if self.offer is None else self.offer.schemas.get(tool.name)
        return input_schema(tool, write) if kept is None else kept


# What is refused before a provider is asked


def check_settings(params: CreateMessageRequestParams) -> None:
    """Refuse values that JSON does not have. Each SDK fails at them in its own way.

    Raises:
        InputRefused: There is one.
    """
    if params.metadata is not None:
        _check_json(params.metadata, "metadata")
    if params.temperature is not None:
        _check_json(params.temperature, "temperature")
        if abs(params.temperature) > MAX_TEMPERATURE:
            raise refused("temperature", f"{MAX_TEMPERATURE} at most")


def blocks_but_texts(request: SamplingRequest) -> list[tuple[int, SamplingMessageContentBlock]]:
    """The other blocks of the conversation, with the index of their message: most requests have none."""
    blocks: list[tuple[int, SamplingMessageContentBlock]] = []
    for index, message in enumerate(request.params.messages):
        for block in message.content:
            if not isinstance(block, TextContent):
                blocks.append((index, block))
    return blocks


def checked(
    request: SamplingRequest, blocks: Sequence[tuple[int, SamplingMessageContentBlock]], notes: list[str]
) -> SamplingRequest:
    """*request* with files in the base64 that each provider takes, under the types that their bytes tell, and without structured
    content that is no JSON.
    *blocks* are those of `blocks_but_texts`, *notes* what `written_blocks` adds to.

    Raises:
        InputRefused: A file of the host's user is not base64, or not of its type; or a call has values that JSON does not have.
    """
    changed: dict[int, Block] = {}
    for index, block in blocks:
        match block:
            case ToolUseContent(input=arguments):
                _check_json(arguments, place_of(index))
            case ToolResultContent(structured_content=structured) if structured is not None:
                if problem := _json_problem(structured):
                    note = f"[structured content: this model takes {problem}]"
                    notes.append(f"{place_of(index)}: {note}")
                    content = [*block.content, TextContent(text=note)]
                    changed[id(block)] = block.model_copy(update={"structured_content": None, "content": content})
    if changed:
        request = _with_blocks(request, changed)
        blocks = blocks_but_texts(request)
    return written_blocks(request, blocks, _with_plain_data, notes)


def written_blocks(
    request: SamplingRequest,
    blocks: Iterable[tuple[int, SamplingMessageContentBlock]],
    write: WriteBlock,
    notes: list[str],
) -> SamplingRequest:
    """*request* with what *write* makes of each of *blocks*, and of each block of the tool results among them.

    What it refuses becomes a text that names its type and size, and is added to *notes*: a tool, a server or a model has
    sent it, and would end the conversation. What the host's user sent is refused, for the user can send something else.

    Raises:
        InputRefused: *write* refuses what the host's user sent.
    """
    changed: dict[int, Block] = {}
    for index, block in blocks:
        new: Block = block
        match block:
            case ToolUseContent():
                continue
            case ToolResultContent():
                content = [_written_or_named(inner, index, write, notes) for inner in block.content]
                if not all(map(is_, content, block.content)):
                    new = block.model_copy(update={"content": content})
            case _ if is_of_user(request, index, block):
                new = write(block, index)
            case _:
                new = _written_or_named(block, index, write, notes)
        if new is not block:
            changed[id(block)] = new
    return _with_blocks(request, changed) if changed else request


def _written_or_named(block: ContentBlock, index: int, write: WriteBlock, notes: list[str]) -> ContentBlock:
    """What *write* makes of *block*. If it refuses it, a text that names it."""
    if isinstance(block, TextContent):  # most blocks
        return block
    try:
        return write(block, index)
    except InputRefused as exc:
        where = place_of(index)
        note = f"[{_described(block)}: {str(exc).removeprefix(f'{where}: ')}]"
    notes.append(f"{where}: {note}")
    return TextContent(text=note)


def _described(file: ContentBlock) -> str:
    """The type and the size of a file, and its URI if it has one."""
    found = file_in(file)
    assert found is not None, "nothing else is refused"
    data, kind, uri = found
    return ", ".join(filter(None, [excerpt(kind) or "a file", f"{decoded_size(data)} bytes", excerpt(uri)]))


def file_in(block: ContentBlock) -> tuple[str, str, str] | None:
    """The base64 of a file, its type and its URI, both "" if unknown; None if *block* is none."""
    match block:
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return data, kind, ""
        case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=label, uri=uri)):
            return data, label or "", uri
    return None


def is_of_user(request: SamplingRequest, index: int, block: SamplingMessageContentBlock) -> bool:
    """Whether the host's own user sent *block*, of the message with this *index*: the user can send something else."""
    return (
        request.session is None and request.messages[index].role == "user" and not isinstance(block, ToolResultContent)
    )


def _with_blocks(request: SamplingRequest, changed: Mapping[int, Block]) -> SamplingRequest:
    """*request* with other blocks, by the `id` of those that they replace."""
    messages = [
        message.model_copy(update={"content": [changed.get(id(block), block) for block in message.content]})
        for message in request.messages
    ]
    return replace(request, params=request.params.model_copy(update={"messages": messages}))


class Told:
    """Warns of what a model gets only the name of: once, although a conversation repeats it in each request."""

    def __init__(self) -> None:
        self._logged = Logged(MAX_TOLD)

    def warn(self, request: SamplingRequest, model: str, notes: Sequence[str]) -> None:
        """One line at most, for what is new among *notes*."""
        new = self._logged.new((request.session, note) for note in notes)
        if not new:
            return
        more = f" (and {len(new) - 1} more)" if new[1:] else ""
        text = "%s: %s gets a text in the place of what it cannot take: %s%s"
        logger.warning(text, log_subject(request.server), model, new[0][1], more)


def _check_json(value: object, where: str) -> None:
    if problem := _json_problem(value):
        raise refused(where, problem)


def _json_problem(value: object) -> str | None:
    try:
        check_written(value)
    except ValueError:
        deep = f"no JSON of more than {MAX_DEPTH} levels"
        return deep if _is_deep(value) else "no numbers and no texts that JSON cannot have"
    return None


def _is_deep(value: object) -> bool:
    """Whether objects and lists are nested too deep to be written."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for one in level for child in _inside(one)]
    return bool(level)


def _inside(value: object) -> Iterable[object]:
    match value:
        case dict():
            return value.values()
        case list() | tuple():
            return value
    return ()


def _with_plain_data(block: ContentBlock, index: int) -> ContentBlock:
    """*block* with the base64 that each provider takes, and with the type that its first bytes tell, if it is a file."""
    where = place_of(index)
    match block:
        case ImageContent(data=data, mime_type=label) | AudioContent(data=data, mime_type=label):
            plain, kind = _plain(data, label, block.type, where)
            if plain is not data or kind is not label:
                return block.model_copy(update={"data": plain, "mime_type": kind})
        case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=label) as resource):
            if not data and TEXT_FILES.fullmatch(media_type(label)):
                return block  # an empty text
            plain, kind = _plain(data, label, block.type, where)
            if plain is not data or kind is not label:
                update = {"blob": plain, "mime_type": kind}
                return block.model_copy(update={"resource": resource.model_copy(update=update)})
    return block


def _plain(data: str, label: str | None, what: str, where: str) -> tuple[str, str | None]:
    """*data* as plain base64, and its type: *label*, unless the first bytes tell another."""
    if not data:
        raise refused(where, f"no empty {what}")
    try:
        plain = plain_base64(_without_url(data, label))
    except ValueError:
        raise refused(where, f"no {what} that is not base64") from None
    labelled = media_type(label)
    if TEXT_FILES.fullmatch(labelled):
        return plain, label
    kind = type_by_bytes(labelled, plain)
    if kind is None:
        raise refused(where, f"no {labelled} that does not begin like one")
    return plain, label if kind == labelled else kind


def _without_url(data: str, label: str | None) -> str:
    """*data* without the beginning of a ``data:`` URL of its own type, which some servers write before it."""
    if not data.startswith("data:"):
        return data
    head, _, rest = data.partition(",")
    return rest if head.lower() == f"data:{media_type(label)};base64" else data


def plain_base64(data: str) -> str:
    """*data* in the alphabet of RFC 4648, section 4, and without the line breaks that MIME has.

    Files are long: *data* itself is returned if it is so already, which takes a millisecond for a mebibyte.

    Raises:
        ValueError: It is not base64.
    """
    if _is_base64(data):
        return data
    plain = data.translate(PLAIN)  # without padding it stays: a file that was cut has none, either
    if not _is_base64(plain):
        raise ValueError("not base64")
    return plain


def _is_base64(data: str) -> bool:
    return len(data) % 4 == 0 and BASE64.fullmatch(data) is not None


def check_written(value: object) -> bytes:
    """*value* as JSON, if it can be written: 1e999 is infinite once it is read.

    Raises:
        ValueError: It cannot.
    """
    written = to_json(value)
    if b"NaN" in written or b"Infinity" in written:
        check_numbers(written)
    return written


# For the modules of providers


def merged(fields: Mapping[str, object], options: Mapping[str, object]) -> JSONObject:
    """*fields* with the *options* of the host, which win; a None leaves the field out."""
    return {name: value for name, value in {**fields, **options}.items() if value is not None}


def place_of(index: int) -> str:
    """How an error names the message with this *index*."""
    return f"messages[{index}]"


def refused(where: str, what: str) -> InputRefused:
    """The error for a request with something that the provider cannot take: ``messages[2]: this model takes no audio``."""
    return InputRefused(INVALID_PARAMS, f"{where}: this model takes {what}")


def nothing_said() -> InputRefused:
    """The error for a conversation of empty texts. Most APIs refuse one, and a message that says nothing is left out."""
    return refused("messages", "no empty text, and there is nothing else")


def says_something(text: str) -> bool:
    """Whether a *text* may be sent: most APIs refuse an empty one, and some refuse one of white space."""
    return bool(text) and not text.isspace()


def no_file(kind: str, where: str) -> InputRefused:
    """The error for a file of the type *kind*, which may be empty."""
    return refused(where, f"no {excerpt(kind)}" if kind else "no files of an unknown type")


def not_of_assistant(kind: str, where: str) -> InputRefused:
    """The error for a block of the type *kind* in an assistant's message, which cannot have it."""
    return refused(where, f"no {kind} in an assistant's message")


def other_id(id: str) -> str:
    """The id of a tool call for a provider that does not take *id*: the same each time."""
    return f"call_{sha256(id.encode(errors='surrogatepass')).hexdigest()[:32]}"


def input_schema(tool: Tool, write: WriteSchema) -> JSONObject:
    """The schema of a tool's arguments, as *write* of `schemas` makes it.

    Raises:
        InputRefused: That cannot be made. The text names the tool.
    """
    try:
        return write(tool.input_schema)
    except ValueError as exc:
        problem = str(exc)
    except RecursionError:
        problem = "it is nested too deep"
    raise refused(f"the tool {quoted(tool.name)}", f"no such schema: {problem}")


def link_text(link: ResourceLink) -> str:
    """A link to a resource, for a model: the JSON of what describes it, without ``_meta``, annotations and icons."""
    return to_json(link_fields(link)).decode()


def media_type(written: str | None) -> str:
    """The type of a file without its parameters, in the usual spelling: "image/jpeg" for "IMAGE/JPG; q=1"; "" if unknown."""
    kind = (written or "").partition(";")[0].strip().lower()
    return SPELLINGS.get(kind, kind)


def file_text(file: BlobResourceContents, where: str) -> str | None:
    """What a file of text says. None if it is another file.

    Raises:
        InputRefused: It is not UTF-8.
    """
    kind = media_type(file.mime_type)
    if TEXT_FILES.fullmatch(kind) is None:
        return None
    try:
        return b64decode(file.blob, validate=True).decode()
    except ValueError:
        raise refused(where, f"no {excerpt(kind)} that is not UTF-8") from None


def files_elsewhere(number: int, place: str) -> str:
    """What stands in a tool's result for the files that are in another *place*, under `files_of`."""
    return f"[{number} {'file' if number == 1 else 'files'}: {place}]"


def files_of(id: str) -> str:
    """What stands before the files of the tool call with this *id*: several calls may have some."""
    return f"From the result of the tool call {id}:"


def result_content(result: ToolResultContent) -> list[ContentBlock]:
    """The content of a tool's result, and its structured content as JSON, unless the texts say the same already."""
    structured = result.structured_content
    if structured is None:
        return result.content
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    if texts_repeat(texts, structured):
        return result.content
    return [*result.content, TextContent(text=to_json(structured).decode())]
