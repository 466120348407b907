"""One server of a group: its client, which is kept connected, and the tools that it has listed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from anyio import CancelScope, Event, current_time, move_on_after
from anyio.abc import TaskGroup

from mcp_host.client.client import Client
from mcp_host.concurrency.asking import unattended
from mcp_host.errors import AuthError, McpError, NotAdvertised, ServerError, Unauthorized, quoted
from mcp_host.group.names import SEPARATOR, group_name
from mcp_host.group.status import ServerState, ServerStatus
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.conversation import runs_only_as_task
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND
from mcp_host.types import Tool

FIRST_PAUSE = 0.5  # seconds before a server that is down is tried again; longer each time
LONGEST_PAUSE = 60.0


class Member:
    """One server and its client. Between `start` and `stop` it is kept connected.

    *on_status* is called after each change of its status.
    """

    def __init__(self, name: str, client: Client, on_status: Callable[[ServerStatus], None]) -> None:
        self.name = name
        self.client = client
        self.status = ServerStatus(name=name, state="disabled", since=datetime.now(UTC))
        self.tools: dict[str, Tool] = {}
        """The tools of the last listing, by their names in the group."""
        self.server_names: dict[str, str] = {}
        """The names that the client knows, by those in the group."""
        self.prompt_names: dict[str, str] = {}
        """The same, of prompts."""
        self.warnings: list[str] = []
        self._on_status = on_status
        self._running: _Running | None = None
        self._retry = Event()
        self._calls = 0
        self._idle = Event()
        self._backoff = Backoff(max_failures=0, max_delay=LONGEST_PAUSE, min_delay=FIRST_PAUSE)

    @property
    def ready(self) -> bool:
        return self.status.state == "ready"

    @property
    def unavailable(self) -> str:
        """Why it is not `ready`."""
        reason = "" if self.status.error is None else f": {self.status.error}"
        return f"{self.name}: {self.status.state.replace('_', ' ')}{reason}"

    # Its connection

    def start(self, tasks: TaskGroup) -> None:
        """Connect, and connect again whenever the connection has ended, in a task of *tasks*."""
        if self._running is None:
            self._running = running = _Running()
            self._backoff.reset()
            self._change("connecting")
            tasks.start_soon(self._keep_connected, running)

    async def stop(self, grace: float = 0.0) -> None:
        """Refuse further calls, give those in flight *grace* seconds, and close the connection."""
        if (running := self._running) is None:
            return
        self._running = None
        self._change("disabled")
        with move_on_after(grace):
            while self._calls:
                self._idle = Event()
                await self._idle.wait()
        running.scope.cancel()
        await running.ended.wait()

    def try_again(self) -> None:
        """Connect now, and not after the rest of a pause."""
        self._backoff.reset()
        self._retry.set()

    async def _keep_connected(self, running: _Running) -> None:
        try:
            with running.scope, unattended():  # no browser opens by itself
                while True:
                    await self._connect_once(running)
        finally:
            with CancelScope(shield=True):  # bounded by `close_timeout`
                await self.client.aclose()
            running.ended.set()

    async def _connect_once(self, running: _Running) -> None:
        """Connect, and wait until the connection has ended or the attempt has failed, and until the next one is due."""
        self._retry = Event()
        try:
            await self.client.connect()
            self.take_tools(await self._list_tools())
        except McpError as exc:  # a server whose tools cannot be listed stays connected, and is asked again
            error = exc
            self._backoff.fail()
        else:
            if self._running is running:
                self._change("ready")
            connected_at = current_time()
            error = await self.client.wait_closed()
            self._backoff.ended(current_time() - connected_at)
        needs_login = isinstance(error, Unauthorized) or (isinstance(error, AuthError) and error.needs_login)
        if self._running is running:
            self._change("needs_login" if needs_login else "down", error=str(error))
        with move_on_after(math.inf if needs_login else self._backoff.delay(0.0)):
            await self._retry.wait()

    def _change(self, state: ServerState, *, error: str | None = None) -> None:
        status = replace(self.status, state=state, since=datetime.now(UTC), error=error or self.status.error)
        if state == "ready":
            restarts = status.restarts + (status.protocol_version is not None)
            version = self.client.protocol_version
            status = replace(status, protocol_version=version, tools=len(self.tools), restarts=restarts)
        self.status = status
        self._on_status(status)

    # Its tools

    async def _list_tools(self) -> list[Tool]:
        try:
            return await self.client.list_tools()
        except NotAdvertised:
            return []
        except ServerError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
            return []

    def take_tools(self, tools: list[Tool]) -> None:
        """Offer *tools* from now on. Those that cannot be called are left out, with a line in `warnings`."""
        offered: dict[str, Tool] = {}
        for tool in tools:
            name = group_name(self.name, tool.name)
            if runs_only_as_task(tool):
                self._leave_out(tool, "it runs only as a task")
                continue
            if (other := offered.get(name)) is not None:  # of the two, one is called so by its server
                tool, left_out = (tool, other) if name.endswith(tool.name) else (other, tool)
                self._leave_out(left_out, f"another tool has the name {quoted(name)}")
            offered[name] = tool
        self.server_names = {name: tool.name for name, tool in offered.items()}
        self.tools = {name: tool.model_copy(update={"name": name}) for name, tool in offered.items()}

    def _leave_out(self, tool: Tool, why: str) -> None:
        self.warn(f"the tool {quoted(tool.name)} is left out: {why}")

    def warn(self, text: str) -> None:
        if (warning := f"{self.name}: {text}") not in self.warnings:
            self.warnings.append(warning)

    def prompt_name(self, name: str) -> str:
        """The server's name of the prompt *name*, whether listed or not."""
        return self.prompt_names.get(name) or name.partition(SEPARATOR)[2]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """For the time of a call, whose end `stop` waits for."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()


class _Running:
    def __init__(self) -> None:
        self.scope = CancelScope()
        self.ended = Event()
