"""Answering sampling requests: one registration, and one session of it for each connection."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol

from anyio import CancelScope

from mcp_host.concurrency import SharedTimeout
from mcp_host.errors import CallerError, InputRefused, ProtocolError, SamplingError, excerpt
from mcp_host.handlers import as_async, call_handler
from mcp_host.protocol import conversation
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, TOO_MANY_WAITING, TOOK_TOO_LONG, Success, encode
from mcp_host.sampling.approval import Approvals, Approve, AsyncApprove, always
from mcp_host.sampling.limits import SamplingLimits, check_counts, check_sizes, clamp
from mcp_host.sampling.progress import ProgressReporter
from mcp_host.sampling.request import AsyncHandler, Handler, OuterCall, SamplingMode, SamplingRequest
from mcp_host.sampling.slots import FairSemaphore, QueueFull, SemaphoreShare, Slot, hold_slot
from mcp_host.sampling.validation import check_answer
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
)

logger = logging.getLogger(__name__)

MODEL_FAILED = "this client's model failed"  # what a server is told, and nothing of the reason
ILLEGAL_ANSWER = "this client's model gave an answer that the request does not allow"

HANDLER = "(request: SamplingRequest) -> CreateMessageResult"
APPROVE = "(request: SamplingRequest) -> Allow | Deny"

TOOL_FIELDS = ("tools", "toolChoice", "tool_choice")  # the last is how drafts of SEP-1577 spelled it


class SamplingCallback(Protocol):
    """Takes the params of a ``sampling/createMessage``; returns what `SamplingSession.respond` does.

    *call* is the call that the request belongs to, where the other client knows it. What is allowed
    for the whole call holds for as long as you pass the same object, or what
    ``dataclasses.replace(call, request_id=...)`` makes of it.
    """

    def __call__(self, params: dict[str, Any], call: OuterCall | None = None) -> Awaitable[dict[str, Any]]: ...


class Sampling:
    """A host's readiness to answer ``sampling/createMessage``: handlers, approval and limits.

    *with_tools* is a handler for requests that may offer tools; registering it is
    the only way to advertise ``sampling.tools``. *basic* is one for plain requests.
    Which of the two answers a connection is chosen once: *with_tools* where
    ``sampling.tools`` was advertised, else *basic*, else *with_tools* for plain requests only.

    With *context* the host declares ``sampling.context``: its handlers add what
    `SamplingRequest.include_context` asks for, as far as they like. Nothing is added for
    them. Without it, a request for context is refused from revision 2025-11-25 on, and
    before, where there is nothing to declare, the wish may be ignored.

    *approve* decides on each request before it reaches a handler: `always`,
    `ask_in_terminal`, or a function that returns `Allow` or `Deny`.

    Handlers and *approve* are async functions, or plain ones, which run in a thread. A plain
    function cannot be cancelled: it is left behind if the request ends early, its result is
    lost, and its place (`SamplingLimits.at_once`) stays taken until it returns.

    One object may serve any number of connections, and `anyio.run` calls one
    after another: its limits hold for all of them together.

    Raises:
        ValueError: There is no handler.
        TypeError: A handler or *approve* cannot be called; the text says which.
    """

    def __init__(
        self,
        *,
        with_tools: Handler | None = None,
        basic: Handler | None = None,
        approve: Approve,
        context: bool = False,
        limits: SamplingLimits | None = None,
    ) -> None:
        if with_tools is None and basic is None:
            raise ValueError("Sampling needs a handler: with_tools=..., basic=... or both")
        self._with_tools: AsyncHandler | None
        self._with_tools = (
            None if with_tools is None else as_async(with_tools, argument="with_tools", shape=HANDLER, hold=hold_slot)
        )
        self._basic: AsyncHandler | None
        self._basic = None if basic is None else as_async(basic, argument="basic", shape=HANDLER, hold=hold_slot)
        self._approve: AsyncApprove = as_async(approve, argument="approve", shape=APPROVE, hold=hold_slot)
        self._context = context
        self._limits = limits or SamplingLimits()
        self._semaphore = FairSemaphore(self._limits.at_once)
        self._time = SharedTimeout(self._limits.seconds)

    def capability(self) -> dict[str, Any]:
        """What to advertise as the client capability ``sampling``: ``tools``, ``context``, both or ``{}``."""
        offered = {"tools": self._with_tools is not None, "context": self._context}
        return {name: {} for name, is_offered in offered.items() if is_offered}

    def session(self, *, server: str, knows_tools: bool, refuses_context: bool = False) -> SamplingSession:
        """Choose the handler of one connection, for as long as it lasts.

        *server* is the name to show for it. *knows_tools* says whether
        ``sampling.tools`` was advertised to it. *refuses_context* says whether ``sampling.context``
        was not, in a revision that has it.
        """
        handler, mode = self._choose(knows_tools)
        share = self._semaphore.share(at_once=self._limits.at_once_per_server, waiting=self._limits.waiting)
        return SamplingSession(
            handler,
            mode,
            server,
            self._approve,
            self._limits,
            share,
            self._time,
            refuses_context=refuses_context,
        )

    def callback(self, *, server: str, knows_tools: bool = True) -> SamplingCallback:
        """A sampling callback for a host with another client: wire parameters in, wire result or error out.

        Give each connection a callback of its own. The client has to advertise
        `capability()`, and to say with *knows_tools* whether it did so with ``tools``. Where
        it did not, the revision may be one that has no ``context`` either: then a wish for it
        is not refused.
        """
        refuses_context = knows_tools and not self._context
        return self.session(server=server, knows_tools=knows_tools, refuses_context=refuses_context).respond

    def _choose(self, knows_tools: bool) -> tuple[AsyncHandler, SamplingMode]:
        if self._with_tools is not None and knows_tools:
            return self._with_tools, "with_tools"
        handler = self._basic or self._with_tools
        assert handler is not None, "the constructor saw to that"
        return handler, "basic"


class SamplingSession:
    """One connection's sampling, with the handler that was chosen for it. Made by `Sampling.session`."""

    def __init__(
        self,
        handler: AsyncHandler,
        mode: SamplingMode,
        server: str,
        approve: AsyncApprove,
        limits: SamplingLimits,
        share: SemaphoreShare,
        time: SharedTimeout,
        *,
        refuses_context: bool = False,
    ) -> None:
        self._handler = handler
        self._mode = mode
        self._server = server
        self._subject = f"sampling for {excerpt(server)}"  # which log lines begin with
        self._approvals = None if approve is always else Approvals(approve, subject=self._subject)
        self._limits = limits
        self._refuses_context = refuses_context
        self._share = share
        self._time = time

    @property
    def mode(self) -> SamplingMode:
        """``with_tools``, or ``basic``: then a request that mentions tools is refused, never stripped."""
        return self._mode

    async def answer(
        self,
        params: dict[str, Any],
        call: OuterCall | None = None,
        *,
        size: float = math.inf,
        within: CancelScope | None = None,
        reporter: ProgressReporter | None = None,
    ) -> CreateMessageResult:
        """Answer one request, given as the wire's parameters. *call* is the call of ours it belongs to.

        *size*, where it is known, is of how many bytes the parameters were read, at most: then
        what is light need not be weighed. *within* is a cancel scope that this alone runs in,
        where there is one: it is cancelled when the time is up. *reporter* tells the server
        how far the answer has come, if it asked for that.

        Raises:
            InputRefused: Its code, message and data are for the server: -32602 broken
                rules and limits, -1 denied, -32603 a failure or an illegal answer of
                the host's, -32010 too many waiting, -32011 out of time.
        """
        request = self._read(params, call, size, reporter)
        with self._time.held(within):
            return await self._in_turn(request, size)
        logger.warning("%s took longer than %s s", self._subject, self._limits.seconds)
        raise InputRefused(TOOK_TOO_LONG, f"this client's limit for one answer is {self._limits.seconds} seconds")

    async def respond(self, params: dict[str, Any], call: OuterCall | None = None) -> dict[str, Any]:
        """Answer as the wire does: ``{"result": …}`` or ``{"error": {"code": …, "message": …}}``, perhaps with data."""
        try:
            result = (await self.answer(params, call)).to_wire()
            encode(Success(0, result))  # raises for what JSON cannot say, before it is another client's to write
        except InputRefused as exc:
            error = {"code": exc.code, "message": str(exc)}
            return {"error": error if exc.data is None else {**error, "data": exc.data}}
        except CallerError as exc:
            logger.error("%s: the handler's answer is not legal: %s", self._subject, exc)
            return {"error": {"code": INTERNAL_ERROR, "message": ILLEGAL_ANSWER}}
        return {"result": result}

    def _read(
        self, wire: dict[str, Any], call: OuterCall | None, size: float, reporter: ProgressReporter | None
    ) -> SamplingRequest:
        try:
            params = read_params(wire, self._mode, self._limits, size)
            if self._refuses_context:
                _refuse_context(params)
        except ProtocolError as exc:
            raise InputRefused(INVALID_PARAMS, str(exc)) from exc
        return SamplingRequest(params=params, server=self._server, outer=call, mode=self._mode, reporter=reporter)

    async def _in_turn(self, request: SamplingRequest, size: float) -> CreateMessageResult:
        slot = Slot(self._share)
        try:
            await slot.enter()
        except QueueFull:
            limit = self._limits.waiting
            raise InputRefused(TOO_MANY_WAITING, f"this client's limit waiting is {limit} requests") from None
        try:
            if self._approvals is not None:
                await self._approvals.require(request)
            return await self._ask_model(request, size)
        finally:
            slot.leave()

    async def _ask_model(self, request: SamplingRequest, size: float) -> CreateMessageResult:
        answer = await call_handler(partial(self._handler, request), subject=self._subject, failed=MODEL_FAILED)
        try:
            return check_answer(answer, request, self._limits, size)
        except SamplingError as exc:
            logger.error("%s: the handler's answer is not legal: %s", self._subject, exc)
            raise InputRefused(INTERNAL_ERROR, ILLEGAL_ANSWER) from exc


def read_params(
    wire: dict[str, Any], mode: SamplingMode, limits: SamplingLimits, size: float = math.inf
) -> CreateMessageRequestParams:
    """The request that *wire* holds, if a session of that *mode* takes it; *size* is of how many bytes it was read.

    Raises:
        ProtocolError: It is malformed, breaks a rule of the conversation or exceeds a limit.
    """
    if mode == "basic":
        _refuse_tools(wire)
    check_counts(wire, limits, size)
    params = CreateMessageRequestParams.from_wire(wire)
    messages = conversation.checked(params.messages)
    if messages is not params.messages:
        params = params.model_copy(update={"messages": messages})
    if mode == "basic":
        _refuse_tool_blocks(params.messages)
    conversation.check_tools(params.tools or [], params.tool_choice)
    check_sizes(params, limits, size)
    return clamp(params, limits)


def _refuse_tools(wire: dict[str, Any]) -> None:
    """ "The client MUST return an error if this field is provided but ClientCapabilities.sampling.tools is
    not declared" (the schema, of tools and toolChoice): an empty list is provided, too.
    """
    for name in TOOL_FIELDS:
        if wire.get(name) is not None:  # null stands for absent: some servers write every field
            raise ProtocolError(f"{name}: this client did not declare sampling.tools")


def _refuse_context(params: CreateMessageRequestParams) -> None:
    """ "Servers SHOULD only use these values if the client declares ClientCapabilities.sampling.context" (the schema)."""
    if params.include_context not in (None, "none"):
        raise ProtocolError("includeContext: this client did not declare sampling.context")


def _refuse_tool_blocks(messages: list[SamplingMessage]) -> None:
    """What a loop with tools leaves behind would mean nothing to a handler of plain requests."""
    for index, message in enumerate(messages):
        for block in message.content:
            if isinstance(block, ToolUseContent | ToolResultContent):
                raise ProtocolError(f"messages[{index}]: {block.type}: this client did not declare sampling.tools")
