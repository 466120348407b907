"""What all adapters share: from a sampling request to a provider's API and back.

=================  ============================================================================
step               who
=================  ============================================================================
`write_request`    the provider's module, pure: the keyword arguments of the SDK's call
`create`           the caller's SDK client
`stream`           the same, as events; each is folded into the reply by the pure `read_event`
`read_reply`       the provider's module, pure: what the reply says, as `Reply`
the answer         here, for all providers: names, ids, arguments, reasoning, usage, failures
=================  ============================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from pydantic import Field
from pydantic_core import from_json

from mcp_host.errors import SamplingError, quoted
from mcp_host.providers.names import NameRule, ToolNames
from mcp_host.sampling.request import SamplingRequest
from mcp_host.sampling.stop_reasons import CUT_OFF
from mcp_host.types import AudioContent, CreateMessageResult, ImageContent, JSONObject, TextContent, ToolUseContent
from mcp_host.types.sampling import TOOL_USE, SamplingMessageContentBlock

Usage: TypeAlias = Mapping[str, int]
"""Tokens: ``inputTokens``, ``outputTokens``, and where the provider tells them ``reasoningTokens`` (part of the output),
``cacheReadTokens`` and ``cacheWriteTokens`` (part of the input)."""


class ModelAnswer(CreateMessageResult):
    """An answer with what the host may know of it, and the server does not get."""

    usage: Usage | None = Field(default=None, exclude=True)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the provider wrote it. *arguments* are an object, or the text of one. *id* is None if the API has none."""

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
    replace what the message says. *names* maps tool names both ways, and has those of the conversation, too.
    *options* are the host's fields of the provider's request, for what depends on them; they are merged afterwards.
    """

    request: SamplingRequest
    model: str
    names: ToolNames
    options: Mapping[str, object] = field(default_factory=dict)
    turns: Mapping[int, object] = field(default_factory=dict)


class ProviderModel(ABC):
    """A sampling handler that asks a model of one provider, through the caller's own SDK client."""

    provider: ClassVar[str]
    """The provider's name, in messages."""

    name_rule: ClassVar[NameRule]
    """The tool names that the provider allows."""

    def __init__(
        self,
        client: object,
        model: str,
        *,
        options: Mapping[str, object] | None = None,
        stream: bool = False,
    ) -> None:
        self._client = client
        self._model = model
        self._options = dict(options or {})
        self._stream = stream

    @staticmethod
    @abstractmethod
    def write_request(prompt: Prompt) -> JSONObject:
        """The keyword arguments of the SDK's call.

        Raises:
            InputRefused: The provider cannot take something of it.
        """

    @staticmethod
    @abstractmethod
    def read_reply(reply: JSONObject, prompt: Prompt) -> Reply:
        """What the reply says. It is the JSON of the API, whole or folded from a stream."""

    @staticmethod
    @abstractmethod
    def read_event(reply: JSONObject, event: JSONObject) -> str:
        """Add one event of a stream to *reply*, which is empty at first. Returns the text that the event adds to the answer."""

    @abstractmethod
    async def create(self, body: JSONObject) -> JSONObject:
        """Ask once."""

    @abstractmethod
    def stream(self, body: JSONObject) -> AbstractAsyncContextManager[AsyncIterator[JSONObject]]:
        """Ask for a stream of events. Leaving it closes the response."""

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        """Ask the model."""
        names = ToolNames.of(request, self.name_rule)
        prompt = Prompt(request, self._model, names, self._options)
        body = self.write_request(prompt) | self._options
        if self._stream:
            reply: JSONObject = {}
            async with self.stream(body) as events:
                async for event in events:
                    self.read_event(reply, event)
        else:
            reply = await self.create(body)
        return answer_of(self.read_reply(reply, prompt), prompt)


def answer_of(reply: Reply, prompt: Prompt) -> ModelAnswer:
    """The answer in a provider's reply.

    Raises:
        SamplingError: The arguments of a call are no JSON object.
    """
    content: list[SamplingMessageContentBlock] = []
    cut_off = reply.stop_reason in CUT_OFF
    for block in reply.content:
        if not isinstance(block, Call):
            content.append(block)
        elif not cut_off:
            name = prompt.names.back(block.name)
            content.append(ToolUseContent(id=block.id or "", name=name, input=read_arguments(name, block.arguments)))
    has_calls = any(isinstance(block, ToolUseContent) for block in content)
    stop_reason = TOOL_USE if has_calls else reply.stop_reason
    return ModelAnswer(content=content, model=reply.model, stop_reason=stop_reason, usage=reply.usage)


def read_arguments(name: str, arguments: object) -> JSONObject:
    """The arguments of a call of the tool *name*, whose text may be broken JSON.

    Raises:
        SamplingError: They are no JSON object.
    """
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments or "{}")
        except ValueError:
            raise SamplingError(f"the model called {quoted(name)} with arguments that are not JSON") from None
    if not isinstance(arguments, dict):
        raise SamplingError(f"the model called {quoted(name)} with arguments that are no JSON object")
    return arguments
