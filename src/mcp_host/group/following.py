"""Reporting changes of a group's files, with watchfiles or a function of the application."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias

from anyio import Event, create_task_group, sleep_forever

from mcp_host.handlers import check_callable

WatchFiles: TypeAlias = Callable[[Sequence[Path], Callable[[], Awaitable[None]]], Awaitable[None]]
"""Awaits the function that it gets each time that one of these files may have changed, until it is cancelled."""

NEEDS_WATCHFILES = "watch=True needs watchfiles: pip install 'mcp-host[watch]'"


def watcher(watch: bool | WatchFiles) -> WatchFiles | None:
    """The function that reports changes.

    Raises:
        TypeError: *watch* is neither True or False nor a function.
        ImportError: watchfiles is not installed.
    """
    if not isinstance(watch, bool):
        check_callable(watch, argument="watch", shape=None)
        return watch
    if not watch:
        return None
    try:
        import watchfiles  # noqa: F401  # so that it is missed before the group is opened
    except ImportError as exc:
        raise ImportError(NEEDS_WATCHFILES) from exc
    return watch_files


async def watch_files(paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
    """Follow these files with watchfiles. It watches their folders, because editors replace a file by another one.

    Where a link leads elsewhere after a change, what it leads to is watched from then on.
    """
    from watchfiles import awatch

    stop = Event()

    async def watch() -> None:
        while not stop.is_set():
            await watch_until_moved(_watched(paths))

    async def watch_until_moved(files: set[str]) -> None:
        def concerns(_: object, path: str) -> bool:
            return path in files or _watched(paths) != files  # it may be a link on the way to one of them

        folders = {os.path.dirname(file) for file in files}
        async with aclosing(awatch(*folders, watch_filter=concerns, recursive=False, stop_event=stop)) as changes:
            async for _ in changes:
                await changed()
                if _watched(paths) != files:
                    break

    async with create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            await sleep_forever()
        finally:
            stop.set()  # for its thread, which a cancellation would wait for


def _watched(paths: Sequence[Path]) -> set[str]:
    """The files that are watched. Of a link, a change of what it leads to counts as well, unless its folder is not there."""
    targets = {target for target in map(os.path.realpath, paths) if os.path.isdir(os.path.dirname(target))}
    return {str(path.absolute()) for path in paths} | targets
