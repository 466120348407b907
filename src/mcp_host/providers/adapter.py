"""What all adapters share: from a sampling request to a provider's API and back.

=================  =================================================================================
step               what it does
=================  =================================================================================
`write_request`    writes the keyword arguments of the SDK's call; a pure function of the provider's module
`with_options`     merges the host's options into them
`request_reply`    asks the caller's SDK client, and gets a whole reply
`request_events`   gets a stream of events instead, which the pure `read_event` folds into the same reply
`read_reply`       reads what the reply says, as `Reply`; a pure function of the provider's module
`answer_of`        is the same for all providers: names, ids, arguments, reasoning, usage
=================  =================================================================================
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypedDict, get_args

from mcp_host.errors import McpError
from mcp_host.handlers import check_plain
from mcp_host.providers.exchange import schemas
from mcp_host.providers.exchange.clients import Sdk
from mcp_host.providers.exchange.failures import (
    NOT_FOUND,
    READING,
    Empty,
    Interrupted,
    Unfinished,
    Unreadable,
    provider_error,
)
from mcp_host.providers.exchange.file_limits import NO_LIMITS, FileLimits, problems_of_many, size_problem
from mcp_host.providers.exchange.names import NO_TOOLS, NameRule
from mcp_host.providers.exchange.reasoning import AlteredHistory, Conversation, ReasoningStore
from mcp_host.providers.exchange.replies import Reply, answer_of
from mcp_host.providers.exchange.requests import (
    Offer,
    Prompt,
    Told,
    WriteSchema,
    blocks_but_texts,
    check_settings,
    checked,
    merged,
    not_of_assistant,
    place_of,
    refused,
    written_blocks,
)
from mcp_host.providers.exchange.streams import Heard, OnDelta, Show, show_nothing, showing
from mcp_host.providers.exchange.texts import Pieces, PiecesUpToStop, PiecesWithoutThinking
from mcp_host.sampling.repeated import reads_only
from mcp_host.sampling.request import ModelAnswer, SamplingRequest
from mcp_host.types import ContentBlock, CreateMessageResult, JSONObject

Metadata: TypeAlias = Literal["write", "ignore"]
"""What happens to the metadata of a request: it is written as far as the provider's API takes it, and anything else is
refused; or it is ignored."""


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

    *client* is the SDK's async client, or an object that wraps it. *model* is the name of the model. *options* are
    fields of the provider's request, which win over those that are written here; a None leaves the field out.

    *stream* asks for a stream of events. The default does so where *on_delta* or *progress* need it, or where the SDK
    refuses to ask otherwise. *on_delta* is a plain function, called in the event loop with each `Delta` of text.

    With *progress* the server gets the text as progress of its request, if it asks for progress: your consent that it
    sees an answer that is not finished, and that nothing has checked.

    A stream with more than 64 million characters is an error: those of its events as Python writes them, so that the
    names of fields count. The SDK reads each event whole, and an answer that is no stream: these are bounded by nothing
    but `SamplingLimits.seconds`. Set *stream* for a provider that you do not trust.

    *reasoning* keeps what the model thought before its calls, see `ReasoningStore`; the default is a store for
    this object alone. *altered_history* says what happens if that cannot be restored, because it is
    forgotten, or because the server changed the conversation: "continue" asks the model without it, as the provider
    allows; "refuse" refuses the request with -32602, also if the server has dropped the key from calls of the model.
    The default goes on: thinking makes answers better, and a server may shorten its conversation.

    *metadata* says what happens to the metadata of requests, which the server wrote: "write" writes what the provider's
    API takes, and refuses a request with anything else. "ignore" leaves it out.

    Raises:
        TypeError: *client* does not have the SDK's method, is a class, or is the SDK's blocking client; *model* is no text;
            *options* are no dict; or *on_delta* is no plain function of one argument.
        ValueError: An argument is something else.
    """

    provider: ClassVar[str]
    """The provider's name, in messages."""

    name_rule: ClassVar[NameRule]
    """The tool names that the provider allows."""

    assistant_has_files: ClassVar[bool] = False
    """Whether an assistant's message may have images and audio."""

    cuts_at_stops: ClassVar[bool] = False
    """Whether `read_reply` ends the text at a stop sequence. Then *on_delta* gets no more of it."""

    thinks_in_text: ClassVar[bool] = False
    """Whether `read_reply` leaves out the thinking that the text begins with. Then *on_delta* does not get it."""

    _starts_with_reasoning = False
    """Whether the text begins with thinking whose first mark is in the prompt."""

    _sdk: ClassVar[Sdk | None] = None
    """What the client has to be; None checks nothing."""

    _not_found: ClassVar[str] = NOT_FOUND
    """What to look at after a 404."""

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
        if self._sdk is not None:
            self._sdk.check(client)
        if not isinstance(model, str):
            raise TypeError(f"model has to be the model's name, a text, not {type(model).__name__}")
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options has to be a dict of fields of the request, not {type(options).__name__}")
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
        self._offer: Offer | None = None
        self._told = Told()

    @staticmethod
    def write_schema(schema: JSONObject) -> JSONObject:
        """What the provider gets of the schema of a tool's arguments.

        Raises:
            ValueError: It cannot be written. The tool is left out.
        """
        return schemas.function(schema)

    def schema_writer(self, request: SamplingRequest) -> WriteSchema:
        """What writes the schemas of the tools of *request*: `write_schema`, unless the request has them in another place."""
        return self.write_schema

    def prepare_tools(self, prompt: Prompt) -> None:  # noqa: B027 most adapters have nothing else to keep
        """Keep with the offer of *prompt*, whose messages do not matter, what of it takes long to write. Of large tools this
        is called first, in a thread: it has to be a pure function, but for that.
        """

    @abstractmethod
    def write_request(self, prompt: Prompt) -> JSONObject:
        """The keyword arguments of the SDK's call.

        This changes nothing of *prompt* in place: later requests may have the same tools.

        Raises:
            InputRefused: The provider cannot take something of it.
        """

    @abstractmethod
    def check_block(self, block: ContentBlock, where: str) -> None:
        """Check that a message of the user, or a tool's result in it, may have *block*: an image, audio, a resource or a link.

        *where* names the message, for the error. What is refused here and was not sent by the host's user, `write_request`
        gets as a text that names its type and size.

        Raises:
            InputRefused: The provider does not take a file of this type.
        """

    def file_limits(self) -> FileLimits:
        """How large a file may be. One that is larger is refused or named, as by `check_block`."""
        return NO_LIMITS

    def with_options(self, body: JSONObject, prompt: Prompt) -> JSONObject:
        """*body* with the host's options, which win; a None leaves the field out. It is called only if there are some."""
        return merged(body, prompt.options)

    @abstractmethod
    def read_reply(self, reply: JSONObject, prompt: Prompt) -> Reply:
        """What the reply says. It is the JSON of the API, whole or folded from a stream.

        Raises:
            Unfinished: It does not have the whole answer.
            LookupError, TypeError, ValueError, AttributeError: It is no reply of this API.
        """

    @abstractmethod
    def read_event(self, reply: JSONObject, event: JSONObject) -> str:
        """Add one event of a stream to *reply*, which is empty at first. Returns the text that the event adds to the answer:
        *on_delta* gets it at once. It may leave text to the whole answer, but what it returns has to be the beginning of that.
        """

    def call_is_text(self, prompt: Prompt) -> bool:
        """Whether the text of the answer will be the JSON of a call, which *on_delta* must not get."""
        return False

    def must_stream(self, body: JSONObject) -> bool:
        """Whether the SDK refuses to ask without a stream."""
        return False

    @abstractmethod
    async def request_reply(self, body: JSONObject) -> JSONObject:
        """Send *body* through the SDK's client. Returns the whole reply."""

    @abstractmethod
    def request_events(self, body: JSONObject) -> AbstractAsyncContextManager[AsyncIterator[JSONObject]]:
        """Send *body* through the SDK's client. Gives the events of a stream; leaving it closes the response."""

    @reads_only
    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        """Ask the model.

        Raises:
            InputRefused: The provider cannot take something of the request. The text names it.
            ProviderError: The provider or the connection to it failed.
            SamplingError: The answer cannot be used: it calls a tool with broken arguments.
        """
        prompt = await self._prompt(request)
        body = self.write_request(prompt)
        if prompt.options:
            body = self.with_options(body, prompt)
        is_stream = self._stream or (self._may_stream and self.must_stream(body))
        handled = sys.exception()  # by the caller, in whose ``except`` block this may be
        try:
            if is_stream:
                return await self._ask_and_show(body, prompt, request)
            return self._answer(await self.request_reply(body), prompt)
        except McpError:
            raise
        except Exception as exc:
            error = provider_error(exc, self.provider, is_stream=is_stream, not_found=self._not_found, handled=handled)
        raise error  # outside of the handler: what is printed has neither the original nor its text

    async def __aenter__(self) -> Self:
        """The model itself. Leaving closes its client: ``async with model("openai:gpt-6") as m:``."""
        await self._client.__aenter__()  # every SDK's async client is a context manager
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.__aexit__(*exc_info)

    @property
    def _owner(self) -> tuple[str, str]:
        """What turns with reasoning belong to."""
        return (self.provider, self._model)

    def _prepare(self, request: SamplingRequest, offer: Offer) -> None:
        asked = offer.without_left_out(request)
        self.prepare_tools(Prompt(asked, self._model, offer.names, self._options, offer=offer))

    async def _prompt(self, request: SamplingRequest) -> Prompt:
        params = request.params
        if params.metadata is not None or params.temperature is not None:
            check_settings(params)
        if self._metadata == "ignore" and request.metadata is not None:
            request = replace(request, params=request.params.model_copy(update={"metadata": None}))
        offer, names = None, NO_TOOLS
        if params.tools:
            write = self.schema_writer(request)
            offer = self._offer = await Offer.of(
                request, self.name_rule, write, self._offer, partial(self._prepare, request)
            )
            names, request = offer.names, offer.without_left_out(request)
        if not (blocks := blocks_but_texts(request)):  # nothing to check, to name or to restore
            return Prompt(request, self._model, names, self._options, {}, offer=offer)
        notes: list[str] = []
        request = checked(request, blocks, notes)
        names = names.and_called(request, self.name_rule)
        said = Conversation(request)  # before it has the provider's ids
        restored = self._reasoning.restore(
            request, conversation=said, belongs_to=self._owner, names=names, altered=self._altered_history
        )
        request = self._with_what_is_taken(restored.request, restored.turns, notes)
        if notes:
            self._told.warn(request, self._model, notes)
        return Prompt(request, self._model, names, self._options, restored.turns, restored.lost, offer, said)

    def _with_what_is_taken(
        self, request: SamplingRequest, turns: Mapping[int, object], notes: list[str]
    ) -> SamplingRequest:
        """*request* with a text in the place of what the provider does not take, as `written_blocks` has it. The messages of
        *turns* are not written: their turns are.
        """

        def write(block: ContentBlock, index: int) -> ContentBlock:
            if request.messages[index].role == "assistant" and not self.assistant_has_files:
                raise not_of_assistant(block.type, place_of(index))
            self.check_block(block, place_of(index))
            problem = size_problem(block, limits) or among_many.get(id(block))
            if problem is not None:
                raise refused(place_of(index), problem)
            return block

        blocks = [(index, block) for index, block in blocks_but_texts(request) if index not in turns]
        limits = self.file_limits()
        among_many = problems_of_many(request, blocks, limits)
        return written_blocks(request, blocks, write, notes)

    def _answer(self, native: JSONObject, prompt: Prompt) -> ModelAnswer:
        """The answer in a reply.

        Raises:
            SamplingError, ProviderError, Unfinished, Unreadable: It has none that can be used.
        """
        with READING:
            reply = self.read_reply(native, prompt)
            keep = None
            if reply.turn is not None:
                keep = partial(
                    self._reasoning.keep,
                    request=prompt.request,
                    conversation=prompt.conversation or Conversation(prompt.request),
                    belongs_to=self._owner,
                    names=prompt.names,
                )
            return answer_of(reply, prompt, keep)

    async def _ask_and_show(self, body: JSONObject, prompt: Prompt, request: SamplingRequest) -> ModelAnswer:
        filters: list[Pieces] = []
        if self.thinks_in_text:
            filters.append(PiecesWithoutThinking(has_begun=self._starts_with_reasoning))
        if self.cuts_at_stops:
            filters.append(PiecesUpToStop([stop for stop in request.stop_sequences or () if stop]))
        async with showing(request, self._on_delta, progress=self._progress, filters=filters) as shown:
            show = show_nothing if self.call_is_text(prompt) else shown.add
            answer = self._answer(await self.fold_events(body, show), prompt)
            shown.complete(answer)  # inside: an answer that fails waits for no progress
        return answer

    async def fold_events(self, body: JSONObject, show: Show) -> JSONObject:
        """The reply that a stream of events folds to. *show* gets each text that an event adds to the answer."""
        reply: JSONObject = {}
        heard = Heard(self.provider)
        try:
            async with self.request_events(body) as events:
                async for event in events:
                    await heard.add(event)
                    with READING:
                        text = self.read_event(reply, event)
                        if text:
                            show(text)
                if not reply:  # inside: `stream_of` looks at the response
                    raise Empty
                return reply
        except Exception as exc:
            if heard.has_begun and not isinstance(exc, McpError | Unfinished | Unreadable):
                raise Interrupted(exc) from exc
            raise
