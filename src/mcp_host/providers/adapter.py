"""What all adapters share: from a sampling request to a provider's API and back.

=================  ============================================================================
step               who
=================  ============================================================================
`write_request`    the provider's module, pure: the keyword arguments of the SDK's call
`with_options`     the host's options, merged into them
`create`           the caller's SDK client
`stream`           the same, as events; each is folded into the reply by the pure `read_event`
`read_reply`       the provider's module, pure: what the reply says, as `Reply`
the answer         here, for all providers: names, ids, arguments, reasoning, usage, failures
=================  ============================================================================
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypedDict, TypeGuard, get_args

from anyio import Event
from anyio.lowlevel import checkpoint
from pydantic_core import from_json, to_json

from mcp_host.concurrency import HandlerTasks, first
from mcp_host.errors import InputRefused, McpError, ProviderError, SamplingError, excerpt, quoted
from mcp_host.handlers import check_plain
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.providers.failures import provider_error, reading
from mcp_host.providers.names import NameRule, ToolNames
from mcp_host.providers.reasoning import AlteredHistory, ReasoningStore
from mcp_host.providers.texts import ReadablePieces, paired, readable
from mcp_host.sampling.loop.results import texts_repeat
from mcp_host.sampling.request import ModelAnswer, SamplingRequest, Usage
from mcp_host.sampling.stop_reasons import CUT_OFF
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    CreateMessageResult,
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
from mcp_host.types.sampling import TOOL_USE, SamplingMessageContentBlock

# fmt: off
__all__ = [  # ModelAnswer and Usage are for adapters, too
    "Arguments", "Call", "Delta", "Metadata", "ModelAnswer", "OnDelta", "Prompt", "ProviderModel", "Reply", "Usage",
    "answer_of", "as_events", "as_json", "file_text", "input_schema", "link_text", "media_type", "object_in", "read_arguments", "refused",
    "result_content", "text_arguments", "token_counts", "total",
]
# fmt: on

MOST_BYTES = 64 * 1024 * 1024  # of all events of one answer as JSON: 128,000 tokens of a few hundred bytes each
MOST_TEMPERATURE = 1000  # more than any model takes: 10**4000 is a number of JSON, and none of an SDK
EVENTS_AT_ONCE = 32  # then other tasks run

logger = logging.getLogger(__name__)

BASE64 = re.compile("[A-Za-z0-9+/]*+={0,2}")
MOST_LEVELS = 254  # of nested objects and lists: `to_json` writes no more

TEXT_FILES = re.compile(r"text/.+|application/json")

Metadata: TypeAlias = Literal["write", "ignore"]
"""What happens to the metadata of a request: it is written as far as the provider's API takes it, and anything else is
refused; or it is ignored."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the provider wrote it. *arguments* are an object, or the text of one; None if there are none. *id* is
    None if the API has none.
    """

    id: str | None
    name: str
    arguments: object


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider's reply says.

    *stop_reason* is in the spelling of MCP: endTurn, stopSequence, maxTokens, toolUse; refusal if the model refused,
    content_filter if the provider withheld the answer.

    *turn* is the assistant's turn in the provider's own JSON, if it has something that must be sent back with the
    results of its calls and that MCP has no place for: thinking, signatures, reasoning items. None if it has not.
    """

    content: Sequence[TextContent | ImageContent | AudioContent | Call]
    model: str
    stop_reason: str
    turn: object = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request for a model: what `write_request` writes, and what `read_reply` needs to know of it.

    *turns* are assistant's turns of the provider (`Reply.turn`), by the index of their message in the request. They
    replace what the message says, but for the ids of its calls: a provider may repeat those that are in the turn.
    *lost* are the messages whose turn was kept once and cannot be restored. *names* maps tool names both ways, and has
    those of the conversation, too. *options* are the host's fields of the provider's request, for what depends on them;
    they are merged afterwards, by `ProviderModel.with_options`.
    """

    request: SamplingRequest
    model: str
    names: ToolNames
    options: Mapping[str, object] = field(default_factory=dict)
    turns: Mapping[int, object] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer that is being written, for *on_delta*. *request* is the request that it answers."""

    text: str
    request: SamplingRequest


OnDelta: TypeAlias = Callable[[Delta], object]
"""Gets the text of an answer as it comes. A plain function, called in the event loop."""


class Arguments(TypedDict, total=False):
    """The keyword arguments of `ProviderModel`, for adapters that have more."""

    options: Mapping[str, object] | None
    stream: bool | None
    on_delta: OnDelta | None
    progress: bool
    reasoning: ReasoningStore | None
    altered_history: AlteredHistory
    metadata: Metadata


class ProviderModel(ABC):
    """A sampling handler that asks a model of one provider, through the caller's own SDK client.

    *client* is the SDK's async client. *model* is the name of the model. *options* are fields of the provider's
    request, which win over those that are written here; a None leaves the field out.

    *stream* asks for a stream of events. The default does so where *on_delta* or *progress* need it, or where the SDK
    refuses to ask otherwise. *on_delta* is a plain function, called in the event loop with each `Delta` of text.

    With *progress* the server gets the text as progress of its request, if it asks for progress: your consent that it
    sees an answer that is not finished, and that nothing has checked.

    A stream of more than 64 MiB is an error. An answer that is asked for without one is bounded by nothing but
    `SamplingLimits.seconds`: the SDK reads it whole. Set *stream* for a provider that you do not trust.

    *reasoning* keeps what the model thought before its calls, see `ReasoningStore`; the default is a store for
    this object alone. *altered_history* says what happens if that cannot be restored, because it is
    forgotten, or because the server changed the conversation: "continue" asks the model without it, as the provider
    allows; "refuse" refuses the request with -32602. The default goes on: thinking makes answers better, and a server
    may shorten its conversation.

    *metadata* says what happens to the metadata of requests, which the server wrote: "write" writes what the provider's
    API takes, and refuses a request with anything else. "ignore" leaves it out.

    Raises:
        TypeError: *on_delta* is no plain function of one argument.
        ValueError: An argument is something else.
    """

    provider: ClassVar[str]
    """The provider's name, in messages."""

    name_rule: ClassVar[NameRule]
    """The tool names that the provider allows."""

    cuts_at_stops: ClassVar[bool] = False
    """Whether `read_reply` ends the text at a stop sequence. Then *on_delta* gets no more of it."""

    def __init__(
        self,
        client: Any,  # of any SDK: each adapter calls the methods that it needs
        model: str,
        *,
        options: Mapping[str, object] | None = None,
        stream: bool | None = None,
        on_delta: OnDelta | None = None,
        progress: bool = False,
        reasoning: ReasoningStore | None = None,
        altered_history: AlteredHistory = "continue",
        metadata: Metadata = "write",
    ) -> None:
        if altered_history not in get_args(AlteredHistory):
            raise ValueError(f'altered_history is "continue" or "refuse", not {altered_history!r}')
        if metadata not in get_args(Metadata):
            raise ValueError(f'metadata is "write" or "ignore", not {metadata!r}')
        if on_delta is not None:
            check_plain(on_delta, argument="on_delta", shape="(delta: Delta) -> None")
        if stream is False and (progress or on_delta is not None):
            raise ValueError("on_delta and progress need a stream: leave stream out")
        self._client = client
        self._model = model
        self._options = dict(options or {})
        self._stream = (progress or on_delta is not None) if stream is None else stream
        self._may_stream = stream is not False
        self._on_delta = on_delta
        self._progress = progress
        self._reasoning = ReasoningStore() if reasoning is None else reasoning
        self._altered_history = altered_history
        self._metadata = metadata

    @abstractmethod
    def write_request(self, prompt: Prompt) -> JSONObject:
        """The keyword arguments of the SDK's call.

        Raises:
            InputRefused: The provider cannot take something of it.
        """

    @staticmethod
    def with_options(body: JSONObject, prompt: Prompt) -> JSONObject:
        """*body* with the host's options, which win; a None leaves the field out."""
        if not prompt.options:
            return body
        return {name: value for name, value in {**body, **prompt.options}.items() if value is not None}

    @abstractmethod
    def read_reply(self, reply: JSONObject, prompt: Prompt) -> Reply:
        """What the reply says. It is the JSON of the API, whole or folded from a stream.

        Raises:
            Unfinished: It does not have the whole answer.
            LookupError, TypeError, ValueError, AttributeError: It is no reply of this API.
        """

    @staticmethod
    @abstractmethod
    def read_event(reply: JSONObject, event: JSONObject) -> str:
        """Add one event of a stream to *reply*, which is empty at first. Returns the text that the event adds to the answer."""

    def call_is_text(self, prompt: Prompt) -> bool:
        """Whether the text of the answer will be the JSON of a call, which *on_delta* must not get."""
        return False

    @staticmethod
    def must_stream(body: JSONObject) -> bool:
        """Whether the SDK refuses to ask without a stream."""
        return False

    @abstractmethod
    async def create(self, body: JSONObject) -> JSONObject:
        """Ask once."""

    @abstractmethod
    def stream(self, body: JSONObject) -> AbstractAsyncContextManager[AsyncIterator[JSONObject]]:
        """Ask for a stream of events. Leaving it closes the response."""

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        """Ask the model.

        Raises:
            InputRefused: The provider cannot take something of the request. The text names it.
            ProviderError: The provider or the connection to it failed.
            SamplingError: The answer cannot be used: it calls a tool with broken arguments.
        """
        prompt = self._prompt(request)
        body = self.with_options(self.write_request(prompt), prompt)
        try:
            native = await self._ask_and_show(body, request, is_shown=not self.call_is_text(prompt))
            with reading():
                return self._answer(self.read_reply(native, prompt), prompt)
        except McpError:
            raise
        except Exception as exc:
            error = provider_error(exc, self.provider, is_stream=self._streams(body))
        raise error  # outside of the handler: what is printed has neither the original nor its text

    async def __aenter__(self) -> Self:
        """The model itself. Leaving closes its client: ``async with model("openai:gpt-6") as m:``."""
        await self._closes.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._closes.__aexit__(*exc_info)

    @property
    def _closes(self) -> Any:
        """What closes the client: every SDK's async client is a context manager, Google's one level down."""
        return getattr(self._client, "aio", self._client)

    @property
    def _owner(self) -> tuple[str, str]:
        """What turns with reasoning belong to."""
        return (self.provider, self._model)

    def _prompt(self, request: SamplingRequest) -> Prompt:
        _check_request(request)
        if self._metadata == "ignore" and request.metadata is not None:
            request = replace(request, params=request.params.model_copy(update={"metadata": None}))
        names = ToolNames.of(request, self.name_rule)
        restored = self._reasoning.restore(request, belongs_to=self._owner, names=names, altered=self._altered_history)
        return Prompt(restored.request, self._model, names, self._options, restored.turns, restored.lost)

    def _answer(self, reply: Reply, prompt: Prompt) -> ModelAnswer:
        keep = None
        if reply.turn is not None:
            keep = partial(self._reasoning.keep, request=prompt.request, belongs_to=self._owner, names=prompt.names)
        return answer_of(reply, prompt, keep)

    async def _ask_and_show(self, body: JSONObject, request: SamplingRequest, *, is_shown: bool) -> JSONObject:
        if not (is_shown and self._progress) or request.reporter is None:
            return await self._ask_up_to_stop(body, request, _Shown(request, self._on_delta if is_shown else None))
        progress = _Progress(request)
        try:
            async with HandlerTasks.open() as tasks:
                tasks.start(progress.report)
                return await self._ask_up_to_stop(body, request, _Shown(request, self._on_delta, progress))
        except ExceptionGroup as group:
            raise first(group) from None

    async def _ask_up_to_stop(self, body: JSONObject, request: SamplingRequest, show: _Shown) -> JSONObject:
        stops = [stop for stop in request.stop_sequences or () if stop] if self.cuts_at_stops else []
        if stops:
            cut = _UpToStop(show, stops)
            reply = await self.ask(body, cut)
            cut.end()
        else:
            reply = await self.ask(body, show)
        show.end()
        return reply

    async def ask(self, body: JSONObject, show: Callable[[str], None]) -> JSONObject:
        """Ask once, with or without a stream. *show* gets each text that a stream adds to the answer."""
        if not self._streams(body):
            return await self.create(body)
        reply: JSONObject = {}
        heard = _Heard(self.provider)
        async with self.stream(body) as events:
            async for event in events:
                await heard.add(event)
                with reading():
                    text = self.read_event(reply, event)
                    if text:
                        show(text)
        return reply

    def _streams(self, body: JSONObject) -> bool:
        return self._stream or (self._may_stream and self.must_stream(body))


class _Shown:
    """Gives the text of an answer to *on_delta* and to the server as it comes."""

    def __init__(self, request: SamplingRequest, on_delta: OnDelta | None, progress: _Progress | None = None) -> None:
        self._request = request
        self._on_delta = on_delta
        self._progress = progress
        self._pieces = ReadablePieces()

    def __call__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError("the stream has something else in the place of a text")
        self._give(self._pieces.add(text))

    def end(self) -> None:
        """The text has ended: what waits for more of it is given."""
        self._give(self._pieces.end())

    def _give(self, text: str) -> None:
        if not text:
            return
        if self._on_delta is not None:
            try:
                self._on_delta(Delta(text, self._request))
            except Exception:
                logger.exception("on_delta failed; it is not called again for this answer")
                self._on_delta = None
        if self._progress is not None:
            self._progress.add(text)


class _Heard:
    """What has come of a stream. Its size is bounded, and other tasks run while a reader has many events at once."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._bytes = 0
        self._events = 0

    async def add(self, event: JSONObject) -> None:
        self._events += 1
        self._bytes += len(json.dumps(event))
        if self._bytes > MOST_BYTES:
            raise ProviderError(self._provider, f"the answer has more than {MOST_BYTES // 2**20} MiB")
        if self._events % EVENTS_AT_ONCE == 0:
            await checkpoint()


class _UpToStop:
    """Gives the text of an answer up to the first stop sequence. What may be the beginning of one waits."""

    def __init__(self, show: Callable[[str], None], stops: Sequence[str]) -> None:
        self._show = show
        self._stops = stops
        self._longest = max(map(len, stops))
        self._waiting = ""
        self._has_stopped = False

    def __call__(self, text: str) -> None:
        if not self._has_stopped:
            self._waiting += text
            self._give(len(self._waiting) - self._longest + 1)

    def end(self) -> None:
        if not self._has_stopped:
            self._give(len(self._waiting))

    def _give(self, decided: int) -> None:
        """Give the text before the first stop sequence, if that is among the first *decided* characters, or these."""
        found = [place for stop in self._stops if 0 <= (place := self._waiting.find(stop)) <= decided]
        self._has_stopped = bool(found)
        end = min(found, default=max(decided, 0))
        text, self._waiting = self._waiting[:end], self._waiting[end:]
        if text:
            self._show(text)


class _Progress:
    """Reports the text of an answer to the server as it comes. The stream never waits: texts that come meanwhile are one report."""

    def __init__(self, request: SamplingRequest) -> None:
        self._request = request
        self._parts: list[str] = []
        self._more = Event()

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._more.set()

    async def report(self) -> None:
        characters = 0
        try:
            while True:
                await self._more.wait()
                self._more = Event()
                text = "".join(self._parts)
                self._parts.clear()
                characters += len(text)
                await self._request.report_progress(characters, message=text)
        except Exception:
            logger.exception("progress of an answer cannot be reported")


KeepTurn: TypeAlias = Callable[[object, Sequence[SamplingMessageContentBlock]], list[SamplingMessageContentBlock]]
"""Keeps a turn with reasoning. Returns the content with the ids to send."""


def answer_of(reply: Reply, prompt: Prompt, keep: KeepTurn | None = None) -> ModelAnswer:
    """The answer in a provider's reply.

    Names are those of the request again. Calls of an answer that was cut off or refused are dropped. Ids are made
    fresh where they are missing, where the conversation has them already, and where *keep* keeps the turn. Halves of
    characters become U+FFFD: no session can send them.

    Raises:
        SamplingError: The arguments of a call are no JSON object, or missing.
        ValueError: An image or audio is not base64.
    """
    content: list[SamplingMessageContentBlock] = []
    ids: list[str] = []
    cut_off = reply.stop_reason in CUT_OFF
    for block in reply.content:
        if isinstance(block, TextContent):
            content.append(TextContent(text=readable(block.text)))
        elif not isinstance(block, Call):
            _check_base64(block.data)
            content.append(block)
        elif not cut_off:
            name, id = readable(prompt.names.back(block.name)), readable(block.id or "")
            arguments = block.arguments
            if arguments is None:
                arguments = _no_arguments(name, prompt.request)
            content.append(ToolUseContent(id=id, name=name, input=read_arguments(name, arguments)))
            ids.append(id)
    model, stop_reason = readable(reply.model), readable(reply.stop_reason)
    if not ids:
        return ModelAnswer(content=content, model=model, stop_reason=stop_reason, usage=reply.usage)
    if keep is not None and reply.turn is not None:
        content = keep(reply.turn, content)
    else:
        content = _with_unique_ids(content, prompt.request)
    return ModelAnswer(content=content, model=model, stop_reason=TOOL_USE, usage=reply.usage)


def _no_arguments(name: str, request: SamplingRequest) -> JSONObject:
    """The arguments of a call that was written without any: some APIs do so for a tool that needs none.

    Raises:
        SamplingError: The tool needs some.
    """
    if any(tool.name == name and tool.input_schema.get("required") for tool in request.tools):
        raise SamplingError(f"the model called {quoted(name)} without its arguments")
    return {}


def _with_unique_ids(
    content: Sequence[SamplingMessageContentBlock], request: SamplingRequest
) -> list[SamplingMessageContentBlock]:
    used = {use.id for message in request.messages for use in message.tool_uses} | {""}
    unique: list[SamplingMessageContentBlock] = []
    for block in content:
        if isinstance(block, ToolUseContent):
            if block.id in used:
                block = block.model_copy(update={"id": f"call_{secrets.token_hex(8)}"})
            used.add(block.id)
        unique.append(block)
    return unique


def read_arguments(name: str, arguments: object) -> JSONObject:
    """The arguments of a call of the tool *name*, whose text may be broken JSON.

    Raises:
        SamplingError: They are no JSON object.
    """
    try:
        if isinstance(arguments, str):
            arguments = from_json(paired(arguments))
        _check_written(arguments)  # a session writes it so
    except (TypeError, ValueError):  # TypeError: half of a character
        raise SamplingError(f"the model called {quoted(name)} with arguments that are not JSON") from None
    if not isinstance(arguments, dict):
        raise SamplingError(f"the model called {quoted(name)} with arguments that are no JSON object")
    return arguments


def _check_written(value: object) -> None:
    """Make sure that *value* can be written as JSON: 1e999 is infinite once it is read.

    Raises:
        ValueError: It cannot.
    """
    written = to_json(value)
    if b"Infinity" in written or b"NaN" in written:  # perhaps in a text
        from_json(written, allow_inf_nan=False)


def _check_request(request: SamplingRequest) -> None:
    """Refuse what JSON does not have, and files that are not base64. Each SDK and provider fails at them in its own way.

    Raises:
        InputRefused: There is one.
    """
    values: list[tuple[str, object]] = [("temperature", request.temperature), ("metadata", request.metadata)]
    values += [(f"the tool {quoted(tool.name)}", tool.input_schema) for tool in request.tools]
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        for block in message.content:
            match block:
                case ToolUseContent(input=value):
                    values.append((where, value))
                case ToolResultContent(structured_content=value, content=content):
                    values.append((where, value))
                    for inner in content:
                        _check_file(inner, where)
                case _:
                    _check_file(block, where)
    for where, value in values:
        try:
            _check_written(value)
        except ValueError:
            deep = f"no JSON of more than {MOST_LEVELS} levels"
            raise refused(where, deep if _is_deep(value) else "no numbers and no texts that JSON cannot have") from None
    if request.temperature is not None and abs(request.temperature) > MOST_TEMPERATURE:
        raise refused("temperature", f"{MOST_TEMPERATURE} at most")


def _is_deep(value: object) -> bool:
    """Whether objects and lists are nested too deep to be written."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [child for one in level for child in _inside(one)]
    return bool(level)


def _inside(value: object) -> Iterable[object]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
    return ()


def _check_file(block: ContentBlock | SamplingMessageContentBlock, where: str) -> None:
    match block:
        case ImageContent(data=data) | AudioContent(data=data) if not data:
            raise refused(where, f"no empty {block.type}")
        case ImageContent(data=data) | AudioContent(data=data):
            pass
        case EmbeddedResource(resource=BlobResourceContents(blob=data)):
            pass
        case _:
            return
    try:
        _check_base64(data)
    except ValueError:
        raise refused(where, f"no {block.type} that is not base64") from None


def _check_base64(data: str) -> None:
    """Make sure that *data* is base64. Nothing is copied: it takes a millisecond for a mebibyte.

    Raises:
        ValueError: It is not.
    """
    if len(data) % 4 or BASE64.fullmatch(data) is None:
        raise ValueError("not base64")


# For the modules of providers


def as_json(value: Any) -> JSONObject:
    """The JSON of an SDK's object, with fields that the SDK does not know, and without those that the API did not send."""
    if isinstance(value, dict):
        return value
    with reading():  # the text of a page, where a proxy answers
        dumped: JSONObject = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped


async def as_events(events: Any) -> AsyncIterator[JSONObject]:
    """The same of each event of an SDK's stream."""
    async for event in events:
        yield as_json(event)


def object_in(value: object) -> JSONObject:
    """*value*, if it is an object. Else an empty one, for what an answer can do without."""
    return value if isinstance(value, dict) else {}


def token_counts(**counts: object) -> Usage | None:
    """The counts that are whole numbers, from 0: others mean nothing, and are no reason to lose an answer. None if there are none."""
    return {name: count for name, count in counts.items() if _is_count(count)} or None


def total(first: object, *more: object) -> int | None:
    """*first* and those of *more* that are counts. None if *first* is none."""
    return sum([count for count in (first, *more) if _is_count(count)]) if _is_count(first) else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def text_arguments(text: object) -> object:
    """The arguments of a call of an API that has them as text. Some servers write none as an empty text."""
    return None if text == "" else text


def refused(where: str, what: str) -> InputRefused:
    """The error for a request with something that the provider cannot take: ``messages[2]: this model takes no audio``."""
    return InputRefused(INVALID_PARAMS, f"{where}: this model takes {what}")


def input_schema(tool: Tool, rewrite: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """The schema of a tool's arguments, as *rewrite* of `schemas` makes it.

    Raises:
        InputRefused: That cannot be made. The text names the tool.
    """
    try:
        return rewrite(tool.input_schema)
    except ValueError as exc:
        problem = str(exc)
    except RecursionError:
        problem = "it is nested too deep"
    raise refused(f"the tool {quoted(tool.name)}", f"no such schema: {problem}")


def link_text(link: ResourceLink) -> str:
    """A link to a resource, for a model: the JSON of what describes it, without ``_meta``, annotations and icons."""
    return to_json(link_fields(link)).decode()


def media_type(written: str | None) -> str:
    """The type of a file without its parameters, as it is registered: "image/jpeg" for "IMAGE/JPG; q=1"; "" if unknown."""
    kind = (written or "").partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


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


def result_content(result: ToolResultContent) -> list[ContentBlock]:
    """The content of a tool's result, and its structured content as JSON, unless the texts say the same already."""
    structured = result.structured_content
    if structured is None:
        return result.content
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    if texts_repeat(texts, structured):
        return result.content
    return [*result.content, TextContent(text=to_json(structured).decode())]
