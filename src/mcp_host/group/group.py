"""Several servers under one roof: what applications hold."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from weakref import ref

from anyio import CancelScope, create_task_group, move_on_after
from anyio.abc import TaskGroup

from mcp_host import types
from mcp_host.client.client import Client
from mcp_host.concurrency.backends import Loop
from mcp_host.concurrency.tasks import OwnedContext
from mcp_host.errors import CallerError, ConnectionClosed, McpError, NotConnected, quoted
from mcp_host.group.clients import Clients
from mcp_host.group.instructions import instructions_of_all
from mcp_host.group.member import NOT_OPEN, Member, listed
from mcp_host.group.members import Members
from mcp_host.group.names import SEPARATOR
from mcp_host.group.options import (
    CallOptions,
    GroupOptions,
    OnServerChange,
    OnServerLog,
    OnServerStderr,
    RequestOptions,
    ServerOptions,
    ToolCallOptions,
    Wait,
)
from mcp_host.group.status import OnStatus, ServerStatus, StatusChanges
from mcp_host.limits import check_seconds
from mcp_host.protocol.negotiation import EraCache

if TYPE_CHECKING:
    from mcp_host.auth import Login, OnDevice, TokenStore
    from mcp_host.client.pins import ToolPins
    from mcp_host.config import AnswerStore, AskInput, Scope
    from mcp_host.elicitation import Elicitation
    from mcp_host.frameworks.google_adk import GroupToolset as GoogleAdkToolset
    from mcp_host.frameworks.langchain import GroupTool as LangChainTool
    from mcp_host.frameworks.openai_agents import GroupServer as OpenAIAgentsServer
    from mcp_host.frameworks.pydantic_ai import GroupToolset as PydanticAIToolset
    from mcp_host.group.consents import ApproveServer, ServerConsents
    from mcp_host.group.file_server import FileServer
    from mcp_host.group.files import Difference, GroupFiles, ServersPath
    from mcp_host.group.following import WatchFiles
    from mcp_host.limits import Limits
    from mcp_host.middleware import Middleware
    from mcp_host.roots import RootLike, RootsHandler
    from mcp_host.sampling import Approvals, ApproveProposal, Sampling
    from mcp_host.sampling.limits import OwnTools
    from mcp_host.sampling.proposed_server import ProposedServer
    from mcp_host.transports.infer import Connectable

logger = logging.getLogger(__name__)

T = TypeVar("T")

FILE_GRACE = 10.0  # seconds for calls in flight when a followed file changes their server
WAIT = 5.0  # seconds for all servers to answer: most do, and few users wait longer for one that hangs
WAITS: Mapping[Wait, float] = {"none": 0.0, "first": math.inf, "all": math.inf}


class ClientGroup:
    """Clients of several servers, under the names that you give them.

    >>> async with ClientGroup({"github": ["github-mcp-server"], "files": "https://example.com/mcp"}) as group:
    ...     result = await run_tool_loop(model, "...", tools=[group])

    *servers* are what `Client` takes, or `ServerOptions`, by name. They connect at once, each within its own `Limits.connect_timeout`.
    ``async with`` waits until "all" have answered or failed, until the "first" is ready, or for "none" (*wait*); a number is for all, but
    no longer than so many seconds. A server that cannot be reached does not make it fail.

    A server that is down is left out of `list_tools`, and calls of its tools raise `NotConnected` at once. The group connects it
    again, after growing pauses of up to a minute; `Stdio.restart` has no effect. *on_status* gets each `ServerStatus` that changes,
    one at a time, in order, until the group is closed.

    Tools and prompts have names like ``github__create_issue``, of 64 characters at most. Such a name depends on the names of
    the server and the tool alone. A digest replaces letters that providers of models do not take, and what is too long.

    *sampling*, *elicitation*, *roots*, *client_info*, *limits*, *era_cache*, *middleware*, *ping_interval* and *run_own_tools* are as for
    `Client`, for all servers. *pins* are `ToolPins` for each server whose `ToolPolicy` has none, by its name. *on_log* and *on_change* get the server's name first: ``(server: str, change: Change)``. So does *on_stderr*,
    for each `Stdio` that has no *on_stderr*: ``(server: str, line: str)``.

    *approve* is a function, or `Approvals` that other groups or loops share. It is asked about calls that a model makes of these tools in
    `run_tool_loop`, unless the loop has an *approve*. What it allows for the "session" is allowed as long as `approvals` lives, in every
    loop. `call_tool` is your own call: it does not ask.

    Any task may call, add and remove servers, and close the group. It can be opened again, also in another event loop.

    Raises:
        TypeError, ValueError: An argument is wrong, or two servers would have tools of the same names.

    Besides the errors in its own docstring, a method may raise these.

    Raises:
        CallerError: The group has no server of that name, or is open in another event loop.
        NotConnected: The group is not open, or the server is not ready; the text says why.
    """

    _owned: OwnedContext[TaskGroup] | None = None
    """What is open, or was."""

    def __init__(
        self,
        servers: Mapping[str, Connectable | ServerOptions],
        *,
        sampling: Sampling | None = None,
        elicitation: Elicitation | None = None,
        roots: Sequence[RootLike] | RootsHandler | None = None,
        approve: ApproveProposal | Approvals | None = None,
        on_status: OnStatus | None = None,
        on_log: OnServerLog | None = None,
        on_change: OnServerChange | None = None,
        on_stderr: OnServerStderr | None = None,
        client_info: types.Implementation | None = None,
        limits: Limits | None = None,
        pins: ToolPins | None = None,
        era_cache: EraCache | None = None,
        middleware: Sequence[Middleware] = (),
        ping_interval: float | None = None,
        run_own_tools: bool | OwnTools = False,
        wait: Wait | float = WAIT,
    ) -> None:
        if not isinstance(servers, Mapping):
            kind = type(servers).__name__
            raise TypeError(
                f'servers is a mapping of names to servers, like {{"files": url}}, not {kind};'
                " ClientGroup.from_file(path) reads a file"
            )
        if isinstance(servers.get("mcpServers"), Mapping):
            raise TypeError("servers is a whole configuration: write ClientGroup.from_file(path)")
        if isinstance(wait, str) and wait not in WAITS:
            raise ValueError(f'wait is "first", "all", "none" or a number of seconds, not {wait!r}')
        self._wait = wait
        self._seconds = WAITS[wait] if isinstance(wait, str) else check_seconds("wait", wait)
        self._files: GroupFiles | None = None
        self._changes = StatusChanges(on_status)
        self._tasks: TaskGroup | None = None
        self._loop: Loop | None = None
        self._context = copy_context()
        self._approvals: Approvals | None = None
        if approve is not None:
            from mcp_host.sampling.loop.approvals import as_approvals  # here, because not every host has a model

            self._approvals = as_approvals(approve)
        self._members = Members(self._approvals)
        options = {
            "sampling": sampling,
            "elicitation": elicitation,
            "roots": roots,
            "client_info": client_info,
            "era_cache": EraCache() if era_cache is None else era_cache,
            "middleware": middleware,
            "ping_interval": ping_interval,
            "run_own_tools": run_own_tools,
        }
        self._clients = Clients(
            options, limits=limits, pins=pins, on_log=on_log, on_change=on_change, on_stderr=on_stderr
        )
        for name, server in servers.items():
            self._members.add(self._new_member(name, _options(server)))

    @classmethod
    def from_file(
        cls,
        path: ServersPath | Sequence[ServersPath],
        *,
        dialect: str | None = None,
        scope: Scope | None = None,
        approve_servers: ApproveServer | None = None,
        ask_input: AskInput | None = None,
        consents: ServerConsents | None = None,
        answer_store: AnswerStore | None = None,
        tokens: TokenStore | None = None,
        login: Login | OnDevice | None = None,
        workspace: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        watch: bool | WatchFiles = False,
        grace: float = FILE_GRACE,
        **options: Unpack[GroupOptions],
    ) -> Self:
        """The servers of a user's file, such as ``mcp.json``, or of several.

        >>> async with ClientGroup.from_file("mcp.json", approve_servers=ask_in_terminal, approve=ask_in_terminal) as group:
        ...     result = await run_tool_loop(model, "...", tools=[group])

        *path* is a path, a file that `find_servers` has found, or several of these: `merge_servers` says which file wins. *dialect* and
        *scope* are as for `read_servers`. The files are read now, which blocks. *options* are the other arguments of `ClientGroup`.

        A server that the file describes wrongly, or one of whose variables has no value, is "disabled", with an error; the others go on.
        What is not obeyed is in `warnings`. Variables are expanded at each start, from *environment*, by default that of this process,
        and *workspace*, the folder of the project: see `ServerEntry.expand`.

        Before its first start, a server of a project's file needs the consent of a person. *approve_servers* gets a `ProposedServer` and
        returns True, False, `Allow` or `Deny`, as `ask_in_terminal` does. It is async, or plain and called in a thread, and is asked about
        one server at a time. ``async with`` waits for the answers, but with ``wait="none"``; other servers connect meanwhile.
        *consents* keeps the consent, by default in a file of this user, until the entry, what it expands to, or a file that its
        variables are from changes. A refusal holds until the group is opened again, or `enable`. Without *approve_servers* such servers
        stay "needs_consent": show `proposed_servers`, and call `approve_server`. Files of the user or the administrator need no
        consent, but for servers whose variables are from a file in the project, such as ``${workspaceFolder}/.env``; one whose scope
        is not known needs it if there is *approve_servers*.

        *ask_input* is asked for inputs (``${input:id}``), see `ask_inputs`. The answers are kept as long as the group, and in
        *answer_store*, if there is one. *login*, as for `OAuth` and by default `in_browser`, is what `log_in` begins for servers over
        HTTP that want it; *tokens* keeps what comes of it, by default in memory.

        With *watch*, the group follows the files while it is open: it adds, removes, enables and disables servers as they say, and replaces
        one whose entry changes, with the question for consent as at the start. Calls in flight have *grace* seconds. What you enable
        or disable yourself stays so when its entry changes, until the file enables or disables it. Of two servers of one name yours is
        used, with a line in `warnings`. Once you remove a server, that of the file is added when its entry goes and comes again.
        All else stays as it is; so does everything while a file cannot be read, with a line in `warnings`.
        True needs the extra ``mcp-host[watch]``. An async function ``(paths, changed) -> None`` in its place awaits ``changed()``
        after a change, until it is cancelled.

        Raises:
            ConfigError: A file cannot be read, or there are no servers in it.
            TypeError, ValueError: An argument is wrong.
            ImportError: *watch* is True, and watchfiles is not installed.
        """
        from mcp_host.group.consents import ServerConsents
        from mcp_host.group.file_server import FileOptions  # here, because not every host has files
        from mcp_host.group.files import GroupFiles

        group = cls({}, **options)
        shared = FileOptions(
            approve_servers=approve_servers,
            ask_input=ask_input,
            consents=ServerConsents() if consents is None else consents,
            answer_store=answer_store,
            environment=environment,
            workspace=workspace,
            limits=group._clients.limits,
            tokens=tokens,
            login=login,
        )
        group._files = GroupFiles(path, shared, dialect=dialect, scope=scope, watch=watch, grace=grace)
        for name, server in group._files.servers.items():
            group._members.add(group._new_member(name, server))
        return group

    def __repr__(self) -> str:
        ready = sum(member.ready for member in self._members)
        return f"<ClientGroup of {len(self._members)} servers, {ready} of them ready>"

    def __del__(self) -> None:
        if self._owned is not None and self._loop is not None and not self._owned.ended:
            text = f"a group of the servers {self._members} was dropped without being closed"
            warnings.warn(text, ResourceWarning, stacklevel=1)  # the code that dropped it is not on the stack
            self._loop.call_soon(self._owned.cancel)

    # Opening and closing

    async def __aenter__(self) -> Self:
        self._bind_to_loop()
        if self._owned is not None and not self._owned.ended:
            raise CallerError("the group is open already")
        self._context = copy_context()
        self._changes.open()
        self._owned = OwnedContext(_open(self._members, self._changes))
        self._tasks = await self._owned.enter()
        for member in self._members:
            self._start(member)
        if self._files is not None:
            self._tasks.start_soon(
                self._files.follow, partial(_apply, ref(self))
            )  # which does not keep the group alive
        async with _undone_by(self.aclose):
            await self._until_ready()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        with CancelScope(shield=True):  # bounded by each client's `close_timeout`
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connections to all servers, side by side: calls in flight end with `ConnectionClosed`.

        Any task may close, more than once. If you cancel it, it goes on in the background.
        """
        self._bind_to_loop()
        self._tasks = None
        if self._owned is not None:
            await self._owned.leave()

    def _bind_to_loop(self) -> None:
        """Bind the group to the running event loop. What was open in an earlier one has ended with it."""
        if self._loop is not None and self._loop.is_running():
            return
        if self._owned is not None and not self._owned.ended:
            raise CallerError("this group is open in another event loop, and can be used and closed only there")
        self._loop, self._owned, self._tasks = Loop.running(), None, None

    async def _until_ready(self) -> None:
        while self._wait != "none" and not self._first_is_ready() and self._any_is_asked_about():
            await self._changes.wait()  # for a person, as long as that takes
        with move_on_after(self._seconds):
            while not self._first_is_ready() and "connecting" in self._states():
                await self._changes.wait()
        if self._tasks is None:
            raise ConnectionClosed("the group was closed while it was being opened", may_have_run=False)

    def _states(self) -> set[str]:
        return {member.status.state for member in self._members}

    def _first_is_ready(self) -> bool:
        return self._wait == "first" and "ready" in self._states()

    def _any_is_asked_about(self) -> bool:
        return any(member.preparing for member in self._members)

    # Its servers

    async def add(self, name: str, server: Connectable | ServerOptions) -> ServerStatus:
        """Add a server while the group is open, and return its status when it is ready or its first attempt has failed.

        If you cancel it, the server is not added.

        Raises:
            ValueError: There is one of that name, or of one that leads to the same names of tools.
        """
        self._require_open()
        member = self._new_member(name, _options(server))
        self._members.add(member)
        async with _undone_by(partial(self.remove, name)):  # it is there: the wait ends also if another task removes it
            return await self._started(member)

    async def remove(self, name: str, *, grace: float = 0.0) -> None:
        """Remove a server. Its tools are gone at once; calls in flight have *grace* seconds, then end with `ConnectionClosed`.

        What `approvals` allow of it is forgotten. If you cancel it, calls in flight end at once.
        """
        check_seconds("grace", grace)
        member = self._members.get(name)
        self._members.remove(member)
        await member.disable(grace)

    async def replace(self, name: str, server: Connectable | ServerOptions, *, grace: float = 0.0) -> ServerStatus:
        """Replace the server of that name by *server*, as `remove` and `add` do, but it keeps its place in the order.

        The new one connects while calls of the old one have *grace* seconds. If you cancel it, the old one is gone nevertheless.
        """
        check_seconds("grace", grace)
        self._require_open()
        old, new = self._members.get(name), self._new_member(name, _options(server))
        self._members.replace(new)
        self._start(new)
        await old.disable(grace, quiet=new.enabled)
        return await self._answered(new)

    async def enable(self, name: str) -> ServerStatus:
        """Connect a server that is disabled, and return its status when it is ready or the first attempt has failed.

        One that was refused is asked about again. If you cancel it, the server stays disabled.
        """
        self._require_open()
        member = self._members.get(name)
        if member.running:
            return await self._answered(member)
        async with _undone_by(member.disable):
            member.enabled = True
            return await self._started(member)

    async def disable(self, name: str, *, grace: float = 0.0) -> None:
        """Disconnect a server and leave out its tools, until `enable`. *grace* is as for `remove`."""
        check_seconds("grace", grace)
        await self._members.get(name).disable(grace)

    async def approve_server(self, proposed: ProposedServer) -> ServerStatus:
        """Connect a server of a file that waits for consent, since a person has agreed to *proposed*, one of `proposed_servers`.

        The consent is remembered. A question to *approve_servers* about it is withdrawn. Returns its status as `enable` does.

        Raises:
            CallerError: It does not wait for consent, or not as it was *proposed*: it has changed since.
            ConfigError: The consent cannot be saved.
        """
        self._require_open()
        member = self._members.get(proposed.name)
        await member.agree(proposed)
        await member.disable(quiet=True)
        return await self.enable(member.name)

    async def log_in(self, name: str) -> ServerStatus:
        """Connect a server that needs a login, list its tools, and return its status.

        The login begins in the task and context of this call. Nothing else of the group opens a browser or asks a person to log
        in, but for calls: they are made by your users, who are asked as `Client` asks them. Call this also if another person has
        logged in to a server that is ready (`OAuth.login`), who may have other tools.

        Raises:
            AuthError: The login has failed.
            Unauthorized: The server has no login that this client could begin.
            McpError: The server cannot be connected.
        """
        self._require_open()
        member = self._members.get(name)
        await self._answered(member)
        self._require_open()
        if not member.running:
            raise member.not_ready()
        await member.log_in()
        return member.status

    async def prepare(self) -> dict[str, ServerOptions]:
        """The servers that are enabled, for a `Proxy` or another group to connect in place of this one, which must not be open.

        A person is asked for consent and inputs, and variables are expanded, as `async with` does. A server that cannot be
        started is left out: `status` says why, and so does the log.
        """
        if self._tasks is not None:
            raise CallerError("the group is open")
        prepared = {member.name: await member.prepare() for member in self._members if member.enabled}
        return {name: options for name, options in prepared.items() if options is not None}

    def status(self) -> dict[str, ServerStatus]:
        """What is known about each server, by name."""
        return {member.name: member.status for member in self._members}

    @property
    def clients(self) -> Mapping[str, Client]:
        """The client of each server, for what the group does not offer. Leave connecting and closing to the group.

        A server of a file has none before its first start.
        """
        return {member.name: member.client for member in self._members if member.client is not None}

    @property
    def proposed_servers(self) -> list[ProposedServer]:
        """The servers of files that wait for the consent of a person, as `approve_server` takes them."""
        waiting = [member for member in self._members if member.status.state == "needs_consent"]
        return [member.proposed for member in waiting if member.proposed is not None]

    @property
    def approvals(self) -> Approvals | None:
        """What decides on the calls of models, and remembers; None without *approve*."""
        return self._approvals

    @property
    def instructions(self) -> str | None:
        """What the servers that are ready say about their use, for the system prompt of your model.

        Each text is under its server's name, quoted, and marked as the server's words, with 8,192 characters at most. Such a text
        can try to make your model do what you do not want: leave out servers that you do not trust.
        """
        return instructions_of_all({member.name: member.instructions for member in self._members if member.ready})

    @property
    def warnings(self) -> list[str]:
        """What went wrong without failing anything, one sentence each, server by server."""
        files = self._files
        of_files = [] if files is None else [*files.warnings, *self._members.left_out(files.servers)]
        return [*of_files, *chain.from_iterable(member.all_warnings for member in self._members)]

    async def set_roots(self, roots: Sequence[RootLike]) -> None:
        """Offer other roots to all servers from now on. See `Client.set_roots`.

        Raises:
            CallerError: The group was made without *roots*.
        """
        if self._clients.options["roots"] is None:
            raise CallerError("this group was made without roots: pass roots=[] to offer some later")
        self._clients.options["roots"] = roots
        for member in self._members:
            try:
                if member.client is not None:
                    await member.client.set_roots(roots)
            except McpError as exc:  # it has them from its next connection on
                member.warn(f"it was not told of other roots: {exc}")

    def _require_open(self) -> TaskGroup:
        if self._tasks is None:
            raise NotConnected(NOT_OPEN)
        return self._tasks

    def _new_member(self, name: str, server: ServerOptions | FileServer, *, enabled: bool | None = None) -> Member:
        try:
            return Member(name, server, self._clients, self._changes, enabled=enabled)
        except (TypeError, ValueError) as exc:
            exc.args = (f"the server {quoted(name)}: {exc}",)
            raise

    def _start(self, member: Member) -> None:
        if member.enabled:
            member.start(self._require_open(), self._context)

    def _apply(self, changed: Difference) -> None:
        """Change the servers as the files have changed. What the application has added, replaced or removed stays so."""
        assert self._files is not None, "they are followed"
        tasks, grace = self._require_open(), self._files.grace
        for name in changed.removed:
            if (member := self._members.from_file(name)) is not None:
                self._members.remove(member)
                tasks.start_soon(member.disable, grace)
        for server in changed.added:
            self._add_from_file(server)
        for name, server in self._files.servers.items():
            if (member := self._members.from_file(name)) is not None:
                if name in changed.changed or member.asks_about_other(server):
                    self._replace_from_file(member, server, grace)
                elif name in changed.disabled:
                    tasks.start_soon(member.disable, grace)
                elif name in changed.enabled and not member.running:
                    member.start(tasks, self._context)
                member.file_server = server  # what it says may have changed all the same
        self._members.sort(self._files.servers)

    def _add_from_file(self, server: FileServer) -> None:
        if left_out := self._members.left_out([server.entry.name]):
            logger.warning("%s", *left_out)
            return
        new = self._new_member(server.entry.name, server)
        self._members.add(new)
        self._start(new)

    def _replace_from_file(self, old: Member, server: FileServer, grace: float) -> None:
        new = self._new_member(old.name, server, enabled=old.enabled_in(server))
        self._members.replace(new)
        self._require_open().start_soon(partial(old.disable, grace, quiet=new.enabled))
        self._start(new)

    async def _started(self, member: Member) -> ServerStatus:
        self._start(member)
        return await self._answered(member)

    async def _answered(self, member: Member) -> ServerStatus:
        while member.preparing or member.status.state == "connecting":
            await self._changes.wait()
        return member.status

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
        return self._members.owner_of(name).name

    async def list_tools(self, *, timeout: float | None = None) -> list[types.Tool]:
        """The tools of all servers that are ready, server by server, in the order of the servers, then of the alphabet.

        They are kept, so this waits for nothing, and *timeout* does not matter. They are listed again when their server says
        that it has changed them, and in the background when they are asked for and older than 30 seconds or the
        server's ``ttlMs``, whichever is longer.
        """
        self._require_open()
        return [tool for member in self._members for tool in member.offered()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[ToolCallOptions]
    ) -> types.CallToolResult:
        """Call a tool by its name in the group. *options* are the other arguments of `Client.call_tool`.

        Raises:
            CallerError: No server of this group has such a tool.
        """
        try:
            member = self._members.by_prefix[name.partition(SEPARATOR)[0]]  # without a call: each costs half a percent
        except (AttributeError, KeyError):
            member = self._members.owner_of(name)
        with member as client:
            try:
                own = member.own_names[name]
            except KeyError:
                raise CallerError(f"the server {quoted(member.name)} lists no tool {quoted(name)}") from None
            return await client.call_tool(own, arguments, **options)

    # In other frameworks

    def for_pydantic_ai(self, *, caller: object = None) -> PydanticAIToolset:
        """The tools for agents of pydantic-ai: ``Agent(model, toolsets=[group.for_pydantic_ai()])``.

        *caller* is passed to `call_tool`.

        Raises:
            ImportError: pydantic-ai is not installed.
        """
        from mcp_host.frameworks.pydantic_ai import GroupToolset

        return GroupToolset(self, caller=caller)

    def for_openai_agents(self, *, require_approval: Any = None, caller: object = None) -> OpenAIAgentsServer:
        """The tools for agents of the OpenAI Agents SDK: ``Agent(..., mcp_servers=[group.for_openai_agents()])``.

        *require_approval* is the SDK's own, such as "always": the run is interrupted before the group's *approve* is asked.
        *caller* is passed to `call_tool`.

        Raises:
            ImportError: openai-agents is not installed.
        """
        from mcp_host.frameworks.openai_agents import GroupServer

        return GroupServer(self, require_approval=require_approval, caller=caller)

    async def for_langchain(self, *, caller: object = None) -> list[LangChainTool]:
        """The tools for agents of LangChain: ``create_agent(model, tools=await group.for_langchain())``.

        These are the tools of the servers that are ready now: ask again to see changes. *caller* is passed to `call_tool`.

        Raises:
            ImportError: langchain-core is not installed.
            NotConnected: The group is not open.
        """
        from mcp_host.frameworks.langchain import group_tools

        return await group_tools(self, caller=caller)

    def for_google_adk(self, *, caller: object = None) -> GoogleAdkToolset:
        """The tools for agents of Google's Agent Development Kit: ``Agent(..., tools=[group.for_google_adk()])``.

        *caller* is passed to `call_tool`.

        Raises:
            ImportError: google-adk is not installed.
        """
        from mcp_host.frameworks.google_adk import GroupToolset

        return GroupToolset(self, caller=caller)

    # Prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[types.Prompt]:
        """The prompts of all servers that are ready, under names like those of tools, in the same order.

        A server that cannot list them is left out, with a line in `warnings`.
        """
        found = await self._ask_each("prompts", lambda client: client.list_prompts(timeout=timeout))
        return [prompt for member, prompts in found.items() for prompt in member.name_prompts(prompts)]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> types.GetPromptResult:
        """Get a prompt by its name in the group. *options* are the other arguments of `Client.get_prompt`."""
        with (member := self._members.owner_of(name)) as client:
            own = await member.own_prompt_name(client, name, options.get("timeout"))
            return await client.get_prompt(own, arguments, **options)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        server: str | None = None,
        context: Mapping[str, str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> types.CompleteResult:
        """Completions, as for `Client.complete`. A prompt has its name in the group; for a template, name the *server*.

        Raises:
            CallerError: The *server* of a template is not given.
        """
        if isinstance(ref, types.PromptReference):
            member = self._members.owner_of(ref.name)
        elif server is None:
            raise CallerError("name the server of a resource template: complete(..., server=...)")
        else:
            member = self._members.get(server)
        with member as client:
            if isinstance(ref, types.PromptReference):
                own = await member.own_prompt_name(client, ref.name, options.get("timeout"))
                ref = ref.model_copy(update={"name": own})
            return await client.complete(ref, argument, value, context=context, **options)

    # Resources

    async def list_resources(self, *, timeout: float | None = None) -> dict[str, list[types.Resource]]:
        """The resources of each server that is ready, by its name. One that cannot list them is left out, with a line in `warnings`."""
        found = await self._ask_each("resources", lambda client: client.list_resources(timeout=timeout))
        return {member.name: items for member, items in found.items()}

    async def list_resource_templates(self, *, timeout: float | None = None) -> dict[str, list[types.ResourceTemplate]]:
        """The resource templates of each server, as for `list_resources`."""
        found = await self._ask_each(
            "resource templates", lambda client: client.list_resource_templates(timeout=timeout)
        )
        return {member.name: items for member, items in found.items()}

    async def read_resource(self, server: str, uri: str, **options: Unpack[CallOptions]) -> types.ReadResourceResult:
        """Read the resource of *server* at *uri*. *options* are the other arguments of `Client.read_resource`."""
        with self._members.get(server) as client:
            return await client.read_resource(uri, **options)

    async def subscribe_resource(self, server: str, uri: str, **options: Unpack[RequestOptions]) -> None:
        """Subscribe to changes of the resource of *server* at *uri*, which *on_change* receives. See `Client.subscribe_resource`."""
        with self._members.get(server) as client:
            await client.subscribe_resource(uri, **options)

    async def unsubscribe_resource(self, server: str, uri: str, **options: Unpack[RequestOptions]) -> None:
        """End a subscription."""
        with self._members.get(server) as client:
            await client.unsubscribe_resource(uri, **options)

    async def _ask_each(self, what: str, ask: Callable[[Client], Awaitable[list[T]]]) -> dict[Member, list[T]]:
        """What each server that is ready lists, in their order. They are asked side by side."""
        self._require_open()
        found: dict[Member, list[T] | None] = {member: None for member in self._members if member.ready}

        async def ask_one(member: Member) -> None:
            try:
                with member as client:
                    found[member] = await listed(ask(client))
            except Exception as exc:  # of middleware, too: the others are listed
                member.warn(f"its {what} cannot be listed: {exc}")

        async with create_task_group() as tasks:
            for member in found:
                tasks.start_soon(ask_one, member)
        return {member: items for member, items in found.items() if items is not None}


@asynccontextmanager
async def _undone_by(undo: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """If what is inside fails or is cancelled, *undo* it."""
    try:
        yield
    except BaseException:
        with CancelScope(shield=True):
            await undo()
        raise


@asynccontextmanager
async def _open(members: Members, changes: StatusChanges) -> AsyncIterator[TaskGroup]:
    """The tasks of an open group, which must not keep the group alive: one that is dropped is closed."""
    async with create_task_group() as tasks:
        tasks.start_soon(changes.hand_over)
        try:
            yield tasks
        finally:
            with CancelScope(shield=True):  # bounded by each client's `close_timeout`
                async with create_task_group() as closing:
                    for member in members:
                        closing.start_soon(member.close)
            tasks.cancel_scope.cancel()  # with it, servers that were being removed


def _apply(group: ref[ClientGroup], changed: Difference) -> bool:
    found = group()
    if found is None or found._tasks is None:  # it was dropped, or is being closed
        return False
    found._apply(changed)
    return True


def _options(server: Connectable | ServerOptions) -> ServerOptions:
    return server if isinstance(server, ServerOptions) else ServerOptions(server)
