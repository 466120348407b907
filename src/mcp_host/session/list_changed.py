"""Handing over whole lists after the server has changed them. Imported only if there is a callback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeAlias, TypeVar

from anyio import current_time, sleep

from mcp_host.concurrency.synchronization import Event
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import NotAdvertised
from mcp_host.handlers import Failures, as_async, call_callback
from mcp_host.limits import check_seconds
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.types import Prompt, Resource, ResourceTemplate, Tool

T = TypeVar("T")
OnList: TypeAlias = Callable[[list[T]], Awaitable[None] | None]
WeakList: TypeAlias = Callable[[], Callable[[], Awaitable[Sequence[object]]] | None]
"""A weak reference to a method that lists."""

AFFECTED: Mapping[str, tuple[str, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resource_templates"),
}
"""The lists that a notification is about."""

CAPABILITY = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resource_templates": "resources"}
"""The server capability that each list belongs to."""

LONGEST_PAUSE = (
    60.0  # seconds before a list is listed that was announced as changed, and has not changed for some times
)
UNCHANGED = (
    5  # such times in a row before a warning: some servers announce a change whenever they are asked for the list
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChanged:
    """Callbacks that get a whole list whenever the server has changed it: ``ListChanged(tools=show)``.

    Each gets a list of `Tool`, `Prompt`, `Resource` or `ResourceTemplate`, as the client's own `list_...` returns it.
    It may be async; a plain function runs in a thread.

    A list is listed *delay* seconds after the first sign of a change, so several changes in that time are one,
    and a server that keeps announcing changes causes no more than one listing at a time. If the list has not changed, the
    next one comes later, by up to a minute, until there was no announcement for as long. After a reconnect, or a gap in
    the stream of changes, the lists are handed over as well. If listing fails, a line in `Client.warnings` says so.

    Raises:
        TypeError, ValueError: There is no callback, or an argument is something else.
    """

    tools: OnList[Tool] | None = None
    prompts: OnList[Prompt] | None = None
    resources: OnList[Resource] | None = None
    resource_templates: OnList[ResourceTemplate] | None = None
    delay: float = 0.3

    callbacks: Mapping[str, Callable[[Any], Awaitable[None]]] = field(init=False, repr=False, compare=False)
    """By the name of the list."""

    def __post_init__(self) -> None:
        check_seconds("delay", self.delay)
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name in CAPABILITY}
        callbacks = {
            name: as_async(callback, argument=name, shape=f"({name}: list) -> None")
            for name, callback in given.items()
            if callback is not None
        }
        if not callbacks:
            raise TypeError(f"ListChanged takes a callback for at least one of {', '.join(CAPABILITY)}")
        object.__setattr__(self, "callbacks", callbacks)


class ListWatcher:
    """Lists what has changed and hands it over, for one client, over all its connections.

    *lists* refers to the client's methods. A connection must not keep the client alive.
    """

    def __init__(self, wanted: ListChanged, lists: Mapping[str, WeakList], warn: Callable[[str], None]) -> None:
        self.capabilities: Collection[str] = {CAPABILITY[name] for name in wanted.callbacks}
        """The server capabilities whose lists are wanted."""
        self._wanted = wanted
        self._lists = lists
        self._warn = warn
        self._connected = False
        self._failures: Failures = Counter()
        self._changed = {name: Event() for name in wanted.callbacks}

    def start(self, handlers: HandlerTasks) -> None:
        """List and hand over until *handlers* are cancelled, in one task for each list: one may be slow."""
        for name, last in self._changed.items():
            self._changed[name] = changed = Event()  # the last one may belong to another event loop
            if last.is_set():
                changed.set()
            handlers.start(partial(self._run, name))

    def notify(self, notification: Notification) -> None:
        """Take a notification of the server."""
        for name in AFFECTED.get(notification.method, ()):
            if name in self._changed:
                self._changed[name].set()

    def connected(self, capabilities: Collection[str]) -> None:
        """A session begins with a server of these *capabilities*: what an earlier one has listed may be outdated."""
        if self._connected:
            self.missed(capabilities)
        self._connected = True

    def missed(self, capabilities: Collection[str]) -> None:
        """Changes may have been missed."""
        for name, changed in self._changed.items():
            if CAPABILITY[name] in capabilities:
                changed.set()

    async def _run(self, name: str) -> None:
        backoff = Backoff(max_delay=LONGEST_PAUSE, max_failures=UNCHANGED)
        last: Sequence[object] | None = None
        while True:
            listed_at = current_time()
            await self._changed[name].wait()
            if current_time() - listed_at > LONGEST_PAUSE:
                backoff.reset()
            await sleep(backoff.delay(self._wanted.delay) if backoff.failures else self._wanted.delay)
            self._changed[name] = Event()  # a change during the listing leads to one more
            items = await self._hand_over(name)
            if items is None or items == last:
                backoff.fail()
            else:
                backoff.reset()
            if items is not None and backoff.failures == UNCHANGED:
                self._warn(
                    f"the {_words(name)} have not changed, though it keeps saying so: they are listed less often"
                )
            last = items

    async def _hand_over(self, name: str) -> Sequence[object] | None:
        """The list that was handed over; None if there is none."""
        if (listed := self._lists[name]()) is None:
            return None  # the application has dropped the client
        try:
            items = await listed()
        except NotAdvertised:
            return None  # the server does not have such a list
        except Exception as exc:  # of middleware, too
            self._warn(f"the {_words(name)} have changed, and could not be listed: {exc}")
            return None
        callback = partial(self._wanted.callbacks[name], items)
        await call_callback(callback, subject=f"ListChanged.{name}", failures=self._failures)
        return items


def _words(name: str) -> str:
    return name.replace("_", " ")
