"""One call of the application: what it requests, its timeouts, its requests in flight, and the error that an answer means."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NoReturn, Self, TypeAlias

from anyio import CancelScope, current_time

from mcp_host.concurrency.asking import paused_by_asking
from mcp_host.concurrency.deadlines import Alarm
from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import (
    ConnectionClosed,
    HeaderMismatch,
    HttpStatusError,
    McpError,
    MissingRequiredClientCapability,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    Unauthorized,
    UnsupportedProtocolVersion,
    UrlElicitationRequired,
)
from mcp_host.handlers import HandlerScope, InputCount
from mcp_host.limits import Limits
from mcp_host.protocol.eras import NAME_PARAMETER, READ_ONLY, InputRequired
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    Failure,
    Id,
    Incoming,
    Notification,
    Params,
    Request,
    Response,
    Success,
    is_number,
)
from mcp_host.server_requests import OuterCall

MAX_REPORTS = 1024  # progress reports kept for a slow callback; after that a new one replaces the last

OnReports: TypeAlias = Callable[[deque[Params]], Awaitable[None]]
"""Delivers progress reports in order. It takes each from the left before it delivers it, the first at least."""
OnEvent: TypeAlias = Callable[[Notification], None]
Route: TypeAlias = "Callable[[Incoming, PendingRequest], None]"


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Call:
    """What the application requests, independent of the revision.

    Once it is requested, nothing changes it. It is no frozen dataclass, because that takes twice as long to create.
    """

    method: str
    params: Params
    timeouts: CallTimeouts
    on_reports: OnReports | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP headers: those of middleware, and parameters that are repeated there (`x-mcp-header`)."""
    idempotent: bool = False
    """Whether the server declares that running it twice does no harm."""
    caller: object = field(default=None, repr=False)
    """The application's own object, for its own handlers only."""
    relayed: bool = False
    """Whether it is made for a host of a proxy: its result is passed on as it came."""
    leaves_input: Callable[[InputRequired], bool] | None = None
    """Whether the first result is passed on also if it requires input, of a host that makes the retry."""
    call_id: int = field(default_factory=count(1).__next__)
    """The same for every request of this call; counted per process."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context variables of the caller. Handlers run in copies of it."""
    sent_ids: list[Id] | None = None
    """The id of each request that was sent for it so far, if middleware wants to know."""
    epoch: int | None = None
    """The only session that it may be sent in; None for any."""
    settled: bool = False
    """Whether that is settled: middleware has decided on the call for this session, and it is not moved to another."""
    nesting: int = 0
    """In how many handlers the call is made; 0 outside of handlers."""
    inputs: InputCount | None = None
    """The requests for input so far, shared with the calls that handlers make within this one. None before the first."""

    def outer(self, request_id: Id, *, inferred: bool) -> OuterCall:
        """This call as handlers see it; *request_id* is that of its current request."""
        return OuterCall(
            self.method,
            self.params.get(NAME_PARAMETER.get(self.method, "")),
            request_id,
            call_id=self.call_id,
            inferred=inferred,
            caller=self.caller,
            weak_key=self,
        )

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.method in READ_ONLY


class CallbackRaised(Exception):
    """A callback of a call raised *error*: no failure of this call, although it may be an error that another call raised.

    It passes through the channel and the connection as this exception. `Client` unwraps it.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self._error = error

    def unwrap(self) -> NoReturn:
        """Raise the error, with the context that it had."""
        context = self._error.__context__
        try:
            raise self._error
        finally:
            self._error.__context__ = context


class CallTimeouts:
    """The two clocks of one call, over all its requests. In seconds; `math.inf` means no bound.

    *timeout* bounds the whole call, *idle_timeout* the server's silence. Both stop while the
    client handles a request of the server (`pause`), for *input_timeout* in total; overlapping
    pauses count once. After that they run on, so that no server can extend a call by asking.
    Resuming restarts *idle_timeout*.
    """

    __slots__ = (
        "_clock",
        "_end",
        "_idle",
        "_input",
        "_input_left",
        "_paused_at",
        "_pauses",
        "_timeout",
        "_unanswerable",
        "observers",
    )

    def __init__(
        self,
        *,
        timeout: float,
        idle_timeout: float,
        input_timeout: float = 0.0,
        clock: Callable[[], float] = current_time,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._idle = idle_timeout
        self._input = self._input_left = input_timeout
        self._end = clock() + timeout
        self._pauses = self._unanswerable = 0
        self._paused_at = 0.0
        self.observers: list[Callable[[float], None]] = []
        """Called with the time whenever a clock stops or goes on, for then `end` and `idle_end` move."""

    @classmethod
    def connecting(cls, limits: Limits, clock: Callable[[], float], seconds: float) -> Self:
        """The timeouts of a connection attempt that may take *seconds*, however long the server is silent."""
        return cls(timeout=seconds, idle_timeout=seconds, input_timeout=limits.input_timeout, clock=clock)

    @property
    def end(self) -> float:
        """When the call times out, on the event loop's clock. Pauses move it."""
        return self._end + self._input_left if self._pauses else self._end

    def postpone(self, seconds: float) -> None:
        """Do not count *seconds* in which nothing was sent yet."""
        self._end += seconds

    def idle_end(self, now: float) -> float:
        """When the call times out if the server is silent from *now* on."""
        end = self._end
        if self._pauses:
            now = max(now, self._paused_at + self._input_left)  # when the clocks run on at the latest
            end += self._input_left
        idle_end = now + self._idle
        return end if self._unanswerable or end < idle_end else idle_end

    def pause(self) -> None:
        """Stop both clocks until a matching `resume`, or until *input_timeout* is used up."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = now = self._clock()
            for changed in self.observers:
                changed(now)

    def resume(self) -> None:
        """End one `pause`. The last one restarts *idle_timeout*."""
        self._pauses -= 1
        if not self._pauses:
            now = self._clock()
            taken = min(now - self._paused_at, self._input_left)
            self._input_left -= taken
            self._end += taken
            for changed in self.observers:
                changed(now)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """`pause`, and `resume` at the end."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def unanswerable(self) -> Iterator[None]:
        """Stop *idle_timeout* and each `silence`: the server has nothing to answer."""
        self._unanswerable += 1
        self._changed()
        try:
            yield
        finally:
            self._unanswerable -= 1
            self._changed()

    def _changed(self) -> None:
        now = self._clock()
        for changed in self.observers:
            changed(now)

    @contextmanager
    def scope(self, *, idle: bool = False) -> Iterator[CancelScope]:
        """A cancel scope that ends when the call times out; with *idle* also after *idle_timeout* from now."""

        def update(now: float) -> None:
            scope.deadline = self.idle_end(now) if idle else self.end

        with CancelScope() as scope:
            update(self._clock())
            self.observers.append(update)
            try:
                yield scope
            finally:
                self.observers.remove(update)

    @contextmanager
    def silence(self, seconds: float) -> Iterator[CancelScope]:
        """A cancel scope that ends after *seconds* in which *idle_timeout* runs; each pause begins them anew."""

        def update(now: float) -> None:
            scope.deadline = math.inf if self._pauses or self._unanswerable else now + seconds

        with CancelScope() as scope:
            update(self._clock())
            self.observers.append(update)
            try:
                yield scope
            finally:
                self.observers.remove(update)

    @contextmanager
    def bound(self, what: str, *, idle: bool = False) -> Iterator[None]:
        """Like `scope`, but raises `RequestTimeout`; *what* begins its message. Asking a person inside pauses both clocks."""
        with self.scope(idle=idle) as scope, paused_by_asking(self.paused):
            yield
        if scope.cancelled_caught:
            raise RequestTimeout(f"{what}: {self.overdue()}")

    def overdue(self) -> str:
        """Which of the timeouts has passed, in words."""
        now = self._clock()
        if now >= self.end:
            passed = f"took longer than {self._timeout:g} s (timeout)"
        else:
            passed = f"the server was silent for {self._idle:g} s (idle_timeout)"
        left = self._input_left - (now - self._paused_at) if self._pauses else self._input_left
        if left <= 0 < self._input:
            passed += f", after its input had taken {self._input:g} s (input_timeout)"
        return passed


@dataclass(slots=True, eq=False)
class PendingRequest:
    """One request until its outcome. Implements `transports.base.RequestHandle`.

                queued() ends             the callback begins
        queued ───────────────► waiting ◄─────────────────► reporting
           │                       │      the callback ends      │
           └───────────────────────┼─────────────────────────────┘
                                   ▼
                                 done     an outcome is set: a response or an error (`settle`),
                                          or the deadline has passed (`expire`)

    The first three are values of `_phase`. A request begins in "waiting", and may be *done* in each of them: then its
    task is about to leave. The deadline is the end of the call's *idle_timeout* in "waiting", and of its *timeout* in
    "queued" and "reporting": then it is not the server that is slow. A request that belongs to no call has none:
    connecting is bounded as a whole, a subscription is not.

    While the task waits in `wait`, `_wake` is set. `_scope` ends its wait anywhere else in `bounded`, such as for a stream
    or in the callback; once that is left, cancelling it does nothing.
    """

    request: Request
    timeouts: CallTimeouts
    route: Route
    alarm: Alarm
    call: Call | None = None
    """The application's call that this request belongs to, if any."""
    on_event: OnEvent | None = None
    """Takes the notifications of a subscription, if this is one."""
    stateless: bool = False
    notes: str = ""
    """What to tell, if it times out, of what went wrong meanwhile."""
    asked: bool = False
    """Whether a request of the server may have belonged to this one."""
    unanswered: bool = False
    """Whether it has ended because the server does not get an answer of ours."""
    outcome: Response | Exception | None = None
    done: bool = False
    unsent: bool = False
    reports: deque[Params] = field(default_factory=deque)
    deadline: float = math.inf
    """When to `expire`, on the event loop's clock."""
    _phase: Literal["queued", "waiting", "reporting"] = "waiting"
    _wake: Awaitable[None] | None = None
    _scope: CancelScope | None = None
    _outer: OuterCall | None = None

    def __post_init__(self) -> None:
        self.timeouts.observers.append(self.restart_idle)
        self.alarm.waits.add(self)
        self.restart_idle()

    def close(self) -> None:
        """The caller has left."""
        self.alarm.waits.discard(self)
        self.timeouts.observers.remove(self.restart_idle)

    # For channels

    @property
    def personal(self) -> bool:
        return self.call is not None and self.call.caller is not None

    def receive(self, message: Incoming) -> None:
        self.route(message, self)

    def fail(self, error: McpError) -> None:
        self.settle(error)

    async def wait(self) -> None:
        while True:
            if self.reports:
                await self.deliver_progress()
            if self.done:
                return
            self._wake = self.alarm.loop.signal()
            await self._wake
            self._wake = None

    @contextmanager
    def queued(self) -> Iterator[None]:
        self.unsent, self._phase = True, "queued"  # stays so if the block raises
        self.restart_idle()
        yield
        self.unsent, self._phase = False, "waiting"
        self.restart_idle()

    @contextmanager
    def authorizing(self, *, sent: bool = False) -> Iterator[None]:
        self.unsent = not sent  # stays so if the block raises
        with paused_by_asking(self.timeouts.paused), self.timeouts.unanswerable():
            yield
        self.unsent = False

    def bounded(self) -> AbstractContextManager[object]:
        self._scope = self.alarm.loop.new_scope()
        if self.done:
            self._scope.cancel()
        return self._scope

    async def deliver_progress(self) -> None:
        """Await the caller's callback for each report so far, in order. *idle_timeout* is paused meanwhile.

        Raises:
            CallbackRaised: The callback raised.
        """
        if not self.reports or self.call is None or self.call.on_reports is None:
            return
        if self.done and (self.outcome is None or self.alarm.loop.time() >= self.timeouts.end):
            return  # reports that came with an answer in time are delivered
        outer = self._scope
        self._phase = "reporting"
        self.restart_idle()
        try:
            with HandlerScope(), CancelScope() as self._scope:
                while self.reports:
                    await awaited(self.call.on_reports(self.reports), "the progress callback")
        except Exception as exc:
            raise CallbackRaised(exc) from None
        finally:
            self._phase, self._scope = "waiting", outer
            self.restart_idle()

    # For the dispatcher

    def outer(self, *, inferred: bool) -> OuterCall | None:
        """The call that this belongs to as handlers see it, the same for each request of the server: all of them are *inferred* or none."""
        if self._outer is None and self.call is not None:
            self._outer = self.call.outer(self.request.id, inferred=inferred)
        return self._outer

    def report(self, params: Params) -> bool:
        """The server has reported progress. False if that was not asked for, or is malformed."""
        if self.call is None or self.call.on_reports is None or not is_number(params.get("progress")):
            return False
        if self.outcome is not None:
            return True
        if len(self.reports) >= MAX_REPORTS:
            self.reports.pop()
        self.reports.append(params)
        if self._wake is None:
            self.restart_idle()
        else:
            self.deadline = self.timeouts.end  # the callback is about to begin
            self.alarm.loop.wake(self._wake)
        return True

    def settle(self, outcome: Response | Exception, *, by: PendingRequest | None = None) -> bool:
        """Set the outcome, unless there is one; *by* is the request on whose stream it came."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self.done = True
        if self._wake is not None:
            self.alarm.loop.wake(self._wake)
        elif by is not self and self._phase != "reporting" and self._scope is not None:
            self._scope.cancel()  # its task may be reading a stream on which nothing more comes
        return True

    def result(self) -> Success:
        """The response, once the channel has returned.

        Raises:
            McpError: The outcome is another one.
        """
        match self.outcome:
            case Success() as response:
                return response
            case None:
                text = f"{self.request.method}: {self.timeouts.overdue()}{self.notes}"
                raise RequestTimeout(text, may_have_run=not self.unsent)
            case Failure() as refusal:
                raise server_error(self.request, refusal)
            case HttpStatusError() as status if (typed := server_error(self.request, status)) is not status:
                raise typed from status
            case ConnectionClosed() as closed if self.unsent:
                closed.may_have_run = False
                raise closed
            case error:
                raise error

    def expire(self) -> None:
        self.done = True
        self.deadline = math.inf
        if self._wake is not None:
            self.alarm.loop.wake(self._wake)
        elif self._scope is not None:
            self._scope.cancel()

    def restart_idle(self, now: float | None = None) -> None:
        """Set the deadline again: the server has sent something, or the call's timeouts were paused or resumed."""
        if self._phase != "waiting":
            self.deadline = self.timeouts.end
        elif self.done or self.call is None:
            self.deadline = math.inf
        else:
            self.deadline = self.timeouts.idle_end(self.alarm.loop.time() if now is None else now)
        if self.deadline < self.alarm.next:
            self.alarm.ring_at(self.deadline)


def server_error(request: Request, error: Failure | HttpStatusError) -> ServerError:
    """The typed error for *error*, the server's answer to *request*. An HTTP status may have a JSON-RPC error as its body."""
    code, message, data = error.code, error.message, error.data
    if isinstance(error, HttpStatusError):
        if code is None or isinstance(error, Unauthorized):
            return error
        message = error.rpc_message or message
    assert code is not None, "every JSON-RPC error has one"
    members = data if isinstance(data, dict) else {}
    uri = members.get("uri")  # until 2025-11-25 a code; later: invalid params, and the URI
    not_found = code == INVALID_PARAMS and uri is not None and uri == request.params.get("uri")
    if request.method.startswith("resources/") and (code == RESOURCE_NOT_FOUND or not_found):
        return ResourceNotFound(code, message, data)
    if code == URL_ELICITATION_REQUIRED:
        from mcp_host.elicitation import read_elicitations  # a tenth of the start-up time, for one rare error

        return UrlElicitationRequired(code, message, data, read_elicitations(data))
    if code == HEADER_MISMATCH:
        return HeaderMismatch(code, message, data)
    if code == MISSING_REQUIRED_CLIENT_CAPABILITY:
        required = members.get("requiredCapabilities")
        return MissingRequiredClientCapability(code, message, data, required if isinstance(required, dict) else {})
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        listed = members.get("supported")
        versions = [version for version in listed if isinstance(version, str)] if isinstance(listed, list) else []
        return UnsupportedProtocolVersion(code, message, data, versions)
    return error if isinstance(error, HttpStatusError) else ServerError(code, message, data)
