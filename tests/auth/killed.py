"""``python -m tests.auth.killed file|keyring PLACE STEP``: kill a process at each line of a change, and print what is left.

For each change and each line of the code that makes it, a new process makes the change and kills itself with SIGKILL
before that line; with a STEP, at each STEPth line. Then another one prints ``[change, line, value, whether it could change the value]``. Processes are
forked, since a new Python takes a hundred times as long. So this process itself uses no store, and has no threads, but
it imports what a change imports: else each child would.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import anyio
import anyio._backends._asyncio
import keyring

import mcp_host.auth.storage.file_tokens
import mcp_host.concurrency.locked_file
import tests.auth.file_keyring
from mcp_host.auth.storage.stores import TokenStore
from tests.auth.rotating import KEY, open_store

OLD, NEW = "old" * 500, "new" * 700  # several entries of a keyring
CHANGES: dict[str, tuple[str | None, str | None]] = {
    "create": (None, NEW),
    "rotate": (OLD, NEW),
    "take": (OLD, None),
}
CODE = {
    "file": {mcp_host.auth.storage.file_tokens.__file__, mcp_host.concurrency.locked_file.__file__},
    "keyring": {tests.auth.file_keyring.__file__},  # what uses it may be killed between any two uses
}


def in_child(job: Callable[[], object]) -> bool:
    """Run *job* in a process; whether it has survived."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            job()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def kill_before(line: int, code: set[str]) -> None:
    """Kill this process before it runs the line of that number, counted from now on in threads, of the files *code*."""
    lines = iter(range(1, line))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in code:
            return None
        if event == "line" and next(lines, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)  # not for this thread, which only waits for the other


async def set_to(store: TokenStore, value: str | None) -> None:
    assert await store.swap(KEY, await store.load(KEY), value)


async def change(store: TokenStore, name: str) -> None:
    old, new = CHANGES[name]
    if name == "take":
        assert await store.take(KEY) == old
    else:
        assert await store.swap(KEY, old, new)


async def look(store: TokenStore, name: str, line: int) -> None:
    """Print what is left, and store the old value again."""
    value = await store.load(KEY)
    goes_on = await store.swap(KEY, value, "it goes on") and await store.swap(KEY, "it goes on", CHANGES[name][0])
    print(json.dumps([name, line, value, goes_on]), flush=True)


def main(kind: str, place: str, step: str) -> None:
    store = open_store(kind, place)
    keyring.get_keyring()  # tries all that are installed

    def change_until(line: int, name: str) -> None:
        kill_before(line, CODE[kind])
        anyio.run(change, store, name)

    for name, (old, _) in CHANGES.items():
        assert in_child(partial(anyio.run, set_to, store, old))
        line, survived = 1 - int(step), False
        while not survived:
            line += int(step)
            survived = in_child(partial(change_until, line, name))
            assert in_child(partial(anyio.run, look, store, name, line))
    assert in_child(partial(anyio.run, set_to, store, None))


if __name__ == "__main__":
    main(*sys.argv[1:])
