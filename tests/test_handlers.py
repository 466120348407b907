"""Calling the application's handlers, also in the context of a call."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context

import anyio
import anyio.from_thread
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Allow, Client, Elicitation, FormRequest, Sampling, SamplingLimits, SamplingRequest, always
from mcp_host.errors import InputRefused
from mcp_host.handlers import (
    HandlerScope,
    InputCount,
    as_async,
    call_callback,
    call_handler,
    current_handler,
    in_context,
    in_handler,
)
from mcp_host.testing import Context, Server
from mcp_host.types import CreateMessageResult, ElicitResult, ProgressNotificationParams
from tests.client.support import asking_server
from tests.extent import on_both

pytestmark = on_both


async def test_a_cancelled_handler_is_cancelled() -> None:
    began, ended = anyio.Event(), []

    async def wait() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("handler")

    async def call() -> None:
        await call_handler(wait, subject="it", failed="no")
        ended.append("call")

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await began.wait()
            tasks.cancel_scope.cancel()

    assert ended == ["handler"]


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("cancelled_before", [False, True])
async def test_the_cancellation_of_a_task_that_the_handler_awaited_is_a_failure(cancelled_before: bool) -> None:
    """Only asyncio mixes it up with our own, which a task may have survived before."""

    async def await_another() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    async def call() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await began.wait()
        await call_handler(await_another, subject="it", failed="no")

    began = asyncio.Event()
    calling = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    calling.cancel() if cancelled_before else began.set()
    with anyio.fail_after(25), pytest.raises(InputRefused) as caught:
        await calling

    assert (caught.value.code, str(caught.value)) == (-32603, "no")
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


async def test_a_coroutine_runs_in_another_context_within_the_task_that_awaits_it() -> None:
    var: ContextVar[str] = ContextVar("var", default="none")

    async def look() -> list[str]:
        seen = [var.get()]
        await checkpoint()
        var.set("changed")
        await checkpoint()
        return [*seen, var.get()]

    context = copy_context()
    context.run(var.set, "given")

    assert await in_context(context, look()) == ["given", "changed"]
    assert (var.get(), context[var]) == ("none", "changed")


async def test_errors_and_cancellations_pass_through_another_context() -> None:
    async def fail() -> None:
        await checkpoint()
        raise ZeroDivisionError

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("cancelled")

    steps: list[str] = []
    with pytest.raises(ZeroDivisionError):
        await in_context(copy_context(), fail())
    with anyio.move_on_after(0) as scope:
        await in_context(copy_context(), wait())

    assert scope.cancelled_caught
    assert steps == ["cancelled"]


async def test_a_cancelled_handler_leaves_no_cycle_that_would_keep_its_variables() -> None:
    class Variable:
        pass

    kept: list[weakref.ref[Variable]] = []

    async def handler() -> None:
        variable = Variable()
        kept.append(weakref.ref(variable))
        await anyio.sleep_forever()

    async def in_another_context() -> None:
        await in_context(copy_context(), handler())

    async def cancelled(call: Callable[[], Awaitable[None]]) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await call()

    gc.collect()
    gc.disable()
    try:
        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancelled, lambda: call_handler(handler, subject="it", failed="no"))
                tasks.start_soon(cancelled, lambda: call_callback(handler, subject="it", failures=Counter()))
                tasks.start_soon(cancelled, in_another_context)
    finally:
        gc.enable()

    assert [variable() for variable in kept] == [None, None, None]


async def test_a_handler_or_callback_that_exits_does_not_end_the_host(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(InputRefused, match="no"):
        await call_handler(leave, subject="the handler", failed="no")
    await call_callback(leave, subject="the callback", failures=Counter())

    assert "the handler: no" in caplog.text
    assert "the callback failed" in caplog.text


@pytest.mark.parametrize("errors", [[], [ZeroDivisionError("its text")]], ids=["no errors", "an error"])
async def test_errors_in_a_group_are_logged_and_the_rest_of_the_group_is_raised(
    errors: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Trio's task groups raise both as one where something goes wrong on the way out of a cancellation."""

    async def fail() -> None:
        raise BaseExceptionGroup("both", [KeyboardInterrupt(), *errors])

    calls = [
        (call_handler(fail, subject="it", failed="no"), "it: no"),
        (call_callback(fail, subject="it", failures=Counter()), "it failed"),
    ]
    for call, words in calls:
        caplog.clear()
        with pytest.raises(BaseExceptionGroup) as caught:
            await call
        assert list(map(type, caught.value.exceptions)) == [KeyboardInterrupt]
        assert ("its text" in caplog.text) == bool(errors)
        assert [record.getMessage() for record in caplog.records] == ([words] if errors else [])


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_in_handler_is_true_in_every_handler_that_a_call_waits_for_and_nowhere_else(version: str) -> None:
    server = Server("asker", versions=[version])
    seen: dict[str, bool] = {}

    @server.tool
    async def ask_everything(ctx: Context) -> str:
        await ctx.report_progress(1)
        await ctx.sample("capital?")
        await ctx.elicit("sure?", {"type": "object", "properties": {}})
        await ctx.list_roots()
        return "done"

    async def approve(request: SamplingRequest) -> Allow:
        seen["approver"] = in_handler()
        return Allow()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_a_task)
        seen["model"] = in_handler()
        return request.reply("Paris")

    async def in_a_task() -> None:
        seen["task of the model"] = in_handler()

    async def form(request: FormRequest) -> ElicitResult:
        seen["form"] = in_handler()
        return request.decline()

    async def roots() -> list[str]:
        seen["roots"] = in_handler()
        return []

    async def on_progress(report: ProgressNotificationParams) -> None:
        seen["progress"] = in_handler()

    with anyio.fail_after(25):
        async with Client(
            server.in_process(),
            sampling=Sampling(with_tools=model, approve=approve),
            elicitation=Elicitation(form=form),
            roots=roots,
        ) as client:
            await client.call_tool("ask_everything", on_progress=on_progress)
            seen["caller"] = in_handler()

    handlers = ["approver", "model", "task of the model", "form", "roots", "progress"]
    assert seen == dict.fromkeys(handlers, True) | {"caller": False}


async def test_a_task_that_outlives_its_handler_is_not_in_a_handler() -> None:
    async def start_a_task() -> None:
        tasks.start_soon(look)
        await looked.wait()

    async def look() -> None:
        seen.append(in_handler())
        looked.set()
        await ended.wait()
        seen.append(in_handler())

    seen: list[bool] = []
    looked, ended = anyio.Event(), anyio.Event()
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            with HandlerScope():
                await start_a_task()
            assert not in_handler()
            ended.set()

    assert seen == [True, False]


async def test_a_scope_has_the_nesting_the_count_and_the_slot_of_the_scope_around_it_unless_that_has_ended() -> None:
    async def look() -> None:
        await ended.wait()
        with HandlerScope():
            seen.append(current_handler.get())

    seen: list[HandlerScope | None] = []
    inputs, others = InputCount(), InputCount()
    ended = anyio.Event()
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            with HandlerScope(nesting=2, inputs=inputs, slot="slot"):
                tasks.start_soon(look)
                with HandlerScope():
                    seen.append(current_handler.get())
                with HandlerScope(nesting=0, inputs=others, slot="other"):
                    seen.append(current_handler.get())
            ended.set()

    assert [(scope.nesting, scope.inputs, scope.slot) for scope in seen if scope] == [
        (2, inputs, "slot"),
        (0, others, "other"),
        (0, None, None),
    ]


# Plain functions


class AsyncCallable:
    async def __call__(self, words: str) -> str:
        return f"{words} in {threading.current_thread().name}"

    async def method(self, words: str) -> str:
        return await self(words)


class PlainCallable:
    def __call__(self, words: str) -> str:
        return f"{words} in {threading.current_thread().name}"

    def method(self, words: str) -> str:
        return self(words)


async def async_function(words: str) -> str:
    return await AsyncCallable()(words)


def plain_function(words: str) -> str:
    return PlainCallable()(words)


@pytest.mark.parametrize(
    "function",
    [
        async_function,
        AsyncCallable(),
        AsyncCallable().method,
        functools.partial(async_function),
        functools.partial(functools.partial(AsyncCallable())),
    ],
    ids=["function", "object", "method", "partial", "partial of a partial of an object"],
)
async def test_async_functions_are_called_directly(function: Callable[[str], Awaitable[str]]) -> None:
    assert as_async(function, argument="it") is function
    assert await as_async(function, argument="it")("called") == f"called in {threading.current_thread().name}"


@pytest.mark.parametrize(
    "function",
    [
        plain_function,
        PlainCallable(),
        PlainCallable().method,
        functools.partial(plain_function),
        lambda words: plain_function(words),
    ],
    ids=["function", "object", "method", "partial", "lambda"],
)
async def test_plain_functions_run_in_a_thread(function: Callable[[str], str]) -> None:
    with anyio.fail_after(25):
        name = (await as_async(function, argument="it")("called")).removeprefix("called in ")

    assert name != threading.current_thread().name


async def test_an_awaitable_returned_by_a_plain_function_is_awaited_in_the_event_loop() -> None:
    """A lambda or a decorator does not tell that it stands before a coroutine function."""
    with anyio.fail_after(25):
        said = await as_async(lambda words: async_function(words), argument="it")("called")

    assert said == f"called in {threading.current_thread().name}"


async def test_a_plain_function_sees_the_context_of_its_caller_who_gets_its_exception() -> None:
    who = ContextVar("who", default="nobody")
    who.set("the caller")

    def fail() -> str:
        raise LookupError(who.get())

    with anyio.fail_after(25), pytest.raises(LookupError, match=r"^the caller$"):
        await as_async(fail, argument="it")()


async def test_a_plain_function_that_is_cancelled_is_left_behind() -> None:
    began, released, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        released.wait()
        ended.set()

    async def wait() -> None:
        await as_async(block, argument="it")()

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.to_thread.run_sync(began.wait)
            tasks.cancel_scope.cancel()
        assert not ended.is_set()
        released.set()
        await anyio.to_thread.run_sync(ended.wait)


async def test_a_plain_function_that_is_cancelled_before_its_thread_begins_is_not_called() -> None:
    happened: list[str] = []

    async def before_thread() -> Callable[[], None]:
        happened.append("limited")
        return lambda: happened.append("ended")

    with anyio.fail_after(25), anyio.CancelScope() as scope:
        scope.cancel()
        await as_async(lambda: happened.append("called"), argument="it", before_thread=before_thread)()

    assert happened == ["limited", "ended"]


async def test_the_end_of_a_thread_is_reported_once_and_before_the_caller_continues() -> None:
    happened: list[str] = []

    async def before_thread() -> Callable[[], None]:
        return lambda: happened.append("ended")

    with anyio.fail_after(25):
        await as_async(lambda: happened.append("called"), argument="it", before_thread=before_thread)()
        happened.append("returned")

    assert happened == ["called", "ended", "returned"]


async def test_plain_functions_do_not_use_the_default_thread_limiter() -> None:
    began, released = threading.Event(), threading.Event()
    limiter = anyio.to_thread.current_default_thread_limiter()

    def block() -> None:
        began.set()
        released.wait()

    async def call() -> None:
        await as_async(block, argument="it")()

    try:
        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.to_thread.run_sync(began.wait, abandon_on_cancel=True)
                taken = limiter.borrowed_tokens
                released.set()
    finally:
        released.set()

    assert taken == 0


async def test_the_number_of_threads_is_limited_and_includes_those_left_behind() -> None:
    began, released, lock = threading.Semaphore(0), threading.Event(), threading.Lock()
    inside = [0, 0]  # now, and at most

    def block() -> None:
        with lock:
            inside[:] = [inside[0] + 1, max(inside[1], inside[0] + 1)]
        began.release()
        released.wait()
        with lock:
            inside[0] -= 1

    def all_began() -> None:
        for _ in range(256):
            began.acquire()

    async def call() -> None:
        await as_async(block, argument="it")()

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(256):
                    tasks.start_soon(call)
                await anyio.to_thread.run_sync(all_began, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                released.set()
    finally:
        released.set()

    assert inside[1] == 256


async def test_a_plain_handler_lends_its_slot_to_calls_from_its_thread() -> None:
    server = asking_server()

    def model(request: SamplingRequest) -> str:
        if request.messages[0].text == "outer":
            return f"outer of {anyio.from_thread.run(client.call_tool, 'ask', {'words': 'inner'}).text}"
        return "inner"

    limits = SamplingLimits(at_once=1, at_once_per_server=1)
    sampling = Sampling(with_tools=model, approve=always, limits=limits)
    with anyio.fail_after(25):
        async with Client(server.in_process(), sampling=sampling) as client:
            said = (await client.call_tool("ask", {"words": "outer"})).text

    assert said == "outer of inner"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_more_plain_handlers_than_default_threads_may_wait_for_calls_that_need_another(version: str) -> None:
    """Anyio's default is 40 threads. All of them would wait for a 41st."""
    server = asking_server(versions=[version])
    inside, all_inside = 0, anyio.Event()

    @server.tool
    async def inner(ctx: Context) -> str:
        nonlocal inside
        inside += 1
        if inside == 41:
            all_inside.set()
        await all_inside.wait()
        return (await ctx.sample("inner")).text

    def model(request: SamplingRequest) -> str:
        if request.messages[0].text == "outer":
            return anyio.from_thread.run(client.call_tool, "inner").text
        return "leaf"

    said: list[str] = []

    async def call() -> None:
        said.append((await client.call_tool("ask", {"words": "outer"})).text)

    with anyio.fail_after(30):
        async with (
            Client(server.in_process(), sampling=Sampling(with_tools=model, approve=always)) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(41):
                tasks.start_soon(call)

    assert said == ["leaf"] * 41


async def test_an_argument_that_cannot_be_called_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^with_tools has to be a function, async or plain, not int$"):
        as_async(3, argument="with_tools")  # type: ignore[call-overload]  # the mistake in question


# What cannot be called as it has to be


class NeedsTwo:
    async def __call__(self, words: str, more: str) -> str:
        return words + more


class OddSignature:
    """Something that `inspect` finds no signature for."""

    __signature__ = "none"

    async def __call__(self, words: str) -> str:
        return words


async def without_parameters() -> str:
    return "no words"


async def with_two(words: str, more: str) -> str:
    return words + more


async def with_a_keyword(words: str, *, more: str) -> str:
    return words + more


def wrapped(words: str) -> str:
    return words


wrapped.__wrapped__ = without_parameters  # type: ignore[attr-defined]  # as `functools.wraps` does

SHAPE = "(words: str) -> str"


@pytest.mark.parametrize(
    ("function", "given", "why"),
    [
        (without_parameters, "without_parameters()", "too many positional arguments"),
        (lambda: "no words", "<lambda>()", "too many positional arguments"),
        (with_two, "with_two(words, more)", "missing a required argument: 'more'"),
        (NeedsTwo(), "NeedsTwo(words, more)", "missing a required argument: 'more'"),
        (NeedsTwo().__call__, "__call__(words, more)", "missing a required argument: 'more'"),
        (PlainCallable.method, "method(self, words)", "missing a required argument: 'words'"),
        (with_a_keyword, "with_a_keyword(words, more)", "missing a required argument: 'more'"),
    ],
    ids=["no parameter", "lambda", "two", "object", "method", "function of a class", "keyword"],
)
async def test_a_function_that_does_not_take_one_argument_is_refused_with_its_signature(
    function: Callable[..., str], given: str, why: str
) -> None:
    with pytest.raises(TypeError) as refused:
        as_async(function, argument="with_words", shape=SHAPE)

    reason = str(refused.value).replace("keyword-only argument", "argument")  # as newer Pythons say
    assert reason == (
        f"with_words is called with one argument, so write `def with_words(words: str) -> str`, not {given}: {why}"
    )


@pytest.mark.parametrize("cls", [NeedsTwo, AsyncCallable, dict], ids=lambda cls: cls.__name__)
async def test_a_class_is_refused_as_a_handler(cls: type) -> None:
    with pytest.raises(
        TypeError, match=f"^with_words is the class {cls.__name__}: pass an object of it, or a function$"
    ):
        as_async(cls, argument="with_words")


async def test_functions_that_take_one_argument_or_cannot_be_inspected_are_accepted() -> None:
    async def result_of(function: Callable[..., str | Awaitable[str]]) -> str:
        with anyio.fail_after(25):
            return await as_async(function, argument="it", shape=SHAPE)("well")

    assert (await result_of(async_function)).startswith("well in ")
    assert (await result_of(AsyncCallable().method)).startswith("well in ")
    assert await result_of(functools.partial(with_two, more="!")) == "well!"
    assert await result_of(functools.partial(with_a_keyword, more="!")) == "well!"
    assert await result_of(lambda *words: words[0]) == "well"
    assert await result_of(lambda words, more="": words) == "well"
    assert await result_of(wrapped) == "well"
    assert await result_of(str.upper) == "WELL"
    assert await result_of(OddSignature()) == "well"
