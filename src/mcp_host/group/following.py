"""Following the files of a group: when they change, what that means for their servers, and what stays as it is."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from anyio import Event, create_task_group, sleep_forever

from mcp_host.concurrency.tasks import bare
from mcp_host.config import ServerEntry
from mcp_host.errors import ConfigError
from mcp_host.group.file_server import FileServer, ServerFiles
from mcp_host.handlers import as_async, check_callable

WatchFiles: TypeAlias = Callable[[Sequence[Path], Callable[[], Awaitable[None]]], Awaitable[None]]
"""Awaits the function that it gets each time that one of these files may have changed, until it is cancelled."""

NEEDS_WATCHFILES = "watch=True needs watchfiles: pip install 'mcp-host[watch]'"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Difference:
    """What has changed between two readings of the files. All other servers are as they were."""

    removed: tuple[str, ...] = ()
    started: tuple[FileServer, ...] = ()
    """Those that are new, or not what they were."""
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


def difference(old: Mapping[str, FileServer], new: Mapping[str, FileServer]) -> Difference:
    """What has changed from *old* to *new*. What an entry says for people only, or is not obeyed, changes no server."""
    same = {name for name, server in new.items() if name in old and _obeyed(server.entry) == _obeyed(old[name].entry)}
    return Difference(
        removed=tuple(name for name in old if name not in new),
        started=tuple(server for name, server in new.items() if name not in same),
        enabled=tuple(name for name in new if name in same and new[name].enabled > old[name].enabled),
        disabled=tuple(name for name in new if name in same and new[name].enabled < old[name].enabled),
    )


def _obeyed(entry: ServerEntry) -> ServerEntry:
    """What of *entry* decides what runs, besides whether it is enabled. Of its dialect that is in the other parts."""
    source = replace(entry.source, dialect="")
    return replace(entry, source=source, enabled=True, digest="", warnings=(), title=None, description=None)


class FollowedFiles:
    """The files of a group, and what was read of them last. They are followed if there is a *watch*."""

    def __init__(self, files: ServerFiles, watch: WatchFiles | None, grace: float) -> None:
        self.grace = grace
        self._files = files
        self._watch = watch
        self._problem: str | None = None
        self.servers, self._warnings = files.read()

    @property
    def warnings(self) -> list[str]:
        """What is wrong in the files besides their servers, and why they could not be read last."""
        return self._warnings if self._problem is None else [*self._warnings, self._problem]

    async def follow(self, take: Callable[[Difference], None]) -> None:
        """Read the files now and after each change, and *take* what has changed, until this is cancelled."""
        if self._watch is None:
            return
        try:
            await self._read_again(take)
            await self._watch(self._files.paths, partial(self._read_again, take))
        except Exception as exc:  # of the system, which cannot watch so many files, say: the servers go on
            error = bare(exc)
            logger.error("the files of servers are not followed any more", exc_info=error)
            self._problem = f"the files of servers are not followed any more: {type(error).__name__}: {error}"

    async def _read_again(self, take: Callable[[Difference], None]) -> None:
        """Read the files. If one of them cannot be read, which an editor may be writing, all stays as it is."""
        try:
            servers, self._warnings = await as_async(partial(self._files.read, again=True), argument="read")()
        except ConfigError as exc:
            problem = f"{exc}: all servers stay as they are"
            if problem != self._problem:
                logger.warning("%s", problem)
            self._problem = problem
            return
        self._problem = None
        last, self.servers = self.servers, servers
        take(difference(last, servers))


def watcher(watch: bool | WatchFiles) -> WatchFiles | None:
    """What tells of changes.

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
    """Follow these files with watchfiles. It is their folders that are watched: editors put another file in the place of one.

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
