"""Several servers under one roof: what applications hold."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, get_args

from anyio import CancelScope, Event, create_task_group
from anyio.abc import TaskGroup

from mcp_host import types
from mcp_host.client.client import Client, OnProgress
from mcp_host.concurrency.tasks import OwnedContext
from mcp_host.errors import CallerError, McpError, NotAdvertised, NotConnected, quoted
from mcp_host.group.member import Member
from mcp_host.group.names import group_name, server_prefix, split_name
from mcp_host.group.status import ServerStatus
from mcp_host.handlers import Failures, as_async, call_callback
from mcp_host.session.list_changed import ListChanged

if TYPE_CHECKING:
    from mcp_host.client.tool_policy import ToolPolicy
    from mcp_host.elicitation import Elicitation
    from mcp_host.limits import Limits
    from mcp_host.sampling import Sampling
    from mcp_host.transports.infer import Connectable

T = TypeVar("T")
OnStatus: TypeAlias = Callable[[ServerStatus], Awaitable[None] | None]
Wait: TypeAlias = Literal["first", "all", "none"]


class ClientGroup:
    """Clients of several servers, under the names that the host gives them.

    >>> async with ClientGroup({"github": ["github-mcp-server"], "files": "https://example.com/mcp"}) as group:
    ...     result = await run_tool_loop(model, "...", tools=[group])

    *servers* are what `Client` takes, by name. They connect at once, each within its own `Limits.connect_timeout`.
    ``async with`` waits until the *first* is ready, until *all* have answered or failed, or for *none*; it never fails
    because of a server. A server that is down is left out of `list_tools` at once, and tried again
    with growing pauses of up to a minute, for as long as the group is open.

    Tools have names like ``github__create_issue``, which are the same in every run: see `group_name`.
    """

    def __init__(
        self,
        servers: Mapping[str, Connectable],
        *,
        sampling: Sampling | None = None,
        elicitation: Elicitation | None = None,
        tools: Mapping[str, ToolPolicy] | None = None,
        limits: Limits | None = None,
        wait: Wait = "first",
        on_status: OnStatus | None = None,
    ) -> None:
        if wait not in get_args(Wait):
            raise ValueError(f'wait is "first", "all" or "none", not {wait!r}')
        self._sampling = sampling
        self._elicitation = elicitation
        self._limits = limits
        self._wait = wait
        self._on_status = None if on_status is None else _status_callback(on_status)
        self._members: dict[str, Member] = {}
        self._prefixes: dict[str, Member] = {}
        self._changed = Event()
        self._statuses: deque[ServerStatus] = deque()
        self._tasks: TaskGroup | None = None
        self._owned: OwnedContext[None] | None = None
        self._disabled = frozenset[str]()
        for name, server in servers.items():
            self._new_member(name, server, (tools or {}).get(name))

    # Opening and closing

    async def __aenter__(self) -> Self:
        self._owned = OwnedContext(self._run())
        await self._owned.enter()
        await self._until_ready()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections to all servers, side by side. Calls in flight end with `ConnectionClosed`."""
        if (owned := self._owned) is not None:
            with CancelScope(shield=True):  # bounded by each client's `close_timeout`
                await owned.leave()
            self._owned = None

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with create_task_group() as tasks:
            if self._on_status is not None:
                tasks.start_soon(self._hand_over, self._on_status)
            self._tasks = tasks
            for name, member in self._members.items():
                if name not in self._disabled:
                    member.start(tasks)
            try:
                yield
            finally:
                self._tasks = None
                with CancelScope(shield=True):  # bounded by each client's `close_timeout`
                    async with create_task_group() as closing:
                        for member in self._members.values():
                            closing.start_soon(member.stop)
                tasks.cancel_scope.cancel()

    async def _until_ready(self) -> None:
        while self._wait != "none":
            states = [member.status.state for member in self._members.values()]
            if "connecting" not in states or ("ready" in states and self._wait == "first"):
                return
            await self._changed.wait()

    # Its servers

    async def add(self, name: str, server: Connectable, *, tools: ToolPolicy | None = None) -> ServerStatus:
        """Add a server while the group is open, and return its status when it is ready or its first attempt has failed.

        Raises:
            ValueError: There is one of that name, or of one that leads to the same names of tools.
            NotConnected: The group is not open.
        """
        tasks = self._open()
        member = self._new_member(name, server, tools)
        member.start(tasks)
        return await self._answered(member)

    async def remove(self, name: str, *, grace: float = 0.0) -> None:
        """Remove a server. Its tools are gone at once; calls in flight have *grace* seconds, then end with `ConnectionClosed`.

        Raises:
            CallerError: There is none of that name.
        """
        member = self._member(name)
        del self._members[name], self._prefixes[server_prefix(name)]
        await member.stop(grace)

    async def enable(self, name: str) -> ServerStatus:
        """Connect a server that is disabled, and return its status when it is ready or the first attempt has failed.

        Raises:
            CallerError: There is none of that name.
            NotConnected: The group is not open.
        """
        member = self._member(name)
        member.start(self._open())
        return await self._answered(member)

    async def disable(self, name: str, *, grace: float = 0.0) -> None:
        """Disconnect a server and leave out its tools, until `enable`. *grace* is as for `remove`.

        Raises:
            CallerError: There is none of that name.
        """
        await self._member(name).stop(grace)

    async def log_in(self, name: str) -> ServerStatus:
        """Connect a server that needs a login, which begins in the context of this call, and return its status.

        Raises:
            CallerError: There is none of that name.
            AuthError: The login has failed.
            McpError: The server cannot be connected.
        """
        member = self._member(name)
        await member.client.connect()
        member.try_again()
        while member.status.state == "needs_login":
            await self._changed.wait()
        return member.status

    def status(self) -> dict[str, ServerStatus]:
        """What is known about each server, by name."""
        return {name: member.status for name, member in self._members.items()}

    @property
    def clients(self) -> Mapping[str, Client]:
        """The client of each server, for what the group does not offer."""
        return {name: member.client for name, member in self._members.items()}

    @property
    def instructions(self) -> str | None:
        """What the servers that are ready say about their use, each under its name and marked as the server's words.

        For the system prompt of the host. It is text of the servers: do not trust it.
        """
        parts = [
            f"# How the server {name!r} describes its use, in its own words\n\n{text.strip()}"
            for name, member in self._members.items()
            if member.ready and (text := member.client.instructions)
        ]
        return "\n\n".join(parts) or None

    @property
    def warnings(self) -> list[str]:
        """What went wrong without failing anything, one sentence each, server by server."""
        return [text for member in self._members.values() for text in (*member.client.warnings, *member.warnings)]

    def _open(self) -> TaskGroup:
        if self._tasks is None:
            raise NotConnected("the group is not open: use `async with`")
        return self._tasks

    def _new_member(self, name: str, server: Connectable, tools: ToolPolicy | None) -> Member:
        prefix = server_prefix(name)
        if (other := self._prefixes.get(prefix)) is not None:
            raise ValueError(f"the servers {quoted(other.name)} and {quoted(name)} would have tools of the same names")

        async def take_tools(tools: list[types.Tool]) -> None:
            member.take_tools(tools)

        client = Client(
            server,
            sampling=self._sampling,
            elicitation=self._elicitation,
            tools=tools,
            limits=self._limits,
            list_changed=ListChanged(tools=take_tools),
        )
        member = Member(name, client, self._status_changed)
        self._members[name] = self._prefixes[prefix] = member
        return member

    def _member(self, name: str) -> Member:
        if (member := self._members.get(name)) is None:
            raise CallerError(f"the group has no server {quoted(name)}, only {_list(self._members)}")
        return member

    async def _answered(self, member: Member) -> ServerStatus:
        while member.status.state == "connecting":
            await self._changed.wait()
        return member.status

    def _status_changed(self, status: ServerStatus) -> None:
        if self._on_status is not None:
            self._statuses.append(status)
        self._changed.set()
        self._changed = Event()

    async def _hand_over(self, on_status: Callable[[ServerStatus], Awaitable[None]]) -> None:
        failures: Failures = Counter()
        while True:
            while self._statuses:
                run = partial(on_status, self._statuses.popleft())
                await call_callback(run, subject="on_status", failures=failures)
            await self._changed.wait()

    # Tools

    @property
    def name(self) -> str:
        """How logs and errors call the group itself."""
        return "the group"

    def server_of(self, name: str) -> str:
        """The server of the tool or prompt *name*.

        Raises:
            CallerError: The name is none of this group.
        """
        return self._named(name).name

    async def list_tools(self, *, timeout: float | None = None) -> list[types.Tool]:
        """The tools of all servers that are ready, server by server, in the order of the servers.

        They are kept, and listed again when their server has changed them, so this waits for nothing.
        """
        ready = [member for member in self._members.values() if member.ready]
        return [tool for member in ready for tool in member.tools.values()]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        caller: object = None,
    ) -> types.CallToolResult:
        """Call a tool by its name in the group. The rest is as for `Client.call_tool`.

        Raises:
            CallerError: No server of this group has such a tool.
            NotConnected: Its server is not ready; the text says why.
        """
        member = self._named(name)
        with self._in_use(member):
            if (own := member.server_names.get(name)) is None:
                raise CallerError(f"{member.name} lists no tool {quoted(name)}")
            return await member.client.call_tool(
                own,
                arguments,
                timeout=timeout,
                idle_timeout=idle_timeout,
                on_progress=on_progress,
                meta=meta,
                caller=caller,
            )

    # Prompts and resources

    async def list_prompts(self, *, timeout: float | None = None) -> list[types.Prompt]:
        """The prompts of all servers that are ready, under names like those of tools.

        A server that cannot list them is left out, with a line in `warnings`.
        """
        found = await self._ask_each("prompts", lambda client: client.list_prompts(timeout=timeout))
        prompts: list[types.Prompt] = []
        for server, listed in found.items():
            names = self._members[server].prompt_names
            for prompt in listed:
                name = group_name(server, prompt.name)
                names[name] = prompt.name
                prompts.append(prompt.model_copy(update={"name": name}))
        return prompts

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> types.GetPromptResult:
        """Get a prompt by its name in the group. The rest is as for `Client.get_prompt`."""
        member = self._named(name)
        with self._in_use(member):
            return await member.client.get_prompt(
                member.prompt_name(name),
                arguments,
                timeout=timeout,
                idle_timeout=idle_timeout,
                on_progress=on_progress,
                caller=caller,
            )

    async def list_resources(self, *, timeout: float | None = None) -> dict[str, list[types.Resource]]:
        """The resources of each server that is ready. One that cannot list them is left out, with a line in `warnings`."""
        return await self._ask_each("resources", lambda client: client.list_resources(timeout=timeout))

    async def list_resource_templates(self, *, timeout: float | None = None) -> dict[str, list[types.ResourceTemplate]]:
        """The resource templates of each server, as for `list_resources`."""
        return await self._ask_each(
            "resource templates", lambda client: client.list_resource_templates(timeout=timeout)
        )

    async def read_resource(
        self,
        server: str,
        uri: str,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        caller: object = None,
    ) -> types.ReadResourceResult:
        """Read the resource of *server* at *uri*. The rest is as for `Client.read_resource`."""
        member = self._member(server)
        with self._in_use(member):
            return await member.client.read_resource(
                uri, timeout=timeout, idle_timeout=idle_timeout, on_progress=on_progress, caller=caller
            )

    async def _ask_each(self, what: str, ask: Callable[[Client], Awaitable[list[T]]]) -> dict[str, list[T]]:
        """What each server that is ready lists, by its name, in their order. They are asked side by side."""
        found: dict[str, list[T]] = {name: [] for name, member in self._members.items() if member.ready}

        async def ask_one(name: str, member: Member) -> None:
            try:
                with self._in_use(member):
                    found[name] = await ask(member.client)
            except NotAdvertised:
                pass
            except McpError as exc:
                del found[name]
                member.warn(f"its {what} cannot be listed: {exc}")

        async with create_task_group() as tasks:
            for name in list(found):
                tasks.start_soon(ask_one, name, self._members[name])
        return found

    def _named(self, name: str) -> Member:
        """The server of a tool or prompt."""
        if (parts := split_name(name)) is None or (member := self._prefixes.get(parts[0])) is None:
            raise CallerError(f"{quoted(name)} is of none of the servers {_list(self._members)}")
        return member

    @contextmanager
    def _in_use(self, member: Member) -> Iterator[None]:
        if not member.ready:
            raise NotConnected(member.unavailable)
        with member.in_use():
            yield


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _status_callback(on_status: OnStatus) -> Callable[[ServerStatus], Awaitable[None]]:
    return as_async(on_status, argument="on_status", shape="(status: ServerStatus) -> None")
