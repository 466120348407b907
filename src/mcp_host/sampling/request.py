"""What a sampling handler is given, and the answers it can build from it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias

from mcp_host.errors import InputRefused
from mcp_host.protocol.jsonrpc import USER_REJECTED, Id
from mcp_host.sampling.progress import ProgressReporter, ReportsProgress
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolUseContent,
)
from mcp_host.types.sampling import END_TURN, TOOL_USE

SamplingMode: TypeAlias = Literal["with_tools", "basic", "none"]
"""Which kind of sampling request a session takes: with tools, plain ones only, none."""

REJECTION = "User rejected sampling request"

UNKNOWN_MODEL = "unknown"  # the schema requires a model's name, and a handler may have none to tell


class Lifetime:
    """Nothing but an object that can be referred to weakly."""


@dataclass(frozen=True, slots=True)
class OuterCall:
    """The call of ours that a server was working on when it asked.

    *name* is the tool, prompt or URI of the call, where it has one. *request_id* is the
    JSON-RPC id of the request that the server asks for. A call may need several requests
    (2026-07-28: one for each round of questions); *call_id* is the same for all of them, and
    for no other call of this process. *inferred* means that the server did not name the call:
    it came over a pipe, where this was the only call that the server could be working on. One that was
    cancelled or timed out counts until it is answered, for `Limits.idle_timeout` at most.

    *caller* is what the application passed as ``call_tool(..., caller=...)``. It is never
    sent or logged, no repr shows it, and two of these are equal whatever it is.

    *lifetime* is an object that lives as long as the call. What is decided for the call as a
    whole is kept by a weak reference to it. `dataclasses.replace` hands it on.
    """

    method: str
    name: str | None
    request_id: Id
    call_id: int | str = field(kw_only=True)
    inferred: bool = field(default=False, kw_only=True)
    caller: object = field(default=None, kw_only=True, repr=False, compare=False)
    lifetime: object = field(default_factory=Lifetime, kw_only=True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool that the model wants called, for `SamplingRequest.calls`."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest(ReportsProgress):
    """One request of a server for a completion, checked and within the limits.

    *params* is the whole of it, *server* the name of who asks, *outer* the call
    it belongs to where that is known. In *mode* ``basic`` it holds no tools and
    no trace of them.

    Everything in *params* is a stranger's text, the system prompt included:
    "The client MAY modify or omit this prompt".
    """

    params: CreateMessageRequestParams
    server: str
    outer: OuterCall | None = None
    mode: SamplingMode = "with_tools"
    reporter: ProgressReporter | None = field(default=None, repr=False, compare=False)

    @property
    def messages(self) -> list[SamplingMessage]:
        """The whole conversation, oldest first. The last message is what to answer."""
        return self.params.messages

    @property
    def tools(self) -> list[Tool]:
        """The tools on offer; the server runs them, after the answer. Empty for a plain request."""
        return self.params.tools or []

    @property
    def tool_choice(self) -> ToolChoice | None:
        """Whether the model may (also where this is None), must or must not use tools."""
        return self.params.tool_choice

    @property
    def system_prompt(self) -> str | None:
        """How the server would like the model to behave: a stranger's text."""
        return self.params.system_prompt

    @property
    def max_tokens(self) -> int:
        """How many tokens the answer may have, already within `SamplingLimits.max_tokens`."""
        return self.params.max_tokens

    @property
    def temperature(self) -> float | None:
        """As the server would like it; the specification names no scale."""
        return self.params.temperature

    @property
    def stop_sequences(self) -> list[str] | None:
        """Texts before which the model should stop, with the stop reason ``stopSequence``."""
        return self.params.stop_sequences

    @property
    def model_preferences(self) -> ModelPreferences | None:
        """Which model the server would like. A wish: the choice is the host's."""
        return self.params.model_preferences

    @property
    def include_context(self) -> Literal["none", "thisServer", "allServers"] | None:
        """What the server would like to be added. A handler need not: "The client MAY ignore this request".

        From revision 2025-11-25 on it is there only if the host declared it (`Sampling`, *context*).
        """
        return self.params.include_context

    @property
    def metadata(self) -> dict[str, object] | None:
        """For the provider of the model, in that provider's own words."""
        return self.params.metadata

    @property
    def may_use_tools(self) -> bool:
        """Whether an answer may call tools: some are on offer, and the server did not choose ``none``."""
        return bool(self.tools) and not (self.tool_choice is not None and self.tool_choice.mode == "none")

    @property
    def must_use_tools(self) -> bool:
        """Whether "Model MUST use at least one tool before completing"."""
        return self.tool_choice is not None and self.tool_choice.mode == "required"

    @property
    def required_tool(self) -> str | None:
        """The one tool that an answer must call, and call nothing else, where the server named it.

        No revision has words for it. Servers of early SDKs ask it by ``{"type": "tool", "name": …}``.
        """
        return None if self.tool_choice is None else self.tool_choice.tool

    def reply(self, text: str, *, model: str = UNKNOWN_MODEL, stop_reason: str = END_TURN) -> CreateMessageResult:
        """Answer with text. *model* is the name of the model that wrote it."""
        return CreateMessageResult(content=TextContent(text=text), model=model, stop_reason=stop_reason)

    def call(
        self, tool: str, arguments: Mapping[str, object] | None = None, *, model: str = UNKNOWN_MODEL
    ) -> CreateMessageResult:
        """Ask the server to run one of its tools. *model* is the name of the model that wants it.

        Raises:
            ValueError: The server did not offer that tool.
        """
        return self.calls(ToolCall(tool, arguments or {}), model=model)

    def calls(self, *calls: ToolCall, model: str = UNKNOWN_MODEL) -> CreateMessageResult:
        """Ask the server to run several of its tools, each under a fresh id.

        Raises:
            ValueError: The server did not offer one of them, or there is none.
        """
        if not calls:
            raise ValueError("no tool calls given")
        content = [self._tool_use(call) for call in calls]
        return CreateMessageResult(content=content, model=model, stop_reason=TOOL_USE)

    def refuse(self, reason: str = REJECTION) -> NoReturn:
        """Refuse on the user's behalf. The server is told *reason*, with the code -1.

        Raises:
            InputRefused: Always.
        """
        raise InputRefused(USER_REJECTED, reason)

    def _tool_use(self, call: ToolCall) -> ToolUseContent:
        offered = [tool.name for tool in self.tools]
        if call.name not in offered:
            raise ValueError(f"no tool {call.name!r} among those on offer: {', '.join(offered) or 'none'}")
        return ToolUseContent(id=f"call_{secrets.token_hex(8)}", name=call.name, input=dict(call.arguments))


Handler: TypeAlias = Callable[[SamplingRequest], Awaitable[CreateMessageResult | str] | CreateMessageResult | str]
"""Calls a model, and returns its answer or just the text of it. A plain function runs in a thread.

Whatever it raises stays here, except `InputRefused`, which the server is told."""

AsyncHandler: TypeAlias = Callable[[SamplingRequest], Awaitable[CreateMessageResult | str]]
