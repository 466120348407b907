"""Threads that do not keep the process alive. (That they do not: `tests/terminal/test_browser.py`.)"""

from __future__ import annotations

import threading

import anyio
import pytest

from mcp_host.concurrency.threads import run_in_daemon


async def test_what_the_function_returns_or_raises_comes_back() -> None:
    with anyio.fail_after(25):
        assert await run_in_daemon(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await run_in_daemon(divmod, 7, 0)


async def test_a_caller_that_is_cancelled_does_not_wait() -> None:
    go = threading.Event()

    with anyio.move_on_after(0) as scope:
        await run_in_daemon(go.wait)
    go.set()

    assert scope.cancelled_caught
