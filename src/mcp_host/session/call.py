"""One call of the application's: what it asks for, how long it may take, and which error its answer means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from itertools import count
from typing import Self, TypeAlias

from anyio import CancelScope, current_time

from mcp_host.errors import (
    HeaderMismatch,
    HttpStatusError,
    MissingRequiredClientCapability,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    Unauthorized,
    UnsupportedProtocolVersion,
    UrlElicitationRequired,
)
from mcp_host.handlers import in_handler
from mcp_host.limits import Limits, check_seconds
from mcp_host.protocol.eras import NAME_PARAMETER, READ_ONLY
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    Failure,
    Id,
    Params,
)
from mcp_host.sampling import OuterCall

OnReport: TypeAlias = Callable[[Params], Awaitable[None]]


class CallTimeouts:
    """How long one call may take, in seconds, over all its requests: `math.inf` is no bound.

    Two clocks run. *timeout* bounds the call as a whole, *idle_timeout* how long the server may
    say nothing about it. Both stop while our side answers what the server asked (`pause`), for
    *input_timeout* in all; what overlaps counts once. After that they run again, so that no
    server can stretch a call by asking. A server that asks is not silent: once it is answered,
    its silence begins anew.
    """

    __slots__ = ("_clock", "_end", "_idle", "_input", "_input_left", "_observers", "_paused_at", "_pauses", "_timeout")

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
        self._pauses = 0
        self._paused_at = 0.0
        self._observers: list[Callable[[float], None]] = []

    @classmethod
    def of(cls, limits: Limits, clock: Callable[[], float], timeout: float | None, idle_timeout: float | None) -> Self:
        """The clocks of a call that begins now, with the *limits* of its client where it has none of its own.

        Raises:
            TypeError, ValueError: One of them is no time, see `check_seconds`.
        """
        if timeout is None:
            timeout = limits.timeout
        else:
            check_seconds("timeout", timeout)
        if idle_timeout is None:
            idle_timeout = limits.idle_timeout
        else:
            check_seconds("idle_timeout", idle_timeout)
        return cls(timeout=timeout, idle_timeout=idle_timeout, input_timeout=limits.input_timeout, clock=clock)

    @classmethod
    def connecting(cls, seconds: float, input_timeout: float, clock: Callable[[], float]) -> Self:
        """The clock of connecting: it may take so many *seconds*, however long the server says nothing."""
        return cls(timeout=seconds, idle_timeout=seconds, input_timeout=input_timeout, clock=clock)

    @property
    def end(self) -> float:
        """When the call has to be over, on the event loop's clock. Later if the clocks are stopped, or stop again."""
        return self._end + self._input_left if self._pauses else self._end

    def idle_end(self, now: float) -> float:
        """When the call has to be over if the server says nothing about it from *now* on."""
        end = self._end
        if self._pauses:
            now = max(now, self._paused_at + self._input_left)  # when the clocks run again at the latest
            end += self._input_left
        idle_end = now + self._idle
        return idle_end if idle_end < end else end

    def pause(self) -> None:
        """It is our turn: both clocks stop until as many times `resume`, or until the time for input is used up."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = now = self._clock()
            self._changed(now)

    def resume(self) -> None:
        """The server's turn again. Its silence begins anew."""
        self._pauses -= 1
        if not self._pauses:
            now = self._clock()
            taken = min(now - self._paused_at, self._input_left)
            self._input_left -= taken
            self._end += taken
            self._changed(now)

    def observe(self, changed: Callable[[float], None]) -> None:
        """Have *changed* called with the time whenever the clocks stop or go on: `end` and `idle_end` are others then."""
        self._observers.append(changed)

    def unobserve(self, changed: Callable[[float], None]) -> None:
        self._observers.remove(changed)

    def _changed(self, now: float) -> None:
        for changed in self._observers:
            changed(now)

    @contextmanager
    def scope(self, *, idle: bool = False) -> Iterator[CancelScope]:
        """A cancel scope that ends when the call has to be over; with *idle* also when nothing was heard for too long."""

        def update(now: float) -> None:
            scope.deadline = self.idle_end(now) if idle else self.end

        with CancelScope() as scope:
            update(self._clock())
            self.observe(update)
            try:
                yield scope
            finally:
                self.unobserve(update)

    @contextmanager
    def bound(self, what: str, *, idle: bool = False) -> Iterator[None]:
        """The same, and then it raises `RequestTimeout`, which says *what* took too long."""
        with self.scope(idle=idle) as scope:
            yield
        if scope.cancelled_caught:
            raise RequestTimeout(f"{what}: {self.overdue()}")

    def overdue(self) -> str:
        """In words: which of the clocks has run out."""
        now = self._clock()
        if now >= self.end:
            ran_out = f"took longer than {self._timeout:g} s (timeout)"
        else:
            ran_out = f"the server was silent for {self._idle:g} s (idle_timeout)"
        left = self._input_left - (now - self._paused_at) if self._pauses else self._input_left
        if left <= 0 < self._input:
            ran_out += f", after its input had taken {self._input:g} s (input_timeout)"
        return ran_out


def server_error(method: str, params: Params, failure: Failure) -> ServerError:
    """The typed error for *failure*, the server's answer to a request."""
    code, message, data = failure.code, failure.message, failure.data
    if method.startswith("resources/") and _names_no_resource(failure, params):
        return ResourceNotFound(code, message, data)
    if code == URL_ELICITATION_REQUIRED:
        from mcp_host.elicitation import read_elicitations  # a tenth of what starting takes, for one rare error

        return UrlElicitationRequired(code, message, data, read_elicitations(data))
    if code == HEADER_MISMATCH:
        return HeaderMismatch(code, message, data)
    if code == MISSING_REQUIRED_CLIENT_CAPABILITY:
        return MissingRequiredClientCapability(code, message, data, _required(data))
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        return UnsupportedProtocolVersion(code, message, data, _supported(data))
    return ServerError(code, message, data)


def refined(method: str, params: Params, error: HttpStatusError) -> ServerError:
    """The typed error for an HTTP status whose body is a JSON-RPC error, if that says more; else *error* itself."""
    if error.code is None or isinstance(error, Unauthorized):
        return error
    typed = server_error(method, params, Failure(None, error.code, error.rpc_message or error.message, error.data))
    return error if type(typed) is ServerError else typed


def _names_no_resource(failure: Failure, params: Params) -> bool:
    """By the code of 2025-11-25, or as later revisions say it: invalid params, with the URI that is not there."""
    if failure.code == RESOURCE_NOT_FOUND:
        return True
    named = failure.data.get("uri") if isinstance(failure.data, dict) else None
    return failure.code == INVALID_PARAMS and named is not None and named == params.get("uri")


def _required(data: object) -> dict[str, object]:
    required = data.get("requiredCapabilities") if isinstance(data, dict) else None
    return required if isinstance(required, dict) else {}


def _supported(data: object) -> list[str]:
    supported = data.get("supported") if isinstance(data, dict) else None
    return [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else []


_nesting: ContextVar[int] = ContextVar("mcp_host.nesting", default=0)


def _current_nesting() -> int:
    """In how many handlers the caller runs. A task that has outlived its handler runs in none."""
    nesting = _nesting.get()
    return nesting if nesting and in_handler() else 0


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Call:
    """What is wanted, how long it may take, and for whom it is made.

    Replaced, and never changed. To freeze it would more than double what it takes to make one.
    """

    method: str
    params: Params
    timeouts: CallTimeouts
    on_report: OnReport | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Parameters that HTTP headers repeat (`x-mcp-header`)."""
    idempotent: bool = False
    """Whether the server says that running it twice does no harm."""
    caller: object = field(default=None, repr=False)
    """What the application knows the caller by: for its own handlers, and for nothing else."""
    call_id: int = field(default_factory=count(1).__next__)
    """The same however often the call is sent; counted by the process."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context variables of the caller. Handlers run in copies of it."""
    nesting: int = field(default_factory=_current_nesting)
    """In how many handlers it is made: 0 for a call that no handler makes."""

    def outer(self, request_id: Id, *, inferred: bool) -> OuterCall:
        """What handlers are told of this call, which was sent under *request_id*."""
        return OuterCall(
            self.method,
            self.params.get(NAME_PARAMETER.get(self.method, "")),
            request_id,
            call_id=self.call_id,
            inferred=inferred,
            caller=self.caller,
            lifetime=self,
        )

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.method in READ_ONLY


def enter_handler(nesting: int) -> None:
    """Count the calls that this task makes from here on as made in a handler, which answers calls of this *nesting*."""
    _nesting.set(nesting + 1)
