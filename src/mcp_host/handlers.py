"""Calling the application's code: what a handler or a callback raises stays on our side, and ends nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from inspect import Signature, isawaitable, iscoroutinefunction, signature
from types import FunctionType
from typing import ParamSpec, TypeAlias, TypeGuard, TypeVar, overload

from anyio import CapacityLimiter, get_cancelled_exc_class, to_thread
from anyio.lowlevel import RunVar, current_token

from mcp_host.concurrency import call_soon
from mcp_host.errors import InputRefused
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR

if sys.version_info >= (3, 14):  # pragma: no cover
    from annotationlib import Format

P = ParamSpec("P")
T = TypeVar("T")
Group: TypeAlias = BaseExceptionGroup[BaseException]
Hold: TypeAlias = Callable[[], Awaitable[Callable[[], None]]]
"""Waits until a thread may begin. Returns a function that is called once, in any thread, when that thread has ended."""

MAX_THREADS = 256  # in one event loop, for all plain functions but those of sampling; most of them wait for a person

logger = logging.getLogger(__name__)


class HandlerScope:
    """Marks what runs inside as code of the application's that a request or a call waits for: see `in_handler`."""

    __slots__ = ("_ended", "_token")

    def __init__(self) -> None:
        self._ended = False
        self._token: Token[HandlerScope | None]

    @property
    def ended(self) -> bool:
        return self._ended

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *_: object) -> None:
        self._ended = True  # also for the tasks that were started inside and still run
        _current.reset(self._token)


_current: ContextVar[HandlerScope | None] = ContextVar("mcp_host.handler", default=None)


def in_handler() -> bool:
    """Whether the caller runs in a handler of the application's, or in a task that one has started.

    A call made there must not wait for other calls to end: one of them may be waiting for this very handler.
    False again as soon as the handler has ended.
    """
    scope = _current.get()
    return scope is not None and not scope.ended


async def _hold_thread() -> Callable[[], None]:
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
    return partial(call_soon, current_token(), partial(limiter.release_on_behalf_of, thread))


_threads: RunVar[CapacityLimiter] = RunVar("mcp_host.threads")  # one to an event loop, which a limiter is bound to


@overload
def as_async(
    function: Callable[P, Awaitable[T]], *, argument: str, shape: str | None = None, hold: Hold = ...
) -> Callable[P, Awaitable[T]]: ...
@overload
def as_async(
    function: Callable[P, Awaitable[T] | T], *, argument: str, shape: str | None = None, hold: Hold = ...
) -> Callable[P, Awaitable[T]]: ...
def as_async(
    function: Callable[P, Awaitable[T] | T], *, argument: str, shape: str | None = None, hold: Hold = _hold_thread
) -> Callable[P, Awaitable[T]]:
    """*function* itself if it is async, else an async function that calls it in a thread.

    The thread has the context variables of whoever waits. A thread cannot be cancelled: when the
    wait is, it is left behind, and what it returns or raises is lost. What is returned there and can be
    awaited is awaited in the event loop: a lambda does not tell that it calls a coroutine function.

    *hold* bounds the number of threads, including those left behind. The default is `MAX_THREADS`.

    Raises:
        TypeError: It cannot be called, or not as *shape* says, see `check_callable`.
    """
    check_callable(function, argument=argument, shape=shape)
    if is_async(function):
        return function

    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        # Taken by the thread when it begins, or by us when we stop waiting. On asyncio a thread that was left behind
        # may never begin; one that finds nothing here does not call the function.
        ends = [await hold()]

        def call() -> list[Awaitable[T] | T]:
            end = ends.pop()
            try:
                return [function(*args, **kwargs)]  # a list, for trio takes no coroutine out of a thread
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
    """Make sure that *function* can be called; with a *shape*, such as ``(line: str) -> None``, with one argument.

    What cannot be inspected, such as some built-in functions, is let through.

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


def _takes_one(function: object) -> bool:
    """Whether *function* clearly takes one argument: `inspect` takes 10 us, and each call may bring a callback."""
    inner: object = getattr(function, "__func__", function)
    if not isinstance(inner, FunctionType):
        return False
    code = inner.__code__
    return code.co_argcount == 1 + (inner is not function) and not code.co_kwonlyargcount


def inspected(function: Callable[..., object], *, follow_wrapped: bool) -> Signature | None:
    """The signature of *function*, or with *follow_wrapped* of what it is wrapped around; None if there is none."""
    try:
        if sys.version_info >= (3, 14):  # pragma: no cover  # where annotations are evaluated only now
            return signature(function, follow_wrapped=follow_wrapped, annotation_format=Format.FORWARDREF)
        return signature(function, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return None


def is_async(function: Callable[P, Awaitable[T] | T]) -> TypeGuard[Callable[P, Awaitable[T]]]:
    inner: object = function
    while isinstance(inner, partial):
        inner = inner.func
    return iscoroutinefunction(inner) or iscoroutinefunction(type(inner).__call__)


async def call_handler(handler: Callable[[], Awaitable[T]], *, subject: str, failed: str) -> T:
    """Await a handler in place. What it raises is logged here in full, under *subject*.

    Raises:
        InputRefused: The handler raised it itself, or anything else: then the server is
            told -32603 and *failed*, and `__cause__` is what was raised.
    """
    try:
        with HandlerScope():
            return await handler()
    except InputRefused:
        raise
    except (Exception, SystemExit) as exc:  # a request of a server's is no way to end the host
        raise _hidden(exc, subject, failed) from exc
    except BaseExceptionGroup as group:
        errors, others = _split(group)
        if errors is None:
            raise
        refusal = _hidden(errors, subject, failed)
        raise (others or refusal) from group
    except get_cancelled_exc_class() as exc:
        if _cancelled_us(exc):
            raise
        raise _hidden(exc, subject, failed) from exc


async def call_callback(callback: Callable[[], Awaitable[None]], *, subject: str) -> None:
    """Await a callback in place, for nobody who waits. What it raises is logged here, and goes nowhere else."""
    try:
        await callback()
    except (Exception, SystemExit):
        logger.exception("%s failed", subject)
    except BaseExceptionGroup as group:
        errors, others = _split(group)
        if errors is not None:
            logger.error("%s failed", subject, exc_info=errors)
        if others is not None:
            raise others from None
    except get_cancelled_exc_class() as exc:
        if _cancelled_us(exc):
            raise
        logger.exception("%s failed", subject)


def _hidden(exc: BaseException, subject: str, failed: str) -> InputRefused:
    logger.error("%s: %s", subject, failed, exc_info=exc)
    return InputRefused(INTERNAL_ERROR, failed)


def _split(group: Group) -> tuple[Group | None, Group | None]:
    """What went wrong in the application's own tasks, and what a handler must let through.

    A task group of trio's that was cancelled, and in which something went wrong on the way out, raises both as one.
    """
    return group.split((Exception, SystemExit))


def _cancelled_us(exc: BaseException) -> bool:
    """Whether *exc* is our own cancellation, and not that of a task which the handler awaited.

    Only asyncio mixes the two up. Passed on, the latter would end our task in silence: no answer sent, or the whole connection gone.
    """
    task = asyncio.current_task() if isinstance(exc, asyncio.CancelledError) else None
    return task is None or task.cancelling() > 0
