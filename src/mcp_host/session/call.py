"""One call of the application: what it requests, its timeouts, and the error that its answer means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Self, TypeAlias

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
from mcp_host.limits import Limits
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
    Request,
)

if TYPE_CHECKING:
    from mcp_host.sampling import OuterCall

OnReport: TypeAlias = Callable[[Params], Awaitable[None]]

_nesting: ContextVar[int] = ContextVar("mcp_host.nesting", default=0)


def current_nesting() -> int:
    """In how many handlers the caller runs. A task that has outlived its handler runs in none."""
    nesting = _nesting.get()
    return nesting if nesting and in_handler() else 0


def enter_handler(nesting: int) -> None:
    """Set the nesting of the calls that this task makes from now on; *nesting* is that of the call it answers."""
    _nesting.set(nesting + 1)


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Call:
    """What the application requests, independent of the revision. Treat it as frozen: that costs twice the time."""

    method: str
    params: Params
    timeouts: CallTimeouts
    on_report: OnReport | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are repeated in HTTP headers (`x-mcp-header`)."""
    idempotent: bool = False
    """Whether the server declares that running it twice does no harm."""
    caller: object = field(default=None, repr=False)
    """The application's own object, for its own handlers only."""
    call_id: int = field(default_factory=count(1).__next__)
    """The same for every request of this call; counted per process."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context variables of the caller. Handlers run in copies of it."""
    nesting: int = field(default_factory=current_nesting)
    """In how many handlers the call is made; 0 outside of handlers."""

    def outer(self, request_id: Id, *, inferred: bool) -> OuterCall:
        """This call as handlers see it; *request_id* is that of its current request."""
        from mcp_host.sampling import OuterCall  # few clients need it

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


class CallTimeouts:
    """The two clocks of one call, over all its requests. In seconds; `math.inf` means no bound.

    *timeout* bounds the whole call, *idle_timeout* the server's silence. Both stop while the
    client handles a request of the server (`pause`), for *input_timeout* in total; overlapping
    pauses count once. After that they run on, so that no server can extend a call by asking.
    Resuming restarts *idle_timeout*.
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
    def connecting(cls, limits: Limits, clock: Callable[[], float], seconds: float) -> Self:
        """The timeouts of a connection attempt that may take *seconds*, however long the server is silent."""
        return cls(timeout=seconds, idle_timeout=seconds, input_timeout=limits.input_timeout, clock=clock)

    @property
    def end(self) -> float:
        """When the call times out, on the event loop's clock. Pauses move it."""
        return self._end + self._input_left if self._pauses else self._end

    def idle_end(self, now: float) -> float:
        """When the call times out if the server is silent from *now* on."""
        end = self._end
        if self._pauses:
            now = max(now, self._paused_at + self._input_left)  # when the clocks run on at the latest
            end += self._input_left
        idle_end = now + self._idle
        return idle_end if idle_end < end else end

    def pause(self) -> None:
        """Stop both clocks until a matching `resume`, or until *input_timeout* is used up."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = now = self._clock()
            self._notify(now)

    def resume(self) -> None:
        """End one `pause`. The last one restarts *idle_timeout*."""
        self._pauses -= 1
        if not self._pauses:
            now = self._clock()
            taken = min(now - self._paused_at, self._input_left)
            self._input_left -= taken
            self._end += taken
            self._notify(now)

    def observe(self, changed: Callable[[float], None]) -> None:
        """Call *changed* with the time whenever the clocks stop or go on, for then `end` and `idle_end` move."""
        self._observers.append(changed)

    def unobserve(self, changed: Callable[[float], None]) -> None:
        self._observers.remove(changed)

    def _notify(self, now: float) -> None:
        for changed in self._observers:
            changed(now)

    @contextmanager
    def scope(self, *, idle: bool = False) -> Iterator[CancelScope]:
        """A cancel scope that ends when the call times out; with *idle* also after *idle_timeout* from now."""

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
        """Like `scope`, but raises `RequestTimeout`; *what* begins its message."""
        with self.scope(idle=idle) as scope:
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
