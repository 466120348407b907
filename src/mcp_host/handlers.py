"""Calling the application's handlers and callbacks. What they raise is logged, and not sent to the server."""

from __future__ import annotations

import logging
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, Token
from dataclasses import dataclass, field
from functools import partial
from inspect import Signature, isawaitable, iscoroutinefunction, signature
from types import FunctionType, coroutine
from typing import Any, ParamSpec, TypeAlias, TypeGuard, TypeVar, overload

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from mcp_host.concurrency.backends import Loop, cancellations, cancels_current_task, is_cancellation
from mcp_host.concurrency.tasks import first
from mcp_host.errors import InputRefused, SamplingError
from mcp_host.limits import Limits
from mcp_host.protocol.eras import CREATE_MESSAGE
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR

if sys.version_info >= (3, 14):
    from annotationlib import Format

P = ParamSpec("P")
T = TypeVar("T")
BeforeThread: TypeAlias = Callable[[], Awaitable[Callable[[], None]]]
"""Awaited before a thread begins. Returns a function that is called once, in any thread, when that thread has ended."""

MAX_THREADS = 256  # in one event loop, for all plain functions but those of sampling; most of them wait for a person

logger = logging.getLogger(__name__)


Failures: TypeAlias = Counter[tuple[str, type[BaseException]]]
"""How often there was each kind of error in each callback."""


def worth_logging(times: int) -> bool:
    """Whether a warning is logged for the *times*-th time: 1, 2, 4, 8 and so on. What causes it must not fill a disk."""
    return times & (times - 1) == 0


class CountedWarnings(dict[tuple[str, str], int]):
    """How often there was each kind of warning; equal ones are logged if they are `worth_logging`."""

    def log(self, log: logging.Logger, kind: tuple[str, str], text: str, reason: str = "") -> None:
        """Log that *text*, how often it was so, and the *reason* of this time, whose own number may be another."""
        self[kind] = times = self.get(kind, 0) + 1
        if worth_logging(times):
            log.warning("%s%s%s", text, f" ({times} times so far)" if times > 1 else "", reason and f": {reason}")


@dataclass(slots=True, eq=False)
class InputCount:
    """What servers cause within one outermost call: their requests for input, with those within the calls that its handlers make."""

    all: list[float] = field(default_factory=list)
    """When each came, on the event loop's clock, the oldest first."""
    model_calls: list[float] = field(default_factory=list)
    """Those of `all` that ask for the model."""
    own_calls: list[float] = field(default_factory=list)
    """When each tool of a server was called for an answer of the model: see `OwnTools`."""
    warnings: CountedWarnings = field(default_factory=CountedWarnings)
    """About those calls."""

    def take(self, methods: Sequence[str], limits: Limits, now: float) -> str | None:
        """Count requests that come at once, unless they exceed one of the *limits*: then its name is returned."""
        model_calls = methods.count(CREATE_MESSAGE)
        if len(self.all) + len(methods) > limits.max_inputs:
            return "max_inputs"
        if model_calls and len(self.model_calls) + model_calls > limits.max_model_calls:
            return "max_model_calls"
        self.all.extend([now] * len(methods))
        self.model_calls.extend([now] * model_calls)
        return None

    def take_own_calls(self, calls: int, most: float, now: float) -> bool:
        """Count calls of a server's tools that are made at once, unless there would be more than *most*: then False."""
        if len(self.own_calls) + calls > most:
            return False
        self.own_calls.extend([now] * calls)
        return True

    def forget_until(self, when: float) -> None:
        for times in (self.all, self.model_calls, self.own_calls):
            if forgotten := bisect_right(times, when):
                del times[:forgotten]
                self.warnings.clear()


class HandlerScope:
    """Marks what runs inside, and the tasks started there, as code of the application that a request or a call waits for.

    *nesting* is the number of handlers within each other, *inputs* counts what servers ask within the calls made
    inside, and *slot* is the one that a handler of sampling or elicitation runs in. All are by default those of the scope around this
    one. *client* is a key of the client that makes a request by itself, if its middleware runs inside.
    """

    __slots__ = ("_token", "client", "ended", "inputs", "nesting", "outer", "slot")

    def __init__(
        self,
        *,
        nesting: int | None = None,
        inputs: InputCount | None = None,
        slot: object = None,
        client: object = None,
    ) -> None:
        self.nesting: int = nesting or 0
        self.inputs: InputCount | None = inputs
        self.slot: object = slot
        self.client: object = client
        self.ended: bool = False
        self._token: Token[HandlerScope | None]
        outer = current_handler.get()
        while outer is not None and outer.ended:
            outer = outer.outer
        self.outer: HandlerScope | None = outer
        if outer is not None:
            if nesting is None:
                self.nesting = outer.nesting
            if inputs is None:
                self.inputs = outer.inputs
            if slot is None:
                self.slot = outer.slot

    def __enter__(self) -> None:
        self._token = current_handler.set(self)

    def __exit__(self, *_: object) -> None:
        self.ended = True  # also for the tasks that were started inside and still run
        current_handler.reset(self._token)


current_handler: ContextVar[HandlerScope | None] = ContextVar("mcp_host.handler", default=None)
"""The innermost scope that the caller runs in. It may have ended, if the caller is a task that outlived its handler."""


def in_handler() -> bool:
    """Whether the caller runs in a handler of the application, or in a task that a running handler has started.

    A call made there must not wait for other calls to end: one of them may be waiting for this handler.
    """
    scope = current_handler.get()
    return scope is not None and not scope.ended


def in_middleware_of(client: object) -> bool:
    """Whether the caller runs in the middleware around a request that *client* makes by itself.

    So does a task that this middleware has started, until the request has ended.
    """
    scope = current_handler.get()
    while scope is not None and (scope.ended or scope.client is not client):
        scope = scope.outer
    return scope is not None


async def wait_for_thread() -> Callable[[], None]:
    """Wait for one of `MAX_THREADS`.

    Anyio's default limiter belongs to the host, and on asyncio it does not count threads that were left behind.
    """
    try:
        limiter = _threads.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _threads.set(limiter)
    thread = object()
    await limiter.acquire_on_behalf_of(thread)
    return partial(Loop.running().call_soon, partial(limiter.release_on_behalf_of, thread))


_threads: RunVar[CapacityLimiter] = RunVar("mcp_host.threads")  # a limiter is bound to an event loop


@overload
def as_async(
    function: Callable[P, Awaitable[T]], *, argument: str, shape: str | None = None, before_thread: BeforeThread = ...
) -> Callable[P, Awaitable[T]]: ...
@overload
def as_async(
    function: Callable[P, Awaitable[T] | T],
    *,
    argument: str,
    shape: str | None = None,
    before_thread: BeforeThread = ...,
) -> Callable[P, Awaitable[T]]: ...
def as_async(
    function: Callable[P, Awaitable[T] | T],
    *,
    argument: str,
    shape: str | None = None,
    before_thread: BeforeThread = wait_for_thread,
) -> Callable[P, Awaitable[T]]:
    """*function* itself if it is async, else an async function that calls it in a thread.

    The thread has the context variables of the caller. A thread cannot be cancelled: if the
    caller is, the thread is left behind, and what it returns or raises is lost. If the function returns an
    awaitable, it is awaited in the event loop: a lambda does not show that it calls a coroutine function.

    *before_thread* counts the threads, including those left behind. The default waits for one of `MAX_THREADS`.

    Raises:
        TypeError: *function* cannot be called, or not with one argument, see `check_callable`.
    """
    check_callable(function, argument=argument, shape=shape)
    if is_async(function):
        return function

    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        # Popped by the thread when it begins, or here when the wait ends. On asyncio a thread that was left behind
        # may never begin; one that finds the list empty does not call the function.
        ends = [await before_thread()]

        def call() -> list[Awaitable[T] | T]:
            end = ends.pop()
            try:
                return [function(*args, **kwargs)]  # in a list, because trio refuses coroutines as results of threads
            finally:
                end()

        try:
            [returned] = await to_thread.run_sync(call, abandon_on_cancel=True, limiter=CapacityLimiter(1))
        finally:
            with suppress(IndexError):  # the thread has begun
                ends.pop()()
        return await returned if isawaitable(returned) else returned

    return in_thread


def check_callable(function: object, *, argument: str, shape: str | None) -> None:
    """Check that *function* can be called; with a *shape*, such as ``(line: str) -> None``, with one argument.

    Functions without a signature, such as some built-in ones, pass.

    Raises:
        TypeError: It cannot; the text names *argument* and shows its shape.
    """
    if not callable(function):
        raise TypeError(f"{argument} has to be a function, async or plain, not {type(function).__name__}")
    if isinstance(function, type):
        raise TypeError(f"{argument} is the class {function.__name__}: pass an object of it, or a function")
    if shape is None or _takes_one(function) or (found := inspected(function, follow_wrapped=False)) is None:
        return
    try:
        found.bind(None)
    except TypeError as exc:
        given = f"{getattr(function, '__name__', type(function).__name__)}({', '.join(found.parameters)})"
        raise TypeError(
            f"{argument} is called with one argument, so write `def {argument}{shape}`, not {given}: {exc}"
        ) from None


def check_plain(function: Callable[..., object], *, argument: str, shape: str | None) -> None:
    """Check that *function* is a plain one: it is called in the event loop and not awaited. *shape* as in `check_callable`.

    Raises:
        TypeError: It is not.
    """
    if not callable(function):
        raise TypeError(f"{argument} has to be a plain function, not {type(function).__name__}")
    check_callable(function, argument=argument, shape=shape)
    if is_async(function):
        raise TypeError(f"{argument} must be a plain function: it is not awaited")


def _takes_one(function: object) -> bool:
    """Whether *function* obviously takes one argument. `inspect` takes 10 µs, and each call may have a callback."""
    inner: object = getattr(function, "__func__", function)
    if not isinstance(inner, FunctionType):
        return False
    code = inner.__code__
    return code.co_argcount == 1 + (inner is not function) and not code.co_kwonlyargcount


def inspected(function: Callable[..., object], *, follow_wrapped: bool) -> Signature | None:
    """The signature of *function*, or with *follow_wrapped* of the function that it wraps; None if there is none."""
    try:
        if sys.version_info >= (3, 14):  # evaluates annotations here
            return signature(function, follow_wrapped=follow_wrapped, annotation_format=Format.FORWARDREF)
        return signature(function, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return None


def is_async(function: Callable[P, Awaitable[T] | T]) -> TypeGuard[Callable[P, Awaitable[T]]]:
    inner: object = function
    while isinstance(inner, partial):
        inner = inner.func
    return iscoroutinefunction(inner) or iscoroutinefunction(type(inner).__call__)


@coroutine
def in_context(context: Context, awaited: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await *awaited* in the task of the caller, with the variables of *context*. A task for it costs ten times as much."""
    resume: Callable[[Any], Any] = awaited.send
    value: Any = None
    while True:
        try:
            waits_for = context.run(resume, value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # it carries what a coroutine returns
        finally:
            value = None  # an exception's traceback refers to this frame, which must not refer to it
        try:
            resume, value = awaited.send, (yield waits_for)
        except BaseException as exc:
            resume, value = awaited.throw, exc


async def call_handler(handler: Callable[[], Awaitable[T]], *, subject: str, failed: str) -> T:
    """Await a handler in place, within a `HandlerScope` of the caller. What it raises is logged here, under *subject*.

    Raises:
        InputRefused: The handler raised it, in a task group or not, or it raised something else: then the server gets
            -32603 and *failed*, and `__cause__` is what was raised.
    """
    cancelled = cancellations()
    try:
        return await handler()
    except InputRefused:
        raise
    except BaseException as exc:
        error, other = split_failure(exc, cancelled)
        try:
            if error is None:
                raise
            if isinstance(error, ExceptionGroup) and error.split(InputRefused)[1] is None:
                raise first(error) from exc
            if isinstance(error, SamplingError):  # of a model or its provider: a traceback leads to no defect
                logger.error("%s: %s: %s: %s", subject, failed, type(error).__name__, error)
            else:
                logger.error("%s: %s", subject, failed, exc_info=error)
            raise (other or InputRefused(INTERNAL_ERROR, failed)) from exc
        finally:
            del error, other  # their tracebacks refer to this frame, which must not refer to them


async def call_callback(callback: Callable[[], Awaitable[None]], *, subject: str, failures: Failures) -> None:
    """Await a callback in place. What it raises is logged here, and goes nowhere else.

    *failures* count the equal ones, of which those are logged that are `worth_logging`: a server decides how many there are.
    """
    cancelled = cancellations()
    try:
        await callback()
    except BaseException as exc:
        error, other = split_failure(exc, cancelled)
        try:
            if error is None:
                raise
            failures[subject, type(error)] += 1
            if worth_logging(failures[subject, type(error)]):
                logger.error("%s failed", subject, exc_info=error)
            if other is not None:
                raise other from None
        finally:
            del error, other  # as above


def split_failure(exc: BaseException, cancelled: int) -> tuple[BaseException | None, BaseException | None]:
    """The failure of the application's code in *exc*, and what must be raised on, such as our own cancellation.

    *cancelled* is what `cancellations` returned before that code ran.

    `SystemExit` is a failure: a server's request must not end the host. So is the cancellation of a task that a
    handler awaited: raised on, it would end our task silently, without an answer. One of trio's task groups may raise
    both at once, where something fails on the way out of a cancellation.
    """
    if isinstance(exc, BaseExceptionGroup):
        return exc.split((Exception, SystemExit))
    failed = isinstance(exc, Exception | SystemExit) or (
        is_cancellation(exc) and not cancels_current_task(exc, cancelled)
    )
    return (exc, None) if failed else (None, exc)
