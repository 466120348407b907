"""One server of a group: its client, which is kept connected, and the tools that it has listed."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope, current_time, get_cancelled_exc_class, move_on_after, sleep_forever
from anyio.abc import TaskGroup

from mcp_host.client.client import Client
from mcp_host.concurrency.asking import unattended
from mcp_host.concurrency.backends import cancels_current_task
from mcp_host.concurrency.synchronization import Event
from mcp_host.errors import (
    AuthError,
    CallerError,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    NotConnected,
    Unauthorized,
    escaped,
    quoted,
)
from mcp_host.group.clients import Clients
from mcp_host.group.names import SEPARATOR, group_name, may_be_shortened, own_names
from mcp_host.group.options import NotStarted, ServerOptions
from mcp_host.group.status import ServerState, ServerStatus, StatusChanges
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.conversation import runs_only_as_task
from mcp_host.protocol.jsonrpc import says_there_is_none
from mcp_host.session.list_changed import ListChanged
from mcp_host.types import Prompt, Tool

if TYPE_CHECKING:
    from mcp_host.group.file_server import FileServer
    from mcp_host.sampling.proposed_server import ProposedServer

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 0.5  # seconds before a server that is down is tried again; longer each time
LONGEST_PAUSE = 60.0
LISTED_AGAIN_AFTER = 30.0  # seconds: tools that are asked for are listed again, for servers that announce nothing
MAX_LISTED = 2_000  # tools of one server: more than any model takes, and named in a few milliseconds
MAX_WARNINGS = 100  # of one server; the last ones are kept
NOT_READY: Mapping[ServerState, str] = {
    "connecting": "is connecting",
    "down": "is down",
    "needs_login": "needs a login",
    "needs_consent": "has not been agreed to",
    "disabled": "is disabled",
}
NOT_OPEN = "the group is not open: use `async with`"
UNREACHABLE = (AuthError, ConnectionClosed, Unauthorized)  # errors after which a server that was ready is not, any more
GATEWAY_STATUSES = frozenset({502, 503, 504})  # of a gateway that does not reach its server


class Member:
    """One server and its client. Between `start` and `stop` it is kept connected.

    A call runs in ``with member``, which raises `NotConnected` if it is not ready.
    """

    def __init__(
        self,
        name: str,
        server: ServerOptions | FileServer,
        clients: Clients,
        changes: StatusChanges,
        *,
        enabled: bool | None = None,
    ) -> None:
        self.name = name
        self.enabled = server.enabled if enabled is None else enabled
        self.file_server = None if isinstance(server, ServerOptions) else server
        """What its file says of it; None if the application has added it."""
        self.client: Client | None = None
        """None before the first start of a server of a file: until then it is not known what it is."""
        self.preparing = False
        """Whether it is being asked about, or read from its file, before it is connected."""
        self.proposed: ProposedServer | None = None
        """What a person has to agree to before it is started."""
        self._clients = clients
        self._options = clients.pinned(server) if isinstance(server, ServerOptions) else None
        if self._options is not None:
            self.client = self._new_client(self._options)
        self._problem = None if self.file_server is None else self.file_server.problem
        """Why it cannot be started."""
        state: ServerState = "down" if self.enabled and self._problem is None else "disabled"
        self.status = ServerStatus(name=name, state=state, since=datetime.now(UTC), error=self._problem)
        self.ready = False
        self.instructions = ""
        """What the server says about its use."""
        self.tools: dict[str, Tool] = {}
        """The tools of the last listing, by their names in the group."""
        self.own_names: Mapping[str, str] = {}
        """The names that the client knows, by those in the group."""
        self.warnings: deque[str] = deque(maxlen=MAX_WARNINGS)
        self._prompt_names: Mapping[str, str] = {}
        self._changes = changes
        self._run: _Run | None = None
        self._waiting: CancelScope | None = None
        self._calls = 0
        self._idle: Event | None = None
        """Set by the last call that ends, while that is waited for."""
        self._backoff = Backoff(max_failures=0, max_delay=LONGEST_PAUSE, min_delay=FIRST_PAUSE)
        self._ready_at = self._listed_at = -math.inf
        self._useful = False
        """Whether a call has had a result since then."""

    def _new_client(self, options: ServerOptions) -> Client:
        return self._clients.new(self.name, options, ListChanged(tools=self._offer))

    # Its connection

    @property
    def running(self) -> bool:
        """Whether it is kept connected, or is being asked about."""
        return self._run is not None and not self._run.stopped

    def start(self, tasks: TaskGroup, context: Context) -> None:
        """Connect, and connect again whenever the connection has ended, in a task of *tasks*."""
        self.enabled = True
        last, self._run = self._run, _Run()
        self._backoff.reset()
        self._problem = None
        self.preparing = self.file_server is not None
        self._set("connecting")
        context.copy().run(tasks.start_soon, self._keep_connected, self._run, last)

    async def prepare(self) -> ServerOptions | None:
        """What `start` would connect, after the questions that it would ask. None if it cannot be started: its status says why."""
        if await self._prepared(_Run()) is None:
            return None
        self._set("down", quiet=True)
        return self._options

    async def disable(self, grace: float = 0.0, *, quiet: bool = False) -> None:
        """Refuse further calls, give those in flight *grace* seconds, and close the connection."""
        self.enabled = False
        self._problem = None
        self._set("disabled", quiet=quiet)
        if (run := self._run) is not None:
            await self._stop(run, grace)

    async def close(self) -> None:
        """Close the connection until the group is opened again."""
        if (run := self._run) is not None:
            if not run.stopped and self.status.state != "down":
                self.status = replace(self.status, error=None)  # the last one is not why it is down now
                self._set("down", quiet=True)
            await self._stop(run, 0.0)

    async def _stop(self, run: _Run, grace: float) -> None:
        run.stopped = True
        try:
            with move_on_after(grace):
                if self._calls:
                    self._idle = self._idle or Event()  # another task may wait, too
                    await self._idle.wait()
        finally:
            run.scope.cancel()
        await run.ended.wait()

    async def _keep_connected(self, run: _Run, last: _Run | None) -> None:
        try:
            with run.scope, unattended():  # no browser opens by itself
                if last is not None:
                    await last.ended.wait()  # its end closes the client
                client = await self._prepared(run)
                while client is not None and not run.stopped:
                    await self._connect_once(run, client)
        except get_cancelled_exc_class() as exc:
            if cancels_current_task(exc):
                raise
            logger.error("%s: it is kept connected no more", self.name, exc_info=exc)  # the other servers go on
            self._set_unless_stopped(run, "disabled", "code of the application awaited a task that was cancelled")
        finally:
            with CancelScope(shield=True):  # bounded by `close_timeout`
                if self.client is not None:
                    await self.client.aclose()
            run.ended.set()
            if self._run is run:
                self._run = None
                self._end_preparing()

    async def _prepared(self, run: _Run) -> Client | None:
        """Its client. None if it cannot be started."""
        if self.file_server is None:
            return self.client
        self.proposed = None
        try:
            self._options = self._clients.pinned(await self.file_server.prepare(partial(self._propose, run)))
            self.client = self._new_client(self._options)
        except NotStarted as exc:
            self._set_unless_stopped(run, exc.state, str(exc))
            return None
        except Exception as exc:  # of a store, or of a function that asks: the other servers go on
            logger.error("%s: it cannot be started", self.name, exc_info=exc)
            self._set_unless_stopped(run, "disabled", _reason(exc))
            return None
        self.proposed = None
        self._end_preparing()
        self._set_unless_stopped(run, "connecting")
        return self.client

    def _propose(self, run: _Run, proposed: ProposedServer) -> None:
        self.proposed = proposed
        self._set_unless_stopped(run, "needs_consent")

    def _set_unless_stopped(self, run: _Run, state: ServerState, problem: str | None = None) -> None:
        """Set the state of a server that is not connected yet, with the *problem* if it cannot be, unless it has been stopped meanwhile."""
        if run.stopped:
            return
        self._problem = problem
        self._set(state, error=problem)
        if problem is not None:
            logger.warning("%s", self.not_ready())

    def asks_about_other(self, server: FileServer) -> bool:
        """Whether it waits for consent to an entry that is written differently from that of *server*."""
        if self.file_server is None or self.status.state != "needs_consent":
            return False
        return self.file_server.entry.digest != server.entry.digest

    def enabled_in(self, server: FileServer) -> bool:
        """Whether it is enabled when its file says *server* of it: as it is now, unless the file has changed that."""
        if self.file_server is None or self.file_server.enabled != server.enabled:
            return server.enabled
        return self.enabled

    async def agree(self, proposed: ProposedServer) -> None:
        """Remember that a person has agreed to *proposed*.

        Raises:
            CallerError: It does not wait for that.
            ConfigError: That cannot be saved.
        """
        if self.status.state != "needs_consent" or self.proposed is None or self.file_server is None:
            raise CallerError(f"the server {quoted(self.name)} does not wait for consent")
        if proposed.digest != self.proposed.digest:
            raise CallerError(f"the server {quoted(self.name)} has changed since: look at it again")
        await self.file_server.agree(proposed)

    def _end_preparing(self) -> None:
        if self.preparing:
            self.preparing = False
            self._changes.wake()

    async def _connect_once(self, run: _Run, client: Client) -> None:
        """Connect if it is not connected, list the tools, and wait until they have to be listed again."""
        try:
            await client.connect()
            await self._offer(await _list_tools(client))
            if not run.stopped:
                self._become_ready(client)
        except Exception as exc:  # of middleware and policies, too: the other servers go on
            if not self.ready or not client.connected or _may_be_gone(exc):
                await self._pause(run, exc)
                return
            self.warn(f"its tools cannot be listed again: {_reason(exc)}")
        if (lost := await self._until_lost_or_woken(client)) is not None:
            await self._pause(run, lost)

    async def _until_lost_or_woken(self, client: Client) -> McpError | None:
        """Wait until the connection has ended, and return why; or until the tools have to be listed, and return None."""
        with CancelScope() as self._waiting, suppress(NotConnected):
            await client.wait_closed()
        if client.connected:
            return None
        try:
            return await client.wait_closed()
        except NotConnected as closed:  # the application has closed the client
            return closed

    def _wake(self) -> None:
        """End the wait for the connection's end, or for the next attempt. While the tools are being listed this does nothing."""
        assert self._waiting is not None, "its first attempt has ended"
        self._waiting.cancel()

    async def _pause(self, run: _Run, error: Exception) -> None:
        """Report why the server is not ready, and wait until the next attempt: none, if it was ready until now."""
        if run.stopped:
            return
        if self.ready:
            self._backoff.ended(current_time() - self._ready_at, useful=self._useful)
            seconds = 0.0 if self._backoff.failures == 1 else self._backoff.delay(0.0)
        else:
            self._backoff.fail()
            seconds = self._backoff.delay(0.0)
        needs_login = isinstance(error, Unauthorized) or (isinstance(error, AuthError) and error.needs_login)
        if not isinstance(error, McpError):
            logger.error("%s: connecting failed", self.name, exc_info=error)
        last = self.status.state
        self._set("needs_login" if needs_login else "down", error=_reason(error))
        if self.status.state != last:  # else it was tried again
            logger.warning("%s", self.not_ready())
        with CancelScope(deadline=math.inf if needs_login else current_time() + seconds) as self._waiting:
            await sleep_forever()

    def _become_ready(self, client: Client) -> None:
        if not self.ready:
            self._ready_at, self._useful = current_time(), False
            self.instructions = client.instructions or ""
            self._set("ready")

    def _set(self, state: ServerState, *, error: str | None = None, quiet: bool = False) -> None:
        last = self.status
        since = last.since if state == last.state else datetime.now(UTC)
        status = replace(last, state=state, since=since, error=error or last.error)
        if state == "ready" and self.client is not None:
            status = replace(status, protocol_version=self.client.protocol_version, tools=len(self.tools))
            if not self.ready and last.protocol_version is not None:
                status = replace(status, restarts=last.restarts + 1)
        self.ready = state == "ready"
        if status != last:
            self.status = status
            self._changes.add(status, quiet=quiet)

    # For calls

    def __enter__(self) -> Client:
        if not self.ready or self.client is None:
            raise self.not_ready()
        self._calls += 1
        return self.client

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._calls -= 1
        if self._idle is not None and not self._calls:
            self._idle.set()
            self._idle = None
        if exc is None:
            self._useful = True
        elif _may_be_gone(exc):
            self._check()

    def not_ready(self) -> NotConnected:
        """Why it cannot be called."""
        status = self.status
        if status.state == "down" and not self.running:
            return NotConnected(NOT_OPEN)
        text = f"the server {quoted(self.name)} {NOT_READY[status.state]}"
        if (reason := self._problem if status.state == "disabled" else status.error) is not None:
            text += f": {reason.removeprefix(f'{self.name}: ')}"
        return NotConnected(text)

    def _check(self) -> None:
        """List the tools now. A server over HTTP may have gone away, although the connection goes on."""
        if self.ready and self.client is not None:
            self.client.clear_cache()
            self._wake()

    async def log_in(self) -> None:
        """Connect, if it is not ready, and list in the context of the caller, where a person may be asked to log in."""
        run, client = self._run, self.client
        assert run is not None, "the group has looked"
        assert client is not None, "it is connected, or waits"
        if not self.ready:
            await client.connect()
        await self._offer(await _list_tools(client))
        if not run.stopped:
            self._become_ready(client)
            self._backoff.reset()
            self._wake()

    # What it offers

    def offered(self) -> list[Tool]:
        """Its tools now: none if it is not ready. They are listed again in the background, if that was long ago."""
        if not self.ready:
            return []
        if current_time() - self._listed_at >= LISTED_AGAIN_AFTER:
            self._listed_at = current_time()
            self._wake()
        return list(self.tools.values())

    async def _offer(self, tools: list[Tool]) -> None:
        """Offer *tools* from now on. Those that cannot be called are left out, with a line in `warnings`."""
        callable_tools = {tool.name: tool for tool in tools if not runs_only_as_task(tool)}
        self.own_names = self._own_names("tool", callable_tools)
        self.tools = {
            name: callable_tools[own].model_copy(update={"name": name}) for name, own in self.own_names.items()
        }
        self._listed_at = current_time()
        for tool in tools:
            if tool.name not in callable_tools:
                self.warn(f"the tool {quoted(tool.name)} is left out: it runs only as a task")
        if self.ready:
            self._set("ready")  # with another number of tools, perhaps

    def name_prompts(self, prompts: list[Prompt]) -> list[Prompt]:
        """The server's *prompts* under their names in the group."""
        listed = {prompt.name: prompt for prompt in prompts}
        self._prompt_names = self._own_names("prompt", listed)
        return [listed[own].model_copy(update={"name": name}) for name, own in self._prompt_names.items()]

    async def own_prompt_name(self, client: Client, name: str, timeout: float | None) -> str:
        """The server's name of the prompt *name*, whether listed or not: only a name that is shortened is looked for in the list."""
        if name not in self._prompt_names and may_be_shortened(name):
            self.name_prompts(await listed(client.list_prompts(timeout=timeout)))
        return self._prompt_names.get(name) or name.partition(SEPARATOR)[2]

    def _own_names(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """The server's *names* by those in the group. Warnings name those that are left out."""
        listed = sorted(names)
        if len(listed) > MAX_LISTED:
            self.warn(f"{len(listed) - MAX_LISTED} {kind}s are left out: there are more than {MAX_LISTED:,}")
        kept = own_names(self.name, listed[:MAX_LISTED])
        for own in sorted({*listed[:MAX_LISTED]} - {*kept.values()}):
            name = group_name(self.name, own)
            self.warn(f"the {kind} {quoted(own)} is left out: another one is called {quoted(name)}, too")
        return kept

    @property
    def all_warnings(self) -> list[str]:
        """The warnings of its file, of its client, and of the group about it."""
        of_file = () if self.file_server is None else self.file_server.warnings
        of_client = () if self.client is None else self.client.warnings
        return [*(f"{escaped(self.name)}: {text}" for text in of_file), *of_client, *self.warnings]

    def warn(self, text: str) -> None:
        if (warning := f"{self.name}: {text}") not in self.warnings:
            self.warnings.append(warning)
            logger.warning("%s", warning)


async def listed(listing: Awaitable[list[T]]) -> list[T]:
    """What a server lists: nothing, if it has no such list."""
    try:
        return await listing
    except McpError as exc:
        if not says_there_is_none(exc):
            raise
        return []


async def _list_tools(client: Client) -> list[Tool]:
    return await listed(client.list_tools())


class _Run:
    """One time in which a server is kept connected."""

    def __init__(self) -> None:
        self.scope = CancelScope()
        self.ended = Event()
        self.stopped = False


def _may_be_gone(error: BaseException) -> bool:
    """Whether a server that was ready may not be, any more."""
    return isinstance(error, UNREACHABLE) or (isinstance(error, HttpStatusError) and error.status in GATEWAY_STATUSES)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, McpError) else f"{type(error).__name__}: {error}"
