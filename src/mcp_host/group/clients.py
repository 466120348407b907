"""The clients of a group's servers: what they have in common, and what each has by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_host.client.client import Client
from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.group.options import OnServerChange, OnServerLog, OnServerStderr, ServerOptions
from mcp_host.handlers import as_async, check_plain
from mcp_host.limits import Limits
from mcp_host.session.list_changed import ListChanged
from mcp_host.transports.infer import infer_transport
from mcp_host.transports.stdio import Stdio

if TYPE_CHECKING:
    from mcp_host.client.pins import ToolPins


class Clients:
    """Makes the client of each server. *options* are the arguments of `Client` for all servers, and may change: later clients get the new ones."""

    def __init__(
        self,
        options: dict[str, Any],
        *,
        limits: Limits | None,
        pins: ToolPins | None,
        on_log: OnServerLog | None,
        on_change: OnServerChange | None,
        on_stderr: OnServerStderr | None,
    ) -> None:
        self.options = options
        self.limits = limits
        self._tools = None if pins is None else ToolPolicy(pins=pins)
        self._on_log = None if on_log is None else as_async(on_log, argument="on_log")
        self._on_change = None if on_change is None else as_async(on_change, argument="on_change")
        self._on_stderr = on_stderr
        if on_stderr is not None:
            check_plain(on_stderr, argument="on_stderr", shape=None)

    def pinned(self, server: ServerOptions) -> ServerOptions:
        """*server* with the pins of the group, unless it has its own."""
        if self._tools is None or (server.tools is not None and server.tools.pins is not None):
            return server
        return replace(
            server, tools=self._tools if server.tools is None else replace(server.tools, pins=self._tools.pins)
        )

    def new(self, name: str, server: ServerOptions, list_changed: ListChanged) -> Client:
        """The client of the *server* that the host calls *name*.

        Raises:
            TypeError, ValueError: As for `Client`.
        """
        transport = infer_transport(server.server)
        if isinstance(transport, Stdio):
            transport = replace(transport, restart=False)  # a process that has ended is started again by the group
            if transport.on_stderr is None and self._on_stderr is not None:
                transport = replace(transport, on_stderr=partial(self._on_stderr, name))
        return Client(
            transport,
            name=name,
            tools=server.tools,
            limits=self.limits if server.limits is None else server.limits,
            list_changed=list_changed,
            on_log=None if self._on_log is None else partial(self._on_log, name),
            on_change=None if self._on_change is None else partial(self._on_change, name),
            **self.options,
        )
