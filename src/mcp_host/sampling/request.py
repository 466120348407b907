"""The request that a sampling handler gets, and the answers it can build from it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from pydantic import Field

from mcp_host.errors import InputRefused, excerpt
from mcp_host.protocol.jsonrpc import USER_REJECTED
from mcp_host.server_requests import OuterCall, ProgressReporter, ReportsProgress
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    Implementation,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolUseContent,
)
from mcp_host.types.sampling import END_TURN, TOOL_USE, AssistantContentBlock

CallModel: TypeAlias = Callable[[], Awaitable[CreateMessageResult | str]]
AroundModel: TypeAlias = "Callable[[SamplingRequest, CallModel], Awaitable[CreateMessageResult | str]]"
"""Runs around a handler, and returns its answer or another."""

SamplingMode: TypeAlias = Literal["with_tools", "basic", "none"]
"""The sampling requests that a session accepts: with tools, or plain ones only.

``none`` is a value of `Client.sampling_mode` only: a client without sampling has no sampling session."""

REJECTION = "User rejected sampling request"

UNKNOWN_MODEL = "unknown"  # the schema requires a model's name, and a handler may have none


def log_subject(server: str) -> str:
    """What log lines about sampling for *server* begin with."""
    return f"sampling for {excerpt(server)}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the model, for `SamplingRequest.calls`."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest(ReportsProgress):
    """A server's request for a completion, checked and within the limits.

    *params* are its parameters, *server* is the name that you gave the server, or else that of its transport, and
    *server_info* what the server calls itself, which proves nothing. *outer* is the call
    that it belongs to, if known. In *mode* ``basic`` there are no tools, tool calls
    or tool results. *session* is the same object for all requests of one connection, and
    for no other: two may have one name. None in `run_tool_loop`. *unknown_caller* is true
    if *outer* is None although calls of your client have a *caller*: the request may be for any of them.
    *server_messages* is how many of the messages the server knows, if turns follow that it does not: those of own tools,
    and an answer that is asked for again.

    Trust nothing in *params*, which the server wrote. That includes the system prompt:
    "The client MAY modify or omit this prompt".
    """

    params: CreateMessageRequestParams
    server: str
    outer: OuterCall | None = None
    mode: SamplingMode = "with_tools"
    reporter: ProgressReporter | None = field(default=None, repr=False, compare=False)
    session: object = field(default=None, repr=False, compare=False)
    unknown_caller: bool = field(default=False, repr=False, compare=False)
    server_info: Implementation | None = field(default=None, repr=False, compare=False)
    server_messages: int | None = field(default=None, repr=False, compare=False)

    @property
    def messages(self) -> list[SamplingMessage]:
        """The whole conversation, oldest first. The last message is what to answer."""
        return self.params.messages

    @property
    def tools(self) -> list[Tool]:
        """The tools offered to the model. The server runs them, after the answer. Empty for a plain request.

        With `Client(run_own_tools=True)` the client runs those that the server lists, and asks the model again.
        """
        return self.params.tools or []

    @property
    def tool_choice(self) -> ToolChoice | None:
        """Whether the model may, must or must not use tools. None means that it may."""
        return self.params.tool_choice

    @property
    def system_prompt(self) -> str | None:
        """The server's suggestion of a system prompt: untrusted text."""
        return self.params.system_prompt

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in the answer, at most `SamplingLimits.max_tokens`."""
        return self.params.max_tokens

    @property
    def temperature(self) -> float | None:
        """The temperature that the server suggests. The specification names no scale."""
        return self.params.temperature

    @property
    def stop_sequences(self) -> list[str] | None:
        """Texts before which the model should stop, with the stop reason ``stopSequence``."""
        return self.params.stop_sequences

    @property
    def model_preferences(self) -> ModelPreferences | None:
        """The model that the server would like. The host decides."""
        return self.params.model_preferences

    @property
    def include_context(self) -> Literal["none", "thisServer", "allServers"] | None:
        """The context that the server would like added. A handler need not: "The client MAY ignore this request".

        Since revision 2025-11-25, it is set only if the host declared it (`Sampling`, *context*).
        """
        return self.params.include_context

    @property
    def metadata(self) -> dict[str, object] | None:
        """Parameters for the model's provider, in its own format."""
        return self.params.metadata

    @property
    def may_use_tools(self) -> bool:
        """Whether an answer may call tools: tools are offered, and the tool choice is not ``none``."""
        choice = self.params.tool_choice
        return bool(self.params.tools) and (choice is None or choice.mode != "none")

    @property
    def must_use_tools(self) -> bool:
        """Whether "Model MUST use at least one tool before completing"."""
        choice = self.params.tool_choice
        return choice is not None and choice.mode == "required"

    @property
    def required_tool(self) -> str | None:
        """The only tool that an answer may call, and must, if the server named one.

        No revision defines this. Servers of early SDKs send ``{"type": "tool", "name": …}``.
        """
        return None if self.tool_choice is None else self.tool_choice.tool

    def reply(self, text: str, *, model: str = UNKNOWN_MODEL, stop_reason: str = END_TURN) -> CreateMessageResult:
        """Answer with text. *model* is the name of the model that wrote it."""
        return CreateMessageResult(content=[TextContent(text=text)], model=model, stop_reason=stop_reason)

    def call(
        self, tool: str, arguments: Mapping[str, object] | None = None, *, model: str = UNKNOWN_MODEL
    ) -> CreateMessageResult:
        """Ask the server to run one of its tools. *model* is the name of the model that calls it.

        Raises:
            ValueError: The server did not offer that tool.
        """
        return self.calls(ToolCall(tool, arguments or {}), model=model)

    def calls(self, *calls: ToolCall, model: str = UNKNOWN_MODEL) -> CreateMessageResult:
        """Ask the server to run several of its tools, each under a fresh id.

        Raises:
            ValueError: The server did not offer one of them, or *calls* is empty.
        """
        if not calls:
            raise ValueError("no tool calls given")
        offered = [tool.name for tool in self.tools]
        content: list[ToolUseContent] = []
        for call in calls:
            if call.name not in offered:
                raise ValueError(f"no tool {call.name!r} among those on offer: {', '.join(offered) or 'none'}")
            arguments = dict(call.arguments)
            content.append(ToolUseContent(id=f"call_{secrets.token_hex(8)}", name=call.name, input=arguments))
        return CreateMessageResult(content=content, model=model, stop_reason=TOOL_USE)

    def refuse(self, reason: str = REJECTION) -> NoReturn:
        """Refuse on the user's behalf. The server gets *reason*, with the code -1.

        Raises:
            InputRefused: Always.
        """
        raise InputRefused(USER_REJECTED, reason)


Handler: TypeAlias = Callable[[SamplingRequest], Awaitable[CreateMessageResult | str] | CreateMessageResult | str]
"""Calls a model, and returns its answer or just its text. A plain function runs in a thread.

The server gets the code and message of an `InputRefused` that it raises. Other exceptions are only logged."""

Usage: TypeAlias = Mapping[str, int]
"""Tokens: ``inputTokens``, ``outputTokens``, and where the provider tells them ``reasoningTokens`` (part of the output),
``cacheReadTokens`` and ``cacheWriteTokens`` (part of the input)."""


class ModelAnswer(CreateMessageResult):
    """An answer with what the host may know of it, and the server does not get: the tokens that it cost."""

    usage: Usage | None = Field(default=None, exclude=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            content: AssistantContentBlock | Sequence[AssistantContentBlock],
            model: str,
            stop_reason: str | None = None,
            role: Literal["assistant"] = "assistant",
            meta: dict[str, object] | None = None,
            usage: Usage | None = None,
        ) -> None: ...


AsyncHandler: TypeAlias = Callable[[SamplingRequest], Awaitable[CreateMessageResult | str]]
