"""Calling the application's handlers."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from mcp_host.errors import InputRefused
from mcp_host.handlers import call_callback, call_handler


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

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await began.wait()
            tasks.cancel_scope.cancel()

    assert ended == ["handler"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_cancellation_of_a_task_that_the_handler_awaited_is_a_failure() -> None:
    """Only asyncio mixes it up with our own."""

    async def await_another() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    with anyio.fail_after(5), pytest.raises(InputRefused) as caught:
        await call_handler(await_another, subject="it", failed="no")

    assert (caught.value.code, str(caught.value)) == (-32603, "no")
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


async def test_a_handler_or_callback_that_exits_ends_no_host(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(InputRefused, match="no"):
        await call_handler(leave, subject="the handler", failed="no")
    await call_callback(leave, subject="the callback")

    assert "the handler: no" in caplog.text
    assert "the callback failed" in caplog.text


@pytest.mark.parametrize("errors", [[], [ZeroDivisionError("its text")]], ids=["no errors", "an error"])
async def test_what_a_group_holds_beside_errors_is_let_through_and_the_errors_are_logged(
    errors: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Trio's task groups raise both as one where something goes wrong on the way out of a cancellation."""

    async def fail() -> None:
        raise BaseExceptionGroup("both", [KeyboardInterrupt(), *errors])

    for call in (call_handler(fail, subject="it", failed="no"), call_callback(fail, subject="it")):
        caplog.clear()
        with pytest.raises(BaseExceptionGroup) as caught:
            await call
        assert list(map(type, caught.value.exceptions)) == [KeyboardInterrupt]
        assert ("its text" in caplog.text) == bool(errors)
