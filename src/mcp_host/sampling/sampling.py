"""Sampling, as the application registers it, and the session that answers the requests of one connection."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import anyio
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.deadlines import Timeout
from mcp_host.errors import CallerError, InputRefused, McpError, ProtocolError, SamplingError, UnusableCalls
from mcp_host.handlers import HandlerScope, as_async, call_handler
from mcp_host.protocol.eras import is_first_draft, lone_block
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, TOO_MANY_WAITING, TOOK_TOO_LONG, Success, encode
from mcp_host.sampling.approval import Approve, AsyncApprove, RequestApprovals, always
from mcp_host.sampling.limits import KiB, LimitExceeded, SamplingLimits
from mcp_host.sampling.repeated import RepeatedTools, copied, is_read_only
from mcp_host.sampling.request import (
    AroundModel,
    AsyncHandler,
    Handler,
    SamplingMode,
    SamplingRequest,
    log_subject,
)
from mcp_host.sampling.validation import check_and_correct, check_grown, read_params
from mcp_host.server_requests import OuterCall, ProgressReporter
from mcp_host.slots import FairSemaphore, QueueFull, SemaphoreShare, Slot, keep_slot_for_thread
from mcp_host.types import (
    AssistantMessage,
    CreateMessageRequestParams,
    CreateMessageResult,
    Implementation,
    SamplingMessage,
)
from mcp_host.types.sampling import TOOL_USE

if TYPE_CHECKING:
    from mcp_host.sampling.arguments import ArgumentChecker
    from mcp_host.sampling.limits import OwnTools
    from mcp_host.sampling.own_tools import CallToolFunction, ListToolsFunction, ServerTools

logger = logging.getLogger(__name__)

MODEL_FAILED = "this client's model failed"  # all that the server is told
ILLEGAL_ANSWER = "this client's model gave an answer that the request does not allow"
READ_AT_ONCE = 256 * KiB  # of a request, before other tasks run: approval and model take time of their own

CheckArguments: TypeAlias = Literal["warn", "refuse", "retry"]
"""What happens to an answer whose tool calls have arguments that the `inputSchema` does not allow: see `Sampling`."""


class SamplingCallback(Protocol):
    """Takes the params of a ``sampling/createMessage``; returns the same as `SamplingSession.respond`.

    Pass the call that the request belongs to as *call*, if your client knows it. To have an approval apply to
    the whole call, pass the same object each time, or copies by ``dataclasses.replace(call, request_id=...)``.
    """

    def __call__(self, params: dict[str, Any], call: OuterCall | None = None) -> Awaitable[dict[str, Any]]: ...


class Sampling:
    """Answers ``sampling/createMessage``: your handlers, your approval and the limits.

    *with_tools* is a handler for requests that may offer tools; registering it is
    the only way to advertise ``sampling.tools``. *basic* is one for plain requests.
    Each connection uses one of them, chosen once: *with_tools* where
    ``sampling.tools`` was advertised, else *basic*, else *with_tools* for plain requests only.

    Set *context* to declare ``sampling.context``: your handlers then add what
    `SamplingRequest.include_context` asks for, as far as they like; the library adds nothing.
    Without it, a request for context is refused since revision 2025-11-25. Earlier
    revisions cannot declare it, so there your handler may ignore it.

    *approve* decides on each request before it reaches a handler: `always`,
    `ask_in_terminal`, or a function that returns `Allow` or `Deny`.

    Handlers and *approve* are async functions, or plain ones, which run in a thread. A plain
    function cannot be cancelled: if the request ends early, the function keeps running, its result is
    lost, and it counts towards `SamplingLimits.at_once` until it returns.

    *check_arguments* says what happens if the model calls a tool with arguments that its `inputSchema` does not
    allow. The log has a warning in any case, without the values. Then "warn" sends the answer. "refuse" refuses it
    with -32603. "retry" calls the handler again, once, with the answer and what is wrong with it at the end of the
    conversation, and refuses if the second answer is wrong, too. Both calls of the handler are one request for
    *approve* and for the limits. A schema that cannot be checked allows everything. Arguments that cannot be read, for
    which the adapters raise `UnusableCalls`, and calls of tools that are not offered are never sent: "retry" calls the
    handler again, anything else refuses.

    One object can serve any number of connections, and one `anyio.run` after
    another. Its limits apply to all of them together.

    Raises:
        ValueError: There is no handler.
        ValueError: *check_arguments* is something else.
        TypeError: A handler or *approve* cannot be called; the text says which.
    """

    def __init__(
        self,
        *,
        with_tools: Handler | None = None,
        basic: Handler | None = None,
        approve: Approve,
        context: bool = False,
        check_arguments: CheckArguments = "warn",
        limits: SamplingLimits | None = None,
    ) -> None:
        if with_tools is None and basic is None:
            raise ValueError("Sampling needs a handler: with_tools=..., basic=... or both")
        if check_arguments not in get_args(CheckArguments):
            raise ValueError(f'check_arguments is "warn", "refuse" or "retry", not {check_arguments!r}')
        self._with_tools = None if with_tools is None else _as_handler(with_tools, "with_tools")
        self._basic = None if basic is None else _as_handler(basic, "basic")
        shape = "(request: SamplingRequest) -> Allow | Deny"
        self._approve: AsyncApprove = as_async(
            approve, argument="approve", shape=shape, before_thread=keep_slot_for_thread
        )
        self._context = context
        self._check_arguments = check_arguments
        self._limits = limits or SamplingLimits()
        self._semaphore = FairSemaphore(self._limits.at_once)

    def capability(self) -> dict[str, Any]:
        """What to advertise as the client capability ``sampling``: ``tools``, ``context``, both or ``{}``."""
        offered = {"tools": self._with_tools is not None, "context": self._context}
        return {name: {} for name, is_offered in offered.items() if is_offered}

    def session(
        self,
        *,
        server: str,
        server_info: Implementation | None = None,
        knows_tools: bool,
        accepts_context: bool = True,
        server_tools: ServerTools | None = None,
    ) -> SamplingSession:
        """Choose the handler of one connection, for as long as it lasts.

        *server* is your name for the server, and *server_info* what it calls itself. *knows_tools* says whether
        ``sampling.tools`` was advertised to it, *accepts_context* whether ``sampling.context`` was,
        or is unknown to the revision. *server_tools* runs tools of the server inside its requests.
        """
        return SamplingSession(
            self,
            server,
            server_info,
            knows_tools=knows_tools,
            accepts_context=accepts_context,
            server_tools=server_tools,
        )

    def callback(
        self,
        *,
        server: str,
        server_info: Implementation | None = None,
        knows_tools: bool = True,
        call_tool: CallToolFunction | None = None,
        list_tools: ListToolsFunction | None = None,
        own_tools: bool | OwnTools | None = None,
    ) -> SamplingCallback:
        """A sampling callback for a host with another client: wire parameters in, wire result or error out.

        Make one for each connection: *server* is your name for its server, and *server_info* what that calls itself, if
        you know it. It copies the parameters first: what is approved is what the model gets. The other client has to advertise `capability()`; set
        *knows_tools* to False if it does not advertise ``tools``. Then requests for context are
        accepted, too: the revision may be too old to declare it.

        With *call_tool*, the server's own tools are run inside its requests, as with ``Client(run_own_tools=True)``.
        It is ``async (name: str, arguments: dict) -> result``, and calls a tool of that server. The result is a
        `CallToolResult`, the same as on the wire, or the model of the SDK. *list_tools* is
        ``async () -> names or tools``, those that may be run, or a whole result of ``tools/list``; without it, they
        are all that a request offers. *own_tools* are the limits; False turns it off. At most 8 such requests of one callback wait for their tools at the same time,
        because each may be within another; a further one gets -32013.

        Raises:
            ValueError: *list_tools* or *own_tools* without *call_tool*.
            TypeError: An argument is something else.
        """
        accepts_context = self._context or not knows_tools
        server_tools = None
        if call_tool is not None:
            from mcp_host.sampling.own_tools import other_clients_tools

            server_tools = other_clients_tools(call_tool, list_tools, True if own_tools is None else own_tools)
        elif list_tools is not None or own_tools is not None:
            raise ValueError("the server's tools are run only with call_tool=...")
        return self.session(
            server=server,
            server_info=server_info,
            knows_tools=knows_tools,
            accepts_context=accepts_context,
            server_tools=server_tools,
        ).respond

    def for_sdk(self, *, server: str | None = None, capabilities: bool = True) -> dict[str, Any]:
        """Keyword arguments for a client of the official SDK: ``ClientSession(read, write, **sampling.for_sdk())``.

        They are ``sampling_callback`` and ``sampling_capabilities``, in the types of the installed SDK (1.24 or
        later). They fit every client that takes the SDK's ``SamplingFnT``. One registration may serve any number
        of connections: approvals for the session are kept for each of them.

        *server* is your name for the server. Without it, all are "unnamed server". What each calls itself is beside
        that (`SamplingRequest.server_info`), but version 1 of the SDK does not keep it. Set *capabilities* to False for a client that takes no capabilities:
        then there is only the callback, and requests with tools are refused.

        Raises:
            ImportError: The official SDK is not installed, or too old.
        """
        from mcp_host.sampling.other_clients import sdk_callback, sdk_capability

        def connect(name: str, info: Implementation | None) -> SamplingCallback:
            return self.callback(server=name, server_info=info, knows_tools=capabilities)

        offered = {"sampling_capabilities": sdk_capability(self.capability())} if capabilities else {}
        return {"sampling_callback": sdk_callback(connect, server=server), **offered}

    def for_fastmcp(self, *, server: str | None = None, capabilities: bool = True) -> dict[str, Any]:
        """Keyword arguments for a client of fastmcp: ``fastmcp.Client(url, **sampling.for_fastmcp())``.

        They are ``sampling_handler`` and ``sampling_capabilities``. The rest is as for `for_sdk`.

        Raises:
            ImportError: The official SDK, on which fastmcp is built, is not installed, or too old.
        """
        from mcp_host.sampling.other_clients import fastmcp_handler

        arguments = self.for_sdk(server=server, capabilities=capabilities)
        return {"sampling_handler": fastmcp_handler(arguments.pop("sampling_callback")), **arguments}


def _as_handler(handler: Handler, argument: str) -> AsyncHandler:
    shape = "(request: SamplingRequest) -> CreateMessageResult"
    return as_async(handler, argument=argument, shape=shape, before_thread=keep_slot_for_thread)


class SamplingSession:
    """One connection's sampling, with the handler that was chosen for it. Made by `Sampling.session`."""

    def __init__(
        self,
        sampling: Sampling,
        server: str,
        server_info: Implementation | None,
        *,
        knows_tools: bool,
        accepts_context: bool,
        server_tools: ServerTools | None,
    ) -> None:
        handler = sampling._with_tools if knows_tools else None
        self.mode: SamplingMode = "basic" if handler is None else "with_tools"
        """``with_tools``, or ``basic``: then requests that mention tools are refused, not stripped."""
        handler = handler or sampling._basic or sampling._with_tools
        assert handler is not None, "Sampling makes sure"
        self._handler = handler
        self._server, self._server_info = server, server_info
        self._subject = log_subject(server)
        self._approve = sampling._approve
        self.begin_anew()
        self._check_arguments = sampling._check_arguments
        self._checker: ArgumentChecker | None = None
        self._repeated = RepeatedTools() if is_read_only(handler) else None
        self._limits = limits = sampling._limits
        self._accepts_context = accepts_context
        self._server_tools = server_tools
        self._share = SemaphoreShare(sampling._semaphore, limits.at_once_per_server, limits.waiting)

    def begin_anew(self) -> None:
        """Begin, or go on for another login: what was allowed for the session is allowed no more."""
        self._identity = object()  # of the connection and its login, for `SamplingRequest.session`
        approve = self._approve
        self._approvals = None if approve is always else RequestApprovals(approve, subject=self._subject)

    async def answer(
        self,
        params: dict[str, Any],
        call: OuterCall | None = None,
        *,
        size: float = math.inf,
        move_on_after: Timeout | None = None,
        always_wait: bool = False,
        reporter: ProgressReporter | None = None,
        around_model: Sequence[AroundModel] = (),
        has_callers: bool = False,
    ) -> CreateMessageResult:
        """Answer one request, given as the wire's parameters. *call* is our call that it belongs to.

        *size* is an upper bound of the request in bytes; small requests skip the size checks.
        *move_on_after* bounds the answer to `SamplingLimits.seconds`; the default is anyio's.
        With *always_wait* the request waits for its turn, even if `SamplingLimits.waiting` others do.
        *reporter* tells the server about the progress of the answer, if it asked for that.
        *has_callers* says that calls have a `caller`, so that without *call* the request may be for any of them.

        Raises:
            InputRefused: Its code, message and data are for the server: -32602 broken
                rules and limits, -1 denied, -32603 a failed handler or an illegal
                answer, -32010 too many waiting, -32011 out of time.
        """
        limits, tools = self._limits, self._server_tools
        runs_tools = tools is not None and tools.limits is not None
        repeated = None if around_model or runs_tools else self._repeated  # others get the request, too
        try:
            read = read_params(
                params, self.mode, limits, size, accepts_context=self._accepts_context, repeated=repeated
            )
        except (LimitExceeded, ProtocolError) as exc:
            raise InputRefused(INVALID_PARAMS, str(exc)) from exc
        request = SamplingRequest(
            params=read,
            server=self._server,
            outer=call,
            mode=self.mode,
            reporter=reporter,
            session=self._identity,
            unknown_caller=has_callers and call is None,
            server_info=self._server_info,
        )
        own_tools = None if tools is None or tools.limits is None else tools.admit(request, tools.limits)
        with (move_on_after or anyio.move_on_after)(limits.seconds):
            slot = Slot(self._share)
            try:
                await slot.acquire(always_wait=always_wait)
            except QueueFull:
                problem = f"this client's limit waiting is {limits.waiting} requests"
                raise InputRefused(TOO_MANY_WAITING, problem) from None
            try:
                if READ_AT_ONCE < size < math.inf:  # where the size is unknown, few are large
                    await checkpoint()
                with HandlerScope(slot=slot):
                    if self._approvals is not None:
                        await self._approvals.require(request)
                    if tools is not None and own_tools is not None:
                        answer = await self._run_own_tools(request, around_model, tools, own_tools)
                    else:
                        said = await self._ask(request, request, size, around_model)
                        if isinstance(said, UnusableCalls) or said.stop_reason == TOOL_USE:
                            said = await self._with_checked_arguments(said, request, size, around_model)
                        answer = said
                if len(answer.content) > 1 and (not request.tools or is_first_draft(params)):
                    answer = self._lone_block(answer)
                return answer
            finally:
                slot.release()
        logger.warning("%s took longer than %s s", self._subject, limits.seconds)
        raise InputRefused(TOOK_TOO_LONG, f"this client's limit for one answer is {limits.seconds} seconds")

    async def _with_checked_arguments(
        self,
        answer: CreateMessageResult | UnusableCalls,
        request: SamplingRequest,
        size: float,
        around_model: Sequence[AroundModel],
    ) -> CreateMessageResult:
        """*answer*, which calls tools, or the model's second one, as `Sampling` says of *check_arguments*.

        Raises:
            InputRefused: It is refused.
        """
        if isinstance(answer, UnusableCalls):
            from mcp_host.sampling.arguments import turn_of

            logger.warning("%s: %s", self._subject, answer)
            return await self._ask_again(turn_of(answer), request, size, around_model)
        problems = await self._problems(answer, request)
        if not problems or self._check_arguments == "warn":
            return answer
        if self._check_arguments == "refuse":
            raise self._mismatch()
        from mcp_host.sampling.arguments import MISMATCH, results_for

        told = {id: MISMATCH.format(problem=problem) for id, problem in problems.items()}
        turn = [AssistantMessage(answer.content), results_for(answer.tool_uses, told)]
        return await self._ask_again(turn, request, size, around_model)

    async def _ask_again(
        self,
        turn: Sequence[SamplingMessage],
        request: SamplingRequest,
        size: float,
        around_model: Sequence[AroundModel],
    ) -> CreateMessageResult:
        """The model's second answer, after *turn*, which says what is wrong with the first.

        Raises:
            InputRefused: Its calls are wrong, too.
        """
        params = request.params.model_copy(update={"messages": [*request.messages, *turn]})
        answer = await self._ask(self._grown(request, params), request, size, around_model)
        if isinstance(answer, UnusableCalls):
            raise self._illegal(answer) from answer
        if await self._problems(answer, request):
            raise self._mismatch()
        return answer

    async def _ask(
        self, asked: SamplingRequest, request: SamplingRequest, size: float, around_model: Sequence[AroundModel]
    ) -> CreateMessageResult | UnusableCalls:
        """The model's answer to *asked*, as it may be sent in answer to *request*, which has *size* bytes at most. Or what it
        is told of an answer whose calls cannot be read, if it is asked twice.

        Raises:
            InputRefused: The handler failed, or its answer is illegal.
        """
        handler = partial(self._handler, asked)
        for around in reversed(around_model):
            handler = partial(around, asked, handler)
        called = partial(_or_unusable, handler) if self._check_arguments == "retry" else handler
        answer = await call_handler(called, subject=self._subject, failed=MODEL_FAILED)
        if isinstance(answer, UnusableCalls):
            return answer
        try:
            return check_and_correct(answer, request, self._limits, size)
        except SamplingError as exc:
            if isinstance(exc, UnusableCalls) and self._check_arguments == "retry":
                return exc
            raise self._illegal(exc) from exc

    def _lone_block(self, answer: CreateMessageResult) -> CreateMessageResult:
        """The answer as one block: the first draft has no more, and many servers take no more for a request without tools.

        Raises:
            InputRefused: It does not fit.
        """
        try:
            lone = lone_block(answer)
        except SamplingError as exc:
            raise self._illegal(exc) from exc
        if lone.tool_uses:
            logger.warning(
                "%s: the server expects one block, and of the answer gets its first tool call", self._subject
            )
        return lone

    async def _problems(self, answer: CreateMessageResult, request: SamplingRequest) -> dict[str, str]:
        """What is wrong with the arguments of the calls in *answer*, by their ids."""
        from mcp_host.sampling.arguments import ArgumentChecker  # many clients have no tools

        if self._checker is None:
            self._checker = ArgumentChecker(subject=self._subject)
        return await self._checker.problems(request.tools, answer.tool_uses)

    async def _run_own_tools(
        self, request: SamplingRequest, around_model: Sequence[AroundModel], tools: ServerTools, limits: OwnTools
    ) -> CreateMessageResult:
        """The model's answer after the tools of the server that it called: see `mcp_host.sampling.own_tools`."""
        from mcp_host.sampling.own_tools import fresh_ids, run_own_tools  # few clients do

        around = (fresh_ids, *around_model)

        async def ask(params: CreateMessageRequestParams) -> CreateMessageResult:
            asked = self._grown(request, params)
            answer = await self._ask(asked, asked, math.inf, around)
            if isinstance(answer, UnusableCalls) or answer.stop_reason == TOOL_USE:
                return await self._with_checked_arguments(answer, asked, math.inf, around)
            return answer

        return await run_own_tools(ask, request, tools, limits)

    def _grown(self, request: SamplingRequest, params: CreateMessageRequestParams) -> SamplingRequest:
        """*request* with *params*, whose conversation is longer.

        Raises:
            InputRefused: It exceeds a limit.
        """
        try:
            check_grown(params, self._limits)
        except LimitExceeded as exc:
            logger.error("%s: %s", self._subject, exc)
            raise InputRefused(INTERNAL_ERROR, str(exc)) from exc
        known = len(request.messages) if request.server_messages is None else request.server_messages
        return replace(request, params=params, server_messages=known)

    async def respond(self, params: dict[str, Any], call: OuterCall | None = None) -> dict[str, Any]:
        """Answer as on the wire: ``{"result": …}`` or ``{"error": {"code": …, "message": …}}``, with data if there is any.

        What is changed in *params* meanwhile does not count.
        """
        try:
            try:
                params = copied(params)
            except ProtocolError as exc:
                raise InputRefused(INVALID_PARAMS, str(exc)) from exc
            answer = await self.answer(params, call)
            result = answer.to_wire()
            try:
                encode(Success(0, result))  # raises here, rather than in the other client, for what JSON cannot hold
            except CallerError as exc:
                raise self._illegal(exc) from exc
        except InputRefused as exc:
            error = {"code": exc.code, "message": str(exc)}
            return {"error": error if exc.data is None else {**error, "data": exc.data}}
        return {"result": result}

    def _mismatch(self) -> InputRefused:
        wrong = SamplingError("it calls tools with arguments that do not match their inputSchema")
        refusal = self._illegal(wrong)
        refusal.__cause__ = wrong
        return refusal

    def _illegal(self, problem: McpError) -> InputRefused:
        logger.error("%s: the handler's answer is not legal: %s", self._subject, problem)
        return InputRefused(INTERNAL_ERROR, ILLEGAL_ANSWER)


async def _or_unusable(
    handler: Callable[[], Awaitable[CreateMessageResult | str]],
) -> CreateMessageResult | str | UnusableCalls:
    """What *handler* returns, or that the calls of its model cannot be read: that is no failure if it is asked again."""
    try:
        return await handler()
    except UnusableCalls as exc:
        return exc
